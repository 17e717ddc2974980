//! Recordings of damo in its formats `json` and `json_compressed`, made into recordings of isotherm.
//!
//! The layout of these files is taken from what damo writes and reads. damo does not document it.
//!
//! A file of damo can only be read as a whole: it has one target after another, and the time begins again with each.

mod allowance;
mod error;
mod file;
mod open;
mod scalar;
mod sidecar;
mod targets;
mod timeline;
mod timing;

use std::path::Path;
use std::sync::Arc;

use isotherm_core::TargetId;
use isotherm_core::units::{count, nanoseconds};
use isotherm_record::{Contents, Header, RecordError, Recorder, SnapshotRecord, recording_at};

pub use error::ImportError;
pub use open::is_recording;
use timeline::{Findings, Timeline};

/// The limit of the JSON, in bytes. damo's layout has 380 bytes for each region. The import keeps 60 of them in memory.
const MAX_JSON: u64 = 8 << 30;

/// What an import wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The number of snapshots.
    pub snapshots: u64,
    /// The targets in the order of the file. The text is empty if the process is known, and is otherwise what damo
    /// calls the target.
    pub targets: Vec<(TargetId, String)>,
    /// The size of the recording, in bytes.
    pub bytes: u64,
    /// What was assumed, changed or left out, for the user: a sentence each.
    pub notes: Vec<String>,
}

/// Makes the recording `output` of `path`, a file that damo wrote as `json` or `json_compressed`.
///
/// `pids` identifies the first targets of the file: process IDs, or 0 for physical memory. The file `PATH.kdamonds`,
/// which damo writes next to its recording, identifies the others. `version` is the version of isotherm, for the
/// header.
///
/// The output appears when it is whole. A recording that it replaces is kept, with `.old` after its name. The import
/// holds all regions of the file in memory, about 60 bytes each.
///
/// # Errors
/// See [`ImportError`].
pub fn import(path: &Path, output: &Path, pids: &[u32], version: &str) -> Result<Imported, ImportError> {
    import_within(path, output, pids, version, None)
}

/// As [`import`], with about `max_memory` bytes of memory at most. Without it, that is 256 MiB and 64 times the size of
/// the file, and no more than 2 GiB.
///
/// # Errors
/// See [`ImportError`].
pub fn import_within(
    path: &Path,
    output: &Path,
    pids: &[u32],
    version: &str,
    max_memory: Option<u64>,
) -> Result<Imported, ImportError> {
    let inputs = [path.to_path_buf(), sidecar::path_of(path)];
    let output = recording_at(output).apart_from(inputs).lock().map_err(RecordError::from)?;
    let records = open::records(path, max_memory)?;
    let mut notes = Vec::new();
    let kdamonds = sidecar::read(path).unwrap_or_else(|note| {
        notes.push(note);
        Vec::new()
    });
    let timeline = Timeline::new(path, records, &kdamonds, pids)?;
    notes.extend(notes_on(&timeline.findings));

    let bounds = timeline.first().and_then(|key| key.context(&kdamonds)?.nr_regions);
    let header = header(&timeline, bounds.map_or((0, 0), |bounds| (bounds.min.0, bounds.max.0)), version);
    let infos = timeline.infos();
    let targets = timeline.targets().collect();

    let output = output.create().map_err(RecordError::from)?;
    let mut recorder = Recorder::begin(output, &header, Contents::default())?.appearing_whole();
    let mut snapshots = 0;
    for snapshot in timeline.into_snapshots() {
        recorder.write(&SnapshotRecord { snapshot, infos: Arc::clone(&infos), ..SnapshotRecord::default() })?;
        snapshots += 1;
    }
    Ok(Imported { snapshots, targets, bytes: recorder.finish()?, notes })
}

/// The probe that the header of an imported recording names.
const PROBE: &str = "damo";

/// The header. What a file of damo does not hold is empty or 0.
fn header(timeline: &Timeline, (min_regions, max_regions): (u64, u64), version: &str) -> Header {
    let Findings { timing, sampling_ns, update_ns, .. } = timeline.findings;
    let aggregation_ns = timing.map_or(0, |timing| timing.aggregation_ns);
    let computed_sampling_ns = timing.map_or(0, |timing| timing.aggregation_ns / u64::from(timing.samples.max(1)));
    Header {
        isotherm_version: version.into(),
        probe: PROBE.into(),
        granularity: "page".into(),
        sampling_ns: sampling_ns.unwrap_or(computed_sampling_ns),
        aggregation_ns,
        update_ns: update_ns.unwrap_or(0),
        min_regions,
        max_regions,
        started_unix_ns: timeline.started_unix_ns().unwrap_or(0),
        ..Header::default()
    }
}

fn notes_on(findings: &Findings) -> Vec<String> {
    let Findings { regions, over_full, without_age, guessed_timings, timing, .. } = *findings;
    let regions = count(regions);
    let mut notes = Vec::new();
    if guessed_timings > 0
        && let Some(timing) = timing
    {
        notes.push(format!(
            "the file has no intervals: by its times, aggregations of {} are assumed, with {} samples each",
            nanoseconds(timing.aggregation_ns),
            timing.samples
        ));
    }
    if over_full > 0 {
        let over_full = count(over_full);
        notes.push(format!(
            "{over_full} of {regions} regions have more accesses than samples: taken as accessed in all samples"
        ));
    }
    if without_age > 0 {
        notes.push(format!("{} of {regions} regions have no age: taken as age 0", count(without_age)));
    }
    notes
}
