//! The monitor on a real process: `isotherm workload`, watched from its start to its end.

use std::ffi::OsString;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use isotherm_core::{AddrRange, Attributes, Budget};
use isotherm_kernel::unix_ns;
use isotherm_record::SnapshotRecord;
use isotherm_run::{CommandLine, Event, RunConfig, Source, Streams, Targets};
use isotherm_sim::Pattern;
use serde::Deserialize;

use crate::watch::probe_named;
use crate::{Monitored, PhaseTruth, TakenSnapshot};

/// What the workload prints when a phase begins.
#[derive(Debug, Deserialize)]
pub(crate) struct Announced {
    unix_ns: u64,
    pub(crate) areas: Vec<AnnouncedArea>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct AnnouncedArea {
    name: String,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// How often pages are sampled.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// With these intervals, in every round.
    Fixed(Attributes),
    /// As by default: the intervals follow from what is observed and from the budget, this share of one CPU.
    Tuned {
        /// 0 to 1.
        cpu: f64,
    },
}

/// A pattern by its name, or in a file.
///
/// # Errors
/// If there is none.
pub fn pattern(name: &str) -> Result<Pattern> {
    Ok(if name.ends_with(".toml") { Pattern::parse(&std::fs::read_to_string(name)?)? } else { Pattern::shipped(name)? })
}

/// Interrupts the target so often, in milliseconds, on a machine with a single processor, which switches the address
/// space; 0 for never.
pub fn switch_address_spaces(millis: u64) {
    if millis > 0 {
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(Duration::from_millis(millis));
            }
        });
    }
}

/// Watches all phases of the [pattern](pattern()) `name`, with areas `scale` times as large. `probe` is as `--probe`
/// takes it.
///
/// # Errors
/// If isotherm or the workload fails, or the workload prints something unexpected.
pub fn watch(isotherm: &Path, probe: &str, name: &str, scale: u32, pace: Pace, seed: u64) -> Result<Monitored> {
    let pattern = Rc::new(pattern(name)?.scaled(scale.into()));
    let place = tempfile::tempdir()?;
    let log = place.path().join("workload.log");
    let words = ["workload", name, "--announce", "--scale"].map(OsString::from);
    let words = [isotherm.into()].into_iter().chain(words).chain([scale.to_string().into()]).collect();
    let command = CommandLine {
        words,
        streams: Streams::Detached { input: false, log: Some(log.clone()) },
        ..CommandLine::default()
    };
    let targets = Targets::command_line(command);
    let run = RunConfig::new(Source::Live { targets, probe: probe_named(probe)? }).seed(seed);
    let mut run = match pace {
        Pace::Fixed(attributes) => run.attributes(attributes.into()),
        Pace::Tuned { cpu } => run.budget(Budget { cpu, ..Budget::default() }),
    }
    .prepare()?;
    let events = run.subscribe();
    let session = run.start()?;
    let (mut records, mut surveys) = (Vec::new(), Vec::new());
    // The start of the run by the clock. A snapshot arrives late, never early, so the earliest start is the best.
    let mut started = u64::MAX;
    for event in events {
        match event {
            Event::Snapshot(record) => {
                started = started.min(unix_ns().saturating_sub(record.snapshot.time.as_nanos() as u64));
                records.push(record);
            }
            Event::Survey(record) => surveys.push(record.survey.time),
            Event::Missed(missed) => bail!("missed, because the machine is too busy: {missed}"),
            _ => {}
        }
    }
    let status = session.wait()?.command.context("the run has no command")?.wait()?;
    let said = std::fs::read_to_string(&log)?;
    ensure!(status.success(), "the workload failed: {said}");

    let mut phases = Vec::new();
    for (nth, line) in said.lines().enumerate().take(pattern.phases.len()) {
        let announced: Announced = serde_json::from_str(line).with_context(|| format!("the workload said {line}"))?;
        let start = Duration::from_nanos(announced.unix_ns.saturating_sub(started));
        let range = |area: usize| {
            let area = announced.areas.iter().find(|known| known.name == pattern.areas[area].name)?;
            AddrRange::new(area.start, area.end)
        };
        phases.push(PhaseTruth::new(&pattern, nth, start, range));
    }
    ensure!(phases.len() == pattern.phases.len(), "the workload announced {} phases", phases.len());

    let taken = |record: &SnapshotRecord| TakenSnapshot {
        time: record.snapshot.time,
        aggregation: record.snapshot.aggregation,
        samples: record.snapshot.samples,
        regions: record.snapshot.regions().copied().collect(),
        cost: record.cost.unwrap_or_default(),
    };
    Ok(Monitored { phases, snapshots: records.iter().map(|record| taken(record)).collect(), surveys })
}
