//! The scheme file of a run, which may change while it runs.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use isotherm_core::scheme::Scheme;
use isotherm_scheme::Diagnostics;

/// A scheme file, and which state of it was read.
#[derive(Debug)]
pub struct SchemeFile {
    path: PathBuf,
    read: Stamp,
    seen: Stamp,
}

/// What tells one state of a file from another: which file it is, how long, and when it was written; nothing if it is not there.
type Stamp = Option<(u64, u64, i64, i64)>;

impl SchemeFile {
    /// The file of this path, and its schemes.
    pub fn open(path: &Path) -> (Self, Result<Vec<Scheme>, Diagnostics>) {
        let mut file = Self { path: path.into(), read: None, seen: None };
        let schemes = file.read();
        (file, schemes)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads its schemes as they are now.
    pub fn read(&mut self) -> Result<Vec<Scheme>, Diagnostics> {
        // Before reading: what changes meanwhile is seen as a change later.
        self.read = self.stamp();
        self.seen = self.read;
        isotherm_damo::read_schemes(&self.path)
    }

    /// Whether it is there and differs from what was read; not before it has stayed as it is from one look to the next, because whoever
    /// writes it may not be done.
    pub fn has_changed(&mut self) -> bool {
        let now = self.stamp();
        let settled = now == self.seen;
        self.seen = now;
        settled && now.is_some() && now != self.read
    }

    fn stamp(&self) -> Stamp {
        let stamp = |file: Metadata| (file.ino(), file.len(), file.mtime(), file.mtime_nsec());
        self.path.metadata().ok().map(stamp)
    }
}
