//! A recording made of another one.

use isotherm_output::OutputFile;

use crate::{Contents, Ending, Needs, RecordError, Recorder, Recording};

/// What a recording has columns for, without those of activities and marks if it has none.
pub(super) fn used(recording: &Recording) -> Contents {
    let activities = recording.activities().next().is_some_and(|found| found.is_ok());
    let marks = recording.marks().next().is_some_and(|found| found.is_ok());
    Contents { activities, marks, ..recording.contents() }
}

/// Writes all that can be read of `recording` to `output`, which appears when it is whole. A recording that has no end
/// mark becomes one without. Returns the error in what `recording` says that ends the reading, if there is one. If
/// everything is needed, there is no output then.
///
/// # Errors
/// When `recording` cannot be read and everything is needed, or `output` cannot be written.
pub(super) fn transfer(
    recording: &Recording,
    output: OutputFile,
    needs_all: bool,
) -> Result<Option<RecordError>, RecordError> {
    let mut recorder = Recorder::begin(output, recording.header(), used(recording))?.appearing_whole();
    let mut stopped = None;
    for event in recording.events(Needs::ALL) {
        match event {
            Ok(event) => recorder.write_event(&event)?,
            Err(error) if needs_all => return Err(error),
            Err(error) => stopped = Some(error),
        }
    }
    match recording.ending() {
        Ending::Whole => recorder.finish().map(drop)?,
        Ending::Unfinished | Ending::CutShort { .. } => recorder.break_off()?,
    }
    Ok(stopped)
}
