//! The page-table entries of a block: 2 MiB of addresses.

use isotherm_core::survey::PageBits;
use isotherm_core::{AddrRange, PAGE_SIZE};

use super::leaf::{Extent, Leaf};
use super::program::{PageTable, TABLE_ENTRIES, Walked};
use super::words::{Words, words};

// Bits of a page-table entry. PROTNONE has this meaning only in an entry that is not present.
const PRESENT: u64 = 1 << 0;
const PROTNONE: u64 = 1 << 8;

/// The number of pages in a block.
pub(super) const PAGES: usize = TABLE_ENTRIES;

/// The entries of a block: either a table, or one entry that maps the whole block.
#[derive(Debug)]
pub(super) struct Entries {
    start: u64,
    table: PageTable,
    huge: Option<Leaf>,
    address_mask: u64,
    /// The first page of the mapping.
    from: usize,
    /// One past the last page of the mapping.
    to: usize,
}

impl Entries {
    /// The entries `found` at `start`. `address_mask` selects the bits of an entry that hold an address.
    pub(super) fn new(start: u64, found: Walked<'_>, address_mask: u64) -> Self {
        let (table, huge) = match found {
            Walked::Table(table) => (*table, None),
            Walked::Leaf(leaf) if leaf.extent() == Some(Extent::Huge) => ([0; PAGES], Some(leaf)),
            Walked::Leaf(_) => ([0; PAGES], None),
        };
        Self { start, table, huge, address_mask, from: 0, to: PAGES }
    }

    /// Limits the block to the pages in `range`.
    pub(super) fn narrow(&mut self, range: AddrRange) {
        let index = |addr: u64| (addr.saturating_sub(self.start) / PAGE_SIZE).min(PAGES as u64) as usize;
        (self.from, self.to) = (index(range.start()), index(range.end()));
    }

    /// The pages that the block is limited to.
    pub(super) fn pages(&self) -> std::ops::Range<usize> {
        self.from..self.to
    }

    /// Whether one entry maps the whole block.
    pub(super) fn is_huge(&self) -> bool {
        self.huge.is_some()
    }

    /// Whether the block is not limited.
    pub(super) fn is_whole(&self) -> bool {
        self.pages() == (0..PAGES)
    }

    /// The states of all pages of the block, whether it is limited or not.
    pub(super) fn words(&self) -> Words {
        match self.huge {
            None => words(&self.table),
            Some(leaf) => {
                let accessed = if leaf.young() { PageBits::ALL } else { PageBits::NONE };
                Words { present: PageBits::ALL, accessed, ..Words::default() }
            }
        }
    }

    /// The first frame of the entry that maps the whole block, if there is one.
    pub(super) fn huge_frame(&self) -> Option<u64> {
        self.huge?.frame(self.start)
    }

    /// The frame of a page that has an entry of its own.
    pub(super) fn frame(&self, page: usize) -> Option<u64> {
        frame(self.table[page], self.address_mask)
    }
}

/// The frame that an entry of the lowest level maps.
pub(super) fn frame(entry: u64, address_mask: u64) -> Option<u64> {
    if entry & PRESENT != 0 {
        Some((entry & address_mask) / PAGE_SIZE)
    } else if entry & PROTNONE != 0 {
        // A page with protection NONE (NUMA balancing, mprotect) is in memory. The kernel inverts the address in its
        // entry.
        Some((!entry & address_mask) / PAGE_SIZE)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use isotherm_core::survey::BLOCK_SIZE;

    use super::*;

    const START: u64 = 0x7f00_0000_0000;
    const ACCESSED: u64 = 1 << 5;

    fn entries(table: &[u64]) -> Entries {
        let mut whole = [0; PAGES];
        whole[..table.len()].copy_from_slice(table);
        Entries::new(START, Walked::Table(&whole), 0xf_ffff_ffff_f000)
    }

    #[test]
    fn a_page_with_protection_none_has_a_frame() {
        let frame = 0x1234_5000_u64;
        let entries =
            entries(&[frame | PRESENT | ACCESSED, (!frame & 0xf_ffff_ffff_f000) | PROTNONE | ACCESSED, 0x7ff << 12]);
        for page in [0, 1] {
            assert_eq!(entries.frame(page), Some(0x12345));
        }
        // The entry of a page that is swapped out.
        assert!(entries.frame(2).is_none());
    }

    #[test]
    fn a_block_is_limited_to_the_pages_of_a_mapping() {
        let mut entries = entries(&[PRESENT | ACCESSED; 8]);
        entries.narrow(AddrRange::new(START + 0x2000, START + 0x5000).unwrap());
        assert_eq!(entries.pages(), 2..5);
        assert!(!entries.is_whole());
        entries.narrow(AddrRange::new(START - 0x2000, START + 2 * BLOCK_SIZE).unwrap());
        assert!(entries.is_whole());
    }
}
