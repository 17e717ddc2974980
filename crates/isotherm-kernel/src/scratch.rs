//! Memory of this process on which probes and actions are tested.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::ptr::{self, NonNull};

use isotherm_core::PAGE_SIZE;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munlock, munmap};
use thiserror::Error;

/// The memory for the test cannot be mapped.
#[derive(Debug, Error)]
#[error("memory for the test of the probe cannot be mapped (check the limits on the memory of this process)")]
pub struct NoScratch(#[source] io::Error);

/// A private anonymous mapping that starts at a multiple of 2 MiB.
#[derive(Debug)]
pub struct Scratch {
    memory: NonNull<c_void>,
    mapped: usize,
    start: u64,
    size: u64,
}

/// The size of a huge page, in bytes.
pub const HUGE: u64 = 2 << 20;

impl Scratch {
    /// Maps `size` bytes and touches none of them. They are not locked, even if this process locks all of its memory: a
    /// run does, and the kernel takes no advice on locked memory.
    ///
    /// # Errors
    /// Fails if the kernel refuses the mapping.
    pub fn new(size: u64) -> Result<Self, NoScratch> {
        let failed = |e: Errno| NoScratch(e.into());
        // The start can move up to the next multiple of 2 MiB.
        let mapped = (size + HUGE) as usize;
        // SAFETY: the kernel chooses the address of the new mapping, so it replaces no other mapping.
        let memory = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                mapped,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        };
        let memory = NonNull::new(memory.map_err(failed)?).ok_or_else(|| failed(Errno::NOMEM))?;
        // SAFETY: the range was mapped just now, and this does not change its content.
        let _ = unsafe { munlock(memory.as_ptr(), mapped) };
        Ok(Self { memory, mapped, start: (memory.as_ptr() as u64).next_multiple_of(HUGE), size })
    }

    /// The first address of the memory.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Enables or disables transparent huge pages for the memory.
    ///
    /// # Errors
    /// Returns the error of `madvise(2)`.
    pub fn huge(&self, wanted: bool) -> Result<(), Errno> {
        let advice = if wanted { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
        // SAFETY: this value owns the range, and the advice does not change its content.
        unsafe { madvise(self.at(0), self.size as usize, advice) }
    }

    /// Writes to the page at `offset` bytes from the start.
    ///
    /// # Panics
    /// Panics if `offset` is beyond the memory.
    pub fn touch(&self, offset: u64) {
        assert!(offset < self.size);
        // SAFETY: the address is in the range, which is mapped for reading and writing. No reference to it exists.
        unsafe { self.at(offset).cast::<u8>().write_volatile(1) };
    }

    /// Splits the mapping of a huge page at `offset` bytes from the start into entries of base pages. For this, the
    /// page is made read-only and then writable again.
    ///
    /// # Errors
    /// Returns the error of `mprotect(2)`.
    ///
    /// # Panics
    /// Panics if `offset` is beyond the memory.
    pub fn break_up(&self, offset: u64) -> Result<(), Errno> {
        assert!(offset < self.size);
        let page = PAGE_SIZE as usize;
        // SAFETY: the page is in the range. Nothing writes to it while it is read-only, because no reference to it
        // exists.
        unsafe {
            mprotect(self.at(offset), page, MprotectFlags::READ)?;
            mprotect(self.at(offset), page, MprotectFlags::READ | MprotectFlags::WRITE)
        }
    }

    fn at(&self, offset: u64) -> *mut c_void {
        let border = self.start - self.memory.as_ptr() as u64;
        self.memory.as_ptr().wrapping_byte_add((border + offset) as usize)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: `new` mapped the memory with this size, and no pointer to it is left. A failure only leaks the
        // memory.
        let _ = unsafe { munmap(self.memory.as_ptr(), self.mapped) };
    }
}
