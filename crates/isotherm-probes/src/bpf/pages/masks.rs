//! Which pages of a block are memory of a process, by its mappings.

use isotherm_core::Mapping;
use isotherm_core::survey::{BLOCK_SIZE, PageBits};

use crate::bpf::target::Clearing;
use crate::elsewhere::AccessedElsewhere;
use crate::mapping::{is_memory, is_of_a_file};

/// The pages of a block by what they are mapped from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mask {
    /// Pages of memory, whether the process may access them or not.
    pub(super) usable: PageBits,
    /// Of these, the pages of files and shared memory.
    pub(super) file: PageBits,
    /// Of the usable pages, those that a write copies if another process maps them too: writable, and private.
    pub(super) copied: PageBits,
    /// Of the usable pages, those in mappings that nothing clears.
    pub(super) uncleared: PageBits,
    /// Of the usable pages, those in locked mappings.
    pub(super) locked: PageBits,
    /// Of the usable pages, those that others access without the page tables of the process.
    pub(super) elsewhere: PageBits,
}

/// Computes masks for blocks in rising order. Takes time in proportion to mappings and blocks.
#[derive(Debug)]
pub(super) struct Masks<'a> {
    mappings: &'a [Mapping],
    /// For each mapping, whether `MADV_COLD` clears it.
    clearing: &'a [Clearing],
    elsewhere: Option<&'a AccessedElsewhere>,
    next: usize,
}

impl<'a> Masks<'a> {
    /// Both slices have the same length.
    pub(super) fn new(mappings: &'a [Mapping], clearing: &'a [Clearing]) -> Self {
        Self { mappings, clearing, elsewhere: None, next: 0 }
    }

    /// The same, with what others access without the page tables of the process.
    pub(super) fn with_elsewhere(self, elsewhere: &'a AccessedElsewhere) -> Self {
        Self { elsewhere: Some(elsewhere), ..self }
    }

    /// The indices of the mappings that have a part of the block that begins at `start`.
    pub(super) fn mappings_at(&mut self, start: u64) -> std::ops::Range<usize> {
        let rest = &self.mappings[self.next..];
        self.next += rest.iter().take_while(|mapping| mapping.range.end() <= start).count();
        let rest = &self.mappings[self.next..];
        let end = start.saturating_add(BLOCK_SIZE);
        self.next..self.next + rest.iter().take_while(|mapping| mapping.range.start() < end).count()
    }

    /// The mask of the block that begins at `start`. No earlier call had a higher address.
    pub(super) fn at(&mut self, start: u64) -> Mask {
        let mut mask = Mask::default();
        for index in self.mappings_at(start) {
            let mapping = &self.mappings[index];
            if !is_memory(mapping) {
                continue;
            }
            let pages = PageBits::within(start, mapping.range);
            mask.usable |= pages;
            if is_of_a_file(mapping) {
                mask.file |= pages;
            }
            if mapping.permissions.write && !mapping.permissions.shared {
                mask.copied |= pages;
            }
            match self.clearing.get(index) {
                None | Some(Clearing::Single) => {}
                Some(Clearing::Locked) => mask.locked |= pages,
                Some(Clearing::Never(_)) => mask.uncleared |= pages,
            }
        }
        mask.elsewhere = self.elsewhere.map_or(PageBits::NONE, |elsewhere| elsewhere.pages(start)) & mask.usable;
        mask
    }
}

#[cfg(test)]
mod tests {
    use isotherm_core::survey::Unseen;
    use isotherm_core::{AddrRange, Permissions};

    use super::*;

    fn mapping(start: u64, end: u64, name: &str, permissions: Permissions) -> Mapping {
        Mapping { name: name.into(), permissions, ..Mapping::anonymous(AddrRange::new(start, end).unwrap()) }
    }

    #[test]
    fn a_mask_has_the_pages_of_all_mappings_but_those_of_the_kernel() {
        const RW: Permissions = Permissions::READ_WRITE;
        let mappings = [
            mapping(0x1000, 0x3000, "", RW),
            mapping(0x3000, 0x4000, "", Permissions::NONE),
            mapping(0x4000, 0x5000, "/lib/x", RW),
            mapping(0x6000, 0x7000, "[vvar]", RW),
            mapping(0x1f_f000, 0x40_1000, "", Permissions { shared: true, ..RW }),
        ];
        let clearing =
            [Clearing::Never(Unseen::Other), Clearing::Single, Clearing::Locked, Clearing::Single, Clearing::Single];
        let mut masks = Masks::new(&mappings, &clearing);
        let first = masks.at(0);
        assert_eq!(first.usable.iter().collect::<Vec<_>>(), [1, 2, 3, 4, 511]);
        assert_eq!(first.file.iter().collect::<Vec<_>>(), [4, 511]);
        assert_eq!(first.copied.iter().collect::<Vec<_>>(), [1, 2, 4]);
        assert_eq!(first.uncleared.iter().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(first.locked.iter().collect::<Vec<_>>(), [4]);
        assert_eq!(masks.at(0x20_0000).usable, PageBits::ALL);
        assert_eq!(masks.at(0x40_0000).usable.iter().collect::<Vec<_>>(), [0]);
        assert_eq!(masks.at(0x80_0000), Mask::default());
    }
}
