//! What is known about which pages of a block other processes map.

use isotherm_core::survey::PageBits;

/// What is known about the pages of a block.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sharing {
    /// Other processes map them.
    pub(super) shared: PageBits,
    /// No other process maps them.
    pub(super) exclusive: PageBits,
    /// The process maps them at a lower address too.
    pub(super) second: PageBits,
    /// Of the shared pages, those that aging was seen to clear.
    pub(super) aged: PageBits,
    /// Of the shared pages, those that the last aging has left.
    pub(super) left: PageBits,
}

impl Sharing {
    /// The shared pages that are still to be cleared, if the cgroup was aged in this survey or not.
    pub(super) fn rest(&self, aged: bool) -> PageBits {
        if aged { self.left } else { self.shared }
    }
}
