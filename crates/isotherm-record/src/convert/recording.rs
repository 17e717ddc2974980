//! A recording made of another one.

use std::cell::RefCell;

use isotherm_core::{Allocations, PanelSnapshot};
use isotherm_output::OutputFile;

use crate::{Activity, Contents, Ending, Mark, Missed, RecordError, Recorder, Recording, SnapshotRecord, SurveyRecord};

/// Writes all of `recording` to `output`. The output appears when it is whole.
///
/// A recording that has no end mark becomes one without.
///
/// # Errors
/// When `recording` cannot be read, or `output` cannot be written.
pub(super) fn write(recording: &Recording, output: OutputFile) -> Result<(), RecordError> {
    transfer(recording, output, true).map(drop)
}

/// As [`write`], of all that can be read. Returns the first error in what `recording` says, which ends the reading.
pub(super) fn write_readable(recording: &Recording, output: OutputFile) -> Result<Option<RecordError>, RecordError> {
    transfer(recording, output, false)
}

/// Writes all that can be read. An error in what `recording` says ends the reading. If everything is needed, there is
/// no output then.
fn transfer(recording: &Recording, output: OutputFile, needs_all: bool) -> Result<Option<RecordError>, RecordError> {
    let error = RefCell::new(None);
    let snapshots = readable(recording.snapshots()?, &error);
    let mut activities = readable(recording.activities()?, &error).peekable();
    let surveys = readable(recording.surveys()?, &error);
    let mut marks = readable(recording.marks()?, &error).peekable();
    let allocations = readable(recording.allocations()?, &error);
    let panels = readable(recording.panels()?, &error);
    let missed = readable(recording.missed()?, &error);
    let contents =
        Contents { activities: activities.peek().is_some(), marks: marks.peek().is_some(), ..recording.contents() };
    let mut recorder = Recorder::begin(output, recording.header(), contents)?.appearing_whole();
    interleave(&mut recorder, snapshots, activities, surveys, marks, allocations, (missed, panels))?;
    let stopped = match error.take() {
        Some(error) if needs_all => return Err(error),
        stopped => stopped,
    };
    match recording.ending() {
        Ending::Whole => recorder.finish().map(drop)?,
        Ending::Unfinished | Ending::CutShort { .. } => recorder.break_off()?,
    }
    Ok(stopped)
}

/// Writes snapshots, activities, surveys, marks, calls that mapped memory, what is missing and readings of the panel in
/// the order of time.
///
/// # Errors
/// When they cannot be written.
pub(super) fn interleave(
    recorder: &mut Recorder,
    snapshots: impl Iterator<Item = SnapshotRecord>,
    activities: impl Iterator<Item = Activity>,
    surveys: impl Iterator<Item = SurveyRecord>,
    marks: impl Iterator<Item = Mark>,
    allocations: impl Iterator<Item = Allocations>,
    (missed, panels): (impl Iterator<Item = Missed>, impl Iterator<Item = PanelSnapshot>),
) -> Result<(), RecordError> {
    let (mut activities, mut surveys, mut marks) = (activities.peekable(), surveys.peekable(), marks.peekable());
    let (mut allocations, mut missed) = (allocations.peekable(), missed.peekable());
    let mut panels = panels.peekable();
    for record in snapshots {
        let time = record.snapshot.time;
        while let Some(activity) = activities.next_if(|activity| activity.time <= time) {
            recorder.write_activity(&activity)?;
        }
        while let Some(survey) = surveys.next_if(|survey| survey.survey.time <= time) {
            recorder.write_survey(&survey)?;
        }
        while let Some(mark) = marks.next_if(|mark| mark.time <= time) {
            recorder.write_mark(&mark)?;
        }
        while let Some(found) = allocations.next_if(|found| found.time <= time) {
            recorder.write_allocations(&found)?;
        }
        while let Some(missed) = missed.next_if(|missed| missed.time <= time) {
            recorder.write_missed(&missed)?;
        }
        while let Some(found) = panels.next_if(|found| found.time <= time) {
            recorder.write_panel(&found)?;
        }
        recorder.write(&record)?;
    }
    activities.try_for_each(|activity| recorder.write_activity(&activity))?;
    surveys.try_for_each(|survey| recorder.write_survey(&survey))?;
    marks.try_for_each(|mark| recorder.write_mark(&mark))?;
    allocations.try_for_each(|found| recorder.write_allocations(&found))?;
    missed.try_for_each(|missed| recorder.write_missed(&missed))?;
    panels.try_for_each(|found| recorder.write_panel(&found))
}

/// The items up to the first error, which is kept.
pub(super) fn readable<'a, T: 'a>(
    items: impl Iterator<Item = Result<T, RecordError>> + 'a,
    kept: &'a RefCell<Option<RecordError>>,
) -> impl Iterator<Item = T> + 'a {
    items.map_while(|item| match item {
        Ok(item) => Some(item),
        Err(error) => {
            kept.borrow_mut().get_or_insert(error);
            None
        }
    })
}
