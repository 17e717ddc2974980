//! One call of `process_madvise`: advice on memory of another process.

#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd};

use isotherm_core::AddrRange;
use rustix::io::Errno;

/// Ranges a call. The kernel holds the target's map for as long as a call takes, about 5 µs a range, and the target's
/// `mmap` waits; and in that time things change that were looked at before. Each call costs about 2 µs itself.
pub const RANGES_A_CALL: usize = 32;

/// What a process may advise on another's memory: nothing of it changes what is in the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Clears accessed bits and moves pages to the inactive list.
    Cold,
    /// Reclaims.
    PageOut,
    /// Reads in.
    WillNeed,
    /// Makes huge pages.
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

    /// As it is called in manuals and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cold => "MADV_COLD",
            Self::PageOut => "MADV_PAGEOUT",
            Self::WillNeed => "MADV_WILLNEED",
            Self::Collapse => "MADV_COLLAPSE",
        }
    }
}

/// `struct iovec` with an address of another process in it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    start: usize,
    length: usize,
}

/// Gives the advice on `ranges` in the address space of `process`, and tells on how many of them it was taken: fewer than all
/// if the one after them failed, or if there are more than [`RANGES_A_CALL`].
///
/// # Errors
/// That of the first range.
pub fn advise(process: impl AsFd, ranges: impl IntoIterator<Item = AddrRange>, advice: Advice) -> Result<usize, Errno> {
    let mut spans = [Span::default(); RANGES_A_CALL];
    let mut count = 0;
    for (span, range) in spans.iter_mut().zip(ranges) {
        *span = Span { start: range.start() as usize, length: range.size() as usize };
        count += 1;
    }
    let spans = &spans[..count];
    // SAFETY: `spans` has the layout of an array of `struct iovec` and is borrowed for the call. The kernel does not
    // follow the addresses in it in this process unless `process` is this one, and no advice there is changes content.
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
