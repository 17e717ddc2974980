//! What a survey may cost.

use std::time::Duration;

/// What surveys may cost their targets. The bound on their own CPU time is the survey interval, which their driver
/// chooses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SurveyLimits {
    /// The share of one CPU, 0 to 1, that targets may lose to setting accessed bits again.
    pub target_share: f64,
}

/// What it costs a target to set the accessed bit of a page of 4 KiB again: 0.35 to 0.4 µs, measured in November 2026
/// on a virtual machine (`bench/README.md`).
const SET_AGAIN: Duration = Duration::from_nanos(400);

impl Default for SurveyLimits {
    /// Half a percent.
    fn default() -> Self {
        Self { target_share: 0.005 }
    }
}

impl SurveyLimits {
    /// How many cleared pages the targets may access again in an interval.
    pub(crate) fn pages(self, interval: Duration) -> f64 {
        self.target_share * interval.as_secs_f64() / SET_AGAIN.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_percent_of_a_second_is_12500_pages() {
        assert_eq!(SurveyLimits::default().pages(Duration::from_secs(1)), 12_500.0);
    }
}
