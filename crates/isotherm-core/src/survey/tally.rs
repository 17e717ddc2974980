//! Counts pages by the survey in whose interval they were accessed last.
//!
//! Each part of a survey is counted by itself. The window of an access is known only at the end of the survey, when the
//! counts of the parts are added up.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::block::{Block, BlockState, LAGS};
use super::estimate::{Accessed, Dated, Pages};
use super::panel::Panel;
use super::windows::{COUNT, LONGEST_WINDOW, Windows};
use super::{BLOCK_SIZE, NodePages, PageBits, PageHistory};
use crate::{AddrRange, Mapping, NodeId};

/// The most blocks that are counted together: 1 GiB. If a mapping changes while a survey is under way, no more than
/// this is counted again at each of its ends.
const PIECE: usize = 512;

/// Pages by what is known of them.
#[derive(Clone, Debug, Default, PartialEq)]
struct Tally {
    present: u64,
    unobservable: u64,
    swapped: u64,
    lazily_freed: u64,
    touched: u64,
    /// The pages in `touched` that were accessed in the interval before, too.
    touched_again: u64,
    /// Pages that are idle, and whose last access is in no window.
    unplaced: u64,
    /// Of the uncertain pages outside of hot blocks, those in blocks with a share, and the sum of these shares.
    asked: (u32, f64),
    /// The other figures, by the number of surveys since the last access.
    ages: Vec<(u16, OfAge)>,
    /// Pages that were accessed in the interval of an earlier survey and whose last access is known: by the
    /// number of surveys back to that interval, from 1 on, and by the number of surveys back to the last access.
    followed: [[u32; LAGS + 1]; LAGS],
}

/// Pages that were last accessed the same number of surveys ago.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct OfAge {
    /// Pages whose last access is known.
    exact: u32,
    /// Pages that may have been accessed since then, outside of hot blocks.
    uncertain: u32,
    /// Such pages in hot blocks.
    hot: u32,
    /// The pages in `hot`, each by the share of its block.
    hot_share: f64,
}

/// A block, and those of its pages that count.
type PartOfBlock<'a> = (Block<'a>, PageBits);

/// Counts pages. Its memory is used again.
#[derive(Debug)]
struct Counter {
    /// From this number of surveys on, no window holds the access.
    oldest: u16,
    /// By the number of surveys since the last access.
    ages: Vec<OfAge>,
    /// The numbers of surveys with pages.
    found: Vec<u16>,
    panel: Panel,
}

impl Counter {
    fn new(history: &PageHistory) -> Self {
        let in_windows = history.times.partition_point(|&time| history.time().saturating_sub(time) < LONGEST_WINDOW);
        let oldest = in_windows.min(u16::MAX.into()) as u16;
        Self { oldest, ages: Vec::new(), found: Vec::new(), panel: history.panel }
    }

    /// Counts the pages of `blocks` that lie in `range`: of blocks in the panel, and of the others.
    fn count_in<'a, I: Iterator<Item = Block<'a>>>(&mut self, blocks: impl Fn() -> I, range: AddrRange) -> [Tally; 2] {
        self.count_all(|| {
            blocks().map(|block| {
                let is_inside = range.start() <= block.start && block.start.saturating_add(BLOCK_SIZE) <= range.end();
                (block, if is_inside { PageBits::ALL } else { block.within(range) })
            })
        })
    }

    /// Counts pages of blocks: of blocks in the panel, and of the others.
    fn count_all<'a, I: Iterator<Item = PartOfBlock<'a>>>(&mut self, parts: impl Fn() -> I) -> [Tally; 2] {
        let panel = self.panel;
        let beside = match panel.is_all() {
            true => Tally::default(),
            false => self.count(parts().filter(|(block, _)| !panel.contains(block.start))),
        };
        [self.count(parts().filter(|(block, _)| panel.contains(block.start))), beside]
    }

    /// Counts pages of blocks.
    fn count<'a>(&mut self, parts: impl Iterator<Item = PartOfBlock<'a>>) -> Tally {
        let mut tally = Tally::default();
        for (block, within) in parts {
            let (least, most) = block.idle_bounds();
            block.followed(within, |lag, last, pages| tally.followed[lag - 1][last] += pages);
            if within == PageBits::ALL && least == most && block.is_exact() && block.unplaced().is_empty() {
                // Most blocks are idle as a whole.
                let counts = block.counts();
                tally.present += counts.present;
                tally.unobservable += counts.unobservable;
                tally.swapped += counts.swapped;
                tally.lazily_freed += counts.lazily_freed;
                tally.touched += counts.touched as u64;
                if counts.touched > 0.0 {
                    tally.touched_again += block.touched_again().count() as u64;
                }
                self.age(least).exact += (counts.present - counts.unobservable) as u32;
                continue;
            }
            let present = block.present & within;
            let observable = present & !block.unobservable();
            tally.present += present.count() as u64;
            tally.unobservable += (present & block.unobservable()).count() as u64;
            tally.swapped += (block.swapped() & within).count() as u64;
            tally.lazily_freed += (block.lazily_freed() & within).count() as u64;
            tally.touched += (observable & block.touched()).count() as u64;
            tally.touched_again += (observable & block.touched_again()).count() as u64;
            let unplaced = observable & block.unplaced();
            tally.unplaced += unplaced.count() as u64;
            let exact = observable & block.exact & !unplaced;
            if least == most {
                self.age(least).exact += exact.count() as u32;
            } else {
                block.ages(exact, |idle, pages| self.age(idle).exact += pages);
            }
            let (uncertain, share) = (observable & block.uncertain(), block.hot_share());
            if let (None, Some(again)) = (share, block.share) {
                let pages = uncertain.count() as u32;
                tally.asked.0 += pages;
                tally.asked.1 += f64::from(pages) * f64::from(again);
            }
            block.ages(uncertain, |idle, pages| {
                let age = self.age(idle);
                match share {
                    None => age.uncertain += pages,
                    Some(share) => {
                        age.hot += pages;
                        age.hot_share += f64::from(pages) * share;
                    }
                }
            });
        }
        self.found.sort_unstable();
        let ages = self.found.drain(..).map(|age| (age, std::mem::take(&mut self.ages[usize::from(age)])));
        tally.ages = ages.filter(|(_, pages)| *pages != OfAge::default()).collect();
        tally
    }

    fn age(&mut self, surveys: u16) -> &mut OfAge {
        let surveys = surveys.min(self.oldest);
        let index = usize::from(surveys);
        if self.ages.len() <= index {
            self.ages.resize(index + 1, OfAge::default());
        }
        let age = &mut self.ages[index];
        if *age == OfAge::default() {
            self.found.push(surveys);
        }
        age
    }
}

impl Tally {
    fn pages(&self, windows: &Windows) -> Pages {
        let mut pages = Pages {
            present: self.present as f64,
            unobservable: self.unobservable as f64,
            swapped: self.swapped as f64,
            lazily_freed: self.lazily_freed,
            dated: Dated {
                all: Accessed { pages: self.unplaced as f64, touched: self.touched as f64, ..Accessed::default() },
                ..Dated::default()
            },
            again: self.touched_again as f64,
            asked: (f64::from(self.asked.0), self.asked.1),
            ..Pages::default()
        };
        let dated = &mut pages.dated;
        for &(age, OfAge { exact, uncertain, hot, hot_share }) in &self.ages {
            let first = windows.first_with(age);
            match usize::from(age) {
                lag @ 1..=LAGS => pages.followed[lag - 1].uncertain = f64::from(uncertain),
                _ => pages.uncertain[first] += f64::from(uncertain),
            }
            // The part of a hot block that was cleared stands for the rest.
            dated.all.pages += f64::from(exact + hot);
            dated.all.touched += hot_share;
            // Of pages that were accessed in the last interval, `Pages::spread` adds the parts.
            let parts = match age {
                0 => [0.0; COUNT],
                _ => windows.parts().get(windows.class(age)).copied().unwrap_or([0.0; COUNT]),
            };
            dated.last += if age == 0 { f64::from(exact) } else { 0.0 };
            windows.begun_in(age).for_each(|window| {
                dated.begun[window] += f64::from(exact);
                pages.begun.pages[window] += f64::from(exact);
            });
            windows.begun_in(age.saturating_sub(1)).for_each(|window| pages.begun.before[window] += f64::from(exact));
            for (window, within) in dated.all.within.iter_mut().enumerate() {
                let is_whole = parts[window] == 1.0;
                *within += if is_whole { f64::from(exact) } else { 0.0 };
                *within += if window < first { hot_share } else { f64::from(hot) };
            }
        }
        let parts = |last: usize| windows.parts().get(windows.class(last as u16)).copied().unwrap_or([0.0; COUNT]);
        for (lag, (to, counts)) in (1..).zip(pages.followed.iter_mut().zip(&self.followed)) {
            to.first = windows.first_with(lag);
            to.dated.pages = counts.iter().map(|&pages| f64::from(pages)).sum();
            to.dated.touched = f64::from(counts[0]);
            for (last, &count) in counts.iter().enumerate().skip(1) {
                to.dated
                    .within
                    .iter_mut()
                    .zip(parts(last))
                    .for_each(|(within, part)| *within += f64::from(count) * part);
            }
        }
        pages
    }
}

/// What was counted of some ranges of a target.
#[derive(Debug)]
pub(super) struct Tallies {
    counter: Counter,
    /// Sorted and disjoint. Each with its pages in the panel, and the others.
    ranges: Vec<(AddrRange, [Tally; 2])>,
    /// The pages of memory nodes, in each part by itself.
    nodes: Vec<(NodeId, [Tally; 2])>,
}

impl Tallies {
    /// Counts nothing yet. The times of `history` end with the survey that is to be counted.
    pub(super) fn new(history: &PageHistory) -> Self {
        Self { counter: Counter::new(history), ranges: Vec::new(), nodes: Vec::new() }
    }

    /// Counts `blocks`, which lie above all that was counted before and have no other blocks between them, by mapping.
    pub(super) fn add(&mut self, blocks: &[Block<'_>], mappings: &[Mapping]) {
        let (Some(first), Some(last)) = (blocks.first(), blocks.last()) else { return };
        let end = |block: &Block<'_>| block.start.saturating_add(BLOCK_SIZE);
        let mapped = mappings.partition_point(|mapping| mapping.range.end() <= first.start);
        let mapped = mappings[mapped..].iter().take_while(|mapping| mapping.range.start() < end(last));
        for range in mapped.map(|mapping| mapping.range) {
            let from = blocks.partition_point(|block| end(block) <= range.start());
            let to = blocks.partition_point(|block| block.start < range.end());
            for blocks in blocks[from..to.max(from)].chunks(PIECE) {
                let (Some(first), Some(last)) = (blocks.first(), blocks.last()) else { continue };
                let piece = AddrRange::new(first.start, end(last)).and_then(|piece| piece.intersection(range));
                let Some(piece) = piece else { continue };
                self.ranges.push((piece, self.counter.count_in(|| blocks.iter().copied(), piece)));
            }
        }
    }

    /// Counts pages of `blocks` by their nodes. Both are in the order of addresses.
    pub(super) fn add_nodes(&mut self, blocks: &[Block<'_>], placed: &[NodePages]) {
        let mut by_node: BTreeMap<NodeId, Vec<PartOfBlock<'_>>> = BTreeMap::new();
        for found in placed {
            if let Ok(index) = blocks.binary_search_by_key(&found.start, |block| block.start) {
                by_node.entry(found.node).or_default().push((blocks[index], found.pages));
            }
        }
        for (node, parts) in by_node {
            self.nodes.push((node, self.counter.count_all(|| parts.iter().copied())));
        }
    }

    /// The pages by node, which are not spread yet. What was found unobservable since a part was counted counts there
    /// as before.
    pub(super) fn by_node(&self, windows: &Windows) -> BTreeMap<NodeId, Pages> {
        let mut by_node: BTreeMap<NodeId, Pages> = BTreeMap::new();
        for (node, tallies) in &self.nodes {
            add(by_node.entry(*node).or_default(), tallies, windows);
        }
        by_node
    }

    /// Forgets what was counted by mapping.
    pub(super) fn clear(&mut self) {
        self.ranges.clear();
    }

    /// The pages of `history` in `range`, which are not spread yet. What was not counted before is counted now.
    pub(super) fn pages_in(&mut self, history: &PageHistory, range: AddrRange, windows: &Windows) -> Pages {
        let mut pages = Pages::default();
        let first = self.ranges.partition_point(|(counted, _)| counted.start() < range.start());
        let counted = self.ranges[first..].iter().take_while(|(counted, _)| counted.end() <= range.end());
        let mut from = range.start();
        for (counted, tallies) in counted {
            if let Some(gap) = AddrRange::new(from, counted.start()) {
                add(&mut pages, &self.counter.count_in(|| history.blocks_in(gap), gap), windows);
            }
            add(&mut pages, tallies, windows);
            from = counted.end();
        }
        if let Some(gap) = AddrRange::new(from, range.end()) {
            add(&mut pages, &self.counter.count_in(|| history.blocks_in(gap), gap), windows);
        }
        pages
    }
}

/// Adds what was counted in blocks of the panel, and in the others.
fn add(pages: &mut Pages, [of_panel, beside]: &[Tally; 2], windows: &Windows) {
    pages.add(&of_panel.pages(windows).as_panel());
    if *beside != Tally::default() {
        pages.add(&beside.pages(windows));
    }
}

/// Counts single blocks of a history.
pub(super) struct BlockCounter<'a> {
    history: &'a PageHistory,
    windows: Windows,
    counter: Counter,
    /// What was estimated of states, by their place in memory: blocks with the same past share one.
    estimated: HashMap<*const BlockState, u16>,
}

impl<'a> BlockCounter<'a> {
    pub(super) fn new(history: &'a PageHistory) -> Self {
        Self { history, windows: Windows::new(history), counter: Counter::new(history), estimated: HashMap::new() }
    }

    /// The number of pages that were accessed since the survey before. Where nothing of the block is known, it has the
    /// share of `others`.
    pub(super) fn touched(&mut self, block: Block<'_>, others: &Pages) -> u16 {
        if block.uncertain().is_empty() {
            return block.touched().count() as u16;
        }
        let Self { windows, counter, estimated, .. } = self;
        *estimated.entry(std::ptr::from_ref(block.state)).or_insert_with(|| {
            let counted = counter.count(std::iter::once((block, PageBits::ALL)));
            let mut pages = counted.pages(windows).as_panel();
            pages.spread(windows, others.begun.parts);
            (pages.sums(others).figures.touched / crate::PAGE_SIZE) as u16
        })
    }

    /// For how long the page that was accessed last has been idle.
    pub(super) fn idle(&self, block: Block<'_>) -> Duration {
        self.history.idle_time(block.idle_of_latest())
    }

    /// For how long the pages have been idle on the mean, those for which that is known, to within a 32nd: a recording
    /// compresses such numbers better. `None` if there are none.
    pub(super) fn mean_idle(&self, block: Block<'_>) -> Option<Duration> {
        let count = u32::try_from(block.exact.count()).ok().filter(|&count| count > 0)?;
        let (least, most) = block.idle_bounds();
        if least == most {
            return Some(self.history.idle_time(least));
        }
        let mut sum = 0;
        block.ages(block.exact, |idle, pages| sum += self.history.idle_time(idle).as_nanos() * u128::from(pages));
        let mean = (sum / u128::from(count)) as u64;
        let step = 1 << mean.checked_ilog2().unwrap_or(0).saturating_sub(4);
        Some(Duration::from_nanos(mean / step * step + step / 2))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::sync::Arc;

    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;
    use crate::survey::{BlockPages, ClearPages};
    use crate::{PAGE_SIZE, TargetId};

    #[test]
    fn a_window_within_the_last_interval_holds_what_random_accesses_would_have_reached() {
        let mapping = Mapping::anonymous(AddrRange::new(0, BLOCK_SIZE).unwrap());
        let mut rng = Pcg64Mcg::seed_from_u64(7);
        // The probability that a page is accessed in an interval of 8 s, and in 5 s and 2 s of it.
        for (in_interval, in_5s, in_2s) in [(1.0, 1.0, 1.0), (0.5, 0.352, 0.159), (0.05, 0.0315, 0.0127)] {
            let (mut pages_5s, mut pages_2s) = (0, 0);
            for _ in 0..100 {
                let mut history = PageHistory::default();
                let clear = BlockPages { present: PageBits::ALL, ..BlockPages::default() };
                let (mut before, in_2s_alone) = (0, 1.0 - (1.0_f64 - in_interval).powf(0.25));
                for time in [0, 8, 10, 18] {
                    let (length, first) = (time - before, time == 0);
                    let probability = if length == 2 { in_2s_alone } else { in_interval };
                    let accessed: PageBits = (0..512).filter(|_| !first && rng.random_bool(probability)).collect();
                    before = time;
                    history.take(&[BlockPages { accessed, ..clear }], Duration::from_secs(time));
                    history.cleared(&[ClearPages { pages: accessed, ..ClearPages::default() }]);
                }
                let sums = Arc::new(history).sums(TargetId::PhysicalMemory, &Arc::from([mapping.clone()])).total();
                pages_5s += sums.within[2] / PAGE_SIZE;
                pages_2s += sums.within[1] / PAGE_SIZE;
            }
            for (found, expected) in [(pages_5s, in_5s), (pages_2s, in_2s)] {
                let found = found as f64 / 51_200.0;
                assert!((found - expected).abs() < 0.01, "{found} of {expected}, {in_interval}");
            }
        }
    }

    #[test]
    fn a_window_that_begins_between_two_surveys_holds_that_part_of_the_interval() {
        let mut history = PageHistory::default();
        let clear = BlockPages { present: PageBits::ALL, ..BlockPages::default() };
        let accessed = [PageBits::NONE, PageBits::of(0..300), PageBits::of(300..400)];
        for (nth, accessed) in (0..).zip(accessed) {
            history.take(&[BlockPages { accessed, ..clear }], Duration::from_secs(3 * nth));
            history.cleared(&[ClearPages { pages: accessed, ..ClearPages::default() }]);
        }
        let mapping = Mapping::anonymous(AddrRange::new(0, BLOCK_SIZE).unwrap());
        let total = Arc::new(history).sums(TargetId::PhysicalMemory, &Arc::from([mapping])).total();
        let pages = total.within.map(|bytes| bytes / PAGE_SIZE);
        // The 300 pages were accessed between 6 s and 3 s ago. 5 s hold two thirds of that time.
        // No page was accessed in both intervals, so that accesses are rare: 1 s holds a third of those of 3 s.
        assert_eq!(pages[..4], [33, 67, 300, 400], "1, 2, 5 and 10 s");
    }

    #[test]
    fn a_page_in_use_does_not_hide_how_long_the_rest_of_its_block_is_idle() {
        let mut history = PageHistory::since(Some(Duration::ZERO));
        for (second, accessed) in (0..).zip([512, 1, 1, 1, 1]) {
            let accessed = PageBits::of(0..accessed);
            let found = BlockPages { present: PageBits::ALL, accessed, ..BlockPages::default() };
            history.take(&[found], Duration::from_secs(10 * second));
            history.cleared(&[ClearPages { pages: accessed, ..ClearPages::default() }]);
        }
        let history = Arc::new(history);
        let found = history.sums(TargetId::PhysicalMemory, &Arc::from([]));
        let blocks: Vec<_> = found.by_block.iter().collect();
        let [block] = blocks[..] else { panic!("{blocks:?}") };
        assert_eq!((block.pages.touched, block.idle), (1, Duration::ZERO));
        let (mean, found) = (Duration::from_secs(40) * 511 / 512, block.mean_idle.unwrap());
        assert!(found.abs_diff(mean) <= mean / 32, "{found:?}");
    }

    #[test]
    fn memory_that_is_cleared_rarely_and_as_a_whole_counts_as_accessed_again_as_after_the_last_clear() {
        let mut history = PageHistory::default();
        for (second, (accessed, cleared)) in (0..).zip([(512, 512), (300, 300), (300, 0), (300, 0), (300, 0)]) {
            let accessed = PageBits::of(0..accessed);
            let found = BlockPages { present: PageBits::ALL, accessed, ..BlockPages::default() };
            history.take(&[found], Duration::from_secs(second));
            history.cleared(&[ClearPages { pages: PageBits::of(0..cleared), ..ClearPages::default() }]);
        }
        let mapping = Mapping::anonymous(AddrRange::new(0, BLOCK_SIZE).unwrap());
        let total = Arc::new(history).sums(TargetId::PhysicalMemory, &Arc::from([mapping])).total();
        let pages = [total.figures.touched, total.figures.unknown, total.within[0], total.within[2]]
            .map(|bytes| bytes / PAGE_SIZE);
        assert_eq!(pages, [300, 300, 300, 300]);
    }

    /// The pages of a block of 512, of `accessed(page, from, to)`, that are found to be accessed within 5 s by surveys
    /// at these times.
    fn within_5s(times: &[u64], accessed: impl Fn(usize, f64, f64) -> bool) -> f64 {
        let mut history = PageHistory::since(Some(Duration::ZERO));
        let mut before = 0.0;
        for &time in times {
            let accessed = PageBits::from_fn(|page| accessed(page, before, time as f64));
            let found = BlockPages { present: PageBits::ALL, accessed, ..BlockPages::default() };
            history.take(&[found], Duration::from_secs(time));
            history.cleared(&[ClearPages { pages: accessed, ..ClearPages::default() }]);
            before = time as f64;
        }
        let mapping = Mapping::anonymous(AddrRange::new(0, BLOCK_SIZE).unwrap());
        let total = Arc::new(history).sums(TargetId::PhysicalMemory, &Arc::from([mapping])).total();
        (total.within[2] / PAGE_SIZE) as f64
    }

    #[test]
    fn a_window_that_begins_between_two_surveys_holds_more_of_the_later_accesses() {
        let times: Vec<u64> = (1..=20).map(|nth| 3 * nth).collect();
        // Each page is accessed every `period` seconds, one after the other.
        let periodic = |period: f64| {
            within_5s(&times, |page, from, to| {
                let phase = page as f64 / 512.0 * period;
                ((from - phase) / period).floor() < ((to - phase) / period).floor()
            })
        };
        for (period, error) in
            [(0.5, 0.0), (3.5, 0.05), (4.0, 0.06), (5.0, 0.1), (6.0, 0.09), (8.0, 0.03), (20.0, 0.01)]
        {
            let (found, all) = (periodic(period), 512.0 * (5.0_f64 / period).min(1.0));
            assert!((found / all - 1.0).abs() <= error, "{found} of {all}, every {period} s");
        }
        // Accesses come at random, at a rate of 1 in 1 s to 1 in 30 s.
        let mut rng = Pcg64Mcg::seed_from_u64(5);
        for mean in [1.0_f64, 2.0, 4.0, 8.0, 30.0] {
            let (mut found, mut all) = (0.0, 0.0);
            for _ in 0..20 {
                let accesses: Vec<Vec<f64>> = (0..512)
                    .map(|_| {
                        let mut at = 0.0;
                        std::iter::from_fn(|| {
                            at -= mean * (1.0 - rng.random::<f64>()).ln();
                            (at < 60.0).then_some(at)
                        })
                        .collect()
                    })
                    .collect();
                found += within_5s(&times, |page, from, to| accesses[page].iter().any(|&at| from < at && at <= to));
                all += accesses.iter().filter(|times| times.last().is_some_and(|&at| at > 55.0)).count() as f64;
            }
            assert!((found / all - 1.0).abs() <= 0.02, "{found} of {all}, every {mean} s at random");
        }
    }
}
