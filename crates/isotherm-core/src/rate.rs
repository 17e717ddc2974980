//! Access rates over sampling intervals of different lengths.
//!
//! A sample shows whether a page was accessed within its interval. So the share of samples that find an access means
//! little without the interval. As accesses per second it can be compared, but a sample finds one access at most. If
//! each sample finds one, there may be any number of accesses.

use std::time::Duration;

/// An interval differs from another if it does so by more than this part of it.
const DIFFERS: f64 = 0.01;

/// Whether two sampling intervals are about the same.
pub fn is_same_interval(one: Duration, other: Duration) -> bool {
    (one.as_secs_f64() - other.as_secs_f64()).abs() <= other.as_secs_f64() * DIFFERS
}

/// The sampling interval of an aggregation interval with this number of samples.
pub fn sampling_interval(aggregation: Duration, samples: u32) -> Duration {
    aggregation / samples.max(1)
}

/// The share of samples over the interval `other` that would find an access, if the share `share` of samples over
/// `interval` does.
///
/// Accesses are taken to be independent in time (a Poisson process): a page is missed in each of several intervals in
/// a row with the product of the chances, so that `1 - (1 - share)^(other / interval)` of the samples find an access.
/// A share of 1 stays 1, also over a shorter interval, for which it is only the most that is possible. An interval of
/// zero is one that is not known, and changes nothing.
pub fn share_over(share: f64, interval: Duration, other: Duration) -> f64 {
    if interval.is_zero() || other.is_zero() || is_same_interval(interval, other) {
        return share;
    }
    1.0 - (1.0 - share.clamp(0.0, 1.0)).powf(other.as_secs_f64() / interval.as_secs_f64())
}

/// The share of samples over the interval `other` that would find an access, if `accessed` of `samples` over `interval`
/// did.
///
/// A longer sample finds an access if one of the short ones that it would take the place of does. So it is the share of
/// groups of that many of the short samples in which there is an access, which is right on the mean also where there
/// are few samples and few accesses; [`share_over`] of `accessed / samples` is too small then. A group has at most all
/// of the samples. Over a shorter interval, the share is that of [`share_over`].
pub fn share_of_counts(accessed: u32, samples: u32, interval: Duration, other: Duration) -> f64 {
    let share = (f64::from(accessed) / f64::from(samples.max(1))).min(1.0);
    if interval.is_zero() || other <= interval || is_same_interval(interval, other) {
        return share_over(share, interval, other);
    }
    let group = other.as_secs_f64() / interval.as_secs_f64();
    // The samples of a group are drawn without putting them back: none of them is one of those that found an access.
    let missed = (0..accessed.min(samples)).try_fold(1.0, |missed, nth| {
        let left = 1.0 - group / f64::from(samples - nth);
        (left > 0.0).then_some(missed * left)
    });
    1.0 - missed.unwrap_or(0.0)
}

/// The least and the greatest share of samples over the interval `other` that can find an access, if the share `share`
/// of samples over `interval` does, and memory is accessed as before. It makes no assumption on how accesses depend on
/// each other.
///
/// A longer interval holds all accesses of the shorter one. If a long interval of `n` short ones has an access, at
/// least one of the short ones has an access. So the share grows by the factor `n` at most.
pub fn possible_shares_over(share: f64, interval: Duration, other: Duration) -> (f64, f64) {
    if interval.is_zero() || other.is_zero() || is_same_interval(interval, other) {
        return (share, share);
    }
    // An interval that is not a multiple of the other lies within the next multiple.
    let (long, short) = (interval.max(other).as_secs_f64(), interval.min(other).as_secs_f64());
    let parts = (long / short).ceil();
    if other > interval { (share, (share * parts).min(1.0)) } else { (share / parts, share) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn rates_over_longer_samples_are_those_of_short_ones() {
        let rate = |rate, interval| share_over(rate, ms(interval), ms(5));
        assert_eq!([rate(0.0, 100), rate(1.0, 100), rate(0.3, 5)], [0.0, 1.0, 0.3]);
        // With a tenth of the samples over 5 ms, 1 - 0.9^20 of those over 100 ms find an access.
        assert!((rate(1.0 - 0.9_f64.powi(20), 100) - 0.1).abs() < 1e-12);
        // Where an interval is not known, rates stay as they are.
        assert_eq!((share_over(0.3, ms(100), Duration::ZERO), share_over(0.3, Duration::ZERO, ms(5))), (0.3, 0.3));
    }

    #[test]
    fn shares_of_few_samples_are_right_on_the_mean() {
        let over = |accessed, longer| share_of_counts(accessed, 20, ms(5), ms(longer));
        assert_eq!([over(0, 100), over(1, 100), over(20, 100), over(20, 50), over(3, 5)], [0.0, 1.0, 1.0, 1.0, 0.15]);
        assert!((over(1, 50) - 0.5).abs() < 1e-12, "one of the two halves has it");
        assert_eq!(over(1, 1000), 1.0, "no group is longer than the samples");
        assert_eq!((over(7, 2), over(20, 2)), (share_over(0.35, ms(5), ms(2)), 1.0));
        // The mean over all counts that accesses at random can have is the share over the longer interval.
        for (share, longer) in [(0.02_f64, 100), (0.1, 100), (0.1, 50), (0.4, 20), (0.02, 35)] {
            let chance = |found: u32| {
                let ways = (0..found).map(|nth| f64::from(20 - nth) / f64::from(found - nth)).product::<f64>();
                ways * share.powi(found as i32) * (1.0 - share).powi(20 - found as i32)
            };
            let mean: f64 = (0..=20).map(|found| chance(found) * over(found, longer)).sum();
            let expected = share_over(share, ms(5), ms(longer));
            assert!((mean - expected).abs() < 1e-9, "{mean} for {expected} over {longer} ms");
        }
    }

    #[test]
    fn whatever_accesses_have_to_do_with_each_other_the_share_lies_within_bounds() {
        let bounds = |share, interval, other| possible_shares_over(share, ms(interval), ms(other));
        assert_eq!(bounds(0.02, 5, 100), (0.02, 0.4));
        assert_eq!(bounds(0.1, 5, 100), (0.1, 1.0));
        assert_eq!(bounds(1.0, 100, 5), (0.05, 1.0));
        assert_eq!((bounds(0.0, 5, 100), bounds(0.0, 100, 5), bounds(0.3, 5, 5)), ((0.0, 0.0), (0.0, 0.0), (0.3, 0.3)));
        // Regular accesses every 50 ms, accesses at random, and accesses in bursts.
        for (over_5ms, over_60ms) in [(0.1, 1.0), (0.1, share_over(0.1, ms(5), ms(60))), (0.1, 0.11)] {
            let (least, most) = bounds(over_5ms, 5, 60);
            assert!(least <= over_60ms && over_60ms <= most, "{over_60ms}");
            let (least, most) = bounds(over_60ms, 60, 5);
            assert!(least <= over_5ms && over_5ms <= most, "{over_5ms}");
        }
    }
}
