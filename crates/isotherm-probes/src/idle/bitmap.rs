//! The kernel's idle bitmap: one bit for each page frame.

/// The idle bitmap, relative to the root directory.
pub(crate) const BITMAP: &str = "sys/kernel/mm/page_idle/bitmap";

/// The number of frames of one word of the idle bitmap.
pub(super) const WORD: u64 = 64;

/// Words at most this far apart are written by one call. The words between them are written as zero, which changes
/// nothing and costs less than another call.
pub(super) const WRITE_REACH: u64 = 4;

/// Only adjacent words are read by one call: the kernel may check the page tables of 64 pages for each word.
pub(super) const READ_REACH: u64 = 1;
