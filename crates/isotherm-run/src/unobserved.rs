//! Counts the processes that came and went without being observed.

use std::collections::HashSet;
use std::time::Duration;

use isotherm_core::TargetId;
use isotherm_kernel::ProcessTable;
use isotherm_record::MissedKind;

use crate::Missed;

/// How often it is told how many they are.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Processes that have ended before a snapshot or a survey had them: before they were found, or soon afterwards.
#[derive(Debug, Default)]
pub(crate) struct Unobserved {
    /// The processes that are watched, and of these, those that nothing was found in yet.
    watched: HashSet<TargetId>,
    waiting: HashSet<TargetId>,
    /// How many have ended since that was told, and when it was told last.
    ended: u64,
    told: Duration,
}

impl Unobserved {
    /// Takes in that a snapshot or a survey has these processes.
    pub(crate) fn observed(&mut self, targets: impl IntoIterator<Item = TargetId>) {
        if !self.waiting.is_empty() {
            targets.into_iter().for_each(|id| _ = self.waiting.remove(&id));
        }
    }

    /// Takes in which processes there are now.
    pub(crate) fn look(&mut self, processes: &ProcessTable) {
        self.ended += processes.take_unseen();
        // Those that share the memory of another one are never in a snapshot.
        let members = processes.members();
        let now: HashSet<TargetId> = members.iter().filter(|(_, of)| of.shares.is_none()).map(|(id, _)| *id).collect();
        drop(members);
        self.follow(now);
    }

    fn follow(&mut self, now: HashSet<TargetId>) {
        let before = self.waiting.len();
        self.waiting.retain(|id| now.contains(id));
        self.ended += (before - self.waiting.len()) as u64;
        self.waiting.extend(now.difference(&self.watched));
        self.watched = now;
    }

    /// How many have ended that it was not told of, if it is time to tell at `now`, or at the end of the run.
    pub(crate) fn take(&mut self, now: Duration, is_end: bool) -> Option<Missed> {
        if self.ended == 0 || (!is_end && now < self.told + TELL_EVERY) {
            return None;
        }
        self.told = now;
        let mut missed = Missed::default();
        missed.count(MissedKind::Processes, now, std::mem::take(&mut self.ended));
        Some(missed)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    #[test]
    fn processes_that_end_before_anything_was_found_in_them_are_counted_once() {
        let id = |pid: u32| TargetId::process(pid, Duration::ZERO);
        let now = |pids: &[u32]| pids.iter().map(|pid| id(*pid)).collect::<HashSet<_>>();
        let mut unobserved = Unobserved::default();
        unobserved.follow(now(&[1, 2, 3]));
        unobserved.observed([id(1), id(2)]);
        unobserved.follow(now(&[1, 4, 5]));
        unobserved.observed([id(1), id(5)]);
        unobserved.follow(now(&[1]));
        let second = Duration::from_secs(1);
        assert_eq!(unobserved.take(second / 2, false), None);
        let missed = unobserved.take(second, false).unwrap();
        assert_eq!((missed.counts[0].kind, missed.counts[0].count), (MissedKind::Processes, 2), "3 and 4");
        assert_eq!(unobserved.take(3 * second, true), None);
    }
}
