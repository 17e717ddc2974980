//! Requests to the thread of the schemes: a mailbox that never makes the sender wait.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use isotherm_core::scheme::Scheme;
use isotherm_record::SnapshotRecord;
use isotherm_scheme::Diagnostics;

/// The messages for the schemes' thread. A newer snapshot replaces one that was not taken yet, because schemes act on
/// memory as it is now.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    messages: Mutex<Messages>,
    changed: Condvar,
}

#[derive(Debug, Default)]
pub(crate) struct Messages {
    /// The newest snapshot.
    pub(crate) snapshot: Option<Arc<SnapshotRecord>>,
    /// Schemes to put in force.
    pub(crate) replace: Option<Vec<Scheme>>,
    /// Whether to read the scheme file again.
    pub(crate) reload: bool,
    /// The schemes that the scheme file has now, or its errors.
    pub(crate) read: Option<Result<Vec<Scheme>, Diagnostics>>,
    /// Whether the run is over.
    pub(crate) is_over: bool,
    /// Whether anybody reads the mailbox.
    open: bool,
}

impl Messages {
    fn is_empty(&self) -> bool {
        self.snapshot.is_none() && self.replace.is_none() && !self.reload && self.read.is_none() && !self.is_over
    }
}

impl Mailbox {
    /// Accepts messages from here on; before, they are dropped.
    pub(crate) fn open(&self) {
        self.lock().open = true;
    }

    /// Whether messages are accepted: whether the run has schemes on a thread of their own.
    pub(crate) fn is_open(&self) -> bool {
        self.lock().open
    }

    pub(crate) fn put_snapshot(&self, record: Arc<SnapshotRecord>) {
        self.put(|messages| messages.snapshot = Some(record));
    }

    pub(crate) fn replace(&self, schemes: Vec<Scheme>) {
        self.put(|messages| messages.replace = Some(schemes));
    }

    pub(crate) fn reload(&self) {
        self.put(|messages| messages.reload = true);
    }

    pub(crate) fn put_read(&self, schemes: Result<Vec<Scheme>, Diagnostics>) {
        self.put(|messages| messages.read = Some(schemes));
    }

    pub(crate) fn end(&self) {
        self.put(|messages| messages.is_over = true);
    }

    /// Takes the messages. Waits for one until `due` if there is none.
    pub(crate) fn take(&self, due: Instant) -> Messages {
        let left = due.saturating_duration_since(Instant::now());
        let waited = self.changed.wait_timeout_while(self.lock(), left, |messages| messages.is_empty());
        let (mut messages, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let (is_over, open) = (messages.is_over, messages.open);
        let taken = std::mem::take(&mut *messages);
        (messages.is_over, messages.open) = (is_over, open);
        taken
    }

    fn put(&self, change: impl FnOnce(&mut Messages)) {
        let mut messages = self.lock();
        if messages.open {
            change(&mut messages);
            self.changed.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Messages> {
        // Each change is one assignment, so a panic of another thread does not spoil it.
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
