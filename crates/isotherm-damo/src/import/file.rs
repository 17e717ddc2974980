//! What stands in a file of damo's: a list of records, each of one target, each with its snapshots.
//!
//! Only what a recording can hold is read; all else is passed over. What older versions of damo do not write may be missing.

use serde::Deserialize;

use super::scalar::{Bytes, Count, Interval, Percent, Time};

/// All snapshots of one target, or a part of them.
#[derive(Debug, Deserialize)]
#[serde(expecting = "a record of damo's, with its target and snapshots")]
pub(super) struct Record {
    #[serde(default)]
    pub(super) kdamond_idx: Option<Count>,
    #[serde(default)]
    pub(super) context_idx: Option<Count>,
    #[serde(default)]
    pub(super) intervals: Option<Intervals>,
    #[serde(default)]
    pub(super) scheme_idx: Option<Count>,
    /// The target's index in its context; of old kernels whatever they called it, up to a pointer. None if the regions are
    /// those of all targets of the context.
    #[serde(default)]
    pub(super) target_id: Option<Bytes>,
    pub(super) snapshots: Vec<Snapshot>,
}

/// The intervals in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(expecting = "intervals of damo's, with sample_us and aggr_us")]
pub(super) struct Intervals {
    pub(super) sample_us: Interval,
    pub(super) aggr_us: Interval,
    #[serde(default)]
    pub(super) ops_update_us: Option<Interval>,
    #[serde(default)]
    pub(super) intervals_goal: Option<Goal>,
}

impl Intervals {
    /// Whether the kernel changes them as it goes.
    pub(super) fn are_tuned(&self) -> bool {
        self.intervals_goal.and_then(|goal| goal.aggrs).is_some_and(|aggrs| aggrs.0 != 0)
    }
}

/// What the kernel tunes the intervals to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(expecting = "a goal of intervals")]
pub(super) struct Goal {
    /// Over how many aggregations; 0 if the intervals stay as they are.
    #[serde(default)]
    aggrs: Option<Count>,
}

/// One aggregation.
#[derive(Debug, Deserialize)]
#[serde(expecting = "a snapshot of damo's, with its times and regions")]
pub(super) struct Snapshot {
    #[serde(default)]
    pub(super) start_time: Option<Time>,
    pub(super) end_time: Time,
    pub(super) regions: Vec<Region>,
    /// The sampling interval that the kernel had tuned to.
    #[serde(default)]
    pub(super) sample_interval_us: Option<Interval>,
}

/// One region; there are many of them, so each takes little.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "WholeRegion")]
pub(super) struct Region {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) accesses: Accesses,
    pub(super) age: Age,
}

/// How often a region was found accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accesses {
    /// In so many samples.
    Samples(u32),
    /// In so many thousandths of a per cent of the samples.
    Percent(u32),
}

/// For how long a region has been as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Age {
    /// Old kernels do not tell.
    Unknown,
    Aggregations(u32),
    Nanoseconds(u64),
}

#[derive(Deserialize)]
#[serde(expecting = "a region of damo's, with start, end and nr_accesses")]
struct WholeRegion {
    start: Bytes,
    end: Bytes,
    nr_accesses: WholeAccesses,
    #[serde(default)]
    age: Option<WholeAge>,
}

#[derive(Default, Deserialize)]
#[serde(default, expecting = "nr_accesses of damo's, with samples or percent")]
struct WholeAccesses {
    samples: Option<Count>,
    percent: Option<Percent>,
}

#[derive(Default, Deserialize)]
#[serde(default, expecting = "an age of damo's, with usec or aggr_intervals")]
struct WholeAge {
    usec: Option<Interval>,
    aggr_intervals: Option<Count>,
}

impl TryFrom<WholeRegion> for Region {
    type Error = String;

    fn try_from(whole: WholeRegion) -> Result<Self, String> {
        let WholeRegion { start: Bytes(start), end: Bytes(end), nr_accesses, age } = whole;
        let count = |value: i64, what| u32::try_from(value).map_err(|_| format!("{value} {what} are impossible"));
        if start > end {
            return Err(format!("a region ends at {end:#x}, before its start at {start:#x}"));
        }
        if start == end {
            // damo's mark for the end of a time; it has impossible counts.
            return Ok(Self { start, end, accesses: Accesses::Samples(0), age: Age::Unknown });
        }
        let accesses = match (nr_accesses.samples, nr_accesses.percent) {
            (Some(Count(samples)), _) => Accesses::Samples(count(samples, "accesses")?),
            (None, Some(Percent(thousandths))) => Accesses::Percent(thousandths),
            (None, None) => return Err("nr_accesses has neither samples nor percent".into()),
        };
        let WholeAge { usec, aggr_intervals } = age.unwrap_or_default();
        let age = match (aggr_intervals, usec) {
            (Some(Count(age)), _) => Age::Aggregations(count(age, "aggregations of age")?),
            (None, Some(Interval(age))) => Age::Nanoseconds(age),
            (None, None) => Age::Unknown,
        };
        Ok(Self { start, end, accesses, age })
    }
}
