//! `/proc/PID/pagemap`: in which frame a page of a process is.

use std::io;
use std::path::{Path, PathBuf};

use isotherm_core::PAGE_SIZE;

use super::table::{Room, Table, TableError};

// Fields of an entry: Documentation/admin-guide/mm/pagemap.rst.
const PRESENT: u64 = 1 << 63;
const FRAME: u64 = (1 << 55) - 1;

/// Pages no more than this far apart are looked up with one call: a look-up costs about as much as a hundred entries.
const REACH: u64 = 64;

/// The open pagemap of a process. It is of the address space that the process had when it was opened: after the process has called
/// exec, or has ended, nothing is present in it.
#[derive(Debug)]
pub struct Pagemap(Table);

impl Pagemap {
    /// Opens the pagemap of `process`: an ID, or `self`.
    ///
    /// # Errors
    /// With the file's path, and the kernel's word.
    pub fn open(root: &Path, process: &str) -> Result<Self, (PathBuf, io::Error)> {
        Table::open(root, &format!("proc/{process}/pagemap"), false).map(Self)
    }

    /// Tells the frame of each page at `addresses`, which are sorted: nothing if the page is not present, and frame 0 if the kernel
    /// does not tell it to this user.
    pub fn frames(
        &self,
        addresses: impl Iterator<Item = u64>,
        room: &mut Room,
        mut tell: impl FnMut(Option<u64>),
    ) -> Result<(), TableError> {
        let frame = |entry: u64| (entry & PRESENT != 0).then_some(entry & FRAME);
        self.0.entries(addresses.map(|addr| addr / PAGE_SIZE), REACH, room, |entry| tell(entry.and_then(frame)))
    }
}
