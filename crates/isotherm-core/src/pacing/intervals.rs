//! Sampling intervals that follow from what is observed.
//!
//! The rule is that of the monitoring intervals goal of DAMON (Linux 6.15, `Documentation/mm/damon/design.rst`,
//! "Monitoring Intervals Auto-tuning"): samples should observe a given share of all accesses that they could observe.
//! If they observe fewer, samples are taken over a longer interval, in which more memory is accessed. The aggregation
//! interval stays in proportion.
//!
//! Four things differ. First, the share is also computed for the memory that the last survey found in use, so that a
//! little hot memory next to much cold memory is not sampled more and more slowly. Second, the interval changes by the
//! square root of the ratio of the share to its goal, so that it approaches its value from one side and never swings
//! around it. Third, the budget raises the interval at once. Otherwise, since an aggregation has at least one round
//! with samples, rounds that the budget does not allow would be taken until the interval is long enough. Fourth, the
//! share follows from the [frequencies](Frequency) of regions where they are known, for accesses at random times.

use std::time::Duration;

use crate::{Attributes, Frequency, RegionSnapshot, Snapshot};

/// The goal of the observed accesses, and the bounds of the interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IntervalsGoal {
    /// The share of all accesses that could be observed, 0 to 1, that is to be observed.
    pub accesses: f64,
    /// The share of the accesses of memory in use that suffices, 0 to 1.
    pub accesses_in_use: f64,
    /// The number of aggregations over which the share is a mean.
    pub aggregations: u32,
    /// The shortest sampling interval.
    pub least: Duration,
    /// The longest sampling interval.
    pub most: Duration,
    /// The longest aggregation interval.
    pub most_aggregation: Duration,
}

impl Default for IntervalsGoal {
    /// 4 % over three aggregations, with sampling intervals from 5 ms to 10 s, as DAMON's documentation recommends, or
    /// a fifth of the accesses of memory in use.
    fn default() -> Self {
        Self {
            accesses: 0.04,
            accesses_in_use: 0.2,
            aggregations: 3,
            least: Duration::from_millis(5),
            most: Duration::from_secs(10),
            most_aggregation: Duration::MAX,
        }
    }
}

impl IntervalsGoal {
    /// The same for a monitor that [reads samples at several lengths](crate::Monitor::read_by_lengths): no interval is
    /// shorter than 40 ms, because shorter samples are a part of longer ones, and clearing is what costs.
    #[must_use]
    pub fn by_lengths(self) -> Self {
        let least = self.least.max(Duration::from_millis(40)).min(self.most);
        Self { least, ..self }
    }

    /// The default, with this share of all accesses, above 0 and at most 1. Five times as many of the accesses of
    /// memory in use suffice, as by default.
    pub fn of_share(share: f64) -> Self {
        let default = Self::default();
        let in_use = (share * default.accesses_in_use / default.accesses).min(1.0);
        Self { accesses: share, accesses_in_use: in_use, ..default }
    }
}

/// The shortest intervals that the budget allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Affordable {
    /// The sampling interval.
    pub sampling: Duration,
    /// The aggregation interval, if an aggregation has a single round with samples.
    pub aggregation: Duration,
}

/// The most by which an interval changes at a time.
const MOST_FACTOR: f64 = 2.0;

/// An interval stays as it is if it would change by less than this part of it.
const LEAST_CHANGE: f64 = 0.1;

/// Chooses the sampling interval. It takes in each snapshot.
#[derive(Clone, Debug)]
pub struct IntervalTuner {
    goal: IntervalsGoal,
    /// The number of aggregations that were taken in since the last change.
    aggregations: u32,
    accesses: Shares,
    in_use: Shares,
}

/// Accesses that were observed, and those that could have been.
#[derive(Clone, Copy, Debug, Default)]
struct Shares {
    observed: f64,
    possible: f64,
}

impl Shares {
    fn add(&mut self, observed: f64, possible: f64) {
        (self.observed, self.possible) = (self.observed + observed, self.possible + possible);
    }

    fn share(self) -> Option<f64> {
        (self.possible > 0.0).then(|| self.observed / self.possible)
    }
}

/// The share of samples over `sampling` that observe an access of the region: by its frequency, for accesses at random
/// times, or of those that were taken if it has none.
fn share_observed(region: &RegionSnapshot, samples: u32, sampling: Duration) -> f64 {
    let by_hz = |frequency: Frequency| 1.0 - (-frequency.hz() * sampling.as_secs_f64()).exp();
    region.frequency.map_or_else(|| region.access_rate(samples), by_hz)
}

impl IntervalTuner {
    /// A tuner that has seen nothing.
    pub fn new(goal: IntervalsGoal) -> Self {
        Self { goal, aggregations: 0, accesses: Shares::default(), in_use: Shares::default() }
    }

    /// Changes the longest aggregation interval.
    pub fn set_most_aggregation(&mut self, most: Duration) {
        self.goal.most_aggregation = most;
    }

    /// Takes in a snapshot that was made with `attributes`. Returns other attributes if the intervals are to change.
    pub fn aggregated(
        &mut self,
        snapshot: &Snapshot,
        attributes: Attributes,
        affordable: Affordable,
    ) -> Option<Attributes> {
        for region in snapshot.targets.iter().flat_map(|target| &target.regions) {
            if region.nr_samples == 0 || region.nr_unobservable >= snapshot.samples {
                continue;
            }
            let bytes = region.size() as f64;
            let rate = share_observed(region, snapshot.samples, attributes.sampling());
            self.accesses.add(rate * bytes, bytes);
            if region.pages.is_none_or(|pages| pages.touched > 0) {
                let in_use = region.pages.map_or(bytes, |pages| pages.touched as f64);
                self.in_use.add((rate * bytes).min(in_use), in_use);
            }
        }
        self.aggregations += 1;
        if self.aggregations < self.goal.aggregations {
            return None;
        }
        let factor = self.factor();
        *self = Self::new(self.goal);
        let sampling = attributes.sampling().mul_f64(factor);
        let ratio = attributes.samples();
        let most = self.goal.most.min(self.goal.most_aggregation.max(affordable.aggregation) / ratio);
        // Aggregations that must be short have samples that are shorter than would be best.
        let least = self.goal.least.min(most.max(IntervalsGoal::default().least));
        let sampling = sampling.max(affordable.sampling).min(most).max(least);
        let change = sampling.as_secs_f64() / attributes.sampling().as_secs_f64() - 1.0;
        if change.abs() < LEAST_CHANGE {
            return None;
        }
        attributes.with_intervals(sampling, sampling * ratio).ok()
    }

    /// By what the interval is to be multiplied.
    fn factor(&self) -> f64 {
        let short = |shares: Shares, goal: f64| shares.share().map(|share| goal / share.max(1e-6));
        let of_all = short(self.accesses, self.goal.accesses);
        let of_use = short(self.in_use, self.goal.accesses_in_use);
        // Either goal suffices.
        let short = [of_all, of_use].into_iter().flatten().reduce(f64::min).unwrap_or(1.0);
        short.sqrt().clamp(1.0 / MOST_FACTOR, MOST_FACTOR)
    }
}
