//! The page-table entries of a block: 2 MiB of addresses.

use isotherm_core::survey::PageBits;
use isotherm_core::{AddrRange, IdleTally, PAGE_SIZE};

use super::leaf::{Extent, Leaf};
use super::look::Look;
use super::program::{Found, PageTable, TABLE_ENTRIES};
use super::words::{Words, words};
use crate::mark::Mark;

// Bits of a page-table entry. PROTNONE has this meaning only in an entry that is not present.
const PRESENT: u64 = 1 << 0;
const ACCESSED: u64 = 1 << 5;
const PROTNONE: u64 = 1 << 8;

/// The number of pages in a block.
pub(super) const PAGES: usize = TABLE_ENTRIES;

/// The size of a block in bytes, which is also the size of a huge page.
pub(super) const HUGE_SIZE: u64 = PAGES as u64 * PAGE_SIZE;

/// The frame that an entry of the lowest level maps. `address_mask` selects the bits of an entry that hold an address.
pub(super) fn frame_of(entry: u64, address_mask: u64) -> Option<u64> {
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
    /// Whether each page must not be cleared.
    left: [bool; PAGES],
}

impl Entries {
    /// The entries `found` at `start`. `address_mask` selects the bits of an entry that hold an address.
    pub(super) fn new(start: u64, found: Found<'_>, address_mask: u64) -> Self {
        let (table, huge) = match found {
            Found::Table(table) => (*table, None),
            Found::Leaf(leaf) if leaf.extent() == Some(Extent::Huge) => ([0; PAGES], Some(leaf)),
            Found::Leaf(_) => ([0; PAGES], None),
        };
        Self { start, table, huge, address_mask, from: 0, to: PAGES, left: [false; PAGES] }
    }

    /// The first address of the block.
    pub(super) fn start(&self) -> u64 {
        self.start
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
        frame_of(self.table[page], self.address_mask)
    }

    /// Whether a page is in memory.
    pub(super) fn is_present(&self, page: usize) -> bool {
        self.is_huge() || self.table[page] & (PRESENT | PROTNONE) != 0
    }

    /// Whether a page was accessed since it was last cleared.
    pub(super) fn is_young(&self, page: usize) -> bool {
        self.huge.map_or_else(|| self.is_present(page) && self.table[page] & ACCESSED != 0, Leaf::young)
    }

    /// The pages of the limited block that were accessed.
    pub(super) fn young(&self) -> impl Iterator<Item = usize> + '_ {
        self.pages().filter(|&page| self.is_young(page))
    }

    /// Whether any page of the limited block was accessed.
    pub(super) fn any_young(&self) -> bool {
        self.young().next().is_some()
    }

    /// Records that a page must not be cleared.
    pub(super) fn leave(&mut self, page: usize) {
        self.left[page] = true;
    }

    /// Whether a page must not be cleared.
    pub(super) fn is_left(&self, page: usize) -> bool {
        self.left[page]
    }

    /// The addresses of a range of pages, or `None` if the range is empty.
    pub(super) fn addresses(&self, pages: std::ops::Range<usize>) -> Option<AddrRange> {
        AddrRange::new(self.start + pages.start as u64 * PAGE_SIZE, self.start + pages.end as u64 * PAGE_SIZE)
    }

    /// Updates the marks of the pages, and adds the result of the last interval to `tally`, unless `look` is
    /// [`Look::First`].
    pub(super) fn update_marks(&self, marks: &mut [Mark; PAGES], look: Look, tally: &mut IdleTally) {
        for page in self.pages() {
            let mark = &mut marks[page];
            *mark = match (self.is_present(page), self.is_young(page)) {
                (false, _) => Mark::NOTHING,
                (true, _) if look == Look::Locked => Mark::UNEVICTABLE,
                (true, _) if look == Look::First => Mark::ACCESSED,
                // The page was not cleared, so the access may be older than the interval.
                (true, true) if matches!(*mark, Mark::UNMARKED | Mark::UNEVICTABLE) => Mark::UNMARKED,
                (true, true) => Mark::ACCESSED,
                // This includes pages that could not be cleared: another program has cleared them.
                (true, false) => mark.idle_longer(),
            };
            if look != Look::First
                && let Some(state) = mark.state()
            {
                tally.add(state, PAGE_SIZE);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0x7f00_0000_0000;

    fn entries(table: &[u64]) -> Entries {
        let mut whole = [0; PAGES];
        whole[..table.len()].copy_from_slice(table);
        Entries::new(START, Found::Table(&whole), 0xf_ffff_ffff_f000)
    }

    #[test]
    fn a_page_with_protection_none_is_present() {
        let frame = 0x1234_5000_u64;
        let entries =
            entries(&[frame | PRESENT | ACCESSED, (!frame & 0xf_ffff_ffff_f000) | PROTNONE | ACCESSED, 0x7ff << 12]);
        for page in [0, 1] {
            assert_eq!(entries.frame(page), Some(0x12345));
            assert!(entries.is_present(page) && entries.is_young(page));
        }
        // The entry of a page that is swapped out.
        assert!(!entries.is_present(2) && entries.frame(2).is_none());
    }

    #[test]
    fn pages_grow_idle_until_they_are_accessed_and_pages_that_cannot_be_cleared_are_unobservable() {
        let mut marks = [Mark::NOTHING; PAGES];
        let old = PRESENT;
        let young = PRESENT | ACCESSED;
        entries(&[young, young, old, young]).update_marks(&mut marks, Look::First, &mut IdleTally::default());
        marks[3] = Mark::UNMARKED;
        let mut tally = IdleTally::default();
        entries(&[young, old, old, young, young]).update_marks(&mut marks, Look::Again, &mut tally);
        assert_eq!((tally.accessed, tally.idle, tally.unobservable), (2 * PAGE_SIZE, 2 * PAGE_SIZE, PAGE_SIZE));
        let mut tally = IdleTally::default();
        entries(&[old, old, 0, old, old]).update_marks(&mut marks, Look::Again, &mut tally);
        assert_eq!((tally.accessed, tally.idle, tally.unobservable), (0, 4 * PAGE_SIZE, 0));
        assert_eq!(tally.by_intervals(), [3 * PAGE_SIZE, PAGE_SIZE]);
    }

    #[test]
    fn locked_pages_are_unevictable_until_they_are_unlocked() {
        let mut marks = [Mark::NOTHING; PAGES];
        let (old, young) = (PRESENT, PRESENT | ACCESSED);
        entries(&[young, old, 0]).update_marks(&mut marks, Look::First, &mut IdleTally::default());
        let mut tally = IdleTally::default();
        entries(&[young, old, 0]).update_marks(&mut marks, Look::Locked, &mut tally);
        assert_eq!((tally.size(), tally.unevictable), (0, 2 * PAGE_SIZE));
        // A page that was not marked may have been accessed before the interval.
        let mut tally = IdleTally::default();
        entries(&[young, old, 0]).update_marks(&mut marks, Look::Again, &mut tally);
        assert_eq!((tally.unobservable, tally.idle, tally.unevictable), (PAGE_SIZE, PAGE_SIZE, 0));
    }

    #[test]
    fn only_pages_of_the_mapping_are_visited() {
        let mut entries = entries(&[PRESENT | ACCESSED; 8]);
        entries.narrow(AddrRange::new(START + 0x2000, START + 0x5000).unwrap());
        assert_eq!(entries.young().collect::<Vec<_>>(), [2, 3, 4]);
        assert!(!entries.is_whole());
        entries.narrow(AddrRange::new(START - 0x2000, START + 2 * HUGE_SIZE).unwrap());
        assert!(entries.is_whole());
    }
}
