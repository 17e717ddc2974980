//! An estimate with its bounds.

use std::fmt;
use std::ops::AddAssign;

use crate::survey::WINDOWS;
use crate::{PAGE_SIZE, units};

/// An estimated number of bytes, with bounds that hold the true number in 19 of 20 cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// The lower bound. Unknown memory counts as not accessed.
    pub low: u64,
    /// The most likely number.
    pub value: u64,
    /// The upper bound. Unknown memory counts as accessed.
    pub high: u64,
}

impl Estimate {
    /// A number without any error.
    pub const fn exact(value: u64) -> Self {
        Self { low: value, value, high: value }
    }

    /// The rest of `whole`, which is exact.
    pub const fn rest_of(self, whole: u64) -> Self {
        Self {
            low: whole.saturating_sub(self.high),
            value: whole.saturating_sub(self.value),
            high: whole.saturating_sub(self.low),
        }
    }
}

/// `256 MiB (243 to 269 MiB)`. A number without any error has no bounds.
impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { low, value, high } = *self;
        let is_exact = (low, high) == (value, value);
        f.write_str(&if is_exact { units::bytes(value) } else { units::bounded(value, low, high) })
    }
}

/// Bounds of a sum that hold it, whatever the errors of its parts have in common.
impl AddAssign for Estimate {
    fn add_assign(&mut self, other: Self) {
        self.low += other.low;
        self.value += other.value;
        self.high += other.high;
    }
}

/// The 97.5 % quantile of the normal distribution.
const Z: f64 = 1.96;

/// The number of windows.
pub(super) const COUNT: usize = WINDOWS.len();

/// What is known of the accesses of a page within a window, by how much that says: of several that hold for views
/// of a page frame, the last one holds for the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Seen {
    /// It was not accessed.
    Idle,
    /// It may have been accessed.
    Unknown,
    /// The same, and after the last clear it was accessed as soon as the window is long.
    Likely,
    /// It was accessed.
    Used,
}

/// The pages of a panel in some memory, by what is known of their accesses within a window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Watched {
    /// The pages of the memory.
    pub(super) pages: f64,
    /// The pages of the panel that tell the window.
    pub(super) members: f64,
    /// The sum of the squares of the numbers of members that share an accessed bit, each by the chance that it is not
    /// in the panel: 0 if the panel has all pages.
    pub(super) squares: f64,
    /// The members that were accessed.
    pub(super) used: f64,
    /// They may have been accessed: their accessed bits cannot be cleared, or were cleared later.
    pub(super) unknown: f64,
    /// Of these, the pages that have been accessed as soon after the last clear as the window is long.
    pub(super) likely: f64,
    /// They belong to targets that have not run within the window, so that they were not accessed.
    pub(super) at_rest: f64,
    /// All pages of these targets.
    pub(super) pages_at_rest: f64,
    /// The most pages that there may be besides those of the memory. Nothing is known of them.
    pub(super) missing: f64,
    /// How many pages of the memory count more than once, because several targets map them, about.
    pub(super) again: f64,
}

impl AddAssign for Watched {
    fn add_assign(&mut self, other: Self) {
        self.pages += other.pages;
        self.members += other.members;
        self.squares += other.squares;
        self.used += other.used;
        self.unknown += other.unknown;
        self.likely += other.likely;
        self.at_rest += other.at_rest;
        self.pages_at_rest += other.pages_at_rest;
        self.missing += other.missing;
        self.again += other.again;
    }
}

impl Watched {
    /// Nothing is known of so many pages.
    pub(super) fn of(pages: u64) -> Self {
        Self { pages: pages as f64, ..Self::default() }
    }

    /// Adds pages in this state; subtracts them if `weight` is negative.
    pub(super) fn add(&mut self, seen: Seen, weight: f64) {
        match seen {
            Seen::Idle => {}
            Seen::Unknown => self.unknown += weight,
            Seen::Likely => (self.unknown, self.likely) = (self.unknown + weight, self.likely + weight),
            Seen::Used => self.used += weight,
        }
    }

    /// Adds pages of a target that has not run, each of which stands for so many of the memory.
    pub(super) fn add_at_rest(&mut self, weight: f64, each: f64) {
        self.at_rest += weight;
        self.pages_at_rest += weight * each;
    }

    /// The same memory, if its target has not run within the window.
    pub(super) fn resting(self) -> Self {
        let Self { pages, members, squares, .. } = self;
        Self { pages, members, squares, at_rest: members, pages_at_rest: pages, ..Self::default() }
    }

    /// The pages of the memory of targets that have run within the window.
    pub(super) fn pages_that_ran(&self) -> f64 {
        self.pages - self.pages_at_rest
    }

    /// The bytes that were accessed within the window.
    pub(super) fn estimate(self) -> Estimate {
        let Self { squares, used, unknown, likely, missing, again, .. } = self;
        let pages = self.pages_that_ran().max(0.0);
        let bytes = |share: f64, missing: f64| (share * pages + missing).max(0.0).round() as u64 * PAGE_SIZE;
        let members = self.members - self.at_rest;
        if members < 1.0 {
            return Estimate { low: 0, value: 0, high: bytes(1.0, missing) };
        }
        let likely = (used + likely) / members;
        let variance = squares / (self.members * members);
        let twice = bytes((again / self.pages.max(1.0)).min(1.0), 0.0);
        // What is missing, or counts again, is in use like the rest, as far as it is known.
        let value = bytes(likely, likely * (missing - again));
        let low = bytes(wilson(used / members, variance).0, 0.0).saturating_sub(twice);
        let high = bytes(wilson((used + unknown) / members, variance).1, missing);
        // Bytes are rounded to pages.
        Estimate { low: low.min(value), value, high: high.max(value) }
    }
}

/// The bounds of a share that was found in a sample, where the estimate of the share `p` has the variance
/// `variance * p * (1 - p)` (Wilson, "Probable inference", 1927).
fn wilson(share: f64, variance: f64) -> (f64, f64) {
    let z2 = Z * Z * variance;
    let middle = (share + z2 / 2.0) / (1.0 + z2);
    let half = (z2 * share * (1.0 - share) + z2 * z2 / 4.0).max(0.0).sqrt() / (1.0 + z2);
    ((middle - half).clamp(0.0, 1.0), (middle + half).clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    #[test]
    fn bounds_hold_the_true_share_in_19_of_20_samples() {
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        for (share, count) in [(0.001, 4000), (0.01, 2000), (0.1, 400), (0.5, 100), (0.97, 400)] {
            let held = (0..2000).filter(|_| {
                let used = (0..count).filter(|_| rng.random_bool(share)).count() as f64;
                let (low, high) = wilson(used / f64::from(count), 1.0 / f64::from(count));
                (low..=high).contains(&share)
            });
            let held = held.count();
            assert!(held >= 1870, "{held} of 2000 at {share}");
        }
    }

    #[test]
    fn a_panel_of_all_pages_is_exact_and_what_is_unknown_widens_the_bounds() {
        let known = |used, unknown| Watched {
            pages: 1000.0,
            members: 1000.0,
            used,
            unknown,
            likely: unknown / 2.0,
            ..Watched::default()
        };
        let all = 300 * PAGE_SIZE;
        assert_eq!(known(300.0, 0.0).estimate(), Estimate { low: all, value: all, high: all });
        let half = Estimate { low: all, value: 400 * PAGE_SIZE, high: 500 * PAGE_SIZE };
        assert_eq!(known(300.0, 200.0).estimate(), half);
    }
}
