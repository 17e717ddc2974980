//! A part of a file that is mapped for a short time, to find its pages in memory.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::ptr::{self, NonNull};

use isotherm_core::survey::{BLOCK_PAGES, BLOCK_SIZE, PageBits};
use isotherm_core::{AddrRange, PAGE_SIZE};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munlock, munmap};

use crate::pages::{Pagemap, PagemapEntry};

/// A fault of the kernel maps the cached pages around it, too, as a rule up to this many.
const FAULT_AROUND: usize = 16;

/// A mapping of at most [`BLOCK_SIZE`] bytes of a file in this process, which nobody reads or writes.
#[derive(Debug)]
pub struct Window {
    memory: NonNull<c_void>,
    bytes: usize,
}

impl Window {
    /// Maps `range` of a file: whole pages, and at most [`BLOCK_SIZE`] bytes. No page is faulted in.
    ///
    /// # Errors
    /// Returns the error of `mmap(2)`. `EINVAL` if the range is too large.
    pub(super) fn new(file: BorrowedFd<'_>, range: AddrRange) -> Result<Self, Errno> {
        if range.size() > BLOCK_SIZE || !range.start().is_multiple_of(PAGE_SIZE) {
            return Err(Errno::INVAL);
        }
        let bytes = range.size() as usize;
        // SAFETY: the kernel chooses the address of the new mapping, so it replaces no other one.
        let memory = unsafe { mmap(ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, file, range.start()) }?;
        let memory = NonNull::new(memory).ok_or(Errno::NOMEM)?;
        let window = Self { memory, bytes };
        // A run locks its memory, and pages of files must not be locked with it.
        // SAFETY: the range was mapped just now, and this does not change its content.
        let _ = unsafe { munlock(memory.as_ptr(), bytes) };
        // Reading ahead would bring more of the file into memory.
        window.advise(Advice::Random)?;
        Ok(window)
    }

    fn advise(&self, advice: Advice) -> Result<(), Errno> {
        // SAFETY: this value owns the range, and the advice does not change its content.
        unsafe { madvise(self.memory.as_ptr(), self.bytes, advice) }
    }

    /// The pages that are in the page cache, by their number in the window.
    ///
    /// # Errors
    /// Returns the error of `mincore(2)`.
    pub(super) fn resident(&self) -> Result<PageBits, Errno> {
        let mut found = [0_u8; BLOCK_PAGES];
        // SAFETY: the range is mapped by this value, and the array has an entry for each of its pages.
        let result = unsafe { libc::mincore(self.memory.as_ptr(), self.bytes, found.as_mut_ptr()) };
        if result != 0 {
            return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL));
        }
        let pages = self.bytes.div_ceil(PAGE_SIZE as usize);
        Ok(PageBits::from_fn(|page| page < pages && found[page] & 1 == 1))
    }

    /// The addresses of the mapping.
    pub fn range(&self) -> Option<AddrRange> {
        let start = self.memory.as_ptr() as u64;
        AddrRange::new(start, start + (self.bytes as u64).next_multiple_of(PAGE_SIZE))
    }

    /// The page frames of pages in memory, with their numbers in the window. They are mapped here from now on, so that
    /// calls on addresses reach them. Pages that have left the cache meanwhile are left out.
    ///
    /// # Errors
    /// `EPERM` if the kernel does not show page frame numbers; else that of `open(2)` or `read(2)` on the pagemap.
    pub fn frames(&self) -> Result<Vec<(usize, u64)>, Errno> {
        let resident = self.resident()?;
        if resident.is_empty() {
            return Ok(Vec::new());
        }
        let mut last = None;
        for page in resident.iter() {
            if last.replace(page / FAULT_AROUND) != Some(page / FAULT_AROUND) {
                self.fault_in(page);
            }
        }
        let pagemap = Pagemap::open(Path::new("/"), "self").map_err(|error| error.errno())?;
        let mut found = self.mapped(&pagemap)?;
        let mut has_new = false;
        for page in resident.iter().filter(|page| found.binary_search_by_key(page, |(page, _)| *page).is_err()) {
            self.fault_in(page);
            has_new = true;
        }
        if has_new {
            found = self.mapped(&pagemap)?;
        }
        if found.iter().any(|(_, frame)| *frame == 0) { Err(Errno::PERM) } else { Ok(found) }
    }

    /// The pages that are mapped here, and their frames.
    fn mapped(&self, pagemap: &Pagemap) -> Result<Vec<(usize, u64)>, Errno> {
        let mut buffer = vec![0; self.bytes.div_ceil(PAGE_SIZE as usize) * PagemapEntry::BYTES];
        let entries = pagemap.entries(self.memory.as_ptr() as u64, &mut buffer).map_err(|error| error.errno())?;
        Ok(entries.enumerate().filter_map(|(page, entry)| Some((page, entry.frame()?))).collect())
    }

    /// Has the kernel map a page. It reads the page in a system call that fails: if the file has become shorter, the
    /// call says so, while this thread would be killed.
    fn fault_in(&self, page: usize) {
        let addr = self.memory.as_ptr().wrapping_byte_add(page * PAGE_SIZE as usize);
        // No value of `how` is negative.
        let how: libc::c_int = -1;
        // SAFETY: the kernel copies eight bytes from `addr`, which need not be readable, and then refuses the call. It
        // writes nothing: the pointer to the old mask is null.
        let _ =
            unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, addr, ptr::null_mut::<c_void>(), size_of::<u64>()) };
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // The accessed bits of this mapping say nothing about the use of the file.
        let _ = self.advise(Advice::Sequential);
        // SAFETY: `new` mapped the memory with this size, and no pointer to it is left. A failure only leaks the
        // mapping.
        let _ = unsafe { munmap(self.memory.as_ptr(), self.bytes) };
    }
}
