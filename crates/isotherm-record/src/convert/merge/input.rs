//! One of the recordings that are merged, with its times as the result counts them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

use isotherm_core::{Allocations, StackId};

use super::join::{Piece, Pieces};
use super::sums::Step;
use crate::convert::recording::readable;
use crate::{Mark, Missed, Part, RecordError, Recording, SnapshotRecord, SurveyRecord};

/// One of the recordings that are merged.
#[derive(Debug)]
pub(super) struct Input<'a> {
    pub(super) recording: &'a Recording,
    /// By how much it started after the first of them.
    shift: Duration,
    /// Its part, as it counts time itself. What it has from before and after its part is left out.
    part: Range<Duration>,
    /// Its last snapshot or survey.
    last: Duration,
    /// Why reading ended before the end, if it did.
    error: RefCell<Option<RecordError>>,
}

impl<'a> Input<'a> {
    /// Reads how long a recording is. The first one started at `started_unix_ns`.
    pub(super) fn new(recording: &'a Recording, started_unix_ns: u64) -> Self {
        let header = recording.header();
        let shift = Duration::from_nanos(header.started_unix_ns.saturating_sub(started_unix_ns));
        let Part { from_ns, to_ns } = header.part.unwrap_or_default();
        let part = Duration::from_nanos(from_ns)..to_ns.map_or(Duration::MAX, Duration::from_nanos);
        let input = Self { recording, shift, last: part.start, part, error: RefCell::new(None) };
        Self { last: input.last(), ..input }
    }

    /// The time that it covers in the result.
    pub(super) fn time(&self) -> Range<Duration> {
        self.at(self.part.start)..self.at(self.last)
    }

    /// Why reading ended before the end, if it did.
    pub(super) fn take_error(&self) -> Option<RecordError> {
        self.error.take()
    }

    /// The time of its last snapshot or survey in its part.
    fn last(&self) -> Duration {
        // What cannot be read is told when it is merged.
        let times = self.recording.times().map_while(Result::ok);
        times.filter(|&time| time <= self.part.end).max().unwrap_or_default().max(self.part.start)
    }

    /// Whether an item of this time, which is not after the part, is in it.
    fn holds(&self, time: Duration) -> bool {
        Part::holds_from(self.part.start, time)
    }

    /// A time of the recording in the result.
    fn at(&self, time: Duration) -> Duration {
        time.saturating_add(self.shift)
    }

    /// The items up to the first error, which is kept.
    fn readable<T: 'a>(
        &'a self,
        items: Result<impl Iterator<Item = Result<T, RecordError>> + 'a, RecordError>,
    ) -> impl Iterator<Item = T> + 'a {
        let items = items.map_err(|error| _ = self.error.borrow_mut().get_or_insert(error));
        items.into_iter().flat_map(|items| readable(items, &self.error))
    }

    /// The items of its part, which are in the order of time.
    fn inside<T: 'a>(
        &'a self,
        items: Result<impl Iterator<Item = Result<T, RecordError>> + 'a, RecordError>,
        time: fn(&T) -> Duration,
    ) -> impl Iterator<Item = T> + 'a {
        let items = self.readable(items);
        items.take_while(move |item| time(item) <= self.part.end).filter(move |item| self.holds(time(item)))
    }

    /// Its snapshots. Those of one time are one piece. A snapshot holds since the one before, unless snapshots are
    /// missing in between.
    pub(super) fn snapshots(&'a self) -> Pieces<'a, Vec<SnapshotRecord>> {
        let mut records = self.inside(self.recording.snapshots(), |record| record.snapshot.time).peekable();
        let mut before = None;
        Box::new(std::iter::from_fn(move || {
            let mut all = vec![records.next()?];
            let time = all[0].snapshot.time;
            while let Some(record) = records.next_if(|record| record.snapshot.time == time) {
                all.push(record);
            }
            let aggregation = all.iter().map(|record| record.snapshot.aggregation).max().unwrap_or_default();
            let before = before.replace(time);
            let from = before.unwrap_or(self.part.start);
            let is_next = time.saturating_sub(from) <= aggregation.saturating_mul(2);
            let since = if is_next { from } else { time.saturating_sub(aggregation).max(from) };
            all.iter_mut().for_each(|record| record.snapshot.time = self.at(time));
            Some(Piece { since: self.at(since), end: self.at(time), until: self.at(time), item: all })
        }))
    }

    /// The same pieces, of which the last one holds until the end of the recording.
    fn until_the_end<T: 'a>(&'a self, pieces: impl Iterator<Item = Piece<T>> + 'a) -> Pieces<'a, T> {
        let mut pieces = pieces.peekable();
        Box::new(std::iter::from_fn(move || {
            let piece = pieces.next()?;
            let end = if pieces.peek().is_none() { self.time().end } else { piece.end };
            Some(Piece { until: end.max(piece.end), ..piece })
        }))
    }

    /// Its surveys. In a part of a run, the first one counts as the first of a run, because what it refers to is left
    /// out.
    pub(super) fn surveys(&'a self) -> Pieces<'a, SurveyRecord> {
        let mut before = None;
        let surveys = self.inside(self.recording.surveys(), |record| record.survey.time);
        self.until_the_end(surveys.map(move |mut record| {
            let survey = &mut record.survey;
            if before.is_none() {
                survey.interval = Duration::ZERO;
            }
            let (since, end) = (survey.time.saturating_sub(survey.interval), survey.time);
            let since = before.replace(end).map_or(since, |before| since.max(before));
            survey.time = self.at(end);
            Piece { since: self.at(since), end: self.at(end), until: self.at(end), item: record }
        }))
    }

    /// Its activities. An activity holds since the one before.
    pub(super) fn activities(&'a self) -> Pieces<'a, Step> {
        let activities = self.readable(self.recording.activities());
        let activities = activities.take_while(|activity| activity.time <= self.part.end);
        let mut before = None;
        self.until_the_end(activities.filter_map(move |mut activity| {
            let before = before.replace(activity.clone());
            if !self.holds(activity.time) {
                return None;
            }
            let since = before.as_ref().map_or(self.part.start, |before| before.time.max(self.part.start));
            let end = activity.time;
            activity.time = self.at(end);
            activity.schemes.iter_mut().for_each(|scheme| scheme.last.time = self.at(scheme.last.time));
            let step = Step::since(before.as_ref(), activity);
            Some(Piece { since: self.at(since), end: self.at(end), until: self.at(end), item: step })
        }))
    }

    /// Its marks.
    pub(super) fn marks(&'a self) -> Pieces<'a, Mark> {
        let marks = self.inside(self.recording.marks(), |mark| mark.time);
        Box::new(marks.map(|mark| {
            let time = self.at(mark.time);
            Piece::at(time, Mark { time, ..mark })
        }))
    }

    /// What is missing in it.
    pub(super) fn missed(&'a self) -> Pieces<'a, Missed> {
        let missed = self.inside(self.recording.missed(), |missed| missed.time);
        Box::new(missed.map(|missed| {
            let time = self.at(missed.time);
            Piece::at(time, Missed { time, ..missed })
        }))
    }

    /// The calls that mapped memory, also those before its part: the memory belongs to the same calls in it. `next` is
    /// the number of the next stack of all recordings.
    pub(super) fn allocations(&'a self, next: &'a RefCell<StackId>) -> Pieces<'a, Allocations> {
        let found = self.readable(self.recording.allocations());
        let found = found.take_while(|found| found.time <= self.part.end);
        let mut numbers: HashMap<StackId, StackId> = HashMap::new();
        Box::new(found.map(move |mut found| {
            found.time = self.at(found.time);
            for (stack, _) in &mut found.stacks {
                *stack = *numbers.entry(*stack).or_insert_with(|| {
                    let mut next = next.borrow_mut();
                    *next = next.saturating_add(1);
                    *next
                });
            }
            for call in &mut found.calls {
                call.time = self.at(call.time);
                call.stack = call.stack.and_then(|stack| numbers.get(&stack).copied());
            }
            Piece::at(found.time, found)
        }))
    }

    /// By how much it started after the first recording.
    pub(super) fn shift(&self) -> Duration {
        self.shift
    }
}
