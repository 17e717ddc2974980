//! The file that a recorder writes to. It consists of whole messages at each moment.

use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use isotherm_output::{OutputError, OutputFile};
use rustix::fs::{FlockOperation, flock};

/// A file that ends after a whole message, unless the process is killed during a write; or bytes in memory, which
/// somebody takes again and again.
#[derive(Debug)]
pub(crate) struct Output {
    to: To,
    /// Bytes of whole messages.
    len: u64,
}

#[derive(Debug)]
enum To {
    File(OutputFile),
    /// The bytes that were not taken yet.
    Memory(Vec<u8>),
}

/// The name of a recording in memory in messages.
pub(crate) const IN_MEMORY: &str = "(stream)";

impl Output {
    /// An output that nothing was written to.
    pub(crate) fn new(file: OutputFile) -> Self {
        Self { to: To::File(file), len: 0 }
    }

    /// An output in memory.
    pub(crate) fn in_memory() -> Self {
        Self { to: To::Memory(Vec::new()), len: 0 }
    }

    /// The bytes since they were taken last. None of a file.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        match &mut self.to {
            To::File(_) => Vec::new(),
            To::Memory(bytes) => std::mem::take(bytes),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        match &self.to {
            To::File(file) => file.path(),
            To::Memory(_) => Path::new(IN_MEMORY),
        }
    }

    /// Hands one whole message to the kernel. On failure the file is cut back to its length before.
    pub(crate) fn append(&mut self, message: &[u8]) -> io::Result<()> {
        let written = match &mut self.to {
            To::Memory(bytes) => {
                bytes.extend_from_slice(message);
                Ok(())
            }
            // What a stream has taken cannot be taken back.
            To::File(file) if file.is_stream() => file.write_all(message),
            // The error to report is that of the write. If cutting back fails too, readers accept a torn tail.
            To::File(file) => {
                file.file().write_all_at(message, self.len).inspect_err(|_| drop(file.file().set_len(self.len)))
            }
        };
        if written.is_ok() {
            self.len += message.len() as u64;
        }
        written
    }

    /// Whether what was written can be replaced.
    pub(crate) fn is_stream(&self) -> bool {
        match &self.to {
            To::File(file) => file.is_stream(),
            To::Memory(_) => true,
        }
    }

    /// Puts `message` in the place of all messages from byte `at` on, unless it is longer, or somebody is just opening
    /// the file. At each moment, the file holds all of the messages or all of `message`, which says that it replaces
    /// them: it is written after them first.
    ///
    /// # Errors
    /// If the kernel does not take it. The file holds the messages then.
    pub(crate) fn replace(&mut self, at: u64, message: &[u8]) -> io::Result<()> {
        let To::File(file) = &self.to else { return Ok(()) };
        let file = file.file();
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
        match &mut self.to {
            To::File(file) => file.publish(),
            To::Memory(_) => Ok(()),
        }
    }

    /// Bytes of whole messages.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }
}
