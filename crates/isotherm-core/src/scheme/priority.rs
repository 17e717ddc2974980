//! Priorities: what comes first when a quota does not suffice.

use std::time::Duration;

use crate::PAGE_SIZE;

use super::{Order, Weights};

/// The highest score.
///
/// Scores are coarse on purpose: memory of about the same temperature has the same score, and among that the order of
/// addresses holds, so that one period goes on where the last one ended.
pub(crate) const BEST: u32 = 100;

/// The age from which on more of it makes no difference.
pub(crate) const OLDEST: Duration = Duration::from_secs(3600);

/// The size from which on more of it makes no difference.
const LARGEST: u64 = 1 << 36;

/// How soon memory of this size, access rate (0 to 1) and age comes, from 0 to [`BEST`].
///
/// It is the weighted mean of three scores from 0 to 1. That of the rate is the rate (or what is missing to 1, where the coldest
/// comes first). That of the age says how sure that is: it begins in the middle and moves with the logarithm of the age, for
/// accessed memory towards hot, for the rest towards cold. That of the size grows with its logarithm: to act on a large region is
/// less work a byte.
pub(crate) fn score(order: Order, weights: Weights, size: u64, rate: f64, age: Duration) -> u32 {
    let certainty = log_share(age.as_secs_f64(), OLDEST.as_secs_f64());
    let heat_of_age = if rate > 0.0 { 0.5 + certainty / 2.0 } else { 0.5 - certainty / 2.0 };
    let (by_rate, by_age) = match order {
        Order::HottestFirst => (rate, heat_of_age),
        Order::ColdestFirst => (1.0 - rate, 1.0 - heat_of_age),
    };
    let by_size = log_share((size / PAGE_SIZE) as f64, (LARGEST / PAGE_SIZE) as f64);
    let [size, rate, age] = [weights.size(), weights.rate(), weights.age()].map(f64::from);
    let mean = (size * by_size + rate * by_rate + age * by_age) / (size + rate + age);
    // A cast from f64 saturates.
    (mean * f64::from(BEST)).round() as u32
}

/// The logarithm of `value` as a share of that of `most`, 0 to 1.
fn log_share(value: f64, most: f64) -> f64 {
    ((1.0 + value).ln() / (1.0 + most).ln()).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cold(rate: f64, age: u64) -> u32 {
        score(Order::ColdestFirst, Weights::DEFAULT, 1 << 20, rate, Duration::from_secs(age))
    }

    fn hot(rate: f64, age: u64) -> u32 {
        score(Order::HottestFirst, Weights::DEFAULT, 1 << 20, rate, Duration::from_secs(age))
    }

    #[test]
    fn long_idle_comes_before_just_idle_before_accessed_and_the_other_way_round() {
        let memory = [(0.0, 600), (0.0, 5), (0.3, 5), (0.9, 5), (0.9, 600)];
        assert!(memory.windows(2).all(|pair| cold(pair[0].0, pair[0].1) > cold(pair[1].0, pair[1].1)));
        assert!(memory.windows(2).all(|pair| hot(pair[0].0, pair[0].1) < hot(pair[1].0, pair[1].1)));
    }

    #[test]
    fn a_weight_of_zero_takes_a_property_out() {
        let only_size = Weights::new(1, 0, 0).unwrap();
        let of = |size, rate| score(Order::ColdestFirst, only_size, size, rate, Duration::ZERO);
        assert_eq!(of(1 << 20, 0.0), of(1 << 20, 1.0));
        assert!(of(1 << 30, 1.0) > of(1 << 20, 0.0));
    }
}
