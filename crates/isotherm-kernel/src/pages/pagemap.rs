//! Reads `/proc/PID/pagemap`, which gives the page frame of each page of a process.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use isotherm_core::PAGE_SIZE;

use super::table::{PageBuffer, Table, TableError};
use crate::names::memory_id;

// The fields of an entry are described in Linux Documentation/admin-guide/mm/pagemap.rst.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const SWAP_TYPE_BITS: u32 = 5;
const FILE: u64 = 1 << 61;
const EXCLUSIVE: u64 = 1 << 56;
const FRAME: u64 = (1 << 55) - 1;

/// The types of swap areas are numbered from 0 and are below this. The kernel has 32 types, and uses up to nine of
/// them, the last ones, for what is no swap: pages that are being moved, memory of devices, memory errors, markers
/// (`swapon(2)`, "MAX_SWAPFILES").
pub const SWAP_TYPES: u64 = 23;

/// Pages that are at most this many pages apart are read with one call. A call costs about as much as reading a hundred
/// entries.
const REACH: u64 = 64;

/// The open pagemap of a process.
///
/// It refers to the address space that the process had when the file was opened. After the process has called
/// `execve(2)` or has ended, no page is present in it.
#[derive(Debug)]
pub struct Pagemap(Table);

/// The entry of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagemapEntry(u64);

/// A place in swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapPlace {
    /// The number of the swap area, below [`SWAP_TYPES`].
    pub area: u64,
    /// The page of the swap area. 0 if the user may not read it (`CAP_SYS_ADMIN`).
    pub offset: u64,
}

impl SwapPlace {
    /// A number that no other place has.
    pub fn number(self) -> u64 {
        self.area << (FRAME.count_ones() - SWAP_TYPE_BITS) | self.offset
    }
}

impl PagemapEntry {
    /// The size of an entry, in bytes.
    pub const BYTES: usize = size_of::<u64>();

    /// The page frame number, or `None` if the page is not present. The number is 0 if the user may not read it
    /// (`CAP_SYS_ADMIN`).
    pub fn frame(self) -> Option<u64> {
        (self.0 & PRESENT != 0).then_some(self.0 & FRAME)
    }

    /// Where in swap the page is, or `None` if it is not in swap. A page of shared memory in swap is not known to be
    /// there: the kernel removes its entry.
    pub fn swapped(self) -> Option<SwapPlace> {
        let place = self.0 & FRAME;
        let found = SwapPlace { area: place & ((1 << SWAP_TYPE_BITS) - 1), offset: place >> SWAP_TYPE_BITS };
        (self.0 & (PRESENT | SWAPPED) == SWAPPED && found.area < SWAP_TYPES).then_some(found)
    }

    /// Whether the page is of a file or of shared memory, and not private anonymous memory.
    pub fn is_of_a_file(self) -> bool {
        self.0 & FILE != 0
    }

    /// Whether the page is mapped only once.
    pub fn is_exclusive(self) -> bool {
        self.0 & EXCLUSIVE != 0
    }
}

impl Pagemap {
    /// Opens the pagemap of `process`, which is a process ID or `self`, below `root`, which stands for `/`. If the main
    /// thread of the process has ended, that of another thread is opened.
    ///
    /// # Errors
    /// Fails if the file cannot be opened.
    pub fn open(root: &Path, process: &str) -> Result<Self, TableError> {
        let id = process.parse().map_or_else(|_| process.to_owned(), |pid| memory_id(root, pid).to_string());
        Table::open(root, &format!("proc/{id}/pagemap"), false).map(|table| Self(table.of_a_process()))
    }

    /// Calls `tell` with the entry of each page at `addresses`, which must be sorted; `None` beyond the end of the
    /// address space.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn each(
        &self,
        addresses: impl Iterator<Item = u64>,
        buffer: &mut PageBuffer,
        mut tell: impl FnMut(Option<PagemapEntry>),
    ) -> Result<(), TableError> {
        self.0.entries(addresses.map(|addr| addr / PAGE_SIZE), REACH, buffer, |entry| tell(entry.map(PagemapEntry)))
    }

    /// Calls `tell` with the [frame](PagemapEntry::frame) of each page at `addresses`, which must be sorted.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn frames(
        &self,
        addresses: impl Iterator<Item = u64>,
        buffer: &mut PageBuffer,
        mut tell: impl FnMut(Option<u64>),
    ) -> Result<(), TableError> {
        self.each(addresses, buffer, |entry| tell(entry.and_then(PagemapEntry::frame)))
    }

    /// The entry of the page at `addr`, or `None` beyond the end of the address space.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn entry(&self, addr: u64) -> Result<Option<PagemapEntry>, TableError> {
        Ok(self.0.entry(addr / PAGE_SIZE)?.map(PagemapEntry))
    }

    /// The entries of the pages from `addr` on, up to the size of `buffer` or the end of the address space.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn entries<'a>(
        &self,
        addr: u64,
        buffer: &'a mut [u8],
    ) -> Result<impl ExactSizeIterator<Item = PagemapEntry> + use<'a>, TableError> {
        let count = self.0.fill(addr / PAGE_SIZE, buffer)?;
        let entries = &buffer.as_chunks::<{ PagemapEntry::BYTES }>().0[..count];
        Ok(entries.iter().map(|bytes| PagemapEntry(u64::from_ne_bytes(*bytes))))
    }
}

impl AsFd for Pagemap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

    use super::*;

    #[test]
    fn a_page_in_swap_is_told_from_one_that_is_being_moved() {
        let swapped = |entry: u64| PagemapEntry(entry).swapped();
        assert_eq!(swapped(SWAPPED | 9 << 5 | 22), Some(SwapPlace { area: 22, offset: 9 }));
        let last = PagemapEntry(SWAPPED | FRAME & !31).swapped().unwrap();
        assert_eq!((last.number() + 1, SwapPlace { area: 1, offset: 0 }.number()), (1 << 50, 1 << 50));
        // The types from 23 on are for other things than swap.
        assert_eq!([SWAPPED | 9 << 5 | 23, SWAPPED | 9 << 5 | 31, PRESENT | 9, 0].map(swapped), [None; 4]);
    }

    #[test]
    fn frames_and_entries_agree() {
        let entries = [PRESENT | 7, PRESENT | EXCLUSIVE | 9, 0, 1 << 62 | 5, PRESENT];
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/7")).unwrap();
        let bytes: Vec<u8> = entries.into_iter().flat_map(u64::to_ne_bytes).collect();
        std::fs::write(root.path().join("proc/7/pagemap"), bytes).unwrap();
        let pagemap = Pagemap::open(root.path(), "7").unwrap();

        let expected = [Some(7), Some(9), None, None, Some(0)];
        let mut frames = Vec::new();
        let addresses = (0..6).map(|page| page * PAGE_SIZE);
        pagemap.frames(addresses, &mut PageBuffer::default(), |frame| frames.push(frame)).unwrap();
        assert_eq!(frames, [&expected[..], &[None]].concat());

        let mut buffer = [0; 4 * PagemapEntry::BYTES];
        let from_the_second: Vec<_> = pagemap.entries(PAGE_SIZE, &mut buffer).unwrap().collect();
        assert_eq!(from_the_second.iter().map(|entry| entry.frame()).collect::<Vec<_>>(), expected[1..]);
        assert_eq!(
            from_the_second.iter().map(|entry| entry.is_exclusive()).collect::<Vec<_>>(),
            [true, false, false, false]
        );
        assert_eq!(pagemap.entries(4 * PAGE_SIZE, &mut buffer).unwrap().len(), 1, "the table ends there");
        assert_eq!(pagemap.entry(PAGE_SIZE).unwrap(), Some(from_the_second[0]));
        assert_eq!(pagemap.entry(9 * PAGE_SIZE).unwrap(), None);
    }

    #[test]
    fn opening_the_pagemap_of_a_missing_process_fails() {
        let error = Pagemap::open(tempfile::tempdir().unwrap().path(), "7").unwrap_err();
        assert_eq!(error.errno(), rustix::io::Errno::NOENT);
        assert!(error.to_string().contains("proc/7/pagemap cannot be opened"), "{error}");
    }
}
