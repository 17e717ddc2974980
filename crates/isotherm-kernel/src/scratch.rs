//! Own memory to try things on.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::ptr::{self, NonNull};

use isotherm_core::PAGE_SIZE;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munmap};
use thiserror::Error;

/// Own memory cannot be had.
#[derive(Debug, Error)]
#[error("mapping memory to try the probe on failed: {0}; is there a limit on this process's memory?")]
pub struct NoScratch(#[source] io::Error);

/// A private anonymous mapping that begins at a 2 MiB border.
#[derive(Debug)]
pub struct Scratch {
    memory: NonNull<c_void>,
    mapped: usize,
    start: u64,
    size: u64,
}

/// The size of a huge page.
pub const HUGE: u64 = 2 << 20;

impl Scratch {
    /// Memory of `size` bytes, untouched.
    pub fn new(size: u64) -> Result<Self, NoScratch> {
        let failed = |e: Errno| NoScratch(e.into());
        // Room for the border.
        let mapped = (size + HUGE) as usize;
        // SAFETY: a fresh mapping at an address of the kernel's choice overlays nothing.
        let memory = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                mapped,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        };
        let memory = NonNull::new(memory.map_err(failed)?).ok_or_else(|| failed(Errno::NOMEM))?;
        Ok(Self { memory, mapped, start: (memory.as_ptr() as u64).next_multiple_of(HUGE), size })
    }

    /// Its first address.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Asks for huge pages, or for none.
    pub fn huge(&self, wanted: bool) -> Result<(), Errno> {
        let advice = if wanted { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
        // SAFETY: the range is this value's own; the advice does not change what is in it.
        unsafe { madvise(self.at(0), self.size as usize, advice) }
    }

    /// Accesses the page at `offset`.
    pub fn touch(&self, offset: u64) {
        assert!(offset < self.size);
        // SAFETY: within the range, which is mapped for reading and writing and not otherwise referred to.
        unsafe { self.at(offset).cast::<u8>().write_volatile(1) };
    }

    /// Forbids writing to the page at `offset` and allows it again: a huge page there is then mapped by small entries.
    pub fn break_up(&self, offset: u64) -> Result<(), Errno> {
        assert!(offset < self.size);
        let page = PAGE_SIZE as usize;
        // SAFETY: a page of the range, to which nothing writes in between, as no reference to it exists.
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
        // SAFETY: mapped in `new` with this size, and nothing points into it. A failure leaves memory behind, no more.
        let _ = unsafe { munmap(self.memory.as_ptr(), self.mapped) };
    }
}
