//! The state of a page that is kept from one interval to the next, in one byte.

use isotherm_core::{MOST_INTERVALS, PageState};

use isotherm_kernel::pages::Flags;

/// The state of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark(u8);

impl Mark {
    /// The page was accessed in the last interval, or it is new. It is marked as idle now.
    pub(crate) const ACCESSED: Self = Self(0);
    /// The last interval could not be observed. The page is marked as idle now.
    pub(crate) const UNKNOWN: Self = Self(251);
    /// The page could not be marked. Its accesses cannot be observed until it is marked.
    pub(crate) const UNMARKED: Self = Self(252);
    /// The page is locked in memory.
    pub(crate) const UNEVICTABLE: Self = Self(253);
    /// There is no user page at this address.
    pub(crate) const NOTHING: Self = Self(254);

    /// The state after one more interval without an access. The count of intervals stops at [`MOST_INTERVALS`].
    pub(crate) fn idle_longer(self) -> Self {
        match self.0 {
            before @ 0..MOST_INTERVALS => Self(before + 1),
            MOST_INTERVALS => self,
            _ => Self(1),
        }
    }

    /// The state after the first attempt to mark the page. `flags` are the kernel's flags of the page.
    pub(crate) fn at_first(flags: Flags) -> Self {
        if flags.is_unevictable() {
            Self::UNEVICTABLE
        } else if flags.is_listed() {
            Self::ACCESSED
        } else {
            Self::UNMARKED
        }
    }

    /// The state after one more interval. `flags` are the kernel's flags of the page, and `still_idle` is its bit in
    /// the idle bitmap.
    pub(crate) fn after(self, flags: Flags, still_idle: bool) -> Self {
        if flags.is_unevictable() {
            Self::UNEVICTABLE
        } else if !flags.is_listed() {
            Self::UNMARKED
        } else if still_idle {
            self.idle_longer()
        } else if flags.is_marked_idle() || matches!(self, Self::UNMARKED | Self::UNEVICTABLE) {
            // Either the kernel could not check the page just now, or the page was not marked when the interval began.
            Self::UNKNOWN
        } else {
            Self::ACCESSED
        }
    }

    /// The result of the last interval, or `None` if there is no page.
    pub(crate) fn state(self) -> Option<PageState> {
        match self {
            Self::ACCESSED => Some(PageState::Accessed),
            Self::UNKNOWN | Self::UNMARKED => Some(PageState::Unobservable),
            Self::UNEVICTABLE => Some(PageState::Unevictable),
            Self::NOTHING => None,
            Self(intervals) => Some(PageState::Idle(intervals)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_intervals_are_counted_up_to_the_maximum() {
        let mut mark = Mark::ACCESSED;
        for intervals in 1..=300_u32 {
            mark = mark.idle_longer();
            let expected = intervals.min(MOST_INTERVALS.into()) as u8;
            assert_eq!(mark.state(), Some(PageState::Idle(expected)));
        }
    }

    #[test]
    fn a_page_with_an_unknown_past_has_been_idle_for_one_interval() {
        for mark in [Mark::UNKNOWN, Mark::UNMARKED, Mark::UNEVICTABLE, Mark::NOTHING] {
            assert_eq!(mark.idle_longer().state(), Some(PageState::Idle(1)));
        }
    }
}
