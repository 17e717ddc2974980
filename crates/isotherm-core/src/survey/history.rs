//! The history of a target's pages: which are present, and since when each has been idle.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::block::{Block, BlockState};
use super::borders::{Borders, Stretch};
use super::chunk::Chunk;
use super::counts::Counts;
use super::memo::Memo;
use super::number::{LONGEST, SurveyNumber};
use super::panel::Panel;
use super::{BLOCK_SIZE, BlockPages, ClearPages, PageBits};
use crate::Figures;
use crate::{AddrRange, AtRest, PAGE_SIZE};

/// The least share of pages with an unknown past that is expected to be accessed again. What was cleared so far says no
/// more than that.
const LEAST_SHARE: f64 = 1.0 / 16.0;

/// The pages of one target, as its surveys found them.
///
/// Memory that stays as it is takes no memory of its own: blocks and surveys share what is equal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PageHistory {
    /// Sorted by address.
    pub(super) chunks: Vec<Chunk>,
    /// The sums of the chunks below each chunk, and of all chunks.
    pub(super) below: Vec<Counts>,
    /// The times of the surveys, the last one first.
    pub(super) times: VecDeque<Duration>,
    /// The number of the last survey.
    pub(super) number: SurveyNumber,
    /// The share of pages with an unknown past that were accessed within an interval after they were cleared.
    pub(super) unknown_share: Option<f32>,
    /// Where accessed and idle pages meet, if it was found part by part.
    pub(super) borders: Option<Borders>,
    /// Whether the last survey has told which pages are in swap.
    pub(super) knows_swap: bool,
    /// The blocks that stand for the others.
    pub(super) panel: Panel,
    /// What was found of the target just before the last survey has read it, if it was at rest.
    pub(crate) rest: Option<AtRest>,
}

impl PageHistory {
    /// The history of a target that began at this time, and had no memory before. `None` if the time is not known, so
    /// that its first survey cannot tell when memory was accessed.
    pub fn since(began: Option<Duration>) -> Self {
        Self { times: began.into_iter().collect(), ..Self::default() }
    }

    /// The bytes of memory that the history shares with no other: about what it takes to keep it beside its successor.
    pub fn own_bytes(&self) -> usize {
        let chunks: usize = self.chunks.iter().map(Chunk::own_bytes).sum();
        chunks + size_of_val(self.below.as_slice()) + size_of::<Self>()
    }

    /// Takes in what the survey at `now` has read: all blocks with present or swapped pages, in the order of addresses.
    pub fn take(&mut self, found: &[BlockPages], now: Duration) {
        *self = Arc::new(std::mem::take(self)).update(now).take(found).end(&[]).finish(now);
    }

    /// Notes which pages the survey has cleared.
    pub fn cleared(&mut self, done: &[ClearPages]) {
        let mut memo = Memo::default();
        let mut rest = self.chunks.as_mut_slice();
        for done in done.chunk_by(|a, b| Chunk::start_of(a.start) == Chunk::start_of(b.start)) {
            let start = Chunk::start_of(done[0].start);
            let index = rest.partition_point(|chunk| chunk.start < start);
            rest = &mut rest[index..];
            if let Some(chunk) = rest.first_mut().filter(|chunk| chunk.start == start) {
                chunk.note_cleared(done, &mut memo);
            }
        }
        self.borders = None;
        self.add_up();
        self.estimate_unknown();
    }

    /// The same history with pages that have appeared since the last survey and are unknown: the pages of
    /// `found` that lie in one of `ranges`, which are sorted and disjoint.
    ///
    /// The next survey is taken into this history, not into the returned one: a page that is new to a survey was
    /// accessed since the survey before.
    pub(crate) fn with_more(&self, found: &[BlockPages], ranges: &[AddrRange]) -> Self {
        let mut new = self.clone();
        for chunk in found.chunk_by(|a, b| Chunk::start_of(a.start) == Chunk::start_of(b.start)) {
            let start = Chunk::start_of(chunk[0].start);
            let place = new.chunks.binary_search_by_key(&start, |chunk| chunk.start);
            let known = place.ok().map(|index| &new.chunks[index]);
            let mut states: BTreeMap<u64, Arc<BlockState>> =
                known.into_iter().flat_map(Chunk::states).map(|(start, state)| (start, Arc::clone(state))).collect();
            for pages in chunk {
                let end = pages.start.saturating_add(BLOCK_SIZE);
                let first = ranges.partition_point(|range| range.end() <= pages.start);
                let here = ranges[first..].iter().take_while(|range| range.start() < end);
                let new = here.fold(PageBits::NONE, |new, range| new | PageBits::within(pages.start, *range));
                let state = states.entry(pages.start).or_insert_with(|| Arc::new(BlockState::NEW));
                *state = Arc::new(state.with_more(pages.present & new));
            }
            states.retain(|_, state| !(state.present | state.swapped() | state.lazily_freed()).is_empty());
            let states: Vec<_> = states.into_iter().collect();
            let Some(chunk) = Chunk::new(&states, std::iter::empty()) else { continue };
            match place {
                Ok(index) => new.chunks[index] = chunk,
                Err(index) => new.chunks.insert(index, chunk),
            }
        }
        new.borders = None;
        new.add_up();
        new
    }

    /// Makes the sums below each chunk.
    fn add_up(&mut self) {
        self.below.clear();
        let mut below = Counts::default();
        for chunk in &self.chunks {
            self.below.push(below);
            below = below.plus(chunk.counts());
        }
        self.below.push(below);
    }

    /// Estimates which share of the pages with an unknown past is accessed within an interval.
    pub(super) fn estimate_unknown(&mut self) {
        let Counts { asked, answered, .. } = self.all();
        self.unknown_share = (asked > 0).then(|| (answered / asked as f64).max(LEAST_SHARE) as f32);
    }

    /// The share of new pages that is expected to be accessed within an interval: that of all known pages in the last
    /// one. A program that fills memory may be about to use it, or not. It is more likely to do so while most of what
    /// it has is in use.
    pub(super) fn new_share(&self) -> f32 {
        let Counts { present, unobservable, unknown, touched, .. } = self.all();
        let known = present.saturating_sub(unobservable + unknown);
        if known == 0 { 1.0 } else { (touched / known as f64).clamp(LEAST_SHARE, 1.0) as f32 }
    }

    /// The sums of all blocks.
    pub(super) fn all(&self) -> Counts {
        self.below.last().copied().unwrap_or_default()
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

    /// The time from the first survey, or as far back as is remembered, to the last.
    pub(crate) fn lasted(&self) -> Duration {
        self.idle_time(u16::MAX)
    }

    /// The shortest time for which a page has been idle that was last accessed this many surveys ago.
    pub(super) fn idle_time(&self, surveys: u16) -> Duration {
        let time = self.times.get(usize::from(surveys)).or(self.times.back()).copied().unwrap_or_default();
        self.time().saturating_sub(time)
    }

    /// The blocks with a present or a swapped page.
    pub(super) fn blocks(&self) -> impl Iterator<Item = Block<'_>> {
        self.chunks.iter().flat_map(|chunk| chunk.blocks(self.number))
    }

    /// The state of the block that begins at `start`, if it has present or swapped pages.
    pub(super) fn state(&self, start: u64) -> Option<&Arc<BlockState>> {
        let after = self.chunks.partition_point(|chunk| chunk.start <= start);
        self.chunks[..after].last().filter(|chunk| start < chunk.end())?.state(start)
    }

    /// The number of blocks with a present page.
    pub(crate) fn block_count(&self) -> usize {
        self.all().blocks
    }

    /// How many pages the next survey may want to clear, about.
    pub(crate) fn clears_wanted(&self) -> f64 {
        self.all().clears_wanted()
    }

    /// How many pages are present.
    pub fn present(&self) -> u64 {
        self.all().present
    }

    /// How many pages are in swap. `None` if that is not known.
    pub fn swapped(&self) -> Option<u64> {
        self.knows_swap.then(|| self.all().swapped)
    }

    /// How many present pages have never been cleared, so that it is not known when they were accessed.
    pub fn never_cleared(&self) -> u64 {
        self.all().never_cleared
    }

    /// What the last survey found in `range`.
    pub fn pages_in(&self, range: AddrRange) -> Figures {
        self.pages(&self.counts_below(range.end()), &self.counts_below(range.start()))
    }

    /// The same, and the mean idle time of the pages whose last access is known, at least: the time since the survey
    /// that has found that access. `None` if there are none.
    pub(crate) fn pages_and_idle(&self, range: AddrRange) -> (Figures, Option<Duration>) {
        let (to, from) = (self.counts_below(range.end()), self.counts_below(range.start()));
        let exact = to.exact - from.exact;
        let idle = (exact > 0).then(|| {
            let surveys = (f64::from(self.number.get()) - (to.last - from.last) as f64 / exact as f64).max(0.0);
            let before = surveys as u16;
            let [before, after] = [before, before.saturating_add(1)].map(|surveys| self.idle_time(surveys));
            before + after.saturating_sub(before).mul_f64(surveys.fract())
        });
        (self.pages(&to, &from), idle)
    }

    fn pages(&self, to: &Counts, from: &Counts) -> Figures {
        let touched = ((to.touched - from.touched).max(0.0) * PAGE_SIZE as f64).round() as u64;
        let pages = Figures {
            present: to.present - from.present,
            unobservable: to.unobservable - from.unobservable,
            unknown: to.unknown - from.unknown,
            swapped: self.knows_swap.then(|| to.swapped - from.swapped).into(),
            ..Figures::unknown()
        };
        Figures { touched, ..pages.map(|pages| pages * PAGE_SIZE) }
    }

    /// How many present pages the last survey found in `range`.
    pub(crate) fn present_in(&self, range: AddrRange) -> u64 {
        self.present_below(range.end()) - self.present_below(range.start())
    }

    /// The address of the `nth` present page from `start` on, counted from 0.
    pub fn nth_present(&self, start: u64, nth: u64) -> Option<u64> {
        let nth = self.present_below(start) + nth;
        let index = self.below.partition_point(|below| below.present <= nth).checked_sub(1)?;
        self.chunks.get(index)?.nth_present(nth - self.below[index].present)
    }

    /// The parts of `range` whose present pages are all known to have been idle for at least `time`, each with a time
    /// for which they have been idle at least. The pages of a part have been idle for less than about twice that time.
    /// Pages that are absent lie in no part.
    pub fn idle_ranges(&self, range: AddrRange, time: Duration) -> Vec<(AddrRange, Duration)> {
        self.idle_for(range, time, |_| PageBits::ALL)
    }

    /// The same for pages in which no access was found since their accessed bit was cleared for the first time, and
    /// which are not known to have been idle for `time.end`: those that have been idle for at least `time.start`.
    ///
    /// The target had these pages before its first survey. What appears later was accessed then.
    pub fn never_accessed_ranges(&self, range: AddrRange, time: Range<Duration>) -> Vec<(AddrRange, Duration)> {
        let enough = self.surveys_in(time.end);
        self.idle_for(range, time.start, |block| {
            block.unplaced() & !enough.map_or(PageBits::NONE, |enough| block.idle_for(enough))
        })
    }

    /// After how many surveys without an access a page has been idle for at least `time`. `None` if there were not so
    /// many.
    fn surveys_in(&self, time: Duration) -> Option<u16> {
        let surveys = self.times.len().min(usize::from(LONGEST)) as u16;
        (1..surveys).find(|&surveys| self.idle_time(surveys) >= time)
    }

    /// The parts of `range` whose pages are `among` those of their block and have been idle for at least `time`, as
    /// [`idle_ranges`](Self::idle_ranges) has them.
    fn idle_for(
        &self,
        range: AddrRange,
        time: Duration,
        among: impl Fn(&Block<'_>) -> PageBits,
    ) -> Vec<(AddrRange, Duration)> {
        let Some(enough) = self.surveys_in(time) else { return Vec::new() };
        let mut parts: Vec<(AddrRange, u32)> = Vec::new();
        for block in self.blocks_in(range) {
            let within = block.within(range) & among(&block);
            block.idle_runs(within, enough, |run, doublings| append(&mut parts, &block, run, doublings));
        }
        // No page has been idle for more surveys than there were, so nothing is shifted out.
        parts.into_iter().map(|(part, doublings)| (part, self.idle_time(enough << doublings))).collect()
    }

    /// The parts of `range` whose pages are all present.
    pub fn present_ranges(&self, range: AddrRange) -> Vec<AddrRange> {
        self.ranges(range, |block| block.present)
    }

    /// The parts of `range` whose pages cannot be observed, and have been present for at least `time` since they
    /// appeared, since the first survey, or since an access was seen last.
    pub fn unobservable_ranges(&self, range: AddrRange, time: Duration) -> Vec<AddrRange> {
        let Some(enough) = self.surveys_in(time) else { return Vec::new() };
        let is_old = |block: &Block<'_>| PageBits::from_fn(|page| block.idle(page) >= enough);
        self.ranges(range, |block| block.unobservable() & block.present & is_old(block))
    }

    /// The blocks that have a part of `range`, each with its start and its present pages.
    pub(crate) fn present_pages(&self, range: AddrRange) -> impl Iterator<Item = (u64, PageBits)> {
        self.blocks_in(range).map(move |block| (block.start, block.present & block.within(range)))
    }

    /// The parts of `range` in blocks that have a present page.
    pub fn present_blocks(&self, range: AddrRange) -> Vec<AddrRange> {
        self.ranges(range, |block| if block.present.is_empty() { PageBits::NONE } else { PageBits::ALL })
    }

    /// The parts of `range` that consist of these pages of each block.
    fn ranges(&self, range: AddrRange, pages: impl Fn(&Block<'_>) -> PageBits) -> Vec<AddrRange> {
        let mut ranges: Vec<(AddrRange, ())> = Vec::new();
        for block in self.blocks_in(range) {
            (pages(&block) & block.within(range)).runs().for_each(|run| append(&mut ranges, &block, run, ()));
        }
        ranges.into_iter().map(|(range, ())| range).collect()
    }

    /// The block that begins at `start`, if it has present or swapped pages.
    pub(super) fn block(&self, start: u64) -> Option<Block<'_>> {
        let index = self.chunks.binary_search_by_key(&Chunk::start_of(start), |chunk| chunk.start).ok()?;
        let state = self.chunks[index].state(start)?;
        Some(Block { start, number: self.number, state })
    }

    /// The blocks that have a part of `range`.
    pub(super) fn blocks_in(&self, range: AddrRange) -> impl Iterator<Item = Block<'_>> {
        let first = self.chunks.partition_point(|chunk| chunk.end() <= range.start());
        let blocks = self.chunks[first..].iter().flat_map(|chunk| chunk.blocks(self.number));
        blocks
            .skip_while(move |block| block.start.saturating_add(BLOCK_SIZE) <= range.start())
            .take_while(move |block| block.start < range.end())
    }

    /// The stretches of all present pages, at most `most` of them, which is at least 1. If there are more, those are
    /// merged first that lose least.
    pub(crate) fn stretches(&self, most: usize) -> Vec<Stretch> {
        let borders = self.borders.clone().unwrap_or_else(|| {
            let mut borders = Borders::default();
            self.blocks().for_each(|block| borders.add(&block));
            borders
        });
        borders.stretches(most.max(1))
    }

    /// How many present pages lie below `addr`. It takes less time than [`counts_below`](Self::counts_below).
    fn present_below(&self, addr: u64) -> u64 {
        let index = self.chunks.partition_point(|chunk| chunk.end() <= addr);
        let here = self.chunks.get(index).filter(|chunk| chunk.start < addr);
        self.below.get(index).map_or(0, |below| below.present) + here.map_or(0, |chunk| chunk.present_below(addr))
    }

    pub(super) fn counts_below(&self, addr: u64) -> Counts {
        let index = self.chunks.partition_point(|chunk| chunk.end() <= addr);
        let below = self.below.get(index).copied().unwrap_or_default();
        match self.chunks.get(index) {
            Some(chunk) if chunk.start < addr => below.plus(&chunk.counts_below(addr)),
            _ => below,
        }
    }
}

/// Appends a run of pages of `block`. It becomes a part of the last range if both touch and have the same value.
pub(super) fn append<T: PartialEq>(parts: &mut Vec<(AddrRange, T)>, block: &Block<'_>, run: Range<usize>, value: T) {
    let at = |page: usize| block.start + page as u64 * PAGE_SIZE;
    let before = parts.pop_if(|(part, of)| part.end() == at(run.start) && *of == value);
    let start = before.map_or(at(run.start), |(part, _)| part.start());
    parts.extend(AddrRange::new(start, at(run.end)).map(|part| (part, value)));
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;
    use crate::{Mapping, TargetId};

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

    /// The bytes of a block that were touched and that are unknown, and those accessed within 5 s, as pages.
    fn counts(history: &Arc<PageHistory>) -> [u64; 3] {
        let mapping = Mapping::anonymous(AddrRange::new(0, BLOCK_SIZE).unwrap());
        let total = Arc::clone(history).sums(TargetId::PhysicalMemory, &Arc::from([mapping])).total();
        [total.figures.touched, total.figures.unknown, total.within[2]].map(|bytes| bytes / PAGE_SIZE)
    }

    #[test]
    fn a_target_that_has_not_run_is_idle_although_nothing_of_it_was_cleared_and_unknown_once_it_runs() {
        let found = |accessed| BlockPages { present: PageBits::ALL, accessed, ..BlockPages::default() };
        let mut history = Arc::new(PageHistory::default());
        let mut survey = |second, accessed, is_at_rest, cleared: PageBits| {
            let update = Arc::clone(&history).update(Duration::from_secs(second));
            let mut part = update.with_rest(Some(AtRest(second)), is_at_rest).take(&[found(accessed)]);
            part.note_cleared(&[ClearPages { pages: cleared, ..ClearPages::default() }]);
            history = Arc::new(part.end(&[]).finish(Duration::from_secs(second)));
            counts(&history)
        };
        let (all, quarter) = (PageBits::ALL, PageBits::of(0..128));
        // Nothing is known of the time before the first survey, which clears a quarter.
        assert_eq!(survey(0, all, false, quarter)[1], 512);
        for second in [10, 20, 30] {
            assert_eq!(survey(second, !quarter, true, PageBits::NONE), [0, 0, 0], "{second}");
        }
        // It has run, and has accessed half of the quarter. The rest is unknown, and counts in the same share.
        assert_eq!(survey(40, all & !PageBits::of(64..128), false, PageBits::NONE)[..2], [64 + 192, 384]);
        // It rests again: what it has accessed lies before.
        assert_eq!(survey(50, all & !PageBits::of(64..128), true, PageBits::NONE), [0, 0, 0]);
    }

    #[test]
    fn the_memory_of_a_target_that_has_not_run_since_the_start_was_not_accessed() {
        let found = BlockPages { present: PageBits::ALL, accessed: PageBits::ALL, ..BlockPages::default() };
        let update = Arc::new(PageHistory::default()).update(Duration::from_secs(60)).with_rest(None, true);
        let update = update.take(&[found]).end(&[]);
        assert_eq!(counts(&Arc::new(update.finish(Duration::from_secs(60)))), [0, 0, 0]);
    }

    #[test]
    fn swapped_pages_count_in_their_mapping_also_where_no_page_is_present() {
        let range = |start, end| AddrRange::new(start * BLOCK_SIZE, end * BLOCK_SIZE).unwrap();
        let mappings: Arc<[Mapping]> = [range(0, 2), range(2, 3)].map(Mapping::anonymous).into();
        let blocks = [
            BlockPages { present: PageBits::of(0..500), swapped: PageBits::of(500..510), ..BlockPages::default() },
            BlockPages { start: 2 * BLOCK_SIZE, swapped: PageBits::of(5..512), ..BlockPages::default() },
        ];
        let survey = |knows_swap| {
            let update = Arc::new(PageHistory::default()).update(Duration::ZERO);
            let update = update.take(&blocks).end(&mappings);
            update.finish_with_sums(Duration::ZERO, (TargetId::PhysicalMemory, &mappings), knows_swap)
        };
        let (history, found, _) = survey(true);
        let pages = |bytes: u64| bytes / PAGE_SIZE;
        let sums = found
            .by_mapping
            .iter()
            .map(|of| (pages(of.sums.figures.present), of.sums.figures.swapped.map(pages).known()));
        assert_eq!(sums.collect::<Vec<_>>(), [(500, Some(10)), (0, Some(507))]);
        assert_eq!(history.pages_in(range(1, 3)).swapped.map(pages).known(), Some(507));
        // There is nothing to sample or to clear in a block without a present page.
        assert_eq!((history.block_count(), history.stretches(9).len()), (1, 1));
        let pages = |pages: Figures<u16>| (pages.present, pages.swapped.known());
        let blocks = found.by_block.iter().map(|block| (block.start / BLOCK_SIZE, pages(block.pages)));
        assert_eq!(blocks.collect::<Vec<_>>(), [(0, (500, Some(10))), (2, (0, Some(507)))]);
        assert_eq!((found.by_block.len(), found.by_block.is_empty()), (2, false));
        let (history, found, _) = survey(false);
        assert!(found.by_mapping.iter().all(|of| of.sums.figures.swapped.is_unknown()));
        assert!(found.by_block.iter().all(|block| block.pages.swapped.is_unknown()));
        assert!(history.pages_in(range(0, 3)).swapped.is_unknown());
    }
}
