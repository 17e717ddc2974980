//! Budgets: what of a quota is left at a moment.

use std::time::Duration;

use crate::Snapshot;

use super::tuner::Tuner;
use super::{Gauges, Metric, Quota};

/// As much is tried first, to learn how fast acting is here.
const FIRST_TRY: u64 = 1 << 20;

/// What of one scheme's quota was used.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    /// When the current period began; none before the first.
    began: Option<Duration>,
    /// Bytes in this period.
    charged: u64,
    /// Time in this period, with what earlier ones took too much of.
    spent: Duration,
    /// Bytes and seconds of late: their ratio is the speed.
    bytes_of_late: f64,
    seconds_of_late: f64,
    tuner: Option<Tuner>,
    /// The stall time at the last period's beginning.
    stalled: Option<(Duration, f64)>,
    /// What a goal stood at when it was last looked at; 1 is just reached.
    score: Option<f64>,
    exceeded: bool,
}

impl Budget {
    pub(crate) fn new(quota: &Quota) -> Self {
        Self {
            began: None,
            charged: 0,
            spent: Duration::ZERO,
            bytes_of_late: 0.0,
            seconds_of_late: 0.0,
            tuner: (!quota.goals().is_empty()).then(|| Tuner::new(quota.bytes())),
            stalled: None,
            score: None,
            exceeded: false,
        }
    }

    /// Another quota is in force: what this period used stays used.
    pub(crate) fn replace(&mut self, quota: &Quota) {
        self.tuner = Self::new(quota).tuner;
        self.stalled = None;
        self.score = None;
    }

    /// Begins another period if the last one is over, and then tunes.
    pub(crate) fn begin(&mut self, quota: &Quota, now: Duration, gauges: &mut impl Gauges, snapshot: &Snapshot) {
        let Some(began) = self.began else {
            self.began = Some(now);
            self.look(quota, now, gauges, snapshot);
            return;
        };
        let passed = now.saturating_sub(began).as_nanos() / quota.period().as_nanos();
        if passed == 0 {
            return;
        }
        let passed = u32::try_from(passed).unwrap_or(u32::MAX);
        self.began = Some(began + quota.period().saturating_mul(passed));
        let before = self.limit(quota);
        let exhausted = self.exceeded || before.is_some_and(|limit| self.charged >= limit / 2);
        if let Some(score) = self.look(quota, now, gauges, snapshot)
            && let Some(tuner) = &mut self.tuner
        {
            tuner.period(score, exhausted, quota.bytes());
        }
        self.charged = 0;
        self.exceeded = false;
        let paid = quota.time().map_or(self.spent, |time| time.saturating_mul(passed));
        self.spent = self.spent.saturating_sub(paid);
    }

    /// How far the goals are reached: that which is reached best. None if no metric is known.
    fn look(&mut self, quota: &Quota, now: Duration, gauges: &mut impl Gauges, snapshot: &Snapshot) -> Option<f64> {
        let mut best: Option<f64> = None;
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
            best = Some(best.map_or(score, |best| best.max(score)));
        }
        self.score = best;
        best
    }

    /// What all goals together stood at; 1 is just reached.
    pub(crate) const fn score(&self) -> Option<f64> {
        self.score
    }

    /// Bytes that a whole period allows; none if nothing limits it.
    pub(crate) fn limit(&self, quota: &Quota) -> Option<u64> {
        let tuned = self.tuner.as_ref().map(Tuner::quota);
        let timed = quota.time().map(|time| self.bytes_in(time));
        [quota.bytes(), tuned, timed].into_iter().flatten().min().filter(|&limit| limit < u64::MAX)
    }

    /// Bytes that may still be acted on in this period, where at least `granule` are acted on at once.
    pub(crate) fn left(&self, quota: &Quota, granule: u64) -> u64 {
        let tuned = self.tuner.as_ref().map(Tuner::quota);
        let bytes = [quota.bytes(), tuned].into_iter().flatten().min();
        let bytes = bytes.map_or(u64::MAX, |limit| limit.saturating_sub(self.charged));
        let Some(time) = quota.time() else {
            return bytes;
        };
        let rest = time.saturating_sub(self.spent);
        let timed = match self.spent.is_zero() {
            // However slow it is: a period that owes nothing may act once, and then those that follow pay for it.
            true => self.bytes_in(rest).max(granule),
            false => self.bytes_in(rest),
        };
        bytes.min(timed)
    }

    /// How many bytes can be acted on in this time, by the speed of late.
    fn bytes_in(&self, time: Duration) -> u64 {
        if time.is_zero() {
            return 0;
        }
        if self.bytes_of_late == 0.0 && self.seconds_of_late == 0.0 {
            return FIRST_TRY;
        }
        // A cast from f64 saturates: what takes no time has no limit.
        (self.bytes_of_late * (time.as_secs_f64() / self.seconds_of_late)) as u64
    }

    /// So many bytes were acted on, and so many looked at for it, in this time.
    pub(crate) fn charge(&mut self, bytes: u64, looked_at: u64, time: Duration) {
        self.charged = self.charged.saturating_add(bytes);
        self.spent = self.spent.saturating_add(time);
        self.bytes_of_late = self.bytes_of_late / 2.0 + bytes.max(looked_at) as f64;
        self.seconds_of_late = self.seconds_of_late / 2.0 + time.as_secs_f64();
    }

    /// Something was held back. True for the first time in a period.
    pub(crate) fn exceed(&mut self) -> bool {
        !std::mem::replace(&mut self.exceeded, true)
    }
}
