//! The tuner: feedback that moves a quota until its goal is reached.
//!
//! The quota's logarithm follows the error, smoothed over a few periods, by a proportional and an integral part: the first
//! damps, the second finds the size of a quota, be it kilobytes or gigabytes, in few periods. How much of the world a quota moves is not known
//! beforehand, nor how late it is felt, nor whether it adds up (as free memory does); so the integral part is halved whenever the error
//! changes its sign, and grows again only while the goal stays far away on one side for much longer than any swing took. So it
//! settles where a loop of fixed gain would swing. Being proportional to the score's distance from the goal is DAMON's idea (Linux
//! `Documentation/mm/damon/design.rst`, "Aim-oriented Feedback-driven Auto-tuning"); the rest is ours, and its constants are those
//! of several tried that settled all plants of the tests best.

use crate::PAGE_SIZE;

/// Where tuning begins, in bytes a period, unless less is allowed.
const START: f64 = (4 << 20) as f64;
/// A quota is never tuned below this, so that it can be felt whether more is good.
const LEAST: f64 = PAGE_SIZE as f64;
const MOST: f64 = (1_u64 << 50) as f64;
/// How many doublings of the quota an error of 1 makes at once.
const PROPORTIONAL: f64 = 1.25;
/// The share of a new error that goes into the smoothed one.
const SMOOTHING: f64 = 1.0 / 3.0;
/// The bounds of the integral part's gain: doublings a period.
const FASTEST: f64 = 0.25;
const SLOWEST: f64 = 1.0 / 512.0;
/// An error that is smaller than this is none.
const DEAD_BAND: f64 = 0.02;
/// After so many periods on one side, or twice as many as the last swing took, and at least so far away, the gain grows again.
const PATIENCE: u32 = 12;
const FAR: f64 = 0.1;

/// Tunes one quota.
#[derive(Clone, Debug)]
pub(crate) struct Tuner {
    quota: f64,
    gain: f64,
    /// The error without the noise of single periods.
    smooth: f64,
    side: f64,
    periods_on_side: u32,
    last_swing: u32,
}

impl Tuner {
    /// Begins within `ceiling` bytes a period.
    pub(crate) fn new(ceiling: Option<u64>) -> Self {
        let quota = ceiling.map_or(START, |most| (most as f64).min(START));
        Self { quota, gain: FASTEST, smooth: 0.0, side: 0.0, periods_on_side: 0, last_swing: 0 }
    }

    /// Bytes a period.
    pub(crate) fn quota(&self) -> u64 {
        // A cast from f64 saturates.
        self.quota as u64
    }

    /// A period has passed in which the goal was reached by `score` (1: just so). `exhausted` says whether the scheme found
    /// use for most of its quota: one that nothing is left for does not grow.
    pub(crate) fn period(&mut self, score: f64, exhausted: bool, ceiling: Option<u64>) {
        if score.is_nan() {
            return;
        }
        let error = (1.0 - score).clamp(-1.0, 1.0);
        let before = self.smooth;
        self.smooth += (error - before) * SMOOTHING;
        self.keep_sides();

        let integral = if error.abs() < DEAD_BAND { 0.0 } else { self.gain * self.smooth };
        let step = integral + PROPORTIONAL * (self.smooth - before);
        if step > 0.0 && !exhausted {
            return;
        }
        let most = ceiling.map_or(MOST, |most| most as f64).max(LEAST);
        self.quota = (self.quota * step.exp2()).clamp(LEAST, most);
    }

    fn keep_sides(&mut self) {
        if self.smooth.abs() < DEAD_BAND {
            return;
        }
        let side = self.smooth.signum();
        if side == self.side {
            self.periods_on_side += 1;
            let long = PATIENCE.max(self.last_swing.saturating_mul(2));
            if self.periods_on_side >= long && self.smooth.abs() > FAR {
                self.gain = (self.gain * 1.1).min(FASTEST);
            }
        } else {
            if self.side != 0.0 {
                self.gain = (self.gain / 2.0).max(SLOWEST);
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
    fn a_ceiling_is_kept_and_a_quota_never_falls_to_nothing() {
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
    fn what_finds_no_use_does_not_grow() {
        let mut tuner = Tuner::new(None);
        let before = tuner.quota();
        tuner.period(0.1, false, None);
        assert_eq!(tuner.quota(), before);
        tuner.period(0.1, true, None);
        assert!(tuner.quota() > before);
    }
}
