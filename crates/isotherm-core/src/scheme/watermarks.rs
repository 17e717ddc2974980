//! Watermarks: when a scheme sleeps and when it wakes.

use std::time::Duration;

use thiserror::Error;

use super::Metric;

/// Three marks on one metric, with the hysteresis of DAMON's (Linux `Documentation/mm/damon/design.rst`, "Watermarks"): above
/// the high mark and below the low mark a scheme sleeps, from the low up to the middle mark it wakes, and between the middle
/// and the high mark it stays as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Watermarks {
    metric: Metric,
    interval: Duration,
    high: f64,
    mid: f64,
    low: f64,
}

/// Why three marks are none.
#[derive(Clone, Copy, Debug, Error, PartialEq)]
pub enum WatermarksError {
    /// The metric would never be looked at.
    #[error("the interval of the watermarks is zero; give a time such as 5s")]
    ZeroInterval,
    /// They must not fall from low to high.
    #[error("the middle mark is above the high mark; it must be between the low and the high one")]
    MidOverHigh,
    /// They must not fall from low to high.
    #[error("the low mark is above the middle mark; it must be the lowest")]
    LowOverMid,
    /// A mark that no value of the metric can reach.
    #[error("a watermark lies outside 0 to 1")]
    OutOfRange,
    /// The metric only grows, or has no share for a value.
    #[error("watermarks go by free memory or by pressure")]
    Metric,
}

impl Watermarks {
    /// Marks on `metric`, which is looked at once every `interval`.
    ///
    /// # Errors
    /// If the interval is zero, a mark is no share, the marks are not in their order, or the metric is no share of something.
    pub fn new(metric: Metric, interval: Duration, high: f64, mid: f64, low: f64) -> Result<Self, WatermarksError> {
        if !matches!(metric, Metric::FreeMemory | Metric::Pressure) {
            return Err(WatermarksError::Metric);
        }
        if interval.is_zero() {
            return Err(WatermarksError::ZeroInterval);
        }
        if [high, mid, low].iter().any(|mark| !(0.0..=1.0).contains(mark)) {
            return Err(WatermarksError::OutOfRange);
        }
        if mid > high {
            return Err(WatermarksError::MidOverHigh);
        }
        if low > mid {
            return Err(WatermarksError::LowOverMid);
        }
        Ok(Self { metric, interval, high, mid, low })
    }

    /// What they go by.
    pub const fn metric(&self) -> &Metric {
        &self.metric
    }

    /// The time between two looks at the metric.
    pub const fn interval(&self) -> Duration {
        self.interval
    }

    /// Above it the scheme sleeps: there is no need.
    pub const fn high(&self) -> f64 {
        self.high
    }

    /// From it down to the low mark the scheme wakes.
    pub const fn mid(&self) -> f64 {
        self.mid
    }

    /// Below it the scheme sleeps: it is too late, or would only harm.
    pub const fn low(&self) -> f64 {
        self.low
    }

    /// Whether a scheme that is `awake` or not is so after the metric was found at `value`.
    pub(crate) fn awake(&self, awake: bool, value: f64) -> bool {
        if value > self.high || value < self.low {
            false
        } else if value <= self.mid {
            true
        } else {
            awake
        }
    }
}

/// Whether one scheme is awake, and when to look again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WatermarkState {
    awake: bool,
    /// The time of the next look.
    next: Duration,
    looked: bool,
}

impl WatermarkState {
    /// Of a scheme that was not looked at yet.
    pub(crate) const NEW: Self = Self { awake: true, next: Duration::ZERO, looked: false };

    pub(crate) const fn is_awake(&self) -> bool {
        self.awake
    }

    pub(crate) const fn next(&self) -> Duration {
        self.next
    }

    /// Looks at the metric if it is time to. A value that is not known changes nothing. Before the first value between the middle
    /// and the high mark, a scheme is asleep: nothing has woken it.
    pub(crate) fn look(&mut self, marks: &Watermarks, now: Duration, read: impl FnOnce(&Metric) -> Option<f64>) {
        if now < self.next {
            return;
        }
        self.next = now + marks.interval;
        if let Some(value) = read(&marks.metric) {
            self.awake = marks.awake(self.awake && self.looked, value);
            self.looked = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks() -> Watermarks {
        Watermarks::new(Metric::FreeMemory, Duration::from_secs(5), 0.5, 0.4, 0.2).unwrap()
    }

    #[test]
    fn a_scheme_wakes_below_the_middle_and_sleeps_above_the_high_and_below_the_low_mark() {
        let mut state = WatermarkState::NEW;
        let mut seen = Vec::new();
        for (nth, value) in [0.45, 0.39, 0.45, 0.51, 0.45, 0.3, 0.19, 0.2].into_iter().enumerate() {
            state.look(&marks(), Duration::from_secs(5 * nth as u64), |_| Some(value));
            seen.push(state.is_awake());
        }
        assert_eq!(seen, [false, true, true, false, false, true, false, true]);
    }

    #[test]
    fn the_metric_is_looked_at_once_an_interval() {
        let mut state = WatermarkState::NEW;
        let mut looks = 0;
        for second in 0..20 {
            state.look(&marks(), Duration::from_secs(second), |_| {
                looks += 1;
                None
            });
        }
        assert_eq!(looks, 4);
        assert!(state.is_awake(), "a figure that nobody knows puts nothing to sleep");
    }

    #[test]
    fn marks_out_of_order_are_refused() {
        let marks = |high, mid, low| Watermarks::new(Metric::Pressure, Duration::from_secs(1), high, mid, low);
        assert_eq!(marks(0.3, 0.4, 0.1), Err(WatermarksError::MidOverHigh));
        assert_eq!(marks(0.5, 0.4, 0.45), Err(WatermarksError::LowOverMid));
        assert_eq!(marks(1.5, 0.4, 0.1), Err(WatermarksError::OutOfRange));
    }
}
