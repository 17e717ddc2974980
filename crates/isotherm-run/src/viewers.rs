//! What the views of a shared run ask of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use isotherm_record::SnapshotRecord;

use crate::mailbox::Mailbox;

/// The views that have schemes: each gets every snapshot, and bounds the aggregation interval.
#[derive(Debug, Default)]
pub(crate) struct Viewers(Mutex<BTreeMap<u32, Viewer>>);

#[derive(Debug)]
struct Viewer {
    mailbox: Arc<Mailbox>,
    /// The longest aggregation interval with which its schemes act in time.
    longest: Duration,
}

impl Viewers {
    pub(crate) fn add(&self, number: u32, mailbox: Arc<Mailbox>, longest: Option<Duration>) {
        self.lock().insert(number, Viewer { mailbox, longest: longest.unwrap_or(Duration::MAX) });
    }

    pub(crate) fn remove(&self, number: u32) {
        self.lock().remove(&number);
    }

    pub(crate) fn set_longest(&self, number: u32, longest: Duration) {
        self.lock().get_mut(&number).into_iter().for_each(|viewer| viewer.longest = longest);
    }

    /// The longest aggregation interval that all of them allow.
    pub(crate) fn longest(&self) -> Duration {
        self.lock().values().map(|viewer| viewer.longest).min().unwrap_or(Duration::MAX)
    }

    pub(crate) fn put_snapshot(&self, record: &Arc<SnapshotRecord>) {
        self.lock().values().for_each(|viewer| viewer.mailbox.put_snapshot(Arc::clone(record)));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Viewer>> {
        // Each change is one insertion, removal or assignment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
