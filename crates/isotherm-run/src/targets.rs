//! The address spaces that a live run watches: some processes, or physical memory.

use std::sync::Arc;

use isotherm_core::{AddressSpace, BoxError, TargetId, TargetSpace};
use isotherm_kernel::{Member, PhysicalMemory, ProcessTable, Processes};
use isotherm_record::{TargetInfo, TargetInfos};

/// What a live run watches.
#[derive(Debug)]
pub(crate) enum LiveTargets {
    /// Processes, until the last of them has ended.
    Processes(Processes),
    /// Physical memory, until the last of the processes has ended; without processes, until the run is stopped.
    Physical(PhysicalMemory, Option<Processes>),
}

impl LiveTargets {
    /// The processes whose end matters to the run.
    pub(crate) fn processes(&self) -> ProcessTable {
        match self {
            Self::Processes(processes) | Self::Physical(_, Some(processes)) => processes.process_table(),
            Self::Physical(_, None) => ProcessTable::default(),
        }
    }

    /// A reader of what each target is.
    pub(crate) fn infos(&self) -> InfoReader {
        match self {
            Self::Processes(processes) => {
                InfoReader { processes: Some(processes.process_table()), last: Arc::default() }
            }
            Self::Physical(..) => {
                let command = "physical memory".into();
                let info = TargetInfo { command, started_unix_ns: PhysicalMemory::started_unix_ns() };
                InfoReader { processes: None, last: Arc::new([(TargetId::PhysicalMemory, Arc::new(info))]) }
            }
        }
    }
}

impl AddressSpace for LiveTargets {
    fn read_targets(&mut self) -> Result<Vec<TargetSpace>, BoxError> {
        match self {
            Self::Processes(processes) => processes.read_targets(),
            Self::Physical(memory, None) => memory.read_targets(),
            Self::Physical(memory, Some(processes)) => {
                let is_over = processes.read_targets()?.is_empty();
                if is_over { Ok(Vec::new()) } else { memory.read_targets() }
            }
        }
    }

    fn awaits_targets(&self) -> bool {
        match self {
            Self::Processes(processes) => processes.awaits_targets(),
            Self::Physical(..) => false,
        }
    }
}

/// Reads what each target is, and makes the list anew only when one of them has changed.
#[derive(Clone, Debug)]
pub(crate) struct InfoReader {
    /// The processes that are the targets; `None` for physical memory, which never changes.
    processes: Option<ProcessTable>,
    last: TargetInfos,
}

impl InfoReader {
    /// What the targets are now. The same `Arc` as the last time means that nothing has changed.
    pub(crate) fn read(&mut self) -> TargetInfos {
        if let Some(processes) = &self.processes {
            let members = processes.members();
            let known = self.last.iter().map(|(id, info)| (*id, info.started_unix_ns, &info.command));
            if !known.eq(members.iter().map(|(&id, member)| (id, member.process.started_unix_ns(), &member.command))) {
                let info = |(&id, member): (&TargetId, &Member)| {
                    let started_unix_ns = member.process.started_unix_ns();
                    (id, Arc::new(TargetInfo { command: member.command.clone(), started_unix_ns }))
                };
                self.last = members.iter().map(info).collect();
            }
        }
        Arc::clone(&self.last)
    }
}
