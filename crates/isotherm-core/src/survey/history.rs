//! The history of a target's pages: which are present, and since when each has been idle.

use std::collections::VecDeque;
use std::time::Duration;

use rand::{Rng, RngExt};

use super::{BLOCK_PAGES, BLOCK_SIZE, BlockPages, ClearPages, PageBits, RegionPages};
use crate::{AddrRange, PAGE_SIZE};

/// The number of surveys that stands for any longer time, and for a time that is not known.
pub(super) const LONGEST: u16 = u16::MAX;

/// A block is hot after this many surveys in a row.
const HOT: u8 = 3;

/// At least this share of the pages that were cleared in a hot block is accessed within a survey interval. It bounds
/// the error of taking the rest of the block as accessed.
const HOT_SHARE: f32 = 15.0 / 16.0;

/// With fewer cleared pages, a block has no share of its own.
const MIN_CLEARED: usize = 8;

/// Of a hot block, one run of pages is cleared in a survey: the block divided by this number. One run costs the monitor
/// much less than as many scattered pages.
const HOT_PARTS: usize = 8;

/// New memory is cleared only after it was present in this many surveys before. It is being written just now, so that
/// clearing it would say nothing new.
const AGED: u16 = 1;

/// A survey clears at most this many times as many pages as it may expect to be accessed again. Clearing costs the
/// monitor about a sixth of what it costs a target that accesses the page again (65 and 400 ns), so this bounds the
/// monitor's time as well.
const CLEARS_A_SET: f64 = 8.0;

/// The pages of one target, as its surveys found them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PageHistory {
    /// Sorted by address.
    blocks: Vec<Block>,
    /// The sums of the blocks below each block, and of all blocks.
    below: Vec<Counts>,
    /// The times of the surveys, the last one first.
    times: VecDeque<Duration>,
    /// The share of pages with an unknown past that were accessed within an interval after they were cleared.
    unknown_share: Option<f32>,
}

/// Numbers of pages.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counts {
    present: u64,
    /// A part of a hot block stands for the rest, so that this is no whole number.
    touched: f64,
    unobservable: u64,
    unknown: u64,
}

impl Counts {
    fn plus(self, other: Self) -> Self {
        Self {
            present: self.present + other.present,
            touched: self.touched + other.touched,
            unobservable: self.unobservable + other.unobservable,
            unknown: self.unknown + other.unknown,
        }
    }
}

/// The history of a block.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Block {
    pub(super) start: u64,
    pub(super) present: PageBits,
    /// Present pages whose accessed bit was clear after the last survey: an access since then will be seen.
    pub(super) clear: PageBits,
    /// Present pages that cannot be observed.
    pub(super) unobservable: PageBits,
    /// For each present page, how many surveys ago it was last known to be accessed: 0 is in the interval before the
    /// last survey. For a page that is not in `exact` it is the most: it may have been accessed since then.
    pub(super) idle: Box<[u16; BLOCK_PAGES]>,
    /// The share of the pages that were cleared in the survey before that were accessed until the last one.
    pub(super) share: Option<f32>,
    /// In how many surveys in a row at least [`HOT_SHARE`] of the cleared pages were accessed.
    hot: u8,
    /// Observable pages whose `idle` is exact: the accessed bit was clear when the last interval began.
    pub(super) exact: PageBits,
    /// The observable pages that are known to be accessed in the last interval.
    pub(super) touched: PageBits,
    /// The pages that the last survey cleared.
    cleared: PageBits,
    /// Pages that were clear, and were found accessed by the last survey.
    set_again: PageBits,
    /// Of these pages, those that were idle in the interval before.
    revived: PageBits,
    /// Pages that the survey clears by itself.
    shared: PageBits,
    /// Whether one accessed bit stands for the whole block.
    huge: bool,
}

impl Block {
    fn new(start: u64) -> Self {
        Self {
            start,
            present: PageBits::NONE,
            clear: PageBits::NONE,
            unobservable: PageBits::NONE,
            idle: Box::new([LONGEST; BLOCK_PAGES]),
            share: None,
            hot: 0,
            exact: PageBits::NONE,
            touched: PageBits::NONE,
            cleared: PageBits::NONE,
            set_again: PageBits::NONE,
            revived: PageBits::NONE,
            shared: PageBits::NONE,
            huge: false,
        }
    }

    /// Whether a part of the block stands for the rest.
    pub(super) const fn is_hot(&self) -> bool {
        self.hot >= HOT
    }

    /// The present, observable pages that may have been accessed in the last interval, or not: their accessed bit was
    /// set before it.
    pub(super) fn uncertain(&self) -> PageBits {
        self.present & !self.exact & !self.unobservable
    }

    /// The uncertain pages, without those that the share of a hot block stands for.
    pub(super) fn unknown(&self) -> PageBits {
        if self.is_hot() { PageBits::NONE } else { self.uncertain() }
    }

    /// The share of the uncertain pages that counts as accessed in the last interval. `None` if they are unknown.
    pub(super) fn hot_share(&self) -> Option<f64> {
        self.share.filter(|_| self.is_hot()).map(f64::from)
    }

    fn counts(&self, within: PageBits) -> Counts {
        let estimated = self.hot_share().map_or(0.0, |share| share * (self.uncertain() & within).count() as f64);
        Counts {
            present: (self.present & within).count() as u64,
            touched: (self.touched & within).count() as f64 + estimated,
            unobservable: (self.unobservable & within).count() as u64,
            unknown: (self.unknown() & within).count() as u64,
        }
    }

    /// Takes in what a survey has read. `first` says that it is the first survey of the target.
    fn take(&mut self, found: &BlockPages, first: bool) {
        let known = self.present & found.present;
        let unobservable = found.unobservable | (self.unobservable & found.accessed & known);
        let cleared = self.cleared & known & !unobservable;
        let asked = cleared.count();
        if asked >= MIN_CLEARED {
            let share = (cleared & found.accessed).count() as f32 / asked as f32;
            self.share = Some(share);
            self.hot = if share >= HOT_SHARE { self.hot.saturating_add(1) } else { 0 };
        }
        let (was_clear, was_exact) = (self.clear, self.exact);
        self.set_again = known & was_clear & found.accessed;
        self.revived = PageBits::NONE;
        for page in found.present.iter() {
            let (is_known, accessed) = (known.contains(page), found.accessed.contains(page));
            let idle = &mut self.idle[page];
            *idle = match (is_known, accessed) {
                // The first survey cannot know when the page was accessed.
                (false, true) if first => LONGEST,
                // The page was mapped since the survey before.
                (false, true) => 0,
                (true, true) if was_clear.contains(page) => {
                    if *idle > 0 && was_exact.contains(page) {
                        self.revived.insert(page);
                    }
                    0
                }
                (true, true) => idle.saturating_add(1),
                (true, false) if was_clear.contains(page) && was_exact.contains(page) => idle.saturating_add(1),
                // It was cleared by the survey before, or by another program, and has stayed clear.
                (_, false) => 1,
            };
        }
        self.present = found.present;
        self.shared = found.shared;
        self.huge = found.huge;
        self.unobservable = unobservable;
        self.clear = found.present & !found.accessed;
        self.cleared = PageBits::NONE;
        self.touched =
            (found.present & found.accessed & !unobservable).iter().filter(|&page| self.idle[page] == 0).collect();
        self.exact = (self.clear | self.touched) & !unobservable;
    }

    /// The pages that the survey wants to clear, by how much it wants to.
    fn wanted(&self, rng: &mut impl Rng) -> (PageBits, PageBits) {
        let set = self.present & !self.clear & !self.unobservable & !self.shared;
        let revived = self.revived & set;
        if self.is_hot() {
            let size = BLOCK_PAGES / HOT_PARTS;
            let part = rng.random_range(0..HOT_PARTS) * size;
            return (revived | (set & PageBits::of(part..part + size)), PageBits::NONE);
        }
        let mut sure = self.set_again & set;
        let mut unknown = PageBits::NONE;
        for page in (set & !sure).iter() {
            match self.idle[page] {
                LONGEST => unknown.insert(page),
                AGED.. => sure.insert(page),
                // New pages are not in a hurry.
                _ => {}
            }
        }
        (sure, unknown)
    }
}

impl PageHistory {
    /// The history of a target that began at this time, and had no memory before. `None` if the time is not known, so
    /// that its first survey cannot tell when memory was accessed.
    pub fn since(began: Option<Duration>) -> Self {
        Self { times: began.into_iter().collect(), ..Self::default() }
    }

    /// Takes in what the survey at `now` has read: all blocks with present pages, in the order of addresses.
    pub fn take(&mut self, found: &[BlockPages], now: Duration) {
        let first = self.times.is_empty();
        let mut old = std::mem::take(&mut self.blocks).into_iter().peekable();
        for pages in found {
            while old.next_if(|block| block.start < pages.start).is_some() {}
            let mut block = old.next_if(|block| block.start == pages.start).unwrap_or_else(|| Block::new(pages.start));
            block.take(pages, first);
            self.blocks.push(block);
        }
        self.add_up();
        self.times.push_front(now);
        self.times.truncate(usize::from(LONGEST));
    }

    /// Makes the sums below each block.
    fn add_up(&mut self) {
        self.below.clear();
        let mut below = Counts::default();
        for block in &self.blocks {
            self.below.push(below);
            below = below.plus(block.counts(PageBits::ALL));
        }
        self.below.push(below);
    }

    /// Chooses the pages to clear, of which the target is expected to access no more than `limit` again, and of which
    /// there are no more than eight times as many. Returns them with the number of pages that are expected to
    /// be accessed again.
    ///
    /// What the bound leaves out is left out at random, so that what is cleared stands for the rest. Pages with an
    /// unknown past come last.
    pub fn choose(&self, limit: f64, rng: &mut impl Rng) -> (Vec<ClearPages>, f64) {
        let wanted: Vec<_> = self.blocks.iter().map(|block| block.wanted(rng)).collect();
        let mut order: Vec<usize> = (0..self.blocks.len()).collect();
        shuffle(&mut order, rng);
        // The share of what is cleared that is accessed again, where nothing better is known.
        let share = self.unknown_share.unwrap_or(1.0);
        let sure = order.iter().map(|&index| (index, wanted[index].0, self.blocks[index].share.unwrap_or(share)));
        let unknown = order.iter().map(|&index| (index, wanted[index].1, share));

        let mut chosen = vec![PageBits::NONE; self.blocks.len()];
        let (mut expected, mut clears) = (0.0, 0.0);
        for (index, pages, share) in sure.chain(unknown) {
            let count = if self.blocks[index].huge { pages.count().min(1) } else { pages.count() } as f64;
            let again = count * f64::from(share);
            if expected + again <= limit && clears + count <= limit * CLEARS_A_SET {
                (expected, clears) = (expected + again, clears + count);
                chosen[index] |= pages;
            }
        }
        let blocks = self.blocks.iter().zip(&chosen).filter(|(_, pages)| !pages.is_empty());
        (blocks.map(|(block, &pages)| block.clears(pages)).collect(), expected)
    }

    /// Notes which pages the survey has cleared.
    pub fn cleared(&mut self, done: &[ClearPages]) {
        let mut rest = self.blocks.as_mut_slice();
        for pages in done {
            let index = rest.partition_point(|block| block.start < pages.start);
            rest = &mut rest[index..];
            let Some(block) = rest.first_mut().filter(|block| block.start == pages.start) else { continue };
            let cleared = pages.pages & block.present & !pages.unobservable;
            block.unobservable |= pages.unobservable & block.present;
            block.unobservable &= !cleared;
            block.clear |= cleared;
            block.cleared = cleared;
            block.touched &= !block.unobservable;
            block.exact &= !block.unobservable;
        }
        self.add_up();
        let (mut asked, mut share) = (0.0, 0.0);
        for block in &self.blocks {
            if let Some(of_block) = block.share {
                let pages = block.present.count() as f32;
                (asked, share) = (asked + pages, share + pages * of_block);
            }
        }
        self.unknown_share = (asked > 0.0).then(|| (share / asked).max(1.0 / 64.0));
    }

    /// How many surveys there were, at most 65,535.
    pub fn surveys(&self) -> usize {
        self.times.len()
    }

    /// The time of the last survey.
    pub fn time(&self) -> Duration {
        self.times.front().copied().unwrap_or_default()
    }

    /// The time from the survey before the last to the last. Zero after the first survey.
    pub fn interval(&self) -> Duration {
        self.times.get(1).map_or(Duration::ZERO, |&before| self.time().saturating_sub(before))
    }

    /// The shortest time for which a page has been idle that was last accessed this many surveys ago.
    pub(super) fn idle_time(&self, surveys: u16) -> Duration {
        let time = self.times.get(usize::from(surveys)).or(self.times.back()).copied().unwrap_or_default();
        self.time().saturating_sub(time)
    }

    pub(super) fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// How many pages are present.
    pub fn present(&self) -> u64 {
        self.below.last().map_or(0, |all| all.present)
    }

    /// How many present pages have never been cleared, so that it is not known when they were accessed.
    pub fn never_cleared(&self) -> u64 {
        let of = |block: &Block| block.uncertain().iter().filter(|&page| block.idle[page] == LONGEST).count();
        self.blocks.iter().map(|block| of(block) as u64).sum()
    }

    /// What the last survey found in `range`.
    pub fn pages_in(&self, range: AddrRange) -> RegionPages {
        let (to, from) = (self.counts_below(range.end()), self.counts_below(range.start()));
        RegionPages {
            present: (to.present - from.present) * PAGE_SIZE,
            touched: ((to.touched - from.touched).max(0.0) * PAGE_SIZE as f64).round() as u64,
            unobservable: (to.unobservable - from.unobservable) * PAGE_SIZE,
            unknown: (to.unknown - from.unknown) * PAGE_SIZE,
        }
    }

    /// The address of the `nth` present page from `start` on, counted from 0.
    pub fn nth_present(&self, start: u64, nth: u64) -> Option<u64> {
        let nth = self.counts_below(start).present + nth;
        let index = self.below.partition_point(|below| below.present <= nth).checked_sub(1)?;
        let block = self.blocks.get(index)?;
        let page = block.present.nth((nth - self.below[index].present) as usize)?;
        Some(block.start + page as u64 * PAGE_SIZE)
    }

    /// The parts of `range` whose present pages are all known to have been idle for at least `time`. Pages that
    /// are absent lie in no part.
    pub fn idle_ranges(&self, range: AddrRange, time: Duration) -> Vec<AddrRange> {
        let surveys = self.times.len().min(usize::from(LONGEST)) as u16;
        let Some(enough) = (1..surveys).find(|&surveys| self.idle_time(surveys) >= time) else {
            return Vec::new();
        };
        self.ranges(range, |block| block.exact & PageBits::from_fn(|page| block.idle[page] >= enough))
    }

    /// The parts of `range` whose pages are all present.
    pub fn present_ranges(&self, range: AddrRange) -> Vec<AddrRange> {
        self.ranges(range, |block| block.present)
    }

    /// The parts of `range` in blocks that have a present page.
    pub fn present_blocks(&self, range: AddrRange) -> Vec<AddrRange> {
        self.ranges(range, |block| if block.present.is_empty() { PageBits::NONE } else { PageBits::ALL })
    }

    /// The parts of `range` that consist of these pages of each block.
    fn ranges(&self, range: AddrRange, pages: impl Fn(&Block) -> PageBits) -> Vec<AddrRange> {
        let mut ranges: Vec<AddrRange> = Vec::new();
        for block in self.blocks_in(range) {
            for run in (pages(block) & block.within(range)).runs() {
                let at = |page: usize| block.start + page as u64 * PAGE_SIZE;
                let last = ranges.last().filter(|last| last.end() == at(run.start)).copied();
                let start = last.map_or(at(run.start), AddrRange::start);
                if last.is_some() {
                    ranges.pop();
                }
                ranges.extend(AddrRange::new(start, at(run.end)));
            }
        }
        ranges
    }

    /// The block that begins at `start`, if it has present pages.
    pub(super) fn block(&self, start: u64) -> Option<&Block> {
        let index = self.blocks.binary_search_by_key(&start, |block| block.start).ok()?;
        Some(&self.blocks[index])
    }

    /// The blocks that have a part of `range`.
    pub(super) fn blocks_in(&self, range: AddrRange) -> impl Iterator<Item = &Block> {
        let first = self.blocks.partition_point(|block| block.start.saturating_add(BLOCK_SIZE) <= range.start());
        self.blocks[first..].iter().take_while(move |block| block.start < range.end())
    }

    fn counts_below(&self, addr: u64) -> Counts {
        let index = self.blocks.partition_point(|block| block.start.saturating_add(BLOCK_SIZE) <= addr);
        let below = self.below.get(index).copied().unwrap_or_default();
        match self.blocks.get(index) {
            Some(block) if block.start < addr => {
                let pages = ((addr - block.start) / PAGE_SIZE) as usize;
                below.plus(block.counts(PageBits::of(0..pages)))
            }
            _ => below,
        }
    }
}

impl Block {
    fn clears(&self, pages: PageBits) -> ClearPages {
        ClearPages { start: self.start, pages, unobservable: PageBits::NONE }
    }

    /// The pages of the block that lie in `range`.
    pub(super) fn within(&self, range: AddrRange) -> PageBits {
        PageBits::within(self.start, range)
    }
}

/// Puts `items` into a random order (Fisher and Yates).
fn shuffle(items: &mut [usize], rng: &mut impl Rng) {
    for last in (1..items.len()).rev() {
        items.swap(last, rng.random_range(0..=last));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    #[test]
    fn what_a_new_target_has_accessed_was_accessed_since_it_began() {
        let second = Duration::from_secs(1);
        let accessed = PageBits::of(0..100);
        let block = BlockPages { present: PageBits::ALL, accessed, ..BlockPages::default() };
        let found = |began| {
            let mut history = PageHistory::since(began);
            history.take(&[block], second * 3);
            let pages = history.pages_in(AddrRange::new(0, BLOCK_SIZE).unwrap());
            (pages.touched, pages.unknown, history.interval())
        };
        assert_eq!(found(Some(second * 2)), (100 * PAGE_SIZE, 0, second));
        assert_eq!(found(None), (0, 100 * PAGE_SIZE, Duration::ZERO));
    }
}
