//! A recording in the present format, made of one in any format.

use std::cell::RefCell;

use isotherm_output::OutputFile;

use crate::{Contents, Ending, RecordError, Recorder, Recording};

/// Writes all of `recording` to `output`, in the present format. The output appears when it is whole.
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
    let mut snapshots = readable(recording.snapshots()?, &error);
    let mut activities = readable(recording.activities()?, &error).peekable();
    let mut surveys = readable(recording.surveys()?, &error).peekable();
    let contents = Contents { activities: activities.peek().is_some(), surveys: recording.contents().surveys };
    let mut recorder = Recorder::begin(output, recording.header(), contents)?.appearing_whole();
    for record in &mut snapshots {
        let time = record.snapshot.time;
        while let Some(activity) = activities.next_if(|activity| activity.time <= time) {
            recorder.write_activity(&activity)?;
        }
        while let Some(survey) = surveys.next_if(|survey| survey.survey.time <= time) {
            recorder.write_survey(&survey)?;
        }
        recorder.write(&record)?;
    }
    activities.try_for_each(|activity| recorder.write_activity(&activity))?;
    surveys.try_for_each(|survey| recorder.write_survey(&survey))?;
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

/// The items up to the first error, which is kept.
fn readable<'a, T: 'a>(
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
