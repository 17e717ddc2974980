//! The page cache of files: which files have some, which of their pages are in memory and in which page frames, and
//! advice that drops them.
//!
//! All files of a run lie in one space of addresses ([`TargetId::PageCache`](isotherm_core::TargetId::PageCache)), in
//! which each file keeps its place. [`CachedFiles`] finds the files, and [`FileTable`] finds the file at an address.
//!
//! - Only regular files are opened, read-only, and only if they are the files that were found: a path that leads
//!   elsewhere by now is an error. A device node, a FIFO or a socket is never opened.
//! - Opening changes no access time. Nothing here reads or writes the contents of a file.
//! - To find the frames of pages, the file is mapped and its cached pages are faulted in, without a mark that they were
//!   accessed: the mapping is one of memory that is read in sequence when it is removed, of which the kernel does not
//!   transfer the accessed bits to its lists (`madvise(2)`, `MADV_SEQUENTIAL`).

mod open_file;
mod places;
mod reader;
mod space;
mod stat;
mod window;

pub use open_file::{Dropped, OpenFile};
pub use reader::FileReader;
pub use space::{CachedFiles, FilesError};
pub use stat::{CacheStat, has_cachestat};
pub use window::Window;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use isotherm_core::survey::BLOCK_SIZE;
use isotherm_core::{AddrRange, FileId};

/// A file that had page cache when the files were read last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedFile {
    /// Where it was found.
    pub path: PathBuf,
    /// Which file it is.
    pub id: FileId,
    /// Its place: its first byte is at the start. It ends with its last page.
    pub range: AddrRange,
    /// The parts of its place that may have page cache, by blocks: sorted and disjoint.
    pub cached: Vec<AddrRange>,
}

/// The files of a run as of the last reading. Clones share one table.
#[derive(Clone, Debug, Default)]
pub struct FileTable(Arc<Mutex<BTreeMap<u64, Arc<CachedFile>>>>);

impl FileTable {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<CachedFile>>> {
        // The map is replaced as a whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn replace(&self, files: BTreeMap<u64, Arc<CachedFile>>) {
        *self.lock() = files;
    }

    /// The parts of `range` that lie in files, in the order of addresses.
    pub fn parts(&self, range: AddrRange) -> Vec<(Arc<CachedFile>, AddrRange)> {
        let files = self.lock();
        let first = files.range(..=range.start()).next_back().map_or(range.start(), |(start, _)| *start);
        let within = files.range(first..range.end());
        within.filter_map(|(_, file)| Some((Arc::clone(file), file.range.intersection(range)?))).collect()
    }

    /// The addresses of the blocks that may have page cache, in rising order.
    pub fn blocks(&self) -> Vec<u64> {
        let mut blocks: Vec<u64> = Vec::new();
        for range in self.lock().values().flat_map(|file| &file.cached) {
            let first = range.start() - range.start() % BLOCK_SIZE;
            let after = blocks.last().map_or(0, |last| last + BLOCK_SIZE);
            blocks.extend((first.max(after)..range.end()).step_by(BLOCK_SIZE as usize));
        }
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> AddrRange {
        AddrRange::new(start, end).unwrap()
    }

    fn file(of: AddrRange, cached: &[AddrRange]) -> (u64, Arc<CachedFile>) {
        let id = FileId { device: (8, 1), inode: of.start() };
        (of.start(), Arc::new(CachedFile { path: "/f".into(), id, range: of, cached: cached.into() }))
    }

    #[test]
    fn a_range_is_cut_at_the_files_and_only_blocks_with_page_cache_are_listed() {
        const BLOCK: u64 = BLOCK_SIZE;
        let (small, next) = (range(BLOCK, BLOCK + 4096), range(BLOCK + 8192, BLOCK + 16384));
        let large = range(4 * BLOCK, 9 * BLOCK);
        let table = FileTable::default();
        let cached = [range(4 * BLOCK, 5 * BLOCK), range(7 * BLOCK, 8 * BLOCK)];
        table.replace([file(small, &[small]), file(next, &[next]), file(large, &cached)].into());
        let parts = |of| table.parts(of).into_iter().map(|(file, part)| (file.range, part)).collect::<Vec<_>>();
        assert_eq!(parts(range(0, BLOCK + 12288)), [(small, small), (next, range(next.start(), BLOCK + 12288))]);
        assert_eq!(parts(range(5 * BLOCK, 6 * BLOCK)), [(large, range(5 * BLOCK, 6 * BLOCK))]);
        assert_eq!(parts(range(BLOCK + 4096, BLOCK + 8192)), []);
        assert_eq!(parts(range(9 * BLOCK, 10 * BLOCK)), []);
        assert_eq!(table.blocks(), [BLOCK, 4 * BLOCK, 7 * BLOCK]);
    }
}
