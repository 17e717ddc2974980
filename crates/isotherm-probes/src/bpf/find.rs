//! Finds the blocks of a process that have page-table entries, from the top of the page tables down, so that reserved
//! address space costs nothing.

use isotherm_core::AddrRange;
use isotherm_core::survey::BLOCK_SIZE;

use super::BpfError;
use super::leaf::Extent;
use super::program::{MAX_TABLES, PageTables, Program, Walked};
use super::words::{is_dirty, is_special, is_writable};

// Bits of an entry above the lowest level.
const PRESENT: u64 = 1 << 0;
const ACCESSED: u64 = 1 << 5;
const LARGE: u64 = 1 << 7;
const PROTNONE: u64 = 1 << 8;

/// The amount of memory that an entry of the third level maps, in bytes.
const GIB: u64 = 1 << 30;

/// A block of 2 MiB that may have present pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The first address.
    pub(super) start: u64,
    /// What maps the block.
    pub(super) by: MappedBy,
}

/// What maps a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MappedBy {
    /// A page table of 512 entries.
    Table,
    /// One entry.
    Huge(HugeEntry),
    /// A part of an entry that maps 1 GiB: memory of hugetlbfs or of a device. Its first page frame.
    Gigantic(Option<u64>),
}

/// An entry that maps a whole block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HugeEntry {
    /// The number of the first page frame.
    pub(super) frame: u64,
    /// Whether the block was accessed since it was cleared.
    pub(super) accessed: bool,
    /// Whether the process can write to it without a page fault.
    pub(super) writable: bool,
    /// Whether it was written since it was mapped, or since the kernel has made it clean.
    pub(super) dirty: bool,
    /// Whether it is known that the frames are no page of the process.
    pub(super) special: bool,
}

/// A search for blocks. It keeps its buffers.
#[derive(Debug, Default)]
pub(super) struct Finder {
    ranges: Vec<AddrRange>,
    /// The addresses whose tables are copied next.
    tops: Vec<u64>,
    below: Vec<u64>,
}

impl Finder {
    /// Puts the blocks that have a part of one of `ranges`, which are sorted, into `places`, in the order of addresses.
    pub(super) fn find(
        &mut self,
        program: &mut Program,
        tables: &PageTables,
        pgd: u64,
        ranges: impl Iterator<Item = AddrRange>,
        places: &mut Vec<Place>,
    ) -> Result<(), BpfError> {
        places.clear();
        self.cover(ranges);
        self.tops.clear();
        for range in &self.ranges {
            let from = range.start() / table_span(4) * table_span(4);
            for top in (from..range.end()).step_by(table_span(4) as usize) {
                if self.tops.last() != Some(&top) {
                    self.tops.push(top);
                }
            }
        }
        self.descend(program, tables, pgd, 4)?;
        self.descend(program, tables, pgd, 3)?;
        // What is left are pieces of 1 GiB, each with a table of the second level or one entry.
        for tops in self.tops.chunks(MAX_TABLES) {
            let ranges = &self.ranges;
            program.copy_tables(tables, pgd, 2, tops, |i, found| match found {
                Walked::Table(table) => {
                    let mut inside = Inside::new(ranges, tops[i]);
                    for (start, &entry) in (tops[i]..).step_by(BLOCK_SIZE as usize).zip(table) {
                        if let Some(by) = mapped_by(entry, tables.address_mask)
                            && inside.contains(start, BLOCK_SIZE)
                        {
                            places.push(Place { start, by });
                        }
                    }
                }
                Walked::Leaf(leaf) if leaf.extent() == Some(Extent::Gigantic) => {
                    let mut inside = Inside::new(ranges, tops[i]);
                    let starts = (tops[i]..tops[i] + GIB).step_by(BLOCK_SIZE as usize);
                    let starts = starts.filter(|&start| inside.contains(start, BLOCK_SIZE));
                    places.extend(starts.map(|start| Place { start, by: MappedBy::Gigantic(leaf.frame(start)) }));
                }
                Walked::Leaf(_) => {}
            })?;
        }
        Ok(())
    }

    /// Joins `ranges`, extended to whole blocks, where they touch.
    fn cover(&mut self, ranges: impl Iterator<Item = AddrRange>) {
        self.ranges.clear();
        for range in ranges {
            let start = range.start() / BLOCK_SIZE * BLOCK_SIZE;
            let end = range.end().div_ceil(BLOCK_SIZE) * BLOCK_SIZE;
            let Some(whole) = AddrRange::new(start, end) else { continue };
            match self.ranges.last_mut() {
                Some(last) if start <= last.end() => {
                    if let Some(both) = AddrRange::new(last.start(), end.max(last.end())) {
                        *last = both;
                    }
                }
                _ => self.ranges.push(whole),
            }
        }
    }

    /// Copies the tables of `level` at `tops`, and replaces `tops` by what their entries map, where there is any.
    fn descend(&mut self, program: &mut Program, tables: &PageTables, pgd: u64, level: u64) -> Result<(), BpfError> {
        self.below.clear();
        let size = entry_span(level);
        for tops in self.tops.chunks(MAX_TABLES) {
            let (ranges, below) = (&self.ranges, &mut self.below);
            program.copy_tables(tables, pgd, level, tops, |i, found| {
                let Walked::Table(table) = found else { return };
                let mut inside = Inside::new(ranges, tops[i]);
                let starts = (tops[i]..).step_by(size as usize).zip(table).filter(|(_, entry)| **entry & PRESENT != 0);
                below.extend(starts.map(|(start, _)| start).filter(|&start| inside.contains(start, size)));
            })?;
        }
        std::mem::swap(&mut self.tops, &mut self.below);
        Ok(())
    }
}

/// The amount of memory that an entry of `level` maps, in bytes.
const fn entry_span(level: u64) -> u64 {
    1 << (12 + 9 * (level - 1))
}

/// The amount of memory that a table of `level` maps, in bytes.
const fn table_span(level: u64) -> u64 {
    entry_span(level + 1)
}

/// Looks up pieces of address space in sorted ranges, in rising order.
struct Inside<'a> {
    ranges: &'a [AddrRange],
}

impl<'a> Inside<'a> {
    /// The pieces begin at `from` or above.
    fn new(ranges: &'a [AddrRange], from: u64) -> Self {
        Self { ranges: &ranges[ranges.partition_point(|range| range.end() <= from)..] }
    }

    /// Whether a range has a part of the `size` bytes from `start` on.
    fn contains(&mut self, start: u64, size: u64) -> bool {
        let ended = self.ranges.iter().take_while(|range| range.end() <= start).count();
        self.ranges = &self.ranges[ended..];
        self.ranges.first().is_some_and(|range| range.start() < start.saturating_add(size))
    }
}

/// What an entry of the second level says about its block, or `None` if nothing is present.
fn mapped_by(entry: u64, address_mask: u64) -> Option<MappedBy> {
    let huge = |address: u64| {
        let frame = (address & address_mask & !(BLOCK_SIZE - 1)) / isotherm_core::PAGE_SIZE;
        MappedBy::Huge(HugeEntry {
            frame,
            accessed: entry & ACCESSED != 0,
            writable: is_writable(entry),
            dirty: is_dirty(entry),
            special: is_special(entry),
        })
    };
    match entry {
        _ if entry & (PRESENT | LARGE) == PRESENT => Some(MappedBy::Table),
        _ if entry & PRESENT != 0 => Some(huge(entry)),
        // A huge page with protection NONE is in memory. The kernel inverts the address in its entry.
        _ if entry & (LARGE | PROTNONE) == LARGE | PROTNONE => Some(huge(!entry)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MASK: u64 = 0xf_ffff_ffff_f000;

    fn range(start: u64, end: u64) -> AddrRange {
        AddrRange::new(start, end).unwrap()
    }

    #[test]
    fn an_entry_of_the_second_level_is_a_table_or_a_huge_page() {
        assert_eq!(mapped_by(0, MASK), None);
        assert_eq!(mapped_by(0x1234_5000 | PRESENT | ACCESSED, MASK), Some(MappedBy::Table));
        let huge = |accessed, special| {
            MappedBy::Huge(HugeEntry { frame: 0x4_0000, accessed, writable: false, dirty: false, special })
        };
        // Bit 12 of a huge entry is not an address bit.
        assert_eq!(mapped_by(0x4000_0000 | 1 << 12 | LARGE | PRESENT, MASK), Some(huge(false, false)));
        assert_eq!(mapped_by(0x4000_0000 | LARGE | PRESENT | ACCESSED | 1 << 9, MASK), Some(huge(true, true)));
        let inverted = !0x4000_0000 & MASK | LARGE | PROTNONE | ACCESSED;
        assert_eq!(mapped_by(inverted, MASK), Some(huge(true, false)));
        // A huge page that is being moved: its entry is not present.
        assert_eq!(mapped_by(0x7ff << 12, MASK), None);
    }

    #[test]
    fn ranges_are_joined_by_block() {
        let mut finder = Finder::default();
        finder.cover([range(0x1000, 0x2000), range(0x3000, 0x20_1000), range(0x60_0000, 0x60_1000)].into_iter());
        assert_eq!(finder.ranges, [range(0, 0x40_0000), range(0x60_0000, 0x80_0000)]);
        let mut inside = Inside::new(&finder.ranges, 0);
        let found: Vec<bool> = (0..5).map(|i| inside.contains(i * BLOCK_SIZE, BLOCK_SIZE)).collect();
        assert_eq!(found, [true, true, false, true, false]);
    }
}
