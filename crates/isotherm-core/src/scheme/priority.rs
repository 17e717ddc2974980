//! Priorities: which memory comes first when a quota does not suffice for all.

use std::time::Duration;

use crate::PAGE_SIZE;

use super::{Order, Weights};

/// The highest score.
///
/// There are few scores, so that memory of about the same frequency and age has the same score. Memory of equal
/// scores is taken in the order of addresses, and so a period can go on where the last one ended.
pub(crate) const MAX_SCORE: u32 = 100;

/// Ages above this one score as this one.
pub(crate) const MAX_AGE: Duration = Duration::from_secs(3600);

/// Sizes in bytes above this one (64 GiB) score as this one.
const MAX_SIZE: u64 = 1 << 36;

/// The score of memory of this size in bytes, access rate (0 to 1) and heat (0 to 1), from 0 to [`MAX_SCORE`]. Higher
/// scores come first.
///
/// It is the weighted mean of three scores from 0 to 1:
/// - The score of the rate is the rate, or 1 minus the rate if the coldest memory comes first.
/// - The score of the age is the heat, or 1 minus the heat if the coldest memory comes first: see [`heat`].
/// - The score of the size grows with the logarithm of the size, since an action on a large region costs less for
///   each byte.
///
/// The idea is DAMON's (Linux `Documentation/mm/damon/design.rst`, "Prioritization"); the formula is isotherm's
/// own.
pub(crate) fn score(order: Order, weights: Weights, size: u64, rate: f64, heat: f64) -> u32 {
    let (by_rate, by_age) = match order {
        Order::HottestFirst => (rate, heat),
        Order::ColdestFirst => (1.0 - rate, 1.0 - heat),
    };
    let by_size = log_share((size / PAGE_SIZE) as f64, (MAX_SIZE / PAGE_SIZE) as f64);
    let [size, rate, age] = [weights.size(), weights.rate(), weights.age()].map(f64::from);
    let mean = (size * by_size + rate * by_rate + age * by_age) / (size + rate + age);
    // A cast from f64 saturates.
    (mean * f64::from(MAX_SCORE)).round() as u32
}

/// How hot memory is that has had this access rate for the time `age`, from 0 to 1. The age tells how certain the rate
/// is: the heat begins at 0.5, and moves with the logarithm of the age towards 1 for memory that is accessed, and
/// towards 0 for memory that is not.
pub(crate) fn heat(rate: f64, age: Duration) -> f64 {
    let certainty = log_share(age.as_secs_f64(), MAX_AGE.as_secs_f64());
    if rate > 0.0 { 0.5 + certainty / 2.0 } else { 0.5 - certainty / 2.0 }
}

/// The logarithm of 1 + `value` as a share of that of 1 + `most`, 0 to 1.
fn log_share(value: f64, most: f64) -> f64 {
    ((1.0 + value).ln() / (1.0 + most).ln()).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cold(rate: f64, age: u64) -> u32 {
        score(Order::ColdestFirst, Weights::DEFAULT, 1 << 20, rate, heat(rate, Duration::from_secs(age)))
    }

    fn hot(rate: f64, age: u64) -> u32 {
        score(Order::HottestFirst, Weights::DEFAULT, 1 << 20, rate, heat(rate, Duration::from_secs(age)))
    }

    #[test]
    fn the_coldest_and_longest_idle_comes_first_or_last() {
        let memory = [(0.0, 600), (0.0, 5), (0.3, 5), (0.9, 5), (0.9, 600)];
        assert!(memory.windows(2).all(|pair| cold(pair[0].0, pair[0].1) > cold(pair[1].0, pair[1].1)));
        assert!(memory.windows(2).all(|pair| hot(pair[0].0, pair[0].1) < hot(pair[1].0, pair[1].1)));
    }

    #[test]
    fn a_property_of_weight_zero_has_no_effect() {
        let only_size = Weights::new(1, 0, 0).unwrap();
        let of = |size, rate| score(Order::ColdestFirst, only_size, size, rate, 0.5);
        assert_eq!(of(1 << 20, 0.0), of(1 << 20, 1.0));
        assert!(of(1 << 30, 1.0) > of(1 << 20, 0.0));
    }
}
