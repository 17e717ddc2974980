//! The borders that a survey finds: where accessed and idle pages meet.

use super::block::Block;
use super::{BLOCK_PAGES, BLOCK_SIZE, PageBits};
use crate::{AddrRange, PAGE_SIZE};

/// Neighbouring present pages that are accessed alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stretch {
    /// From the first to the last page. Absent pages may lie between.
    pub range: AddrRange,
    /// The number of present pages.
    pub present: u64,
    /// The number of pages accessed in the last interval, or expected to be.
    pub touched: f64,
}

/// A gap of this many absent pages between two stretches weighs as much against merging them as one page that is
/// accessed and would lie among idle ones.
const GAP_PAGES: f64 = 64.0;

impl Stretch {
    fn share(&self) -> f64 {
        self.touched / self.present.max(1) as f64
    }

    /// What is lost if this stretch and `next` are merged: the sum of squared errors of their shares (as in Ward's
    /// method of clustering), and the gap between them.
    fn loss(&self, next: &Self) -> f64 {
        let (a, b) = (self.present as f64, next.present as f64);
        let gap = next.range.start().saturating_sub(self.range.end()) / PAGE_SIZE;
        a * b / (a + b) * (self.share() - next.share()).powi(2) + gap as f64 / GAP_PAGES
    }

    fn merged(&self, next: &Self) -> Option<Self> {
        let range = AddrRange::new(self.range.start(), next.range.end())?;
        Some(Self { range, present: self.present + next.present, touched: self.touched + next.touched })
    }

    /// Whether most of the stretch was accessed.
    pub(crate) fn is_touched(&self) -> bool {
        self.touched > 0.0
    }
}

/// Stretches are merged anyway if no more than this is lost: about as many pages that are accessed lie among idle ones,
/// or idle pages among accessed ones. Where pages are accessed at random times, chance makes stretches of a few pages
/// from survey to survey. Regions of these would have few samples each. With 0, 86 % of the frequencies of simulated
/// areas were right, with 1, 4, 8 and 16 there were 87, 93, 93 and 91 % (`bench/frequencies`).
const LEAST_LOSS: f64 = 4.0;

/// Stretches are merged if there are more than this many, so that the end of a survey does not take long.
const MOST: usize = 1 << 15;

/// The stretches of the blocks that were added, in the order of addresses.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Borders {
    stretches: Vec<Stretch>,
}

impl Borders {
    /// The stretches, at most `most` of them. Those are merged first that lose least.
    pub(super) fn stretches(mut self, most: usize) -> Vec<Stretch> {
        self.merge(most);
        self.stretches
    }

    /// Adds the stretches of a block, page by page.
    pub(super) fn add(&mut self, block: &Block<'_>) {
        let counts = block.counts();
        if counts.present == BLOCK_PAGES as u64 && counts.touched == 0.0 && block.is_exact() {
            // Most blocks are idle as a whole.
            let range = AddrRange::new(block.start, block.start.saturating_add(BLOCK_SIZE));
            range
                .into_iter()
                .for_each(|range| self.add_stretch(Stretch { range, present: counts.present, touched: 0.0 }, false));
            return;
        }
        let share = block.share.map_or(1.0, f64::from);
        let (touched, uncertain) = (block.touched(), block.uncertain());
        let (active, is_sure) = ((touched | uncertain) & block.present, uncertain.is_empty());
        // There can be hundreds of runs in a block.
        let mut begins = (active.changes() | (block.present & !active).changes()).iter().peekable();
        while let Some(start) = begins.next() {
            if !block.present.contains(start) {
                continue;
            }
            let (end, is_active) = (begins.peek().copied().unwrap_or(BLOCK_PAGES), active.contains(start));
            let at = |page: usize| block.start + page as u64 * PAGE_SIZE;
            let Some(range) = AddrRange::new(at(start), at(end)) else { continue };
            let touched = match (is_active, is_sure) {
                (false, _) => 0.0,
                (true, true) => (end - start) as f64,
                (true, false) => {
                    let pages = PageBits::of(start..end);
                    (pages & touched).count() as f64 + (pages & uncertain).count() as f64 * share
                }
            };
            self.add_stretch(Stretch { range, present: range.pages(), touched }, is_active);
        }
    }

    /// Adds a stretch, which may continue the last one.
    fn add_stretch(&mut self, new: Stretch, is_active: bool) {
        let both = self.stretches.last_mut().and_then(|last| {
            let is_alike = last.range.touches(new.range) && last.is_touched() == is_active;
            let both = last.merged(&new).filter(|_| is_alike);
            both.map(|both| *last = both)
        });
        if both.is_none() {
            self.stretches.push(new);
        }
    }

    /// Keeps at most `most` stretches, and no memory for more.
    pub(super) fn keep(&mut self, most: usize) {
        self.merge(most);
        self.stretches.shrink_to_fit();
    }

    /// Bounds the number of stretches.
    pub(super) fn limit(&mut self) {
        if self.stretches.len() > MOST {
            self.merge(MOST / 2);
        }
    }

    /// Merges those stretches first that lose least, up to [`LEAST_LOSS`], and until there are at most `most`.
    fn merge(&mut self, most: usize) {
        let mut limit = 0.5;
        while self.stretches.len() > most || limit <= LEAST_LOSS {
            self.stretches.dedup_by(|next, kept| {
                if kept.loss(next) > limit {
                    return false;
                }
                kept.merged(next).inspect(|both| *kept = *both).is_some()
            });
            limit *= 2.0;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    /// The number of pages of each stretch, of pages of which these were accessed.
    fn lengths(accessed: impl IntoIterator<Item = bool>) -> Vec<u64> {
        let mut borders = Borders::default();
        for (page, accessed) in (0_u64..).zip(accessed) {
            let range = AddrRange::new(page * PAGE_SIZE, (page + 1) * PAGE_SIZE).unwrap();
            borders.add_stretch(Stretch { range, present: 1, touched: f64::from(u8::from(accessed)) }, accessed);
        }
        borders.stretches(1000).iter().map(|stretch| stretch.present).collect()
    }

    #[test]
    fn sixteen_pages_in_use_among_idle_ones_have_borders_of_their_own() {
        assert_eq!(lengths((0..3000).map(|page| (1000..1016).contains(&page))), [1000, 16, 1984]);
        assert_eq!(lengths((0..3000).map(|page| !(1000..1016).contains(&page))), [1000, 16, 1984]);
    }

    #[test]
    fn pages_that_were_accessed_at_random_are_one_stretch() {
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        for share in [0.02, 0.1, 0.45, 0.9] {
            let found = lengths((0..2000).map(|_| rng.random_bool(share)));
            assert!(found.len() <= 12, "{share}: {found:?}");
        }
        assert_eq!(lengths((0..2000).map(|page| page == 1000)), [2000]);
    }
}
