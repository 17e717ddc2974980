//! The file that a recorder writes to. It consists of whole messages at each moment.

use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use isotherm_output::{OutputError, OutputFile};
use rustix::fs::{FlockOperation, flock};

/// A file that ends after a whole message, unless the process is killed during a write.
#[derive(Debug)]
pub(crate) struct Output {
    file: OutputFile,
    /// Bytes of whole messages.
    len: u64,
}

impl Output {
    /// An output that nothing was written to.
    pub(crate) fn new(file: OutputFile) -> Self {
        Self { file, len: 0 }
    }

    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Hands one whole message to the kernel. On failure the file is cut back to its length before.
    pub(crate) fn append(&mut self, message: &[u8]) -> io::Result<()> {
        let is_stream = self.file.is_stream();
        let written =
            if is_stream { self.file.write_all(message) } else { self.file.file().write_all_at(message, self.len) };
        match written {
            Ok(()) => self.len += message.len() as u64,
            // What a stream has taken cannot be taken back.
            Err(_) if is_stream => {}
            // The error to report is that of the write. If cutting back fails too, readers accept a torn tail.
            Err(_) => drop(self.file.file().set_len(self.len)),
        }
        written
    }

    /// Whether what was written can be replaced.
    pub(crate) fn is_stream(&self) -> bool {
        self.file.is_stream()
    }

    /// Puts `message` in the place of all messages from byte `at` on, unless it is longer, or somebody is just opening
    /// the file. At each moment, the file holds all of the messages or all of `message`, which says that it replaces
    /// them: it is written after them first.
    ///
    /// # Errors
    /// If the kernel does not take it. The file holds the messages then.
    pub(crate) fn replace(&mut self, at: u64, message: &[u8]) -> io::Result<()> {
        let file = self.file.file();
        let (end, copied) = (at + message.len() as u64, self.len + message.len() as u64);
        if end > self.len || flock(file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(());
        }
        let written = file.write_all_at(message, self.len);
        if written.is_err() {
            drop(file.set_len(self.len));
        } else {
            let moved = file.write_all_at(message, at).and_then(|()| file.set_len(end));
            // If it could not be moved, it is there all the same.
            self.len = if moved.is_ok() { end } else { copied };
        }
        let _ = flock(file, FlockOperation::Unlock);
        written
    }

    /// Gives the file the name of the output, if it has not got it.
    pub(crate) fn publish(&mut self) -> Result<(), OutputError> {
        self.file.publish()
    }

    /// Bytes of whole messages.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }
}
