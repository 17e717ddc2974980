//! The processes that a run monitors, as they appear and end: those of a selection, and their descendants.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use isotherm_core::{AddressSpace, BoxError, Layout, MOST_JOIN, TargetId, TargetSpace, chain};

use crate::births::Births;
use crate::listing::{PidNamespace, ROOT, parent, process_ids};
use crate::member::{Activity, Member, Update};
use crate::part::{Part, page_ranges};
use crate::select::{Finder, Selection};
use crate::shared_spaces::SharedSpaces;
use crate::unreadable::Unreadable;
use crate::{ProcessTable, TargetError};

/// The address spaces of the processes of a selection and, optionally, of their descendants.
#[derive(Debug)]
pub struct Processes {
    process_table: ProcessTable,
    /// Whether the run goes on while there is no process.
    waits: bool,
    /// The part of each process that is watched.
    part: Part,
    finder: Finder,
    /// Whether looks find the processes that belong to the selection. Otherwise, readings do.
    has_looks: bool,
    /// The PID namespace of this process.
    namespace: PidNamespace,
    /// How many processes may join at a reading or a look, and how many more at this one.
    most_join: usize,
    room: usize,
    /// Whether it was reported that the selection names more processes than are watched.
    told_too_many: bool,
    /// The processes of the machine whose parents are known not to be in the table.
    others: HashSet<u32>,
    /// The processes that have begun and are no members yet.
    births: Births,
    /// Which of the members share one address space.
    shared: SharedSpaces,
    /// Members with children that did not join, and may join later.
    unfinished: BTreeSet<TargetId>,
    /// The last process whose mappings were read, if not all are read each time.
    last_read: Option<TargetId>,
    /// The last process whose cgroup was checked, if the selection depends on it.
    last_placed: Option<TargetId>,
    /// How often the selection had changed when members were checked last.
    changes: u64,
    /// The first process that is no longer watched although it lives.
    lost: Option<(TargetId, TargetError)>,
    /// The processes that do not join, and the error number, which was reported.
    kept_out: BTreeMap<u32, i32>,
}

/// The mappings of at most this many known processes are read at a time. The others are read in turns. Processes that
/// have not run since they were read need not be read again.
const MOST_READ: usize = 64;

/// The cgroups of at most this many members are checked in a reading. The others have their turns.
const MOST_PLACED: usize = 16;

/// Errors of at most this many processes are remembered, so that each is reported once.
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
    /// Without `CAP_NET_ADMIN`, a descendant is missed if its parent ended before a reading found the descendant,
    /// because the kernel gives it another parent then, and does not report who has started it.
    ///
    /// # Errors
    /// Fails if a process that is named by its ID cannot be monitored, if no process or more than [`Selection::most`]
    /// match, if none of them can be monitored, or if descendants belong to the selection and the kernel does not list
    /// children.
    pub fn select(selection: Selection) -> Result<Self, TargetError> {
        Self::begin(selection, false)
    }

    /// As [`select`](Self::select), but no process need match at the start, and the run continues while none does.
    ///
    /// # Errors
    /// As [`select`](Self::select).
    pub fn wait_for(selection: Selection) -> Result<Self, TargetError> {
        Self::begin(selection, true)
    }

    fn begin(selection: Selection, waits: bool) -> Result<Self, TargetError> {
        if let Some(count) = selection.too_many(Path::new(ROOT)).map_err(TargetError::Listing)? {
            return Err(TargetError::TooMany { selection: selection.to_string(), count, most: selection.most });
        }
        let mut begun = Self {
            process_table: ProcessTable::default(),
            waits,
            part: Part::default(),
            finder: Finder::new(selection),
            has_looks: false,
            namespace: PidNamespace::own(Path::new(ROOT)),
            most_join: MOST_JOIN,
            room: usize::MAX,
            told_too_many: false,
            others: HashSet::new(),
            births: Births::default(),
            shared: SharedSpaces::default(),
            unfinished: BTreeSet::new(),
            last_read: None,
            last_placed: None,
            changes: 0,
            lost: None,
            kept_out: BTreeMap::new(),
        };
        for pid in begun.finder.selection().named_pids() {
            let member = begun.open(pid)?;
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
            let table = begun.process_table.clone();
            let mut members = table.members();
            let all = members.keys().copied().collect();
            begun.find_children(&mut members, all);
        }
        Ok(begun)
    }

    /// Opens a process that is to be watched.
    fn open(&self, pid: u32) -> Result<Member, TargetError> {
        Member::open(pid, &self.part, self.process_table.ends(), &self.namespace)
    }

    /// Adds the processes that belong to the selection at the start.
    fn find_first(&mut self) -> Result<(), TargetError> {
        let table = self.process_table.clone();
        let mut members = table.members();
        let most = self.finder.selection().most.saturating_sub(members.len());
        let found = self.finder.find(Instant::now(), most, |pid| with_pid(&members, pid).is_some());
        let found = found.map_err(TargetError::Listing)?;
        let mut errors = Vec::new();
        for pid in found {
            match self.open(pid) {
                Ok(mut member) => {
                    member.is_selected = true;
                    members.insert(member.process.id(), member);
                }
                Err(error) if error.is_no_process() => {}
                Err(error) => {
                    self.keeps_out(pid, &error);
                    errors.push(error);
                }
            }
        }
        if members.is_empty() && !self.waits {
            let selection = self.finder.selection();
            let none = || TargetError::NoneSelected {
                selection: selection.to_string(),
                advice: selection.advice(Path::new("/")),
            };
            return Err(errors.into_iter().next().unwrap_or_else(none));
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
        self.process_table.end_with(leader);
        self
    }

    /// Monitors only a part of each process. What belongs to the part may be mapped later.
    ///
    /// # Errors
    /// Fails if there are processes, and nothing of them belongs to the part now. A run that waits for processes, or
    /// ends with one that has just begun, waits for the mappings, too.
    pub fn narrowed_to(self, part: Part) -> Result<Self, TargetError> {
        let part = Part { ranges: page_ranges(part.ranges), ..part };
        let mut members = self.process_table.members();
        for member in members.values_mut() {
            member.mappings = part.of(&member.mappings);
        }
        let is_empty = members.values().all(|member| member.mappings.is_empty());
        drop(members);
        if is_empty && !part.is_whole() && !self.waits && self.process_table.leader().is_none() {
            let selection = self.finder.selection().to_string();
            return Err(TargetError::NothingMapped { part: part.to_string(), selection });
        }
        Ok(Self { part, ..self })
    }

    /// Whether processes can join that have not been named by their ID.
    pub fn is_open(&self) -> bool {
        self.finder.selection().is_open()
    }

    /// Counts the processes that have ended since the last reading, for [`ProcessTable::take_unseen`] at the end of a
    /// run.
    pub fn count_unseen(&mut self) {
        self.finder.hear(Instant::now());
        let table = self.process_table.clone();
        let members = table.members();
        self.hear_of_births(&members);
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
        // A parent may have ended since.
        self.hear_of_births(&members);
        self.leave(&mut members)?;
        self.leave_by_cgroup(&mut members);
        let activities: Vec<_> = members.iter_mut().map(|(&id, member)| (id, member.activity())).collect();
        let with =
            |wanted: fn(Activity) -> bool| activities.iter().filter(move |(_, is)| wanted(*is)).map(|&(id, _)| id);
        let mut changed: BTreeSet<TargetId> = with(|activity| activity == Activity::Mapped).collect();
        if changed.len() > MOST_READ {
            changed = turn(&mut self.last_read, &changed, MOST_READ);
        }
        let children = self.finder.selection().children;
        let part = &self.part;
        let mut other_programs = HashSet::new();
        members.retain(|id, member| {
            !changed.contains(id)
                || match member.update(part) {
                    Ok(Update { is_other, news }) => {
                        news.into_iter().for_each(|news| table.tell(news));
                        other_programs.extend(is_other.then_some(*id));
                        let may_leave = is_other && member.is_selected && !children;
                        match self.finder.selection().parties() {
                            Some(parties) => !may_leave || parties.check(*id),
                            None => !may_leave || self.finder.takes(member.process.pid()),
                        }
                    }
                    Err(Unreadable::Ended) => false,
                    Err(source) => {
                        let pid = id.pid().unwrap_or_default();
                        let lost = TargetError::Lost { pid, name: member.process.name(), source };
                        table.tell(chain(&lost));
                        self.lost.get_or_insert((*id, lost));
                        false
                    }
                }
        });
        // Children are looked for last: their parent has run since it was read if it starts more of them meanwhile.
        self.room = self.most_join;
        if children {
            if members.len() <= MOST_READ {
                self.others.clear();
                let unfinished = std::mem::take(&mut self.unfinished).into_iter();
                let parents = with(|activity| activity != Activity::Rest).chain(unfinished).collect();
                self.find_children(&mut members, parents);
            } else {
                self.unfinished.clear();
                self.find_descendants(&mut members);
            }
        }
        if self.finder.selection().is_open() && !self.has_looks {
            self.find_selected(&mut members);
        }
        self.find_orphans(&mut members);
        self.find_shared(&mut members, &other_programs);
        let mut spaces = spaces(&members);
        if self.process_table.leader().is_some_and(|leader| !members.contains_key(&leader)) {
            spaces.clear();
        }
        if spaces.is_empty()
            && let Some((id, lost)) = self.lost.take_if(|(id, _)| table.leader().is_none_or(|leader| leader == *id))
        {
            debug_assert!(!members.contains_key(&id), "{id}");
            return Err(lost.into());
        }
        Ok(spaces)
    }

    fn resident(&mut self, target: TargetId) -> Option<u64> {
        // A part of a process has no counter.
        let pid = target.pid().filter(|_| self.part.is_whole())?;
        crate::resident(Path::new(ROOT), pid).ok()
    }

    fn look_for_new(&mut self, most: usize) -> Result<Vec<TargetSpace>, BoxError> {
        self.has_looks = true;
        if !self.finder.selection().is_open() {
            return Ok(Vec::new());
        }
        let table = self.process_table.clone();
        let mut members = table.members();
        self.room = most.min(MOST_JOIN);
        let joined = self.find_selected(&mut members);
        self.find_shared(&mut members, &HashSet::new());
        let alone = |id| members.get(id).filter(|member| member.shares.is_none());
        Ok(joined.iter().filter_map(|id| Some(space(id, alone(id)?))).collect())
    }

    fn set_most_join(&mut self, most: usize) {
        self.most_join = most.min(MOST_JOIN);
    }

    fn parties(&mut self, target: TargetId) -> Arc<[u32]> {
        self.finder.selection().parties().map_or_else(Arc::default, |parties| parties.of(target))
    }

    fn has_parties(&self) -> bool {
        self.finder.selection().parties().is_some()
    }

    /// Whether processes are waited for, or there are some that may map later what belongs to the part.
    fn awaits_targets(&self) -> bool {
        let members = self.process_table.members();
        let goes_on = self.process_table.leader().map_or(!members.is_empty(), |leader| members.contains_key(&leader));
        self.waits || (goes_on && !self.part.is_whole())
    }
}

impl Processes {
    /// Removes the processes that have ended.
    ///
    /// # Errors
    /// If it cannot be found out which have.
    fn leave(&self, members: &mut BTreeMap<TargetId, Member>) -> Result<(), BoxError> {
        for pid in self.process_table.ends().ended(members.len())? {
            if let Some(id) = with_pid(members, pid) {
                members.remove(&id);
                self.finder.selection().parties().into_iter().for_each(|parties| parties.ended(id));
            }
        }
        Ok(())
    }

    /// Finds out which members share one address space. Those that have become `other_programs` have another one now.
    fn find_shared(&mut self, members: &mut BTreeMap<TargetId, Member>, other_programs: &HashSet<TargetId>) {
        for id in self.shared.find(members, |id| other_programs.contains(id)) {
            let Some((member, owner)) = members.get(&id).and_then(|of| Some((of, of.shares?))) else { continue };
            let name = member.process.name();
            self.process_table.tell(format!("{id} ({name}) shares the memory of {owner}: it is counted there"));
        }
    }

    /// Removes the processes that were moved to a cgroup which the selection does not name. Descendants belong to it
    /// wherever they are.
    fn leave_by_cgroup(&mut self, members: &mut BTreeMap<TargetId, Member>) {
        let selection = self.finder.selection();
        if let Some(parties) = selection.parties() {
            let changes = selection.changes();
            let most = if changes == self.changes { MOST_PLACED } else { usize::MAX };
            self.changes = changes;
            let all = members.keys().copied().collect();
            let gone = turn(&mut self.last_placed, &all, most).into_iter().filter(|id| !parties.check(*id));
            gone.for_each(|id| drop(members.remove(&id)));
            return;
        }
        if selection.children || !selection.is_by_cgroup() {
            return;
        }
        let selected = members.iter().filter(|(_, member)| member.is_selected).map(|(id, _)| *id).collect();
        for id in turn(&mut self.last_placed, &selected, MOST_PLACED) {
            if id.pid().is_some_and(|pid| !self.finder.names(pid)) {
                members.remove(&id);
            }
        }
    }

    /// Takes in which processes have begun and ended. Counts those that were never members.
    fn hear_of_births(&mut self, members: &BTreeMap<TargetId, Member>) {
        let belonging = self.finder.selection().belonging();
        let lives = self.finder.take_lives();
        let ended = self.births.take(&lives, belonging, |pid| with_pid(members, pid).is_some());
        self.process_table.add_unseen(ended);
    }

    /// Adds the descendants whose parents have ended before they were found.
    fn find_orphans(&mut self, members: &mut BTreeMap<TargetId, Member>) {
        let waiting = self.births.waiting(|pid| with_pid(members, pid).is_some());
        if self.finder.selection().children {
            for pid in waiting {
                // One without memory is about to end.
                let is_refused = self.join(members, pid) == Ok(None) && self.kept_out.contains_key(&pid);
                if is_refused || self.finder.excepts(pid) {
                    self.births.forget(pid);
                }
            }
        }
        let ended = self.births.check(Instant::now());
        self.process_table.add_unseen(ended);
    }

    /// Adds the processes that belong to the selection by now. Returns those that are new.
    fn find_selected(&mut self, members: &mut BTreeMap<TargetId, Member>) -> Vec<TargetId> {
        let found = self.finder.find(Instant::now(), self.room, |pid| with_pid(members, pid).is_some());
        let is_by_cgroup = self.finder.selection().is_by_cgroup();
        let mut joined = Vec::new();
        // What cannot be listed now is found the next time.
        for pid in found.unwrap_or_default() {
            let Ok(Some(id)) = self.join(members, pid) else { continue };
            let Entry::Occupied(mut entry) = members.entry(id) else { continue };
            // The process may have been moved to another cgroup while it was opened, or have ended.
            if let Some(parties) = self.finder.selection().parties() {
                if parties.of(id).is_empty() {
                    entry.remove();
                    continue;
                }
            } else if is_by_cgroup && !self.finder.names_in(pid, entry.get().cgroup.as_deref()) {
                entry.remove();
                continue;
            }
            entry.get_mut().is_selected = true;
            joined.push(id);
        }
        joined
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
                match self.join(members, pid) {
                    Ok(joined) => parents.extend(joined),
                    Err(()) => {
                        self.unfinished.insert(parent);
                    }
                }
            }
        }
    }

    /// Adds a process, unless it is a member already. A process that has ended or may not be monitored does not join,
    /// nor does this one, which watches.
    ///
    /// # Errors
    /// Fails if a later attempt can succeed.
    fn join(&mut self, members: &mut BTreeMap<TargetId, Member>, pid: u32) -> Result<Option<TargetId>, ()> {
        if pid == std::process::id() || with_pid(members, pid).is_some() || self.finder.excepts(pid) {
            return Ok(None);
        }
        if self.room == 0 || self.is_full(members.len()) {
            return Err(());
        }
        let (error, again) = match self.open(pid) {
            Ok(member) => {
                let id = member.process.id();
                self.kept_out.remove(&pid);
                self.room = self.room.saturating_sub(1);
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

    /// Whether as many processes are members as may be. It is reported once.
    fn is_full(&mut self, members: usize) -> bool {
        let selection = self.finder.selection();
        let is_full = members >= selection.most;
        if is_full && !std::mem::replace(&mut self.told_too_many, true) {
            self.process_table.tell(format!("{selection}: no more than {} are watched", selection.most));
        }
        is_full
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
        // What cannot be listed now is found the next time.
        let Ok(pids) = process_ids(Path::new(ROOT)) else { return };
        let pids: HashSet<u32> = pids.collect();
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
                let Some(parent) = with_pid(members, parent).filter(|_| !again.contains(&pid)) else { return true };
                let joined = self.join(members, pid);
                if joined.is_err() {
                    again.insert(pid);
                    self.unfinished.insert(parent);
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
}

/// At most `most` of many processes, each of which has its turn: those after `last`, which was the last one.
fn turn(last: &mut Option<TargetId>, all: &BTreeSet<TargetId>, most: usize) -> BTreeSet<TargetId> {
    let (first, rest): (Vec<TargetId>, Vec<TargetId>) =
        all.iter().copied().partition(|id| last.is_none_or(|last| *id > last));
    let turn: Vec<TargetId> = first.into_iter().chain(rest).take(most).collect();
    *last = turn.last().copied();
    turn.into_iter().collect()
}

/// What the members have mapped, as it was read last. One of those that share an address space has it.
fn spaces(members: &BTreeMap<TargetId, Member>) -> Vec<TargetSpace> {
    let alone = members.iter().filter(|(_, member)| member.shares.is_none());
    alone.map(|(id, member)| space(id, member)).collect()
}

/// What a member has mapped, as it was read last.
fn space(&id: &TargetId, member: &Member) -> TargetSpace {
    TargetSpace { id, layout: Layout::Process, mappings: Arc::clone(&member.mappings) }
}

/// The identity of the process with this ID.
fn with_pid(members: &BTreeMap<TargetId, Member>, pid: u32) -> Option<TargetId> {
    let all = TargetId::process(pid, Duration::ZERO)..=TargetId::process(pid, Duration::MAX);
    members.range(all).next().map(|(&id, _)| id)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};

    use isotherm_testing::or_skip;

    use super::*;
    use crate::process_events::ProcessEvents;

    #[test]
    fn descendants_that_end_at_once_are_counted_and_those_of_parents_that_have_ended_join() {
        // Only root may listen.
        or_skip!(ProcessEvents::open());
        let script = "while read line; do eval \"$line\"; echo done; done";
        let mut shell = Command::new("sh");
        let mut shell = shell.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (pid, mut input) = (shell.id(), shell.stdin.take().unwrap());
        let mut lines = BufReader::new(shell.stdout.take().unwrap()).lines();
        let mut run = |line: &str| {
            writeln!(input, "{line}").unwrap();
            lines.next().unwrap().unwrap()
        };
        let mut processes = Processes::new([pid], true).unwrap();
        let table = processes.process_table();
        processes.read_targets().unwrap();
        run("for n in 1 2 3 4 5 6 7; do /bin/true; done");
        processes.read_targets().unwrap();
        assert_eq!(table.take_unseen(), 7);
        assert_eq!(table.take_unseen(), 0);
        // The shell in between ends, and its child goes on.
        let orphan: u32 = run("sh -c 'sleep 600 >/dev/null & echo $!'").parse().unwrap();
        // Its end was waited for.
        assert_eq!(run(""), "done");
        let is_watched = processes.read_targets().unwrap().iter().any(|space| space.id.pid() == Some(orphan));
        run(&format!("kill {orphan}"));
        drop(input);
        shell.wait().unwrap();
        assert!(is_watched, "{orphan}");
    }
}
