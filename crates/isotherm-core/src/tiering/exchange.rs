//! The exchange: which memory of a full fast tier makes room for hot memory that waits for it.
//!
//! Memory is compared by its rank. What waits is ranked by the share of the last nine looks that have found it
//! accessed, and what makes room by how it was used before it became idle. A look is a survey, or a look at a
//! recording.

use std::time::Duration;

use crate::survey::{Fading, RECENT_SURVEYS};

/// Memory makes room for hot memory only if this many looks, at least, have found it idle.
pub const EXCHANGE_IDLE: u32 = 2;

/// Memory that was used before is used less now if its idle time is no more likely than this times the number of looks
/// that have found it idle. That is how likely the other explanation is: about one page in two hundred ceases to be
/// used in each look.
const CEASES: f64 = 0.005;

/// How many accesses, and how many looks without one, are supposed to have been before the looks that are known: most
/// memory is used in nearly all looks, or in hardly any.
const SUPPOSED: f64 = 0.25;

/// What comes is accessed this many times as often as what makes room for it, at least.
const MARGIN: f64 = 2.0;

/// Within [`REPAID`](super::REPAID) after memory was promoted, it takes this many times as much evidence that it is
/// used less: where its use before is known, and where it is not. Of memory that was promoted for two accesses, the
/// next one may take long to come.
const SOON: f64 = 1.5;
const SOON_AND_SELDOM: f64 = 3.0;

/// The highest rank.
const HIGHEST: u32 = RECENT_SURVEYS.ilog2();

/// The rank of memory that this share of the last nine looks, 0 to 1, has found accessed. Shares are known in steps in
/// which they double, and the rank grows by one with each.
pub fn rank(share: f64) -> u32 {
    (0..HIGHEST).find(|halvings| share >= 0.5_f64.powi(*halvings as i32)).map_or(0, |halvings| HIGHEST - halvings)
}

impl Fading {
    /// The lowest rank of hot memory for which this memory makes room. `None` if it makes room for none. `patience` is
    /// how many times as much evidence as otherwise it takes, at least 1. `soon` says that the memory was promoted
    /// within [`REPAID`](crate::tiering::REPAID).
    pub fn makes_room_for(self, patience: f64, soon: bool) -> Option<u32> {
        let more = |times: f64| if soon { patience * times } else { patience };
        if self.idle < EXCHANGE_IDLE {
            return None;
        }
        let idle = f64::from(self.idle);
        if self.accessed > 0 {
            return (self.probability() <= (CEASES * idle).powf(more(SOON))).then_some(0);
        }
        // It was accessed once in this time, at most.
        let least = MARGIN * more(SOON_AND_SELDOM) / idle;
        (0..=HIGHEST).find(|rank| 0.5_f64.powi((HIGHEST - rank) as i32) >= least)
    }

    /// The probability of this idle time if the memory is still used as before, by the rule of succession: each look
    /// finds it idle with the chance that the looks before suggest.
    fn probability(self) -> f64 {
        let before = f64::from(self.before.max(self.accessed));
        let idle_before = before - f64::from(self.accessed) + SUPPOSED;
        let looks = (0..self.idle).map(f64::from);
        looks.map(|nth| (idle_before + nth) / (before + 2.0 * SUPPOSED + nth)).product()
    }
}

/// No more than this share of what was moved is to come back soon.
const MUCH: f64 = 0.04;

/// Where no more than this share comes back, the patience falls again.
const LITTLE: f64 = 0.02;

/// By how much the patience grows in a second, and falls. It grows fast: what comes back was moved up to a minute ago,
/// and until the patience is high enough, more is moved that will come back. It falls from the most to the least in
/// 40 s: while it is high, a set of memory that is not used any more keeps its place.
const GROWTH: f64 = 1.3;
const FALL: f64 = 0.94;

/// The most patience. With it, memory makes room that 36 looks have found idle, for memory that nine looks have found
/// accessed. So a set of memory comes to its place even if others took turns before.
const MOST_PATIENCE: f64 = 12.0;

/// What was moved, and what came back, counts less by a factor of `e` after this time. It is shorter than the minute in
/// which memory may come back: a large amount that was moved, such as memory that was never accessed, is not to hide
/// what comes back later.
const FORGOTTEN: Duration = Duration::from_secs(20);

/// How much evidence memory needs to be demoted, by how much of what was moved recently was moved back within a minute.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    factor: f64,
    /// Bytes that were moved, and that came back: sums of which a part is forgotten in each second.
    moved: f64,
    back: f64,
    /// When it was judged last.
    judged: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { factor: 1.0, moved: 0.0, back: 0.0, judged: Duration::ZERO }
    }
}

impl Patience {
    /// How many times as much evidence as at first it takes, and how many times the idle time after which memory is
    /// demoted: at least 1.
    pub const fn factor(&self) -> f64 {
        self.factor
    }

    /// Takes in at the time `now` how many bytes have been moved since the last call, in both directions together, and
    /// how many of them within a minute after they had been moved in the other direction.
    pub fn take(&mut self, now: Duration, moved: u64, back: u64) {
        self.moved += moved as f64;
        self.back += back as f64;
        let passed = now.saturating_sub(self.judged).as_secs_f64();
        if passed < 1.0 {
            return;
        }
        self.judged = now;
        if self.back > self.moved * MUCH {
            self.factor = (self.factor * GROWTH.powf(passed)).min(MOST_PATIENCE);
        } else if self.back <= self.moved * LITTLE {
            self.factor = (self.factor * FALL.powf(passed)).max(1.0);
        }
        let kept = (-passed / FORGOTTEN.as_secs_f64()).exp();
        (self.moved, self.back) = (self.moved * kept, self.back * kept);
    }
}

/// Hot memory that waits for room in a full fast tier.
#[derive(Clone, Copy, Debug, Default)]
pub struct Waiting {
    /// Bytes by their rank.
    bytes: [u64; HIGHEST as usize + 1],
    /// Bytes for which there is room, or room was made. The highest ranks come first.
    served: u64,
}

impl Waiting {
    /// Takes in memory of this rank.
    pub fn add(&mut self, rank: u32, bytes: u64) {
        self.bytes[rank.min(HIGHEST) as usize] += bytes;
    }

    /// Takes in that there is room for this many bytes more.
    pub fn serve(&mut self, bytes: u64) {
        self.served = self.served.saturating_add(bytes);
    }

    /// All bytes, whether there is room for them or not.
    pub fn bytes(&self) -> u64 {
        self.bytes.iter().sum()
    }

    /// The bytes of at least this rank for which there is no room yet.
    pub fn left(&self, least: u32) -> u64 {
        self.bytes.iter().skip(least as usize).sum::<u64>().saturating_sub(self.served)
    }

    /// Takes in all that waits elsewhere.
    pub fn join(&mut self, other: Self) {
        self.bytes.iter_mut().zip(other.bytes).for_each(|(all, more)| *all += more);
        self.serve(other.served.min(other.bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After how many idle looks memory makes room that `accessed` of `before` looks have found accessed.
    fn makes_room_after(accessed: u32, before: u32, soon: bool) -> u32 {
        (1..100).find(|&idle| Fading { idle, accessed, before }.makes_room_for(1.0, soon).is_some()).unwrap_or(100)
    }

    #[test]
    fn the_more_often_memory_was_used_the_sooner_it_is_known_to_be_idle() {
        assert_eq!(makes_room_after(7, 7, false), 2);
        assert!((3..=5).contains(&makes_room_after(4, 5, false)), "{}", makes_room_after(4, 5, false));
        assert!(makes_room_after(2, 4, false) >= 8, "that may be chance");
        assert!(makes_room_after(6, 7, true) > makes_room_after(6, 7, false), "it came a moment ago");
    }

    #[test]
    fn memory_that_was_not_used_makes_room_for_hotter_memory_the_longer_it_is_idle() {
        let least = |idle| Fading::new(idle, 0, 100).makes_room_for(1.0, false);
        assert_eq!([1, 2, 4, 8, 36].map(least), [None, Some(3), Some(2), Some(1), Some(0)]);
        let last = |idle| Fading::new(idle, 0, 100).makes_room_for(MOST_PATIENCE, false);
        assert_eq!([9, 36, 1152].map(last), [None, Some(3), Some(0)], "whatever came back");
    }

    #[test]
    fn what_is_hottest_is_served_first() {
        let mut waiting = Waiting::default();
        [(1.0, 10), (0.5, 20), (0.3, 5)].iter().for_each(|&(share, bytes)| waiting.add(rank(share), bytes));
        assert_eq!([0, 1, 2, 3].map(|least| waiting.left(least)), [35, 35, 30, 10]);
        waiting.serve(12);
        assert_eq!([0, 1, 2, 3].map(|least| waiting.left(least)), [23, 23, 18, 0]);
    }

    #[test]
    fn the_patience_grows_while_memory_moves_back_and_falls_again() {
        let mut patience = Patience::default();
        let mut after = |from: u64, to: u64, back: u64| {
            (from..to).for_each(|second| patience.take(Duration::from_secs(second), 100, back));
            patience.factor()
        };
        assert!(after(1, 60, 3) <= 1.0, "3 %");
        assert!(after(60, 120, 10) >= MOST_PATIENCE);
        assert!(after(120, 400, 0) <= 1.0);
    }
}
