//! Monitoring attributes: three intervals and two bounds on the number of regions.

use std::time::Duration;

use thiserror::Error;

use crate::units;

/// How a monitor samples, aggregates and updates. Every value of this type is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    sampling: Duration,
    aggregation: Duration,
    update: Duration,
    min_regions: usize,
    max_regions: usize,
}

/// The shortest sampling interval, 100 µs: about what one round takes.
///
/// By the clock, a round of the probe `bpf` on 1 GiB reads its pages in 10 to 25 µs, looks up the next pages in 6
/// to 13, asks what they are part of in 9 to 20, and clears each accessed page in 4 to 12; a wake-up takes 11 to 70
/// µs of CPU time (`bench/README.md`). A shorter interval would be over before its round, so that every round began
/// late and the monitor took a whole CPU. DAMON itself has no such bound.
pub const MIN_SAMPLING: Duration = Duration::from_micros(100);

/// Why attributes are invalid.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum AttributesError {
    /// An interval is zero.
    #[error("the {0} interval is zero; give a time such as 5ms")]
    ZeroInterval(&'static str),
    /// The sampling interval is below [`MIN_SAMPLING`].
    #[error(
        "the sampling interval ({}) is shorter than {}, which one round of sampling takes; lengthen it",
        units::duration(*.0),
        units::duration(MIN_SAMPLING)
    )]
    SamplingTooShort(Duration),
    /// An aggregation interval would have less than one sample.
    #[error(
        "the sampling interval ({}) is longer than the aggregation interval ({}); \
         shorten the first or lengthen the second",
        units::duration(*sampling),
        units::duration(*aggregation)
    )]
    SamplingOverAggregation {
        /// The sampling interval that was asked for.
        sampling: Duration,
        /// The aggregation interval that was asked for.
        aggregation: Duration,
    },
    /// An interval has more samples than fit into a count of 32 bits.
    #[error("more than 2^32 sampling intervals in an {0} interval; lengthen the sampling interval")]
    TooManySamples(&'static str),
    /// There are fewer regions than areas: a process has three areas, and each needs a region.
    #[error("a minimum of {0} regions is too few; a process has three areas, so give at least 3")]
    TooFewRegions(usize),
    /// The minimum is larger than the maximum.
    #[error("the minimum of {min} regions is over the maximum of {max}; exchange them")]
    MinOverMax {
        /// The minimum that was asked for.
        min: usize,
        /// The maximum that was asked for.
        max: usize,
    },
}

impl Default for Attributes {
    /// The defaults of DAMON: sampling 5 ms, aggregation 100 ms, update 1 s, 10 to 1,000 regions.
    fn default() -> Self {
        Self {
            sampling: Duration::from_millis(5),
            aggregation: Duration::from_millis(100),
            update: Duration::from_secs(1),
            min_regions: 10,
            max_regions: 1000,
        }
    }
}

impl Attributes {
    /// Checks attributes and makes them.
    ///
    /// # Errors
    /// If an interval is zero, the sampling interval is under [`MIN_SAMPLING`] or over the aggregation interval,
    /// the minimum number of regions is under 3 or over the maximum, or an interval is more than 2³² sampling
    /// intervals long.
    pub fn new(
        sampling: Duration,
        aggregation: Duration,
        update: Duration,
        min_regions: usize,
        max_regions: usize,
    ) -> Result<Self, AttributesError> {
        let intervals = [(sampling, "sampling"), (aggregation, "aggregation"), (update, "update")];
        if let Some((_, name)) = intervals.iter().find(|(interval, _)| interval.is_zero()) {
            return Err(AttributesError::ZeroInterval(name));
        }
        if sampling < MIN_SAMPLING {
            return Err(AttributesError::SamplingTooShort(sampling));
        }
        for (interval, name) in intervals {
            if interval.as_nanos() / sampling.as_nanos() > u128::from(u32::MAX) {
                return Err(AttributesError::TooManySamples(name));
            }
        }
        if sampling > aggregation {
            return Err(AttributesError::SamplingOverAggregation { sampling, aggregation });
        }
        if min_regions < 3 {
            return Err(AttributesError::TooFewRegions(min_regions));
        }
        if min_regions > max_regions {
            return Err(AttributesError::MinOverMax { min: min_regions, max: max_regions });
        }
        Ok(Self { sampling, aggregation, update, min_regions, max_regions })
    }

    /// The same attributes with another sampling and aggregation interval.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn with_intervals(self, sampling: Duration, aggregation: Duration) -> Result<Self, AttributesError> {
        Self::new(sampling, aggregation, self.update, self.min_regions, self.max_regions)
    }

    /// The same attributes with other bounds of the number of regions.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn with_regions(self, min_regions: usize, max_regions: usize) -> Result<Self, AttributesError> {
        Self::new(self.sampling, self.aggregation, self.update, min_regions, max_regions)
    }

    /// The sampling interval: the time from clearing a page to reading it.
    pub const fn sampling(&self) -> Duration {
        self.sampling
    }

    /// The aggregation interval: the time over which accesses are counted.
    pub const fn aggregation(&self) -> Duration {
        self.aggregation
    }

    /// The update interval: the time from one reading of the mappings to the next.
    pub const fn update(&self) -> Duration {
        self.update
    }

    /// The minimum number of regions. Merging makes no region larger than the total size divided by this number.
    pub const fn min_regions(&self) -> usize {
        self.min_regions
    }

    /// The maximum number of regions, and so of pages read in a round. It is never exceeded.
    pub const fn max_regions(&self) -> usize {
        self.max_regions
    }

    /// The number of sampling rounds in an aggregation, at least one: the highest possible `nr_accesses`.
    pub fn samples(&self) -> u32 {
        rounds(self.aggregation, self.sampling)
    }

    /// The number of sampling rounds from one update to the next, at least one.
    pub fn rounds_per_update(&self) -> u32 {
        rounds(self.update, self.sampling)
    }

    /// The merge threshold: two counts that differ by no more are the same frequency. It is a tenth of the highest
    /// possible count, as in DAMON, and at least 1.
    pub fn merge_threshold(&self) -> u32 {
        (self.samples() / 10).max(1)
    }
}

fn rounds(interval: Duration, sampling: Duration) -> u32 {
    let rounds = interval.as_nanos() / sampling.as_nanos();
    u32::try_from(rounds).unwrap_or(u32::MAX).max(1)
}
