//! Numbers of pages, which are added up over blocks.

/// Numbers of pages.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counts {
    pub(super) present: u64,
    /// A part of a hot block stands for the rest, so that this is no whole number.
    pub(super) touched: f64,
    pub(super) unobservable: u64,
    /// Of the unobservable pages, those that the survey clears by itself.
    pub(super) unobservable_shared: u64,
    pub(super) swapped: u64,
    pub(super) lazily_freed: u64,
    pub(super) unknown: u64,
    /// The unknown pages whose accessed bit is set: an access would not be seen.
    pub(super) uncleared: u64,
    /// Of whole blocks only: the observable pages that were never cleared.
    pub(super) never_cleared: u64,
    /// Of whole blocks only: the present pages of those that have a share, because some of their pages were cleared.
    pub(super) asked: u64,
    /// The pages in `asked`, each by the share of its block.
    pub(super) answered: f64,
    /// The pages whose last access is known.
    pub(super) exact: u64,
    /// For each of these pages, the number of the survey in whose interval that was.
    pub(super) last: u64,
    /// The number of whole blocks with a present page.
    pub(super) blocks: usize,
}

impl Counts {
    pub(super) const ZERO: Self = Self {
        present: 0,
        touched: 0.0,
        unobservable: 0,
        unobservable_shared: 0,
        swapped: 0,
        lazily_freed: 0,
        unknown: 0,
        uncleared: 0,
        never_cleared: 0,
        asked: 0,
        answered: 0.0,
        exact: 0,
        last: 0,
        blocks: 0,
    };

    /// How many pages a survey may want to clear, about: those in use and those with an unknown past, and one of each
    /// block.
    pub(super) fn clears_wanted(&self) -> f64 {
        self.touched + (self.uncleared + self.blocks as u64) as f64
    }

    pub(super) fn plus(self, other: &Self) -> Self {
        Self {
            present: self.present + other.present,
            touched: self.touched + other.touched,
            unobservable: self.unobservable + other.unobservable,
            unobservable_shared: self.unobservable_shared + other.unobservable_shared,
            swapped: self.swapped + other.swapped,
            lazily_freed: self.lazily_freed + other.lazily_freed,
            unknown: self.unknown + other.unknown,
            uncleared: self.uncleared + other.uncleared,
            never_cleared: self.never_cleared + other.never_cleared,
            asked: self.asked + other.asked,
            answered: self.answered + other.answered,
            exact: self.exact + other.exact,
            last: self.last + other.last,
            blocks: self.blocks + other.blocks,
        }
    }
}
