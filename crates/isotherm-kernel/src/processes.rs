//! The processes that a run monitors, and their descendants as they appear and end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use isotherm_core::{AddressSpace, BoxError, Layout, TargetId, TargetSpace};

use crate::{Process, TargetError};

/// A process of a run.
#[derive(Debug)]
pub struct Member {
    /// The process.
    pub process: Process,
    /// The command line as of the last survey. `execve(2)` changes it.
    pub command: String,
}

/// The processes of a run as of the last survey. Clones share one table.
#[derive(Clone, Debug, Default)]
pub struct ProcessTable(Arc<Mutex<BTreeMap<TargetId, Member>>>);

impl ProcessTable {
    /// Locks the table of the processes, by identity.
    pub fn members(&self) -> MutexGuard<'_, BTreeMap<TargetId, Member>> {
        // A panic in another thread leaves the map consistent, because each change is one insertion or removal.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The address spaces of processes and, optionally, of their descendants.
#[derive(Debug)]
pub struct Processes {
    process_table: ProcessTable,
    /// The process whose end ends the run.
    leader: Option<TargetId>,
    children: bool,
}

impl Processes {
    /// Monitors these processes. With `children`, their descendants are monitored too, as they appear.
    ///
    /// A descendant is missed if its parent ended before a survey found the descendant, because the kernel gives it
    /// another parent then.
    ///
    /// # Errors
    /// Fails if a process cannot be monitored, or if `children` is set and the kernel does not list children.
    pub fn new(processes: impl IntoIterator<Item = u32>, children: bool) -> Result<Self, TargetError> {
        let process_table = ProcessTable::default();
        for pid in processes {
            let process = Process::open(pid)?;
            if children {
                process.children().map_err(|source| TargetError::Lookup { pid, source })?;
            }
            let command = process.command();
            process_table.members().insert(process.id(), Member { process, command });
        }
        Ok(Self { process_table, leader: None, children })
    }

    /// Ends the run when the process `pid` ends, even if other processes still run. A process that is not in the table
    /// counts as ended.
    #[must_use]
    pub fn ending_with(self, pid: u32) -> Self {
        let leader = with_pid(&self.process_table.members(), pid).unwrap_or(TargetId::process(pid, Duration::ZERO));
        Self { leader: Some(leader), ..self }
    }

    /// The shared table of the processes. Every survey updates it.
    pub fn process_table(&self) -> ProcessTable {
        self.process_table.clone()
    }
}

impl AddressSpace for Processes {
    fn read_targets(&mut self) -> Result<Vec<TargetSpace>, BoxError> {
        let mut members = self.process_table.members();
        if self.children {
            // A child that joins can have children itself.
            let mut parents: Vec<TargetId> = members.keys().copied().collect();
            while let Some(parent) = parents.pop() {
                let children = members.get(&parent).and_then(|member| member.process.children().ok());
                for pid in children.unwrap_or_default() {
                    if with_pid(&members, pid).is_some() {
                        continue;
                    }
                    // A child that has ended or may not be monitored does not join.
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

/// The identity of the process with this ID.
fn with_pid(members: &BTreeMap<TargetId, Member>, pid: u32) -> Option<TargetId> {
    let all = TargetId::process(pid, Duration::ZERO)..=TargetId::process(pid, Duration::MAX);
    members.range(all).next().map(|(&id, _)| id)
}
