//! The file that a recorder writes to: it grows by whole messages.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Recordings hold address-space layouts: they are for their owner only.
const MODE: u32 = 0o600;

/// A file that ends after a whole message whatever happens, as far as this process has a say in it.
#[derive(Debug)]
pub(crate) struct Output {
    file: File,
    /// Bytes of whole messages.
    len: u64,
    /// Whether it can be cut back; a pipe or a device cannot.
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

    /// Hands one whole message to the kernel; on failure the file is cut back to what it was.
    pub(crate) fn append(&mut self, message: &[u8]) -> io::Result<()> {
        let written =
            if self.regular { self.file.write_all_at(message, self.len) } else { self.file.write_all(message) };
        match written {
            Ok(()) => self.len += message.len() as u64,
            // The failure to write is the one to tell; a torn tail is something that readers cope with.
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
