//! The state of each page after an interval, for a scan that clears every page that it finds accessed.

use super::block::Block;
use super::{ClearPages, PageBits, PageHistory};
use crate::{AddrRange, IdleTally, MOST_INTERVALS, PAGE_SIZE, PageState};

/// The pages of one block after the last interval.
#[derive(Clone, Copy, Debug)]
pub struct BlockStates<'a> {
    block: Block<'a>,
    /// The number of intervals since the first survey, at most [`MOST_INTERVALS`].
    intervals: u8,
}

impl PageHistory {
    /// The pages whose accessed bit was set when they were read last. If all of them are cleared, the next survey knows
    /// of every page whether it was accessed. Pages that could not be cleared before are among them.
    pub fn accessed(&self) -> Vec<ClearPages> {
        let set = |block: Block<'_>| ClearPages {
            start: block.start,
            pages: block.present & !block.clear,
            ..ClearPages::default()
        };
        self.blocks().map(set).filter(|pages| !pages.pages.is_empty()).collect()
    }

    /// The blocks that have a part of `range`, each with its present pages that lie in the range.
    pub fn states(&self, range: AddrRange) -> impl Iterator<Item = (BlockStates<'_>, PageBits)> {
        let intervals = self.intervals();
        self.blocks_in(range).map(move |block| (BlockStates { block, intervals }, block.present & block.within(range)))
    }

    /// The block that begins at `start`, if it has present or swapped pages.
    pub fn states_at(&self, start: u64) -> Option<BlockStates<'_>> {
        Some(BlockStates { block: self.block(start)?, intervals: self.intervals() })
    }

    fn intervals(&self) -> u8 {
        self.surveys().saturating_sub(1).clamp(1, MOST_INTERVALS.into()) as u8
    }
}

impl BlockStates<'_> {
    /// The first address of the block.
    pub fn start(&self) -> u64 {
        self.block.start
    }

    /// The state of the page with this index, or `None` if it is not present. A page whose accessed bit was set before
    /// the interval is unobservable.
    pub fn state(&self, page: usize) -> Option<PageState> {
        let block = &self.block;
        if !block.present.contains(page) {
            None
        } else if !block.exact.contains(page) {
            Some(PageState::Unobservable)
        } else if block.touched().contains(page) {
            Some(PageState::Accessed)
        } else {
            Some(PageState::Idle(self.idle(page)))
        }
    }

    /// The pages in `range` that were freed lazily. They are not present.
    pub fn lazily_freed(&self, range: AddrRange) -> PageBits {
        self.block.lazily_freed() & self.block.within(range)
    }

    /// Adds `pages`, all of them present, to `tally`.
    pub fn add_to(&self, tally: &mut IdleTally, pages: PageBits) {
        let bytes = |pages: PageBits| pages.count() as u64 * PAGE_SIZE;
        let exact = pages & self.block.exact;
        let idle = exact & !self.block.touched();
        tally.add(PageState::Unobservable, bytes(pages & !exact));
        tally.add(PageState::Accessed, bytes(exact & !idle));
        let mut run = (0, 0);
        for page in idle.iter() {
            let intervals = self.idle(page);
            if intervals != run.0 {
                tally.add(PageState::Idle(run.0), run.1);
                run = (intervals, 0);
            }
            run.1 += PAGE_SIZE;
        }
        tally.add(PageState::Idle(run.0), run.1);
    }

    /// For how many intervals an idle page was not accessed. The first survey cannot know for how long a page has been
    /// idle.
    fn idle(&self, page: usize) -> u8 {
        self.block.idle(page).clamp(1, self.intervals.into()) as u8
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::survey::{BLOCK_SIZE, BlockPages};

    const START: u64 = 4 * BLOCK_SIZE;

    fn bits(pages: std::ops::Range<usize>) -> PageBits {
        PageBits::of(pages)
    }

    /// A survey that finds the pages `present` of a block, and of these the `accessed`. It clears all but `kept`.
    fn pass(history: &mut PageHistory, present: PageBits, accessed: PageBits, kept: PageBits) {
        let time = Duration::from_secs(history.surveys() as u64);
        history.take(&[BlockPages { start: START, present, accessed, ..BlockPages::default() }], time);
        let mut cleared = history.accessed();
        for block in &mut cleared {
            (block.pages, block.unobservable) = (block.pages & !kept, block.pages & kept);
        }
        history.cleared(&cleared);
    }

    fn states(history: &PageHistory, pages: &[usize]) -> Vec<Option<PageState>> {
        let block = history.states_at(START).unwrap();
        pages.iter().map(|&page| block.state(page)).collect()
    }

    fn tally(history: &PageHistory) -> IdleTally {
        let mut tally = IdleTally::default();
        let all = AddrRange::new(0, 1 << 40).unwrap();
        history.states(all).for_each(|(block, pages)| block.add_to(&mut tally, pages));
        tally
    }

    #[test]
    fn hot_and_cold_pages_are_known_to_the_page_however_long_they_stay_so() {
        let mut history = PageHistory::default();
        let (present, hot) = (bits(0..100), bits(0..37));
        pass(&mut history, present, bits(0..90), PageBits::NONE);
        for intervals in 1..=300_u32 {
            pass(&mut history, present, hot, PageBits::NONE);
            let longest = intervals.min(MOST_INTERVALS.into()) as u8;
            let idle = Some(PageState::Idle(longest));
            let accessed = Some(PageState::Accessed);
            assert_eq!(states(&history, &[0, 36, 37, 95, 100]), [accessed, accessed, idle, idle, None]);
            let tally = tally(&history);
            assert_eq!((tally.accessed, tally.idle), (37 * PAGE_SIZE, 63 * PAGE_SIZE));
            assert_eq!(tally.by_intervals().last(), Some(&(63 * PAGE_SIZE)));
            assert_eq!(tally.by_intervals().len(), usize::from(longest));
        }
        pass(&mut history, present, bits(50..51), PageBits::NONE);
        assert_eq!(states(&history, &[0, 50]), [Some(PageState::Idle(1)), Some(PageState::Accessed)]);
    }

    #[test]
    fn a_page_that_was_not_cleared_is_unobservable_until_it_is() {
        let mut history = PageHistory::default();
        let present = bits(0..4);
        pass(&mut history, present, present, bits(2..4));
        pass(&mut history, present, bits(1..4), bits(3..4));
        let unobservable = Some(PageState::Unobservable);
        assert_eq!(states(&history, &[0, 1]), [Some(PageState::Idle(1)), Some(PageState::Accessed)]);
        assert_eq!(states(&history, &[2, 3]), [unobservable; 2], "the access may be older than the interval");
        // The pages that could not be cleared are asked for again. Now one of them is clear.
        pass(&mut history, present, bits(3..4), PageBits::NONE);
        assert_eq!(states(&history, &[2, 3]), [Some(PageState::Idle(1)), unobservable]);
        pass(&mut history, present, bits(3..4), PageBits::NONE);
        assert_eq!(states(&history, &[3]), [Some(PageState::Accessed)]);
        assert_eq!(tally(&history).size(), 4 * PAGE_SIZE);
    }

    #[test]
    fn a_page_that_appears_in_an_interval_is_accessed_in_it() {
        let mut history = PageHistory::default();
        history.take(&[], Duration::ZERO);
        history.take(
            &[BlockPages { start: START, present: bits(0..8), accessed: bits(0..6), ..BlockPages::default() }],
            Duration::from_secs(1),
        );
        assert_eq!(
            states(&history, &[0, 5, 6]),
            [Some(PageState::Accessed), Some(PageState::Accessed), Some(PageState::Idle(1)),]
        );
    }
}
