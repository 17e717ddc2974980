//! The page frames of the pages of one block.

use crate::bpf::entries::frame;
use crate::bpf::program::PageTable;
use crate::bpf::words::is_special;

/// The page frames of a block, as they were read from the page tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FramesOf<'a>(By<'a>);

#[derive(Clone, Copy, Debug)]
enum By<'a> {
    /// One frame follows the other. The first one; `None` if no page is memory that the kernel manages.
    First(Option<u64>),
    /// An entry for each page, and the bits of an entry that hold the address.
    Table(&'a PageTable, u64),
}

impl<'a> FramesOf<'a> {
    /// Consecutive frames from `first` on. `None` stands for memory of a device.
    pub(crate) fn from_first(first: Option<u64>) -> Self {
        Self(By::First(first))
    }

    /// The frames in the entries of a page table.
    pub(crate) fn table(entries: &'a PageTable, address_mask: u64) -> Self {
        Self(By::Table(entries, address_mask))
    }

    /// The frame of the first page, if one entry maps the whole block, so that the frames are consecutive.
    pub(crate) fn first(self) -> Option<u64> {
        match self.0 {
            By::First(first) => first,
            By::Table(..) => None,
        }
    }

    /// The frame of the page with this index, if it is a page of memory that the kernel manages.
    pub(crate) fn frame(self, page: usize) -> Option<u64> {
        match self.0 {
            By::First(first) => Some(first? + page as u64),
            By::Table(entries, mask) if !is_special(entries[page]) => frame(entries[page], mask),
            By::Table(..) => None,
        }
    }
}
