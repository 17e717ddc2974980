//! Budgets: how much of a quota is left in a period.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{NodeId, Snapshot};

use super::limits::Share;
use super::slowdown::{Judgement, Slowdown};
use super::tuner::Tuner;
use super::victims::Tally;
use super::{Gauges, Goal, Metric, Quota};

/// The bytes that a quota of time allows at first, before the speed of the action has been measured.
const FIRST_BYTES: u64 = 1 << 20;

/// The use of the quota of one scheme.
#[derive(Clone, Debug)]
pub(crate) struct QuotaUse {
    /// When the current period began. `None` before the first.
    began: Option<Duration>,
    /// Bytes used in this period.
    charged: u64,
    /// Time used in this period, and time that earlier periods used beyond their limit.
    spent: Duration,
    /// Bytes acted on recently, and the seconds that took. The ratio is the speed.
    recent_bytes: f64,
    recent_seconds: f64,
    tuner: Option<Tuner>,
    /// How many bytes the goals were away when they were read last. `None` if that is not known, and the quota is
    /// tuned.
    missing: Option<u64>,
    /// The stall time when it was read last, and when that was.
    stalled: Option<(Duration, f64)>,
    /// How far the goals were reached when they were read last; 1 is exactly.
    score: Option<f64>,
    /// The goal that was reached then and is a bound ([`Goal::is_bound`]), with the value of its
    /// metric. The first, if there are several.
    bound: Option<(Goal, f64)>,
    /// When that was.
    read_at: Option<Duration>,
    /// Whether the quota did not suffice in this period.
    exceeded: bool,
    /// The share of the quota that is in force.
    slowdown: Slowdown,
}

/// How many bytes goals of nodes are away.
#[derive(Debug, Default)]
struct Missing {
    /// For each node that is to be filled, the least of its goals.
    filled: BTreeMap<NodeId, u64>,
    /// The least of all other goals.
    least: Option<u64>,
}

impl Missing {
    fn take(&mut self, metric: &Metric, bytes: u64) {
        match metric {
            Metric::NodeUsed(part) => {
                let least = self.filled.entry(part.node).or_insert(bytes);
                *least = bytes.min(*least);
            }
            _ => self.least = Some(self.least.map_or(bytes, |least| least.min(bytes))),
        }
    }

    /// A scheme that fills several nodes has to fill all of them. Otherwise, the goal that is closest counts.
    fn bytes(&self) -> u64 {
        let filled = self.filled.values().copied().reduce(u64::saturating_add);
        [filled, self.least].into_iter().flatten().min().unwrap_or(u64::MAX)
    }
}

/// How many bytes goals of nodes are away now. `None` if that is not known of a goal.
pub(crate) fn missing(quota: &Quota, gauges: &mut impl Gauges, snapshot: &Snapshot) -> Option<u64> {
    let mut missing = Missing::default();
    for goal in quota.goals() {
        let Some(value) = gauges.read(goal.metric(), snapshot) else { continue };
        missing.take(goal.metric(), goal.missing(value, gauges.size(goal.metric())?));
    }
    Some(missing.bytes())
}

impl QuotaUse {
    pub(crate) fn new(quota: &Quota) -> Self {
        Self {
            began: None,
            charged: 0,
            spent: Duration::ZERO,
            recent_bytes: 0.0,
            recent_seconds: 0.0,
            tuner: (!quota.goals().is_empty()).then(|| Tuner::new(quota.bytes())),
            missing: None,
            stalled: None,
            score: None,
            bound: None,
            read_at: None,
            exceeded: false,
            slowdown: Slowdown::default(),
        }
    }

    /// Takes in how much of what was freed came back. If that is too much, less of the quota is in force.
    pub(crate) fn judge(&mut self, now: Duration, window: Duration, seen: Tally) -> Option<Judgement> {
        self.slowdown.take(now, window, seen)
    }

    /// The share of `quota` that is in force. `None` if it is all of it.
    pub(crate) fn share(&self, quota: &Quota) -> Option<f64> {
        let share = self.slowdown.share();
        (self.is_slowed() && self.limit(quota).is_some()).then_some(share)
    }

    fn is_slowed(&self) -> bool {
        self.slowdown.share() < 1.0
    }

    fn slowed(&self, bytes: u64) -> u64 {
        // Not all whole numbers survive the conversion to f64 and back.
        if self.is_slowed() { (bytes as f64 * self.slowdown.share()) as u64 } else { bytes }
    }

    fn slowed_time(&self, time: Duration) -> Duration {
        if self.is_slowed() { time.mul_f64(self.slowdown.share()) } else { time }
    }

    /// Puts another quota in force. The use in this period stays as it is.
    pub(crate) fn replace(&mut self, quota: &Quota) {
        self.tuner = Self::new(quota).tuner;
        self.missing = None;
        self.stalled = None;
        self.score = None;
        self.bound = None;
        self.read_at = None;
    }

    /// The goal that is reached now and is a bound, with the value of its metric. Reads the goals, unless that was done
    /// for this snapshot.
    pub(crate) fn bound(
        &mut self,
        quota: &Quota,
        gauges: &mut impl Gauges,
        snapshot: &Snapshot,
    ) -> Option<(Goal, f64)> {
        if self.read_at == Some(snapshot.time) {
            return self.bound.clone();
        }
        let mut bounds = quota.goals().iter().filter(|goal| goal.is_bound());
        bounds.find_map(|goal| {
            let value = gauges.read(goal.metric(), snapshot)?;
            (goal.score(value) >= 1.0).then(|| (goal.clone(), value))
        })
    }

    /// Begins another period if the present one is over, and tunes the quota.
    pub(crate) fn begin(&mut self, quota: &Quota, now: Duration, gauges: &mut impl Gauges, snapshot: &Snapshot) {
        let Some(began) = self.began else {
            self.began = Some(now);
            self.read_goals(quota, now, gauges, snapshot);
            return;
        };
        let passed = now.saturating_sub(began).as_nanos() / quota.period().as_nanos();
        if passed == 0 {
            return;
        }
        let passed = u32::try_from(passed).unwrap_or(u32::MAX);
        self.began = Some(began + quota.period().saturating_mul(passed));
        let before = self.limit(quota);
        // Goals do not make up for the slowdown.
        let exhausted = !self.is_slowed() && (self.exceeded || before.is_some_and(|limit| self.charged >= limit / 2));
        if let Some(score) = self.read_goals(quota, now, gauges, snapshot)
            && self.missing.is_none()
            && let Some(tuner) = &mut self.tuner
        {
            tuner.period(score, exhausted, quota.bytes());
        }
        self.charged = 0;
        self.exceeded = false;
        let paid = quota.time().map_or(self.spent, |time| self.slowed_time(time).saturating_mul(passed));
        self.spent = self.spent.saturating_sub(paid);
    }

    /// Reads the goals, and returns how far the one that is reached best is reached. `None` if no metric has a value.
    fn read_goals(
        &mut self,
        quota: &Quota,
        now: Duration,
        gauges: &mut impl Gauges,
        snapshot: &Snapshot,
    ) -> Option<f64> {
        let mut best: Option<f64> = None;
        self.bound = None;
        self.read_at = Some(now);
        for goal in quota.goals() {
            let Some(value) = gauges.read(goal.metric(), snapshot) else {
                continue;
            };
            let value = if *goal.metric() == Metric::StallTime {
                let before = self.stalled.replace((now, value));
                let Some((then, before)) = before.filter(|(then, _)| *then < now) else {
                    continue;
                };
                (value - before).max(0.0) / (now - then).as_secs_f64() * quota.period().as_secs_f64()
            } else {
                value
            };
            let score = goal.score(value);
            if goal.is_bound() && score >= 1.0 {
                self.bound.get_or_insert_with(|| (goal.clone(), value));
            }
            best = Some(best.map_or(score, |best| best.max(score)));
        }
        if best.is_some() {
            self.missing = missing(quota, gauges, snapshot);
        }
        self.score = best;
        best
    }

    /// The bytes that the goals allow in a period.
    fn wanted(&self) -> Option<u64> {
        if self.bound.is_some() {
            return Some(0);
        }
        self.missing.or_else(|| self.tuner.as_ref().map(Tuner::quota))
    }

    /// How far the goals were reached when they were read last; 1 is exactly.
    pub(crate) const fn score(&self) -> Option<f64> {
        self.score
    }

    /// The bytes that a whole period allows. `None` if nothing limits it.
    pub(crate) fn limit(&self, quota: &Quota) -> Option<u64> {
        let limits = [
            self.limit_without_goals(quota),
            self.wanted().filter(|&wanted| wanted < u64::MAX).map(|wanted| self.slowed(wanted)),
        ];
        limits.into_iter().flatten().min()
    }

    /// The same, whatever the goals allow.
    pub(crate) fn limit_without_goals(&self, quota: &Quota) -> Option<u64> {
        let limits = [quota.bytes(), quota.time().map(|time| self.bytes_in(time))];
        limits.into_iter().flatten().min().filter(|&limit| limit < u64::MAX).map(|limit| self.slowed(limit))
    }

    /// The bytes that may still be acted on in this period, if an action takes at least `granule` bytes.
    fn left(&self, quota: &Quota, granule: u64) -> u64 {
        let wanted = self.wanted().map_or(u64::MAX, |limit| self.slowed(limit).saturating_sub(self.charged));
        wanted.min(self.left_without_goals(quota, granule))
    }

    /// The same, whatever the goals allow.
    fn left_without_goals(&self, quota: &Quota, granule: u64) -> u64 {
        let bytes = quota.bytes().map_or(u64::MAX, |limit| self.slowed(limit).saturating_sub(self.charged));
        let Some(time) = quota.time() else {
            return bytes;
        };
        let rest = self.slowed_time(time).saturating_sub(self.spent);
        let timed = match self.spent.is_zero() {
            // A period without debt may act once, however slow the action is. The periods that follow pay for it.
            true => self.bytes_in(rest).max(granule),
            false => self.bytes_in(rest),
        };
        bytes.min(timed)
    }

    /// The bytes that can be acted on in this time, at the recent speed.
    fn bytes_in(&self, time: Duration) -> u64 {
        if time.is_zero() {
            return 0;
        }
        if self.recent_bytes == 0.0 && self.recent_seconds == 0.0 {
            return FIRST_BYTES;
        }
        // A cast from f64 saturates: an action that takes no time has no limit.
        (self.recent_bytes * (time.as_secs_f64() / self.recent_seconds)) as u64
    }

    /// Charges `bytes` that were acted on and `inspected` bytes whose pages were inspected, which together took `time`.
    fn charge(&mut self, bytes: u64, inspected: u64, time: Duration) {
        self.charged = self.charged.saturating_add(bytes);
        self.spent = self.spent.saturating_add(time);
        self.recent_bytes = self.recent_bytes / 2.0 + bytes.max(inspected) as f64;
        self.recent_seconds = self.recent_seconds / 2.0 + time.as_secs_f64();
    }

    /// Notes that the quota did not suffice. Returns whether that is the first time in this period. Where the goals are
    /// reached, there is nothing that it should suffice for.
    fn exceed(&mut self) -> bool {
        self.missing != Some(0) && !std::mem::replace(&mut self.exceeded, true)
    }
}

/// What a scheme may use: its own budget, that of the scheme whose quota it shares, and its share of what all schemes
/// may do.
pub(crate) struct QuotaLimits<'a> {
    pub quota: &'a Quota,
    pub budget: &'a mut QuotaUse,
    /// The quota that is shared, and what was used of it.
    pub shared: Option<(&'a Quota, &'a mut QuotaUse)>,
    pub share: &'a mut Share,
}

impl QuotaLimits<'_> {
    /// The bytes that a whole period allows. `None` if nothing limits it.
    pub(crate) fn limit(&self) -> Option<u64> {
        self.within_share(self.budget.limit(self.quota))
    }

    /// The same, whatever the goals allow.
    pub(crate) fn limit_without_goals(&self) -> Option<u64> {
        self.within_share(self.budget.limit_without_goals(self.quota))
    }

    fn within_share(&self, limit: Option<u64>) -> Option<u64> {
        limit.into_iter().chain(self.share.whole).min()
    }

    /// The bytes that may still be acted on in this period, if an action takes at least `granule` bytes.
    pub(crate) fn left(&self, granule: u64) -> u64 {
        self.budget.left(self.quota, granule).min(self.left_of_others(granule))
    }

    /// The same, whatever the goals of the scheme allow.
    pub(crate) fn left_without_goals(&self, granule: u64) -> u64 {
        self.budget.left_without_goals(self.quota, granule).min(self.left_of_others(granule))
    }

    /// What the quota that is shared and the limits of all schemes leave.
    fn left_of_others(&self, granule: u64) -> u64 {
        let of_owner = self.shared.as_ref().map_or(u64::MAX, |(quota, of)| of.left_without_goals(quota, granule));
        of_owner.min(self.share.left)
    }

    /// Charges `bytes` that were acted on and `inspected` bytes whose pages were inspected, which together took `time`.
    pub(crate) fn charge(&mut self, bytes: u64, inspected: u64, time: Duration) {
        self.share.left = self.share.left.saturating_sub(bytes);
        let shared = self.shared.as_mut().map(|(_, budget)| &mut **budget);
        [Some(&mut *self.budget), shared].into_iter().flatten().for_each(|of| of.charge(bytes, inspected, time));
    }

    /// Notes that the quota did not suffice. Returns whether that is the first time in this period. Where the limits of
    /// all schemes did not, another quota would change nothing.
    pub(crate) fn exceed(&mut self, granule: u64) -> bool {
        let is_own = self.budget.left(self.quota, granule) <= self.share.left;
        is_own && self.budget.exceed()
    }
}
