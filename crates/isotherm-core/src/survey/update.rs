//! A survey that is being taken into a history.

use std::sync::Arc;
use std::time::Duration;

use super::block::{Block, BlockState};
use super::borders::Borders;
use super::change::Numbers;
use super::chunk::{self, Chunk};
use super::memo::Memos;
use super::number::LONGEST;
use super::once::CountedOnce;
use super::panel::Panel;
use super::snapshot::TargetSurvey;
use super::tally::Tallies;
use super::windows::Windows;
use super::{BLOCK_PAGES, BLOCK_SIZE, BlockFrames, BlockPages, ClearPages, NodePages, PageHistory};
use crate::{AtRest, Mapping, TargetId};

/// A survey that is being taken into a history, part by part: between two of its parts.
///
/// The history of the survey before is only read, and shares with the new one what stays the same. What is counted of a
/// part is counted at its end, so that the end of the survey adds up parts, and not pages.
#[derive(Debug)]
#[must_use = "a survey that does not finish is lost"]
pub struct HistoryUpdate {
    /// The survey before.
    old: Arc<PageHistory>,
    /// The first chunk of the survey before that may hold blocks of the next part.
    old_chunk: usize,
    /// The new history. Its chunks are those of the parts that have ended.
    history: PageHistory,
    /// The blocks of the part under way, each with its start.
    part: Vec<(u64, Arc<BlockState>)>,
    /// The memory nodes of pages of the part, in the order of addresses.
    placed: Vec<NodePages>,
    numbers: Numbers,
    memos: Memos,
    /// Whether the target has not run since the survey before, or since the run began if this is the first one.
    is_at_rest: bool,
    /// What was counted of the parts that have ended.
    tallies: Tallies,
    /// The stretches of these parts. `None` if a part was not counted.
    borders: Option<Borders>,
}

/// A survey of which a part is under way: it was read, and pages of it are being cleared. The survey goes on, or
/// finishes, when the part has ended.
#[derive(Debug)]
#[must_use = "a part that does not end is not counted"]
pub struct PartUpdate(HistoryUpdate);

impl PageHistory {
    /// Begins to take in a survey at `now`. The history stays as it is.
    pub fn update(self: Arc<Self>, now: Duration) -> HistoryUpdate {
        let is_first = self.times.is_empty();
        let are_reduced = self.number.is_full();
        let before = if are_reduced { self.number.reduced() } else { self.number };
        let number = before.next();
        let mut times = self.times.clone();
        times.push_front(now);
        times.truncate(usize::from(LONGEST));
        let mut history = Self { times, number, unknown_share: self.unknown_share, ..Self::default() };
        history.chunks.reserve(self.chunks.len());
        history.below.reserve(self.below.len());
        let numbers = Numbers { before, now: number, are_reduced, is_first };
        HistoryUpdate {
            old: self,
            old_chunk: 0,
            tallies: Tallies::new(&history),
            history,
            part: Vec::new(),
            placed: Vec::new(),
            numbers,
            memos: Memos::default().of(numbers),
            is_at_rest: false,
            borders: Some(Borders::default()),
        }
    }
}

impl HistoryUpdate {
    /// The same update, where the blocks of a panel stand for the others: it is known of them when they were accessed,
    /// whenever that was.
    pub fn with_panel(mut self, panel: Panel) -> Self {
        self.history.panel = panel;
        self.tallies = Tallies::new(&self.history);
        self
    }

    /// The same update, whose blocks share their states with those of the target that had these before.
    pub(crate) fn with_memos(mut self, memos: Memos) -> Self {
        self.memos = memos.of(self.numbers);
        self
    }

    /// The same update, of a target of which this was found just before it was read, and which has not run since the
    /// survey before if it `is_at_rest`, or since the run began if this is the first one.
    pub(crate) fn with_rest(mut self, rest: Option<AtRest>, is_at_rest: bool) -> Self {
        self.history.rest = rest;
        self.is_at_rest = is_at_rest;
        self
    }

    /// Takes in what was found of the target just before the next part of it is read. Returns whether it is still at
    /// rest.
    pub(crate) fn rests(&mut self, rest: Option<AtRest>) -> bool {
        self.is_at_rest &= rest == self.history.rest;
        self.is_at_rest
    }

    /// Takes in the next part of what the survey has read: all blocks with present or swapped pages of a range of
    /// addresses, in the order of addresses. Each part lies above the one before.
    pub fn take(mut self, found: &[BlockPages]) -> PartUpdate {
        self.part.reserve(found.len());
        for pages in found {
            let old = &self.old.chunks;
            while old.get(self.old_chunk).is_some_and(|chunk| chunk.end() <= pages.start) {
                self.old_chunk += 1;
            }
            let chunk = old.get(self.old_chunk).filter(|chunk| chunk.start <= pages.start);
            let known = chunk.and_then(|chunk| chunk.state(pages.start));
            let state = known.unwrap_or(&self.memos.unknown);
            let state = if self.is_at_rest {
                let (found, before) = state.found_at_rest(pages, self.numbers.is_first);
                let change = (BlockPages { start: 0, ..found }, before);
                match known {
                    Some(known) if !self.numbers.are_reduced && known.stays_at_rest(&change) => Arc::clone(known),
                    _ => {
                        let hash = mixed(&found) ^ before.mixed().rotate_left(4);
                        self.memos.taken_at_rest.after(state, &change, hash, || state.after_rest(&change, self.numbers))
                    }
                }
            } else {
                match known {
                    Some(known) if !self.numbers.are_reduced && known.stays(pages) => Arc::clone(known),
                    _ => {
                        let change = BlockPages { start: 0, ..*pages };
                        self.memos.taken.after(state, &change, mixed(pages), || state.after(pages, self.numbers))
                    }
                }
            };
            self.part.push((pages.start, state));
        }
        PartUpdate(self)
    }

    /// The history. Only the parts that have ended are known.
    pub(crate) fn history(&self) -> &PageHistory {
        &self.history
    }

    /// Puts the blocks of the part into chunks.
    fn keep_part(&mut self) {
        let PageHistory { chunks, below, .. } = &mut self.history;
        if below.is_empty() {
            below.push(Default::default());
        }
        let mut part = std::mem::take(&mut self.part);
        // The part before may have ended within a chunk.
        if let (Some(last), Some((start, _))) = (chunks.last(), part.first())
            && last.start == Chunk::start_of(*start)
        {
            let begun: Vec<_> = last.states().map(|(start, state)| (start, Arc::clone(state))).collect();
            part.splice(0..0, begun);
            chunks.pop();
            below.pop();
        }
        let first = part.first().map_or(0, |(start, _)| Chunk::start_of(*start));
        let mut known = self.old.chunks[self.old.chunks.partition_point(|chunk| chunk.start < first)..].iter();
        let mut next = known.next();
        for blocks in part.chunk_by(|a, b| Chunk::start_of(a.0) == Chunk::start_of(b.0)) {
            let start = Chunk::start_of(blocks[0].0);
            while next.is_some_and(|chunk| chunk.start < start) {
                next = known.next();
            }
            let same_place = next.filter(|chunk| chunk.start == start);
            let Some(chunk) = Chunk::new(blocks, same_place.into_iter().chain(chunks.last())) else { continue };
            below.extend(below.last().map(|below| below.plus(chunk.counts())));
            chunks.push(chunk);
        }
        part.clear();
        self.part = part;
    }

    /// How many present pages there are so far.
    pub(crate) fn present(&self) -> u64 {
        self.history.present()
    }

    /// Lets no more than `most` stretches be known at the end. Those are merged first that lose least.
    pub(crate) fn keep_stretches(&mut self, most: usize) {
        self.borders.iter_mut().for_each(|borders| borders.keep(most.max(1)));
    }

    /// Ends the survey at `now`. Blocks that no part has read are gone.
    pub fn finish(mut self, now: Duration) -> PageHistory {
        self.end(now);
        self.history
    }

    /// Ends the survey at `now`. Returns what it says of a target with these mappings, too, and what the next target
    /// may share. `knows_swap` says whether it tells which pages are in swap.
    pub(crate) fn finish_with_sums(
        mut self,
        now: Duration,
        (id, mappings): (TargetId, &Arc<[Mapping]>),
        knows_swap: bool,
    ) -> (Arc<PageHistory>, TargetSurvey, Memos) {
        self.history.knows_swap = knows_swap;
        self.end(now);
        let history = Arc::new(self.history);
        let sums = history.sums_with(id, mappings, self.tallies);
        (history, sums, self.memos)
    }

    fn end(&mut self, now: Duration) {
        if let Some(time) = self.history.times.front_mut() {
            // The parts were read at different times. The middle is right on the mean.
            *time += now.saturating_sub(*time) / 2;
        }
        self.history.borders = self.borders.take();
        self.history.estimate_unknown();
    }
}

impl PartUpdate {
    /// Takes in the memory node of pages of the part. The calls are in the order of addresses.
    pub fn place(&mut self, pages: NodePages) {
        self.0.placed.push(pages);
    }

    /// The history of the survey before.
    pub(super) fn before(&self) -> &PageHistory {
        &self.0.old
    }

    /// The history. Only the parts that have ended are known.
    pub(crate) fn history(&self) -> &PageHistory {
        &self.0.history
    }

    /// The blocks of the part, each with its start.
    pub(super) fn blocks(&self) -> &[(u64, Arc<BlockState>)] {
        &self.0.part
    }

    /// Adds pages of a block of the part, of a target with these mappings, to what is counted once.
    pub(crate) fn count_once(
        &self,
        once: &mut CountedOnce,
        windows: &Windows,
        frames: &BlockFrames<'_>,
        mappings: &[Mapping],
    ) {
        if let Ok(index) = self.0.part.binary_search_by_key(&frames.start, |(start, _)| *start) {
            let placed = &self.0.placed[self.0.placed.partition_point(|placed| placed.start < frames.start)..];
            let placed = &placed[..placed.partition_point(|placed| placed.start == frames.start)];
            once.add(self.block(&self.0.part[index]), windows, frames, (mappings, placed));
        }
    }

    pub(super) fn block<'a>(&self, (start, state): &'a (u64, Arc<BlockState>)) -> Block<'a> {
        Block { start: *start, number: self.0.numbers.now, state }
    }

    /// How many pages may have to be cleared in the part under way, and above it, where `left` blocks are left, about.
    pub(crate) fn clears_wanted(&self, left: usize) -> (f64, f64) {
        let Some((last, _)) = self.0.part.last().filter(|_| !self.0.old.chunks.is_empty()) else {
            // Nothing is known of the rest.
            return ((self.0.part.len() * BLOCK_PAGES) as f64, (left * BLOCK_PAGES) as f64);
        };
        let here = self.0.part.iter().map(|(_, state)| state.counts().clears_wanted()).sum();
        let above =
            self.0.old.clears_wanted() - self.0.old.counts_below(last.saturating_add(BLOCK_SIZE)).clears_wanted();
        (here, above.max(left as f64))
    }

    /// Notes which pages the survey has cleared. What was noted before stays noted.
    pub fn note_cleared(&mut self, done: &[ClearPages]) {
        let first = self.0.part.first().map_or(u64::MAX, |(start, _)| *start);
        let (before, here) = done.split_at(done.partition_point(|pages| pages.start < first));
        if !before.is_empty() {
            // What was counted of earlier parts no longer holds.
            self.0.history.cleared(before);
            self.0.tallies.clear();
            self.0.borders = None;
        }
        let mut rest = self.0.part.as_mut_slice();
        for pages in here {
            let index = rest.partition_point(|(start, _)| *start < pages.start);
            rest = &mut rest[index..];
            if let Some((_, state)) = rest.first_mut().filter(|(start, _)| *start == pages.start) {
                chunk::note_cleared(state, pages, &mut self.0.memos.cleared);
            }
        }
    }

    /// Ends the part: counts what is known of it, by `mappings` and by borders, so that the end of the survey has less
    /// to do.
    pub fn end(self, mappings: &[Mapping]) -> HistoryUpdate {
        let Self(mut update) = self;
        for (start, state) in &mut update.part {
            if !update.old.state(*start).is_some_and(|before| Arc::ptr_eq(before, state)) {
                update.memos.share(state);
            }
        }
        let number = update.numbers.now;
        let blocks: Vec<Block<'_>> =
            update.part.iter().map(|(start, state)| Block { start: *start, number, state }).collect();
        update.tallies.add(&blocks, mappings);
        update.tallies.add_nodes(&blocks, &update.placed);
        update.placed.clear();
        if let Some(borders) = &mut update.borders {
            blocks.iter().for_each(|block| borders.add(block));
            borders.limit();
        }
        update.keep_part();
        update
    }
}

/// A number that depends on the pages of a block.
fn mixed(pages: &BlockPages) -> u64 {
    pages.present.mixed()
        ^ pages.accessed.mixed().rotate_left(1)
        ^ pages.swapped.mixed().rotate_left(2)
        ^ pages.lazily_freed.mixed().rotate_left(3)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::survey::{BlockSums, MappingSums, NodeSums, PageBits, WINDOWS};
    use crate::{AddrRange, Figures, NodeId, PAGE_SIZE};

    /// What a survey finds in a block, and what it clears of it, as the generator makes it.
    #[derive(Clone, Debug)]
    struct Seen {
        block: u64,
        pages: BlockPages,
        clear: PageBits,
    }

    fn bits() -> impl Strategy<Value = PageBits> {
        let range = (0..512_usize, 0..512_usize).prop_map(|(a, b)| PageBits::of(a.min(b)..a.max(b)));
        prop_oneof![3 => Just(PageBits::NONE), 3 => Just(PageBits::ALL), 2 => range]
    }

    fn seen() -> impl Strategy<Value = Seen> {
        (0..80_u64, bits(), bits(), bits(), bits()).prop_map(|(block, present, accessed, unobservable, clear)| {
            let swapped = clear & !present;
            let present = if present.is_empty() && swapped.is_empty() { PageBits::ALL } else { present };
            let (accessed, unobservable) = (accessed & present, unobservable & present & !accessed);
            let pages = BlockPages {
                start: block * BLOCK_SIZE,
                present,
                accessed,
                unobservable,
                swapped,
                ..Default::default()
            };
            Seen { block, pages, clear }
        })
    }

    fn survey() -> impl Strategy<Value = Vec<Seen>> {
        // Most blocks stay idle, and are the same.
        prop::collection::btree_map(0..80_u64, seen(), 0..20).prop_map(|mixed| {
            let idle = BlockPages { present: PageBits::ALL, ..BlockPages::default() };
            let block = |block: u64| {
                let pages = BlockPages { start: block * BLOCK_SIZE, ..idle };
                let found = mixed.get(&block).map(|seen| {
                    let mut seen = seen.clone();
                    (seen.block, seen.pages.start) = (block, block * BLOCK_SIZE);
                    seen
                });
                found.unwrap_or(Seen { block, pages, clear: PageBits::NONE })
            };
            (0..80).filter(|nth| nth % 13 != 5 || mixed.contains_key(nth)).map(block).collect()
        })
    }

    fn mappings(cuts: &[u64]) -> Arc<[Mapping]> {
        let end = 80 * BLOCK_SIZE;
        let mut borders: Vec<u64> = cuts.iter().map(|cut| cut * PAGE_SIZE % end).chain([0, end]).collect();
        borders.sort_unstable();
        borders.windows(2).filter_map(|pair| AddrRange::new(pair[0], pair[1])).map(Mapping::anonymous).collect()
    }

    /// What a survey says: sums by mapping, by block and by node, and the stretches.
    type Said = (Vec<MappingSums>, Vec<BlockSums>, Vec<NodeSums>, Vec<super::super::Stretch>, u64, u64);

    /// Takes in surveys in parts of this many blocks. The mappings change after each part.
    fn said(surveys: &[Vec<Seen>], part: usize, changing: &[Arc<[Mapping]>], last: &Arc<[Mapping]>) -> Vec<Said> {
        let mut history = Arc::new(PageHistory::default());
        let taken = (0..).zip(surveys).map(|(nth, survey)| {
            let time = Duration::from_secs(7 * nth);
            let of_a_target = |memos| {
                let mut update = Arc::clone(&history).update(time).with_memos(memos);
                for (nth, seen) in survey.chunks(part).enumerate() {
                    let mut part = update.take(&seen.iter().map(|seen| seen.pages).collect::<Vec<_>>());
                    seen.iter().flat_map(on_two_nodes).for_each(|placed| part.place(placed));
                    let clear = |seen: &Seen| ClearPages {
                        start: seen.pages.start,
                        pages: seen.clear & seen.pages.accessed,
                        unobservable: PageBits::NONE,
                    };
                    part.note_cleared(&seen.iter().map(clear).filter(|c| !c.pages.is_empty()).collect::<Vec<_>>());
                    update = part.end(&changing[nth % changing.len()]);
                }
                let end = time + Duration::from_secs(1);
                update.finish_with_sums(end, (TargetId::PhysicalMemory, last), true)
            };
            let (first, found, memos) = of_a_target(Memos::default());
            // What was remembered of a target changes nothing of the next.
            let (alike, found_alike, _) = of_a_target(memos);
            assert_eq!((&alike.chunks, &found_alike.by_mapping), (&first.chunks, &found.by_mapping));
            history = alike;
            let all = AddrRange::new(0, 80 * BLOCK_SIZE).unwrap();
            assert_eq!(history.pages_in(all).present / PAGE_SIZE, history.present());
            // Blocks and mappings hold the same memory.
            let bytes = |block: BlockSums| block.pages.map(|pages| u64::from(pages) * PAGE_SIZE);
            let (of_blocks, total): (Figures, _) = (found.by_block.iter().map(bytes).sum(), found.total().figures);
            assert_eq!((of_blocks.unobservable, of_blocks.unknown), (total.unobservable, total.unknown));
            (
                found.by_mapping,
                found.by_block.iter().collect(),
                found.by_node,
                history.stretches(50),
                history.present(),
                history.never_cleared(),
            )
        });
        taken.collect()
    }

    /// Of each block, the first 100 pages are on node 3.
    fn on_two_nodes(seen: &Seen) -> [NodePages; 2] {
        let first = PageBits::of(0..100);
        [(NodeId(1), !first), (NodeId(3), first)].map(|(node, pages)| {
            let pages = pages & seen.pages.present;
            NodePages { start: seen.pages.start, node, pages }
        })
    }

    #[test]
    fn memory_is_counted_on_its_node() {
        let block = |accessed| Seen {
            block: 0,
            pages: BlockPages { present: PageBits::of(0..300), accessed, ..BlockPages::default() },
            clear: PageBits::of(0..300),
        };
        let surveys =
            [PageBits::of(0..300), PageBits::of(90..110), PageBits::NONE].map(|accessed| vec![block(accessed)]);
        let mappings = mappings(&[]);
        let said = said(&surveys, 1, std::slice::from_ref(&mappings), &mappings);
        let pages = |bytes: u64| bytes / PAGE_SIZE;
        let of = |nth: usize| -> Vec<_> {
            let sums = said[nth].2.iter().map(|NodeSums { node, sums }| {
                // Within 10 s, so within one interval and a part of the one before.
                (
                    node.0,
                    pages(sums.figures.present),
                    pages(sums.figures.touched),
                    pages(sums.within[4]),
                    sums.figures.swapped.known(),
                )
            });
            sums.collect()
        };
        assert_eq!(of(1), [(1, 200, 10, 10, None), (3, 100, 10, 10, None)]);
        assert_eq!(of(2), [(1, 200, 0, 10, None), (3, 100, 0, 10, None)]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_survey_in_parts_says_the_same_as_one_in_one_part(
            surveys in prop::collection::vec(survey(), 1..8),
            part in 1..70_usize,
            cuts in prop::collection::vec(prop::collection::vec(0..80_u64 * 512, 0..12), 1..4),
        ) {
            let mappings: Vec<_> = cuts.iter().map(|cuts| mappings(cuts)).collect();
            let last = mappings.last().unwrap();
            prop_assert_eq!(said(&surveys, part, &mappings, last), said(&surveys, usize::MAX, &mappings, last));
        }
    }

    #[test]
    fn memory_that_is_cleared_late_and_stays_idle_is_in_no_window() {
        let all = PageBits::ALL;
        let block = |accessed| BlockPages { present: all, accessed, ..BlockPages::default() };
        let mappings: Arc<[Mapping]> = [Mapping::anonymous(AddrRange::new(0, BLOCK_SIZE).unwrap())].into();
        let mut history = Arc::new(PageHistory::default());
        // Accessed before the first survey, cleared by the third, and accessed again before the fifth.
        for (second, accessed, clear, expected) in [
            (0, all, PageBits::NONE, 0),
            (1, all, PageBits::NONE, 0),
            (2, all, all, 0),
            (3, PageBits::NONE, PageBits::NONE, 0),
            (4, all, all, BLOCK_SIZE),
        ] {
            let time = Duration::from_secs(second);
            let mut part = history.update(time).take(&[block(accessed)]);
            part.note_cleared(&[ClearPages { pages: clear, ..ClearPages::default() }]);
            let found;
            (history, found, _) =
                part.end(&mappings).finish_with_sums(time, (TargetId::PhysicalMemory, &mappings), true);
            let total = found.total();
            assert_eq!(total.within, [expected; WINDOWS.len()], "after {second} s");
            assert_eq!(total.figures.unknown, if second < 3 { BLOCK_SIZE } else { 0 }, "after {second} s");
        }
    }

    #[test]
    fn what_is_known_of_a_target_takes_no_memory_for_another_one_that_is_alike() {
        let found = [PageBits::NONE, PageBits::ALL, PageBits::of(0..7)].map(|accessed| BlockPages {
            start: accessed.count() as u64 * BLOCK_SIZE,
            present: PageBits::ALL,
            accessed,
            ..BlockPages::default()
        });
        let cleared = ClearPages { pages: PageBits::of(0..7), start: 7 * BLOCK_SIZE, ..ClearPages::default() };
        let survey = |memos, found: &[BlockPages]| {
            let update = Arc::new(PageHistory::default()).update(Duration::ZERO).with_memos(memos);
            let mut part = update.take(found);
            part.note_cleared(&[cleared]);
            let mappings: Arc<[Mapping]> = [].into();
            let (history, _, memos) =
                part.end(&mappings).finish_with_sums(Duration::ZERO, (TargetId::PhysicalMemory, &mappings), true);
            (history, memos)
        };
        let mut found = found.to_vec();
        found.sort_by_key(|block| block.start);
        let (first, memos) = survey(Memos::default(), &found);
        let (second, _) = survey(memos, &found);
        assert_eq!(second.block_count(), 3);
        for (a, b) in first.blocks().zip(second.blocks()) {
            assert!(std::ptr::eq(a.state, b.state), "{:?}", a.start / BLOCK_SIZE);
        }
    }

    #[test]
    fn memory_that_stays_idle_is_kept_once() {
        let idle = |nth: u64| BlockPages { start: nth * BLOCK_SIZE, present: PageBits::ALL, ..BlockPages::default() };
        let mut history = Arc::new(PageHistory::default());
        for second in 0..5 {
            let mut update = history.update(Duration::from_secs(second));
            for part in 0..10 {
                update = update.take(&(part * 100..(part + 1) * 100).map(idle).collect::<Vec<_>>()).end(&[]);
            }
            history = Arc::new(update.finish(Duration::from_secs(second)));
        }
        assert_eq!(history.block_count(), 1000);
        let mut states: Vec<_> = history.blocks().map(|block| std::ptr::from_ref(block.state)).collect();
        states.dedup();
        assert_eq!(states.len(), 1);
    }
}
