//! The monitoring attributes: three intervals and two bounds on the number of regions.

use std::time::Duration;

use thiserror::Error;

/// How a monitor watches. Valid by construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    sampling: Duration,
    aggregation: Duration,
    update: Duration,
    min_regions: usize,
    max_regions: usize,
}

/// Why a set of attributes is none.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum AttributesError {
    /// One of the intervals is zero.
    #[error("the {0} interval is zero; give a time such as 5ms")]
    ZeroInterval(&'static str),
    /// There would be less than one sample an aggregation.
    #[error(
        "the sampling interval ({sampling:?}) is longer than the aggregation interval ({aggregation:?}); \
         shorten the first or lengthen the second"
    )]
    SamplingOverAggregation {
        /// The sampling interval asked for.
        sampling: Duration,
        /// The aggregation interval asked for.
        aggregation: Duration,
    },
    /// Counts of samples are 32 bits wide.
    #[error("more than 2^32 sampling intervals in an {0} interval; lengthen the sampling interval")]
    TooManySamples(&'static str),
    /// A process has three areas, and each needs a region.
    #[error("a minimum of {0} regions is too few; a process has three areas, so give at least 3")]
    TooFewRegions(usize),
    /// The bounds are reversed.
    #[error("the minimum of {min} regions is over the maximum of {max}; exchange them")]
    MinOverMax {
        /// The minimum asked for.
        min: usize,
        /// The maximum asked for.
        max: usize,
    },
}

impl Default for Attributes {
    /// DAMON's: sampling 5 ms, aggregation 100 ms, update 1 s, 10 to 1,000 regions.
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
    /// Checks and makes a set of attributes.
    ///
    /// # Errors
    /// If an interval is zero, the sampling interval over the aggregation interval, the minimum number of
    /// regions under 3 or over the maximum, or an interval more than 2³² sampling intervals long.
    pub fn new(
        sampling: Duration,
        aggregation: Duration,
        update: Duration,
        min_regions: usize,
        max_regions: usize,
    ) -> Result<Self, AttributesError> {
        for (interval, name) in [(sampling, "sampling"), (aggregation, "aggregation"), (update, "update")] {
            if interval.is_zero() {
                return Err(AttributesError::ZeroInterval(name));
            }
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

    /// The time between clearing a page and reading it.
    pub const fn sampling(&self) -> Duration {
        self.sampling
    }

    /// The time over which accesses are counted.
    pub const fn aggregation(&self) -> Duration {
        self.aggregation
    }

    /// The time between two readings of the mappings.
    pub const fn update(&self) -> Duration {
        self.update
    }

    /// The number of regions that adjustment aims to keep at least: no region grows past its share.
    pub const fn min_regions(&self) -> usize {
        self.min_regions
    }

    /// The number of regions, and so of reads a round, that is never exceeded.
    pub const fn max_regions(&self) -> usize {
        self.max_regions
    }

    /// Sampling rounds an aggregation, at least one: the highest possible `nr_accesses`.
    pub fn samples(&self) -> u32 {
        rounds(self.aggregation, self.sampling)
    }

    /// Sampling rounds between two updates, at least one.
    pub fn rounds_per_update(&self) -> u32 {
        rounds(self.update, self.sampling)
    }

    /// By how much the counts of two neighbours may differ and still be of the same temperature: a tenth of
    /// the highest possible count, at least one.
    pub fn merge_threshold(&self) -> u32 {
        (self.samples() / 10).max(1)
    }
}

fn rounds(interval: Duration, sampling: Duration) -> u32 {
    let rounds = interval.as_nanos() / sampling.as_nanos();
    u32::try_from(rounds).unwrap_or(u32::MAX).max(1)
}
