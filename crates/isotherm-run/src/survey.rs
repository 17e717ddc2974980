//! The choice of surveys.

use std::time::Duration;

/// Whether and how often every present page is surveyed, beside sampling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SurveyChoice {
    /// As often as a survey's CPU time allows, 1 s to 60 s apart, if the probe can: 0.4 % of one CPU. A
    /// simulation is not surveyed.
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
