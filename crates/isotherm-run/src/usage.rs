//! Reads how much memory the targets of a run use, for its recording.

use std::path::Path;
use std::time::Duration;

use isotherm_core::{MemoryUse, TargetId};
use isotherm_kernel::{memory_use, monitor_cpu_time, system_memory};
use isotherm_record::{Activity, SnapshotRecord, Surroundings};

use crate::surroundings;

/// The time from one look to the next, at least.
const EVERY: Duration = Duration::from_secs(1);

/// Looks at many targets take long. They take at most one part in this many of the time of a CPU: 5 % of the default
/// budget.
const SHARE: u32 = 2000;

/// Looks at the targets of a run without schemes. With schemes, their activities tell what this does.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    /// When the next look is due, since the start of the run.
    next: Duration,
    /// When the surroundings are due. They change rarely, so that each next reading is at twice the time of the one
    /// before.
    next_surroundings: Duration,
    surroundings: Option<Surroundings>,
}

impl Usage {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The memory that the targets of a snapshot use, as an activity without schemes, if a look is due. `None` too if
    /// it cannot be read of any target, as of physical memory.
    pub(crate) fn look(&mut self, record: &SnapshotRecord) -> Option<Activity> {
        let time = record.snapshot.time;
        if time < self.next {
            return None;
        }
        let began = monitor_cpu_time();
        let root = Path::new("/");
        let read = |id: TargetId| Some((id, memory_use(root, id.pid()?).ok()?));
        let targets = record.snapshot.targets.iter();
        let memory: Vec<(TargetId, MemoryUse)> = targets.filter_map(|target| read(target.id)).collect();
        // Other work makes a look longer, and not dearer.
        let rest = |began| (monitor_cpu_time().saturating_sub(began) * SHARE).max(EVERY);
        self.next = time + rest(began);
        if memory.is_empty() {
            return None;
        }
        if time >= self.next_surroundings {
            let began = monitor_cpu_time();
            let pids: Vec<u32> = memory.iter().filter_map(|(id, _)| id.pid()).collect();
            self.surroundings = Some(surroundings::read(root, &pids));
            self.next_surroundings = (time + rest(began)).max(time * 2);
        }
        let system = system_memory(root).unwrap_or_default();
        Some(Activity { time, memory, system, surroundings: self.surroundings.clone(), ..Activity::default() })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use isotherm_core::{Snapshot, TargetSnapshot};

    use super::*;

    fn record(id: TargetId, ms: u64) -> SnapshotRecord {
        let target = TargetSnapshot { id, regions: Vec::new(), mappings: [].into() };
        let snapshot = Snapshot { time: Duration::from_millis(ms), targets: vec![target], ..Snapshot::default() };
        SnapshotRecord { snapshot, ..SnapshotRecord::default() }
    }

    #[test]
    fn memory_is_read_once_in_a_while_and_only_of_processes() {
        let own = TargetId::process(std::process::id(), Duration::ZERO);
        let mut usage = Usage::new();
        let activity = usage.look(&record(own, 100)).unwrap();
        let used = activity.memory[0].1;
        assert!(used.resident > 1 << 16 && used.proportional.is_none(), "{used:?}");
        assert!(activity.schemes.is_empty() && activity.system.total > used.resident);
        assert!(activity.surroundings.is_some_and(|found| found.anonymous.is_some_and(|memory| memory.bytes > 0)));
        assert!(usage.look(&record(own, 1000)).is_none());
        assert!(Usage::new().look(&record(TargetId::PhysicalMemory, 100)).is_none());
    }

    #[test]
    fn a_recording_of_some_seconds_tells_how_much_memory_a_small_process_uses_in_each() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let own = TargetId::process(child.id(), Duration::ZERO);
        let mut usage = Usage::new();
        let looks = (1..=60).filter(|nth| usage.look(&record(own, nth * 200)).is_some()).count();
        child.kill().unwrap();
        child.wait().unwrap();
        // A look at it takes less CPU time than one part in 2,000 of a second.
        assert!(looks >= 6, "{looks} looks in 12 s");
    }
}
