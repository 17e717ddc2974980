//! Memory in use: which pages the last surveys have found accessed, and how often.

use std::ops::Range;
use std::time::Duration;

use super::block::{Block, LAGS};
use super::history::append;
use super::number::LONGEST;
use super::{PageBits, PageHistory};
use crate::AddrRange;

/// The number of the last surveys that are considered.
pub const RECENT_SURVEYS: usize = LAGS + 1;

/// A part of memory that may have been accessed since the survey before the last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InUse {
    /// The addresses of the part. All of its pages are present.
    pub range: AddrRange,
    /// Whether two recent surveys have found it accessed. The last two surveys are always recent. If it is false, one
    /// survey has, and the accessed bits show whether it was accessed again.
    pub repeated: bool,
    /// The share of the last nine surveys that found it accessed, above 0 and at most 1, in steps in which it doubles.
    /// `None` if it is not known whether it was accessed in the interval of the last survey.
    pub share: Option<f64>,
}

/// The use of a page: whether it is repeated, and the binary logarithm of the number of surveys that have found the
/// page accessed, rounded down.
type Use = (bool, Option<u32>);

impl PageHistory {
    /// The parts of `range` that are in use. Surveys within the time `recent` before the last one are recent.
    ///
    /// Pages that were never cleared, or cannot be cleared, are in no part. Neither are pages that have appeared since
    /// the survey before the last: their accessed bit carries no information before it is cleared.
    pub fn in_use(&self, range: AddrRange, recent: Duration) -> Vec<InUse> {
        let recent = 2 + (2..RECENT_SURVEYS as u16).take_while(|&surveys| self.idle_time(surveys) <= recent).count();
        let mut parts: Vec<(AddrRange, Use)> = Vec::new();
        for block in self.blocks_in(range) {
            block.runs_in_use(block.within(range), recent, |run, found| append(&mut parts, &block, run, found));
        }
        // The first survey finds all memory accessed, and does not count.
        let most = self.surveys().saturating_sub(1).clamp(1, RECENT_SURVEYS).ilog2();
        let share = |doublings: u32| 0.5_f64.powi((most - doublings.min(most)) as i32);
        let part = |(range, (repeated, doublings)): (_, Use)| InUse { range, repeated, share: doublings.map(share) };
        parts.into_iter().map(part).collect()
    }
}

impl Block<'_> {
    /// Calls `found` with the runs of the pages in `within` that are in use. Their use is repeated if two of the last
    /// `recent` surveys have found them accessed.
    fn runs_in_use(&self, within: PageBits, recent: usize, mut found: impl FnMut(Range<usize>, Use)) {
        let maybe = self.present & !self.unobservable() & !self.idle_for(1) & within;
        if maybe.is_empty() {
            return;
        }
        if self.is_hot() {
            // Only a part of such a block is cleared, and it stands for the rest.
            return maybe.runs().for_each(|run| found(run, (true, Some(RECENT_SURVEYS.ilog2()))));
        }
        let (mut once, mut twice) = (PageBits::NONE, PageBits::NONE);
        let mut times = Times::default();
        for (lag, accessed) in std::iter::once((0, self.touched())).chain(self.accessed_before()) {
            times.add(accessed);
            if lag < recent {
                twice |= once & accessed;
                once |= accessed;
            }
        }
        let was_accessed = |page: &usize| self.idle(*page) < LONGEST;
        let uncertain: PageBits = (self.uncertain() & maybe).iter().filter(was_accessed).collect();
        let known = self.touched() & maybe & (twice | self.clear);
        let counted = known | twice;
        // All pages of a run between two of these are alike.
        let cuts = twice.changes() | counted.changes() | times.changes();
        for run in (known | uncertain).runs() {
            let mut start = run.start;
            while start < run.end {
                let end = cuts.next(start + 1).unwrap_or(run.end).min(run.end);
                found(start..end, (twice.contains(start), counted.contains(start).then(|| times.doublings(start))));
                start = end;
            }
        }
    }
}

/// In how many sets each page is, up to 15. The n-th set holds the pages whose number has the n-th binary digit set.
#[derive(Default)]
pub(super) struct Times([PageBits; 4]);

impl Times {
    /// Takes in another set.
    pub(super) fn add(&mut self, pages: PageBits) {
        let mut carried = pages;
        for digit in &mut self.0 {
            let both = *digit & carried;
            *digit = (*digit | carried) & !both;
            carried = both;
        }
    }

    /// The pages that are in another number of sets than the page before.
    fn changes(&self) -> PageBits {
        self.0.iter().fold(PageBits::NONE, |changes, digit| changes | digit.changes())
    }

    /// The number of sets that hold this page.
    pub(super) fn count(&self, page: usize) -> u32 {
        (0..4).map(|digit| u32::from(self.0[digit].contains(page)) << digit).sum()
    }

    /// The binary logarithm of the number of sets that hold this page, rounded down. 0 if no set holds it.
    fn doublings(&self, page: usize) -> u32 {
        (1..4).rev().find(|&digit| self.0[digit as usize].contains(page)).unwrap_or(0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::PAGE_SIZE;
    use crate::survey::{BLOCK_SIZE, BlockPages, ClearPages};

    const RECENT: Duration = Duration::from_secs(10);

    /// Of 100 pages, each survey finds `accessed`, and clears them but for `kept`. The surveys are `interval` seconds
    /// apart.
    fn after(interval: u64, surveys: &[PageBits], kept: PageBits) -> PageHistory {
        let mut history = PageHistory::default();
        for (accessed, nth) in surveys.iter().zip(0..) {
            let block = BlockPages { present: PageBits::of(0..100), accessed: *accessed, ..BlockPages::default() };
            history.take(&[block], Duration::from_secs(interval * nth));
            let mut cleared = history.accessed();
            cleared.iter_mut().for_each(|pages| pages.pages &= !kept);
            history.cleared(&cleared);
        }
        history
    }

    /// The parts in use: the first page, the end, whether it is repeated, and the share.
    fn parts(history: &PageHistory) -> Vec<(u64, u64, bool, Option<f64>)> {
        let all = AddrRange::new(0, BLOCK_SIZE).unwrap();
        let page = |addr: u64| addr / PAGE_SIZE;
        let part = |part: InUse| (page(part.range.start()), page(part.range.end()), part.repeated, part.share);
        history.in_use(all, RECENT).into_iter().map(part).collect()
    }

    /// All pages, cleared by the first survey, then these.
    fn surveys(later: &[PageBits]) -> Vec<PageBits> {
        [&[PageBits::of(0..100)], later].concat()
    }

    #[test]
    fn use_is_repeated_if_two_recent_surveys_have_found_it() {
        let (few, more, none) = (PageBits::of(0..10), PageBits::of(0..20), PageBits::NONE);
        let found = |interval, later: &[PageBits]| parts(&after(interval, &surveys(later), none));
        assert_eq!(found(1, &[few]), [(0, 10, false, Some(1.0))]);
        assert_eq!(found(1, &[few, more]), [(0, 10, true, Some(1.0)), (10, 20, false, Some(0.5))]);
        assert_eq!(found(1, &[few, none]), [], "not by the last survey");
        let seven_before = [&[few][..], &[none; 6], &[few]].concat();
        assert_eq!(found(1, &seven_before), [(0, 10, true, Some(0.25))]);
        assert_eq!(found(4, &seven_before), [(0, 10, false, Some(0.25))], "longer ago than 10 s");
        assert_eq!(found(60, &[few, few]), [(0, 10, true, Some(1.0))], "the survey before is never long ago");
    }

    #[test]
    fn memory_that_more_surveys_found_accessed_has_a_larger_share() {
        let found: Vec<PageBits> = (0..9).map(|nth| PageBits::of(0..100 - nth * 10)).collect();
        let mut found = surveys(&found);
        found.push(PageBits::of(0..100));
        let shares = [
            (0, 30, true, Some(1.0)),
            (30, 70, true, Some(0.5)),
            (70, 90, true, Some(0.25)),
            (90, 100, false, Some(0.125)),
        ];
        assert_eq!(parts(&after(1, &found, PageBits::NONE)), shares);
    }

    #[test]
    fn of_what_no_survey_has_cleared_nothing_is_known() {
        // Pages 0 to 10 are never cleared, and the others not after the second survey.
        let kept = PageBits::of(0..10);
        let mut history = after(1, &surveys(&[PageBits::of(0..20)]), kept);
        assert_eq!(parts(&history), [(10, 20, false, Some(1.0))]);
        let mut survey = |second| {
            let (present, accessed) = (PageBits::of(0..100), PageBits::of(0..30));
            let block = BlockPages { present, accessed, ..BlockPages::default() };
            history.take(&[block], Duration::from_secs(second));
            parts(&history)
        };
        assert_eq!(survey(2), [(10, 20, true, Some(1.0))], "the accessed bits of the others are still set");
        assert_eq!(survey(3), [(10, 20, true, Some(1.0)), (20, 30, false, None)], "accessed once, and perhaps again");
    }

    #[test]
    fn a_part_of_a_hot_block_stands_for_the_rest() {
        let all = PageBits::of(0..100);
        let mut history = after(1, &[all; 6], PageBits::NONE);
        let hot = [(0, 100, true, Some(1.0))];
        assert_eq!(parts(&history), hot);
        for second in 6..12 {
            let block = BlockPages { present: all, accessed: all, ..BlockPages::default() };
            history.take(&[block], Duration::from_secs(second));
            history.cleared(&[ClearPages { pages: PageBits::of(0..13), ..ClearPages::default() }]);
        }
        assert_eq!(parts(&history), hot);
    }

    #[test]
    fn a_number_of_sets_is_counted_for_each_page() {
        let mut times = Times::default();
        for nth in 0..9 {
            times.add(PageBits::of(nth..9));
        }
        let doublings: Vec<u32> = (0..10).map(|page| times.doublings(page)).collect();
        assert_eq!(doublings, [0, 1, 1, 2, 2, 2, 2, 3, 3, 0]);
    }

    proptest! {
        #[test]
        fn each_page_in_use_has_the_number_of_surveys_that_found_it(
            later in prop::collection::vec(prop::collection::vec(0..100_usize, 0..60), 1..14),
        ) {
            let later: Vec<PageBits> = later.into_iter().map(|pages| pages.into_iter().collect()).collect();
            let history = after(1, &surveys(&later), PageBits::NONE);
            let recent = &later[later.len().saturating_sub(RECENT_SURVEYS)..];
            let share = |times: usize| 0.5_f64.powi(recent.len().ilog2() as i32 - times.ilog2() as i32);
            let wanted = later[later.len() - 1].iter().map(|page| {
                let times = recent.iter().filter(|pages| pages.contains(page)).count();
                (page as u64, times > 1, Some(share(times)))
            });
            let found = parts(&history).into_iter().flat_map(|(start, end, repeated, share)| {
                (start..end).map(move |page| (page, repeated, share))
            });
            prop_assert_eq!(found.collect::<Vec<_>>(), wanted.collect::<Vec<_>>());
        }
    }
}
