//! Watermarks: when a scheme sleeps and when it is awake.

use std::time::Duration;

use thiserror::Error;

use super::Metric;

/// Three marks on a metric. A scheme sleeps while the metric is above the high mark or below the low mark. It wakes
/// when the metric is from the low mark to the middle mark. From the middle mark to the high mark its state does
/// not change. (Linux `Documentation/mm/damon/design.rst`, "Watermarks".)
#[derive(Clone, Debug, PartialEq)]
pub struct Watermarks {
    metric: Metric,
    interval: Duration,
    high: f64,
    mid: f64,
    low: f64,
}

/// Why watermarks are invalid.
#[derive(Clone, Copy, Debug, Error, PartialEq)]
pub enum WatermarksError {
    /// The interval is zero.
    #[error("the interval of the watermarks is zero; give a time such as 5s")]
    ZeroInterval,
    /// The middle mark is above the high mark.
    #[error("the middle mark is above the high mark; it must be between the low and the high one")]
    MidOverHigh,
    /// The low mark is above the middle mark.
    #[error("the low mark is above the middle mark; it must be the lowest")]
    LowOverMid,
    /// A mark is not a share from 0 to 1.
    #[error("a watermark lies outside 0 to 1")]
    OutOfRange,
    /// The metric is not free memory or pressure, whose values are shares.
    #[error("watermarks depend on free memory or on pressure; use one of these")]
    Metric,
}

impl Watermarks {
    /// Marks on `metric`, which is read once every `interval`. The marks are shares from 0 to 1.
    ///
    /// # Errors
    /// If the interval is zero, if a mark is not a share, if the marks are out of order, or if the values of the
    /// metric are not shares.
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

    /// The metric.
    pub const fn metric(&self) -> &Metric {
        &self.metric
    }

    /// The time from one reading of the metric to the next.
    pub const fn interval(&self) -> Duration {
        self.interval
    }

    /// The high mark. Above it the scheme sleeps, because it is not needed.
    pub const fn high(&self) -> f64 {
        self.high
    }

    /// The middle mark. From it down to the low mark the scheme wakes.
    pub const fn mid(&self) -> f64 {
        self.mid
    }

    /// The low mark. Below it the scheme sleeps, because it would do more harm than good.
    pub const fn low(&self) -> f64 {
        self.low
    }

    /// Whether a scheme is awake when the metric is at `value`; `awake` says whether it was before.
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

/// Whether a scheme is awake, and when its watermarks are checked next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WatermarkState {
    awake: bool,
    /// When the metric is read next.
    next: Duration,
    /// The last value of the metric. `None` if it had none yet.
    value: Option<f64>,
}

impl WatermarkState {
    /// The state of a scheme whose metric was not read yet.
    pub(crate) const NEW: Self = Self { awake: true, next: Duration::ZERO, value: None };

    pub(crate) const fn is_awake(&self) -> bool {
        self.awake
    }

    pub(crate) const fn value(&self) -> Option<f64> {
        self.value
    }

    pub(crate) const fn next(&self) -> Duration {
        self.next
    }

    /// Reads the metric if that is due. A metric without a value changes nothing. A scheme whose first value is
    /// between the middle and the high mark sleeps, because nothing has woken it.
    pub(crate) fn look(&mut self, marks: &Watermarks, now: Duration, read: impl FnOnce(&Metric) -> Option<f64>) {
        if now < self.next {
            return;
        }
        self.next = now + marks.interval;
        if let Some(value) = read(&marks.metric) {
            self.awake = marks.awake(self.awake && self.value.is_some(), value);
            self.value = Some(value);
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
    fn the_metric_is_read_once_an_interval() {
        let mut state = WatermarkState::NEW;
        let mut reads = 0;
        for second in 0..20 {
            state.look(&marks(), Duration::from_secs(second), |_| {
                reads += 1;
                None
            });
        }
        assert_eq!(reads, 4);
        assert!(state.is_awake(), "a metric without a value puts no scheme to sleep");
    }

    #[test]
    fn marks_out_of_order_are_refused() {
        let marks = |high, mid, low| Watermarks::new(Metric::Pressure, Duration::from_secs(1), high, mid, low);
        assert_eq!(marks(0.3, 0.4, 0.1), Err(WatermarksError::MidOverHigh));
        assert_eq!(marks(0.5, 0.4, 0.45), Err(WatermarksError::LowOverMid));
        assert_eq!(marks(1.5, 0.4, 0.1), Err(WatermarksError::OutOfRange));
    }
}
