//! The states of all pages of a page table, as sets.

use isotherm_core::survey::PageBits;

use super::program::PageTable;
use super::swap::is_swap;

// Bits of a page-table entry (Intel SDM volume 3, 5.5; Linux arch/x86/include/asm/pgtable_types.h). PROTNONE has this
// meaning only in an entry that is not present. SPECIAL and SAVED_DIRTY are bits that the hardware leaves to software:
// the kernel moves DIRTY to SAVED_DIRTY when it makes an entry read-only.
const PRESENT_SHIFT: u32 = 0;
const WRITABLE_SHIFT: u32 = 1;
const ACCESSED_SHIFT: u32 = 5;
const DIRTY_SHIFT: u32 = 6;
const PROTNONE_SHIFT: u32 = 8;
const SPECIAL_SHIFT: u32 = 9;
const SAVED_DIRTY_SHIFT: u32 = 58;

/// The pages of a page table by their state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Words {
    /// The entry maps something.
    pub(super) present: PageBits,
    /// Of these, those that were accessed since they were cleared.
    pub(super) accessed: PageBits,
    /// Of the present ones, those that were written since they were mapped, or since the kernel has made them clean.
    pub(super) dirty: PageBits,
    /// Of the present ones with an entry of their own, those that the process can write to without a page fault.
    pub(super) writable: PageBits,
    /// Of the present ones, those without a page of memory that the kernel manages: the zero page and memory of
    /// devices.
    pub(super) special: PageBits,
    /// The pages whose entry seems to be of a page in swap (`swap.rs`).
    pub(super) swapped: PageBits,
}

/// The states of the pages of `table`. Takes about 0.2 µs.
pub(super) fn words(table: &PageTable) -> Words {
    let (mut present, mut accessed, mut writable, mut special) = ([0; 8], [0; 8], [0; 8], [0; 8]);
    let (mut dirty, mut swapped) = ([0; 8], [0; 8]);
    for (word, entries) in table.as_chunks::<64>().0.iter().enumerate() {
        // No branch, so that the compiler can use vector instructions.
        for (bit, entry) in entries.iter().enumerate() {
            let is_present = (entry >> PRESENT_SHIFT | entry >> PROTNONE_SHIFT) & 1;
            present[word] |= is_present << bit;
            accessed[word] |= (entry >> ACCESSED_SHIFT & is_present) << bit;
            dirty[word] |= ((entry >> DIRTY_SHIFT | entry >> SAVED_DIRTY_SHIFT) & is_present) << bit;
            writable[word] |= (entry >> WRITABLE_SHIFT & is_present) << bit;
            special[word] |= (entry >> SPECIAL_SHIFT & is_present) << bit;
        }
        // Most pages are present.
        if present[word] != u64::MAX {
            entries.iter().enumerate().for_each(|(bit, entry)| swapped[word] |= is_swap(*entry) << bit);
            swapped[word] &= !present[word];
        }
    }
    Words {
        present: PageBits::from_words(present),
        accessed: PageBits::from_words(accessed),
        dirty: PageBits::from_words(dirty),
        writable: PageBits::from_words(writable),
        special: PageBits::from_words(special),
        swapped: PageBits::from_words(swapped),
    }
}

/// The pages of `table` that were accessed.
pub(super) fn accessed(table: &PageTable) -> PageBits {
    words(table).accessed
}

/// Whether the process can write through an entry of any level.
pub(super) fn is_writable(entry: u64) -> bool {
    entry >> WRITABLE_SHIFT & 1 == 1
}

/// Whether memory was written through an entry of any level since it was mapped, or since the kernel has made it clean.
pub(super) fn is_dirty(entry: u64) -> bool {
    (entry >> DIRTY_SHIFT | entry >> SAVED_DIRTY_SHIFT) & 1 == 1
}

/// Whether an entry of the second level maps no page of memory that the kernel manages: the huge zero page on recent
/// kernels, and memory of devices.
pub(super) fn is_special(entry: u64) -> bool {
    entry >> SPECIAL_SHIFT & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_entry_sets_the_bits_of_its_page() {
        let mut table = [0; 512];
        table[0] = 0x1;
        table[63] = 0x1 | 0x20;
        table[64] = 0x100 | 0x20 | 0x2;
        table[66] = 0x2 | 0x40;
        table[67] = 0x1 | 0x40;
        table[68] = 0x1 | 1 << 58;
        table[65] = 0x20 | 0x200;
        table[70] = 31 << 59;
        table[511] = 0x1 | 0x200 | 0x100;
        let found = words(&table);
        assert_eq!(found.present.iter().collect::<Vec<_>>(), [0, 63, 64, 67, 68, 511]);
        assert_eq!(found.dirty.iter().collect::<Vec<_>>(), [67, 68]);
        assert_eq!(found.accessed.iter().collect::<Vec<_>>(), [63, 64]);
        assert_eq!(found.writable.iter().collect::<Vec<_>>(), [64]);
        // These are not present, and not zero. Page 70 has the type of a marker.
        assert_eq!(found.swapped.iter().collect::<Vec<_>>(), [65, 66]);
        assert_eq!(found.special.iter().collect::<Vec<_>>(), [511]);
    }
}
