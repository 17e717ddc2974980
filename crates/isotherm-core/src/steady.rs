//! Adaptive sampling: a region whose access frequency stays the same is sampled in fewer rounds.
//!
//! A region is *steady* for `n` aggregations if in each of them its frequency moved by no more than the merge
//! threshold, or by no more than chance explains. The number of rounds from one sample of a region to the next, its
//! *stride*, grows with `n`. The samples that are not taken of a steady region count as in the aggregation before. When
//! the samples that are still taken show a change, the region is sampled in every round again. So a change is not
//! missed, but it is detected with fewer samples.
//!
//! The method is isotherm's own; DAMON samples each region in every round. The constants were chosen by
//! measurement: of the values tried, they save most CPU time among those that keep the precision and the recall of
//! `bench/accuracy`. The figures below are from November 2026.

use std::time::Duration;

use crate::Attributes;

/// From this many aggregations on, a region is steady. With 5, the borders of a small hot part were not found in
/// time: recall of the pattern hot-small-in-huge fell below 0.95 in 6 of 12 runs, with 10 in 1 of 16.
const STEADY: u32 = 10;

/// From this many aggregations on, a region is very steady.
const VERY_STEADY: u32 = 20;

/// The stride of a steady region, if that leaves [`MIN_SAMPLES`] in an aggregation. Together with
/// [`VERY_STEADY_FACTOR`], and with sleeping through rounds without samples, it lowered the CPU time of the monitor
/// from 1.25 to 0.63 % of a processor on 1 GiB of cold memory.
const STRIDE: u32 = 4;

/// A steady region is sampled at least this often in an aggregation, if the aggregation has as many rounds. A very
/// steady region is sampled [`VERY_STEADY_FACTOR`] times less often.
const MIN_SAMPLES: u32 = 5;

/// A very steady region has this many times the stride of a steady one.
const VERY_STEADY_FACTOR: u32 = 3;

/// A region with mixed samples, some accessed and some not, has the stride of a steady region divided by this number,
/// since its rate needs more samples. With 1, the precision of the pattern zipfian fell from 0.82 to 0.75.
const MIXED_DIVISOR: u32 = 2;

/// Two counts differ by chance if they differ by no more than this many standard deviations. If the frequency is
/// the same, 95 % of all differences are smaller (normal approximation of the binomial distribution).
const DEVIATIONS: f64 = 2.0;

/// For how long a region has been steady.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Steadiness {
    aggregations: u32,
}

/// The stride of a steady region, and of one that the last survey found idle: samples are spent where memory is in use.
pub(crate) fn idle_stride(attributes: &Attributes) -> u32 {
    (attributes.samples() / MIN_SAMPLES).clamp(1, STRIDE)
}

impl Steadiness {
    /// The steadiness of a region without samples.
    pub(crate) const NEW: Self = Self { aggregations: 0 };

    /// The stride of a region: how many rounds there are from one sample to the next, at least 1. `last` is its
    /// `nr_accesses` in the last aggregation. Strides are multiples of each other, so that the regions of a larger
    /// stride need no rounds of their own.
    pub(crate) fn stride(self, last: u32, attributes: &Attributes) -> u32 {
        let steady = idle_stride(attributes);
        let threshold = attributes.merge_threshold();
        let mixed = last > threshold && last.saturating_add(threshold) < attributes.samples();
        match self.aggregations {
            0..STEADY => 1,
            STEADY.. if mixed => (steady / MIXED_DIVISOR).max(1),
            STEADY..VERY_STEADY => steady,
            VERY_STEADY.. => steady * VERY_STEADY_FACTOR,
        }
    }

    /// Ends an aggregation. `moved` says whether the frequency moved by more than the merge threshold and than
    /// chance explains.
    pub(crate) fn aggregated(&mut self, moved: bool) {
        self.aggregations = if moved { 0 } else { self.aggregations.saturating_add(1) };
    }

    /// The steadiness of two regions that are merged. `mean` gives the mean of two numbers, weighted by the sizes
    /// of the regions.
    pub(crate) fn merged(self, other: Self, mean: impl Fn(u32, u32) -> u32) -> Self {
        Self { aggregations: mean(self.aggregations, other.aggregations) }
    }

    /// The same time in aggregations of another interval; `factor` is the old interval divided by the new one.
    pub(crate) fn rescaled(self, factor: f64) -> Self {
        // A cast from f64 saturates.
        Self { aggregations: (f64::from(self.aggregations) * factor) as u32 }
    }
}

/// The mean of two counts of a whole aggregation: `last`, that of the aggregations before, and `seen`, that of this
/// one. Each comes with the number of samples that it rests on, which is its weight.
///
/// The mean is rounded towards `seen`, so that it reaches `seen` after some aggregations. It is `seen` if there are no
/// samples.
pub(crate) fn blend((last, before): (u32, u32), (seen, taken): (u32, u32)) -> u32 {
    let [last, before, seen, taken] = [last, before, seen, taken].map(u64::from);
    let (sum, samples) = (last * before + seen * taken, before + taken);
    // A mean of two counts of 32 bits has 32 bits.
    match samples {
        0 => seen as u32,
        _ if seen > last => sum.div_ceil(samples) as u32,
        _ => (sum / samples) as u32,
    }
}

/// Whether chance alone explains a count of `seen` after a count of `last`, both of `samples`. Each comes with the
/// number of samples that it rests on. If the pages are accessed as often as before, both are binomial counts of the
/// same rate, and their difference has the variance `p (1 - p) samples² (1 / taken + 1 / before)`, with `p` the mean of
/// both rates.
///
/// A region with at most `threshold` accesses before is idle. Chance never finds an idle page accessed, so that
/// every access of such a region counts as a change.
pub(crate) fn by_chance((last, before): (u32, u32), (seen, taken): (u32, u32), samples: u32, threshold: u32) -> bool {
    let moved = f64::from(seen.abs_diff(last));
    let samples = f64::from(samples);
    let rate = (f64::from(seen) + f64::from(last)) / (2.0 * samples);
    let per_sample = [before, taken].map(|count| 1.0 / f64::from(count.max(1)));
    let variance = rate * (1.0 - rate) * samples * samples * (per_sample[0] + per_sample[1]);
    last > threshold && moved <= DEVIATIONS * variance.sqrt()
}

/// Whether the frequency has turned into another one: whether `seen` accesses in `taken` samples, or even fewer or more
/// of them, are so unlikely with the frequency of before that the samples of before say nothing any more. Those found
/// `last` accesses, as a count of a whole aggregation of `samples`, and were `before` in number.
///
/// The frequency of before is taken by Laplace's rule of succession, which allows for their small number: samples that
/// found no access do not say that there are none.
pub(crate) fn has_turned((last, before): (u32, u32), (seen, taken): (u32, u32), samples: u32) -> bool {
    if !(LEAST_TAKEN..=MOST_TAKEN).contains(&taken) {
        return false;
    }
    let before = f64::from(before);
    let share = (f64::from(last) / f64::from(samples.max(1)) * before + 1.0) / (before + 2.0);
    let (share, count) = match f64::from(seen) > share * f64::from(taken) {
        true => (share, seen),
        false => (1.0 - share, taken - seen),
    };
    // The chance of at least `count` of `taken`, term by term from the last.
    let mut term = share.powi(taken as i32);
    let mut chance = term;
    for nth in (count..taken).rev() {
        term *= f64::from(nth + 1) / f64::from(taken - nth) * (1.0 - share) / share;
        chance += term;
    }
    chance < UNLIKELY
}

/// The last samples of a region that have all found an access, or all none, also those of earlier aggregations. If few
/// samples are taken in an aggregation, only those of several together show that the frequency has turned into another
/// one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    /// Whether they have found an access.
    accessed: bool,
    /// Their number.
    pub(crate) taken: u32,
    /// The count of a whole aggregation before them, and the number of samples that it rests on.
    last: u32,
    pub(crate) before: u32,
    /// The time from the end of the aggregation in which it began.
    pub(crate) time: Duration,
}

impl Run {
    /// No samples.
    pub(crate) const NONE: Self = Self { accessed: false, taken: 0, last: 0, before: 0, time: Duration::ZERO };

    /// Takes in another sample. `before` is the count of the aggregations before, and the number of its samples.
    /// Returns whether a run begins with it.
    pub(crate) const fn add(&mut self, accessed: bool, (last, before): (u32, u32)) -> bool {
        let goes_on = self.taken > 0 && self.accessed == accessed;
        if goes_on {
            self.taken = self.taken.saturating_add(1);
        } else {
            *self = Self { accessed, taken: 1, last, before, time: Duration::ZERO };
        }
        !goes_on
    }

    /// The count of a whole aggregation of `samples`, by the run.
    pub(crate) const fn count(self, samples: u32) -> u32 {
        if self.accessed { samples } else { 0 }
    }

    /// The run after an aggregation of this length.
    #[must_use]
    pub(crate) fn aged(self, aggregation: Duration) -> Self {
        if self.taken == 0 { Self::NONE } else { Self { time: self.time.saturating_add(aggregation), ..self } }
    }

    /// The run with another sampling interval: `count` converts a count of a whole aggregation, and of the samples only
    /// this part says something.
    #[must_use]
    pub(crate) fn rescaled(self, count: impl Fn(u32) -> u32, part: f64) -> Self {
        let samples = |of: u32| (f64::from(of) * part).round() as u32;
        Self { last: count(self.last), taken: samples(self.taken), before: samples(self.before), ..self }
    }

    /// Whether the frequency has turned into another one since the run began: the count of before is not the same
    /// within `threshold`, and does not explain the run. `samples` is the number of samples of a whole aggregation.
    pub(crate) fn has_turned(self, samples: u32, threshold: u32) -> bool {
        let is_other = self.last.abs_diff(self.count(samples)) > threshold;
        is_other && has_turned((self.last, self.before), (self.count(self.taken), self.taken), samples)
    }
}

/// Samples with a lower probability than this count as a change.
const UNLIKELY: f64 = 0.001;

/// With fewer samples than this, nothing is clear: a page that is used all the time is missed while its user is not
/// running. With more, the samples of before weigh little.
const LEAST_TAKEN: u32 = 3;
const MOST_TAKEN: u32 = 64;

/// The shares that chance lets a count of `count` of `samples` come from, by Wilson's interval (E. B. Wilson, 1927). A
/// count of none or of all is what memory has that is idle or in use all the time, and has no chance.
pub(crate) fn likely_shares(count: u32, samples: u32) -> (f64, f64) {
    let n = f64::from(samples.max(1));
    let share = f64::from(count) / n;
    if count == 0 || count >= samples {
        return (share, share);
    }
    let square = DEVIATIONS * DEVIATIONS / n;
    let centre = (share + square / 2.0) / (1.0 + square);
    let half = (square * (share * (1.0 - share) + square / 4.0)).sqrt() / (1.0 + square);
    (centre - half, centre + half)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A region that has been steady for this many aggregations.
    fn steady(aggregations: u32) -> Steadiness {
        Steadiness { aggregations }
    }

    #[test]
    fn chance_explains_a_count_by_a_range_of_shares_that_narrows_with_more_samples() {
        assert_eq!((likely_shares(0, 20), likely_shares(20, 20)), ((0.0, 0.0), (1.0, 1.0)));
        for (count, samples, least, most) in [(1, 20, 0.009, 0.241), (10, 20, 0.296, 0.704), (50, 100, 0.402, 0.598)] {
            let (low, high) = likely_shares(count, samples);
            assert!((low - least).abs() < 1e-3 && (high - most).abs() < 1e-3, "{low} to {high}");
        }
    }

    #[test]
    fn the_stride_grows_after_ten_and_after_twenty_aggregations() {
        let attributes = Attributes::default();
        let strides = [0, 9, 10, 19, 20, u32::MAX].map(|n| steady(n).stride(0, &attributes));
        assert_eq!(strides, [1, 1, 4, 4, 12, 12]);
    }

    #[test]
    fn a_region_with_mixed_samples_has_a_stride_of_two() {
        let attributes = Attributes::default();
        let strides = [0, 2, 3, 10, 17, 18, 20].map(|last| steady(20).stride(last, &attributes));
        assert_eq!(strides, [12, 12, 2, 2, 2, 12, 12]);
    }

    #[test]
    fn a_short_aggregation_keeps_its_samples() {
        let ms = Duration::from_millis;
        let attributes = Attributes::new(ms(5), ms(25), ms(1000), 10, 100).unwrap();
        assert_eq!(steady(15).stride(0, &attributes), 1);
        assert_eq!(steady(25).stride(0, &attributes), 3);
    }

    #[test]
    fn an_access_of_idle_memory_is_never_chance() {
        assert!(!by_chance((0, 20), (1, 20), 20, 2));
        assert!(by_chance((10, 20), (14, 20), 20, 2));
        assert!(!by_chance((10, 20), (20, 20), 20, 2));
        assert!(by_chance((10, 2), (20, 20), 20, 2), "two samples said a half");
    }

    #[test]
    fn a_frequency_has_turned_if_chance_explains_it_in_less_than_one_of_a_thousand_cases() {
        // After 17 idle samples: a chance of 1 in 19 for each access.
        let idle = (0, 17);
        assert!(has_turned(idle, (3, 3), 20) && !has_turned(idle, (2, 3), 20) && has_turned(idle, (4, 8), 20));
        assert!(has_turned((20, 17), (0, 3), 20) && !has_turned((20, 17), (2, 3), 20));
        assert!(!has_turned((10, 17), (0, 3), 20) && !has_turned((10, 17), (3, 3), 20));
        assert!(has_turned((10, 17), (0, 10), 20) && has_turned((10, 17), (10, 10), 20));
        // Few samples on either side say little.
        assert!(!has_turned(idle, (2, 2), 20) && !has_turned((0, 1), (3, 3), 20) && !has_turned((0, 0), (5, 5), 20));
        assert!(!has_turned(idle, (0, 0), 20) && !has_turned((20, 17), (0, 1000), 2000));
    }

    #[test]
    fn a_blended_count_reaches_what_is_seen() {
        let mut count = 20;
        for _ in 0..20 {
            count = blend((count, 18), (0, 2));
        }
        assert_eq!(count, 0);
    }
}
