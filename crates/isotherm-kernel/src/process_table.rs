//! The processes of a run, shared between its threads.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use isotherm_core::TargetId;

use crate::ends::Ends;
use crate::member::Member;

/// The processes of a run as of the last survey. Clones share one table.
#[derive(Clone, Debug, Default)]
pub struct ProcessTable {
    members: Arc<Mutex<BTreeMap<TargetId, Member>>>,
    /// Tells which of the members have ended.
    ends: Arc<Ends>,
    /// The process whose end ends the run.
    leader: Arc<OnceLock<TargetId>>,
    news: Arc<Mutex<Vec<String>>>,
    /// How many processes have begun and ended without becoming members, as far as that was not taken.
    unseen: Arc<AtomicU64>,
}

/// At most this much news waits to be taken.
const MOST_NEWS: usize = 64;

impl ProcessTable {
    /// Locks the table of the processes, by identity.
    pub fn members(&self) -> MutexGuard<'_, BTreeMap<TargetId, Member>> {
        // A panic in another thread leaves the map consistent, because each change is one insertion or removal.
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which of the processes have ended.
    pub(crate) fn ends(&self) -> &Arc<Ends> {
        &self.ends
    }

    /// The process whose end ends the run.
    pub(crate) fn leader(&self) -> Option<TargetId> {
        self.leader.get().copied()
    }

    /// Ends the run with this process. Only the first such call has an effect.
    pub(crate) fn end_with(&self, leader: TargetId) {
        self.leader.get_or_init(|| leader);
    }

    /// Whether the last process has ended, or the one that the run ends with. The next reading removes it, and finds
    /// descendants that are left.
    pub fn is_over(&self) -> bool {
        let members = self.members();
        match self.leader() {
            Some(leader) => members.get(&leader).is_none_or(|member| member.process.has_ended()),
            None => !members.is_empty() && members.values().all(|member| member.process.has_ended()),
        }
    }

    /// Takes what has happened since the last call that the user must know of: processes that cannot be read at the
    /// moment, that are no longer watched although they live, or that did not join.
    pub fn take_news(&self) -> Vec<String> {
        std::mem::take(&mut *self.news.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes how many processes of the selection have begun and ended since the last call without becoming members. The
    /// kernel reports them to root. It drops some if many begin at once, so that there may have been more.
    pub fn take_unseen(&self) -> u64 {
        self.unseen.swap(0, Ordering::Relaxed)
    }

    /// Counts processes that have begun and ended without becoming members.
    pub(crate) fn add_unseen(&self, count: u64) {
        self.unseen.fetch_add(count, Ordering::Relaxed);
    }

    /// Has news taken later.
    pub(crate) fn tell(&self, news: String) {
        let mut all = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() < MOST_NEWS && !all.contains(&news) {
            all.push(news);
        }
    }
}
