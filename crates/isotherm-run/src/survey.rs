//! The choice of surveys.

use std::time::Duration;

/// Whether and how often every present page is surveyed, in addition to sampling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SurveyChoice {
    /// As often as the budget allows, once a second at most, if the probe can. A simulation is not surveyed.
    #[default]
    Auto,
    /// No survey: DAMON's method as its papers describe it.
    Off,
    /// Once in this interval, at least [`MIN_SURVEY`](Self::MIN_SURVEY).
    Every(Duration),
}

impl SurveyChoice {
    /// The shortest survey interval.
    pub const MIN_SURVEY: Duration = Duration::from_millis(100);
}
