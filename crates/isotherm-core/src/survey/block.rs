//! The history of one block of pages.

use std::ops::{Deref, Range};

use rand::seq::IteratorRandom;
use rand::{Rng, RngExt};

use super::counts::Counts;
use super::{BLOCK_PAGES, BlockPages, ClearPages, PageBits};
use crate::AddrRange;
use crate::order::GOLDEN;

/// The number of surveys that stands for any longer time, and for a time that is not known.
pub(super) const LONGEST: u16 = u16::MAX;

/// The number of a survey. Surveys of a history are numbered from [`FIRST`] on.
pub(super) type SurveyNumber = u16;

/// The number of the first survey of a history. Below it are 1, for the time before, and 0, for a time that is not
/// known.
pub(super) const FIRST: SurveyNumber = 2;

/// The past of a page is not known.
const UNKNOWN: SurveyNumber = 0;

/// A block is hot after this many surveys in a row.
const HOT: u8 = 3;

/// At least this share of the pages that were cleared in a hot block is accessed within a survey interval. It bounds
/// the error of taking the rest of the block as accessed.
const HOT_SHARE: f32 = 15.0 / 16.0;

/// How many surveys back it is known which pages were accessed in each interval. A program that goes through its memory
/// in turn accesses a page again after one turn, and not before: surveys every 2 to 4 s follow turns of 16 s and more.
pub(super) const LAGS: usize = 8;

/// With fewer cleared pages, a block has no share of its own.
const MIN_CLEARED: usize = 8;

/// How many surveys pass, on average, before one tries again to clear the pages that the kernel did not clear. The
/// kernel never clears most of them, and each try costs time.
const SURVEYS_TO_RETRY: u32 = 8;

/// A survey clears one run of pages of a hot block: the block divided by this number. One run costs the monitor much
/// less than the same number of scattered pages.
const HOT_PARTS: usize = 16;

/// What is known of the pages of a block. It does not change as long as the block stays idle, or unknown, and it has no
/// address, so that blocks and surveys share it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BlockState {
    pub(super) present: PageBits,
    /// Present pages whose accessed bit was clear after the last survey: an access since then will be seen.
    pub(super) clear: PageBits,
    /// Of these, pages whose accessed bit is set: they count as cleared because the target has not run since. Once it
    /// runs, an access to them is not seen.
    at_rest: PageBits,
    /// Present pages that cannot be observed.
    pub(super) unobservable: PageBits,
    /// Of these, the pages that the kernel did not clear. It may do so later: a page that is being moved, or that was
    /// just faulted in, is on no reclaim list.
    refused: PageBits,
    /// Absent pages that are in swap.
    pub(super) swapped: PageBits,
    /// Pages that the process has freed lazily. They are not present.
    pub(super) lazily_freed: PageBits,
    /// For each present page, the survey in whose interval it was last known to be accessed. Surveys of memory that
    /// stays idle change nothing here. For a page that is not in `exact` it is the least: it may have been accessed
    /// since then.
    last: [SurveyNumber; BLOCK_PAGES],
    /// The least and the greatest of `last` of the pages in `exact`.
    bounds: (SurveyNumber, SurveyNumber),
    /// The share of the pages that were cleared in the survey before that were accessed until the last one.
    pub(super) share: Option<f32>,
    /// In how many surveys in a row at least [`HOT_SHARE`] of the cleared pages were accessed.
    hot: u8,
    /// Observable pages whose `last` is exact: the accessed bit was clear when the last interval began.
    pub(super) exact: PageBits,
    /// Pages that were last accessed before the end of the interval of the survey in `last`, at a time that is not
    /// known: they were cleared for the first time, and have stayed clear.
    unplaced: PageBits,
    /// The observable pages that are known to be accessed in the last interval.
    pub(super) touched: PageBits,
    /// What `touched` was in surveys before, and their numbers, the most recent first. Surveys that have found nothing
    /// accessed are left out. The number is [`UNKNOWN`] if there was no such survey.
    past: [(SurveyNumber, PageBits); LAGS],
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
    /// The counts of all pages.
    counts: Counts,
}

/// A block of a history.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block<'a> {
    pub(super) start: u64,
    /// The number of the last survey of the history.
    pub(super) number: SurveyNumber,
    pub(super) state: &'a BlockState,
}

impl Deref for Block<'_> {
    type Target = BlockState;

    fn deref(&self) -> &BlockState {
        self.state
    }
}

/// The numbers of the surveys before and after a change of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    /// The number of the survey before.
    pub(super) before: SurveyNumber,
    /// The number of this survey, which is greater.
    pub(super) now: SurveyNumber,
    /// By how much numbers have become smaller since the survey before.
    pub(super) less: SurveyNumber,
    /// Whether nothing is known of the time before this survey.
    pub(super) is_first: bool,
}

/// The pages of a block that a survey wants to clear.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wanted {
    /// Pages that were accessed in a known interval.
    pub(super) sure: PageBits,
    /// Pages with an unknown past, and the pages of a block without any cleared page.
    pub(super) unknown: PageBits,
}

impl Block<'_> {
    /// How many surveys ago the page was last known to be accessed: 0 is in the interval before the last survey.
    /// [`LONGEST`] if that is not known.
    pub(super) fn idle(&self, page: usize) -> u16 {
        self.idle_since(self.last[page])
    }

    /// The least and the greatest of [`idle`](Self::idle) of the pages in `exact`.
    pub(super) fn idle_bounds(&self) -> (u16, u16) {
        (self.idle_since(self.bounds.1), self.idle_since(self.bounds.0))
    }

    /// The least value of [`idle`](Self::idle) of all observable pages. 0 if no page is observable.
    pub(super) fn idle_of_latest(&self) -> u16 {
        let uncertain = self.uncertain().iter().map(|page| self.idle(page)).min();
        let exact = (!self.exact.is_empty()).then_some(self.idle_bounds().0);
        uncertain.into_iter().chain(exact).min().unwrap_or(0)
    }

    fn idle_since(&self, last: SurveyNumber) -> u16 {
        if last == UNKNOWN { LONGEST } else { self.number - last }
    }

    /// The pages that have been idle for at least this many surveys.
    pub(super) fn idle_for(&self, surveys: u16) -> PageBits {
        let (least, most) = self.idle_bounds();
        if most < surveys {
            PageBits::NONE
        } else if least >= surveys {
            self.exact
        } else {
            self.exact & PageBits::from_fn(|page| self.idle(page) >= surveys)
        }
    }

    /// Calls `found` with the runs of the pages in `within` that have been idle for at least `surveys` surveys, at
    /// least 1, and with how many times that time doubles until it is longer than they have been idle.
    pub(super) fn idle_runs(&self, within: PageBits, surveys: u16, mut found: impl FnMut(Range<usize>, u32)) {
        let (least, most) = self.idle_bounds();
        if most < surveys {
            return;
        }
        let doublings = |idle: u16| (idle / surveys).ilog2();
        let runs = (self.idle_for(surveys) & within).runs();
        if least >= surveys && doublings(least) == doublings(most) {
            return runs.for_each(|run| found(run, doublings(least)));
        }
        for run in runs {
            let mut start = run.start;
            for page in run.clone() {
                let of_this = doublings(self.idle(page));
                if page + 1 == run.end || doublings(self.idle(page + 1)) != of_this {
                    found(start..page + 1, of_this);
                    start = page + 1;
                }
            }
        }
    }

    /// The pages of the block that lie in `range`.
    pub(super) fn within(&self, range: AddrRange) -> PageBits {
        PageBits::within(self.start, range)
    }

    /// The pages in `within` that were accessed in the interval of an earlier survey, and whose last access is known.
    /// Calls `found` with the number of surveys back to that interval, the number of surveys back to the last access,
    /// and the number of pages.
    pub(super) fn followed(&self, within: PageBits, mut found: impl FnMut(usize, usize, u32)) {
        let known = self.exact & within;
        for (nth, (lag, pages)) in self.accessed_before().enumerate() {
            let mut rest = pages & known;
            for (since, again) in std::iter::once((0, self.touched)).chain(self.accessed_before().take(nth)) {
                let last = rest & again;
                if !last.is_empty() {
                    found(lag, since, last.count() as u32);
                }
                rest &= !again;
            }
            if !rest.is_empty() {
                found(lag, lag, rest.count() as u32);
            }
        }
    }

    /// How many surveys back pages were accessed, at most [`LAGS`], and these pages, the most recent first.
    pub(super) fn accessed_before(&self) -> impl Iterator<Item = (usize, PageBits)> {
        let known = self.past.iter().filter(|(last, _)| *last != UNKNOWN);
        known.map(|(last, pages)| (usize::from(self.number - last), *pages)).take_while(|(lag, _)| *lag <= LAGS)
    }

    /// The pages that the survey wants to clear.
    pub(super) fn wanted(&self, rng: &mut impl Rng) -> Wanted {
        let mut wanted = self.wanted_of_observable(rng);
        let refused = self.refused & self.present & !self.clear & !self.shared;
        if !refused.is_empty() && rng.random_ratio(1, SURVEYS_TO_RETRY) {
            wanted.unknown |= refused;
        }
        wanted
    }

    /// Leaves in `wanted` a part of the pages, unless a part was cleared before and was mostly not accessed again.
    pub(super) fn explore(&self, wanted: &mut Wanted, rng: &mut impl Rng) {
        let is_mostly_used = self.share.is_none_or(|share| share >= HOT_SHARE);
        if is_mostly_used && !self.is_hot() {
            let rest = (wanted.sure | wanted.unknown) & !self.revived;
            *wanted = Wanted { sure: wanted.sure & self.revived, unknown: a_part(rest, rng) };
        }
    }

    fn wanted_of_observable(&self, rng: &mut impl Rng) -> Wanted {
        let set = self.present & !self.clear & !self.unobservable & !self.shared;
        if set.is_empty() && !self.is_hot() {
            return Wanted::default();
        }
        let revived = self.revived & set;
        if self.is_hot() {
            return Wanted { sure: revived | a_part(set, rng), unknown: PageBits::NONE };
        }
        let mut wanted = Wanted { sure: self.set_again & set, unknown: PageBits::NONE };
        for page in (set & !wanted.sure).iter() {
            match self.last[page] {
                UNKNOWN => wanted.unknown.insert(page),
                // A new page is being written just now, so that clearing it would say nothing new. It is cleared by
                // the survey after that.
                last if last == self.number => {}
                _ => wanted.sure.insert(page),
            }
        }
        if self.is_unexplored() && set.count() >= 2 * MIN_CLEARED {
            wanted = Wanted { sure: wanted.sure & revived, unknown: (wanted.sure | wanted.unknown) & !revived };
        }
        wanted
    }
}

/// One of the runs that a block is divided into, chosen at random from those that have some of `pages`.
fn a_part(pages: PageBits, rng: &mut impl Rng) -> PageBits {
    let size = BLOCK_PAGES / HOT_PARTS;
    let parts = (0..HOT_PARTS).map(|part| pages & PageBits::of(part * size..(part + 1) * size));
    parts.filter(|part| !part.is_empty()).choose(rng).unwrap_or_default()
}

impl BlockState {
    /// A block without a page.
    pub(super) const NEW: Self = Self {
        present: PageBits::NONE,
        clear: PageBits::NONE,
        at_rest: PageBits::NONE,
        unobservable: PageBits::NONE,
        refused: PageBits::NONE,
        swapped: PageBits::NONE,
        lazily_freed: PageBits::NONE,
        last: [UNKNOWN; BLOCK_PAGES],
        bounds: (UNKNOWN, UNKNOWN),
        share: None,
        hot: 0,
        exact: PageBits::NONE,
        unplaced: PageBits::NONE,
        touched: PageBits::NONE,
        past: [(UNKNOWN, PageBits::NONE); LAGS],
        cleared: PageBits::NONE,
        set_again: PageBits::NONE,
        revived: PageBits::NONE,
        shared: PageBits::NONE,
        huge: false,
        counts: Counts::ZERO,
    };

    /// Counts the pages that are in `within`.
    pub(super) fn counts_in(&self, within: PageBits) -> Counts {
        let unknown = self.unknown() & within;
        let estimated = self.hot_share().map_or(0.0, |share| share * (self.uncertain() & within).count() as f64);
        let exact = self.exact & within;
        let last = match self.bounds {
            (least, most) if least == most => exact.count() as u64 * u64::from(most),
            _ => exact.iter().map(|page| u64::from(self.last[page])).sum(),
        };
        Counts {
            exact: exact.count() as u64,
            last,
            present: (self.present & within).count() as u64,
            touched: (self.touched & within).count() as f64 + estimated,
            unobservable: (self.unobservable & within).count() as u64,
            unobservable_shared: (self.unobservable & self.shared & within).count() as u64,
            swapped: (self.swapped & within).count() as u64,
            lazily_freed: (self.lazily_freed & within).count() as u64,
            unknown: unknown.count() as u64,
            uncleared: (unknown & !self.clear).count() as u64,
            ..Counts::ZERO
        }
    }

    /// Counts all pages.
    fn count(&self) -> Counts {
        let counts = self.counts_in(PageBits::ALL);
        Counts {
            never_cleared: self.never_cleared() as u64,
            asked: self.share.map_or(0, |_| counts.present),
            answered: self.share.map_or(0.0, |share| counts.present as f64 * f64::from(share)),
            blocks: usize::from(!self.present.is_empty()),
            ..counts
        }
    }

    /// The counts of all pages.
    pub(super) const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Whether it is known of all observable pages when they were accessed, without a part that stands for the rest.
    pub(super) const fn is_exact(&self) -> bool {
        self.counts.unknown == 0 && !self.is_hot()
    }

    /// Whether a part of the block stands for the rest.
    pub(super) const fn is_hot(&self) -> bool {
        self.hot >= HOT
    }

    /// Whether one accessed bit stands for the whole block.
    pub(super) const fn is_huge(&self) -> bool {
        self.huge
    }

    /// The pages of `exact` whose last access is in no window, because it is not known when it was.
    pub(super) fn unplaced(&self) -> PageBits {
        self.unplaced & self.exact
    }

    /// The pages that are known to be accessed in the last interval, and may have been accessed in the one before.
    pub(super) fn touched_again(&self) -> PageBits {
        self.touched & self.set_again & !self.revived
    }

    /// The pages that were clear, and were found accessed by the last survey, without those that it clears by itself.
    pub(super) fn set_again_alone(&self) -> PageBits {
        self.set_again & !self.shared
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

    /// The observable pages that were never cleared, so that it is not known when they were accessed. If no page of the
    /// block was cleared, all that may have been accessed in the last interval.
    pub(super) fn never_cleared(&self) -> usize {
        match self.is_unexplored() {
            true => self.uncertain().count(),
            false => self.uncertain().iter().filter(|&page| self.last[page] == UNKNOWN).count(),
        }
    }

    /// Whether it is not known of its first present page when it was accessed.
    pub(super) fn has_unknown_past(&self) -> bool {
        self.present.iter().next().is_some_and(|page| self.last[page] == UNKNOWN)
    }

    /// Whether no page of the block was cleared, so that nothing tells how many of them are accessed again.
    fn is_unexplored(&self) -> bool {
        self.share.is_none() && self.clear.is_empty()
    }

    /// The share of the uncertain pages that counts as accessed in the last interval. `None` if they are unknown.
    pub(super) fn hot_share(&self) -> Option<f64> {
        self.share.filter(|_| self.is_hot()).map(f64::from)
    }

    /// Whether [`after`](Self::after) would change nothing, because the block was idle or unknown in the survey before,
    /// and is so in this one.
    pub(super) fn stays(&self, found: &BlockPages) -> bool {
        self.at_rest.is_empty() && self.is_as_before(found)
    }

    fn is_as_before(&self, found: &BlockPages) -> bool {
        let (clear, unobservable) = self.found(found);
        let changed = self.cleared | self.set_again | self.revived | self.touched;
        found.present == self.present
            && found.swapped == self.swapped
            && found.lazily_freed == self.lazily_freed
            && clear == self.clear
            && unobservable == self.unobservable
            && unobservable & !found.unobservable == self.refused
            && clear & !unobservable == self.exact
            // Pages that are clear but not exact have turned idle.
            && (clear & !self.exact).is_empty()
            && changed.is_empty()
            && !self.is_hot()
            && found.shared == self.shared
            && found.huge == self.huge
    }

    /// What a survey has found in a target that has not run since the survey before, or since the run began if it is
    /// the first one, as if all of its pages had been cleared then. The second value is the pages whose accessed bit
    /// was set before.
    pub(super) fn found_at_rest(&self, found: &BlockPages, is_first: bool) -> (BlockPages, PageBits) {
        let known = if is_first { PageBits::ALL } else { self.present & (!self.clear | self.at_rest) };
        let before = found.accessed & known;
        (BlockPages { accessed: found.accessed & !before, shared: PageBits::NONE, ..*found }, before)
    }

    /// Whether [`after_rest`](Self::after_rest) would change nothing.
    pub(super) fn stays_at_rest(&self, (found, before): &(BlockPages, PageBits)) -> bool {
        *before == self.at_rest && self.is_as_before(found)
    }

    /// The state once a survey has read this of a target [at rest](Self::found_at_rest).
    pub(super) fn after_rest(&self, (found, before): &(BlockPages, PageBits), numbers: Numbers) -> Self {
        let known = Self { at_rest: PageBits::NONE, ..self.clone() };
        Self { at_rest: *before, ..known.after(found, numbers) }
    }

    /// The pages that are clear, and those that are not observable, once the survey has read `found`.
    fn found(&self, found: &BlockPages) -> (PageBits, PageBits) {
        let unobservable = found.unobservable | (self.unobservable & found.accessed & self.present & found.present);
        (found.present & !found.accessed, unobservable)
    }

    /// The state once a survey has read `found`.
    pub(super) fn after(&self, found: &BlockPages, numbers: Numbers) -> Self {
        let Numbers { before, now: number, less, is_first } = numbers;
        let mut new = self.clone();
        if less > 0 {
            new.renumber(less);
        }
        new.clear &= !new.at_rest;
        new.exact &= !new.at_rest;
        new.at_rest = PageBits::NONE;
        if !new.touched.is_empty() {
            new.past.rotate_right(1);
            new.past[0] = (before, new.touched);
        }
        let known = new.present & found.present;
        let (clear, unobservable) = new.found(found);
        let asked = (new.cleared & known & !unobservable).count();
        if asked >= MIN_CLEARED {
            let accessed = (new.cleared & known & !unobservable & found.accessed).count();
            let share = accessed as f32 / asked as f32;
            new.share = Some(share);
            new.hot = if share >= HOT_SHARE { new.hot.saturating_add(1) } else { 0 };
        } else if new.cleared.is_empty() {
            // No part stands for the rest any more.
            new.hot = 0;
        }
        let appeared = found.present & found.accessed & !known;
        new.set_again = known & new.clear & found.accessed;
        let was_idle = |page: &usize| new.last[*page] != before;
        new.revived = (new.set_again & new.exact).iter().filter(was_idle).collect();
        // A page that was cleared by the survey before, by a sample or by another program, and that has stayed clear,
        // was accessed before this interval. Any other page that is clear has stayed idle. The bit of a page that
        // cannot be observed says nothing while it is clear.
        let turned_idle = clear & !unobservable & !(known & new.clear & new.exact);
        let now_accessed = new.set_again | if is_first { PageBits::NONE } else { appeared };

        let never_cleared: PageBits = turned_idle.iter().filter(|&page| new.last[page] == UNKNOWN).collect();
        new.unplaced = (new.unplaced & !turned_idle & !now_accessed & found.present) | never_cleared;
        now_accessed.iter().for_each(|page| new.last[page] = number);
        for page in turned_idle.iter() {
            if new.is_accessed_until(number - 1, page) {
                new.last[page] = number - 1;
            }
        }
        if is_first {
            // The first survey cannot know when the page was accessed.
            appeared.iter().for_each(|page| new.last[page] = UNKNOWN);
        }
        new.present = found.present;
        new.swapped = found.swapped;
        new.lazily_freed = found.lazily_freed;
        new.shared = found.shared;
        new.huge = found.huge;
        new.unobservable = unobservable;
        new.refused = unobservable & !found.unobservable;
        new.clear = clear;
        new.cleared = PageBits::NONE;
        new.touched = now_accessed & !unobservable;
        let exact = (new.clear | new.touched) & !unobservable;
        if exact != new.exact || !(now_accessed | turned_idle).is_empty() {
            new.exact = exact;
            let mut last = exact.iter().map(|page| new.last[page]);
            let first = last.next().unwrap_or(UNKNOWN);
            new.bounds = last.fold((first, first), |(least, most), at| (least.min(at), most.max(at)));
        }
        new.counts = new.count();
        new
    }

    /// Whether a page that was cleared late, and has stayed clear, counts as accessed in the last interval before
    /// it was cleared, that of the survey `cleared`, and not in that of `last`.
    ///
    /// It may have been accessed in each interval between them, with the chance that a page of the block is accessed
    /// again. As large a part of the pages counts as accessed. The multiples of the golden ratio choose it evenly.
    fn is_accessed_until(&self, cleared: SurveyNumber, page: usize) -> bool {
        let last = self.last[page];
        if last == UNKNOWN || last >= cleared {
            return true;
        }
        let not_again = 1.0 - f64::from(self.share.unwrap_or(1.0));
        let part = 1.0 - not_again.powi((cleared - last).into());
        ((page as u64).wrapping_mul(GOLDEN) as f64) < part * u64::MAX as f64
    }

    /// The state with pages that have appeared since the last survey. Nothing is known of them.
    pub(super) fn with_more(&self, pages: PageBits) -> Self {
        let mut new = self.clone();
        new.present |= pages;
        new.swapped &= !pages;
        new.lazily_freed &= !pages;
        new.counts = new.count();
        new
    }

    /// Makes the numbers of surveys smaller by `less`. What is older counts as of the time before the first survey.
    fn renumber(&mut self, less: SurveyNumber) {
        let renumbered = |last: SurveyNumber| if last == UNKNOWN { last } else { last.saturating_sub(less).max(1) };
        self.last.iter_mut().for_each(|last| *last = renumbered(*last));
        self.past.iter_mut().for_each(|(last, _)| *last = renumbered(*last));
        self.bounds = (renumbered(self.bounds.0), renumbered(self.bounds.1));
    }

    /// Notes which pages the survey has cleared, and which it could not.
    pub(super) fn note_cleared(&mut self, pages: &ClearPages) {
        let cleared = pages.pages & self.present & !pages.unobservable;
        let refused = pages.unobservable & self.present;
        self.unobservable = (self.unobservable | refused) & !cleared;
        self.refused = (self.refused | refused) & !cleared;
        self.clear |= cleared;
        self.cleared |= cleared;
        self.touched &= !self.unobservable;
        self.exact &= !self.unobservable;
        self.counts = self.count();
    }
}
