//! The slowdown of a scheme: how much of its quota is in force, depending on how much of the freed memory comes back
//! soon.

use std::time::Duration;

use crate::PAGE_SIZE;

use super::victims::Tally;

/// More than one part in this many that comes back is too much.
const TOO_MUCH: u64 = 10;

/// With less memory freed than this, the share that comes back says nothing.
const LEAST_FREED: u64 = 64 * PAGE_SIZE;

/// The share of the quota that is always left.
const LEAST_SHARE: f64 = 1.0 / 64.0;

/// By how much the share grows when little comes back: less than it shrinks, so that one good window after another does
/// not undo the bad ones between them.
const GROWTH: f64 = 1.25;

/// The least time from one judgement to the next.
const LEAST_PACE: Duration = Duration::from_secs(1);

/// The share of the quota that is in force.
///
/// Once in a window it is judged what was freed and watched. The share is halved if more than a tenth came back. It
/// grows by a quarter if less did, or if nothing was freed.
#[derive(Clone, Debug)]
pub(crate) struct Slowdown {
    share: f64,
    judged: Duration,
    /// The memory that has not been evaluated yet.
    tally: Tally,
}

/// The result of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Judgement {
    pub tally: Tally,
    /// Whether too much came back.
    pub too_much: bool,
}

impl Default for Slowdown {
    fn default() -> Self {
        Self { share: 1.0, judged: Duration::ZERO, tally: Tally::default() }
    }
}

impl Slowdown {
    /// Takes in what was seen at the time `now` of the memory whose window is over. Returns a judgement at most once in
    /// a window, and only if enough was freed to say something.
    pub(crate) fn take(&mut self, now: Duration, window: Duration, seen: Tally) -> Option<Judgement> {
        self.tally.freed += seen.freed;
        self.tally.returned += seen.returned;
        if now < self.judged.saturating_add(window.max(LEAST_PACE)) {
            return None;
        }
        self.judged = now;
        if (1..LEAST_FREED).contains(&self.tally.freed) {
            return None;
        }
        let tally = std::mem::take(&mut self.tally);
        let too_much = tally.returned > tally.freed / TOO_MUCH;
        self.share = if too_much {
            (self.share / 2.0).max(LEAST_SHARE)
        } else {
            (self.share * GROWTH).min(Self::default().share)
        };
        (tally.freed > 0).then_some(Judgement { tally, too_much })
    }

    /// The share of the quota that is in force: above 0, at most 1.
    pub(crate) const fn share(&self) -> f64 {
        self.share
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WINDOW: Duration = Duration::from_secs(5);

    /// Takes in what was freed and came back in each window. Returns the share of the quota after that.
    fn after(windows: &[(u64, u64)]) -> f64 {
        let mut slowdown = Slowdown::default();
        for (nth, &(freed, returned)) in (1..).zip(windows) {
            slowdown.take(WINDOW * nth, WINDOW, Tally { freed, returned });
        }
        slowdown.share()
    }

    #[test]
    fn a_tenth_may_come_back_and_more_halves_the_quota() {
        assert_eq!(after(&[(LEAST_FREED * 10, LEAST_FREED)]), 1.0);
        assert_eq!(after(&[(LEAST_FREED * 10, LEAST_FREED + PAGE_SIZE)]), 0.5);
    }

    #[test]
    fn it_is_judged_once_in_a_window() {
        let mut slowdown = Slowdown::default();
        let seen = Tally { freed: LEAST_FREED, returned: LEAST_FREED };
        for now in 1..=14 {
            slowdown.take(Duration::from_secs(now), WINDOW, seen);
        }
        assert_eq!(slowdown.share(), 0.25);
    }

    #[test]
    fn little_memory_says_nothing_until_there_is_more() {
        let little = (LEAST_FREED / 2, LEAST_FREED / 2);
        assert_eq!(after(&[little]), 1.0);
        assert_eq!(after(&[little; 2]), 0.5);
    }

    proptest! {
        #[test]
        fn the_share_has_bounds(windows in prop::collection::vec((0_u64..1 << 30, 0_u64..1 << 30), 0..40)) {
            prop_assert!((LEAST_SHARE..=1.0).contains(&after(&windows)));
        }

        #[test]
        fn more_that_comes_back_never_leaves_more_quota(
            windows in prop::collection::vec((0_u64..1 << 30, 0_u64..1 << 30, 0_u64..1 << 30), 0..40),
        ) {
            let less: Vec<_> = windows.iter().map(|&(freed, back, _)| (freed, back)).collect();
            let more: Vec<_> = windows.iter().map(|&(freed, back, extra)| (freed, back + extra)).collect();
            prop_assert!(after(&more) <= after(&less));
        }

        #[test]
        fn the_whole_quota_is_in_force_again_when_nothing_comes_back(
            windows in prop::collection::vec((LEAST_FREED..1 << 30, 0_u64..1 << 30), 0..40),
            freed in prop_oneof![Just(0), LEAST_FREED..1 << 30],
        ) {
            let calm = [(freed, 0); 20];
            prop_assert_eq!(after(&[&windows[..], &calm].concat()), 1.0);
        }
    }
}
