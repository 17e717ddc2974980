//! What is missing from a recording because its recorder did not keep up with the run, and reading it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::columns;
use crate::time::nanoseconds;

/// What can be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MissedKind {
    /// Snapshots. Their costs are part of the next one.
    Snapshots,
    /// Surveys.
    Surveys,
    /// Activities. Their sums are part of the next one.
    Activities,
    /// Marks.
    Marks,
    /// Calls that mapped memory.
    Calls,
    /// Notices to the user, which a recording does not have.
    Notices,
    /// Processes that came and went before anything was found in them. They are not missing because the recorder could
    /// not keep up: they lived too short.
    Processes,
}

impl MissedKind {
    /// All kinds.
    pub const ALL: [Self; 7] =
        [Self::Snapshots, Self::Surveys, Self::Activities, Self::Marks, Self::Calls, Self::Notices, Self::Processes];

    /// The name of the kind.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Snapshots => "snapshots",
            Self::Surveys => "surveys",
            Self::Activities => "activities",
            Self::Marks => "marks",
            Self::Calls => "calls",
            Self::Notices => "notices",
            Self::Processes => "processes",
        }
    }

    /// So many of the kind in words, such as `1 survey`.
    pub fn counted(self, count: u64) -> String {
        let (one, many) = match self {
            Self::Snapshots => ("snapshot", "snapshots"),
            Self::Surveys => ("survey", "surveys"),
            Self::Activities => ("activity of schemes", "activities of schemes"),
            Self::Marks => ("mark", "marks"),
            Self::Calls => ("call that mapped memory", "calls that mapped memory"),
            Self::Notices => ("notice", "notices"),
            Self::Processes => ("process", "processes"),
        };
        format!("{} {}", isotherm_core::units::count(count), if count == 1 { one } else { many })
    }
}

/// What the counts of each kind mean, in words. `None` if nothing is missing.
pub fn missed_words(counts: &BTreeMap<MissedKind, u64>) -> Option<String> {
    const WHY: &str = "because the recorder could not keep up";
    let (mut lost, mut joined, mut short) = (Vec::new(), None, None);
    for (&kind, &count) in counts.iter().filter(|(_, count)| **count > 0) {
        let counted = kind.counted(count);
        let were = if count == 1 { "was" } else { "were" };
        match kind {
            MissedKind::Activities => joined = Some(format!("{counted} {were} added up into later ones")),
            MissedKind::Processes => {
                short = Some(format!("{counted} came and went unobserved, and {were} counted in no figure"));
            }
            MissedKind::Snapshots
            | MissedKind::Surveys
            | MissedKind::Marks
            | MissedKind::Calls
            | MissedKind::Notices => lost.push(counted),
        }
    }
    let lost = match &lost[..] {
        [] => joined.map(|joined| format!("{joined}, {WHY}")),
        all => {
            let list = match all {
                [others @ .., last] if !others.is_empty() => format!("{} and {last}", others.join(", ")),
                all => all.concat(),
            };
            let joined = joined.map_or_else(String::new, |joined| format!("; {joined}"));
            Some(format!("missing from the recording: {list}, {WHY}{joined}"))
        }
    };
    let sentences: Vec<String> = lost.into_iter().chain(short).collect();
    Some(sentences.join("; ")).filter(|text| !text.is_empty())
}

/// Things of one kind that a receiver of a run could not take in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missed {
    /// When the last of them was, since the start of the run.
    pub time: Duration,
    /// What they are.
    pub kind: MissedKind,
    /// How many they are.
    pub count: u64,
}

impl Missed {
    pub(crate) fn to_column(self) -> columns::Missed {
        let Self { time, kind, count } = self;
        columns::Missed { time_ns: nanoseconds(time), kind: kind.name().into(), count }
    }
}

/// What is missing by these columns. `None` if it is of a kind that this version does not know.
pub(crate) fn read(found: &columns::Missed) -> Option<Missed> {
    let kind = MissedKind::ALL.into_iter().find(|kind| kind.name() == &*found.kind)?;
    Some(Missed { time: Duration::from_nanos(found.time_ns), kind, count: found.count })
}
