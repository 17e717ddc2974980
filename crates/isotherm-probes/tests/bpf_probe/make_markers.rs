//! Makes markers of page tables in the memory of this process.

use std::io;

// The interfaces of kernels that are newer than the crates and headers: `linux/mman.h`, `linux/userfaultfd.h`.
const MADV_GUARD_INSTALL: i32 = 102;
const UFFD_API: u64 = 0xaa;
const UFFD_FEATURES: [(&str, u64); 2] = [("poison", 1 << 14), ("write-protect", 1 << 12 | 1 << 0)];
const UFFDIO_API: u64 = 0xc018_aa3f;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
const UFFDIO_WRITEPROTECT: u64 = 0xc018_aa06;
const UFFDIO_POISON: u64 = 0xc020_aa08;

/// Makes markers of this kind in memory of this process in which nothing is yet. Returns 0, or the error number of a
/// kernel that has no such markers.
pub fn make(kind: &str, start: usize, size: usize) -> u64 {
    // SAFETY: the range is memory that the test has mapped, and nothing refers to it.
    let made = unsafe {
        match kind {
            "guard" => done(libc::madvise(start as *mut _, size, MADV_GUARD_INSTALL).into()),
            _ => by_userfaultfd(kind, [start as u64, size as u64]),
        }
    };
    made.map_or_else(|error| error.raw_os_error().unwrap() as u64, |()| 0)
}

fn done(result: i64) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// # Safety
/// As `make`.
unsafe fn by_userfaultfd(kind: &str, [start, size]: [u64; 2]) -> io::Result<()> {
    let features = UFFD_FEATURES.iter().find(|(name, _)| *name == kind).unwrap().1;
    // Registered for missing pages, or for protection.
    let mode = if kind == "poison" { 1 } else { 2 };
    // SAFETY: the arguments are numbers, and arrays as long as the requests say. The descriptor stays open, because the
    // markers go with it.
    unsafe {
        let fd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC);
        done(fd)?;
        let call = |request, argument: &mut [u64]| done(libc::ioctl(fd as i32, request, argument.as_mut_ptr()).into());
        call(UFFDIO_API, &mut [UFFD_API, features, 0])?;
        call(UFFDIO_REGISTER, &mut [start, size, mode, 0])?;
        if kind == "poison" {
            call(UFFDIO_POISON, &mut [start, size, 0, 0])
        } else {
            call(UFFDIO_WRITEPROTECT, &mut [start, size, 1])
        }
    }
}
