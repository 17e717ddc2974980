//! A file of the kernel that is a table of 64-bit entries.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use thiserror::Error;

use super::runs::runs;

/// The bytes of an entry.
const ENTRY: usize = 8;

/// So many entries are read or written with one call at most: a page of them, as files in `/sys` take no more.
pub const MOST: usize = 512;

/// A table cannot be opened, read or written.
#[derive(Debug, Error)]
#[error("{path} cannot be {doing}: {source}")]
pub struct TableError {
    /// The file.
    pub path: PathBuf,
    /// What was tried: "opened", "read" or "written".
    pub doing: &'static str,
    /// The error of the system call.
    pub source: io::Error,
}

impl TableError {
    /// The number of the error, as the kernel gave it.
    pub fn errno(&self) -> Errno {
        Errno::from_io_error(&self.source).unwrap_or(Errno::IO)
    }
}

/// Room for the entries of one call, lent out again and again.
#[derive(Debug)]
pub struct Room {
    bytes: Box<[u8; MOST * ENTRY]>,
    places: Vec<u64>,
}

impl Default for Room {
    fn default() -> Self {
        Self { bytes: Box::new([0; MOST * ENTRY]), places: Vec::new() }
    }
}

/// A file of 64-bit entries in the machine's byte order.
pub struct Table<F = File> {
    file: F,
    path: PathBuf,
}

impl Table {
    /// Opens the file at `path` below `root` for reading, and for writing if asked for.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(root: &Path, path: &str, write: bool) -> Result<Self, TableError> {
        let path = root.join(path);
        match File::options().read(true).write(write).open(&path) {
            Ok(file) => Ok(Self { file, path }),
            Err(source) => Err(TableError { path, doing: "opened", source }),
        }
    }
}

impl AsFd for Table {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl<F: FileExt> Table<F> {
    /// A table that something else than an open file stands for.
    #[cfg(test)]
    pub fn made(file: F) -> Self {
        Self { file, path: "made".into() }
    }

    /// The entry at `place`, or nothing beyond the table's end.
    pub fn entry(&self, place: u64) -> Result<Option<u64>, TableError> {
        let mut bytes = [0; ENTRY];
        let told = self.fill(place, &mut bytes)?;
        Ok((told == 1).then_some(u64::from_ne_bytes(bytes)))
    }

    /// Tells each of the entries at `places`, which are sorted, in their order; nothing for those beyond the table's end. Places no
    /// more than `reach` apart are read with one call.
    pub fn entries(
        &self,
        places: impl Iterator<Item = u64>,
        reach: u64,
        room: &mut Room,
        mut tell: impl FnMut(Option<u64>),
    ) -> Result<(), TableError> {
        room.places.clear();
        room.places.extend(places);
        for run in runs(&room.places, reach, MOST as u64) {
            let places = &room.places[run];
            let (first, last) = (places[0], places[places.len() - 1]);
            let span = (last - first) as usize + 1;
            let told = self.fill(first, &mut room.bytes[..span * ENTRY])?;
            let entries = &room.bytes.as_chunks::<ENTRY>().0[..told];
            for place in places {
                tell(entries.get((place - first) as usize).map(|bytes| u64::from_ne_bytes(*bytes)));
            }
        }
        Ok(())
    }

    /// Reads as many entries from `place` on as there is room for and the table has; says how many.
    pub(super) fn fill(&self, place: u64, bytes: &mut [u8]) -> Result<usize, TableError> {
        let start = place.saturating_mul(ENTRY as u64);
        let mut told = 0;
        while told < bytes.len() {
            // The kernel takes no read that is not of whole entries.
            let whole = told / ENTRY * ENTRY;
            match self.file.read_at(&mut bytes[whole..], start.saturating_add(whole as u64)) {
                Ok(read) if whole + read > told => told = whole + read,
                Ok(_) => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                // Beyond the end of memory, or of what a file can be long.
                Err(e) if is_the_end(&e) => break,
                Err(source) => return Err(self.error("read", source)),
            }
        }
        Ok(told / ENTRY)
    }

    /// Writes entries at sorted and different places, and zeros between those of one call, which are no more than `reach` apart;
    /// what lies beyond the table's end is left out.
    pub fn write(
        &self,
        entries: impl Iterator<Item = (u64, u64)> + Clone,
        reach: u64,
        room: &mut Room,
    ) -> Result<(), TableError> {
        room.places.clear();
        room.places.extend(entries.clone().map(|(place, _)| place));
        let mut entries = entries;
        for run in runs(&room.places, reach, MOST as u64) {
            let places = &room.places[run];
            let (first, last) = (places[0], places[places.len() - 1]);
            let bytes = &mut room.bytes[..((last - first) as usize + 1) * ENTRY];
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
                // Of a write that is torn within an entry, the entry is written again.
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

/// The kernel's words for "there is no memory there any more": the idle bitmap's is ENXIO.
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

    /// A table in which calls do no more than `most` bytes, and end at its length: reads with nothing, writes with ENXIO.
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
        fn every_entry_is_told_however_calls_are_cut_short(
            mut places in prop::collection::vec(0_u64..3000, 0..100),
            reach in 0_u64..100,
            most in 1_usize..5000,
        ) {
            places.sort_unstable();
            let table = Table::made(Made::new(2000, most.max(ENTRY)));
            let mut told = Vec::new();
            table.entries(places.iter().copied(), reach, &mut Room::default(), |entry| told.push(entry)).unwrap();
            let expected: Vec<_> = places.iter().map(|&place| (place < 2000).then_some(place)).collect();
            prop_assert_eq!(told, expected);
        }

        #[test]
        fn what_is_written_is_there_and_zeros_lie_only_between_what_is_near(
            places in prop::collection::btree_set(0_u64..3000, 0..100),
            reach in 1_u64..100,
            most in 8_usize..5000,
        ) {
            let table = Table::made(Made::new(2000, most));
            let entries = places.iter().map(|&place| (place, !place));
            table.write(entries, reach, &mut Room::default()).unwrap();
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
        table.entries(places.into_iter(), 64, &mut Room::default(), |_| ()).unwrap();
        assert_eq!(*table.file.calls.borrow(), 2);
    }

    #[test]
    fn the_end_of_memory_is_no_error_and_anything_else_is() {
        for (errno, is_error) in [(Errno::NXIO, false), (Errno::IO, true), (Errno::PERM, true), (Errno::INVAL, true)] {
            let table = Table::made(Failing(errno));
            let read = table.entries([3].into_iter(), 0, &mut Room::default(), |entry| assert_eq!(entry, None));
            assert_eq!(read.is_err(), is_error, "{errno}");
            assert_eq!(table.write([(3, 1)].into_iter(), 0, &mut Room::default()).is_err(), is_error, "{errno}");
        }
    }
}
