//! A file that is read from its start to its end, in few large parts.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// How many bytes are read at a time, if the file has as many.
const PART: usize = 256 << 10;

/// The last bytes of a file, from byte `at` on, as they were when it was opened. Its recorder may replace them.
#[derive(Debug)]
pub(crate) struct Tail {
    pub(crate) at: u64,
    pub(crate) bytes: Vec<u8>,
}

impl Default for Tail {
    /// No bytes, of a file that does not change.
    fn default() -> Self {
        Self { at: u64::MAX, bytes: Vec::new() }
    }
}

/// A file with the part of it that was read last.
#[derive(Debug)]
pub(crate) struct Ahead {
    file: Arc<File>,
    tail: Arc<Tail>,
    /// The length of the file, as far as it is read.
    len: u64,
    /// The first byte of the part.
    at: u64,
    part: Vec<u8>,
}

impl Ahead {
    /// The first `len` bytes of a file.
    pub(crate) fn new(file: Arc<File>, len: u64) -> Self {
        Self::with_tail(file, len, Arc::default())
    }

    /// The same of a file that ends in `tail`.
    pub(crate) fn with_tail(file: Arc<File>, len: u64, tail: Arc<Tail>) -> Self {
        Self { file, tail, len, at: 0, part: Vec::new() }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// `len` bytes from byte `at` on.
    ///
    /// # Errors
    /// If they cannot be read, or the file has fewer.
    pub(crate) fn bytes(&mut self, at: u64, len: usize) -> io::Result<&[u8]> {
        let place = at.checked_sub(self.at).and_then(|place| usize::try_from(place).ok());
        if let Some(place) = place.filter(|place| self.part.len().checked_sub(*place).is_some_and(|rest| rest >= len)) {
            return Ok(&self.part[place..place + len]);
        }
        let rest = usize::try_from(self.len.saturating_sub(at)).unwrap_or(usize::MAX);
        self.part.resize(PART.min(rest).max(len), 0);
        self.at = at;
        let mut filled = 0;
        while filled < len {
            match read_at(&self.file, &self.tail, &mut self.part[filled..], at + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.part.clear();
                    return Err(error);
                }
            }
        }
        self.part.truncate(filled);
        self.part.get(..len).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

/// Reads from byte `at` of a file that ends in `tail`, as [`FileExt::read_at`].
fn read_at(file: &File, tail: &Tail, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    match at.checked_sub(tail.at).and_then(|place| usize::try_from(place).ok()) {
        Some(place) => tail.bytes.get(place..).unwrap_or_default().read(bytes),
        None => {
            let before = usize::try_from(tail.at - at).unwrap_or(usize::MAX).min(bytes.len());
            file.read_at(&mut bytes[..before], at)
        }
    }
}
