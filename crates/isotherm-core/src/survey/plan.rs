//! When the next survey is due, and how much it may clear.

use std::time::Duration;

use super::SurveyLimits;

/// A survey comes this part of the interval after the one before, if there is much to learn: a program that has just
/// started is seen at once.
const SOON: u32 = 5;

/// At most this many surveys in a row come sooner than the interval, unless memory is being added.
const MOST_SOON: u32 = 10;

/// There is much to learn if at least this share of the memory is new since the survey before, or unknown.
const MUCH: f64 = 0.05;

/// When to survey, and what it may cost the targets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SurveyPlan {
    pub(crate) interval: Duration,
    pub(crate) limits: SurveyLimits,
    /// When the next survey is due, since the start of the run.
    pub(crate) due: Duration,
    /// When the last survey was.
    last: Option<Duration>,
    /// How many pages may be accessed again by what is cleared now. It grows with time, up to that of an interval.
    credit: f64,
    /// How many surveys in a row came sooner than the interval.
    soon: u32,
}

/// What a survey has found, as far as the time of the next one depends on it. Numbers of pages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Learned {
    /// In memory.
    pub(crate) present: u64,
    /// Never cleared, so that it is not known when they were accessed.
    pub(crate) unknown: u64,
    /// Whether a target has grown much.
    pub(crate) grows: bool,
}

impl Learned {
    /// Takes in that a target had `before` pages in memory, and has `now`.
    pub(crate) fn grown(&mut self, before: u64, now: u64) {
        self.present += now;
        self.grows |= now as f64 > before as f64 * (1.0 + MUCH);
    }
}

impl SurveyPlan {
    /// The first survey is due at once.
    pub(crate) fn new(interval: Duration, limits: SurveyLimits) -> Self {
        Self { interval, limits, due: Duration::ZERO, last: None, credit: limits.pages(interval), soon: 0 }
    }

    /// Begins the survey at `now`. Returns how many of the pages that it clears may be accessed again.
    pub(crate) fn begin(&mut self, now: Duration) -> f64 {
        let elapsed = now.saturating_sub(self.last.unwrap_or(now));
        self.credit = (self.credit + self.limits.pages(elapsed)).min(self.limits.pages(self.interval));
        self.last = Some(now);
        self.credit
    }

    /// Plans the next survey after the one at `now`, which has left `credit`.
    pub(crate) fn end(&mut self, now: Duration, learned: Learned, credit: f64) {
        self.credit = credit.max(0.0);
        let much_is_unknown = learned.unknown as f64 > learned.present as f64 * MUCH;
        self.soon = if much_is_unknown && !learned.grows { self.soon.saturating_add(1) } else { 0 };
        let soon = learned.grows || (much_is_unknown && self.soon <= MOST_SOON);
        self.due = now + if soon { self.interval / SOON } else { self.interval };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn surveys_come_sooner_while_there_is_much_to_learn_but_not_for_ever() {
        let mut plan = SurveyPlan::new(SECOND, SurveyLimits::default());
        let mut after = |learned| {
            let now = plan.due;
            plan.begin(now);
            plan.end(now, learned, 0.0);
            plan.due - now
        };
        let known = Learned { present: 1000, unknown: 10, grows: false };
        let (unknown, grows) = (Learned { unknown: 500, ..known }, Learned { grows: true, ..known });
        assert_eq!((after(known), after(grows)), (SECOND, SECOND / SOON));
        let soon = (0..100).filter(|_| after(unknown) < SECOND).count();
        assert_eq!(soon as u32, MOST_SOON);
        assert!((0..100).all(|_| after(grows) < SECOND));
    }

    #[test]
    fn the_credit_grows_with_time_up_to_that_of_an_interval() {
        let limits = SurveyLimits::default();
        let mut plan = SurveyPlan::new(SECOND, limits);
        assert_eq!(plan.begin(Duration::ZERO), limits.pages(SECOND));
        plan.end(Duration::ZERO, Learned::default(), 0.0);
        assert!((plan.begin(SECOND / 4) - limits.pages(SECOND / 4)).abs() < 1.0);
        plan.end(SECOND / 4, Learned::default(), 0.0);
        assert_eq!(plan.begin(SECOND * 9), limits.pages(SECOND));
    }
}
