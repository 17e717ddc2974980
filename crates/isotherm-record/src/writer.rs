//! Writing a recording.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow_schema::SchemaRef;
use isotherm_core::survey::TargetSurvey;
use isotherm_core::{Allocations, Mapping, PanelSnapshot, Snapshot, TargetId, TargetSnapshot};
use isotherm_output::OutputFile;

use crate::columns;
use crate::described::{Described, Part};
use crate::encode::Encoder;
use crate::id::StoredId;
use crate::message::{END_MARKER, Segment};
use crate::output::Output;
use crate::segment::{Buffered, MAX_BUFFERED, MAX_WHOLE, Written};
use crate::target::{mapping_columns, region_columns};
use crate::time::nanoseconds;
use crate::{
    Activity, Contents, Cost, Event, Header, Mark, Missed, RecordError, SnapshotRecord, SurveyRecord, TargetInfo,
    activity, allocations, check, panel, schema, survey,
};

/// How much time of a recording is buffered at most before it is handed to the kernel.
const MAX_DELAY: Duration = Duration::from_millis(500);
/// The same of a recording that appears as a whole: how long its segments are, unless so many snapshots take longer.
const MAX_DELAY_OF_WHOLE: Duration = Duration::from_secs(60);
const SNAPSHOTS_OF_WHOLE: u32 = 600;
/// How long a segment is, if it has so many bytes in the file by then. Each batch repeats the layout of all columns,
/// in 8 to 16 KiB, so that recordings of little have long segments.
const SEGMENT_TIME: Duration = Duration::from_secs(80);
const SEGMENT: u64 = 1 << 20;
/// The most bytes in the file of a segment: a reader reads the last one at once.
const MOST_SEGMENT: u64 = 24 << 20;
/// The least bytes in the file of a segment that is replaced by one batch at the end of a recording. Damage loses a
/// batch at least, so that a recording of a few seconds keeps more than one.
const LAST_SEGMENT: u64 = 256 << 10;

/// Writes a recording.
///
/// Snapshots are handed to the kernel in whole batches, with one write each, at least every 500 ms of snapshot time.
/// What has been handed over stays readable when the process ends, whatever comes after it in the file. After some
/// seconds, one batch takes the place of those of a segment, in about a hundredth of the bytes.
///
/// The recording has its name from the first batch on, or from [`Recorder::finish`] on if there is none. Until then,
/// what was there before is untouched. A recording that is replaced is kept, with `.old` after its name.
///
/// Dropping a recorder hands over what is buffered, if that succeeds, but does not mark the end.
/// [`Recorder::finish`] does both.
#[derive(Debug)]
pub struct Recorder {
    /// What it has columns for.
    contents: Contents,
    /// Whether the starts of processes are counted from the boot.
    from_boot: bool,
    output: Output,
    /// Whether the recording gets its name at its end, and not with its first batch.
    appears_whole: bool,
    /// Whether a batch was handed to the kernel.
    has_batches: bool,
    encoder: Encoder,
    schema: SchemaRef,
    rows: Buffered,
    segment: Written,
    /// Up to which time snapshots have been handed to the kernel.
    handed_over: Duration,
    /// The time of the last row of a target.
    last: Duration,
    /// How much time the last snapshot covers.
    aggregation: Duration,
    /// The number of snapshots.
    snapshots: u32,
    /// The time of the last activity.
    last_activity: Duration,
    /// What the recording says of the targets of the snapshots at the time of the last one, and of the time before.
    known: HashMap<StoredId, LastWritten>,
    /// What the recording says of targets, as rows of surveys refer to it.
    described: Described,
    /// The time of the last survey.
    last_survey: Duration,
    /// The time of the last mark.
    last_mark: Duration,
    /// The time of the last calls that mapped memory.
    last_allocations: Duration,
    /// The time of the last thing that is missing.
    last_missed: Duration,
    /// The time of the last reading of the panel.
    last_panel: Duration,
    finished: bool,
}

#[derive(Debug)]
struct LastWritten {
    info: Arc<TargetInfo>,
    mappings: Arc<[Mapping]>,
    /// The time of the last snapshot that had the target.
    seen: Duration,
}

impl Recorder {
    /// Creates the recording at `path` and hands its header to the kernel.
    ///
    /// The file has mode 0600. A recording that is there is replaced with the first batch, and kept.
    ///
    /// If the header has no ID of the boot, the starts of processes are not counted from the boot of the machine. The
    /// recorder then leaves them out, and readers use the start since the Unix epoch.
    ///
    /// # Errors
    /// [`RecordError::Output`] or [`RecordError::Write`].
    pub fn create(path: &Path, header: &Header) -> Result<Self, RecordError> {
        Self::create_with(path, header, Contents::default())
    }

    /// As [`Recorder::create`], with a column for activities.
    ///
    /// # Errors
    /// [`RecordError::Output`] or [`RecordError::Write`].
    pub fn create_with_activities(path: &Path, header: &Header) -> Result<Self, RecordError> {
        Self::create_with(path, header, Contents { activities: true, ..Contents::default() })
    }

    /// As [`Recorder::create`], with columns for these contents. Without [`Contents::surveys`], the present bytes of
    /// regions ([`RegionSnapshot::pages`](isotherm_core::RegionSnapshot::pages)) are left out.
    ///
    /// # Errors
    /// [`RecordError::Output`] or [`RecordError::Write`].
    pub fn create_with(path: &Path, header: &Header, contents: Contents) -> Result<Self, RecordError> {
        Self::begin(recording_at(path).create()?, header, contents)
    }

    /// As [`Recorder::create_with`], to an output that is open.
    ///
    /// # Errors
    /// [`RecordError::Write`].
    pub fn begin(output: OutputFile, header: &Header, contents: Contents) -> Result<Self, RecordError> {
        Self::begin_at(Output::new(output), header, contents)
    }

    /// Begins a recording in memory, for [`StreamReader`](crate::StreamReader). [`take`](Self::take) hands out its
    /// bytes.
    ///
    /// # Errors
    /// [`RecordError::Encode`] if the header cannot be encoded.
    pub fn in_memory(header: &Header, contents: Contents) -> Result<Self, RecordError> {
        Self::begin_at(Output::in_memory(), header, contents)
    }

    /// The bytes of a recording in memory since they were taken last, which are whole messages. None of a file.
    pub fn take(&mut self) -> Vec<u8> {
        self.output.take()
    }

    fn begin_at(output: Output, header: &Header, contents: Contents) -> Result<Self, RecordError> {
        let encode = |reason: String| RecordError::Encode { path: output.path().into(), reason };
        // Segments of a stream are too short to be merged.
        let schema =
            schema::schema(contents, header, !output.is_stream()).map_err(|error| encode(error.to_string()))?;
        let mut encoder = Encoder::new().map_err(|error| encode(error.to_string()))?;
        let start = encoder.schema(&schema).map_err(|error| encode(error.to_string()))?;
        let schema = Arc::new(schema);

        let mut recorder = Self {
            contents,
            from_boot: header.host.counts_from_boot(),
            output,
            appears_whole: false,
            has_batches: false,
            encoder,
            rows: Buffered::default(),
            segment: Written::new(&schema, 1, 0, Duration::ZERO),
            schema,
            handed_over: Duration::ZERO,
            last: Duration::ZERO,
            aggregation: Duration::ZERO,
            snapshots: 0,
            last_activity: Duration::ZERO,
            known: HashMap::new(),
            described: Described::default(),
            last_survey: Duration::ZERO,
            last_mark: Duration::ZERO,
            last_allocations: Duration::ZERO,
            last_missed: Duration::ZERO,
            last_panel: Duration::ZERO,
            finished: false,
        };
        recorder.append(&start)?;
        recorder.segment.at = recorder.output.len();
        Ok(recorder)
    }

    /// The same recorder, whose recording gets its name from [`finish`](Self::finish) only. Without that, it leaves
    /// nothing.
    pub fn appearing_whole(mut self) -> Self {
        self.appears_whole = true;
        self
    }

    /// The same recorder, which keeps about so many bytes of a segment in memory at most. Shorter segments are larger
    /// in the file. The default is 14 MiB, uncompressed, which is never exceeded.
    #[must_use]
    pub fn with_segments_of(mut self, bytes: usize) -> Self {
        self.segment.most = bytes.min(MAX_WHOLE);
        self
    }

    /// Adds a snapshot. A snapshot without targets adds nothing.
    ///
    /// What a target is and its mappings are compared by pointer first, so that it costs nothing to pass the same `Arc`
    /// again.
    ///
    /// # Errors
    /// [`RecordError::Write`] if a batch was due and the kernel did not take it. The batch is lost. The recorder can be
    /// used further, and then repeats what a reader needs to know. [`RecordError::Encode`] if a target breaks the rules
    /// of [`TargetSnapshot`], or the snapshot is older than the one before it. The snapshot is not written then.
    pub fn write(&mut self, record: &SnapshotRecord) -> Result<(), RecordError> {
        self.check(&record.snapshot).map_err(|reason| self.not_encoded(reason))?;
        let snapshot = &record.snapshot;
        // There may be several snapshots of one time.
        if snapshot.time > self.last && !snapshot.targets.is_empty() {
            let last = self.last;
            self.known.retain(|_, known| known.seen == last);
        }
        self.snapshots = self.snapshots.wrapping_add(1);
        self.write_targets(record)?;
        self.segment.add_snapshot(record);
        self.aggregation = snapshot.aggregation;

        let is_due =
            snapshot.time.saturating_add(snapshot.aggregation) > self.handed_over.saturating_add(self.max_delay());
        if is_due || self.segment.is_full() {
            self.hand_over()?;
            self.handed_over = snapshot.time;
        }
        Ok(())
    }

    /// Adds an event, by the function for its kind.
    ///
    /// # Errors
    /// As that function.
    pub fn write_event(&mut self, event: &Event) -> Result<(), RecordError> {
        match event {
            Event::Snapshot(record) => self.write(record),
            Event::Panel(found) => self.write_panel(found),
            Event::Survey(record) => self.write_survey(record),
            Event::Activity(activity) => self.write_activity(activity),
            Event::Mark(mark) => self.write_mark(mark),
            Event::Allocations(found) => self.write_allocations(found),
            Event::Missed(missed) => self.write_missed(missed),
        }
    }

    /// Adds an activity. It may be older or newer than the snapshots that are written before and after it.
    ///
    /// A goal score that is not finite is written as unknown.
    ///
    /// # Errors
    /// [`RecordError::Write`] as [`Recorder::write`]. [`RecordError::Encode`] if the activity is older than the one
    /// before it, or the recording has no column for activities ([`Recorder::create_with_activities`]). The activity is
    /// not written then.
    pub fn write_activity(&mut self, activity: &Activity) -> Result<(), RecordError> {
        if !self.contents.activities {
            return Err(self.not_encoded("it was created without a column for activities"));
        }
        if activity.time < self.last_activity {
            return Err(self.not_encoded("an activity is older than the one before it"));
        }
        self.last_activity = activity.time;
        let column = activity::to_columns(activity, self.from_boot);
        self.rows.push(&columns::Row {
            activity: Some(column),
            ..columns::Row::new(columns::ACTIVITY, nanoseconds(self.last))
        });
        self.hand_over_at(activity.time)
    }

    /// Adds a survey. It may be older or newer than the snapshots that are written before and after it. A survey
    /// without targets adds nothing.
    ///
    /// # Errors
    /// [`RecordError::Write`] as [`Recorder::write`]. [`RecordError::Encode`] if the survey is older than the one
    /// before it, a sum is larger than its whole, or the recording has no column for surveys
    /// ([`Recorder::create_with`]). The survey is not written then.
    pub fn write_survey(&mut self, record: &SurveyRecord) -> Result<(), RecordError> {
        if !self.contents.surveys {
            return Err(self.not_encoded("it was created without a column for surveys"));
        }
        let found = &record.survey;
        if found.time < self.last_survey {
            return Err(self.not_encoded("a survey is older than the one before it"));
        }
        found.targets.iter().try_for_each(check::survey).map_err(|reason| self.not_encoded(reason))?;
        for target in &found.targets {
            if !self.known(target.id).is_some_and(|known| Arc::ptr_eq(&known.mappings, &target.mappings)) {
                check::mappings(&target.mappings).map_err(|reason| self.not_encoded(reason))?;
            }
        }
        self.last_survey = found.time;
        let mut cost = Some((found.cost, record.cpu));
        for (nth, target) in found.targets.iter().enumerate() {
            let column = survey::to_column(found, target, cost.take());
            self.write_surveyed(target, column, record.nth_info(nth))?;
        }
        self.hand_over_at(found.time)
    }

    /// Adds a mark. It may be older or newer than the snapshots that are written before and after it.
    ///
    /// # Errors
    /// [`RecordError::Write`] as [`Recorder::write`]. [`RecordError::Encode`] if the mark is older than the one before
    /// it, or the recording has no column for marks ([`Recorder::create_with`]). The mark is not written then.
    pub fn write_mark(&mut self, mark: &Mark) -> Result<(), RecordError> {
        if !self.contents.marks {
            return Err(self.not_encoded("it was created without a column for marks"));
        }
        if mark.time < self.last_mark {
            return Err(self.not_encoded("a mark is older than the one before it"));
        }
        self.last_mark = mark.time;
        self.rows.push(&columns::Row {
            mark: Some(mark.to_column()),
            ..columns::Row::new(columns::MARK, nanoseconds(self.last))
        });
        self.hand_over_at(mark.time)
    }

    /// Adds a reading of the panel. It may be older or newer than the snapshots that are written before and after it.
    ///
    /// # Errors
    /// [`RecordError::Write`] as [`Recorder::write`]. [`RecordError::Encode`] if the reading is older than the one
    /// before it, or the recording has no column for it ([`Recorder::create_with`]). It is not written then.
    pub fn write_panel(&mut self, found: &PanelSnapshot) -> Result<(), RecordError> {
        if !self.contents.surveys || !self.contents.live {
            return Err(self.not_encoded("it was created without a column for the panel"));
        }
        if found.time < self.last_panel {
            return Err(self.not_encoded("a reading of the panel is older than the one before it"));
        }
        self.last_panel = found.time;
        self.rows.push(&columns::Row {
            panel: Some(panel::to_column(found, self.from_boot)),
            ..columns::Row::new(columns::PANEL, nanoseconds(self.last))
        });
        self.hand_over_at(found.time)
    }

    fn write_surveyed(
        &mut self,
        target: &TargetSurvey,
        column: columns::Survey,
        info: &Arc<TargetInfo>,
    ) -> Result<(), RecordError> {
        let id = StoredId::new(target.id, self.from_boot);
        let part = Part::Survey(column.time_ns);
        let known = self.described.get(part, id);
        let info = known.is_none_or(|(known, _)| !Arc::ptr_eq(known, info) && known != info).then(|| Arc::clone(info));
        let same = |known: &Arc<[Mapping]>| Arc::ptr_eq(known, &target.mappings) || *known == target.mappings;
        let mappings = known.is_none_or(|(_, known)| !same(known)).then(|| Arc::clone(&target.mappings));
        self.segment.add_survey(target, &column);
        self.rows.push(&columns::Row {
            id: Some(id.column()),
            target: info.as_deref().map(columns::Target::from),
            mappings: mappings.as_ref().map(|mappings| mapping_columns(target.id, mappings)),
            survey: Some(column),
            ..columns::Row::new(columns::SURVEY, nanoseconds(self.last))
        });
        self.described.add(part, id, info, mappings).map_err(|reason| self.not_encoded(reason))?;
        if self.rows.bytes >= MAX_BUFFERED {
            self.hand_over()?;
        }
        Ok(())
    }

    /// Adds calls that mapped memory. They may be older or newer than the snapshots that are written before and after
    /// them.
    ///
    /// # Errors
    /// [`RecordError::Write`] as [`Recorder::write`]. [`RecordError::Encode`] if the calls are older than those before
    /// them, or the recording has no column for them ([`Recorder::create_with`]). The calls are not written then.
    pub fn write_allocations(&mut self, found: &Allocations) -> Result<(), RecordError> {
        if !self.contents.allocations {
            return Err(self.not_encoded("it was created without a column for calls that mapped memory"));
        }
        if found.time < self.last_allocations {
            return Err(self.not_encoded("calls that mapped memory are older than those before them"));
        }
        self.last_allocations = found.time;
        self.rows.push(&columns::Row {
            allocations: Some(allocations::to_columns(found, self.from_boot)),
            ..columns::Row::new(columns::ALLOCATIONS, nanoseconds(self.last))
        });
        self.hand_over_at(found.time)
    }

    /// Says that something is missing. It may be older or newer than the snapshots that are written before and after.
    ///
    /// # Errors
    /// [`RecordError::Write`] as [`Recorder::write`]. [`RecordError::Encode`] if it is older than what was said to be
    /// missing before, or the recording has no column for it ([`Recorder::create_with`]). It is not written then.
    pub fn write_missed(&mut self, missed: &Missed) -> Result<(), RecordError> {
        if !self.contents.live {
            return Err(self.not_encoded("it was created without a column for what is missing"));
        }
        if missed.time < self.last_missed {
            return Err(self.not_encoded("what is missing is older than what was missing before it"));
        }
        self.last_missed = missed.time;
        self.rows.push(&columns::Row {
            missed: Some(missed.to_column()),
            ..columns::Row::new(columns::MISSED, nanoseconds(self.last))
        });
        self.hand_over_at(missed.time)
    }

    fn max_delay(&self) -> Duration {
        if self.appears_whole { MAX_DELAY_OF_WHOLE.max(self.aggregation * SNAPSHOTS_OF_WHOLE) } else { MAX_DELAY }
    }

    /// Hands over what is buffered if that is due at this time of an activity, a survey, a mark, calls or something
    /// missing.
    fn hand_over_at(&mut self, time: Duration) -> Result<(), RecordError> {
        let now = time.max(self.last);
        if now >= self.handed_over.saturating_add(self.max_delay()) || self.rows.bytes >= MAX_BUFFERED {
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
    /// [`RecordError::Write`] when the kernel does not take it. [`RecordError::Output`] if the recording cannot get its
    /// name.
    pub fn finish(mut self) -> Result<u64, RecordError> {
        self.finished = true;
        self.hand_over()?;
        if self.output.len() - self.segment.at >= LAST_SEGMENT {
            self.end_segment();
        }
        self.append(&END_MARKER)?;
        self.output.publish()?;
        Ok(self.bytes_written())
    }

    /// As [`finish`](Self::finish), without the mark of the end: more was to come.
    pub(crate) fn break_off(mut self) -> Result<(), RecordError> {
        self.finished = true;
        self.hand_over()?;
        Ok(self.output.publish()?)
    }

    /// Whether nothing was added. Such a recording has a header alone.
    pub fn is_empty(&self) -> bool {
        !self.has_batches && self.rows.rows == 0
    }

    /// Where the recording is written.
    pub fn path(&self) -> &Path {
        self.output.path()
    }

    /// How many bytes the kernel has taken.
    pub fn bytes_written(&self) -> u64 {
        self.output.len()
    }

    /// Checks a snapshot before it is written.
    fn check(&self, snapshot: &Snapshot) -> Result<(), &'static str> {
        if snapshot.time < self.last {
            return Err("a snapshot is older than the one before it");
        }
        for target in &snapshot.targets {
            check::regions(&target.regions, snapshot.samples)?;
            if !self.known(target.id).is_some_and(|known| Arc::ptr_eq(&known.mappings, &target.mappings)) {
                check::mappings(&target.mappings)?;
            }
        }
        Ok(())
    }

    /// What the recording says of a target in the last snapshot.
    fn known(&self, target: TargetId) -> Option<&LastWritten> {
        self.known.get(&StoredId::new(target, self.from_boot))
    }

    fn write_targets(&mut self, record: &SnapshotRecord) -> Result<(), RecordError> {
        let mut cost = record.cost.as_ref();
        for (nth, target) in record.snapshot.targets.iter().enumerate() {
            self.write_target(&record.snapshot, target, cost.take(), record.nth_info(nth));
            // A segment does not end within a snapshot.
            if self.rows.bytes >= MAX_BUFFERED {
                self.hand_over_rows()?;
            }
        }
        Ok(())
    }

    fn write_target(
        &mut self,
        snapshot: &Snapshot,
        target: &TargetSnapshot,
        cost: Option<&Cost>,
        info: &Arc<TargetInfo>,
    ) {
        let known = self.known(target.id);
        let same_info = known.is_some_and(|known| Arc::ptr_eq(&known.info, info) || known.info == *info);
        let same_mappings = known
            .is_some_and(|known| Arc::ptr_eq(&known.mappings, &target.mappings) || known.mappings == target.mappings);

        let id = StoredId::new(target.id, self.from_boot);
        self.rows.push(&columns::Row {
            aggregation_ns: Some(nanoseconds(snapshot.aggregation)),
            samples: Some(snapshot.samples),
            snapshot: Some(self.snapshots),
            id: Some(id.column()),
            target: (!same_info).then(|| columns::Target::from(&**info)),
            mappings: (!same_mappings).then(|| mapping_columns(target.id, &target.mappings)),
            regions: Some(region_columns(&target.regions, self.snapshots)),
            cost: cost.copied(),
            ..columns::Row::new(columns::TARGET, nanoseconds(snapshot.time))
        });
        self.last = snapshot.time;
        let said_info = (!same_info).then(|| Arc::clone(info));
        let said_mappings = (!same_mappings).then(|| Arc::clone(&target.mappings));
        // It cannot fail: what this row leaves out, the row of the snapshot before has said.
        drop(self.described.add(Part::Snapshot(nanoseconds(snapshot.time)), id, said_info, said_mappings));
        let now = LastWritten { info: Arc::clone(info), mappings: Arc::clone(&target.mappings), seen: snapshot.time };
        self.known.insert(id, now);
    }

    fn hand_over(&mut self) -> Result<(), RecordError> {
        self.hand_over_rows()?;
        let (len, time) = (self.output.len() - self.segment.at, self.last.saturating_sub(self.segment.since));
        if self.segment.is_full() || len >= MOST_SEGMENT || (len >= SEGMENT && time >= SEGMENT_TIME) {
            self.end_segment();
        }
        Ok(())
    }

    fn hand_over_rows(&mut self) -> Result<(), RecordError> {
        let rows = std::mem::take(&mut self.rows);
        if rows.rows == 0 {
            return Ok(());
        }
        let bytes = rows.bytes;
        // Others may read a stream, of which nothing can be replaced.
        let is_whole = self.appears_whole || self.output.is_stream();
        let segment = Segment { number: self.segment.number, is_whole };
        let batch = rows.batch(&self.schema).and_then(|mut batch| {
            if is_whole {
                self.segment.add(batch, bytes);
                batch = self.segment.whole(&self.schema, self.snapshots, self.from_boot)?;
            }
            Ok((self.encoder.batch(&batch, segment, bytes)?, batch))
        });
        let written = match batch {
            Ok((message, batch)) => self.append(&message).and_then(|()| self.has_batch()).map(|()| batch),
            Err(error) => Err(self.not_encoded(error.to_string())),
        };
        match written {
            Ok(_) if is_whole => self.begin_segment(),
            Ok(batch) => self.segment.add(batch, bytes),
            Err(error) => {
                // The batch may have said what the targets and their mappings are. The next rows must repeat it.
                self.known.clear();
                self.described.clear();
                return Err(error);
            }
        }
        Ok(())
    }

    /// Puts one batch in the place of those of the segment, unless it were larger than readers allow. Begins the next
    /// segment.
    fn end_segment(&mut self) {
        if self.segment.is_divided() {
            let Written { number, at, bytes, .. } = self.segment;
            let whole = self.segment.whole(&self.schema, self.snapshots, self.from_boot);
            let segment = Segment { number, is_whole: true };
            let message = whole.and_then(|batch| self.encoder.batch(&batch, segment, bytes));
            // Without it, the recording is as it was: it holds the same, in more bytes.
            drop(message.map(|message| self.output.replace(at, &message)));
        }
        self.begin_segment();
    }

    fn begin_segment(&mut self) {
        let number = self.segment.number.saturating_add(1);
        let most = self.segment.most;
        self.segment = Written::new(&self.schema, number, self.output.len(), self.last);
        self.segment.most = most;
    }

    /// Notes that a batch was handed to the kernel. The recording gets its name with the first.
    fn has_batch(&mut self) -> Result<(), RecordError> {
        self.has_batches = true;
        if self.appears_whole { Ok(()) } else { Ok(self.output.publish()?) }
    }

    fn append(&mut self, message: &[u8]) -> Result<(), RecordError> {
        let offset = self.output.len();
        self.output.append(message).map_err(|source| RecordError::Write { path: self.path().into(), offset, source })
    }

    fn not_encoded(&self, reason: impl Into<String>) -> RecordError {
        RecordError::Encode { path: self.path().into(), reason: reason.into() }
    }
}

/// The recording of this path, which only its owner can read. What is there is kept.
pub fn recording_at(path: &Path) -> isotherm_output::Output {
    isotherm_output::Output::new(path).keeping_previous()
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if !self.finished {
            // There is nobody left to whom an error could be reported.
            drop(self.hand_over());
        }
    }
}
