//! A part of a recording, as a recording of its own.
//!
//! Times keep counting from the start of the run. What reports on the part need of the rest is kept, too: the last
//! snapshot, survey and activity before it, the first ones after it, and the time of the first survey. The header says
//! where the part begins and ends, so that reports do not count these.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::iter::Peekable;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use isotherm_core::{Allocations, PanelSnapshot, TargetId};

use super::recording::{interleave, readable};
use super::{ConvertError, of_output, open};
use crate::time::nanoseconds;
use crate::{
    Activity, Contents, Ending, Header, Part, Recorder, Recording, SnapshotRecord, SurveyRecord, pid_column,
    recording_at,
};

/// Which part of a recording is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// The time since the start of the run. As snapshots cover the time before them, one at `t` is in the part if
    /// `start < t <= end`. `None` is all of the time.
    pub time: Option<Range<Duration>>,
    /// The process IDs of the targets, 0 for physical memory. Empty for all targets.
    pub targets: BTreeSet<u32>,
}

impl Cut {
    fn holds(&self, id: TargetId) -> bool {
        self.targets.is_empty() || self.targets.contains(&pid_column(id))
    }

    /// The wanted time of a recording with this header. A part of a part lies in both.
    fn part_of(&self, header: &Header) -> Range<Duration> {
        let Part { from_ns, to_ns } = header.part.unwrap_or_default();
        let end = to_ns.map_or(Duration::MAX, Duration::from_nanos);
        let time = self.time.clone().unwrap_or(Duration::ZERO..Duration::MAX);
        time.start.max(Duration::from_nanos(from_ns))..time.end.min(end)
    }

    /// The snapshot with the wanted targets. `None` if there are none.
    fn snapshot(&self, mut record: SnapshotRecord) -> Option<SnapshotRecord> {
        record.snapshot.targets.retain(|target| self.holds(target.id));
        (!record.snapshot.targets.is_empty()).then_some(record)
    }

    /// The survey with the wanted targets. What it knows of all targets together is left out if some are not wanted.
    fn survey(&self, mut record: SurveyRecord) -> Option<SurveyRecord> {
        let targets = record.survey.targets.len();
        record.survey.targets.retain(|target| self.holds(target.id));
        if record.survey.targets.len() < targets {
            record.survey.forget_total();
        }
        (!record.survey.targets.is_empty()).then_some(record)
    }

    fn panel(&self, mut panel: PanelSnapshot) -> PanelSnapshot {
        let before = panel.targets.len();
        panel.targets.retain(|target| self.holds(target.id));
        if panel.targets.len() < before {
            // Which memory they share with the others is not known: both bounds are wider than they need to be.
            panel.total = Default::default();
            for target in &panel.targets {
                panel.total.iter_mut().zip(target.within).for_each(|(sum, of)| *sum += of);
            }
        }
        panel
    }

    fn activity(&self, mut activity: Activity) -> Activity {
        activity.memory.retain(|(id, _)| self.holds(*id));
        activity
    }

    fn allocations(&self, mut found: Allocations) -> Allocations {
        found.calls.retain(|call| self.holds(call.target));
        found
    }
}

/// Writes a part of `recording` to `output`. Returns the number of snapshots of the part.
///
/// The output appears when it is whole. A recording that is replaced is kept. It has an end mark if `recording` has
/// one, or goes on after the part.
///
/// # Errors
/// [`ConvertError::NothingToCut`] if the part has neither a snapshot nor a survey. When the output is the recording,
/// the recording is damaged, or the output cannot be written.
pub fn cut(recording: &Recording, wanted: &Cut, output: &Path) -> Result<u64, ConvertError> {
    let part = wanted.part_of(recording.header());
    let (error, goes_on) = (RefCell::new(None), Cell::new(false));
    let snapshots = readable(recording.snapshots()?, &error).filter_map(|record| wanted.snapshot(record));
    let mut surveys = readable(recording.surveys()?, &error).filter_map(|record| wanted.survey(record)).peekable();
    let activities = readable(recording.activities()?, &error).map(|activity| wanted.activity(activity));
    let first = surveys.peek().map(without_memory);
    let (snapshot_before, mut snapshots) = within(snapshots, |record| record.snapshot.time, &part, &goes_on);
    let (survey_before, mut surveys) = within(surveys, |record| record.survey.time, &part, &goes_on);
    let (activity_before, activities) = within(activities, |activity| activity.time, &part, &goes_on);
    let has_snapshot = snapshots.peek().is_some_and(|record| holds(&part, record.snapshot.time));
    let has_survey = surveys.peek().is_some_and(|record| holds(&part, record.survey.time));
    if !has_snapshot && !has_survey {
        return Err(match error.take() {
            Some(error) => error.into(),
            None => ConvertError::NothingToCut { path: recording.path().into() },
        });
    }
    let count = Cell::new(0);
    let snapshots = snapshot_before.into_iter().chain(snapshots).inspect(|record| {
        count.set(count.get() + u64::from(holds(&part, record.snapshot.time)));
    });
    let mut surveys = survey_before.into_iter().chain(surveys).peekable();
    let first = first.filter(|first| surveys.peek().is_none_or(|next| next.survey.time > first.survey.time));
    let surveys = first.into_iter().chain(surveys);
    let mut activities = activity_before.into_iter().chain(activities).peekable();
    let marks = readable(recording.marks()?, &error).filter(|mark| holds(&part, mark.time));
    let mut marks = marks.peekable();
    let missed = readable(recording.missed()?, &error).filter(|missed| holds(&part, missed.time));
    let missed = missed;

    // What was mapped before the part belongs to the same calls in it.
    let allocations = readable(recording.allocations()?, &error).map(|found| wanted.allocations(found));
    let allocations = allocations.take_while(|found| found.time <= part.end);

    let panels = readable(recording.panels()?, &error).filter(|found| holds(&part, found.time));
    let panels = panels.map(|found| wanted.panel(found));

    let contents =
        Contents { activities: activities.peek().is_some(), marks: marks.peek().is_some(), ..recording.contents() };
    let file = open(recording, recording_at(output))?;
    let write = || {
        let recorder = Recorder::begin(file, &header(recording.header(), &part), contents)?;
        let mut recorder = recorder.appearing_whole();
        interleave(&mut recorder, snapshots, activities, surveys, marks, allocations, (missed, panels))?;
        match (error.take(), recording.ending()) {
            (Some(error), _) => Err(error),
            (None, Ending::Whole) => recorder.finish().map(drop),
            (None, _) if goes_on.get() => recorder.finish().map(drop),
            (None, Ending::Unfinished | Ending::CutShort { .. }) => recorder.break_off(),
        }
    };
    write().map_err(|error| of_output(output, error))?;
    Ok(count.get())
}

/// The last item before the part; and the items in it, with the first one after it. `goes_on` becomes true if there is
/// one after it.
fn within<'a, T: 'a>(
    items: impl Iterator<Item = T> + 'a,
    time: fn(&T) -> Duration,
    part: &'a Range<Duration>,
    goes_on: &'a Cell<bool>,
) -> (Option<T>, Peekable<impl Iterator<Item = T> + 'a>) {
    let mut items = items.peekable();
    let mut before = None;
    while let Some(item) = items.next_if(|item| time(item) <= part.end && !holds(part, time(item))) {
        before = Some(item);
    }
    let mut ended = false;
    let inside = items.take_while(move |item| {
        let had_ended = std::mem::replace(&mut ended, time(item) > part.end);
        goes_on.set(goes_on.get() || ended);
        !had_ended
    });
    (before, inside.peekable())
}

/// Whether an item at this time is in the part.
fn holds(part: &Range<Duration>, time: Duration) -> bool {
    Part::holds_from(part.start, time) && time <= part.end
}

/// The header of this part of a recording.
fn header(header: &Header, part: &Range<Duration>) -> Header {
    let to_ns = (part.end != Duration::MAX).then(|| nanoseconds(part.end));
    let part = Part { from_ns: nanoseconds(part.start), to_ns };
    Header { part: (part != Part::default()).then_some(part), ..header.clone() }
}

/// The survey without the memory that it found: it says only when it was.
fn without_memory(record: &SurveyRecord) -> SurveyRecord {
    let mut record = record.clone();
    for target in &mut record.survey.targets {
        target.by_mapping.clear();
        target.by_block = Default::default();
        target.by_node.clear();
    }
    record.survey.forget_total();
    record
}
