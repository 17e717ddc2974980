//! A window of time, and the pages of the panel that tell what was accessed within it.
//!
//! The panel has had a share of all pages since the window began: the least share that was in force. The pages with the
//! lowest places are in all of these panels ([`places`](super::places)), and tell the window. Later pages say nothing
//! of it, whether they were accessed or not.

use super::EACH;
use super::estimate::{COUNT, Seen, Watched};
use super::member::{Member, Tick};
use super::places::Part;
use crate::survey::BLOCK_PAGES;

/// One window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// It holds the accesses that the readings after this one have found. 0 if it goes back to before the first one.
    pub(super) begin: Tick,
    /// The last reading.
    pub(super) now: Tick,
    /// The share of all pages that has been in the panel since the window began.
    pub(super) rate: f64,
    /// These pages. `None` if they are all pages of the panel.
    pub(super) part: Option<Part>,
}

/// Which of these windows, the shortest first, begin with the same reading as the previous one, so that both hold the
/// same. All that go back to before the first reading do.
pub(super) fn repeats(windows: &[Window; COUNT]) -> [bool; COUNT] {
    std::array::from_fn(|nth| nth > 0 && windows[nth].begin == windows[nth - 1].begin)
}

impl Window {
    /// Whether a page of the panel has been in it since the window began, or would have been if it had been in memory.
    pub(super) fn has(&self, member: &Member) -> bool {
        self.part.is_none_or(|part| part.contains(member.place))
    }

    /// What is known of a page of the panel.
    pub(super) fn seen(&self, member: &Member) -> Seen {
        member.within(self.begin, self.now)
    }

    /// The weight of each of these pages that share an accessed bit, and the square of their sum by the chance that the
    /// panel has other pages.
    pub(super) fn weigh(&self, same: &[Member]) -> (f64, f64) {
        let is_huge = same.first().is_some_and(|member| member.is_huge);
        let count = || same.iter().filter(|member| self.has(member)).count().max(1) as f64;
        let expected = self.rate * if is_huge { BLOCK_PAGES as f64 } else { 1.0 };
        if is_huge && expected >= EACH {
            (expected / count(), 0.0)
        } else if expected >= 1.0 {
            // Each has as many as expected, or one more or less.
            (1.0, f64::from(u8::from(is_huge)))
        } else {
            (1.0, count().powi(2) * (1.0 - expected))
        }
    }

    /// Adds pages that share an accessed bit to what is known.
    pub(super) fn count(&self, same: &[Member], known: &mut Watched) {
        let (weight, square) = self.weigh(same);
        let before = known.members;
        for member in same.iter().filter(|member| self.has(member)) {
            known.members += weight;
            known.add(self.seen(member), weight);
        }
        if known.members > before {
            known.squares += square;
        }
    }
}
