//! Memory whose contents compress well, by a sample of its pages.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use isotherm_core::{AddrRange, PAGE_SIZE};
use rustix::io::Errno;
use zstd::bulk::Compressor;
use zstd::zstd_safe::compress_bound;

use super::frames::{Frames, add_page};

/// Pages of an aligned block of so many are judged by one of them: what an allocator puts side by side is alike.
const BLOCK: u64 = 16 * PAGE_SIZE;

/// A page compresses well if it takes at most so much. The allocator of zram and zswap has no size between about four
/// fifths of a page and a page (Linux `Documentation/mm/zsmalloc.rst`).
const MOST: usize = 3 * PAGE_SIZE as usize / 4;

/// Below level 0, Zstandard finds repetitions only, as the compressors of zram do.
const LEVEL: i32 = -1;

/// Finds the pages of a process that compress well.
pub(super) struct Compressible {
    root: PathBuf,
    frames: Frames,
    compressor: Compressor<'static>,
    page: Vec<u8>,
    compressed: Vec<u8>,
}

impl fmt::Debug for Compressible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compressible").finish_non_exhaustive()
    }
}

impl Compressible {
    /// `root` is the directory that stands for `/`.
    ///
    /// # Errors
    /// If there is no memory for a compressor.
    pub(super) fn open(root: &Path) -> io::Result<Self> {
        let (page, compressed) = (vec![0; PAGE_SIZE as usize], vec![0; compress_bound(PAGE_SIZE as usize)]);
        let compressor = Compressor::new(LEVEL)?;
        Ok(Self { root: root.into(), frames: Frames::unchecked(root), compressor, page, compressed })
    }

    /// Appends to `found` the pages in memory in `ranges`, which are sorted and disjoint, whose block compresses well.
    ///
    /// Reading a page neither sets its accessed bit nor brings it into memory. Its contents go nowhere.
    ///
    /// # Errors
    /// Returns the error of open(2) or read(2) on the pagemap or the memory of the process.
    pub(super) fn find(&mut self, pid: u32, ranges: &[AddrRange], found: &mut Vec<AddrRange>) -> Result<(), Errno> {
        let Self { root, frames, compressor, page, compressed } = self;
        let memory = File::open(root.join(format!("proc/{pid}/mem")))
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        let mut last = (u64::MAX, false);
        frames.each(pid, ranges, |addr, _| {
            if last.0 != addr / BLOCK {
                // A page that has gone since is not found.
                let is_read = memory.read_exact_at(page, addr).is_ok();
                let size = is_read.then(|| compressor.compress_to_buffer(page, &mut compressed[..]));
                last = (addr / BLOCK, matches!(size, Some(Ok(size)) if size <= MOST));
            }
            if last.1 {
                add_page(found, addr);
            }
            Ok(())
        })
    }
}
