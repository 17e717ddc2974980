//! Asks the kernel which pages of a process have a property (`PAGEMAP_SCAN`, since Linux 6.7; see the kernel's
//! `Documentation/admin-guide/mm/pagemap.rst`).

#![allow(unsafe_code)]

use isotherm_core::{AddrRange, PAGE_SIZE};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

use super::pagemap::Pagemap;
use crate::hold::held;

/// The kernel keeps the process from changing its mappings during one call. This much memory takes it less than a
/// millisecond.
const PIECE: u64 = 32 << 20;

/// As many regions as a piece can have: every second huge page.
const REGIONS: usize = 8;

const IS_FILE: u64 = 1 << 2;
const IS_PRESENT: u64 = 1 << 3;
const IS_ZERO: u64 = 1 << 5;
const IS_HUGE: u64 = 1 << 6;

/// `struct pm_scan_arg` of `linux/fs.h`.
#[repr(C)]
#[derive(Default)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// The number of the request.
const SCAN: Opcode = opcode::read_write::<Scan>(b'f', 16);

/// `struct page_region` of `linux/fs.h`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

impl Pagemap {
    /// The bytes of anonymous memory in `range` that are mapped as huge pages.
    ///
    /// # Errors
    /// The error of ioctl(2): `NOTTY` before Linux 6.7, `SRCH` if the process has no memory any longer.
    pub fn huge(&self, range: AddrRange) -> Result<u64, Errno> {
        let mut huge = 0;
        for piece in range.pieces(PIECE) {
            let mut start = piece.start();
            while start < piece.end() {
                let mut regions = [Region::default(); REGIONS];
                let mut scan = Scan {
                    size: size_of::<Scan>() as u64,
                    start,
                    end: piece.end(),
                    vec: regions.as_mut_ptr() as u64,
                    vec_len: REGIONS as u64,
                    category_inverted: IS_FILE | IS_ZERO,
                    category_mask: IS_PRESENT | IS_HUGE | IS_FILE | IS_ZERO,
                    return_mask: IS_HUGE,
                    ..Scan::default()
                };
                // SAFETY: the kernel reads and writes a structure of this layout, whose size it is told. It writes
                // nothing else but the regions, into an array that nobody else uses meanwhile and whose length it is
                // told.
                held(|| unsafe { ioctl(self, Updater::<SCAN, Scan>::new(&mut scan)) }).0?;
                huge += regions.iter().map(|region| region.end.saturating_sub(region.start)).sum::<u64>();
                start = scan.walk_end.max(start + PAGE_SIZE);
            }
        }
        Ok(huge)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

    use std::path::Path;

    use super::*;
    use crate::{HUGE, Scratch};

    /// The huge bytes of the mapping at `addr` of this process, by `smaps`.
    fn truth(addr: u64) -> u64 {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_there = false;
        for line in smaps.lines() {
            let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
            if let Some((start, end)) = range {
                let [start, end] = [start, end].map(|addr| u64::from_str_radix(addr, 16).unwrap());
                is_there = (start..end).contains(&addr);
            } else if let Some(kb) = line.strip_prefix("AnonHugePages:").filter(|_| is_there) {
                return kb.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024;
            }
        }
        panic!("nothing is mapped at {addr:#x}: {smaps}")
    }

    #[test]
    fn huge_pages_are_counted_and_single_pages_are_not() {
        let pagemap = Pagemap::open(Path::new("/"), "self").unwrap();
        let memory = Scratch::new(100 * HUGE).unwrap();
        let range = AddrRange::new(memory.start(), memory.start() + 100 * HUGE).unwrap();
        memory.huge(false).unwrap();
        memory.touch(0);
        isotherm_testing::or_skip!(pagemap.huge(range));
        assert_eq!(pagemap.huge(range), Ok(0));
        memory.huge(true).unwrap();
        (1..100).step_by(2).for_each(|nth| memory.touch(nth * HUGE));
        assert_eq!(pagemap.huge(range), Ok(truth(memory.start())));
    }
}
