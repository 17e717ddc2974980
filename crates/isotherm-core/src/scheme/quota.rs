//! Quotas: how much a scheme may do in a period, which memory comes first, and which goals the quota is tuned to.

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::PAGE_SIZE;

use super::{Action, CgroupPressure, Metric, PressureWindow, Scheme, Waiting};

/// How much a scheme may do.
///
/// Periods follow each other without a gap from the first application on. In each period the smallest of three
/// limits holds: the bytes, the time converted to bytes by the measured speed of the action, and the bytes that the
/// goals allow. Where it is known how many bytes a goal is away ([`Gauges::size`](super::Gauges::size)), that many.
/// Otherwise the goals tune the quota.
#[derive(Clone, Debug, PartialEq)]
pub struct Quota {
    bytes: Option<u64>,
    time: Option<Duration>,
    period: Duration,
    weights: Weights,
    goals: Vec<Goal>,
    owner: Option<Arc<str>>,
}

/// Why a quota is invalid.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum QuotaError {
    /// The period is zero.
    #[error("the quota's period is zero; give a time such as 1s")]
    ZeroPeriod,
    /// The bytes or the time are zero, so that nothing could be done.
    #[error("a quota of zero lets nothing be done; leave it out for no limit, or use the action stat")]
    Nothing,
}

impl Quota {
    /// No limit.
    pub const UNLIMITED: Self = Self {
        bytes: None,
        time: None,
        period: Duration::from_secs(1),
        weights: Weights::DEFAULT,
        goals: Vec::new(),
        owner: None,
    };

    /// The quota of a scheme that says none: goals for actions on cgroups, and no limit for all others. A quota of such
    /// an action that says nothing of goals has these goals as well.
    ///
    /// The goals are 0.1 % of 10 s in which some task of a cgroup waits for memory (the order of the pressure that
    /// Weiner et al., "TMO: Transparent Memory Offloading in Datacenters", ASPLOS 2022, keep to), and 0.2 % of the
    /// working set that comes back in a minute, by the kernel's count and by the surveys (the bound of Lagar-Cavilla et
    /// al., ASPLOS 2019).
    pub fn default_of(action: Action) -> Self {
        const PRESSURE: f64 = 0.001;
        const COMES_BACK: f64 = 0.002;
        if action.reclaim().is_none() {
            return Self::UNLIMITED;
        }
        let pressure = CgroupPressure { cgroup: None, waiting: Waiting::Some, window: PressureWindow::TenSeconds };
        let goal = |metric, target| Goal { metric, target };
        let goals = vec![
            goal(Metric::CgroupPressure(pressure), PRESSURE),
            goal(Metric::Refaults, COMES_BACK),
            goal(Metric::Returns, COMES_BACK),
        ];
        Self { goals, ..Self::UNLIMITED }
    }

    /// At most `bytes` and at most `time` in each `period`, each of them if given. `goals` tune how much of that is
    /// used.
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
        Ok(Self { bytes, time, period, weights, goals, owner: None })
    }

    /// The bytes that may be acted on in each period. `None` for no limit.
    pub const fn bytes(&self) -> Option<u64> {
        self.bytes
    }

    /// The time that acting may take in each period. `None` for no limit.
    ///
    /// The time of an action is known only afterwards. Time beyond the limit is charged to the periods that follow.
    pub const fn time(&self) -> Option<Duration> {
        self.time
    }

    /// The period, after which the use of bytes and time starts at zero.
    pub const fn period(&self) -> Duration {
        self.period
    }

    /// The weights of the properties that decide which memory comes first.
    pub const fn weights(&self) -> Weights {
        self.weights
    }

    /// The goals that the quota is tuned to.
    pub fn goals(&self) -> &[Goal] {
        &self.goals
    }

    /// The same quota, which is tuned to these goals.
    #[must_use]
    pub fn with_goals(self, goals: Vec<Goal>) -> Self {
        Self { goals, ..self }
    }

    /// The same quota, which no goal tunes.
    #[must_use]
    pub fn without_goals(self) -> Self {
        Self { goals: Vec::new(), ..self }
    }

    /// The quota of another scheme that draws on this one, which is that of the scheme `owner`: it has the same bytes,
    /// time and period, and what either scheme does counts for both. The weights and the goals are its own.
    #[must_use]
    pub fn shared(&self, owner: Arc<str>, weights: Weights, goals: Vec<Goal>) -> Self {
        Self { weights, goals, owner: Some(owner), ..*self }
    }

    /// The scheme whose bytes and time this quota draws on. `None` if they are its own.
    pub fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    /// The index of the owner among the schemes that come before the one with this quota. `None` without an owner.
    ///
    /// # Errors
    /// If the owner is not among them, or if it has no bytes and time of its own to share.
    pub fn owner_among<'a>(
        &self,
        before: impl IntoIterator<Item = &'a Scheme>,
    ) -> Result<Option<usize>, SharedQuotaError> {
        let Some(name) = &self.owner else {
            return Ok(None);
        };
        let owner = before.into_iter().enumerate().find(|(_, scheme)| scheme.name == *name);
        let (index, Scheme { quota, .. }) = owner.ok_or_else(|| SharedQuotaError::NotBefore(name.clone()))?;
        if quota.owner.is_some() {
            return Err(SharedQuotaError::Borrowed(name.clone()));
        }
        if quota.bytes.is_none() && quota.time.is_none() {
            return Err(SharedQuotaError::Unlimited(name.clone()));
        }
        Ok(Some(index))
    }
}

/// Why a quota cannot be shared.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SharedQuotaError {
    /// There is no scheme of this name before the one that wants to share its quota.
    #[error("no scheme before this one has the name {0:?}; a quota can be shared with an earlier scheme only")]
    NotBefore(Arc<str>),
    /// The scheme of this name shares the quota of another one.
    #[error("the scheme {0:?} shares the quota of another scheme; name that one")]
    Borrowed(Arc<str>),
    /// The scheme of this name has neither bytes nor time.
    #[error("the quota of the scheme {0:?} has no bytes and no time to share; give it one of them")]
    Unlimited(Arc<str>),
}

/// How much the size, the access rate and the age of memory count for its priority. Only their ratios matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    size: u32,
    rate: u32,
    age: u32,
}

impl Weights {
    /// The same weight for access rate and age; the size does not count.
    pub const DEFAULT: Self = Self { size: 0, rate: 1, age: 1 };

    /// These weights, or `None` if all are zero.
    pub const fn new(size: u32, rate: u32, age: u32) -> Option<Self> {
        if size == 0 && rate == 0 && age == 0 { None } else { Some(Self { size, rate, age }) }
    }

    /// The weight of the size.
    pub const fn size(self) -> u32 {
        self.size
    }

    /// The weight of the access rate.
    pub const fn rate(self) -> u32 {
        self.rate
    }

    /// The weight of the age.
    pub const fn age(self) -> u32 {
        self.age
    }
}

/// A value of a metric that a quota is tuned to reach. Of several goals, the one that is reached best counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    metric: Metric,
    target: f64,
}

/// Why a goal is invalid.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum GoalError {
    /// The value is zero, negative or not a number, so that there is no relative distance from it.
    #[error("the goal is not a number above zero; give one above zero")]
    Zero,
    /// The value of a share is 1 or more.
    #[error("the goal is a share; give one above 0 % and below 100 %")]
    NoShare,
    /// The metric cannot be a goal.
    #[error(
        "a quota cannot be tuned to this metric; use the stall time, the free memory, the resident share of the \
         working set, the used or the free share of a memory node, the pressure of a cgroup, refaults, returns, or a \
         figure from a file"
    )]
    Metric,
}

impl Goal {
    /// The goal that `metric` reaches `target`: [`Metric::StallTime`] in seconds for each period of the quota,
    /// [`Metric::Fed`] in its own unit, all others as a share.
    ///
    /// A larger quota must raise the metric, or lower it in the case of the working set.
    ///
    /// # Errors
    /// If the target is not above zero, if a share is not below one, or if the metric cannot be a goal.
    pub fn new(metric: Metric, target: f64) -> Result<Self, GoalError> {
        let share = match metric {
            Metric::FreeMemory
            | Metric::WorkingSetResident
            | Metric::NodeUsed(_)
            | Metric::NodeFree(_)
            | Metric::CgroupPressure(_)
            | Metric::Refaults
            | Metric::Returns => true,
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

    /// The metric.
    pub const fn metric(&self) -> &Metric {
        &self.metric
    }

    /// The value that the metric is to reach.
    pub const fn target(&self) -> f64 {
        self.target
    }

    /// Whether the metric says how much the targets miss what they have lost. Then the scheme does nothing in a period
    /// that begins with the goal reached: what it has done shows only later.
    pub const fn is_bound(&self) -> bool {
        matches!(self.metric, Metric::CgroupPressure(_) | Metric::Refaults | Metric::Returns)
    }

    /// How far the goal is reached. At 1 it is reached exactly; below, the quota grows, and above, it shrinks.
    /// `value` is the value of the metric; of the stall time, the seconds in one period.
    pub(crate) fn score(&self, value: f64) -> f64 {
        match self.metric {
            // A larger quota leaves less of the working set in memory.
            Metric::WorkingSetResident => (1.0 - value) / (1.0 - self.target),
            _ => value / self.target,
        }
    }

    /// The bytes of whole pages by which a share of `size` bytes is below the goal; 0 if it is reached.
    pub(crate) fn missing(&self, value: f64, size: u64) -> u64 {
        // A cast from f64 saturates.
        let missing = ((self.target - value) * size as f64) as u64;
        missing - missing % PAGE_SIZE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_quotas_and_goals_are_refused() {
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
    fn only_actions_on_cgroups_have_goals_that_nobody_has_set() {
        for action in Action::ALL {
            let quota = Quota::default_of(action);
            assert_eq!(quota == Quota::UNLIMITED, action.reclaim().is_none(), "{action}");
            assert!(quota.goals().iter().all(Goal::is_bound));
        }
    }

    #[test]
    fn a_working_set_below_its_goal_shrinks_the_quota() {
        let goal = Goal::new(Metric::WorkingSetResident, 0.9).unwrap();
        assert!(goal.score(0.95) < 1.0);
        assert!(goal.score(0.8) > 1.0);
    }
}
