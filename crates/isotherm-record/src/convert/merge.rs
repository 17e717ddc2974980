//! One recording of several: the events of all of them, in a file.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use isotherm_core::{TargetId, chain};
use isotherm_output::OutputError;

use super::of_output;
use crate::convert::ConvertError;
use crate::{Contents, Ending, Event, JoinError, Joined, Needs, RecordError, Recorder, Recording, recording_at};

/// Why recordings could not be merged. There is no output then, and a file that was there before is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// The output could not be written, or is one of the recordings.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The recordings cannot be read, or not as one.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// There is neither a snapshot nor a survey in the recordings.
    #[error("there is nothing to merge: the recordings have neither a snapshot nor a survey")]
    Nothing,
}

impl From<RecordError> for MergeError {
    fn from(error: RecordError) -> Self {
        Self::Join(error.into())
    }
}

/// What was merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    /// The number of snapshots of the result. Those of several recorders at one time count as one.
    pub snapshots: u64,
    /// The number of targets of the result.
    pub targets: u64,
    /// The recordings of which something is missing, and why.
    pub incomplete: Vec<(PathBuf, String)>,
}

/// Writes one recording of several, which are of one machine since its last boot, to `output`.
///
/// It appears when it is whole. A recording that is replaced is kept. Of a recording that is damaged or has no end
/// mark, what can be read is merged; the result then has no end mark either.
///
/// # Errors
/// If the recordings cannot be read as one, are of several machines or have neither a snapshot nor a survey; or if
/// `output` is one of them or cannot be written.
pub fn merge(recordings: &Joined, output: &Path) -> Result<Merged, MergeError> {
    recordings.must_be_of_one_machine()?;
    let all = recordings.recordings();
    let file = recording_at(output).apart_from(all.iter().map(Recording::path)).create()?;
    let has = |needs: Needs| recordings.events(needs).any(|event| event.is_ok());
    let contents = Contents { activities: has(Needs::ACTIVITIES), marks: has(Needs::MARKS), ..recordings.contents() };
    let (mut targets, mut snapshots, mut last, mut has_survey) = (HashSet::new(), 0, None, false);
    let mut errors = vec![];
    let write = || {
        let mut recorder = Recorder::begin(file, recordings.header(), contents)?.appearing_whole();
        for event in recordings.events(Needs::ALL) {
            let event = match event {
                Ok(event) => event,
                Err(JoinError::Record(error @ RecordError::Damaged { .. })) => {
                    errors.push(error);
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let ids: Vec<TargetId> = match &event {
                Event::Snapshot(record) => {
                    let time = record.snapshot.time;
                    snapshots += u64::from(last.replace(time) != Some(time));
                    record.snapshot.targets.iter().map(|target| target.id).collect()
                }
                Event::Survey(record) => {
                    has_survey = true;
                    record.survey.targets.iter().map(|target| target.id).collect()
                }
                Event::Panel(_) | Event::Activity(_) | Event::Mark(_) | Event::Allocations(_) | Event::Missed(_) => {
                    vec![]
                }
            };
            targets.extend(ids);
            recorder.write_event(&event)?;
        }
        if snapshots == 0 && !has_survey {
            // What cannot be read is the reason.
            return Err(errors.pop().map_or(MergeError::Nothing, MergeError::from));
        }
        let incomplete = incomplete(all, &errors);
        if incomplete.is_empty() {
            recorder.finish().map(drop)?
        } else {
            recorder.break_off()?
        }
        Ok(Merged { snapshots, targets: targets.len() as u64, incomplete })
    };
    write().map_err(|error| match error {
        MergeError::Join(JoinError::Record(error)) => match of_output(output, error) {
            ConvertError::Output(error) => error.into(),
            ConvertError::Record(error) => error.into(),
            ConvertError::NothingToCut { .. } => MergeError::Nothing,
        },
        error => error,
    })
}

/// What is missing of recordings that have been read with these errors.
fn incomplete(recordings: &[Recording], errors: &[RecordError]) -> Vec<(PathBuf, String)> {
    let mut incomplete = Vec::new();
    for recording in recordings {
        let mut why = Vec::new();
        let of_it =
            |error: &&RecordError| matches!(error, RecordError::Damaged { path, .. } if path == recording.path());
        why.extend(errors.iter().find(of_it).map(|error| chain(error)));
        match recording.damage().len() {
            0 => {}
            1 => why.push("a part of it is damaged; `isotherm check` says which".into()),
            parts => why.push(format!("{parts} parts of it are damaged; `isotherm check` says which")),
        }
        match recording.ending() {
            Ending::Whole => {}
            Ending::Unfinished => why.push("it has no end mark: it is being made, or its recorder was killed".into()),
            Ending::CutShort { at } => why.push(format!("it is cut short at byte {at}")),
        }
        if !why.is_empty() {
            incomplete.push((recording.path().into(), why.join("; ")));
        }
    }
    incomplete
}
