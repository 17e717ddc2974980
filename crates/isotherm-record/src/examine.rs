//! Examining a recording: what it holds, and what is missing.

use std::collections::BTreeMap;
use std::time::Duration;

use isotherm_core::Snapshot;
use isotherm_core::survey::PageSums;

use crate::batches::Batches;
use crate::{Damage, Ending, Event, MissedKind, Needs, RecordError, Recording, SnapshotRecord, columns};

/// What a recording holds, and what is missing.
#[derive(Debug)]
pub struct Examination {
    /// How it ends.
    pub ending: Ending,
    /// The length of the file, in bytes.
    pub bytes: u64,
    /// The number of snapshots that can be read. Those of several recorders at one time count as one.
    pub snapshots: u64,
    /// The number of activities that can be read.
    pub activities: u64,
    /// The number of surveys that can be read.
    pub surveys: u64,
    /// The number of marks that can be read.
    pub marks: u64,
    /// The number of calls that mapped memory that can be read.
    pub allocations: u64,
    /// How many of these calls were lost while they were recorded.
    pub lost_allocations: u64,
    /// What the recorder could not take in, by kind.
    pub missed: BTreeMap<MissedKind, u64>,
    /// The time of the last snapshot that can be read, since the start of the run.
    pub last: Option<Duration>,
    /// Whether the rounds were in time.
    pub punctuality: Punctuality,
    /// What the last survey found, all targets together. `None` without surveys.
    pub last_survey: Option<PageSums>,
    /// What cannot be read.
    pub missing: Vec<Missing>,
    /// Whether one bit of the header was wrong and could be corrected.
    pub is_header_corrected: bool,
    /// Why reading ended before the end, if it did: the checksums are right, and what the file says is not.
    pub error: Option<RecordError>,
}

/// Whether the sampling rounds of a recording were in time. What a recording does not tell is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Punctuality {
    /// The number of sampling rounds.
    pub rounds: u64,
    /// How many of them began late.
    pub late_rounds: u64,
    /// The longest time between two snapshots that neither of them covers.
    pub longest_gap: Duration,
    /// When that gap ended, since the start of the run.
    pub gap_end: Duration,
}

impl Punctuality {
    /// Adds a snapshot. `before` is the time of the one before it.
    fn add(&mut self, record: &SnapshotRecord, before: Option<Duration>) {
        let cost = record.cost.unwrap_or_default();
        self.rounds += u64::from(cost.rounds);
        self.late_rounds += u64::from(cost.late_rounds);
        let Snapshot { time, aggregation, .. } = record.snapshot;
        let start = time.saturating_sub(aggregation);
        let gap = before.map_or(Duration::ZERO, |before| start.saturating_sub(before));
        if gap > self.longest_gap {
            (self.longest_gap, self.gap_end) = (gap, start);
        }
    }
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
    let mut found = Examination {
        ending: recording.ending(),
        bytes: recording.len_bytes(),
        snapshots: 0,
        activities: 0,
        surveys: 0,
        marks: 0,
        allocations: 0,
        lost_allocations: 0,
        missed: BTreeMap::new(),
        last: None,
        punctuality: Punctuality::default(),
        last_survey: None,
        missing: missing(recording),
        is_header_corrected: recording.is_header_corrected(),
        error: None,
    };
    for event in recording.events(Needs { panels: false, ..Needs::ALL }) {
        match event {
            Ok(Event::Snapshot(record)) => {
                found.punctuality.add(&record, found.last);
                let time = record.snapshot.time;
                found.snapshots += u64::from(found.last.replace(time) != Some(time));
            }
            Ok(Event::Survey(record)) => {
                found.surveys += 1;
                found.last_survey = Some(record.survey.sums());
            }
            Ok(Event::Activity(_)) => found.activities += 1,
            Ok(Event::Mark(_)) => found.marks += 1,
            Ok(Event::Allocations(calls)) => {
                found.allocations += calls.calls.len() as u64;
                found.lost_allocations += calls.lost;
            }
            Ok(Event::Missed(of)) => *found.missed.entry(of.kind).or_default() += of.count,
            Ok(Event::Panel(_)) => {}
            Err(error @ RecordError::Read { .. }) => return Err(error),
            Err(error) => found.error = Some(error),
        }
    }
    Ok(found)
}

fn missing(recording: &Recording) -> Vec<Missing> {
    let damage = recording.damage();
    // The times of the first and the last row of each span.
    let mut times: Vec<Option<(u64, u64)>> = vec![None; damage.len() + 1];
    if !damage.is_empty() {
        let mut batches = Batches::new(recording.source().clone(), &|path| columns::TIMES.contains(&path));
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
