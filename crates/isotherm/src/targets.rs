//! What a session watches: some processes, or physical memory.

use std::sync::Arc;

use isotherm_core::{AddressSpace, BoxError, TargetId, TargetSpace};
use isotherm_kernel::{Member, PhysicalMemory, Processes, Roster};
use isotherm_record::TargetInfo;

/// What a session watches.
#[derive(Debug)]
pub enum Targets {
    Processes(Processes),
    /// Physical memory, for as long as the processes run; if there are none to wait for, until the run is stopped.
    Physical(PhysicalMemory, Option<Processes>),
}

impl Targets {
    /// The processes whose end is waited for.
    pub fn roster(&self) -> Roster {
        match self {
            Self::Processes(processes) | Self::Physical(_, Some(processes)) => processes.roster(),
            Self::Physical(_, None) => Roster::default(),
        }
    }

    /// What each target is, at any time of the run.
    pub fn infos(&self) -> Infos {
        let physical = || {
            let info =
                TargetInfo { command: "physical memory".into(), started_unix_ns: PhysicalMemory::started_unix_ns() };
            Arc::new([(PhysicalMemory::ID, Arc::new(info))])
        };
        match self {
            Self::Processes(processes) => Infos { roster: Some(processes.roster()), last: Arc::default() },
            Self::Physical(..) => Infos { roster: None, last: physical() },
        }
    }
}

impl AddressSpace for Targets {
    fn survey(&mut self) -> Result<Vec<TargetSpace>, BoxError> {
        match self {
            Self::Processes(processes) => processes.survey(),
            Self::Physical(memory, None) => memory.survey(),
            Self::Physical(memory, Some(processes)) => {
                let over = processes.survey()?.is_empty();
                if over { Ok(Vec::new()) } else { memory.survey() }
            }
        }
    }
}

/// What each target is, made anew only when one of them has changed.
pub struct Infos {
    /// The processes that the targets are.
    roster: Option<Roster>,
    last: Arc<[(TargetId, Arc<TargetInfo>)]>,
}

impl Infos {
    /// As it is now.
    pub fn now(&mut self) -> Arc<[(TargetId, Arc<TargetInfo>)]> {
        if let Some(roster) = &self.roster {
            let members = roster.members();
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
