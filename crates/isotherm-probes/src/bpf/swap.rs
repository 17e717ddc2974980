//! Page-table entries of pages that are in swap.
//!
//! An entry that is not present and not zero is one of many kinds: a page in swap, a page that is being moved, a page
//! with a memory error, memory of a device, a marker of userfaultfd. The type of the entry distinguishes them. Types of
//! swap areas are numbered from 0, and the other kinds have the last of the 32 types, nine at most (`swapon(2)`,
//! "MAX_SWAPFILES"). The position of the type in an entry is not documented. Therefore, before any entry counts, it is
//! compared with `/proc/PID/pagemap`, which is documented (Linux `Documentation/admin-guide/mm/pagemap.rst`).
//!
//! What is not counted: shared memory (shmem, tmpfs), whose entries the kernel removes when it swaps them out
//! (`pagemap.rst`, "Exceptions for Shared Memory"), and pages in more than the first 23 swap areas.

use isotherm_core::{PAGE_SIZE, survey::BlockPages};
use isotherm_kernel::pages::{Pagemap, SWAP_TYPES, SwapPlace};

use super::program::PageTable;

const TYPE_SHIFT: u32 = 59;
/// The offset is inverted.
const OFFSET_SHIFT: u32 = 9;
const OFFSET_MASK: u64 = (1 << (TYPE_SHIFT - OFFSET_SHIFT)) - 1;

/// So many entries of a read are compared, as long as none has agreed: a page may leave swap in between.
const WITNESSES: usize = 8;

/// 1 if `entry`, which is not present, has the type of a swap area, and else 0.
pub(super) const fn is_swap(entry: u64) -> u64 {
    (entry != 0) as u64 & (entry >> TYPE_SHIFT < SWAP_TYPES) as u64
}

/// The place in swap that an entry stands for.
pub(super) const fn place(entry: u64) -> SwapPlace {
    SwapPlace { area: entry >> TYPE_SHIFT, offset: !entry >> OFFSET_SHIFT & OFFSET_MASK }
}

/// Whether the entries of pages in swap are understood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SwapEntries {
    /// None was seen so far.
    #[default]
    Unseen,
    /// An entry agreed with the pagemap.
    Proven,
    /// No entry has agreed so far.
    Doubtful,
}

/// Entries that seem to be of pages in swap, with the addresses of the pages.
#[derive(Debug, Default)]
pub(super) struct Witnesses(Vec<(u64, u64)>);

impl Witnesses {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds a page of `block`, if one of its pages seems to be in swap and there are not enough of them yet.
    pub(super) fn add(&mut self, block: &BlockPages, table: &PageTable) {
        if self.0.len() < WITNESSES
            && let Some(page) = block.swapped.first()
        {
            self.0.push((block.start + page as u64 * PAGE_SIZE, table[page]));
        }
    }
}

impl SwapEntries {
    /// Compares entries with the pagemap of the process that they are of, unless one has agreed before. Returns whether
    /// such entries can be counted.
    pub(super) fn check(&mut self, seen: &Witnesses, pagemap: &Pagemap) -> bool {
        if *self != Self::Proven && !seen.0.is_empty() {
            let agrees = |&(addr, entry): &(u64, u64)| {
                let found = pagemap.entry(addr).ok().flatten();
                found.and_then(|found| found.swapped()) == Some(place(entry))
            };
            *self = if seen.0.iter().any(agrees) { Self::Proven } else { Self::Doubtful };
        }
        *self != Self::Doubtful
    }

    /// Whether it is known which pages are in swap.
    pub(super) fn are_known(self) -> bool {
        self != Self::Doubtful
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use isotherm_core::survey::PageBits;

    use super::*;

    const fn entry(area: u64, offset: u64) -> u64 {
        area << TYPE_SHIFT | (!offset & OFFSET_MASK) << OFFSET_SHIFT
    }

    fn pagemap(root: &Path, entries: &[u64]) -> Pagemap {
        std::fs::create_dir_all(root.join("proc/7")).unwrap();
        let bytes: Vec<u8> = entries.iter().copied().flat_map(u64::to_ne_bytes).collect();
        std::fs::write(root.join("proc/7/pagemap"), bytes).unwrap();
        Pagemap::open(root, "7").unwrap()
    }

    #[test]
    fn only_the_types_of_swap_areas_are_swap() {
        assert_eq!([0, entry(0, 5), entry(22, 1 << 40), entry(23, 5), entry(31, 5)].map(is_swap), [0, 1, 1, 0, 0]);
        assert_eq!(place(entry(3, 0x1234)), SwapPlace { area: 3, offset: 0x1234 });
    }

    #[test]
    fn entries_count_once_one_agrees_with_the_pagemap() {
        let mut table = [0; 512];
        (table[1], table[2]) = (entry(1, 77), entry(1, 78));
        let mut seen = Witnesses::default();
        seen.add(&BlockPages { swapped: PageBits::of(2..3), ..BlockPages::default() }, &table);
        let root = tempfile::tempdir().unwrap();
        let check = |entries: &[u64], state: &mut SwapEntries| state.check(&seen, &pagemap(root.path(), entries));

        let mut state = SwapEntries::default();
        assert!(state.check(&Witnesses::default(), &pagemap(root.path(), &[])) && state.are_known());
        // Another area, another offset, and a page that is back in memory.
        for other in [1 << 62 | 78 << 5, 1 << 62 | 77 << 5 | 1, 1 << 63 | 78 << 5 | 1] {
            assert!(!check(&[0, 0, other], &mut state) && !state.are_known());
        }
        let same = 1 << 62 | 78 << 5 | 1;
        assert!(check(&[0, 0, same], &mut state) && state.are_known());
        assert!(check(&[0, 0, 0], &mut state), "one is enough");
    }
}
