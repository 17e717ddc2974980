//! Clearing accessed bits by `process_madvise(MADV_COLD)`.

#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd};

use isotherm_core::AddrRange;
use rustix::io::Errno;

/// Ranges a call. The kernel holds the target's map for as long as a call takes, about 5 µs a range, and the target's
/// `mmap` waits; and in that time things change that were looked at before. Each call costs about 2 µs itself.
pub(super) const RANGES_A_CALL: usize = 32;

/// `struct iovec` with an address of another process in it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    start: usize,
    length: usize,
}

impl From<AddrRange> for Span {
    fn from(range: AddrRange) -> Self {
        Self { start: range.start() as usize, length: range.size() as usize }
    }
}

/// Clears the accessed bits of `spans` in the address space of `process`, and gives how many spans that was done for:
/// fewer than all if the one after them failed. An error is that of the first span.
///
/// Like the system call, this takes up to 1,024 spans.
pub(super) fn make_cold(process: BorrowedFd<'_>, spans: &[Span]) -> Result<usize, Errno> {
    // SAFETY: `spans` has the layout of an array of `struct iovec` and is borrowed for the call. The kernel does not
    // follow the addresses in it in this process unless `process` is this one, and MADV_COLD changes no content.
    let result = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            process.as_raw_fd(),
            spans.as_ptr(),
            spans.len(),
            libc::MADV_COLD,
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
