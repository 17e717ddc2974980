//! The major page faults of the targets while schemes run.

use std::collections::HashMap;
use std::path::Path;

use isotherm_core::TargetId;
use isotherm_kernel::major_faults;

/// Adds up the major faults of targets that come and go.
#[derive(Debug, Default)]
pub(crate) struct MajorFaults {
    /// How many faults each target had when it was read last.
    targets: HashMap<TargetId, u64>,
    total: u64,
}

impl MajorFaults {
    /// Reads the faults of these targets, below `root`, and returns those of all targets so far. Faults that a target
    /// had before it was read for the first time do not count.
    pub(crate) fn read(&mut self, root: &Path, targets: &[TargetId]) -> u64 {
        self.targets.retain(|target, _| targets.contains(target));
        for &target in targets {
            let Some(faults) = target.pid().and_then(|pid| major_faults(root, pid).ok()) else { continue };
            let before = self.targets.insert(target, faults).unwrap_or(faults);
            self.total += faults.saturating_sub(before);
        }
        self.total
    }
}
