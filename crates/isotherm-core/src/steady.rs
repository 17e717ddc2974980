//! Adaptive sampling: a region whose access frequency stays the same is sampled in fewer rounds.
//!
//! A region is *steady* for `n` aggregations if in each of them its frequency moved by no more than the merge threshold, or by
//! no more than chance explains. The number of rounds from one sample of a region to the next, its *stride*, grows with `n`.
//! The samples that a steady region is spared count as the samples of the aggregation before. As soon as the samples that are
//! still taken show a change, the region is sampled in every round again: a change is not missed, only seen by fewer samples.
//!
//! The method and its constants are isotherm's own. The constants are those of several tried that lowered the CPU time most and
//! left the accuracy as it was in every pattern of `bench/accuracy` (see `bench/README.md`).

use crate::Attributes;

/// From this many aggregations on a region is steady. Until then the borders of what is hot are found: five aggregations did
/// not suffice for a small hot part in large cold memory.
const STEADY: u32 = 10;

/// From this many aggregations on a region is very steady.
const VERY_STEADY: u32 = 20;

/// The stride of a steady region, where an aggregation has rounds enough for [`MIN_SAMPLES`] at this stride.
const STRIDE: u32 = 4;

/// A steady region is sampled at least this often in an aggregation, if the aggregation has as many rounds.
const MIN_SAMPLES: u32 = 5;

/// A very steady region has this many times the stride of a steady one.
const VERY_STEADY_FACTOR: u32 = 3;

/// A region of which some samples say accessed and some do not has the stride of a steady region divided by this. Fewer samples
/// of it tell less.
const MIXED_DIVISOR: u32 = 2;

/// Two counts differ by chance if they differ by no more than this many standard deviations. With independent samples, 95 % of
/// all differences are smaller.
const DEVIATIONS: f64 = 2.0;

/// For how long a region has been steady.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Steadiness {
    aggregations: u32,
}

impl Steadiness {
    /// Of a region that was not seen yet.
    pub(crate) const NEW: Self = Self { aggregations: 0 };

    /// How many rounds there are from one sample of a region to the next, at least 1, if `last` of the samples of the last
    /// aggregation found it accessed. The strides of all regions divide each other, so that regions share rounds.
    pub(crate) fn stride(self, last: u32, attributes: &Attributes) -> u32 {
        let steady = (attributes.samples() / MIN_SAMPLES).clamp(1, STRIDE);
        let threshold = attributes.merge_threshold();
        let mixed = last > threshold && last.saturating_add(threshold) < attributes.samples();
        match self.aggregations {
            0..STEADY => 1,
            STEADY.. if mixed => (steady / MIXED_DIVISOR).max(1),
            STEADY..VERY_STEADY => steady,
            VERY_STEADY.. => steady * VERY_STEADY_FACTOR,
        }
    }

    /// Takes in whether the frequency moved in the last aggregation by more than chance and the merge threshold explain.
    pub(crate) fn aggregated(&mut self, moved: bool) {
        self.aggregations = if moved { 0 } else { self.aggregations.saturating_add(1) };
    }

    /// The steadiness of two regions that become one: `mean` weights two numbers by the sizes of the regions.
    pub(crate) fn merged(self, other: Self, mean: impl Fn(u32, u32) -> u32) -> Self {
        Self { aggregations: mean(self.aggregations, other.aggregations) }
    }

    /// The same time in aggregations of another length: `factor` is the old length divided by the new one.
    pub(crate) fn rescaled(self, factor: f64) -> Self {
        // A cast from f64 saturates.
        Self { aggregations: (f64::from(self.aggregations) * factor) as u32 }
    }
}

/// The count of a whole aggregation for a region that was sampled `taken` times of `samples`: `seen`, scaled to `samples`, weighs
/// as much as the samples that were taken, and `last`, the count of the aggregation before, as much as those that were spared.
///
/// The mean is rounded towards `seen`, so that it reaches `seen` after some aggregations.
pub(crate) fn blend(last: u32, seen: u32, taken: u32, samples: u32) -> u32 {
    let (last, seen, taken, samples) = (u64::from(last), u64::from(seen), u64::from(taken), u64::from(samples));
    let sum = last * samples.saturating_sub(taken) + seen * taken.min(samples);
    // A mean of two counts of 32 bits has 32 bits.
    (if seen > last { sum.div_ceil(samples) } else { sum / samples }) as u32
}

/// Whether chance alone explains that `seen` accesses (scaled to `samples` from `taken` samples) follow `last` accesses of
/// `samples`. If the pages are accessed as often as before, both are binomial counts, and their difference has the variance
/// `p (1 - p) (samples² / taken + samples)`, with `p` the mean of both rates.
///
/// A region with at most `threshold` accesses is idle, and no chance finds an idle page accessed: there the first access counts as
/// a change.
pub(crate) fn by_chance(seen: u32, taken: u32, last: u32, samples: u32, threshold: u32) -> bool {
    let moved = f64::from(seen.abs_diff(last));
    let samples = f64::from(samples);
    let rate = (f64::from(seen) + f64::from(last)) / (2.0 * samples);
    let variance = rate * (1.0 - rate) * (samples * samples / f64::from(taken.max(1)) + samples);
    last > threshold && moved <= DEVIATIONS * variance.sqrt()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Steady for this many aggregations.
    fn steady(aggregations: u32) -> Steadiness {
        Steadiness { aggregations }
    }

    #[test]
    fn the_stride_grows_in_two_steps() {
        let attributes = Attributes::default();
        let strides = [0, 9, 10, 19, 20, u32::MAX].map(|n| steady(n).stride(0, &attributes));
        assert_eq!(strides, [1, 1, 4, 4, 12, 12]);
    }

    #[test]
    fn a_region_of_mixed_answers_keeps_half_of_its_samples() {
        let attributes = Attributes::default();
        let strides = [0, 2, 3, 10, 17, 18, 20].map(|last| steady(20).stride(last, &attributes));
        assert_eq!(strides, [12, 12, 2, 2, 2, 12, 12]);
    }

    #[test]
    fn an_aggregation_of_few_rounds_is_sampled_in_full() {
        let ms = Duration::from_millis;
        let attributes = Attributes::new(ms(5), ms(25), ms(1000), 10, 100).unwrap();
        assert_eq!(steady(15).stride(0, &attributes), 1);
        assert_eq!(steady(25).stride(0, &attributes), 3);
    }

    #[test]
    fn one_access_of_idle_memory_is_never_chance() {
        assert!(!by_chance(1, 20, 0, 20, 2));
        assert!(by_chance(14, 20, 10, 20, 2));
        assert!(!by_chance(20, 20, 10, 20, 2));
    }

    #[test]
    fn a_blended_count_reaches_what_is_seen() {
        let mut count = 20;
        for _ in 0..20 {
            count = blend(count, 0, 2, 20);
        }
        assert_eq!(count, 0);
    }
}
