//! Runs of the monitor in this process, through isotherm's library.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use isotherm_record::Cost;
use isotherm_run::{Event, ProbeChoice, RunConfig, SurveyChoice};

/// The probe of this name, as `isotherm record --probe` takes it.
///
/// # Errors
/// If there is none.
pub fn probe_named(name: &str) -> Result<ProbeChoice> {
    ProbeChoice::named(name).with_context(|| format!("there is no probe {name:?}; take auto, idle, bpf, refs or damon"))
}

/// Watches a process for `time` with the default attributes and `survey`, and returns the cost of each snapshot with
/// its time.
///
/// # Errors
/// If the process cannot be watched, or the machine is too busy to take every snapshot.
pub fn costs(pid: u32, probe: &str, survey: SurveyChoice, time: Duration) -> Result<Vec<(Duration, Cost)>> {
    let mut run = RunConfig::processes([pid]).probe(probe_named(probe)?).survey(survey).duration(time).prepare()?;
    let events = run.subscribe();
    let session = run.start()?;
    let mut costs = Vec::new();
    for event in events {
        match event {
            Event::Snapshot(record) => costs.extend(record.cost.map(|cost| (record.snapshot.time, cost))),
            Event::Missed(missed) => bail!("missed, because the machine is too busy: {missed}"),
            _ => {}
        }
    }
    session.wait()?;
    Ok(costs)
}
