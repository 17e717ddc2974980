//! The file that a recorder writes to. It grows by whole messages.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Only the owner may read a recording, because it holds address-space layouts.
const MODE: u32 = 0o600;

/// A file that ends after a whole message, unless the process is killed during a write.
#[derive(Debug)]
pub(crate) struct Output {
    file: File,
    /// Bytes of whole messages.
    len: u64,
    /// Whether it can be cut back. A pipe or a device cannot.
    regular: bool,
}

impl Output {
    /// Creates the file with mode 0600. An existing one gets that mode before it is emptied and written.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(MODE).open(path)?;
        let regular = file.metadata()?.is_file();
        if regular {
            file.set_permissions(Permissions::from_mode(MODE))?;
            file.set_len(0)?;
        }
        Ok(Self { file, len: 0, regular })
    }

    /// Hands one whole message to the kernel. On failure the file is cut back to its length before.
    pub(crate) fn append(&mut self, message: &[u8]) -> io::Result<()> {
        let written =
            if self.regular { self.file.write_all_at(message, self.len) } else { self.file.write_all(message) };
        match written {
            Ok(()) => self.len += message.len() as u64,
            // The error to report is that of the write. If cutting back fails too, readers accept a torn tail.
            Err(_) if self.regular => drop(self.file.set_len(self.len)),
            Err(_) => {}
        }
        written
    }

    /// Bytes of whole messages.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }
}
