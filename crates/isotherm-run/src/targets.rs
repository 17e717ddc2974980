//! The address spaces that a live run watches: some processes, physical memory, or files.

use std::collections::HashSet;
use std::sync::Arc;

use isotherm_core::{AddressSpace, BoxError, TargetId, TargetSpace};
use isotherm_kernel::page_cache::CachedFiles;
use isotherm_kernel::{Member, PhysicalMemory, ProcessTable, Processes};
use isotherm_record::{TargetInfo, TargetInfos};

/// What a live run watches.
#[derive(Debug)]
pub(crate) enum LiveTargets {
    /// Processes, until the last of them has ended.
    Processes(Processes),
    /// Physical memory, until the last of the processes has ended; without processes, until the run is stopped.
    Physical(PhysicalMemory, Option<Processes>),
    /// The page cache of files, until the run is stopped.
    Files(CachedFiles),
}

impl LiveTargets {
    /// The processes whose end matters to the run.
    pub(crate) fn processes(&self) -> ProcessTable {
        match self {
            Self::Processes(processes) | Self::Physical(_, Some(processes)) => processes.process_table(),
            Self::Physical(_, None) | Self::Files(_) => ProcessTable::default(),
        }
    }

    /// Whether new targets can be found at any time.
    pub(crate) fn are_open(&self) -> bool {
        matches!(self, Self::Processes(processes) if processes.is_open())
    }

    /// Counts the processes that have ended since the last reading, at the end of a run.
    pub(crate) fn count_unseen(&mut self) {
        match self {
            Self::Processes(processes) => processes.count_unseen(),
            Self::Physical(..) | Self::Files(_) => {}
        }
    }

    /// A reader of what each target is.
    pub(crate) fn infos(&self) -> InfoReader {
        match self {
            Self::Processes(processes) => {
                InfoReader { processes: Some(processes.process_table()), last: Arc::default() }
            }
            Self::Physical(..) => InfoReader::of_memory(TargetId::PhysicalMemory),
            Self::Files(_) => InfoReader::of_memory(TargetId::PageCache),
        }
    }
}

impl AddressSpace for LiveTargets {
    fn read_targets(&mut self) -> Result<Vec<TargetSpace>, BoxError> {
        match self {
            Self::Processes(processes) => processes.read_targets(),
            Self::Physical(memory, None) => memory.read_targets(),
            Self::Files(files) => files.read_targets(),
            Self::Physical(memory, Some(processes)) => {
                let is_over = processes.read_targets()?.is_empty();
                if is_over { Ok(Vec::new()) } else { memory.read_targets() }
            }
        }
    }

    fn look_for_new(&mut self, most: usize) -> Result<Vec<TargetSpace>, BoxError> {
        match self {
            Self::Processes(processes) => processes.look_for_new(most),
            Self::Physical(..) | Self::Files(_) => Ok(Vec::new()),
        }
    }

    fn resident(&mut self, target: TargetId) -> Option<u64> {
        match self {
            Self::Processes(processes) => processes.resident(target),
            Self::Physical(..) | Self::Files(_) => None,
        }
    }

    fn set_most_join(&mut self, most: usize) {
        match self {
            Self::Processes(processes) => processes.set_most_join(most),
            Self::Physical(..) | Self::Files(_) => {}
        }
    }

    fn parties(&mut self, target: TargetId) -> Arc<[u32]> {
        match self {
            Self::Processes(processes) => processes.parties(target),
            Self::Physical(..) | Self::Files(_) => Arc::default(),
        }
    }

    fn has_parties(&self) -> bool {
        match self {
            Self::Processes(processes) => processes.has_parties(),
            Self::Physical(..) | Self::Files(_) => false,
        }
    }

    fn awaits_targets(&self) -> bool {
        match self {
            Self::Processes(processes) => processes.awaits_targets(),
            Self::Files(files) => files.awaits_targets(),
            Self::Physical(..) => false,
        }
    }
}

/// Reads what each target is, and makes the list anew only when one of them has changed.
#[derive(Clone, Debug)]
pub(crate) struct InfoReader {
    /// The processes that are the targets; `None` for memory without them, whose description never changes.
    processes: Option<ProcessTable>,
    last: TargetInfos,
}

impl InfoReader {
    /// The description of memory that is there since the machine was booted.
    fn of_memory(id: TargetId) -> Self {
        let started_unix_ns = PhysicalMemory::started_unix_ns();
        let info = TargetInfo { command: id.to_string(), started_unix_ns, ..TargetInfo::default() };
        Self { processes: None, last: Arc::new([(id, Arc::new(info))]) }
    }

    /// The descriptions of the targets now, and of those of `wanted` that have ended since the last call: the last
    /// snapshot of a process often comes after its end. The same `Arc` as the last time means that nothing has changed.
    pub(crate) fn read(&mut self, wanted: impl IntoIterator<Item = TargetId>) -> TargetInfos {
        let Some(processes) = &self.processes else { return Arc::clone(&self.last) };
        let members = processes.members();
        let wanted: HashSet<TargetId> = wanted.into_iter().filter(|id| !members.contains_key(id)).collect();
        let ended: Vec<_> = self.last.iter().filter(|(id, _)| wanted.contains(id)).cloned().collect();
        let now = members.iter().map(|(&id, member)| (id, member.process.started_unix_ns(), &member.command));
        let known = self.last.iter().map(|(id, info)| (*id, info.started_unix_ns, &info.command));
        if !known.eq(now.chain(ended.iter().map(|(id, info)| (*id, info.started_unix_ns, &info.command)))) {
            let info = |(&id, member): (&TargetId, &Member)| {
                let info = TargetInfo {
                    command: member.command.clone(),
                    started_unix_ns: member.process.started_unix_ns(),
                    cgroup: member.cgroup.clone(),
                    inner_pid: member.inner_pid,
                };
                (id, info.into())
            };
            self.last = members.iter().map(info).chain(ended).collect();
        }
        Arc::clone(&self.last)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_that_has_ended_is_described_while_a_snapshot_has_it() {
        let mut cat = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut targets = LiveTargets::Processes(Processes::new([cat.id()], false).unwrap());
        let id = targets.read_targets().unwrap()[0].id;
        let mut infos = targets.infos();
        let known = infos.read([id]);
        assert_eq!(known[0].0, id);
        cat.kill().unwrap();
        cat.wait().unwrap();
        assert!(targets.read_targets().unwrap().is_empty());
        assert!(Arc::ptr_eq(&infos.read([id]), &known));
        assert!(infos.read([]).is_empty());
    }
}
