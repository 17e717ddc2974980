//! A recording in the present format, made of one in any format.

use std::time::Duration;

use isotherm_output::OutputFile;

use crate::{Contents, Ending, RecordError, Recorder, Recording};

/// Writes all of `recording` to `output`, in the present format. The output appears when it is whole.
///
/// A recording that has no end mark becomes one without.
///
/// # Errors
/// When `recording` cannot be read, or `output` cannot be written.
pub(super) fn write(recording: &Recording, output: OutputFile) -> Result<(), RecordError> {
    let mut activities = recording.activities()?.peekable();
    let mut surveys = recording.surveys()?.peekable();
    let contents = Contents { activities: activities.peek().is_some(), surveys: recording.contents().surveys };
    let mut recorder = Recorder::begin(output, recording.header(), contents)?.appearing_whole();
    for record in recording.snapshots()? {
        let record = record?;
        let time = record.snapshot.time;
        while let Some(activity) = activities.next_if(|activity| is_due(activity, |activity| activity.time, time)) {
            recorder.write_activity(&activity?)?;
        }
        while let Some(survey) = surveys.next_if(|survey| is_due(survey, |survey| survey.survey.time, time)) {
            recorder.write_survey(&survey?)?;
        }
        recorder.write(&record)?;
    }
    for activity in activities {
        recorder.write_activity(&activity?)?;
    }
    for survey in surveys {
        recorder.write_survey(&survey?)?;
    }
    match recording.ending() {
        Ending::Whole => recorder.finish().map(drop),
        Ending::Unfinished | Ending::CutShort { .. } => recorder.break_off(),
    }
}

/// Whether `item` stands before a snapshot of this time. An error does, so that it ends the conversion.
fn is_due<T>(item: &Result<T, RecordError>, time: impl Fn(&T) -> Duration, snapshot: Duration) -> bool {
    item.as_ref().map_or(true, |item| time(item) <= snapshot)
}
