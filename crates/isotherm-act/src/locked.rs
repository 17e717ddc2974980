//! Which memory of targets was locked, so that it can be unlocked at the end.

use std::collections::HashMap;
use std::path::Path;

use isotherm_core::{AddrRange, TargetId};
use isotherm_kernel::locked;
use rangemap::RangeSet;

/// The memory that was locked in each target. `None` for targets that had locked memory before: the kernel does not
/// tell which lock is whose, and what a target has locked stays locked.
#[derive(Debug, Default)]
pub(super) struct Locked(HashMap<TargetId, Option<RangeSet<u64>>>);

impl Locked {
    /// Begins with a target, before the first of its memory is locked. `root` is the directory that stands for `/`.
    pub(super) fn begin(&mut self, root: &Path, target: TargetId) {
        let has_none = || target.pid().is_some_and(|pid| locked(root, pid).is_ok_and(|bytes| bytes == 0));
        self.0.entry(target).or_insert_with(|| has_none().then(RangeSet::new));
    }

    /// Notes that a range was locked.
    pub(super) fn add(&mut self, target: TargetId, range: AddrRange) {
        if let Some(ranges) = self.of(target) {
            ranges.insert(range.into());
        }
    }

    /// Notes that a range was unlocked.
    pub(super) fn remove(&mut self, target: TargetId, range: AddrRange) {
        if let Some(ranges) = self.of(target) {
            ranges.remove(range.into());
        }
    }

    /// What is locked in each target. Nothing is afterwards.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (TargetId, Vec<AddrRange>)> {
        std::mem::take(&mut self.0).into_iter().filter_map(|(target, ranges)| {
            let ranges: Vec<_> = ranges?.iter().filter_map(|range| AddrRange::new(range.start, range.end)).collect();
            (!ranges.is_empty()).then_some((target, ranges))
        })
    }

    /// Forgets targets that do not live.
    pub(super) fn retain(&mut self, lives: impl Fn(&TargetId) -> bool) {
        self.0.retain(|target, _| lives(target));
    }

    fn of(&mut self, target: TargetId) -> Option<&mut RangeSet<u64>> {
        self.0.get_mut(&target)?.as_mut()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn ranges_are_joined_and_cut_and_those_of_a_target_that_locks_memory_itself_are_not_kept() {
        let root = tempfile::tempdir().unwrap();
        for (pid, kib) in [(1, 0), (2, 4)] {
            let directory = root.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join("status"), format!("Name:\tx\nVmLck:\t{kib} kB\n")).unwrap();
        }
        let [target, other, unknown] = [1, 2, 3].map(|pid| TargetId::process(pid, Duration::ZERO));
        let pages = |start: u64, end: u64| AddrRange::new(start << 12, end << 12).unwrap();
        let mut locked = Locked::default();
        for target in [target, other, unknown] {
            locked.begin(root.path(), target);
            for range in [pages(10, 20), pages(30, 40), pages(20, 30), pages(50, 60), pages(15, 35)] {
                locked.add(target, range);
            }
            locked.remove(target, pages(12, 13));
            locked.remove(target, pages(38, 52));
        }
        locked.begin(root.path(), target);
        let left: Vec<_> = locked.take().collect();
        assert_eq!(left, [(target, vec![pages(10, 12), pages(13, 38), pages(52, 60)])]);
        assert_eq!(locked.take().count(), 0);
    }
}
