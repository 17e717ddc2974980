//! How much of a file is in the page cache, by cachestat(2).

#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd};

use isotherm_core::{AddrRange, PAGE_SIZE};
use rustix::io::Errno;

/// The number of the system call, which is the same on all architectures.
const SYS_CACHESTAT: libc::c_long = 451;

/// The pages of a range of a file (Linux 6.5, `include/uapi/linux/mman.h`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CacheStat {
    /// Pages in the cache.
    pub cached: u64,
    /// Those that were changed and are not in the file yet.
    pub dirty: u64,
    /// Those that are being written to the file.
    pub writeback: u64,
    /// Pages that were evicted.
    pub evicted: u64,
    /// Those of them that were evicted a short time ago.
    pub recently_evicted: u64,
}

#[repr(C)]
struct CacheStatRange {
    offset: u64,
    length: u64,
}

/// Whether the kernel has cachestat(2): Linux 6.5.
pub fn has_cachestat() -> bool {
    // SAFETY: there is no such file, so that the kernel refuses the call before it reads or writes anything.
    let result = unsafe { libc::syscall(SYS_CACHESTAT, -1, 0, 0, 0) };
    result != 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EBADF)
}

/// Counts the pages in `range` of a file, in bytes.
///
/// # Errors
/// `ENOSYS` before Linux 6.5; `EOPNOTSUPP` for a file without page cache.
pub(super) fn cachestat(file: BorrowedFd<'_>, range: AddrRange) -> Result<CacheStat, Errno> {
    let asked = CacheStatRange { offset: range.start(), length: range.size() };
    let mut found = CacheStat::default();
    // SAFETY: both structs have the layout that the kernel expects and live for the call, which writes to the second
    // one only.
    let result =
        unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const asked, &raw mut found, 0 as libc::c_uint) };
    match result {
        0 => Ok(found),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
    }
}

/// Calls `clean` with the parts of `range` without a page that is dirty or being written, and counts the pages that
/// are. `stat` counts the pages of a part.
///
/// # Errors
/// Returns the error of `stat`.
pub(super) fn clean_parts(
    range: AddrRange,
    stat: &mut impl FnMut(AddrRange) -> Result<CacheStat, Errno>,
    clean: &mut impl FnMut(AddrRange),
) -> Result<u64, Errno> {
    let found = stat(range)?;
    if found.dirty == 0 && found.writeback == 0 {
        clean(range);
        return Ok(0);
    }
    let half = range.pages() / 2 * PAGE_SIZE;
    match range.split_at(range.start() + half) {
        Some((below, above)) => Ok(clean_parts(below, stat, clean)? + clean_parts(above, stat, clean)?),
        None => Ok(1),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn clean_parts_hold_each_page_that_is_not_dirty_alone(dirty in prop::collection::vec(any::<bool>(), 1..99)) {
            let range = AddrRange::new(0, dirty.len() as u64 * PAGE_SIZE).unwrap();
            let pages = |of: AddrRange| (of.start() / PAGE_SIZE) as usize..(of.end() / PAGE_SIZE) as usize;
            let mut stat = |of: AddrRange| {
                let dirty = dirty[pages(of)].iter().filter(|dirty| **dirty).count() as u64;
                let writeback = dirty / 2;
                Ok(CacheStat { cached: of.pages(), dirty: dirty - writeback, writeback, ..CacheStat::default() })
            };
            let mut found = vec![true; dirty.len()];
            let counted = clean_parts(range, &mut stat, &mut |part| found[pages(part)].fill(false)).unwrap();
            prop_assert_eq!(&found, &dirty);
            prop_assert_eq!(counted, dirty.iter().filter(|dirty| **dirty).count() as u64);
        }
    }
}
