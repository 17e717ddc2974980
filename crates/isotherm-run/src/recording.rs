//! The sink that records a run.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use isotherm_core::{BoxError, Budget, Granularity};
use isotherm_kernel::{Host, unix_ns};
use isotherm_record::{Contents, Cost, Header, MissedKind, Part, Recorder, SnapshotRecord, recording_at};

use crate::delivery::{EventSink, Need, RECORDING, Sinks};
use crate::properties::{AUTO, FIXED, Properties};
use crate::usage::Usage;
use crate::{Event, Missed, RunError};

/// A recording that is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingSummary {
    /// Where it is.
    pub path: PathBuf,
    /// Its length in bytes.
    pub bytes: u64,
    /// What it lacks, because the disk or the machine was too slow.
    pub missed: Vec<isotherm_record::Missed>,
}

/// Writes snapshots, surveys, activities, marks and calls that mapped memory to a recording.
///
/// A program that records only a part of a run, or several parts to files of their own, makes one for each. Times count
/// from the start of the run in all of them. [`Event::End`] completes the recording.
pub struct RecordingSink {
    /// `None` once it is complete.
    recorder: Option<Recorder>,
    /// The cost of snapshots that were missed since the last one that was written.
    missed: Cost,
    /// The time of the last thing that was missed.
    missed_until: Duration,
    /// What was missed, added up.
    all_missed: Missed,
    /// Without schemes, reads the memory that the targets use. `None` if it cannot be read, as of a simulation.
    usage: Option<Usage>,
    /// Whether there is a recording even if nothing was found.
    keeps_empty: bool,
    summary: RecordingSlot,
}

/// What a recording of a live run has columns for.
const LIVE: Contents = Contents { activities: true, surveys: true, live: true, marks: true, allocations: false };

/// The header of a recording from this time on.
fn since(header: Header, from: Duration) -> Header {
    let part = (!from.is_zero()).then_some(Part { from_ns: from.as_nanos() as u64, to_ns: None });
    Header { part, ..header }
}

/// Holds the summary of a recording once it is complete.
pub(crate) type RecordingSlot = Arc<Mutex<Option<RecordingSummary>>>;

impl RecordingSink {
    /// Creates the recording of a live run at `path` from `from` on. The header is that of the run
    /// ([`Prepared::header`](crate::Prepared::header)). With `usage`, it also says how much memory the targets use, for
    /// runs without schemes, whose activities say so.
    ///
    /// # Errors
    /// If the file cannot be created or written.
    pub fn create(path: &Path, header: Header, from: Duration, usage: bool) -> Result<Self, RunError> {
        let recorder = Recorder::begin(recording_at(path).create()?, &since(header, from), LIVE)?;
        Ok(Self::new(recorder, usage.then(Usage::new), false))
    }

    /// Begins the same recording in memory, for [`isotherm_record::StreamReader`]. [`take`](Self::take) hands out its
    /// bytes.
    ///
    /// # Errors
    /// If the header cannot be encoded.
    pub fn in_memory(header: Header, from: Duration) -> Result<Self, RunError> {
        Ok(Self::new(Recorder::in_memory(&since(header, from), LIVE)?, None, false))
    }

    /// The bytes of a recording in memory that were not taken yet, with all events so far. None after its end.
    ///
    /// # Errors
    /// If they cannot be encoded.
    pub fn take(&mut self) -> Result<Vec<u8>, BoxError> {
        let Some(recorder) = &mut self.recorder else { return Ok(Vec::new()) };
        recorder.flush()?;
        Ok(recorder.take())
    }

    /// The same recording, which keeps about so many bytes in memory at most ([`Recorder::with_segments_of`]).
    #[must_use]
    pub fn with_segments_of(mut self, bytes: usize) -> Self {
        self.recorder = self.recorder.map(|recorder| recorder.with_segments_of(bytes));
        self
    }

    /// Where the recording is.
    pub fn path(&self) -> Option<&Path> {
        self.recorder.as_ref().map(Recorder::path)
    }

    pub(crate) fn new(recorder: Recorder, usage: Option<Usage>, keeps_empty: bool) -> Self {
        Self {
            recorder: Some(recorder),
            missed: Cost::default(),
            missed_until: Duration::ZERO,
            all_missed: Missed::default(),
            usage,
            keeps_empty,
            summary: Arc::default(),
        }
    }

    /// Becomes a sink of the run; returns where the summary of the recording will be.
    pub(crate) fn add_to(self, sinks: &mut Sinks, need: Need) -> RecordingSlot {
        let summary = Arc::clone(&self.summary);
        sinks.add(RECORDING, need, Box::new(self));
        summary
    }
}

impl EventSink for RecordingSink {
    fn event(&mut self, event: &Event) -> Result<(), BoxError> {
        let Some(recorder) = &mut self.recorder else { return Ok(()) };
        match event {
            Event::Snapshot(record) if self.missed != Cost::default() => {
                // The rounds of the snapshots that are missing tell readers how many there were.
                let mut cost = std::mem::take(&mut self.missed);
                cost.add(&record.cost.unwrap_or_default());
                recorder.write(&SnapshotRecord { cost: Some(cost), ..(**record).clone() })?;
            }
            Event::Snapshot(record) => recorder.write(record)?,
            Event::Survey(survey) => recorder.write_survey(survey)?,
            Event::Panel(panel) => recorder.write_panel(panel)?,
            Event::Activity(activity) => recorder.write_activity(activity)?,
            Event::Mark(mark) => recorder.write_mark(mark)?,
            Event::Allocations(found) => recorder.write_allocations(found)?,
            Event::Missed(missed) => {
                self.missed.add(&missed.cost);
                let mut counts = missed.counts.clone();
                counts.retain(|missed| missed.kind != MissedKind::Notices);
                counts.sort_by_key(|missed| missed.time);
                for mut missed in counts {
                    missed.time = missed.time.max(self.missed_until);
                    self.missed_until = missed.time;
                    recorder.write_missed(&missed)?;
                    self.all_missed.count(missed.kind, missed.time, missed.count);
                }
            }
            Event::End(reason) => {
                let path: PathBuf = recorder.path().into();
                let leaves_none = recorder.is_empty() && (reason.is_failure() || !self.keeps_empty);
                if let Some(recorder) = self.recorder.take().filter(|_| !leaves_none) {
                    let bytes = recorder.finish()?;
                    let mut summary = self.summary.lock().unwrap_or_else(PoisonError::into_inner);
                    *summary =
                        Some(RecordingSummary { path, bytes, missed: std::mem::take(&mut self.all_missed).counts });
                }
            }
            // Their activities tell how much memory the targets use from here on. Those of this sink are as old as a
            // snapshot, and could be younger than one of the schemes that comes after it.
            Event::Schemes(schemes) if !schemes.is_empty() => self.usage = None,
            // Each snapshot has the pace among its costs.
            Event::Targets(_) | Event::Attributes(_) | Event::Schemes(_) | Event::Pace { .. } | Event::Notice(_) => {}
        }
        if let (Event::Snapshot(record), Some(usage), Some(recorder)) = (event, &mut self.usage, &mut self.recorder)
            && let Some(activity) = usage.look(record)
        {
            recorder.write_activity(&activity)?;
        }
        Ok(())
    }
}

/// What a recording says of its run.
pub(crate) fn header(properties: &Properties, seed: u64) -> Header {
    let Host { id, boot_id, name, kernel, architecture, cpus, memory_bytes } = Host::read();
    let attributes = properties.attributes;
    let ns = |time: std::time::Duration| time.as_nanos() as u64;
    Header {
        isotherm_version: env!("CARGO_PKG_VERSION").into(),
        probe: properties.probe.clone(),
        sight: properties.sight.clone(),
        granularity: match properties.granularity {
            Granularity::Page => "page".into(),
            Granularity::Mapping => "mapping".into(),
        },
        sampling_ns: attributes.map_or(0, |attributes| ns(attributes.sampling())),
        aggregation_ns: attributes.map_or(0, |attributes| ns(attributes.aggregation())),
        update_ns: attributes.map_or(0, |attributes| ns(attributes.update())),
        min_regions: attributes.map_or(0, |attributes| attributes.min_regions() as u64),
        max_regions: attributes.map_or(0, |attributes| attributes.max_regions() as u64),
        seed,
        budget: properties.budget.map(|Budget { cpu, targets, .. }| isotherm_record::RecordedBudget { cpu, targets }),
        intervals: properties.tunes_intervals.map(|tunes| if tunes { AUTO } else { FIXED }.into()),
        started_unix_ns: unix_ns(),
        host: isotherm_record::Host { id, boot_id, name, kernel, architecture, cpus, memory_bytes },
        ..Header::default()
    }
}
