//! The history of a target's pages: which are present, and since when each has been idle.

use std::collections::VecDeque;
use std::time::Duration;

use rand::{Rng, RngExt};

use super::{BLOCK_PAGES, BLOCK_SIZE, BlockPages, ClearPages, PageBits};
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

/// New memory is cleared only after it has been present for this many surveys. It is being written just now, so
/// clearing it says nothing new and slows the target down.
const AGED: u16 = 2;

/// The pages of one target, as its surveys found them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PageHistory {
    /// Sorted by address.
    blocks: Vec<Block>,
    /// The number of present pages below each block, and of all blocks.
    below: Vec<u64>,
    /// The times of the surveys, the last one first.
    times: VecDeque<Duration>,
    /// The share of pages with an unknown past that were accessed within an interval after they were cleared.
    unknown_share: Option<f32>,
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
    /// last survey. For a page that is clear it is exact. For another page it is the most: it may have been accessed
    /// since then.
    pub(super) idle: Box<[u16; BLOCK_PAGES]>,
    /// The share of the pages that were cleared in the survey before that were accessed until the last one.
    pub(super) share: Option<f32>,
    /// In how many surveys in a row at least [`HOT_SHARE`] of the cleared pages were accessed.
    hot: u8,
    /// The pages that the last survey cleared.
    cleared: PageBits,
    /// Pages that were idle until now, and were found accessed by the last survey.
    revived: PageBits,
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
            cleared: PageBits::NONE,
            revived: PageBits::NONE,
            huge: false,
        }
    }

    /// Whether a part of the block stands for the rest.
    pub(super) const fn is_hot(&self) -> bool {
        self.hot >= HOT
    }

    /// The present pages with an accessed bit that was set before the last interval began, so that it says nothing
    /// about the interval, without those that a hot block's share stands for.
    pub(super) fn unknown(&self) -> PageBits {
        if self.is_hot() { PageBits::NONE } else { self.uncertain() }
    }

    /// The present, observable pages that may have been accessed in the last interval, or not.
    pub(super) fn uncertain(&self) -> PageBits {
        let set = self.present & !self.clear & !self.unobservable;
        set.iter().filter(|&page| self.idle[page] != 0).collect()
    }

    /// The pages that are known to be accessed in the last interval.
    pub(super) fn touched(&self) -> PageBits {
        (self.present & !self.unobservable).iter().filter(|&page| self.idle[page] == 0).collect()
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
        let was_clear = self.clear;
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
                    if *idle > 0 {
                        self.revived.insert(page);
                    }
                    0
                }
                (true, true) => idle.saturating_add(1),
                (true, false) if was_clear.contains(page) => idle.saturating_add(1),
                // Its accessed bit was cleared meanwhile, and has stayed clear.
                (_, false) => 1,
            };
        }
        self.present = found.present;
        self.huge = found.huge;
        self.unobservable = unobservable;
        self.clear = found.present & !found.accessed;
        self.cleared = PageBits::NONE;
    }

    /// The pages that the survey wants to clear, by how much it wants to.
    fn wanted(&self, rng: &mut impl Rng) -> (PageBits, PageBits) {
        let set = self.present & !self.clear & !self.unobservable;
        let revived = self.revived & set;
        if self.is_hot() {
            let size = BLOCK_PAGES / HOT_PARTS;
            let part = rng.random_range(0..HOT_PARTS) * size;
            return (revived | (set & PageBits::of(part..part + size)), PageBits::NONE);
        }
        let mut sure = revived;
        let mut unknown = PageBits::NONE;
        for page in set.iter() {
            match self.idle[page] {
                // It was clear before, or it is new. New pages are not in a hurry.
                0 if self.share.is_some() => sure.insert(page),
                LONGEST => unknown.insert(page),
                AGED.. => sure.insert(page),
                _ => {}
            }
        }
        (sure, unknown)
    }
}

impl PageHistory {
    /// Takes in what the survey at `now` has read: all blocks with present pages, in the order of addresses.
    pub fn take(&mut self, found: &[BlockPages], now: Duration) {
        let first = self.times.is_empty();
        let mut old = std::mem::take(&mut self.blocks).into_iter().peekable();
        self.below.clear();
        let mut below = 0;
        for pages in found {
            while old.next_if(|block| block.start < pages.start).is_some() {}
            let mut block = old.next_if(|block| block.start == pages.start).unwrap_or_else(|| Block::new(pages.start));
            block.take(pages, first);
            self.below.push(below);
            below += block.present.count() as u64;
            self.blocks.push(block);
        }
        self.below.push(below);
        self.times.push_front(now);
        self.times.truncate(usize::from(LONGEST));
    }

    /// Chooses the pages to clear, of which the target is expected to access no more than `limit` again. Returns them
    /// with the number of pages that are expected to be accessed again.
    pub fn choose(&self, limit: f64, rng: &mut impl Rng) -> (Vec<ClearPages>, f64) {
        let mut chosen: Vec<(u64, ClearPages)> = Vec::new();
        let mut unknown = Vec::new();
        let mut expected = 0.0;
        let count = |pages: PageBits, huge| if huge { pages.count().min(1) } else { pages.count() } as f64;
        let wanted: Vec<_> = self.blocks.iter().map(|block| block.wanted(rng)).collect();
        // What the bound leaves out is left out at random.
        let mut order: Vec<usize> = (0..self.blocks.len()).collect();
        shuffle(&mut order, rng);
        for &index in &order {
            let (block, (sure, _)) = (&self.blocks[index], wanted[index]);
            let cost = count(sure, block.huge) * f64::from(block.share.unwrap_or(1.0));
            if !sure.is_empty() && expected + cost <= limit {
                expected += cost;
                chosen.push((block.start, block.clears(sure)));
            }
        }
        for &index in &order {
            let (block, (_, pages)) = (&self.blocks[index], wanted[index]);
            let cost = count(pages, block.huge) * f64::from(self.unknown_share.unwrap_or(1.0));
            if pages.is_empty() {
                continue;
            }
            if expected + cost > limit {
                break;
            }
            expected += cost;
            unknown.push((block.start, block.clears(pages)));
        }
        chosen.append(&mut unknown);
        chosen.sort_by_key(|(start, _)| *start);
        let mut merged: Vec<ClearPages> = Vec::with_capacity(chosen.len());
        for (start, pages) in chosen {
            match merged.last_mut() {
                Some(last) if last.start == start => last.pages |= pages.pages,
                _ => merged.push(pages),
            }
        }
        (merged, expected)
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
        }
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
        self.below.last().copied().unwrap_or(0)
    }

    /// How many pages of `range` are present.
    pub fn present_in(&self, range: AddrRange) -> u64 {
        self.present_below(range.end()) - self.present_below(range.start())
    }

    /// The address of the `nth` present page from `start` on, counted from 0.
    pub fn nth_present(&self, start: u64, nth: u64) -> Option<u64> {
        let nth = self.present_below(start) + nth;
        let index = self.below.partition_point(|&below| below <= nth).checked_sub(1)?;
        let block = self.blocks.get(index)?;
        let page = block.present.nth((nth - self.below[index]) as usize)?;
        Some(block.start + page as u64 * PAGE_SIZE)
    }

    /// The parts of `range` whose present pages are all known to have been idle for at least `time`. Pages that
    /// are absent lie in no part.
    pub fn idle_ranges(&self, range: AddrRange, time: Duration) -> Vec<AddrRange> {
        let enough = (0..self.times.len().min(usize::from(LONGEST))).find(|&n| self.idle_time(n as u16) >= time);
        let Some(enough) = enough else { return Vec::new() };
        let mut ranges: Vec<AddrRange> = Vec::new();
        for block in self.blocks_in(range) {
            let known = block.present & block.clear & !block.unobservable & block.within(range);
            let idle: PageBits = known.iter().filter(|&page| usize::from(block.idle[page]) >= enough.max(1)).collect();
            for run in idle.runs() {
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

    /// The blocks that have a part of `range`.
    pub(super) fn blocks_in(&self, range: AddrRange) -> impl Iterator<Item = &Block> {
        let first = self.blocks.partition_point(|block| block.start.saturating_add(BLOCK_SIZE) <= range.start());
        self.blocks[first..].iter().take_while(move |block| block.start < range.end())
    }

    fn present_below(&self, addr: u64) -> u64 {
        let index = self.blocks.partition_point(|block| block.start.saturating_add(BLOCK_SIZE) <= addr);
        let below = self.below.get(index).copied().unwrap_or(0);
        match self.blocks.get(index) {
            Some(block) if block.start < addr => {
                below + block.present.count_below(((addr - block.start) / PAGE_SIZE) as usize) as u64
            }
            _ => below,
        }
    }
}

impl Block {
    fn clears(&self, pages: PageBits) -> ClearPages {
        ClearPages { start: self.start, pages, idle: self.clear | !self.present, unobservable: PageBits::NONE }
    }

    /// The pages of the block that lie in `range`.
    pub(super) fn within(&self, range: AddrRange) -> PageBits {
        let page = |addr: u64| (addr.saturating_sub(self.start) / PAGE_SIZE).min(BLOCK_PAGES as u64) as usize;
        PageBits::of(page(range.start())..page(range.end()))
    }
}

/// Puts `items` into a random order (Fisher and Yates).
fn shuffle(items: &mut [usize], rng: &mut impl Rng) {
    for last in (1..items.len()).rev() {
        items.swap(last, rng.random_range(0..=last));
    }
}
