//! How many times page frames are mapped.

use std::path::Path;

use isotherm_kernel::pages::{PageBuffer, Table, TableError};
use rustix::io::Errno;

/// Frames that are at most this many frames apart are read with one call.
const REACH: u64 = 32;

/// The open file `/proc/kpagecount`, which root may read.
#[derive(Debug)]
pub(crate) struct MapCounts(Table);

impl MapCounts {
    /// Opens the file. `root` is the directory that stands for `/`.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub(crate) fn open(root: &Path) -> Result<Self, TableError> {
        Table::open(root, "proc/kpagecount", false).map(Self)
    }

    /// Calls `tell` with how many times each of `frames`, which are sorted, is mapped; with `None` beyond the end of
    /// memory.
    ///
    /// # Errors
    /// Returns the error of read(2).
    pub(crate) fn each(
        &self,
        frames: impl Iterator<Item = u64>,
        buffer: &mut PageBuffer,
        tell: impl FnMut(Option<u64>),
    ) -> Result<(), Errno> {
        self.0.entries(frames, REACH, buffer, tell).map_err(|error| error.errno())
    }
}
