//! The page-table entry at the end of a walk.

use isotherm_core::{AddrRange, PAGE_SIZE};

const PRESENT: u64 = 1 << 0;
const ACCESSED: u64 = 1 << 5;
const LEVEL_SHIFT: u32 = 9;
const LEVEL_MASK: u64 = 0x7;

/// The page-table entry that maps an address, as `program.bpf.c` returns it: the physical address, the present bit, the
/// accessed bit, and the level of the entry in the bits that the hardware leaves to software. 0 if there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leaf(pub(super) u64);

/// The amount of memory that an entry maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// An entry of the lowest level: a page of 4 KiB.
    Page,
    /// An entry of the second level: 2 MiB.
    Huge,
    /// An entry of the third level: 1 GiB.
    Gigantic,
}

impl Extent {
    const fn size(self) -> u64 {
        match self {
            Self::Page => PAGE_SIZE,
            Self::Huge => PAGE_SIZE << 9,
            Self::Gigantic => PAGE_SIZE << 18,
        }
    }

    /// The range that an entry of this extent maps, if it maps `addr`.
    pub(super) fn around(self, addr: u64) -> Option<AddrRange> {
        let start = addr & !(self.size() - 1);
        AddrRange::new(start, start.checked_add(self.size())?)
    }
}

impl Leaf {
    /// The extent of the entry, or `None` if it is not present.
    pub(super) fn extent(self) -> Option<Extent> {
        if self.0 & PRESENT == 0 {
            return None;
        }
        match self.0 >> LEVEL_SHIFT & LEVEL_MASK {
            1 => Some(Extent::Page),
            2 => Some(Extent::Huge),
            3 => Some(Extent::Gigantic),
            _ => None,
        }
    }

    /// Whether the memory was accessed since it was last cleared. False for an entry that is not present.
    pub(super) fn young(self) -> bool {
        self.extent().is_some() && self.0 & ACCESSED != 0
    }

    /// Whether both entries map the same frames, accessed or not.
    pub(super) fn maps_as(self, other: Self) -> bool {
        self.0 & !ACCESSED == other.0 & !ACCESSED
    }

    /// The number of the page frame of `addr`, which this entry maps.
    pub(super) fn frame(self, addr: u64) -> Option<u64> {
        let within = self.extent()?.size() - 1;
        Some(((self.0 & !within) | (addr & within)) / PAGE_SIZE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HUGE: u64 = 2 << LEVEL_SHIFT | PRESENT;

    #[test]
    fn an_entry_that_is_not_present_was_not_accessed() {
        assert!(!Leaf(0).young());
        assert!(!Leaf(ACCESSED | 1 << LEVEL_SHIFT).young());
        assert_eq!(Leaf(ACCESSED).frame(0x1000), None);
    }

    #[test]
    fn a_huge_entry_counts_frames_from_the_start_of_its_range() {
        // Bit 12 of a huge entry is not an address bit.
        let leaf = Leaf(0x4000_0000 | 1 << 12 | HUGE);
        assert_eq!(leaf.frame(0x7f00_0020_3000), Some(0x40003));
        assert_eq!(Extent::Huge.around(0x7f00_0020_3000), AddrRange::new(0x7f00_0020_0000, 0x7f00_0040_0000));
    }

    #[test]
    fn a_page_entry_gives_its_frame() {
        let leaf = Leaf(0x1234_5000 | ACCESSED | 1 << LEVEL_SHIFT | PRESENT);
        assert!(leaf.young());
        assert_eq!(leaf.frame(0x7f00_0000_0000), Some(0x12345));
    }
}
