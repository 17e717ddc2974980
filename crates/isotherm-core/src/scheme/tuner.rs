//! The tuner: a feedback loop that changes a quota until its goal is reached.
//!
//! The logarithm of the quota follows the error by a proportional and an integral part. The error is the relative
//! distance from the goal, smoothed over a few periods. The proportional part damps. The integral part finds the
//! magnitude of the quota, from kilobytes to gigabytes, in few periods. It is not known beforehand how strongly and
//! with which delay the quota changes the metric, and whether the effect accumulates, as it does for free memory. So
//! the gain of the integral part is halved whenever the error changes its sign. It grows again only while the goal
//! stays far away on one side for much longer than the last swing took. So the loop settles where a loop of fixed gain
//! would swing.
//!
//! The idea of moving the quota in proportion to the distance from the goal is DAMON's (Linux
//! `Documentation/mm/damon/design.rst`, "Aim-oriented Feedback-driven Auto-tuning"). The rest is isotherm's own. Of
//! the constants that were tried, these settle all plants of `tests/schemes/goals.rs` best.

use crate::PAGE_SIZE;

/// Where tuning begins, in bytes for each period, unless less is allowed.
const START: f64 = (4 << 20) as f64;
/// The smallest quota in bytes. It is not zero, so that the effect of the quota can always be measured.
const MIN_QUOTA: f64 = PAGE_SIZE as f64;
/// The largest quota in bytes.
const MAX_QUOTA: f64 = (1_u64 << 50) as f64;
/// The proportional part: by how many doublings a change of the error by 1 moves the quota.
const PROPORTIONAL: f64 = 1.25;
/// The weight of a new error in the smoothed one.
const SMOOTHING: f64 = 1.0 / 3.0;
/// The largest gain of the integral part: by how many doublings in each period an error of 1 moves the quota.
const MAX_GAIN: f64 = 0.25;
/// The smallest gain of the integral part.
const MIN_GAIN: f64 = 1.0 / 512.0;
/// Errors smaller than this one count as none.
const DEAD_BAND: f64 = 0.02;
/// The gain grows after this many periods on one side, or after twice as many as the last swing took, if that is more.
const PATIENCE: u32 = 12;
/// The gain grows only if the error is larger than this.
const FAR: f64 = 0.1;

/// Tunes the quota of one scheme.
#[derive(Clone, Debug)]
pub(crate) struct Tuner {
    /// In bytes.
    quota: f64,
    /// The gain of the integral part.
    gain: f64,
    /// The smoothed error.
    smooth: f64,
    /// The sign of the smoothed error when it last left the dead band; 0 before that.
    side: f64,
    periods_on_side: u32,
    /// How many periods the last swing to one side took.
    last_swing: u32,
}

impl Tuner {
    /// Begins with at most `ceiling` bytes for each period.
    pub(crate) fn new(ceiling: Option<u64>) -> Self {
        let quota = ceiling.map_or(START, |most| (most as f64).min(START));
        Self { quota, gain: MAX_GAIN, smooth: 0.0, side: 0.0, periods_on_side: 0, last_swing: 0 }
    }

    /// The quota in bytes for each period.
    pub(crate) fn quota(&self) -> u64 {
        // A cast from f64 saturates.
        self.quota as u64
    }

    /// Takes the `score` of the goals after a period; 1 means reached exactly. `exhausted` says whether the
    /// scheme used most of its quota: a quota that is not used does not grow.
    pub(crate) fn period(&mut self, score: f64, exhausted: bool, ceiling: Option<u64>) {
        if score.is_nan() {
            return;
        }
        let error = (1.0 - score).clamp(-1.0, 1.0);
        let before = self.smooth;
        self.smooth += (error - before) * SMOOTHING;
        self.adapt_gain();

        let integral = if error.abs() < DEAD_BAND { 0.0 } else { self.gain * self.smooth };
        let step = integral + PROPORTIONAL * (self.smooth - before);
        if step > 0.0 && !exhausted {
            return;
        }
        let most = ceiling.map_or(MAX_QUOTA, |most| most as f64).max(MIN_QUOTA);
        self.quota = (self.quota * step.exp2()).clamp(MIN_QUOTA, most);
    }

    /// Halves the gain when the error changes its sign, and raises it while the goal stays far away.
    fn adapt_gain(&mut self) {
        if self.smooth.abs() < DEAD_BAND {
            return;
        }
        let side = self.smooth.signum();
        if side == self.side {
            self.periods_on_side += 1;
            let long = PATIENCE.max(self.last_swing.saturating_mul(2));
            if self.periods_on_side >= long && self.smooth.abs() > FAR {
                self.gain = (self.gain * 1.1).min(MAX_GAIN);
            }
        } else {
            if self.side != 0.0 {
                self.gain = (self.gain / 2.0).max(MIN_GAIN);
            }
            self.side = side;
            self.last_swing = std::mem::take(&mut self.periods_on_side);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_stays_between_a_page_and_its_ceiling() {
        let mut tuner = Tuner::new(Some(10 << 20));
        for _ in 0..100 {
            tuner.period(0.0, true, Some(10 << 20));
        }
        assert_eq!(tuner.quota(), 10 << 20);
        for _ in 0..1000 {
            tuner.period(5.0, true, Some(10 << 20));
        }
        assert_eq!(tuner.quota(), PAGE_SIZE);
    }

    #[test]
    fn a_quota_that_is_not_used_does_not_grow() {
        let mut tuner = Tuner::new(None);
        let before = tuner.quota();
        tuner.period(0.1, false, None);
        assert_eq!(tuner.quota(), before);
        tuner.period(0.1, true, None);
        assert!(tuner.quota() > before);
    }
}
