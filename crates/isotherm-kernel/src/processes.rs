//! The processes that a run monitors, as they appear and end: those of a selection, and their descendants.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use isotherm_core::{AddressSpace, BoxError, Layout, Mapping, TargetId, TargetSpace, chain};

use crate::listing::{ROOT, parent, process_ids};
use crate::maps::MappingNames;
use crate::part::{Part, page_ranges};
use crate::select::{Finder, MOST_SELECTED, Selection};
use crate::unreadable::Unreadable;
use crate::{Process, TargetError};

/// A process of a run.
#[derive(Debug)]
pub struct Member {
    /// The process.
    pub process: Process,
    /// The command line when it was read last. `execve(2)` changes it.
    pub command: String,
    /// The mappings when they were read last.
    mappings: Arc<[Mapping]>,
    /// Their names.
    names: MappingNames,
    /// What the process was like just before the mappings were read. `None` before the first update.
    read: Option<LastRead>,
    /// The error number of the last attempt to read the mappings, if it failed; 0 for an error without one.
    failed: Option<i32>,
    /// Whether the process leaves when it becomes another program that the selection does not name.
    is_selected: bool,
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
    fn open(pid: u32) -> Result<Self, TargetError> {
        let mut names = MappingNames::default();
        let (process, mappings) = Process::open_mapped(pid, &mut names)?;
        Ok(Self { process, command: String::new(), mappings, names, read: None, failed: None, is_selected: false })
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

    /// Reads the command line and the mappings. On an error, both stay as they were.
    fn read(&mut self, part: &Part) -> Result<(), Unreadable> {
        let pages_mapped = self.process.pages_mapped();
        let read = self.process.cpu_time().map(|cpu| LastRead { at: Instant::now(), cpu, pages_mapped });
        self.read = None;
        self.mappings = part.of(&self.process.read_mappings(&mut self.names)?);
        self.names.tidy();
        let command = self.process.command();
        if !command.is_empty() {
            self.command = command;
        }
        self.read = read;
        Ok(())
    }

    /// Reads the process if that `is_due`. Returns what the user must know of, if there is news.
    fn update(&mut self, is_due: bool, part: &Part) -> Result<Option<String>, Unreadable> {
        if !is_due {
            return if self.process.has_ended() { Err(Unreadable::Ended) } else { Ok(None) };
        }
        match self.read(part) {
            Ok(()) => {
                self.failed = None;
                Ok(None)
            }
            Err(Unreadable::ForNow(error)) => {
                let failed = Some(error.raw_os_error().unwrap_or_default());
                let is_news = std::mem::replace(&mut self.failed, failed) != failed;
                let error = Unreadable::ForNow(error);
                let text = || {
                    let (id, name) = (self.process.id(), self.process.name());
                    format!(
                        "{id} ({name}): {}; its mappings stay as they were, and isotherm tries again",
                        chain(&error)
                    )
                };
                Ok(is_news.then(text))
            }
            Err(error) => Err(error),
        }
    }
}

/// The processes of a run as of the last survey. Clones share one table.
#[derive(Clone, Debug, Default)]
pub struct ProcessTable {
    members: Arc<Mutex<BTreeMap<TargetId, Member>>>,
    news: Arc<Mutex<Vec<String>>>,
}

/// At most this much news waits to be taken.
const MOST_NEWS: usize = 64;

impl ProcessTable {
    /// Locks the table of the processes, by identity.
    pub fn members(&self) -> MutexGuard<'_, BTreeMap<TargetId, Member>> {
        // A panic in another thread leaves the map consistent, because each change is one insertion or removal.
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what has happened since the last call that the user must know of: processes that cannot be read at the
    /// moment, that are no longer watched although they live, or that did not join.
    pub fn take_news(&self) -> Vec<String> {
        std::mem::take(&mut *self.news.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn tell(&self, news: String) {
        let mut all = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() < MOST_NEWS && !all.contains(&news) {
            all.push(news);
        }
    }
}

/// The address spaces of the processes of a selection and, optionally, of their descendants.
#[derive(Debug)]
pub struct Processes {
    process_table: ProcessTable,
    /// The process whose end ends the run.
    leader: Option<TargetId>,
    /// Whether the run goes on while there is no process.
    waits: bool,
    /// The part of each process that is watched.
    part: Part,
    finder: Finder,
    /// Whether it was told that the selection names more processes than are watched.
    told_too_many: bool,
    /// The processes of the machine whose parents are known not to be in the table.
    others: HashSet<u32>,
    /// The last process whose mappings were read, if not all are read each time.
    last_read: Option<TargetId>,
    /// The first process that is no longer watched although it lives.
    lost: Option<(TargetId, TargetError)>,
    /// The processes that do not join, and the error number, which was told.
    kept_out: BTreeMap<u32, i32>,
}

/// The mappings of at most this many known processes are read at a time. The others are read in turns. Processes that
/// have not run since they were read need not be read again.
const MOST_READ: usize = 64;

/// Errors of at most this many processes are remembered, so that they are told once.
const MOST_KEPT_OUT: usize = 1024;

impl Processes {
    /// Monitors the processes with these IDs; with `children`, their descendants, too.
    ///
    /// # Errors
    /// As [`select`](Self::select).
    pub fn new(pids: impl IntoIterator<Item = u32>, children: bool) -> Result<Self, TargetError> {
        Self::select(Selection { children, ..Selection::pids(pids) })
    }

    /// Monitors the processes of a selection. Those that belong to it later join as they appear.
    ///
    /// A descendant is missed if its parent ended before a reading found the descendant, because the kernel gives it
    /// another parent then.
    ///
    /// # Errors
    /// Fails if a process that is named by its ID cannot be monitored, if no process or more than [`MOST_SELECTED`]
    /// match, if none of them can be monitored, or if descendants belong to the selection and the kernel does not list
    /// children.
    pub fn select(selection: Selection) -> Result<Self, TargetError> {
        Self::begin(selection, false)
    }

    /// As [`select`](Self::select), but no process need match at the start, and the run goes on while none does.
    ///
    /// # Errors
    /// As [`select`](Self::select).
    pub fn wait_for(selection: Selection) -> Result<Self, TargetError> {
        Self::begin(selection, true)
    }

    fn begin(selection: Selection, waits: bool) -> Result<Self, TargetError> {
        let mut begun = Self {
            process_table: ProcessTable::default(),
            leader: None,
            waits,
            part: Part::default(),
            finder: Finder::new(selection),
            told_too_many: false,
            others: HashSet::new(),
            last_read: None,
            lost: None,
            kept_out: BTreeMap::new(),
        };
        for pid in begun.finder.selection().named_pids() {
            let member = Member::open(pid)?;
            begun.process_table.members().insert(member.process.id(), member);
        }
        if begun.finder.selection().is_open() {
            begun.find_first()?;
        }
        if begun.finder.selection().children {
            for member in begun.process_table.members().values() {
                if let Err(Unreadable::ForNow(source) | Unreadable::ForGood(source)) = member.process.children() {
                    return Err(TargetError::Lookup { pid: member.process.pid(), source });
                }
            }
        }
        Ok(begun)
    }

    /// Adds the processes that belong to the selection at the start.
    fn find_first(&mut self) -> Result<(), TargetError> {
        let table = self.process_table.clone();
        let mut members = table.members();
        let found = self.finder.find(Instant::now(), |pid| with_pid(&members, pid).is_some());
        let count = found.len() + members.len();
        if count > MOST_SELECTED {
            return Err(TargetError::TooMany {
                selection: self.finder.selection().to_string(),
                count,
                most: MOST_SELECTED,
            });
        }
        let mut errors = Vec::new();
        for pid in found {
            match Member::open(pid) {
                Ok(member) => {
                    members.insert(member.process.id(), Member { is_selected: true, ..member });
                }
                Err(error) if error.is_no_process() => {}
                Err(error) => {
                    self.keeps_out(pid, &error);
                    errors.push(error);
                }
            }
        }
        if members.is_empty() && !self.waits {
            let selection = self.finder.selection().to_string();
            return Err(errors.into_iter().next().unwrap_or(TargetError::NoneSelected { selection }));
        }
        // One line for all of them.
        if let Some(first) = errors.first() {
            table.tell(format!(
                "not watched: {} of the processes that match; the first: {}",
                errors.len(),
                chain(first)
            ));
        }
        Ok(())
    }

    /// Ends the run when the process `pid` ends, even if other processes still run. A process that is not in the table
    /// counts as ended.
    #[must_use]
    pub fn ending_with(self, pid: u32) -> Self {
        let leader = with_pid(&self.process_table.members(), pid).unwrap_or(TargetId::process(pid, Duration::ZERO));
        Self { leader: Some(leader), ..self }
    }

    /// Monitors only a part of each process.
    #[must_use]
    pub fn narrowed_to(self, part: Part) -> Self {
        let part = Part { ranges: page_ranges(part.ranges), ..part };
        for member in self.process_table.members().values_mut() {
            member.mappings = part.of(&member.mappings);
        }
        Self { part, ..self }
    }

    /// The shared table of the processes. Every survey updates it.
    pub fn process_table(&self) -> ProcessTable {
        self.process_table.clone()
    }
}

impl AddressSpace for Processes {
    /// Reads which processes there are now, and their mappings. Of many processes, the mappings of some are those that
    /// were read a short time ago. So are those of a process that cannot be read at the moment.
    ///
    /// # Errors
    /// Fails if no process is left, or the one that the run ends with is not, and another reason than its end is the
    /// cause.
    fn read_targets(&mut self) -> Result<Vec<TargetSpace>, BoxError> {
        let table = self.process_table.clone();
        let mut members = table.members();
        let activities: Vec<_> = members.iter().map(|(&id, member)| (id, member.activity())).collect();
        let with =
            |wanted: fn(Activity) -> bool| activities.iter().filter(move |(_, is)| wanted(*is)).map(|&(id, _)| id);
        let mut changed: BTreeSet<TargetId> = with(|activity| activity == Activity::Mapped).collect();
        let children = self.finder.selection().children;
        if children {
            if members.len() <= MOST_READ {
                self.others.clear();
                self.find_children(&mut members, with(|activity| activity != Activity::Rest).collect());
            } else {
                self.find_descendants(&mut members);
            }
        }
        if self.finder.selection().is_open() {
            self.find_selected(&mut members);
        }
        if changed.len() > MOST_READ {
            changed = self.turn(&changed);
        }
        let part = &self.part;
        members.retain(|id, member| {
            let command = if member.is_selected { member.command.clone() } else { String::new() };
            match member.update(member.read.is_none() || changed.contains(id), part) {
                Ok(news) => {
                    news.into_iter().for_each(|news| table.tell(news));
                    let is_other = member.is_selected && !command.is_empty() && command != member.command;
                    if is_other && !children && !self.finder.takes(member.process.pid()) {
                        return false;
                    }
                }
                Err(Unreadable::Ended) => return false,
                Err(source) => {
                    let pid = id.pid().unwrap_or_default();
                    let lost = TargetError::Lost { pid, name: member.process.name(), source };
                    table.tell(chain(&lost));
                    self.lost.get_or_insert((*id, lost));
                    return false;
                }
            }
            true
        });
        let space = |(&id, member): (&TargetId, &Member)| TargetSpace {
            id,
            layout: Layout::Process,
            mappings: Arc::clone(&member.mappings),
        };
        let mut spaces: Vec<_> = members.iter().map(space).collect();
        if self.leader.is_some_and(|leader| !members.contains_key(&leader)) {
            spaces.clear();
        }
        if spaces.is_empty()
            && let Some((id, lost)) = self.lost.take_if(|(id, _)| self.leader.is_none_or(|leader| leader == *id))
        {
            debug_assert!(!members.contains_key(&id), "{id}");
            return Err(lost.into());
        }
        Ok(spaces)
    }

    fn awaits_targets(&self) -> bool {
        self.waits
    }
}

impl Processes {
    /// Adds the processes that belong to the selection by now.
    fn find_selected(&mut self, members: &mut BTreeMap<TargetId, Member>) {
        for pid in self.finder.find(Instant::now(), |pid| with_pid(members, pid).is_some()) {
            if members.len() >= MOST_SELECTED {
                if !std::mem::replace(&mut self.told_too_many, true) {
                    let selection = self.finder.selection();
                    self.process_table.tell(format!("{selection}: no more than {MOST_SELECTED} are watched"));
                }
                return;
            }
            if let Ok(Some(id)) = self.join(members, pid)
                && let Some(member) = members.get_mut(&id)
            {
                member.is_selected = true;
            }
        }
    }

    /// Adds the children of these members, and theirs.
    fn find_children(&mut self, members: &mut BTreeMap<TargetId, Member>, mut parents: Vec<TargetId>) {
        // A child that joins can have children itself.
        while let Some(parent) = parents.pop() {
            let children = match members.get(&parent).map(|member| member.process.children()) {
                Some(Ok(children)) => children,
                Some(Err(Unreadable::Ended)) | None => continue,
                Some(Err(error)) => {
                    self.process_table.tell(format!("{parent}: its children cannot be read: {}", chain(&error)));
                    continue;
                }
            };
            for pid in children {
                parents.extend(self.join(members, pid).ok().flatten());
            }
        }
    }

    /// Adds a process, unless it is a member already. A process that has ended or may not be monitored does not join.
    ///
    /// # Errors
    /// Fails if a later attempt can succeed.
    fn join(&mut self, members: &mut BTreeMap<TargetId, Member>, pid: u32) -> Result<Option<TargetId>, ()> {
        if with_pid(members, pid).is_some() || self.finder.excepts(pid) {
            return Ok(None);
        }
        let (error, again) = match Member::open(pid) {
            Ok(member) => {
                let id = member.process.id();
                self.kept_out.remove(&pid);
                members.insert(id, member);
                return Ok(Some(id));
            }
            Err(error) if error.is_no_process() => {
                self.kept_out.remove(&pid);
                return Ok(None);
            }
            Err(error @ TargetError::NotPermitted { .. }) => (error, Ok(None)),
            Err(error) => (error, Err(())),
        };
        if self.keeps_out(pid, &error) {
            self.process_table.tell(format!("a process is not watched: {}", chain(&error)));
        }
        again
    }

    /// Remembers that a process does not join. Returns whether that is news.
    fn keeps_out(&mut self, pid: u32, error: &TargetError) -> bool {
        let errno = std::error::Error::source(error)
            .and_then(|source| source.downcast_ref::<std::io::Error>()?.raw_os_error())
            .unwrap_or_default();
        let is_news = self.kept_out.insert(pid, errno) != Some(errno);
        // A process that is not asked for again is forgotten at some time.
        if self.kept_out.len() > MOST_KEPT_OUT {
            self.kept_out.pop_first();
        }
        is_news
    }

    /// Adds the descendants of the members. If there are many members, it is cheaper to look at the parents of the
    /// processes that are new on the machine.
    fn find_descendants(&mut self, members: &mut BTreeMap<TargetId, Member>) {
        let pids: HashSet<u32> = process_ids(Path::new(ROOT)).collect();
        self.others.retain(|pid| pids.contains(pid));
        let is_new = |pid: &u32| !self.others.contains(pid) && with_pid(members, *pid).is_none();
        let mut new: Vec<(u32, u32)> = pids
            .iter()
            .filter(|pid| is_new(pid))
            .filter_map(|&pid| Some((pid, parent(Path::new(ROOT), pid)?)))
            .collect();
        // A child that joins can have children itself, which can have lower IDs.
        let mut again = HashSet::new();
        loop {
            let before = new.len();
            new.retain(|&(pid, parent)| {
                if again.contains(&pid) || with_pid(members, parent).is_none() {
                    return true;
                }
                let joined = self.join(members, pid);
                if joined.is_err() {
                    again.insert(pid);
                }
                !matches!(joined, Ok(Some(_)))
            });
            if new.len() == before {
                break;
            }
        }
        new.retain(|(pid, _)| !again.contains(pid));
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

/// The identity of the process with this ID.
fn with_pid(members: &BTreeMap<TargetId, Member>, pid: u32) -> Option<TargetId> {
    let all = TargetId::process(pid, Duration::ZERO)..=TargetId::process(pid, Duration::MAX);
    members.range(all).next().map(|(&id, _)| id)
}
