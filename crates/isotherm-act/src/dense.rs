//! Finds the memory that huge pages back without much waste.
//!
//! A huge page occupies 2 MiB of memory, even if only a few of its pages were present before. A hot region can consist
//! of a few pages that are far apart.

use std::path::Path;

use isotherm_core::scheme::HUGE_PAGE_SIZE;
use isotherm_core::{AddrRange, PAGE_SIZE};
use rustix::io::Errno;

use isotherm_kernel::pages::{PageBuffer, Pagemap};

/// The number of bytes of a block that must be present. With this value, huge pages add a seventh to the memory in use
/// at most. With half of a block, ocean_ncp of SPLASH-2X grew by 58 %, nearly as much as with huge pages everywhere
/// (docs/evaluation.md).
const MIN_PRESENT: u64 = HUGE_PAGE_SIZE / 8 * 7;

/// How many blocks of a mapping are read to find whether it [fills up](fills_up), and how many of them must have a
/// present page. So a small part that is full by chance says nothing about the rest.
const SAMPLED: u64 = 128;
const MIN_SAMPLED: u64 = 16;

/// A smaller mapping never [fills up](fills_up).
pub(super) const LEAST_TO_FILL: u64 = MIN_SAMPLED * HUGE_PAGE_SIZE;

/// What a block of 2 MiB has in memory.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// Bytes that are present.
    present: u64,
    /// Whether it is a huge page.
    is_huge: bool,
}

impl Block {
    /// Reads the page table entries of the pages of a block, which `range` is.
    ///
    /// Aligned frames that follow one another are a huge page. Of one that the kernel maps page by page, as after a
    /// part of it was unmapped, this is wrong. That is rare, and costs no memory.
    fn read(pagemap: &Pagemap, range: AddrRange, buffer: &mut PageBuffer) -> Result<Self, Errno> {
        let (mut present, mut next, mut is_huge) = (0, None, true);
        let count = |frame: Option<u64>| {
            present += frame.map_or(0, |_| PAGE_SIZE);
            is_huge &= frame.is_some_and(|frame| match next {
                Some(next) => frame == next,
                None => frame.is_multiple_of(HUGE_PAGE_SIZE / PAGE_SIZE),
            });
            next = frame.map(|frame| frame + 1);
        };
        pagemap.frames(range.page_addresses(), buffer, count).map_err(|error| error.errno())?;
        Ok(Self { present, is_huge })
    }

    /// Whether a huge page adds little to it.
    const fn is_dense(&self) -> bool {
        self.present >= MIN_PRESENT
    }
}

/// The aligned blocks of 2 MiB with at least [`MIN_PRESENT`] present bytes in process `pid` that are no huge page yet.
/// Each lies entirely in one of `ranges`, and comes with the index of that range. The blocks of a range are in
/// ascending order.
///
/// # Errors
/// Returns the error of open(2) or read(2) on the pagemap of the process. `root` is the directory that stands for `/`.
pub(super) fn dense(root: &Path, pid: u32, ranges: &[AddrRange]) -> Result<Vec<(usize, AddrRange)>, Errno> {
    let pagemap = Pagemap::open(root, &pid.to_string()).map_err(|error| error.errno())?;
    let mut buffer = PageBuffer::default();
    let mut found = Vec::new();
    for (index, range) in ranges.iter().enumerate() {
        for range in range.aligned_inside(HUGE_PAGE_SIZE).into_iter().flat_map(|inside| inside.pieces(HUGE_PAGE_SIZE)) {
            let block = Block::read(&pagemap, range, &mut buffer)?;
            if block.is_dense() && !block.is_huge {
                found.push((index, range));
            }
        }
    }
    Ok(found)
}

/// A mapping that fills up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Filling {
    pub(super) mapping: AddrRange,
    /// A dense block of it that is no huge page. `None` if all that were read are huge pages.
    pub(super) block: Option<AddrRange>,
}

/// Those of `mappings` of process `pid` that fill up: of their aligned blocks of 2 MiB that have a present page, seven
/// eighths and more are dense. Of each mapping, [`SAMPLED`] blocks at most are read, which are evenly spaced, and
/// [`MIN_SAMPLED`] of them must have a present page.
///
/// # Errors
/// As [`dense`].
pub(super) fn fills_up(root: &Path, pid: u32, mappings: &[AddrRange]) -> Result<Vec<Filling>, Errno> {
    let pagemap = Pagemap::open(root, &pid.to_string()).map_err(|error| error.errno())?;
    let mut buffer = PageBuffer::default();
    let mut found = Vec::new();
    for mapping in mappings {
        let Some(whole) = mapping.aligned_inside(HUGE_PAGE_SIZE) else { continue };
        let blocks = whole.size() / HUGE_PAGE_SIZE;
        let sampled = blocks.min(SAMPLED);
        let (mut used, mut dense, mut of_pages) = (0, 0, None);
        for nth in 0..sampled {
            let start = whole.start() + nth * blocks / sampled * HUGE_PAGE_SIZE;
            let Some(range) = AddrRange::new(start, start + HUGE_PAGE_SIZE) else { continue };
            let block = Block::read(&pagemap, range, &mut buffer)?;
            used += u64::from(block.present > 0);
            dense += u64::from(block.is_dense());
            of_pages = of_pages.or((block.is_dense() && !block.is_huge).then_some(range));
        }
        if used >= MIN_SAMPLED && dense * 8 >= used * 7 {
            found.push(Filling { mapping: *mapping, block: of_pages });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

    use super::*;

    /// A root directory with a pagemap of process 7. `present` has the number of present pages of each block of 2 MiB,
    /// from address 0 on.
    fn made(present: &[u64]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let pages = HUGE_PAGE_SIZE / PAGE_SIZE;
        let entries = present.iter().flat_map(|present| {
            // The present pages are scattered, as in a sparse hash table.
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
    fn a_block_of_which_seven_eighths_are_present_is_dense() {
        let root = made(&[512, 0, 447, 448]);
        let (h, all) = (HUGE_PAGE_SIZE, [range(0, 4 * HUGE_PAGE_SIZE)]);
        assert_eq!(dense(root.path(), 7, &all), Ok(vec![(0, range(0, h)), (0, range(3 * h, 4 * h))]));
    }

    #[test]
    fn a_block_that_is_a_huge_page_is_left_out() {
        let root = made(&[512; 3]);
        // The frames of the first two blocks follow one another, those of the first from a multiple of 512 on.
        let frames = (0..1024).map(|page| page + if page < 512 { 1024 } else { 3001 });
        let bytes: Vec<u8> = frames.flat_map(|frame: u64| (frame | 1 << 63).to_ne_bytes()).collect();
        let pagemap = std::fs::File::options().write(true).open(root.path().join("proc/7/pagemap")).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&pagemap, &bytes, 0).unwrap();
        let h = HUGE_PAGE_SIZE;
        let found = dense(root.path(), 7, &[range(0, 3 * h)]);
        assert_eq!(found, Ok(vec![(0, range(h, 2 * h)), (0, range(2 * h, 3 * h))]));
    }

    #[test]
    fn a_mapping_fills_up_if_nearly_all_blocks_that_it_uses_are_dense() {
        let (h, all) = (HUGE_PAGE_SIZE, range(0, 600 * HUGE_PAGE_SIZE));
        let fills_up = |present: Vec<u64>| {
            let mut whole = vec![0; 600];
            whole[..present.len()].copy_from_slice(&present);
            !fills_up(made(&whole).path(), 7, &[all]).unwrap().is_empty()
        };
        // A program has written to its first 200 MiB.
        assert!(fills_up(vec![512; 100]));
        let pieces = (0..600).map(|block| [512, 512, 512, 511, 30, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][block % 15]).collect();
        assert!(!fills_up(pieces), "a fifth of the blocks are sparse");
        assert!(!fills_up(vec![512; 50]), "too little is used");
        assert!(!fills_up(vec![300; 600]), "the blocks are half empty");
        assert!(!fills_up(vec![0; 600]));
        let root = made(&[512; 20]);
        let filling = Filling { mapping: range(h, 17 * h), block: Some(range(h, 2 * h)) };
        assert_eq!(super::fills_up(root.path(), 7, &[range(0, 15 * h), range(h, 17 * h)]), Ok(vec![filling]));
    }

    #[test]
    fn a_block_that_lies_in_no_range_entirely_is_left_out() {
        let root = made(&[512; 4]);
        let h = HUGE_PAGE_SIZE;
        let ranges = [range(PAGE_SIZE, 2 * h - PAGE_SIZE), range(PAGE_SIZE, 3 * h - PAGE_SIZE), range(3 * h, 4 * h)];
        assert_eq!(dense(root.path(), 7, &ranges), Ok(vec![(1, range(h, 2 * h)), (2, range(3 * h, 4 * h))]));
    }

    #[test]
    fn a_process_that_does_not_exist_is_enoent() {
        assert_eq!(dense(made(&[]).path(), 8, &[range(0, HUGE_PAGE_SIZE)]), Err(Errno::NOENT));
    }
}
