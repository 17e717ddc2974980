//! The monitor on a real process: `isotherm record -- isotherm workload`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use isotherm_core::{AddrRange, Attributes};
use isotherm_record::Recording;
use isotherm_sim::Pattern;
use serde::Deserialize;

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

/// Records all phases of the pattern `name`, with areas `scale` times as large. `probe` is as `--probe` takes it.
///
/// # Errors
/// If isotherm or the workload fails, or the workload prints something unexpected.
pub fn watch(
    isotherm: &Path,
    probe: &str,
    name: &str,
    scale: u32,
    attributes: Attributes,
    seed: u64,
) -> Result<Monitored> {
    let pattern = Pattern::shipped(name)?.scaled(scale.into());
    let place = tempfile::tempdir()?;
    let file = place.path().join("isotherm.rec");
    let bounds = format!("{}:{}", attributes.min_regions(), attributes.max_regions());
    let interval = |interval: Duration| format!("{}ns", interval.as_nanos());
    let output = Command::new(isotherm)
        .args(["record", "--quiet", "--probe", probe, "--seed", &seed.to_string(), "--regions", &bounds])
        .args(["--sample", &interval(attributes.sampling()), "--aggr", &interval(attributes.aggregation())])
        .args(["--update", &interval(attributes.update()), "-o"])
        .arg(&file)
        .arg("--")
        .arg(isotherm)
        .args(["workload", name, "--announce", "--scale", &scale.to_string()])
        .output()
        .with_context(|| format!("{} cannot be started", isotherm.display()))?;
    ensure!(output.status.success(), "isotherm failed: {}", String::from_utf8_lossy(&output.stderr));

    let recording = Recording::open(&file)?;
    let started = recording.header().started_unix_ns;
    let mut phases = Vec::new();
    for (line, phase) in String::from_utf8(output.stdout)?.lines().zip(&pattern.phases) {
        let announced: Announced = serde_json::from_str(line).with_context(|| format!("the workload said {line}"))?;
        let start = Duration::from_nanos(announced.unix_ns.saturating_sub(started));
        let range = |area: usize| {
            let area = announced.areas.iter().find(|known| known.name == pattern.areas[area].name)?;
            AddrRange::new(area.start, area.end)
        };
        phases.push(PhaseTruth::new(&pattern, phase, start, range, attributes.sampling()));
    }
    ensure!(phases.len() == pattern.phases.len(), "the workload announced {} phases", phases.len());

    let mut snapshots: Vec<TakenSnapshot> = Vec::new();
    for record in recording.snapshots()? {
        snapshots.extend(record?.into_rows().map(|row| TakenSnapshot {
            time: row.time,
            aggregation: row.aggregation,
            samples: row.samples,
            regions: row.target.regions,
            cost: row.cost.unwrap_or_default(),
        }));
    }
    Ok(Monitored { phases, snapshots })
}
