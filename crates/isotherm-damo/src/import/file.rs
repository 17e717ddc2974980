//! The layout of a file of damo: a list of records, each with the snapshots of one target.
//!
//! Fields that a recording cannot hold are skipped. Fields that older versions of damo do not write are optional.

use serde::Deserialize;

use super::allowance::{self, Weight};
use super::scalar::{Bytes, Count, Interval, Percent, Time};

/// Snapshots of one target. Several records may belong to the same target.
#[derive(Debug, Deserialize)]
#[serde(expecting = "a record of damo, with its target and snapshots")]
pub(super) struct Record {
    #[serde(default)]
    pub(super) kdamond_idx: Option<Count>,
    #[serde(default)]
    pub(super) context_idx: Option<Count>,
    #[serde(default)]
    pub(super) intervals: Option<Intervals>,
    #[serde(default)]
    pub(super) scheme_idx: Option<Count>,
    /// The target's index in its context. Old kernels write another number, which may be a pointer. None if the
    /// regions are those of all targets of the context.
    #[serde(default)]
    pub(super) target_id: Option<Bytes>,
    #[serde(deserialize_with = "allowance::list")]
    pub(super) snapshots: Vec<Snapshot>,
}

/// The intervals of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(expecting = "intervals of damo, with sample_us and aggr_us")]
pub(super) struct Intervals {
    pub(super) sample_us: Interval,
    pub(super) aggr_us: Interval,
    #[serde(default)]
    pub(super) ops_update_us: Option<Interval>,
    #[serde(default)]
    intervals_goal: Option<Goal>,
}

impl Intervals {
    /// Whether the kernel tunes the intervals during the run.
    pub(super) fn are_tuned(&self) -> bool {
        self.intervals_goal.and_then(|goal| goal.aggrs).is_some_and(|aggrs| aggrs.0 != 0)
    }
}

/// The goal that the kernel tunes the intervals to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(expecting = "a goal of intervals")]
struct Goal {
    /// The number of aggregations between two changes; 0 if the intervals are fixed.
    #[serde(default)]
    aggrs: Option<Count>,
}

/// One aggregation.
#[derive(Debug, Deserialize)]
#[serde(expecting = "a snapshot of damo, with its times and regions")]
pub(super) struct Snapshot {
    #[serde(default)]
    pub(super) start_time: Option<Time>,
    pub(super) end_time: Time,
    #[serde(deserialize_with = "allowance::list")]
    pub(super) regions: Vec<Region>,
    /// The sampling interval that the kernel has chosen.
    #[serde(default)]
    pub(super) sample_interval_us: Option<Interval>,
}

/// One region. A file has millions of them, so this type is small.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "RawRegion")]
pub(super) struct Region {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) accesses: Accesses,
    pub(super) age: Age,
}

// With the lists that hold them, which may be twice as long as they need to be, and what the import makes of them.

impl Weight for Record {
    const BYTES: u64 = 512;
}

impl Weight for Snapshot {
    const BYTES: u64 = 384;
}

impl Weight for Region {
    const BYTES: u64 = 96;
}

/// How often a region was found accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accesses {
    /// The number of samples.
    Samples(u32),
    /// The share of the samples, in thousandths of a per cent.
    Percent(u32),
}

/// For how long the access rate of a region has been the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Age {
    /// Old kernels do not report it.
    Unknown,
    Aggregations(u32),
    Nanoseconds(u64),
}

/// A region as damo writes it.
#[derive(Deserialize)]
#[serde(expecting = "a region of damo, with start, end and nr_accesses")]
struct RawRegion {
    start: Bytes,
    end: Bytes,
    nr_accesses: RawAccesses,
    #[serde(default)]
    age: Option<RawAge>,
}

#[derive(Default, Deserialize)]
#[serde(default, expecting = "nr_accesses of damo, with samples or percent")]
struct RawAccesses {
    samples: Option<Count>,
    percent: Option<Percent>,
}

#[derive(Default, Deserialize)]
#[serde(default, expecting = "an age of damo, with usec or aggr_intervals")]
struct RawAge {
    usec: Option<Interval>,
    aggr_intervals: Option<Count>,
}

impl TryFrom<RawRegion> for Region {
    type Error = String;

    fn try_from(raw: RawRegion) -> Result<Self, String> {
        let RawRegion { start: Bytes(start), end: Bytes(end), nr_accesses, age } = raw;
        let count = |value: i64, what| u32::try_from(value).map_err(|_| format!("{value} is out of range for {what}"));
        if start > end {
            return Err(format!("the region ends at {end:#x}, before its start at {start:#x}"));
        }
        if start == end {
            // damo marks the end of a period with such a region, whose counts are out of range.
            return Ok(Self { start, end, accesses: Accesses::Samples(0), age: Age::Unknown });
        }
        let accesses = match (nr_accesses.samples, nr_accesses.percent) {
            (Some(Count(samples)), _) => Accesses::Samples(count(samples, "a number of accesses")?),
            (None, Some(Percent(thousandths))) => Accesses::Percent(thousandths),
            (None, None) => return Err("nr_accesses has neither samples nor percent".into()),
        };
        let RawAge { usec, aggr_intervals } = age.unwrap_or_default();
        let age = match (aggr_intervals, usec) {
            (Some(Count(age)), _) => Age::Aggregations(count(age, "an age in aggregations")?),
            (None, Some(Interval(age))) => Age::Nanoseconds(age),
            (None, None) => Age::Unknown,
        };
        Ok(Self { start, end, accesses, age })
    }
}
