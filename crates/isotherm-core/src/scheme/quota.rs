//! Quotas: how much a scheme may do in a period, what comes first, and what the quota itself aims at.

use std::time::Duration;

use thiserror::Error;

use super::Metric;

/// How much a scheme may do.
///
/// Periods follow each other without a gap, from the scheme's start on. No period ever sees more than the least of the
/// limits: `bytes`, `time` turned into bytes by the speed that was measured, and what the goals have tuned it to.
#[derive(Clone, Debug, PartialEq)]
pub struct Quota {
    bytes: Option<u64>,
    time: Option<Duration>,
    period: Duration,
    weights: Weights,
    goals: Vec<Goal>,
}

/// Why a quota is none.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum QuotaError {
    /// Periods would never end.
    #[error("the quota's period is zero; give a time such as 1s")]
    ZeroPeriod,
    /// Nothing would ever be done.
    #[error("a quota of zero lets nothing be done; leave it out for no limit, or use the action stat")]
    Nothing,
}

impl Quota {
    /// No limit.
    pub const UNLIMITED: Self =
        Self { bytes: None, time: None, period: Duration::from_secs(1), weights: Weights::DEFAULT, goals: Vec::new() };

    /// At most `bytes` and `time` in each `period`, each of them only if given; `goals` tune how much of that is used.
    ///
    /// # Errors
    /// If the period, the bytes or the time is zero.
    pub fn new(
        bytes: Option<u64>,
        time: Option<Duration>,
        period: Duration,
        weights: Weights,
        goals: Vec<Goal>,
    ) -> Result<Self, QuotaError> {
        if period.is_zero() {
            return Err(QuotaError::ZeroPeriod);
        }
        if bytes == Some(0) || time == Some(Duration::ZERO) {
            return Err(QuotaError::Nothing);
        }
        Ok(Self { bytes, time, period, weights, goals })
    }

    /// Bytes that may be acted on in each period.
    pub const fn bytes(&self) -> Option<u64> {
        self.bytes
    }

    /// Time that acting may take in each period.
    ///
    /// What an action takes is known only afterwards: what was too much is taken off the periods that follow.
    pub const fn time(&self) -> Option<Duration> {
        self.time
    }

    /// The time after which both begin anew.
    pub const fn period(&self) -> Duration {
        self.period
    }

    /// What makes memory come first.
    pub const fn weights(&self) -> Weights {
        self.weights
    }

    /// What the quota is tuned by.
    pub fn goals(&self) -> &[Goal] {
        &self.goals
    }

    /// The same quota, which no goal tunes.
    #[must_use]
    pub fn without_goals(self) -> Self {
        Self { goals: Vec::new(), ..self }
    }
}

/// How much size, access rate and age matter for what comes first. Only their ratios count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    size: u32,
    rate: u32,
    age: u32,
}

impl Weights {
    /// Access rate and age alike; size does not matter.
    pub const DEFAULT: Self = Self { size: 0, rate: 1, age: 1 };

    /// These weights, or `None` if all are zero: then nothing would tell what comes first.
    pub const fn new(size: u32, rate: u32, age: u32) -> Option<Self> {
        if size == 0 && rate == 0 && age == 0 { None } else { Some(Self { size, rate, age }) }
    }

    /// Of the size.
    pub const fn size(self) -> u32 {
        self.size
    }

    /// Of the access rate.
    pub const fn rate(self) -> u32 {
        self.rate
    }

    /// Of the age.
    pub const fn age(self) -> u32 {
        self.age
    }
}

/// A figure that a quota is tuned to reach. With several, the one that is reached best tunes.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    metric: Metric,
    target: f64,
}

/// Why a goal is none.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum GoalError {
    /// It could not be told how far away it is.
    #[error("the goal is zero or no number; give one above zero")]
    Zero,
    /// A share of something that is all of it or more.
    #[error("the goal is a share; give one above 0 % and below 100 %")]
    NoShare,
    /// It is not a figure that a quota moves towards a target.
    #[error(
        "a quota cannot be tuned by this metric; take stall time, free memory, the working set's residency, or a fed figure"
    )]
    Metric,
}

impl Goal {
    /// A value of `metric` to be reached: [`Metric::StallTime`] in seconds a period of the quota, [`Metric::FreeMemory`] and
    /// [`Metric::WorkingSetResident`] as a share, [`Metric::Fed`] in its own unit.
    ///
    /// More quota must mean more of the metric, or for the working set less.
    ///
    /// # Errors
    /// If the target is not above zero, a share not below one, or the metric none to be tuned by.
    pub fn new(metric: Metric, target: f64) -> Result<Self, GoalError> {
        let share = match metric {
            Metric::FreeMemory | Metric::WorkingSetResident => true,
            Metric::StallTime | Metric::Fed(_) => false,
            Metric::Pressure => return Err(GoalError::Metric),
        };
        if !target.is_finite() || target <= 0.0 {
            return Err(GoalError::Zero);
        }
        if share && target >= 1.0 {
            return Err(GoalError::NoShare);
        }
        Ok(Self { metric, target })
    }

    /// What it goes by.
    pub const fn metric(&self) -> &Metric {
        &self.metric
    }

    /// The value to be reached.
    pub const fn target(&self) -> f64 {
        self.target
    }

    /// How far it is reached, 1 being just so: below it the quota grows, above it shrinks. `value` of the stall time is that of one
    /// period.
    pub(crate) fn score(&self, value: f64) -> f64 {
        match self.metric {
            // The more is acted on, the less of the working set is left in memory.
            Metric::WorkingSetResident => (1.0 - value) / (1.0 - self.target),
            _ => value / self.target,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_and_goals_that_make_no_sense_are_refused() {
        let second = Duration::from_secs(1);
        let quota = |bytes, time, period| Quota::new(bytes, time, period, Weights::DEFAULT, Vec::new());
        assert_eq!(quota(None, None, Duration::ZERO), Err(QuotaError::ZeroPeriod));
        assert_eq!(quota(Some(0), None, second), Err(QuotaError::Nothing));
        assert_eq!(quota(None, Some(Duration::ZERO), second), Err(QuotaError::Nothing));
        assert_eq!(Weights::new(0, 0, 0), None);
        assert_eq!(Goal::new(Metric::FreeMemory, 1.0), Err(GoalError::NoShare));
        assert_eq!(Goal::new(Metric::StallTime, 0.0), Err(GoalError::Zero));
        assert_eq!(Goal::new(Metric::Pressure, 0.1), Err(GoalError::Metric));
    }

    #[test]
    fn a_working_set_that_is_less_resident_than_wanted_is_more_than_reached() {
        let goal = Goal::new(Metric::WorkingSetResident, 0.9).unwrap();
        assert!(goal.score(0.95) < 1.0);
        assert!(goal.score(0.8) > 1.0);
    }
}
