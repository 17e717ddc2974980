//! Which memory is in use enough that huge pages back it without much waste.
//!
//! To make a huge page fills all of it: where a program uses a page here and there, memory that was never there comes
//! into being. The
//! region that such pages lie in may well be hot.

use std::path::Path;

use isotherm_core::scheme::HUGE_PAGE_SIZE;
use isotherm_core::{AddrRange, PAGE_SIZE};
use rustix::io::Errno;

use isotherm_kernel::pages::{PageBuffer, Pagemap};

/// Of a huge page's worth of memory, so much has to be present: at worst, huge pages make two bytes of one.
const PRESENT: u64 = HUGE_PAGE_SIZE / 2;

/// The huge pages' worth of memory that lies whole in `range`, in the process of this ID, and is present enough; in
/// ascending order.
pub(super) fn dense(root: &Path, pid: u32, ranges: &[AddrRange]) -> Result<Vec<(usize, AddrRange)>, Errno> {
    let pagemap = Pagemap::open(root, &pid.to_string()).map_err(|error| error.errno())?;
    let mut room = PageBuffer::default();
    let mut found = Vec::new();
    for (of, range) in ranges.iter().enumerate() {
        for block in range.aligned_inside(HUGE_PAGE_SIZE).into_iter().flat_map(|inside| inside.pieces(HUGE_PAGE_SIZE)) {
            let mut present = 0;
            let count = |frame: Option<u64>| present += frame.map_or(0, |_| PAGE_SIZE);
            pagemap.frames(block.page_addresses(), &mut room, count).map_err(|error| error.errno())?;
            if present >= PRESENT {
                found.push((of, block));
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

    use super::*;

    /// A root in which process 7 has so many pages present of each huge page's worth of memory, from address 0 on.
    fn made(present: &[u64]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let pages = HUGE_PAGE_SIZE / PAGE_SIZE;
        let entries = present.iter().flat_map(|present| {
            // Scattered, as those of a sparse table are.
            (0..pages).map(move |page| u64::from(page * 7 % pages < *present) << 63)
        });
        std::fs::create_dir_all(root.path().join("proc/7")).unwrap();
        let bytes: Vec<u8> = entries.flat_map(u64::to_ne_bytes).collect();
        std::fs::write(root.path().join("proc/7/pagemap"), bytes).unwrap();
        root
    }

    fn range(start: u64, end: u64) -> AddrRange {
        AddrRange::new(start, end).unwrap()
    }

    #[test]
    fn what_is_present_by_half_at_least_is_dense() {
        let root = made(&[512, 0, 255, 256]);
        let (h, all) = (HUGE_PAGE_SIZE, [range(0, 4 * HUGE_PAGE_SIZE)]);
        assert_eq!(dense(root.path(), 7, &all), Ok(vec![(0, range(0, h)), (0, range(3 * h, 4 * h))]));
    }

    #[test]
    fn only_whole_huge_pages_count_each_for_its_own_range() {
        let root = made(&[512; 4]);
        let h = HUGE_PAGE_SIZE;
        let ranges = [range(PAGE_SIZE, 2 * h - PAGE_SIZE), range(PAGE_SIZE, 3 * h - PAGE_SIZE), range(3 * h, 4 * h)];
        assert_eq!(dense(root.path(), 7, &ranges), Ok(vec![(1, range(h, 2 * h)), (2, range(3 * h, 4 * h))]));
    }

    #[test]
    fn a_process_that_is_gone_is_told_by_its_errno() {
        assert_eq!(dense(made(&[]).path(), 8, &[range(0, HUGE_PAGE_SIZE)]), Err(Errno::NOENT));
    }
}
