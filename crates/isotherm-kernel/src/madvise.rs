//! Calls `process_madvise(2)`, which gives advice on the memory of another process.

#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd};

use isotherm_core::AddrRange;
use rustix::io::Errno;

/// The maximum number of ranges in one call.
///
/// The kernel holds the lock of the target's memory map during a call, about 5 µs per range. Meanwhile `mmap(2)` waits
/// in the target, and the results of earlier checks become stale. A call itself takes about 2 µs.
pub const RANGES_A_CALL: usize = 32;

/// Advice that a process may give on the memory of another one. No advice changes the content of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Clears the accessed bits and moves the pages to the inactive list.
    Cold,
    /// Reclaims the pages.
    PageOut,
    /// Reads the pages in from swap or from their file.
    WillNeed,
    /// Collapses the pages into transparent huge pages.
    Collapse,
}

impl Advice {
    fn number(self) -> libc::c_int {
        match self {
            Self::Cold => libc::MADV_COLD,
            Self::PageOut => libc::MADV_PAGEOUT,
            Self::WillNeed => libc::MADV_WILLNEED,
            Self::Collapse => libc::MADV_COLLAPSE,
        }
    }

    /// The name of the constant in `madvise(2)`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cold => "MADV_COLD",
            Self::PageOut => "MADV_PAGEOUT",
            Self::WillNeed => "MADV_WILLNEED",
            Self::Collapse => "MADV_COLLAPSE",
        }
    }
}

/// A `struct iovec` whose address belongs to another process.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    start: usize,
    length: usize,
}

/// Gives the advice on `ranges` in the address space of `process`. Only the first [`RANGES_A_CALL`] ranges are passed.
///
/// Returns how many ranges the kernel processed completely. It stops at the first range that fails.
///
/// # Errors
/// Returns the kernel's error if the first range fails.
pub fn advise(process: impl AsFd, ranges: impl IntoIterator<Item = AddrRange>, advice: Advice) -> Result<usize, Errno> {
    let mut spans = [Span::default(); RANGES_A_CALL];
    let mut count = 0;
    for (span, range) in spans.iter_mut().zip(ranges) {
        *span = Span { start: range.start() as usize, length: range.size() as usize };
        count += 1;
    }
    let spans = &spans[..count];
    // SAFETY: `spans` has the layout of an array of `struct iovec` and is borrowed for the call. Its addresses belong
    // to `process`. If that is this process, the call is still sound, because no `Advice` changes the content of
    // memory.
    let result = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            process.as_fd().as_raw_fd(),
            spans.as_ptr(),
            spans.len(),
            advice.number(),
            0 as libc::c_uint,
        )
    };
    let Ok(mut bytes) = usize::try_from(result) else {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL));
    };
    let done = spans.iter().take_while(|span| {
        let whole = span.length <= bytes;
        bytes = bytes.saturating_sub(span.length);
        whole
    });
    Ok(done.count())
}
