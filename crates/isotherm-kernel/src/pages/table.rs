//! Reads and writes files of the kernel that are tables of 64-bit entries.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use thiserror::Error;

use super::runs::runs;
use crate::hold::held;

/// The size of an entry, in bytes.
const ENTRY: usize = 8;

/// The maximum number of entries in one call. It is one page of entries, because a file in `/sys` transfers at most a
/// page.
pub const MOST: usize = 512;

/// A table cannot be opened, read or written.
#[derive(Debug, Error)]
#[error("{path} cannot be {doing}")]
pub struct TableError {
    /// The path of the file.
    pub path: PathBuf,
    /// The operation that failed: "opened", "read" or "written".
    pub doing: &'static str,
    /// The error of the system call.
    pub source: io::Error,
}

impl TableError {
    /// The error number of the system call, or `EIO` if there is none.
    pub fn errno(&self) -> Errno {
        Errno::from_io_error(&self.source).unwrap_or(Errno::IO)
    }
}

/// A reusable buffer for the entries of one call.
#[derive(Debug)]
pub struct PageBuffer {
    bytes: Box<[u8; MOST * ENTRY]>,
    places: Vec<u64>,
}

impl Default for PageBuffer {
    fn default() -> Self {
        Self { bytes: Box::new([0; MOST * ENTRY]), places: Vec::new() }
    }
}

/// A file of 64-bit entries in the machine's byte order.
pub struct Table<F = File> {
    file: F,
    path: PathBuf,
    /// Whether the kernel holds the memory map of a process at each read.
    holds: bool,
}

impl Table {
    /// Opens the file at `path` below `root`, which stands for `/`, for reading, and with `write` also for writing.
    ///
    /// # Errors
    /// Fails if the file cannot be opened.
    #[allow(clippy::disallowed_methods, reason = "opens /sys/kernel/mm/page_idle/bitmap and the like")]
    pub fn open(root: &Path, path: &str, write: bool) -> Result<Self, TableError> {
        let path = root.join(path);
        match File::options().read(true).write(write).open(&path) {
            Ok(file) => Ok(Self { file, path, holds: false }),
            Err(source) => Err(TableError { path, doing: "opened", source }),
        }
    }

    /// The same table, which is a file of a process: the kernel holds its memory map at each read.
    pub(super) fn of_a_process(self) -> Self {
        Self { holds: true, ..self }
    }
}

impl AsFd for Table {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl<F: FileExt> Table<F> {
    /// A table on something other than an open file.
    #[cfg(test)]
    pub fn made(file: F) -> Self {
        Self { file, path: "made".into(), holds: false }
    }

    /// The entry with index `place`, or `None` beyond the end of the table.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn entry(&self, place: u64) -> Result<Option<u64>, TableError> {
        let mut bytes = [0; ENTRY];
        let count = self.fill(place, &mut bytes)?;
        Ok((count == 1).then_some(u64::from_ne_bytes(bytes)))
    }

    /// Calls `tell` with each of the entries at the indices `places`, which must be sorted, and with `None` for each
    /// index beyond the end of the table. One call reads entries that are at most `reach` entries apart.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn entries(
        &self,
        places: impl Iterator<Item = u64>,
        reach: u64,
        buffer: &mut PageBuffer,
        mut tell: impl FnMut(Option<u64>),
    ) -> Result<(), TableError> {
        buffer.places.clear();
        buffer.places.extend(places);
        for run in runs(&buffer.places, reach, MOST as u64) {
            let places = &buffer.places[run];
            let (first, last) = (places[0], places[places.len() - 1]);
            let span = (last - first) as usize + 1;
            let count = self.fill(first, &mut buffer.bytes[..span * ENTRY])?;
            let entries = &buffer.bytes.as_chunks::<ENTRY>().0[..count];
            for place in places {
                tell(entries.get((place - first) as usize).map(|bytes| u64::from_ne_bytes(*bytes)));
            }
        }
        Ok(())
    }

    /// Reads entries from index `place` on, up to the size of `bytes` or the end of the table. Returns their number.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub(super) fn fill(&self, place: u64, bytes: &mut [u8]) -> Result<usize, TableError> {
        let start = place.saturating_mul(ENTRY as u64);
        let mut length = 0;
        while length < bytes.len() {
            // The kernel rejects a read that is not aligned to entries.
            let whole = length / ENTRY * ENTRY;
            let mut read = || self.file.read_at(&mut bytes[whole..], start.saturating_add(whole as u64));
            match if self.holds { held(read).0 } else { read() } {
                Ok(read) if whole + read > length => length = whole + read,
                Ok(_) => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                // The position is beyond the end of memory, or beyond the maximum size of a file.
                Err(e) if is_the_end(&e) => break,
                Err(source) => return Err(self.error("read", source)),
            }
        }
        Ok(length / ENTRY)
    }

    /// Writes `entries`, pairs of index and value whose indices must be sorted and different.
    ///
    /// One call writes entries that are at most `reach` entries apart, with zeros between them. Entries beyond the end
    /// of the table are left out.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn write(
        &self,
        entries: impl Iterator<Item = (u64, u64)> + Clone,
        reach: u64,
        buffer: &mut PageBuffer,
    ) -> Result<(), TableError> {
        buffer.places.clear();
        buffer.places.extend(entries.clone().map(|(place, _)| place));
        let mut entries = entries;
        for run in runs(&buffer.places, reach, MOST as u64) {
            let places = &buffer.places[run];
            let (first, last) = (places[0], places[places.len() - 1]);
            let bytes = &mut buffer.bytes[..((last - first) as usize + 1) * ENTRY];
            bytes.fill(0);
            for (place, entry) in entries.by_ref().take(places.len()) {
                let at = (place - first) as usize * ENTRY;
                bytes[at..at + ENTRY].copy_from_slice(&entry.to_ne_bytes());
            }
            self.put(first, bytes)?;
        }
        Ok(())
    }

    fn put(&self, place: u64, bytes: &[u8]) -> Result<(), TableError> {
        let start = place.saturating_mul(ENTRY as u64);
        let mut done = 0;
        while done < bytes.len() {
            match self.file.write_at(&bytes[done..], start.saturating_add(done as u64)) {
                // If a write ends within an entry, write the entry again.
                Ok(written) if written >= ENTRY => done += written / ENTRY * ENTRY,
                Ok(_) => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if is_the_end(&e) => break,
                Err(source) => return Err(self.error("written", source)),
            }
        }
        Ok(())
    }

    fn error(&self, doing: &'static str, source: io::Error) -> TableError {
        TableError { path: self.path.clone(), doing, source }
    }
}

/// Whether the error means that the position is beyond the end of memory. The idle bitmap returns `ENXIO`.
fn is_the_end(e: &io::Error) -> bool {
    matches!(Errno::from_io_error(e), Some(Errno::NXIO | Errno::FBIG | Errno::OVERFLOW))
}

impl<F> fmt::Debug for Table<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("path", &self.path).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use proptest::prelude::*;

    use super::*;

    /// A table whose calls transfer at most `most` bytes. Beyond the end, reads return 0 and writes fail with ENXIO.
    struct Made {
        entries: RefCell<Vec<u8>>,
        most: usize,
        calls: RefCell<usize>,
    }

    impl Made {
        fn new(entries: usize, most: usize) -> Self {
            let entries = (0..entries as u64).flat_map(u64::to_ne_bytes).collect();
            Self { entries: RefCell::new(entries), most, calls: RefCell::new(0) }
        }

        fn entry(&self, place: u64) -> u64 {
            u64::from_ne_bytes(self.entries.borrow()[place as usize * ENTRY..][..ENTRY].try_into().unwrap())
        }
    }

    impl FileExt for Made {
        fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
            *self.calls.borrow_mut() += 1;
            let entries = self.entries.borrow();
            let rest = &entries[entries.len().min(offset as usize)..];
            let n = buf.len().min(rest.len()).min(self.most);
            buf[..n].copy_from_slice(&rest[..n]);
            Ok(n)
        }

        fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
            *self.calls.borrow_mut() += 1;
            let mut entries = self.entries.borrow_mut();
            let start = offset as usize;
            if start >= entries.len() {
                return Err(Errno::NXIO.into());
            }
            let n = buf.len().min(entries.len() - start).min(self.most);
            entries[start..start + n].copy_from_slice(&buf[..n]);
            Ok(n)
        }
    }

    struct Failing(Errno);

    impl FileExt for Failing {
        fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn write_at(&self, _: &[u8], _: u64) -> io::Result<usize> {
            Err(self.0.into())
        }
    }

    proptest! {
        #[test]
        fn every_entry_is_read_if_calls_are_cut_short(
            mut places in prop::collection::vec(0_u64..3000, 0..100),
            reach in 0_u64..100,
            most in 1_usize..5000,
        ) {
            places.sort_unstable();
            let table = Table::made(Made::new(2000, most.max(ENTRY)));
            let mut found = Vec::new();
            let buffer = &mut PageBuffer::default();
            table.entries(places.iter().copied(), reach, buffer, |entry| found.push(entry)).unwrap();
            let expected: Vec<_> = places.iter().map(|&place| (place < 2000).then_some(place)).collect();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn entries_are_written_and_zeros_only_between_near_entries(
            places in prop::collection::btree_set(0_u64..3000, 0..100),
            reach in 1_u64..100,
            most in 8_usize..5000,
        ) {
            let table = Table::made(Made::new(2000, most));
            let entries = places.iter().map(|&place| (place, !place));
            table.write(entries, reach, &mut PageBuffer::default()).unwrap();
            for place in 0..2000 {
                let entry = table.file.entry(place);
                if places.contains(&place) {
                    prop_assert_eq!(entry, !place);
                } else if entry != place {
                    prop_assert_eq!(entry, 0);
                    let below = places.range(..place).next_back();
                    let above = places.range(place..).next();
                    prop_assert!(below.zip(above).is_some_and(|(below, above)| above - below <= reach));
                }
            }
        }
    }

    #[test]
    fn neighbours_are_read_with_one_call() {
        let table = Table::made(Made::new(2000, 1 << 20));
        let places = [5, 6, 7, 40, 1000, 1001];
        table.entries(places.into_iter(), 64, &mut PageBuffer::default(), |_| ()).unwrap();
        assert_eq!(*table.file.calls.borrow(), 2);
    }

    #[test]
    fn only_the_end_of_memory_is_not_an_error() {
        for (errno, is_error) in [(Errno::NXIO, false), (Errno::IO, true), (Errno::PERM, true), (Errno::INVAL, true)] {
            let table = Table::made(Failing(errno));
            let read = table.entries([3].into_iter(), 0, &mut PageBuffer::default(), |entry| assert_eq!(entry, None));
            assert_eq!(read.is_err(), is_error, "{errno}");
            assert_eq!(table.write([(3, 1)].into_iter(), 0, &mut PageBuffer::default()).is_err(), is_error, "{errno}");
        }
    }
}
