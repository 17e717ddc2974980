//! The history of one block of pages.

use std::ops::{Deref, Range};

use rand::seq::IteratorRandom;
use rand::{Rng, RngExt};

use super::counts::Counts;
use super::lasts::Lasts;
use super::number::SurveyNumber;
use super::{BLOCK_PAGES, PageBits};
use crate::AddrRange;
use crate::order::GOLDEN;

/// A block is hot after this many surveys in a row.
const HOT: u8 = 3;

/// At least this share of the pages that were cleared in a hot block is accessed within a survey interval. It bounds
/// the error of taking the rest of the block as accessed.
pub(super) const HOT_SHARE: f32 = 15.0 / 16.0;

/// How many surveys back it is known which pages were accessed in each interval. A program that goes through its memory
/// in turn accesses a page again after one turn, and not before: surveys every 2 to 4 s follow turns of 16 s and more.
pub(super) const LAGS: usize = 8;

/// With fewer cleared pages, a block has no share of its own.
pub(super) const MIN_CLEARED: usize = 8;

/// How many surveys pass, on average, before one tries again to clear the pages that the kernel did not clear. The
/// kernel never clears most of them, and each try costs time.
const SURVEYS_TO_RETRY: u32 = 8;

/// A survey clears one run of pages of a hot block: the block divided by this number. One run costs the monitor much
/// less than the same number of scattered pages.
const HOT_PARTS: usize = 16;

/// What is known of the pages of a block. It does not change as long as the block stays idle, or unknown, and it has no
/// address, so that blocks and surveys share it.
///
/// There is one for each 2 MiB of memory. So what most blocks lack is kept apart: they are idle, whole and observable.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BlockState {
    pub(super) present: PageBits,
    /// Present pages whose accessed bit was clear after the last survey: an access since then will be seen.
    pub(super) clear: PageBits,
    /// Observable pages whose `last` is exact: the accessed bit was clear when the last interval began.
    pub(super) exact: PageBits,
    /// Pages that were last accessed before the end of the interval of the survey in `last`, at a time that is not
    /// known: they were cleared for the first time, and have stayed clear.
    pub(super) unplaced: PageBits,
    /// For each present page, the survey in whose interval it was last known to be accessed. Surveys of memory that
    /// stays idle change nothing here. For a page that is not in `exact` it is the least: it may have been accessed
    /// since then.
    pub(super) last: Lasts,
    /// The least and the greatest of `last` of the pages in `exact`.
    pub(super) bounds: (SurveyNumber, SurveyNumber),
    /// The share of the pages that were cleared in the survey before that were accessed until the last one.
    pub(super) share: Option<f32>,
    /// In how many surveys in a row at least [`HOT_SHARE`] of the cleared pages were accessed.
    pub(super) hot: u8,
    /// Whether one accessed bit stands for the whole block.
    pub(super) huge: bool,
    /// `None` if there are no such pages.
    pub(super) active: Option<Box<Active>>,
    /// `None` if there are no such pages.
    pub(super) rare: Option<Box<Rare>>,
    /// The counts of all pages.
    pub(super) counts: Counts,
}

/// Pages that were accessed or cleared recently.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Active {
    /// The observable pages that are known to be accessed in the last interval.
    pub(super) touched: PageBits,
    /// What `touched` was in surveys before, and their numbers, the most recent first: at most [`LAGS`]. Surveys that
    /// have found nothing accessed are left out.
    pub(super) past: Vec<(SurveyNumber, PageBits)>,
    /// The pages that the last survey cleared.
    pub(super) cleared: PageBits,
    /// Pages that were clear, and were found accessed by the last survey.
    pub(super) set_again: PageBits,
    /// Of these pages, those that were idle in the interval before.
    pub(super) revived: PageBits,
}

/// Pages that most blocks do not have.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rare {
    /// Of the clear pages, those whose accessed bit is set: they count as cleared because the target has not run since.
    /// Once it runs, an access to them is not seen.
    pub(super) at_rest: PageBits,
    /// Present pages that cannot be observed.
    pub(super) unobservable: PageBits,
    /// Present pages that the kernel did not clear when it was last asked. It may do so later: a page that is being
    /// moved, or that was just faulted in, is on no reclaim list. They are unobservable from the next survey on.
    pub(super) refused: PageBits,
    /// Absent pages that are in swap.
    pub(super) swapped: PageBits,
    /// Pages that the process has freed lazily. They are not present.
    pub(super) lazily_freed: PageBits,
    /// Pages that the survey clears by itself.
    pub(super) shared: PageBits,
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
    /// [`LONGEST`](super::number::LONGEST) if that is not known.
    pub(super) fn idle(&self, page: usize) -> u16 {
        self.idle_since(self.last.of(page))
    }

    /// The least and the greatest of [`idle`](Self::idle) of the pages in `exact`.
    pub(super) fn idle_bounds(&self) -> (u16, u16) {
        (self.idle_since(self.bounds.1), self.idle_since(self.bounds.0))
    }

    /// The least value of [`idle`](Self::idle) of all observable pages. 0 if no page is observable.
    pub(super) fn idle_of_latest(&self) -> u16 {
        let mut latest = (!self.exact.is_empty()).then_some(self.idle_bounds().0);
        self.ages(self.uncertain(), |idle, _| latest = Some(latest.map_or(idle, |latest| latest.min(idle))));
        latest.unwrap_or(0)
    }

    /// Calls `tell` with the values of [`idle`](Self::idle) of the pages in `within`, and with how many of them have
    /// each. A value may come several times.
    pub(super) fn ages(&self, within: PageBits, mut tell: impl FnMut(u16, u32)) {
        self.last.count(within, |last, pages| tell(self.idle_since(last), pages));
    }

    fn idle_since(&self, last: SurveyNumber) -> u16 {
        self.number.since(last)
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
            for (since, again) in std::iter::once((0, self.touched())).chain(self.accessed_before().take(nth)) {
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
        let past = self.active.iter().flat_map(|active| active.past.iter());
        past.map(|(last, pages)| (usize::from(self.number.since(*last)), *pages)).take_while(|(lag, _)| *lag <= LAGS)
    }

    /// The pages that the survey wants to clear.
    pub(super) fn wanted(&self, rng: &mut impl Rng) -> Wanted {
        let mut wanted = self.wanted_of_observable(rng);
        let refused = self.refused() & self.present & !self.clear & !self.shared();
        if !refused.is_empty() && rng.random_ratio(1, SURVEYS_TO_RETRY) {
            wanted.unknown |= refused;
        }
        wanted
    }

    /// Leaves in `wanted` a part of the pages, unless a part was cleared before and was mostly not accessed again.
    pub(super) fn explore(&self, wanted: &mut Wanted, rng: &mut impl Rng) {
        let is_mostly_used = self.share.is_none_or(|share| share >= HOT_SHARE);
        if is_mostly_used && !self.is_hot() {
            let rest = (wanted.sure | wanted.unknown) & !self.revived();
            *wanted = Wanted { sure: wanted.sure & self.revived(), unknown: a_part(rest, rng) };
        }
    }

    fn wanted_of_observable(&self, rng: &mut impl Rng) -> Wanted {
        let set = self.present & !self.clear & !self.unobservable() & !self.shared();
        if set.is_empty() && !self.is_hot() {
            return Wanted::default();
        }
        let revived = self.revived() & set;
        if self.is_hot() {
            return Wanted { sure: revived | a_part(set, rng), unknown: PageBits::NONE };
        }
        let mut wanted = Wanted { sure: self.set_again() & set, unknown: PageBits::NONE };
        let rest = set & !wanted.sure;
        wanted.unknown = self.last.having(SurveyNumber::UNKNOWN, rest);
        // A new page is being written just now, so that clearing it would say nothing new. It is cleared by the survey
        // after that.
        wanted.sure |= rest & !wanted.unknown & !self.last.having(self.number, rest);
        if self.is_unexplored() && set.count() >= 2 * MIN_CLEARED {
            wanted = Wanted { sure: wanted.sure & revived, unknown: (wanted.sure | wanted.unknown) & !revived };
        }
        wanted
    }
}

/// Some of `pages`: those of one of the runs that a block is divided into, chosen at random, and of the runs after it
/// until there are [`MIN_CLEARED`], so that the block has a share.
fn a_part(pages: PageBits, rng: &mut impl Rng) -> PageBits {
    let size = BLOCK_PAGES / HOT_PARTS;
    let of_run = |run: usize| pages & PageBits::of(run % HOT_PARTS * size..(run % HOT_PARTS + 1) * size);
    let Some(first) = (0..HOT_PARTS).filter(|run| !of_run(*run).is_empty()).choose(rng) else {
        return PageBits::NONE;
    };
    let mut part = PageBits::NONE;
    let mut runs = first..first + HOT_PARTS;
    while part.count() < MIN_CLEARED
        && let Some(run) = runs.next()
    {
        part |= of_run(run);
    }
    part
}

impl BlockState {
    /// A block without a page.
    pub(super) const NEW: Self = Self {
        present: PageBits::NONE,
        clear: PageBits::NONE,
        exact: PageBits::NONE,
        unplaced: PageBits::NONE,
        last: Lasts::Same(SurveyNumber::UNKNOWN),
        bounds: (SurveyNumber::UNKNOWN, SurveyNumber::UNKNOWN),
        share: None,
        hot: 0,
        huge: false,
        active: None,
        rare: None,
        counts: Counts::ZERO,
    };

    fn of_active(&self, pages: impl Fn(&Active) -> PageBits) -> PageBits {
        self.active.as_deref().map_or(PageBits::NONE, pages)
    }

    fn of_rare(&self, pages: impl Fn(&Rare) -> PageBits) -> PageBits {
        self.rare.as_deref().map_or(PageBits::NONE, pages)
    }

    /// See [`Active::touched`].
    pub(super) fn touched(&self) -> PageBits {
        self.of_active(|active| active.touched)
    }

    fn set_again(&self) -> PageBits {
        self.of_active(|active| active.set_again)
    }

    fn revived(&self) -> PageBits {
        self.of_active(|active| active.revived)
    }

    /// See [`Rare::at_rest`].
    pub(super) fn at_rest(&self) -> PageBits {
        self.of_rare(|rare| rare.at_rest)
    }

    /// See [`Rare::unobservable`].
    pub(super) fn unobservable(&self) -> PageBits {
        self.of_rare(|rare| rare.unobservable)
    }

    /// See [`Rare::refused`].
    pub(super) fn refused(&self) -> PageBits {
        self.of_rare(|rare| rare.refused)
    }

    /// See [`Rare::swapped`].
    pub(super) fn swapped(&self) -> PageBits {
        self.of_rare(|rare| rare.swapped)
    }

    /// See [`Rare::lazily_freed`].
    pub(super) fn lazily_freed(&self) -> PageBits {
        self.of_rare(|rare| rare.lazily_freed)
    }

    fn shared(&self) -> PageBits {
        self.of_rare(|rare| rare.shared)
    }

    /// A hash of the state.
    pub(super) fn mixed(&self) -> u64 {
        let sets = [self.present, self.clear, self.exact, self.unplaced, self.touched(), self.at_rest()];
        let mixed = sets.iter().fold(0_u64, |mixed, set| mixed.rotate_left(9) ^ set.mixed());
        let bounds = u64::from(self.bounds.0.get()) << 16 | u64::from(self.bounds.1.get());
        mixed ^ bounds.wrapping_mul(GOLDEN) ^ self.counts.last.rotate_left(32)
    }

    /// The size of the state, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let active = self.active.as_ref().map_or(0, |active| size_of::<Active>() + size_of_val(active.past.as_slice()));
        size_of::<Self>() + self.last.own_bytes() + active + self.rare.as_ref().map_or(0, |_| size_of::<Rare>())
    }

    /// Counts the pages that are in `within`.
    pub(super) fn counts_in(&self, within: PageBits) -> Counts {
        let (present, exact) = (self.present & within, self.exact & within);
        let mut counts = Counts { present: present.count() as u64, exact: exact.count() as u64, ..Counts::ZERO };
        self.last.count(exact, |number, pages| counts.last += u64::from(number.get()) * u64::from(pages));
        if let Some(active) = &self.active {
            counts.touched = (active.touched & within).count() as f64;
        }
        let mut uncertain = present & !exact;
        if let Some(rare) = &self.rare {
            uncertain &= !rare.unobservable;
            counts.unobservable = (rare.unobservable & within).count() as u64;
            counts.unobservable_shared = (rare.unobservable & rare.shared & within).count() as u64;
            counts.swapped = (rare.swapped & within).count() as u64;
            counts.lazily_freed = (rare.lazily_freed & within).count() as u64;
        }
        match self.hot_share() {
            Some(share) => counts.touched += share * uncertain.count() as f64,
            None if self.is_hot() || uncertain.is_empty() => {}
            None => {
                counts.unknown = uncertain.count() as u64;
                counts.uncleared = (uncertain & !self.clear).count() as u64;
            }
        }
        counts
    }

    /// Counts all pages.
    pub(super) fn count(&self) -> Counts {
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
        self.touched() & self.set_again() & !self.revived()
    }

    /// The pages that were clear, and were found accessed by the last survey, without those that it clears by itself.
    pub(super) fn set_again_alone(&self) -> PageBits {
        self.set_again() & !self.shared()
    }

    /// The present, observable pages that may have been accessed in the last interval, or not: their accessed bit was
    /// set before it.
    pub(super) fn uncertain(&self) -> PageBits {
        self.present & !self.exact & !self.unobservable()
    }

    /// The observable pages that were never cleared, so that it is not known when they were accessed. If no page of the
    /// block was cleared, all that may have been accessed in the last interval.
    pub(super) fn never_cleared(&self) -> usize {
        match self.is_unexplored() {
            true => self.uncertain().count(),
            false => self.last.having(SurveyNumber::UNKNOWN, self.uncertain()).count(),
        }
    }

    /// Whether it is not known of its first present page when it was accessed.
    pub(super) fn has_unknown_past(&self) -> bool {
        self.present.iter().next().is_some_and(|page| self.last.of(page) == SurveyNumber::UNKNOWN)
    }

    /// Whether no page of the block was cleared, so that nothing tells how many of them are accessed again.
    fn is_unexplored(&self) -> bool {
        self.share.is_none() && self.clear.is_empty()
    }

    /// The share of the uncertain pages that counts as accessed in the last interval. `None` if they are unknown.
    pub(super) fn hot_share(&self) -> Option<f64> {
        self.share.filter(|_| self.is_hot()).map(f64::from)
    }
}
