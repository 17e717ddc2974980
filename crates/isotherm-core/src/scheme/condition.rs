//! Conditions: which regions a scheme wants.

use std::time::Duration;

/// A lower and an upper bound, both part of what is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClosedInterval<T> {
    min: T,
    max: T,
}

impl<T: PartialOrd + Copy> ClosedInterval<T> {
    /// From `min` to `max`, both included, or `None` if they are reversed or cannot be compared.
    pub fn new(min: T, max: T) -> Option<Self> {
        (min <= max).then_some(Self { min, max })
    }

    /// The lower bound.
    pub const fn min(&self) -> T {
        self.min
    }

    /// The upper bound.
    pub const fn max(&self) -> T {
        self.max
    }

    /// Whether `value` lies between them.
    pub fn contains(&self, value: T) -> bool {
        self.min <= value && value <= self.max
    }
}

/// Which regions a scheme wants: those whose size, access rate and age all lie within bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Condition {
    /// The region's size in bytes, as it was monitored; what of it is not mapped counts here, but is never acted on.
    pub size: ClosedInterval<u64>,
    /// The access rate, 0 to 1.
    pub rate: ClosedInterval<f64>,
    /// For how long the access rate has stayed as it is and no scheme has acted on the region.
    pub age: ClosedInterval<Duration>,
}

/// Rates are counts of samples; bounds are written in decimals. What is closer than this is the same.
const SAME_RATE: f64 = 1e-9;

impl Condition {
    /// Every region.
    pub const ANY: Self = Self {
        size: ClosedInterval { min: 0, max: u64::MAX },
        rate: ClosedInterval { min: 0.0, max: 1.0 },
        age: ClosedInterval { min: Duration::ZERO, max: Duration::MAX },
    };

    /// Whether a region of this size, access rate and age is wanted.
    pub fn holds(&self, size: u64, rate: f64, age: Duration) -> bool {
        self.size.contains(size)
            && self.rate.min - SAME_RATE <= rate
            && rate <= self.rate.max + SAME_RATE
            && self.age.contains(age)
    }

    /// Whether it asks for a temperature: what could not be observed has none, and so is never wanted then.
    pub fn asks_for_temperature(&self) -> bool {
        self.rate != Self::ANY.rate || self.age != Self::ANY.age
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_part_of_what_is_wanted() {
        let second = Duration::from_secs(1);
        let condition = Condition {
            size: ClosedInterval::new(4096, 8192).unwrap(),
            rate: ClosedInterval::new(0.05, 0.7).unwrap(),
            age: ClosedInterval::new(second, second * 2).unwrap(),
        };
        assert!(condition.holds(4096, 1.0 / 20.0, second));
        assert!(condition.holds(8192, 14.0 / 20.0, second * 2));
        assert!(!condition.holds(4095, 0.1, second));
        assert!(!condition.holds(4096, 0.0, second));
        assert!(!condition.holds(4096, 0.75, second));
        assert!(!condition.holds(4096, 0.1, second / 2));
    }

    #[test]
    fn reversed_bounds_are_none() {
        assert_eq!(ClosedInterval::new(2, 1), None);
        assert_eq!(ClosedInterval::new(f64::NAN, 1.0), None);
    }
}
