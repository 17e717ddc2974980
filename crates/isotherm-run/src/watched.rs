//! The processes of a run, for a thread that watches them in parallel with the monitor.

use std::collections::HashMap;

use isotherm_core::TargetId;
use isotherm_kernel::ProcessTable;

/// Follows which processes have joined and left.
pub(crate) struct WatchedProcesses {
    processes: ProcessTable,
    /// The processes at the last look.
    watched: HashMap<TargetId, u32>,
}

/// The changes since the last check.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// The process IDs of those that have left. Another process may have joined with the same one.
    pub(crate) left: Vec<u32>,
    /// The process IDs of those that have joined.
    pub(crate) joined: Vec<u32>,
}

impl WatchedProcesses {
    pub(crate) fn new(processes: ProcessTable) -> Self {
        Self { processes, watched: HashMap::new() }
    }

    /// Looks at which processes are watched now.
    pub(crate) fn look(&mut self) -> Changes {
        let now: HashMap<TargetId, u32> =
            self.processes.members().iter().map(|(id, member)| (*id, member.process.pid())).collect();
        let only_in = |some: &HashMap<TargetId, u32>, others: &HashMap<TargetId, u32>| {
            some.iter().filter(|(id, _)| !others.contains_key(id)).map(|(_, pid)| *pid).collect()
        };
        let changes = Changes { left: only_in(&self.watched, &now), joined: only_in(&now, &self.watched) };
        self.watched = now;
        changes
    }

    /// The process IDs of those at the last look.
    pub(crate) fn pids(&self) -> impl Iterator<Item = u32> {
        self.watched.values().copied()
    }
}
