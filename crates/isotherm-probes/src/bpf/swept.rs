//! The memory of a target that has been swept.

use std::collections::HashSet;

use isotherm_core::AddrRange;
use isotherm_kernel::HUGE;

/// The unit of later sweeps in bytes: what one page of page-table entries maps. Its sweep takes about 25 µs.
pub(super) const BLOCK: u64 = HUGE;

/// The blocks of a target that have been swept.
#[derive(Debug, Default)]
pub(super) struct Swept(HashSet<u64>);

impl Swept {
    /// Records that all of `range` has been swept.
    pub(super) fn note(&mut self, range: AddrRange) {
        self.0.extend(range.start() / BLOCK..range.end().div_ceil(BLOCK));
    }

    /// Records that the block of `addr` has been swept.
    pub(super) fn note_block(&mut self, addr: u64) {
        self.0.insert(addr / BLOCK);
    }

    /// Whether the block of `addr` has been swept.
    pub(super) fn contains(&self, addr: u64) -> bool {
        self.0.contains(&(addr / BLOCK))
    }
}
