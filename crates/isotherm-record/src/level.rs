//! Levels: the events of a recording, merged into snapshots that cover a longer time.
//!
//! A level is made of the one below. Its snapshots have the sums of the samples of those that they cover, so that rates
//! and bytes × time stay what they were. A merged snapshot has the targets, the sampling interval and, without a gap,
//! the time of those that it is made of: where one of these changes, the next one begins.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{RegionSnapshot, Snapshot};
use isotherm_output::OutputFile;

use crate::cells::Cells;
use crate::{
    Contents, ConvertError, Event, Header, Needs, RecordError, Recorder, Recording, SnapshotRecord, recording_at,
};

/// About how much time a snapshot covers that is merged of those of a segment of a recording.
pub const MERGED: Duration = Duration::from_secs(60);

/// How much detail a recording has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// A snapshot for each minute.
    Minute,
    /// A snapshot for each hour.
    Hour,
}

impl Level {
    /// How much time a snapshot covers.
    pub fn length(self) -> Duration {
        match self {
            Self::Minute => Duration::from_secs(60),
            Self::Hour => Duration::from_secs(3600),
        }
    }
}

/// Writes a level of a recording, or of a recording of the level below, to a recording.
///
/// It has the header, the targets, and what [`levelled`] makes of the events, surveys without blocks.
///
/// # Errors
/// When the recording cannot be read, something of it is missing, or the output cannot be written.
pub fn level(recording: &Recording, level: Level, output: &Path) -> Result<(), ConvertError> {
    recording.must_be_undamaged()?;
    let file = recording_at(output).apart_from([recording.path()]).create()?;
    let events = recording.events(LEVEL_NEEDS);
    Ok(write_level(events, recording.header(), recording.contents(), level, file)?)
}

/// What of a recording a level is made of.
pub const LEVEL_NEEDS: Needs = Needs { blocks: false, ..Needs::ALL };

/// Writes a level of these events, which are [`LEVEL_NEEDS`] of recordings with this header and these contents.
///
/// # Errors
/// As the events, or when the output cannot be written.
pub fn write_level<E: From<RecordError>>(
    events: impl Iterator<Item = Result<Event, E>>,
    header: &Header,
    contents: Contents,
    level: Level,
    output: OutputFile,
) -> Result<(), E> {
    let mut recorder = Recorder::begin(output, header, contents)?.appearing_whole();
    for event in levelled(events, level.length()) {
        recorder.write_event(&event?)?;
    }
    recorder.finish()?;
    Ok(())
}

/// The events of a level whose snapshots cover `length`, or somewhat more, in the order of time.
///
/// It has what [`merged`] makes of the snapshots. Of surveys, readings of the panel and activities it has the last one
/// in the time of each snapshot, with the costs of those that are left out, and with what they say beyond it
/// ([`Activity::joined`](crate::Activity::joined)). It has all marks, all calls that mapped memory, and all that is
/// missing.
pub fn levelled<E, I: Iterator<Item = Result<Event, E>>>(events: I, length: Duration) -> Levelled<I> {
    Levelled { events: merged(events, length), length, open: Time::default(), ready: VecDeque::new() }
}

/// The events of a level. See [`levelled`].
#[derive(Debug)]
pub struct Levelled<I> {
    events: MergedEvents<I>,
    length: Duration,
    open: Time,
    ready: VecDeque<Event>,
}

/// The events in the time of a snapshot.
#[derive(Debug, Default)]
struct Time {
    events: Vec<Event>,
    /// When it ends: with its snapshot, and without one some time after its first event.
    end: Duration,
}

impl Time {
    /// Whether an event is of this time.
    fn takes(&self, event: &Event) -> bool {
        self.events.is_empty() || event.time() <= self.end
    }

    fn add(&mut self, event: Event, length: Duration) {
        if self.events.is_empty() {
            self.end = event.time().saturating_add(length * 2);
        }
        if matches!(event, Event::Snapshot(_)) {
            self.end = event.time();
        }
        let alone = self.events.iter_mut().try_fold(event, |event, before| replace(before, event));
        self.events.extend(alone);
    }
}

/// Puts an event in the place of one before it, with the costs of both. `Some` is an event that takes no other's place.
fn replace(before: &mut Event, event: Event) -> Option<Event> {
    let event = match (&*before, event) {
        (Event::Survey(before), Event::Survey(mut record)) => {
            record.survey.cost.reads = record.survey.cost.reads.saturating_add(before.survey.cost.reads);
            record.survey.cost.clears = record.survey.cost.clears.saturating_add(before.survey.cost.clears);
            record.cpu =
                record.cpu.zip(before.cpu).map(|(one, other)| one.saturating_add(other)).or(record.cpu).or(before.cpu);
            Event::Survey(record)
        }
        (Event::Panel(before), Event::Panel(mut panel)) => {
            panel.reads = panel.reads.saturating_add(before.reads);
            panel.clears = panel.clears.saturating_add(before.clears);
            Event::Panel(panel)
        }
        (Event::Activity(before), Event::Activity(activity)) => match activity.joined(before) {
            Some(joined) => Event::Activity(joined),
            None => return Some(Event::Activity(activity)),
        },
        (_, event) => return Some(event),
    };
    *before = event;
    None
}

impl<E, I: Iterator<Item = Result<Event, E>>> Levelled<I> {
    /// Makes the events of the time that is over ready.
    fn end(&mut self) {
        let mut events = std::mem::take(&mut self.open).events;
        events.sort_by_key(Event::order);
        self.ready.extend(events);
    }
}

impl<E, I: Iterator<Item = Result<Event, E>>> Iterator for Levelled<I> {
    type Item = Result<Event, E>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            match self.events.next() {
                Some(Ok(event)) => {
                    if !self.open.takes(&event) {
                        self.end();
                    }
                    self.open.add(event, self.length);
                }
                Some(Err(error)) => return Some(Err(error)),
                None if self.open.events.is_empty() => return None,
                None => self.end(),
            }
        }
    }
}

/// Merges snapshots into ones that cover a longer time.
#[derive(Debug)]
pub struct Merger {
    /// How much time a snapshot covers.
    length: Duration,
    open: Option<Open>,
}

impl Merger {
    /// A merger whose snapshots cover `length`, or somewhat more.
    pub fn new(length: Duration) -> Self {
        Self { length, open: None }
    }

    /// Takes in the next snapshot. Returns the merged one before it, if that is complete.
    pub fn add(&mut self, record: &SnapshotRecord) -> Option<SnapshotRecord> {
        if let Some(open) = &mut self.open
            && open.takes(record, self.length)
        {
            open.add(record);
            return None;
        }
        let before = self.end();
        self.open = Some(Open::new(record.clone()));
        before
    }

    /// How many targets the snapshot that is being made has.
    pub(crate) fn targets(&self) -> usize {
        self.open.as_ref().map_or(0, |open| open.record.snapshot.targets.len())
    }

    /// The last snapshot.
    pub fn end(&mut self) -> Option<SnapshotRecord> {
        self.open.take().map(Open::finish)
    }
}

/// Events with merged snapshots. See [`merged`].
#[derive(Debug)]
pub struct MergedEvents<I> {
    events: I,
    merger: Merger,
    /// Events since the first snapshot that is being merged.
    since: VecDeque<Event>,
    ready: VecDeque<Event>,
}

/// The events of a recording with snapshots that cover `length`, or somewhat more. Other events are what they were.
pub fn merged<E, I: Iterator<Item = Result<Event, E>>>(events: I, length: Duration) -> MergedEvents<I> {
    MergedEvents { events, merger: Merger::new(length), since: VecDeque::new(), ready: VecDeque::new() }
}

impl<I> MergedEvents<I> {
    /// Puts a merged snapshot in its place among the events since its first one.
    fn complete(&mut self, record: SnapshotRecord) {
        let before = self.since.iter().take_while(|event| event.time() < record.snapshot.time).count();
        let mut after = self.since.split_off(before);
        self.ready.append(&mut self.since);
        self.ready.push_back(Event::Snapshot(record));
        self.ready.append(&mut after);
    }
}

impl<E, I: Iterator<Item = Result<Event, E>>> Iterator for MergedEvents<I> {
    type Item = Result<Event, E>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            match self.events.next() {
                Some(Ok(Event::Snapshot(record))) => {
                    if let Some(before) = self.merger.add(&record) {
                        self.complete(before);
                    }
                }
                Some(Ok(event)) => self.since.push_back(event),
                Some(Err(error)) => return Some(Err(error)),
                None => match self.merger.end() {
                    Some(last) => self.complete(last),
                    None => return self.since.pop_front().map(Ok),
                },
            }
        }
    }
}

/// A snapshot that is being made.
#[derive(Debug)]
struct Open {
    /// The first snapshot that it covers, with the time and the mappings of the last one, and the rounds and the cost
    /// of all.
    record: SnapshotRecord,
    /// The aggregation interval and the samples of the first one.
    first: (Duration, u32),
    samples: u64,
    /// The cells of each target, in its order.
    cells: Vec<Cells>,
}

impl Open {
    fn new(record: SnapshotRecord) -> Self {
        let Snapshot { aggregation, samples, ref targets, .. } = record.snapshot;
        let of = |regions: &[RegionSnapshot]| {
            let mut cells = Cells::default();
            cells.add(regions, samples, aggregation);
            cells
        };
        let cells = targets.iter().map(|target| of(&target.regions)).collect();
        Self { record, first: (aggregation, samples), samples: u64::from(samples), cells }
    }

    /// Whether a snapshot can be a part of it.
    fn takes(&self, next: &SnapshotRecord, length: Duration) -> bool {
        let (aggregation, samples) = self.first;
        let Snapshot { time, aggregation: last, targets, .. } = &self.record.snapshot;
        let start = next.snapshot.time.saturating_sub(next.snapshot.aggregation);
        *last < length
            && start <= *time + aggregation / 2
            && next.snapshot.time > *time
            && (next.snapshot.aggregation.as_nanos() * u128::from(samples))
                .abs_diff(aggregation.as_nanos() * u128::from(next.snapshot.samples))
                * 16
                <= aggregation.as_nanos() * u128::from(samples.max(next.snapshot.samples))
            && targets.iter().map(|target| target.id).eq(next.snapshot.targets.iter().map(|target| target.id))
            && (Arc::ptr_eq(&self.record.infos, &next.infos) || self.record.infos == next.infos)
    }

    fn add(&mut self, next: &SnapshotRecord) {
        let more = &next.snapshot;
        self.samples += u64::from(more.samples);
        let snapshot = &mut self.record.snapshot;
        for ((cells, target), next) in self.cells.iter_mut().zip(&mut snapshot.targets).zip(&more.targets) {
            cells.add(&next.regions, more.samples, more.aggregation);
            if !Arc::ptr_eq(&target.mappings, &next.mappings) {
                target.mappings = Arc::clone(&next.mappings);
            }
        }
        snapshot.time = more.time;
        snapshot.aggregation = snapshot.aggregation.saturating_add(more.aggregation);
        snapshot.rounds = snapshot.rounds.saturating_add(more.rounds);
        snapshot.sampled_rounds = snapshot.sampled_rounds.saturating_add(more.sampled_rounds);
        snapshot.reads = snapshot.reads.saturating_add(more.reads);
        snapshot.max_reads = snapshot.max_reads.max(more.max_reads);
        snapshot.clears = snapshot.clears.saturating_add(more.clears);
        match (&mut self.record.cost, next.cost) {
            (Some(cost), Some(more)) => cost.add(&more),
            (cost, more) => *cost = cost.or(more),
        }
    }

    fn finish(mut self) -> SnapshotRecord {
        let samples = u32::try_from(self.samples).unwrap_or(u32::MAX);
        let snapshot = &mut self.record.snapshot;
        for (cells, target) in self.cells.into_iter().zip(&mut snapshot.targets) {
            target.regions = cells.finish(samples);
        }
        snapshot.samples = samples;
        self.record.nr_regions.clear();
        self.record
    }
}
