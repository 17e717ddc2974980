//! Writing a recording.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow_schema::SchemaRef;
use isotherm_core::{Mapping, Snapshot, TargetId, TargetSnapshot};

use crate::columns::{Columns, NewRow};
use crate::encode::Encoder;
use crate::message::END_MARKER;
use crate::output::Output;
use crate::time::nanoseconds;
use crate::{
    Activity, Cost, Header, PLAIN, RecordError, SnapshotRecord, TargetInfo, WITH_ACTIVITIES, check, compat, schema,
};

/// Snapshots of at most this time are kept back before they are handed to the kernel.
const MAX_DELAY: Duration = Duration::from_millis(500);
/// And of at most about this many bytes.
const MAX_BUFFERED: usize = 8 << 20;

/// Writes a recording.
///
/// Snapshots are handed to the kernel in whole batches, one write each, at least every 500 ms of snapshot time: what
/// has been handed over survives the death of the process, and a reader finds it whatever comes after it.
///
/// Dropping a recorder hands over what is buffered, as far as that succeeds, but does not mark the end:
/// [`Recorder::finish`] does both.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    format: u64,
    output: Output,
    encoder: Encoder,
    schema: SchemaRef,
    columns: Columns,
    /// Up to which time snapshots have been handed to the kernel.
    handed_over: Duration,
    /// The time of the last row of a target.
    last: Duration,
    /// The time of the last activity.
    last_activity: Duration,
    /// What the recording says of the targets of the last snapshot, by their numbers.
    known: HashMap<u32, Known>,
    finished: bool,
}

#[derive(Debug)]
struct Known {
    info: Arc<TargetInfo>,
    mappings: Arc<[Mapping]>,
    /// The time of the last snapshot that had the target.
    seen: Duration,
}

impl Recorder {
    /// Creates the recording at `path` and hands its header to the kernel.
    ///
    /// The file has mode 0600; an existing one is emptied and gets that mode.
    ///
    /// # Errors
    /// [`RecordError::Create`] or [`RecordError::Write`].
    pub fn create(path: &Path, header: &Header) -> Result<Self, RecordError> {
        Self::create_in(PLAIN, path, header)
    }

    /// As [`Recorder::create`], with room for activities.
    ///
    /// # Errors
    /// [`RecordError::Create`] or [`RecordError::Write`].
    pub fn create_with_activities(path: &Path, header: &Header) -> Result<Self, RecordError> {
        Self::create_in(WITH_ACTIVITIES, path, header)
    }

    fn create_in(format: u64, path: &Path, header: &Header) -> Result<Self, RecordError> {
        let encode = |reason: String| RecordError::Encode { path: path.into(), reason };
        let schema = schema::schema(format, header).map_err(|error| encode(error.to_string()))?;
        let mut encoder = Encoder::new().map_err(|error| encode(error.to_string()))?;
        let start = encoder.schema(&schema).map_err(|error| encode(error.to_string()))?;

        let output = Output::create(path).map_err(|source| RecordError::Create { path: path.into(), source })?;
        let mut recorder = Self {
            path: path.into(),
            format,
            output,
            encoder,
            schema: Arc::new(schema),
            columns: Columns::default(),
            handed_over: Duration::ZERO,
            last: Duration::ZERO,
            last_activity: Duration::ZERO,
            known: HashMap::new(),
            finished: false,
        };
        recorder.append(&start)?;
        Ok(recorder)
    }

    /// Adds a snapshot. One without targets adds nothing.
    ///
    /// What a target is and its mappings are compared by pointer first: the same `Arc` as the last time costs nothing.
    ///
    /// # Errors
    /// [`RecordError::Write`] when a batch was due and the kernel did not take it. The batch is lost; the recorder can
    /// go on, and does so with all that a reader needs to know. [`RecordError::Encode`] when a target breaks the rules of
    /// [`TargetSnapshot`], or is a cgroup: nothing of it is written.
    pub fn write(&mut self, record: &SnapshotRecord) -> Result<(), RecordError> {
        let added = self.write_targets(record);
        if added.is_err() {
            // The recording lacks a part of this snapshot: say again what the targets are.
            self.known.clear();
        }
        added?;
        let snapshot = &record.snapshot;
        self.known.retain(|_, known| known.seen == snapshot.time);

        if snapshot.time.saturating_add(snapshot.aggregation) > self.handed_over.saturating_add(MAX_DELAY) {
            self.hand_over()?;
            self.handed_over = snapshot.time;
        }
        Ok(())
    }

    /// Adds what schemes have done, in the place that it has by the order of the calls: it may be older or newer than the
    /// snapshots around it. Where no snapshots come, because all schemes sleep, activities are handed over by their own time.
    ///
    /// A goal score that is not finite is written as unknown.
    ///
    /// # Errors
    /// [`RecordError::Write`] as [`Recorder::write`]. [`RecordError::Encode`], and nothing of it is written, when it is older than the
    /// last activity, is of a cgroup, or the recording has no room for activities ([`Recorder::create_with_activities`]).
    pub fn write_activity(&mut self, activity: &Activity) -> Result<(), RecordError> {
        if self.format < WITH_ACTIVITIES {
            return Err(self.not_encoded("it was created without room for activities"));
        }
        if activity.time < self.last_activity {
            return Err(self.not_encoded("an activity is older than the one before it"));
        }
        let acted_on = activity.schemes.iter().flat_map(|scheme| &scheme.last.regions).map(|region| region.target);
        for target in activity.memory.iter().map(|(target, _)| *target).chain(acted_on) {
            self.number(target)?;
        }
        self.last_activity = activity.time;
        self.columns.push(&NewRow {
            time_ns: nanoseconds(self.last),
            aggregation_ns: 0,
            samples: 0,
            pid: 0,
            info: None,
            mappings: None,
            regions: &[],
            cost: None,
            activity: Some(activity),
        });
        let now = activity.time.max(self.last);
        if now >= self.handed_over.saturating_add(MAX_DELAY) || self.columns.bytes() >= MAX_BUFFERED {
            self.hand_over()?;
            self.handed_over = now;
        }
        Ok(())
    }

    /// Hands all that is buffered to the kernel.
    ///
    /// # Errors
    /// [`RecordError::Write`] when the kernel does not take it.
    pub fn flush(&mut self) -> Result<(), RecordError> {
        self.hand_over()
    }

    /// Hands over what is buffered, marks the end, and returns the length of the recording in bytes.
    ///
    /// # Errors
    /// [`RecordError::Write`] when the kernel does not take it.
    pub fn finish(mut self) -> Result<u64, RecordError> {
        self.finished = true;
        self.hand_over()?;
        self.append(&END_MARKER)?;
        Ok(self.bytes_written())
    }

    /// Where the recording is written.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many bytes the kernel has taken.
    pub fn bytes_written(&self) -> u64 {
        self.output.len()
    }

    fn write_targets(&mut self, record: &SnapshotRecord) -> Result<(), RecordError> {
        let mut cost = record.cost.as_ref();
        for (nth, target) in record.snapshot.targets.iter().enumerate() {
            self.write_target(&record.snapshot, target, cost.take(), record.nth_info(nth))?;
            if self.columns.bytes() >= MAX_BUFFERED {
                self.hand_over()?;
            }
        }
        Ok(())
    }

    fn write_target(
        &mut self,
        snapshot: &Snapshot,
        target: &TargetSnapshot,
        cost: Option<&Cost>,
        info: Arc<TargetInfo>,
    ) -> Result<(), RecordError> {
        let pid = self.number(target.id)?;
        let known = self.known.get(&pid);
        let same_info = known.is_some_and(|known| Arc::ptr_eq(&known.info, &info) || known.info == info);
        let same_mappings = known
            .is_some_and(|known| Arc::ptr_eq(&known.mappings, &target.mappings) || known.mappings == target.mappings);

        check::regions(&target.regions, snapshot.samples).map_err(|reason| self.not_encoded(reason))?;
        if !same_mappings {
            check::mappings(&target.mappings).map_err(|reason| self.not_encoded(reason))?;
        }
        self.columns.push(&NewRow {
            time_ns: nanoseconds(snapshot.time),
            aggregation_ns: nanoseconds(snapshot.aggregation),
            samples: snapshot.samples,
            pid,
            info: (!same_info).then_some(&*info),
            mappings: (!same_mappings).then_some(&*target.mappings),
            regions: &target.regions,
            cost,
            activity: None,
        });
        self.last = snapshot.time;
        let now = Known { info, mappings: Arc::clone(&target.mappings), seen: snapshot.time };
        self.known.insert(pid, now);
        Ok(())
    }

    /// The number of a target in this format.
    fn number(&self, target: TargetId) -> Result<u32, RecordError> {
        if compat::has_pid_column(target) {
            return Ok(compat::pid_column(target));
        }
        Err(self.not_encoded(format!("{target} is neither a process nor physical memory")))
    }

    fn hand_over(&mut self) -> Result<(), RecordError> {
        if self.columns.is_empty() {
            return Ok(());
        }
        let batch = self.columns.take(&self.schema).and_then(|batch| self.encoder.batch(&batch));
        let written = match batch {
            Ok(message) => self.append(&message),
            Err(error) => Err(self.not_encoded(error.to_string())),
        };
        if written.is_err() {
            // The batch may have been the one that says what the targets and their mappings are: say it again.
            self.known.clear();
        }
        written
    }

    fn append(&mut self, message: &[u8]) -> Result<(), RecordError> {
        let offset = self.output.len();
        self.output.append(message).map_err(|source| RecordError::Write { path: self.path.clone(), offset, source })
    }

    fn not_encoded(&self, reason: impl Into<String>) -> RecordError {
        RecordError::Encode { path: self.path.clone(), reason: reason.into() }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if !self.finished {
            // Nobody is left to be told.
            drop(self.hand_over());
        }
    }
}
