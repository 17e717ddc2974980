//! What is remembered of a page from one interval to the next, in a byte.

use isotherm_core::{MOST_INTERVALS, PageState};

use isotherm_kernel::pages::Flags;

/// What is known of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark(u8);

impl Mark {
    /// It was accessed in the last interval, or has just come, and is marked as idle now. It may turn out to be idle next time.
    pub(crate) const ACCESSED: Self = Self(0);
    /// Nothing could be told of the last interval, but it is marked now.
    pub(crate) const UNKNOWN: Self = Self(251);
    /// It could not be marked: whether it is accessed cannot be told before it can.
    pub(crate) const UNMARKED: Self = Self(252);
    /// It is locked in memory.
    pub(crate) const UNEVICTABLE: Self = Self(253);
    /// There is no page of a user there.
    pub(crate) const NOTHING: Self = Self(254);

    /// After one interval more in which it was not accessed.
    pub(crate) fn idle_longer(self) -> Self {
        match self.0 {
            before @ 0..MOST_INTERVALS => Self(before + 1),
            MOST_INTERVALS => self,
            _ => Self(1),
        }
    }

    /// What becomes of a page that has just been marked for the first time, or could not be.
    pub(crate) fn at_first(flags: Flags) -> Self {
        if flags.is_unevictable() {
            Self::UNEVICTABLE
        } else if flags.is_listed() {
            Self::ACCESSED
        } else {
            Self::UNMARKED
        }
    }

    /// What becomes of it after an interval, by the kernel's flags and bitmap.
    pub(crate) fn after(self, flags: Flags, still_idle: bool) -> Self {
        if flags.is_unevictable() {
            Self::UNEVICTABLE
        } else if !flags.is_listed() {
            Self::UNMARKED
        } else if still_idle {
            self.idle_longer()
        } else if flags.is_marked_idle() || matches!(self, Self::UNMARKED | Self::UNEVICTABLE) {
            // The kernel could not look at it just now; or it was not marked to begin with.
            Self::UNKNOWN
        } else {
            Self::ACCESSED
        }
    }

    /// What the last interval showed; nothing if there is no page.
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
    fn intervals_are_counted_up_to_their_maximum_and_no_further() {
        let mut mark = Mark::ACCESSED;
        for intervals in 1..=300_u32 {
            mark = mark.idle_longer();
            let expected = intervals.min(MOST_INTERVALS.into()) as u8;
            assert_eq!(mark.state(), Some(PageState::Idle(expected)));
        }
    }

    #[test]
    fn what_was_not_known_before_has_been_idle_for_one_interval() {
        for mark in [Mark::UNKNOWN, Mark::UNMARKED, Mark::UNEVICTABLE, Mark::NOTHING] {
            assert_eq!(mark.idle_longer().state(), Some(PageState::Idle(1)));
        }
    }
}
