//! The processes that a run monitors, and their descendants as they appear and end.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use isotherm_core::{AddressSpace, BoxError, Layout, Mapping, TargetId, TargetSpace};

use crate::{Process, TargetError};

/// A process of a run.
#[derive(Debug)]
pub struct Member {
    /// The process.
    pub process: Process,
    /// The command line when it was read last. `execve(2)` changes it.
    pub command: String,
    /// The mappings when they were read last. `None` before that.
    mappings: Option<Arc<[Mapping]>>,
    /// What the process was like just before the mappings were read.
    read: Option<LastRead>,
}

/// What a process was like when its mappings were read.
#[derive(Clone, Copy, Debug)]
struct LastRead {
    at: Instant,
    cpu: Duration,
    pages_mapped: Option<u64>,
}

/// What a process has done since its mappings were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activity {
    /// Nothing: it has not run.
    Rest,
    /// It has run, and may have new children. Its address space is as large as before.
    Ran,
    /// Its mappings may be other ones.
    Mapped,
}

/// The mappings of a process that has run are read again after this time even if its address space is as large as
/// before.
const READ_AFTER: Duration = Duration::from_secs(1);

/// The mappings of a process are read again after this time even if it has not run: a process that shares its address
/// space may have changed them.
const LONGEST_REST: Duration = Duration::from_secs(10);

impl Member {
    fn new(process: Process) -> Self {
        Self { process, command: String::new(), mappings: None, read: None }
    }

    fn activity(&self) -> Activity {
        let Some(LastRead { at, cpu, pages_mapped }) = self.read else { return Activity::Mapped };
        let (age, ran) = (at.elapsed(), self.process.cpu_time() != Some(cpu));
        match ran {
            false if age < LONGEST_REST => Activity::Rest,
            true if age < READ_AFTER && self.process.pages_mapped() == pages_mapped => Activity::Ran,
            _ => Activity::Mapped,
        }
    }

    /// Reads the command line and the mappings. Returns false if the process has ended.
    fn read(&mut self) -> bool {
        let pages_mapped = self.process.pages_mapped();
        self.read = self.process.cpu_time().map(|cpu| LastRead { at: Instant::now(), cpu, pages_mapped });
        self.mappings = self.process.mappings().ok().filter(|mappings| !mappings.is_empty());
        self.command = self.process.command();
        self.mappings.is_some()
    }
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
    /// The processes of the machine whose parents are known not to be in the table.
    others: HashSet<u32>,
    /// The last process whose mappings were read, if not all are read each time.
    last_read: Option<TargetId>,
}

/// The mappings of at most this many known processes are read at a time. The others are read in turns. Processes that
/// have not run since they were read need not be read again.
const MOST_READ: usize = 64;

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
            process_table.members().insert(process.id(), Member::new(process));
        }
        Ok(Self { process_table, leader: None, children, others: HashSet::new(), last_read: None })
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
    /// Reads which processes there are now, and their mappings. Of many processes, the mappings of some are those that
    /// were read a short time ago.
    fn read_targets(&mut self) -> Result<Vec<TargetSpace>, BoxError> {
        let table = self.process_table.clone();
        let mut members = table.members();
        let activities: Vec<_> = members.iter().map(|(&id, member)| (id, member.activity())).collect();
        let with =
            |wanted: fn(Activity) -> bool| activities.iter().filter(move |(_, is)| wanted(*is)).map(|&(id, _)| id);
        let mut changed: BTreeSet<TargetId> = with(|activity| activity == Activity::Mapped).collect();
        if self.children {
            if members.len() <= MOST_READ {
                self.others.clear();
                find_children(&mut members, with(|activity| activity != Activity::Rest).collect());
            } else {
                self.find_descendants(&mut members);
            }
        }
        if changed.len() > MOST_READ {
            changed = self.turn(&changed);
        }
        members.retain(|id, member| {
            if member.mappings.is_none() || changed.contains(id) { member.read() } else { !member.process.has_ended() }
        });
        let space = |(&id, member): (&TargetId, &Member)| {
            let mappings = Arc::clone(member.mappings.as_ref()?);
            Some(TargetSpace { id, layout: Layout::Process, mappings })
        };
        let mut spaces: Vec<_> = members.iter().filter_map(space).collect();
        if self.leader.is_some_and(|leader| !members.contains_key(&leader)) {
            spaces.clear();
        }
        Ok(spaces)
    }
}

/// Adds the children of these members, and theirs.
fn find_children(members: &mut BTreeMap<TargetId, Member>, mut parents: Vec<TargetId>) {
    // A child that joins can have children itself.
    while let Some(parent) = parents.pop() {
        let children = members.get(&parent).and_then(|member| member.process.children().ok());
        for pid in children.unwrap_or_default() {
            parents.extend(join(members, pid));
        }
    }
}

/// Adds a process, unless it is a member already. A process that has ended or may not be monitored does not join.
fn join(members: &mut BTreeMap<TargetId, Member>, pid: u32) -> Option<TargetId> {
    if with_pid(members, pid).is_some() {
        return None;
    }
    let process = Process::open(pid).ok()?;
    let id = process.id();
    members.insert(id, Member::new(process));
    Some(id)
}

impl Processes {
    /// Adds the descendants of the members. If there are many members, it is cheaper to look at the parents of the
    /// processes that are new on the machine.
    fn find_descendants(&mut self, members: &mut BTreeMap<TargetId, Member>) {
        let pids: HashSet<u32> = process_ids().collect();
        self.others.retain(|pid| pids.contains(pid));
        let is_new = |pid: &u32| !self.others.contains(pid) && with_pid(members, *pid).is_none();
        let mut new: Vec<(u32, u32)> =
            pids.iter().filter(|pid| is_new(pid)).filter_map(|&pid| Some((pid, parent(pid)?))).collect();
        // A child that joins can have children itself, which can have lower IDs.
        loop {
            let before = new.len();
            new.retain(|&(pid, parent)| with_pid(members, parent).is_none() || join(members, pid).is_none());
            if new.len() == before {
                break;
            }
        }
        self.others.extend(new.into_iter().map(|(pid, _)| pid));
    }

    /// Those of many changed processes whose mappings are read now.
    fn turn(&mut self, changed: &BTreeSet<TargetId>) -> BTreeSet<TargetId> {
        let (first, rest): (Vec<TargetId>, Vec<TargetId>) =
            changed.iter().copied().partition(|id| self.last_read.is_none_or(|last| *id > last));
        let turn: Vec<TargetId> = first.into_iter().chain(rest).take(MOST_READ).collect();
        self.last_read = turn.last().copied();
        turn.into_iter().collect()
    }
}

/// The IDs of all processes of the machine. It opens none of them, which would take ten times as long.
fn process_ids() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The ID of the parent of a process.
fn parent(pid: u32) -> Option<u32> {
    let stat = procfs::process::Process::new(pid.cast_signed()).and_then(|process| process.stat());
    Some(stat.ok()?.ppid.unsigned_abs())
}

/// The identity of the process with this ID.
fn with_pid(members: &BTreeMap<TargetId, Member>, pid: u32) -> Option<TargetId> {
    let all = TargetId::process(pid, Duration::ZERO)..=TargetId::process(pid, Duration::MAX);
    members.range(all).next().map(|(&id, _)| id)
}
