//! Conditions: which regions a scheme acts on.

use std::time::Duration;

/// An interval of values that includes both of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClosedInterval<T> {
    min: T,
    max: T,
}

impl<T: PartialOrd + Copy> ClosedInterval<T> {
    /// The interval from `min` to `max`, or `None` if they are reversed or cannot be compared.
    pub fn new(min: T, max: T) -> Option<Self> {
        (min <= max).then_some(Self { min, max })
    }

    /// The lower end.
    pub const fn min(&self) -> T {
        self.min
    }

    /// The upper end.
    pub const fn max(&self) -> T {
        self.max
    }

    /// Whether `value` lies in the interval.
    pub fn contains(&self, value: T) -> bool {
        self.min <= value && value <= self.max
    }
}

/// Which regions a scheme acts on: those whose size, access rate, frequency and age lie in these intervals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Condition {
    /// The size of the region in bytes. Unmapped parts count here, but are never acted on.
    pub size: ClosedInterval<u64>,
    /// The access rate, 0 to 1.
    pub rate: ClosedInterval<f64>,
    /// How often a page is accessed, in hertz, whatever the sampling interval is.
    pub hz: ClosedInterval<f64>,
    /// For how long the access rate has stayed the same and no scheme has acted on the memory.
    pub age: ClosedInterval<Duration>,
}

/// Rates that differ by no more are equal. A rate is a quotient of two counts, and the ends of an interval are
/// written as decimals: 3 of 20 samples and 0.15 can differ by a rounding error.
const RATE_EPSILON: f64 = 1e-9;

impl Condition {
    /// Every region.
    pub const ANY: Self = Self {
        size: ClosedInterval { min: 0, max: u64::MAX },
        rate: ClosedInterval { min: 0.0, max: 1.0 },
        hz: ClosedInterval { min: 0.0, max: f64::INFINITY },
        age: ClosedInterval { min: Duration::ZERO, max: Duration::MAX },
    };

    /// Whether a region of this size in bytes, access rate, frequency in hertz and age matches.
    pub fn holds(&self, size: u64, rate: f64, hz: f64, age: Duration) -> bool {
        self.size.contains(size)
            && self.rate.min - RATE_EPSILON <= rate
            && rate <= self.rate.max + RATE_EPSILON
            && self.hz.contains(hz)
            && self.age.contains(age)
    }

    /// Whether the condition compares access rates, beyond whether there was an access at all. Samples over another
    /// interval find another rate.
    pub fn compares_rates(&self) -> bool {
        self.rate.min > 0.0 || (self.rate.max > 0.0 && self.rate.max < 1.0)
    }

    /// Whether the condition depends on the access rate, the frequency or the age. Then memory that could not be
    /// observed does not match.
    pub fn needs_frequency(&self) -> bool {
        self.rate != Self::ANY.rate || self.hz != Self::ANY.hz || self.age != Self::ANY.age
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_an_interval_match() {
        let second = Duration::from_secs(1);
        let condition = Condition {
            size: ClosedInterval::new(4096, 8192).unwrap(),
            rate: ClosedInterval::new(0.05, 0.7).unwrap(),
            hz: ClosedInterval::new(2.0, 5.0).unwrap(),
            age: ClosedInterval::new(second, second * 2).unwrap(),
        };
        assert!(condition.holds(4096, 1.0 / 20.0, 2.0, second));
        assert!(condition.holds(8192, 14.0 / 20.0, 2.0, second * 2));
        assert!(!condition.holds(4095, 0.1, 2.0, second));
        assert!(!condition.holds(4096, 0.0, 2.0, second));
        assert!(!condition.holds(4096, 0.75, 2.0, second));
        assert!(!condition.holds(4096, 0.1, 2.0, second / 2));
        assert!(condition.holds(4096, 0.1, 5.0, second) && !condition.holds(4096, 0.1, 5.1, second));
    }

    #[test]
    fn rates_other_than_none_and_any_are_compared() {
        let compares =
            |min, max| Condition { rate: ClosedInterval::new(min, max).unwrap(), ..Condition::ANY }.compares_rates();
        assert!(!compares(0.0, 0.0) && !compares(0.0, 1.0));
        assert!(compares(0.0, 0.05) && compares(0.05, 1.0) && compares(1.0, 1.0));
    }

    #[test]
    fn a_reversed_interval_does_not_exist() {
        assert_eq!(ClosedInterval::new(2, 1), None);
        assert_eq!(ClosedInterval::new(f64::NAN, 1.0), None);
    }
}
