//! The processes that a run watches: who is there, who joins, who has left.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use isotherm_core::{AddressSpace, BoxError, Layout, TargetId, TargetSpace};

use crate::{Process, TargetError};

/// One process of a run.
#[derive(Debug)]
pub struct Member {
    /// The process itself.
    pub process: Process,
    /// Its command line as it was read last: exec changes it.
    pub command: String,
}

/// The processes of a run as they were at the last survey; shared with whoever waits for their end or names them.
#[derive(Clone, Debug, Default)]
pub struct Roster(Arc<Mutex<BTreeMap<TargetId, Member>>>);

impl Roster {
    /// The processes, by ID.
    pub fn members(&self) -> MutexGuard<'_, BTreeMap<TargetId, Member>> {
        // A panic elsewhere leaves the map whole: each change of it is one insertion or removal.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The address spaces of some processes, and of their descendants if asked for.
#[derive(Debug)]
pub struct Processes {
    roster: Roster,
    /// The process with which the run ends, whoever else is still there.
    leader: Option<TargetId>,
    children: bool,
}

impl Processes {
    /// Watches these processes, and with `children` their descendants, too, as they appear.
    ///
    /// A descendant whose parent ended before it was seen is missed: the kernel does not tell whose it was.
    ///
    /// # Errors
    /// If one of the processes cannot be watched, or if the kernel keeps no lists of children.
    pub fn new(processes: impl IntoIterator<Item = u32>, children: bool) -> Result<Self, TargetError> {
        let roster = Roster::default();
        for pid in processes {
            let process = Process::open(pid)?;
            if children {
                process.children().map_err(|source| TargetError::Lookup { pid, source })?;
            }
            let command = process.command();
            roster.members().insert(process.id(), Member { process, command });
        }
        Ok(Self { roster, leader: None, children })
    }

    /// Ends the run when the process with this pid ends, even if descendants of it live on. A process that is not watched has ended
    /// already.
    #[must_use]
    pub fn ending_with(self, pid: u32) -> Self {
        let leader = with_pid(&self.roster.members(), pid).unwrap_or(TargetId::process(pid, Duration::ZERO));
        Self { leader: Some(leader), ..self }
    }

    /// Who is there, kept up to date with every survey.
    pub fn roster(&self) -> Roster {
        self.roster.clone()
    }
}

impl AddressSpace for Processes {
    fn read_targets(&mut self) -> Result<Vec<TargetSpace>, BoxError> {
        let mut members = self.roster.members();
        if self.children {
            // Every child that joins may have children of its own.
            let mut parents: Vec<TargetId> = members.keys().copied().collect();
            while let Some(parent) = parents.pop() {
                let children = members.get(&parent).and_then(|member| member.process.children().ok());
                for pid in children.unwrap_or_default() {
                    if with_pid(&members, pid).is_some() {
                        continue;
                    }
                    // One that has ended since, or that may not be watched, does not join.
                    if let Ok(process) = Process::open(pid) {
                        parents.push(process.id());
                        members.insert(process.id(), Member { process, command: String::new() });
                    }
                }
            }
        }

        let mut spaces = Vec::with_capacity(members.len());
        members.retain(|&id, member| {
            let Some(mappings) = member.process.mappings().ok().filter(|mappings| !mappings.is_empty()) else {
                return false;
            };
            member.command = member.process.command();
            spaces.push(TargetSpace { id, layout: Layout::Process, mappings });
            true
        });
        if self.leader.is_some_and(|leader| !members.contains_key(&leader)) {
            spaces.clear();
        }
        Ok(spaces)
    }
}

/// The member with this pid.
fn with_pid(members: &BTreeMap<TargetId, Member>, pid: u32) -> Option<TargetId> {
    let all = TargetId::process(pid, Duration::ZERO)..=TargetId::process(pid, Duration::MAX);
    members.range(all).next().map(|(&id, _)| id)
}
