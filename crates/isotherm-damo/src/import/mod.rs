//! Moving to and from damo: recordings of DAMON's own user-space tool, in its formats `json` and `json_compressed`.
//!
//! [`import`] makes a recording of such a file; [`convert`](crate::convert()) makes such a file of a recording. `docs/damo.md`
//! says what is kept and what is not. The layout is known from what damo writes and reads; nothing of it is promised by anyone.
//!
//! Unlike a recording, a file of damo's can be read only whole: its targets stand one after another, and time begins again with each.

mod error;
mod file;
mod open;
mod pace;
mod scalar;
mod sidecar;
mod targets;
mod timeline;

use std::path::Path;
use std::sync::Arc;

use isotherm_core::TargetId;

pub use error::DamoError;

use isotherm_record::{Header, Host, Recorder, SnapshotRecord};
use timeline::{Found, Timeline};

/// The most JSON that is read, in bytes. damo's own layout takes 380 bytes of it for a region, the import 60.
const MAX_JSON: u64 = 8 << 30;

/// What an import brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// Snapshots that were written.
    pub snapshots: u64,
    /// The targets, in the order of the file, each with its command: what damo calls it if its process is not known, else nothing.
    pub targets: Vec<(TargetId, String)>,
    /// Bytes of the recording.
    pub bytes: u64,
    /// What the user should know: what was guessed, changed or left out.
    pub notes: Vec<String>,
}

/// Makes the recording `output` of `path`, a file that damo wrote as `json` or `json_compressed`.
///
/// `pids` says what its first targets are: process IDs, or 0 for physical memory. Of the others, what damo wrote beside the
/// file (`FILE.kdamonds`) tells. `version` is that of isotherm.
///
/// Nothing is written before all is read: an existing `output` is replaced only then. Memory is taken for all regions of the file,
/// about 60 bytes each.
///
/// # Errors
/// See [`DamoError`].
pub fn import(path: &Path, output: &Path, pids: &[u32], version: &str) -> Result<Imported, DamoError> {
    if output.canonicalize().is_ok_and(|output| path.canonicalize().is_ok_and(|input| input == output)) {
        return Err(DamoError::Itself { path: path.into() });
    }
    let records = open::records(path)?;
    let mut notes = Vec::new();
    let kdamonds = sidecar::read(path).unwrap_or_else(|note| {
        notes.push(note);
        None
    });
    let kdamonds = kdamonds.unwrap_or_default();
    let timeline = Timeline::new(path, records, &kdamonds, pids)?;
    notes.extend(notes_on(&timeline.found));

    let bounds = timeline.first().and_then(|key| key.context(&kdamonds)?.nr_regions);
    let header = header(&timeline, bounds.map_or((0, 0), |bounds| (bounds.min.0, bounds.max.0)), version);
    let infos = timeline.infos();
    let targets = timeline.targets().collect();

    let mut recorder = Recorder::create(output, &header)?;
    let mut snapshots = 0;
    for snapshot in timeline.into_snapshots() {
        recorder.write(&SnapshotRecord { snapshot, cost: None, infos: Arc::clone(&infos) })?;
        snapshots += 1;
    }
    Ok(Imported { snapshots, targets, bytes: recorder.finish()?, notes })
}

/// What damo does not tell is empty or 0.
fn header(timeline: &Timeline, (min_regions, max_regions): (u64, u64), version: &str) -> Header {
    let pace = timeline.found.pace;
    let aggregation_ns = pace.map_or(0, |pace| pace.aggregation_ns);
    let by_samples = pace.map_or(0, |pace| pace.aggregation_ns / u64::from(pace.samples.max(1)));
    Header {
        isotherm_version: version.into(),
        probe: PROBE.into(),
        granularity: "page".into(),
        sampling_ns: timeline.found.sampling_ns.unwrap_or(by_samples),
        aggregation_ns,
        update_ns: timeline.found.update_ns.unwrap_or(0),
        min_regions,
        max_regions,
        seed: 0,
        started_unix_ns: timeline.started_unix_ns().unwrap_or(0),
        host: Host {
            id: String::new(),
            boot_id: String::new(),
            name: String::new(),
            kernel: String::new(),
            architecture: String::new(),
            cpus: 0,
            memory_bytes: 0,
        },
    }
}

/// What an imported recording names as its probe.
const PROBE: &str = "damo";

fn notes_on(found: &Found) -> Vec<String> {
    let mut notes = Vec::new();
    if found.guessed > 0
        && let Some(pace) = found.pace
    {
        notes.push(format!(
            "the file does not tell the intervals: by its times, aggregations last {}; {} samples each are assumed",
            isotherm_core::units::nanoseconds(pace.aggregation_ns),
            pace.samples
        ));
    }
    if found.clamped > 0 {
        notes.push(format!(
            "{} of {} regions had more accesses than samples; they count as accessed in all samples",
            found.clamped, found.regions
        ));
    }
    if found.ageless > 0 {
        notes.push(format!("{} of {} regions have no age; it counts as 0", found.ageless, found.regions));
    }
    notes
}
