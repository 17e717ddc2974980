//! A recording in the present format, made of one in any format.

use std::path::Path;

use crate::{Ending, RecordError, Recorder, Recording};

/// Writes all of `recording` to `output`, in the present format.
///
/// A recording that has no end mark becomes one without.
///
/// # Errors
/// When `recording` cannot be read, or `output` cannot be written.
pub(super) fn write(recording: &Recording, output: &Path) -> Result<(), RecordError> {
    let mut activities = recording.activities()?.peekable();
    let mut recorder = match activities.peek() {
        Some(_) => Recorder::create_with_activities(output, recording.header())?,
        None => Recorder::create(output, recording.header())?,
    };
    for record in recording.snapshots()? {
        let record = record?;
        while let Some(activity) = activities.next_if(|activity| is_before(activity, &record)) {
            recorder.write_activity(&activity?)?;
        }
        recorder.write(&record)?;
    }
    for activity in activities {
        recorder.write_activity(&activity?)?;
    }
    match recording.ending() {
        Ending::Whole => recorder.finish().map(drop),
        Ending::Unfinished | Ending::CutShort { .. } => recorder.flush(),
    }
}

/// Whether an activity stands before a snapshot. An error does, so that it ends the conversion.
fn is_before(activity: &Result<crate::Activity, RecordError>, record: &crate::SnapshotRecord) -> bool {
    activity.as_ref().map_or(true, |activity| activity.time <= record.snapshot.time)
}
