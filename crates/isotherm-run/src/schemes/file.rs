//! The scheme file of a run, which may change during the run.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use isotherm_core::scheme::Scheme;
use isotherm_scheme::Diagnostics;

use crate::{Control, RunError};

/// How often a scheme file is checked for changes.
const CHECK_EVERY: Duration = Duration::from_millis(250);

/// A scheme file, and which state of it was read.
#[derive(Debug)]
pub(crate) struct SchemeFile {
    path: PathBuf,
    /// The state that was read last.
    read: Stamp,
    /// The state at the last check.
    seen: Stamp,
}

/// What distinguishes two states of a file: inode, length and time of writing. `None` if there is no file.
type Stamp = Option<(u64, u64, i64, i64)>;

impl SchemeFile {
    /// The file of this path, and its schemes.
    pub(crate) fn open(path: &Path) -> (Self, Result<Vec<Scheme>, Diagnostics>) {
        let mut file = Self { path: path.into(), read: None, seen: None };
        let schemes = file.read();
        (file, schemes)
    }

    /// Reads its schemes as they are now.
    fn read(&mut self) -> Result<Vec<Scheme>, Diagnostics> {
        // The stamp is taken first, so that a change during the reading is seen as a change later.
        self.read = self.stamp();
        self.seen = self.read;
        isotherm_damo::read_schemes(&self.path)
    }

    /// Whether the file exists and differs from what was read. A change counts once the file has stayed the same from
    /// one check to the next, because its writer may not be done.
    fn has_changed(&mut self) -> bool {
        let now = self.stamp();
        let settled = now == self.seen;
        self.seen = now;
        settled && now.is_some() && now != self.read
    }

    /// Looks for changes from now on, and gives the schemes that are read to the schemes' thread through `control`. It
    /// does so on a thread of its own that nobody waits for, because a file system may hang. The thread ends when the
    /// watch is dropped.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn watch(self, control: Control) -> Result<SchemeFileWatch, RunError> {
        let path = self.path.clone();
        let (reload, requests) = channel();
        let name = "scheme file";
        let work = move || self.look(&requests, &control);
        let thread = std::thread::Builder::new().name(name.into()).spawn(work);
        thread.map_err(|source| RunError::Thread { name: name.into(), source })?;
        Ok(SchemeFileWatch { path, reload })
    }

    fn look(mut self, requests: &Receiver<()>, control: &Control) {
        loop {
            match requests.recv_timeout(CHECK_EVERY) {
                Ok(()) => control.mailbox.put_read(self.read()),
                Err(RecvTimeoutError::Timeout) => {
                    if self.has_changed() {
                        control.mailbox.put_read(self.read());
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// A pipe never changes: it can be read only once.
    fn stamp(&self) -> Stamp {
        let stamp = |file: Metadata| (file.ino(), file.len(), file.mtime(), file.mtime_nsec());
        self.path.metadata().ok().filter(Metadata::is_file).map(stamp)
    }
}

/// A scheme file that is checked for changes during a run.
#[derive(Debug)]
pub(crate) struct SchemeFileWatch {
    path: PathBuf,
    reload: Sender<()>,
}

impl SchemeFileWatch {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Has the file read now.
    pub(crate) fn reload(&self) {
        // The thread ends after this only.
        let _ = self.reload.send(());
    }
}
