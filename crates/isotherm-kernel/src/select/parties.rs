//! Selections whose processes are watched together: each is a party.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use isotherm_core::TargetId;

use super::container::Containers;
use super::finder::LONGEST_GAP;
use super::{Facts, Selection, Selector};
use crate::listing::ROOT;

/// Selections that can be added and removed while their processes are watched, each with a number. Clones share them.
///
/// A process joins a selection as if that one were alone. It stays until it becomes a process that the selection does
/// not name. A process that is named by its ID is that process only, and no later one with its ID.
#[derive(Clone, Debug, Default)]
pub struct Parties(Arc<Mutex<State>>);

impl PartialEq for Parties {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Parties {}

#[derive(Debug)]
struct State {
    root: PathBuf,
    next: u32,
    selections: BTreeMap<u32, Selection>,
    /// How often the selections have changed.
    changes: u64,
    /// The selections of each process, in the order of their numbers.
    members: HashMap<TargetId, Arc<[u32]>>,
    containers: Containers,
    /// When names of containers were forgotten last.
    forgotten: Instant,
}

impl Default for State {
    fn default() -> Self {
        let root = PathBuf::from(ROOT);
        Self {
            containers: Containers::new(&root),
            root,
            next: 0,
            selections: BTreeMap::new(),
            changes: 0,
            members: HashMap::new(),
            forgotten: Instant::now(),
        }
    }
}

impl Parties {
    /// Adds a selection. Returns its number.
    pub fn add(&self, selection: Selection) -> u32 {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state.changes += 1;
        let known: Vec<TargetId> = state.members.keys().copied().collect();
        let joins = |id: &TargetId| state.facts(*id).is_some_and(|facts| selection.takes(&facts));
        let joined: Vec<TargetId> = known.into_iter().filter(joins).collect();
        for id in joined {
            let before = state.members.remove(&id).unwrap_or_default();
            state.members.insert(id, before.iter().copied().chain([number]).collect());
        }
        state.selections.insert(number, selection);
        number
    }

    /// Removes a selection. Processes that belong to no other one are no longer watched.
    pub fn remove(&self, number: u32) {
        let mut state = self.lock();
        state.changes += 1;
        state.selections.remove(&number);
        for parties in state.members.values_mut().filter(|parties| parties.contains(&number)) {
            *parties = parties.iter().copied().filter(|party| *party != number).collect();
        }
    }

    /// The numbers of the selections that a process belongs to, in their order.
    pub fn of(&self, id: TargetId) -> Arc<[u32]> {
        let mut state = self.lock();
        if let Some(known) = state.members.get(&id) {
            return Arc::clone(known);
        }
        let found = state.find(id, &[]);
        state.members.insert(id, Arc::clone(&found));
        found
    }

    /// Finds out anew which selections a process belongs to, as it may have become another program, or be in another
    /// cgroup. Returns whether it belongs to any.
    pub(crate) fn check(&self, id: TargetId) -> bool {
        let mut state = self.lock();
        let before = state.members.get(&id).cloned().unwrap_or_default();
        let now = state.find(id, &before);
        let belongs = !now.is_empty();
        if now != before {
            state.members.insert(id, now);
        }
        belongs
    }

    /// Takes in which processes there are. What is known of others is forgotten.
    pub fn retain(&self, living: &HashSet<TargetId>) {
        self.lock().members.retain(|id, _| living.contains(id));
    }

    /// Takes in that a process has ended: its ID names it no longer.
    pub(crate) fn ended(&self, id: TargetId) {
        let mut state = self.lock();
        let parties = state.members.get(&id).cloned().unwrap_or_default();
        for party in parties.iter() {
            if let Some(selection) = state.selections.get_mut(party) {
                selection.any.retain(|selector| !matches!(selector, Selector::Pid(pid) if id.pid() == Some(*pid)));
            }
        }
    }

    /// Whether all processes of a selection have ended, and none can join it.
    pub fn is_over(&self, number: u32) -> bool {
        let state = self.lock();
        let exists = |pid: u32| state.root.join(format!("proc/{pid}/stat")).exists();
        state.selections.get(&number).is_none_or(|selection| {
            !selection.is_open()
                && !selection.named_pids().any(exists)
                && !state.members.values().any(|parties| parties.contains(&number))
        })
    }

    /// How often the selections have changed.
    pub(super) fn changes(&self) -> u64 {
        self.lock().changes
    }

    /// Whether any selection takes a process.
    pub(super) fn any_takes(&self, process: &Facts<'_>) -> bool {
        self.lock().selections.values().any(|selection| selection.takes(process))
    }

    /// Whether this holds for all selections.
    pub(super) fn all(&self, holds: impl Fn(&Selection) -> bool) -> bool {
        self.lock().selections.values().all(holds)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change leaves it whole, so a panic of another thread does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn facts(&self, id: TargetId) -> Option<Facts<'_>> {
        Some(Facts::new(Path::new(&self.root), id.pid()?, &self.containers))
    }

    /// The selections that a process belongs to, which belonged to those of `before`.
    fn find(&mut self, id: TargetId, before: &[u32]) -> Arc<[u32]> {
        if self.forgotten.elapsed() >= LONGEST_GAP {
            self.containers.forget();
            self.forgotten = Instant::now();
        }
        let Some(facts) = self.facts(id) else { return Arc::default() };
        let belongs = |(number, selection): &(&u32, &Selection)| match before.contains(number) {
            true => selection.names(&facts),
            false => selection.takes(&facts),
        };
        self.selections.iter().filter(belongs).map(|(number, _)| *number).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;
    use crate::NamePattern;

    /// Selections of processes of a made `/proc`.
    fn made() -> (tempfile::TempDir, Parties) {
        let root = tempfile::tempdir().unwrap();
        let state = State { root: root.path().into(), containers: Containers::new(root.path()), ..State::default() };
        (root, Parties(Arc::new(Mutex::new(state))))
    }

    fn process(root: &tempfile::TempDir, pid: u32, name: &str) -> TargetId {
        let directory = root.path().join(format!("proc/{pid}"));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("comm"), format!("{name}\n")).unwrap();
        fs::write(directory.join("stat"), "").unwrap();
        TargetId::process(pid, Duration::from_secs(pid.into()))
    }

    fn named(name: &str) -> Selection {
        Selection { any: vec![Selector::Name(NamePattern::new(name).unwrap())], ..Selection::default() }
    }

    #[test]
    fn a_process_belongs_to_each_selection_that_takes_it_as_they_come_and_go() {
        let (root, parties) = made();
        let (redis, shell) = (process(&root, 7, "redis"), process(&root, 8, "sh"));
        let all = parties.add(Selection { any: vec![Selector::All], ..Selection::default() });
        let one = parties.add(named("redis"));
        assert_eq!((&*parties.of(redis), &*parties.of(shell)), (&[all, one][..], &[all][..]));
        let other = parties.add(named("^sh$"));
        assert_eq!((&*parties.of(redis), &*parties.of(shell)), (&[all, one][..], &[all, other][..]));
        parties.remove(all);
        assert_eq!((&*parties.of(redis), &*parties.of(shell)), (&[one][..], &[other][..]));
        process(&root, 8, "redis-cli");
        assert!(parties.check(shell));
        assert_eq!(&*parties.of(shell), [one]);
        parties.remove(one);
        assert!(!parties.check(shell) && parties.of(redis).is_empty());
    }

    #[test]
    fn an_id_names_one_process_and_the_selection_is_over_with_it() {
        let (root, parties) = made();
        let first = process(&root, 7, "redis");
        let one = parties.add(Selection::pids([7]));
        assert_eq!(&*parties.of(first), [one]);
        parties.ended(first);
        assert!(!parties.is_over(one), "it is not known yet that it is gone");
        parties.retain(&HashSet::new());
        assert!(parties.is_over(one));
        let later = TargetId::process(7, Duration::from_secs(9));
        assert!(parties.of(later).is_empty(), "another process has the ID");
        let gone = parties.add(Selection::pids([9]));
        assert!(parties.is_over(gone), "it was never there");
        let waits = parties.add(named("nobody"));
        assert!(!parties.is_over(waits));
    }
}
