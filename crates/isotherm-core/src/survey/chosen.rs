//! Chooses the pages that a survey clears.

use rand::{Rng, RngExt};

use super::block::{HOT_SHARE, Wanted};
use super::{ClearPages, PageBits, PartUpdate};

/// How many pages may be cleared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClearLimits {
    /// The most pages that the target may be expected to access again. If the panel is not all memory, the pages
    /// outside of it.
    pub again: f64,
    /// The same for pages with an unknown past, in addition. The panel does not matter for them.
    pub unknown: f64,
    /// The most pages that are cleared.
    pub clears: f64,
}

/// The pages that were chosen to be cleared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chosen {
    /// The pages, by block, in the order of addresses.
    pub blocks: Vec<ClearPages>,
    /// How much of [`ClearLimits::again`] they take.
    pub again: f64,
    /// How much of [`ClearLimits::unknown`] they take.
    pub unknown: f64,
    /// How much of [`ClearLimits::clears`] they take.
    pub clears: f64,
    /// How many accessed bits in the panel the target has set again since they were cleared.
    pub set_again: f64,
}

impl PartUpdate {
    /// Chooses pages of the part to clear, within `limits`: pages with an unknown past as far as there is a
    /// limit for them, then those of the panel, and others last.
    /// Blocks that are known to be mostly idle come first, as their pages are hardly accessed again. The pages that the
    /// limits leave out are chosen at random, so that the cleared ones are representative.
    ///
    /// If the limits do not suffice for all pages with an unknown past, a part of each block is cleared first. It tells
    /// how many of the rest will be accessed again. If that is nearly all of them, another part is cleared in the next
    /// survey, until the block is hot.
    pub fn choose(&self, limits: ClearLimits, rng: &mut impl Rng) -> Chosen {
        let (ClearLimits { again: most, unknown: most_unknown, clears }, panel) = (limits, self.history().panel);
        let blocks = self.blocks();
        let mut wanted: Vec<Wanted> = blocks.iter().map(|block| self.block(block).wanted(rng)).collect();
        let mut order: Vec<usize> = (0..blocks.len()).collect();
        shuffle(&mut order, rng);
        // A block of which a part was not accessed again costs next to nothing. One of which it was is known by that
        // part.
        order.sort_by_key(|&index| blocks[index].1.share.is_none_or(|share| share >= HOT_SHARE));
        let (first, rest): (Vec<usize>, Vec<usize>) =
            order.into_iter().partition(|&index| panel.contains(blocks[index].0));
        let bits = |index: usize, pages: PageBits| match blocks[index].1.is_huge() {
            true => pages.count().min(1) as f64,
            false => pages.count() as f64,
        };
        let set_again = first.iter().map(|&index| bits(index, blocks[index].1.set_again_alone())).sum();

        // The share of what is cleared that is accessed again, where nothing is known of the block.
        let (share, of_new) = (self.history().unknown_share.unwrap_or(1.0), self.before().new_share());
        let unasked = |index: usize| if blocks[index].1.has_unknown_past() { share } else { of_new };
        let of_unknown =
            |index: usize| blocks[index].1.share.map_or_else(|| unasked(index), |share| share.max(LEAST_AGAIN));
        let all_unknown: f64 =
            (0..blocks.len()).map(|nth| bits(nth, wanted[nth].unknown) * f64::from(of_unknown(nth))).sum();
        if all_unknown > most_unknown + most {
            wanted.iter_mut().zip(blocks).for_each(|(wanted, block)| self.block(block).explore(wanted, rng));
        }
        let sure = |&index: &usize| (index, wanted[index].sure, blocks[index].1.share.unwrap_or(of_new));
        let unknown = |&index: &usize| (index, wanted[index].unknown, of_unknown(index));
        // What the panel takes is bounded by its size. What is accessed outside of it may all be accessed again.
        let of_panel = |(index, pages, share)| (index, pages, if panel.is_all() { f64::from(share) } else { 0.0 });
        let beside = |(index, pages, _)| (index, pages, 1.0);
        let of_panel = first.iter().map(sure).chain(first.iter().map(unknown)).map(of_panel);
        let others = rest.iter().map(sure).chain(rest.iter().map(unknown)).map(beside);

        let mut chosen = vec![PageBits::NONE; blocks.len()];
        let (mut again, mut of_most_unknown, mut count) = (0.0, 0.0, 0.0);
        for (index, pages, share) in first.iter().chain(&rest).map(unknown) {
            let bits = bits(index, pages);
            let share = f64::from(share);
            if of_most_unknown + bits * share <= most_unknown && count + bits <= clears * FOR_UNKNOWN {
                of_most_unknown += bits * share;
                count += bits;
                chosen[index] |= pages;
            }
        }
        for (index, pages, share) in of_panel.chain(others) {
            let pages = pages & !chosen[index];
            let bits = bits(index, pages);
            if again + bits * share <= most && count + bits <= clears {
                again += bits * share;
                count += bits;
                chosen[index] |= pages;
            }
        }
        let blocks = blocks.iter().zip(&chosen).filter(|(_, pages)| !pages.is_empty());
        let of_block =
            |((start, _), &pages): (&(u64, _), &PageBits)| ClearPages { start: *start, pages, ..ClearPages::default() };
        Chosen { blocks: blocks.map(of_block).collect(), again, unknown: of_most_unknown, clears: count, set_again }
    }
}

/// The least share of pages that are expected to be accessed again where a part of their block was not.
const LEAST_AGAIN: f32 = 1.0 / 256.0;

/// The part of the clears that may be spent on pages with an unknown past before others are chosen.
const FOR_UNKNOWN: f64 = 0.8;

/// Puts `items` into a random order (Fisher and Yates).
fn shuffle(items: &mut [usize], rng: &mut impl Rng) {
    for last in (1..items.len()).rev() {
        items.swap(last, rng.random_range(0..=last));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use rand::SeedableRng;
    use rand_pcg::Pcg64Mcg;

    use super::*;
    use crate::survey::{BLOCK_PAGES, BLOCK_SIZE, BlockPages, PageHistory};
    use crate::{AddrRange, PAGE_SIZE};

    /// How many of the pages of eight new blocks are cleared if the target may access 1,024 pages again, and has 24
    /// more blocks that were idle in the last interval.
    fn cleared_of_new(with_idle: bool) -> usize {
        let block = |nth: u64, accessed| BlockPages {
            start: nth * BLOCK_SIZE,
            present: PageBits::ALL,
            accessed,
            ..BlockPages::default()
        };
        let idle = (0..if with_idle { 24 } else { 0 }).map(|nth| block(nth, PageBits::NONE));
        let new = (100..108).map(|nth| block(nth, PageBits::ALL));
        let found: Vec<BlockPages> = idle.clone().chain(new).collect();
        let mut history = PageHistory::since(Some(Duration::ZERO));
        history.take(&idle.collect::<Vec<_>>(), Duration::from_secs(1));
        history.take(&found, Duration::from_secs(2));
        let part = Arc::new(history).update(Duration::from_secs(3)).take(&found);
        let limits = ClearLimits { again: 1024.0, unknown: 0.0, clears: f64::INFINITY };
        let chosen = part.choose(limits, &mut Pcg64Mcg::seed_from_u64(1));
        chosen.blocks.iter().map(|block| block.pages.count()).sum()
    }

    #[test]
    fn new_memory_is_expected_to_be_accessed_again_as_the_rest_of_the_memory_is() {
        // All that is known was accessed in the last interval, so that a sixteenth of each block is cleared; or a
        // quarter.
        assert_eq!((cleared_of_new(false), cleared_of_new(true)), (256, 4096));
    }

    #[test]
    fn a_part_of_a_block_with_few_accessed_bits_tells_whether_the_rest_is_idle() {
        // Reclaim has cleared the other bits. Nothing is accessed any more.
        let few: PageBits = (0..BLOCK_PAGES).step_by(16).collect();
        let all = AddrRange::new(0, 256 * BLOCK_SIZE).unwrap();
        let mut accessed = vec![few; 256];
        let mut history = Arc::new(PageHistory::default());
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        for nth in 0..3 {
            let block = |(nth, accessed): (usize, &PageBits)| BlockPages {
                start: nth as u64 * BLOCK_SIZE,
                present: PageBits::ALL,
                accessed: *accessed,
                ..BlockPages::default()
            };
            let update = Arc::clone(&history).update(Duration::from_secs(nth));
            let mut part = update.take(&accessed.iter().enumerate().map(block).collect::<Vec<_>>());
            let limits = ClearLimits { again: 1500.0, unknown: 1500.0, clears: f64::INFINITY };
            let chosen = part.choose(limits, &mut rng);
            for block in &chosen.blocks {
                accessed[(block.start / BLOCK_SIZE) as usize] &= !block.pages;
            }
            part.note_cleared(&chosen.blocks);
            history = Arc::new(part.end(&[]).finish(Duration::from_secs(nth)));
        }
        assert_eq!(history.pages_in(all).unknown, 0);
    }

    #[test]
    fn pages_that_the_kernel_did_not_clear_are_observed_once_it_does() {
        const MOVED: u64 = 4;
        let all = AddrRange::new(0, BLOCK_SIZE).unwrap();
        let found = [BlockPages { present: PageBits::ALL, accessed: PageBits::ALL, ..BlockPages::default() }];
        let limits = ClearLimits { again: f64::INFINITY, unknown: 0.0, clears: f64::INFINITY };
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let mut history = Arc::new(PageHistory::default());
        let mut observed = Vec::new();
        // The pages are accessed all the time. They are on no reclaim list during the first surveys.
        for nth in 0..100 {
            let mut part = Arc::clone(&history).update(Duration::from_secs(nth)).take(&found);
            let mut cleared = part.choose(limits, &mut rng).blocks;
            if nth < MOVED {
                cleared.iter_mut().for_each(|block| std::mem::swap(&mut block.pages, &mut block.unobservable));
            }
            part.note_cleared(&cleared);
            history = Arc::new(part.end(&[]).finish(Duration::from_secs(nth)));
            let pages = history.pages_in(all);
            observed.push((pages.unobservable / PAGE_SIZE, pages.touched / PAGE_SIZE));
        }
        assert_eq!(observed[MOVED as usize], (512, 0));
        assert_eq!(observed[99], (0, 512));
    }
}
