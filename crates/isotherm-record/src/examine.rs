//! Examining a recording: what it holds, and what is missing.

use std::time::Duration;

use crate::batches::Batches;
use crate::{Damage, Ending, RecordError, Recording};

/// What a recording holds, and what is missing.
#[derive(Debug)]
pub struct Examination {
    /// How it ends.
    pub ending: Ending,
    /// The length of the file, in bytes.
    pub bytes: u64,
    /// The number of snapshots that can be read.
    pub snapshots: u64,
    /// The number of activities that can be read.
    pub activities: u64,
    /// The number of surveys that can be read.
    pub surveys: u64,
    /// The time of the last snapshot that can be read, since the start of the run.
    pub last: Option<Duration>,
    /// What cannot be read.
    pub missing: Vec<Missing>,
    /// Whether one bit of the header was wrong and could be corrected.
    pub is_header_corrected: bool,
    /// Why reading ended before the end, if it did: the checksums are right, and what the file says is not.
    pub error: Option<RecordError>,
}

/// A part of a recording that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Where it is in the file, and what is wrong.
    pub damage: Damage,
    /// The time of the last row before it, since the start of the run. `None` if there is none.
    pub after: Option<Duration>,
    /// The time of the first row after it. `None` if there is none.
    pub before: Option<Duration>,
}

/// What the recording can be told to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It has its end mark, and nothing is missing.
    Whole,
    /// Nothing is damaged, but it has no end mark: it is still being made, its recorder was killed, or it was cut.
    Unfinished,
    /// A part of it is damaged.
    Damaged,
}

impl Examination {
    /// Its condition.
    pub fn condition(&self) -> Condition {
        if !self.missing.is_empty() || self.is_header_corrected || self.error.is_some() {
            return Condition::Damaged;
        }
        match self.ending {
            Ending::Whole => Condition::Whole,
            Ending::Unfinished | Ending::CutShort { .. } => Condition::Unfinished,
        }
    }
}

/// Reads all of a recording, and counts what it holds.
///
/// # Errors
/// If the file cannot be read. What is wrong with its contents is part of the [`Examination`].
pub fn examine(recording: &Recording) -> Result<Examination, RecordError> {
    let mut error = None;
    let mut last = None;
    let snapshots = count(recording.snapshots()?, &mut error, |record| last = Some(record.snapshot.time))?;
    let activities = count(recording.activities()?, &mut error, |_| ())?;
    let surveys = count(recording.surveys()?, &mut error, |_| ())?;
    Ok(Examination {
        ending: recording.ending(),
        bytes: recording.len_bytes(),
        snapshots,
        activities,
        surveys,
        last,
        missing: missing(recording),
        is_header_corrected: recording.is_header_corrected(),
        error,
    })
}

/// Counts items up to the first error in what they say, which is kept.
fn count<T>(
    items: impl Iterator<Item = Result<T, RecordError>>,
    kept: &mut Option<RecordError>,
    mut take: impl FnMut(T),
) -> Result<u64, RecordError> {
    let mut count = 0;
    for item in items {
        match item {
            Ok(item) => {
                take(item);
                count += 1;
            }
            Err(error @ RecordError::Read { .. }) => return Err(error),
            Err(error) => drop(kept.get_or_insert(error)),
        }
    }
    Ok(count)
}

fn missing(recording: &Recording) -> Vec<Missing> {
    let damage = recording.damage();
    // The times of the first and the last row of each span.
    let mut times: Vec<Option<(u64, u64)>> = vec![None; damage.len() + 1];
    if !damage.is_empty() {
        let mut batches = Batches::new(recording.source().clone());
        let mut note = |time: u64, span: usize| {
            if let Some(times) = times.get_mut(span) {
                *times = Some((times.map_or(time, |(first, _)| first), time));
            }
        };
        while let Some(Ok((time, span))) = batches.next_time() {
            note(time, span);
        }
    }
    let part = |(nth, &damage): (usize, &Damage)| Missing {
        damage,
        after: times[..=nth].iter().rev().find_map(|times| times.map(|(_, last)| Duration::from_nanos(last))),
        before: times[nth + 1..].iter().find_map(|times| times.map(|(first, _)| Duration::from_nanos(first))),
    };
    damage.iter().enumerate().map(part).collect()
}
