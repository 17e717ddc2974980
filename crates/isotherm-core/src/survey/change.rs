//! How the state of a block changes by a survey.

use super::block::{Active, BlockState, HOT_SHARE, LAGS, MIN_CLEARED, Rare};
use super::lasts::Lasts;
use super::number::SurveyNumber;
use super::{BLOCK_PAGES, BlockPages, ClearPages, PageBits};
use crate::order::GOLDEN;

/// The numbers of the surveys before and after a change of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbers {
    /// The number of the survey before.
    pub(super) before: SurveyNumber,
    /// The number of this survey, which is greater.
    pub(super) now: SurveyNumber,
    /// Whether numbers were [reduced](SurveyNumber::reduced) since the survey before.
    pub(super) are_reduced: bool,
    /// Whether nothing is known of the time before this survey.
    pub(super) is_first: bool,
}

/// The state of a block that is being changed.
struct Change {
    /// The state, without what the other fields have, and without its counts.
    state: BlockState,
    last: [SurveyNumber; BLOCK_PAGES],
    active: Active,
    rare: Rare,
}

impl Change {
    fn of(state: &BlockState) -> Self {
        let BlockState { present, clear, exact, unplaced, bounds, share, hot, huge, .. } = *state;
        Self {
            last: state.last.all(),
            active: state.active.as_deref().cloned().unwrap_or_default(),
            rare: state.rare.as_deref().copied().unwrap_or_default(),
            state: BlockState { present, clear, exact, unplaced, bounds, share, hot, huge, ..BlockState::NEW },
        }
    }

    /// The state after the change.
    fn state(self) -> BlockState {
        let Self { state, last, active, rare } = self;
        let active = (active != Active::default()).then(|| Box::new(active));
        let rare = (rare != Rare::default()).then(|| Box::new(rare));
        let mut state = BlockState { last: Lasts::from(&last), active, rare, ..state };
        state.counts = state.count();
        state
    }

    /// Reduces the numbers of surveys.
    fn renumber(&mut self) {
        self.last.iter_mut().for_each(|last| *last = last.reduced());
        self.active.past.iter_mut().for_each(|(last, _)| *last = last.reduced());
        self.state.bounds = (self.state.bounds.0.reduced(), self.state.bounds.1.reduced());
    }

    /// Takes in what a survey has read.
    fn survey(&mut self, found: &BlockPages, numbers: Numbers) {
        let Numbers { before, now: number, are_reduced, is_first } = numbers;
        if are_reduced {
            self.renumber();
        }
        let Self { state, last, active, rare } = self;
        let clear = found.present & !found.accessed;
        let unobservable = unobservable(found, state.present, rare.refused);
        let was_clear = state.clear & !rare.at_rest;
        let was_exact = state.exact & !rare.at_rest;
        if !active.touched.is_empty() {
            active.past.insert(0, (before, active.touched));
        }
        active.past.retain(|(last, _)| usize::from(number.since(*last)) <= LAGS);
        let known = state.present & found.present;
        let asked = active.cleared & known & !unobservable;
        if asked.count() >= MIN_CLEARED {
            let share = (asked & found.accessed).count() as f32 / asked.count() as f32;
            state.share = Some(share);
            state.hot = if share >= HOT_SHARE { state.hot.saturating_add(1) } else { 0 };
        } else if active.cleared.is_empty() {
            // No part stands for the rest any more.
            state.hot = 0;
        }
        let appeared = found.present & found.accessed & !known;
        let set_again = known & was_clear & found.accessed;
        let was_idle = |page: &usize| last[*page] != before;
        let revived = (set_again & was_exact).iter().filter(was_idle).collect();
        // A page that was cleared by the survey before, by a sample or by another program, and that has stayed clear,
        // was accessed before this interval. Any other page that is clear has stayed idle. The bit of a page that
        // cannot be observed says nothing while it is clear.
        let turned_idle = clear & !unobservable & !(known & was_clear & was_exact);
        let now_accessed = set_again | if is_first { PageBits::NONE } else { appeared };

        let never_cleared: PageBits = turned_idle.iter().filter(|&page| !last[page].is_known()).collect();
        state.unplaced = (state.unplaced & !turned_idle & !now_accessed & found.present) | never_cleared;
        now_accessed.iter().for_each(|page| last[page] = number);
        for page in turned_idle.iter() {
            if is_accessed_until(number.before(), page, last[page], state.share) {
                last[page] = number.before();
            }
        }
        if is_first {
            // The first survey cannot know when the page was accessed.
            appeared.iter().for_each(|page| last[page] = SurveyNumber::UNKNOWN);
        }
        (state.present, state.clear, state.huge) = (found.present, clear, found.huge);
        let touched = now_accessed & !unobservable;
        let exact = (clear | touched) & !unobservable;
        if exact != was_exact || !(now_accessed | turned_idle).is_empty() {
            let mut last = exact.iter().map(|page| last[page]);
            let first = last.next().unwrap_or(SurveyNumber::UNKNOWN);
            state.bounds = last.fold((first, first), |(least, most), at| (least.min(at), most.max(at)));
        }
        state.exact = exact;
        let past = std::mem::take(&mut active.past);
        *active = Active { touched, past, cleared: PageBits::NONE, set_again, revived };
        *rare = Rare {
            at_rest: PageBits::NONE,
            unobservable,
            refused: unobservable & !found.unobservable,
            swapped: found.swapped,
            lazily_freed: found.lazily_freed,
            shared: found.shared,
        };
    }
}

/// Whether a page that was cleared late, and has stayed clear, counts as accessed in the last interval before it was
/// cleared, that of the survey `cleared`, and not in that of `last`, the last survey in whose interval it was accessed.
///
/// It may have been accessed in each interval between them, with the chance that a page of the block is accessed again,
/// `share`. As large a part of the pages counts as accessed. The multiples of the golden ratio choose it evenly.
fn is_accessed_until(cleared: SurveyNumber, page: usize, last: SurveyNumber, share: Option<f32>) -> bool {
    if !last.is_known() || last >= cleared {
        return true;
    }
    let not_again = 1.0 - f64::from(share.unwrap_or(1.0));
    let part = 1.0 - not_again.powi(cleared.since(last).into());
    ((page as u64).wrapping_mul(GOLDEN) as f64) < part * u64::MAX as f64
}

/// The pages that are not observable once a survey has read `found`, where the survey before has found the pages
/// `present` and was `refused` some.
fn unobservable(found: &BlockPages, present: PageBits, refused: PageBits) -> PageBits {
    found.unobservable | (refused & found.accessed & present & found.present)
}

impl BlockState {
    /// Whether [`after`](Self::after) would change nothing, because the block was idle or unknown in the survey before,
    /// and is so in this one.
    pub(super) fn stays(&self, found: &BlockPages) -> bool {
        self.at_rest().is_empty() && self.is_as_before(found)
    }

    fn is_as_before(&self, found: &BlockPages) -> bool {
        let clear = found.present & !found.accessed;
        let unobservable = unobservable(found, self.present, self.refused());
        let rare = self.rare.as_deref().copied().unwrap_or_default();
        let is_active =
            |active: &Active| !(active.cleared | active.set_again | active.revived | active.touched).is_empty();
        found.present == self.present
            && found.swapped == rare.swapped
            && found.lazily_freed == rare.lazily_freed
            && clear == self.clear
            && unobservable == rare.unobservable
            && unobservable & !found.unobservable == rare.refused
            && clear & !unobservable == self.exact
            // Pages that are clear but not exact have turned idle.
            && (clear & !self.exact).is_empty()
            && !self.active.as_deref().is_some_and(is_active)
            && !self.is_hot()
            && found.shared == rare.shared
            && found.huge == self.huge
    }

    /// What a survey has found in a target that has not run since the survey before, or since the run began if it is
    /// the first one, as if all of its pages had been cleared then. The second value is the pages whose accessed bit
    /// was set before.
    pub(super) fn found_at_rest(&self, found: &BlockPages, is_first: bool) -> (BlockPages, PageBits) {
        let known = if is_first { PageBits::ALL } else { self.present & (!self.clear | self.at_rest()) };
        let before = found.accessed & known;
        (BlockPages { accessed: found.accessed & !before, shared: PageBits::NONE, ..*found }, before)
    }

    /// Whether [`after_rest`](Self::after_rest) would change nothing.
    pub(super) fn stays_at_rest(&self, (found, before): &(BlockPages, PageBits)) -> bool {
        *before == self.at_rest() && self.is_as_before(found)
    }

    /// The state once a survey has read this of a target [at rest](Self::found_at_rest).
    pub(super) fn after_rest(&self, (found, before): &(BlockPages, PageBits), numbers: Numbers) -> Self {
        let mut change = Change::of(self);
        change.rare.at_rest = PageBits::NONE;
        change.survey(found, numbers);
        change.rare.at_rest = *before;
        change.state()
    }

    /// The state once a survey has read `found`.
    pub(super) fn after(&self, found: &BlockPages, numbers: Numbers) -> Self {
        let mut change = Change::of(self);
        change.survey(found, numbers);
        change.state()
    }

    /// The state with pages that have appeared since the last survey. Nothing is known of them.
    pub(super) fn with_more(&self, pages: PageBits) -> Self {
        let mut change = Change::of(self);
        change.state.present |= pages;
        change.rare.swapped &= !pages;
        change.rare.lazily_freed &= !pages;
        change.state()
    }

    /// Notes which pages the survey has cleared, and which it could not. What was read stays as it is, since it was
    /// counted already: the next survey finds the pages that could not be cleared unobservable.
    pub(super) fn note_cleared(&mut self, pages: &ClearPages) {
        let cleared = pages.pages & self.present & !pages.unobservable;
        let refused = pages.unobservable & self.present;
        self.clear |= cleared;
        if !refused.is_empty() || self.rare.is_some() {
            let rare = self.rare.get_or_insert_default();
            rare.refused = (rare.refused | refused) & !cleared;
        }
        if !cleared.is_empty() || self.active.is_some() {
            self.active.get_or_insert_default().cleared |= cleared;
        }
        self.counts = self.count();
    }
}
