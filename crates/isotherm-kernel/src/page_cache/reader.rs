//! Reads the pages of files by their addresses.

use std::sync::Arc;

use isotherm_core::{AddrRange, PAGE_SIZE};
use rustix::io::Errno;

use super::open_file::by_block;
use super::{CachedFile, FileTable, OpenFile};

/// Finds pages of the files of a table by their addresses.
///
/// It keeps the file open that was read last. A file that is not there any more, or has become another one, has no
/// pages.
#[derive(Debug, Default)]
pub struct FileReader {
    table: FileTable,
    last: Option<(Arc<CachedFile>, OpenFile)>,
}

impl FileReader {
    /// A reader of the files of `table`.
    pub fn new(table: FileTable) -> Self {
        Self { table, last: None }
    }

    /// Calls `found` with the address of each page in `range` that is in the page cache, in rising order.
    ///
    /// # Errors
    /// Returns the error of `mmap(2)` or `mincore(2)`.
    pub fn resident(&mut self, range: AddrRange, mut found: impl FnMut(u64)) -> Result<(), Errno> {
        self.each(range, |file, bytes, at| {
            file.resident(bytes)?.iter().for_each(|page| found(at + page as u64 * PAGE_SIZE));
            Ok(())
        })
    }

    /// The same with the page frame of each page.
    ///
    /// # Errors
    /// `EPERM` if the kernel does not show page frame numbers; else the error of the call that failed.
    pub fn frames(&mut self, range: AddrRange, mut found: impl FnMut(u64, u64)) -> Result<(), Errno> {
        self.each(range, |file, bytes, at| {
            file.frames(bytes)?.into_iter().for_each(|(page, frame)| found(at + page as u64 * PAGE_SIZE, frame));
            Ok(())
        })
    }

    /// Calls `act` with the file at each part of `range` that lies in one, the bytes of the file, at most a block of
    /// them, and the address of the first.
    ///
    /// # Errors
    /// Returns the error of `act`.
    pub fn each(
        &mut self,
        range: AddrRange,
        mut act: impl FnMut(&OpenFile, AddrRange, u64) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        for (file, part) in self.table.parts(range) {
            let Some(bytes) = file.bytes_at(part) else { continue };
            let known = self.last.take().filter(|(known, _)| known.id == file.id && known.path == file.path);
            let open = match known {
                Some((_, open)) => open,
                None => match file.open() {
                    Ok(open) => open,
                    Err(_) => continue,
                },
            };
            let start = file.range.start();
            let done = by_block(bytes).try_for_each(|bytes| act(&open, bytes, start + bytes.start()));
            self.last = Some((file, open));
            done?;
        }
        Ok(())
    }

    /// Closes the file that was read last: an open file keeps its file system from being unmounted.
    pub fn close(&mut self) {
        self.last = None;
    }
}
