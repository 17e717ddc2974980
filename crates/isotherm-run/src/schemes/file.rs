//! The scheme file of a run, which may change while the run goes on.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use isotherm_core::scheme::Scheme;
use isotherm_scheme::Diagnostics;

/// A scheme file, and which state of it was read.
#[derive(Debug)]
pub(crate) struct SchemeFile {
    path: PathBuf,
    /// The state that was read last.
    read: Stamp,
    /// The state at the last check.
    seen: Stamp,
}

/// What tells one state of a file from another: inode, length and time of writing. `None` if there is no file.
type Stamp = Option<(u64, u64, i64, i64)>;

impl SchemeFile {
    /// The file of this path, and its schemes.
    pub(crate) fn open(path: &Path) -> (Self, Result<Vec<Scheme>, Diagnostics>) {
        let mut file = Self { path: path.into(), read: None, seen: None };
        let schemes = file.read();
        (file, schemes)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads its schemes as they are now.
    pub(crate) fn read(&mut self) -> Result<Vec<Scheme>, Diagnostics> {
        // The stamp is taken first, so that a change during the reading is seen as a change later.
        self.read = self.stamp();
        self.seen = self.read;
        isotherm_damo::read_schemes(&self.path)
    }

    /// Whether the file exists and differs from what was read. A change counts once the file has stayed the same from
    /// one check to the next, because its writer may not be done.
    pub(crate) fn has_changed(&mut self) -> bool {
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
