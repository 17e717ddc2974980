//! Reads how much memory the targets of a run use, for its recording.

use std::path::Path;
use std::time::{Duration, Instant};

use isotherm_core::{MemoryUse, TargetId};
use isotherm_kernel::{memory_use, system_memory};
use isotherm_record::{Activity, SnapshotRecord};

/// The time from one look to the next, at least.
const EVERY: Duration = Duration::from_secs(5);

/// Looks at many targets take long. They take at most one part in this many of the time: 2 % of the default budget.
const SHARE: u32 = 5000;

/// Looks at the targets of a run without schemes. With schemes, their activities tell what this does.
#[derive(Debug)]
pub(crate) struct Usage {
    /// When the next look is due. `None` stands for now.
    next: Option<Instant>,
}

impl Usage {
    pub(crate) fn new() -> Self {
        Self { next: None }
    }

    /// The memory that the targets of a snapshot use, as an activity without schemes, if a look is due. `None` too if
    /// it cannot be read of any target, as of physical memory.
    pub(crate) fn look(&mut self, record: &SnapshotRecord) -> Option<Activity> {
        let began = Instant::now();
        if self.next.is_some_and(|next| began < next) {
            return None;
        }
        let root = Path::new("/");
        let read = |id: TargetId| Some((id, memory_use(root, id.pid()?).ok()?));
        let targets = record.snapshot.targets.iter();
        let memory: Vec<(TargetId, MemoryUse)> = targets.filter_map(|target| read(target.id)).collect();
        self.next = Some(began + (began.elapsed() * SHARE).max(EVERY));
        if memory.is_empty() {
            return None;
        }
        let system = system_memory(root).unwrap_or_default();
        Some(Activity { time: record.snapshot.time, schemes: Vec::new(), memory, system, major_faults: None })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use isotherm_core::{Snapshot, TargetSnapshot};

    use super::*;

    fn record(id: TargetId) -> SnapshotRecord {
        let target = TargetSnapshot { id, regions: Vec::new(), mappings: [].into() };
        SnapshotRecord {
            snapshot: Snapshot { targets: vec![target], ..Snapshot::default() },
            ..SnapshotRecord::default()
        }
    }

    #[test]
    fn memory_is_read_once_in_a_while_and_only_of_processes() {
        let own = record(TargetId::process(std::process::id(), Duration::ZERO));
        let mut usage = Usage::new();
        let activity = usage.look(&own).unwrap();
        let used = activity.memory[0].1;
        assert!(used.resident > 1 << 16 && used.proportional.is_none(), "{used:?}");
        assert!(activity.schemes.is_empty() && activity.system.total > used.resident);
        assert!(usage.look(&own).is_none());
        assert!(Usage::new().look(&record(TargetId::PhysicalMemory)).is_none());
    }
}
