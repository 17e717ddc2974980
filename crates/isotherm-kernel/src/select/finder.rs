//! Finds the processes of a selection as they appear.

use std::collections::{BinaryHeap, HashMap};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use super::container::Containers;
use super::{Facts, Selection};
use crate::listing::{ROOT, process_ids};
use crate::process_events::{Life, ProcessEvents};

/// A process that does not belong to the selection may call execve(2), change its user or its cgroup, or grow. So it is
/// checked again, soon after it has appeared, and then less and less often. If the kernel reports what the process
/// does, it is checked at once.
const FIRST_GAP: Duration = Duration::from_millis(100);
pub(super) const LONGEST_GAP: Duration = Duration::from_secs(5);

/// If the kernel reports which processes start, all are listed this often, to forget those that have ended.
const LIST_EVERY: Duration = Duration::from_secs(5);

/// Finds the processes of a selection.
#[derive(Debug)]
pub(crate) struct Finder {
    selection: Selection,
    containers: Containers,
    /// When names of containers were forgotten last.
    forgotten: Option<Instant>,
    /// How often the selection had changed when processes were found last.
    changes: u64,
    /// The processes that do not belong to the selection.
    others: HashMap<u32, Other>,
    /// When all processes were listed last. `None` if they are listed the next time.
    listed: Option<Instant>,
    /// Tells what processes do. `None` if the kernel does not.
    events: Option<ProcessEvents>,
    /// Which processes have begun and ended since that was [taken](Self::take_lives).
    lives: Vec<Life>,
}

/// A process that does not belong to the selection.
#[derive(Clone, Copy, Debug)]
struct Other {
    /// When it is checked again.
    due: Instant,
    /// How long after that the next time is.
    gap: Duration,
}

impl Finder {
    pub(crate) fn new(selection: Selection) -> Self {
        let events = if selection.is_open() || selection.children { ProcessEvents::open().ok() } else { None };
        Self {
            selection,
            containers: Containers::new(Path::new(ROOT)),
            forgotten: None,
            changes: 0,
            others: HashMap::new(),
            listed: None,
            events,
            lives: Vec::new(),
        }
    }

    pub(crate) fn selection(&self) -> &Selection {
        &self.selection
    }

    /// Whether a process belongs to the selection.
    pub(crate) fn takes(&self, pid: u32) -> bool {
        self.selection.takes(&self.facts(pid))
    }

    /// Whether a process belongs to the selection, however small it is.
    pub(crate) fn names(&self, pid: u32) -> bool {
        self.selection.names(&self.facts(pid))
    }

    /// Whether a process whose cgroup is `cgroup` belongs to the selection, however small it is.
    pub(crate) fn names_in(&self, pid: u32, cgroup: Option<&str>) -> bool {
        self.selection.names(&self.facts(pid).with_cgroup(cgroup.map(str::to_owned)))
    }

    /// Whether a process is excepted from the selection.
    pub(crate) fn excepts(&self, pid: u32) -> bool {
        self.selection.excepts(&self.facts(pid))
    }

    fn facts(&self, pid: u32) -> Facts<'_> {
        Facts::new(Path::new(ROOT), pid, &self.containers)
    }

    /// The processes of the machine that belong to the selection at `now` and are no members: at most `most`, those
    /// with the highest IDs first, which have mostly started last. So if more processes start than may join, some are
    /// watched soon and for all of their life, and others never. A process that was found is found again as long as it
    /// is no member, less and less often.
    /// If the kernel reports what processes do, only those that did something or are due are checked. All processes are
    /// listed now and then.
    ///
    /// # Errors
    /// If the processes cannot be listed. The next call finds what this one has missed.
    pub(crate) fn find(&mut self, now: Instant, most: usize, is_member: impl Fn(u32) -> bool) -> io::Result<Vec<u32>> {
        if self.forgotten.is_none_or(|at| now >= at + LONGEST_GAP) {
            self.containers.forget();
            self.forgotten = Some(now);
        }
        self.hear(now);
        let changes = self.selection.changes();
        if std::mem::replace(&mut self.changes, changes) != changes {
            self.listed = None;
            self.others.clear();
        }
        if self.listed.is_none_or(|at| now >= at + LIST_EVERY) {
            let pids = process_ids(Path::new(ROOT))?;
            self.listed = Some(now);
            let before = std::mem::take(&mut self.others);
            for pid in pids {
                self.others.insert(pid, before.get(&pid).copied().unwrap_or(Other::new(now)));
            }
        }
        let due = self.others.iter().filter(|(_, other)| now >= other.due).map(|(pid, _)| *pid);
        // Many may be due of which few may join.
        let mut candidates: BinaryHeap<u32> = due.collect();
        let mut found = Vec::new();
        while let Some(pid) = candidates.pop() {
            if pid == std::process::id() || is_member(pid) {
                self.others.remove(&pid);
                continue;
            }
            if found.len() >= most {
                break;
            }
            let takes = self.takes(pid);
            // A process that belongs to the selection, but cannot join yet, is found again soon.
            let is_told = !takes && self.events.is_some() && self.selection.is_told();
            self.others.entry(pid).and_modify(|other| other.looked_at(now, is_told));
            if takes {
                found.push(pid);
            }
        }
        Ok(found)
    }

    /// Takes which processes have begun and ended since the last call, in their order, as far as the kernel reports it.
    pub(crate) fn take_lives(&mut self) -> Vec<Life> {
        if let Some(events) = self.events.as_ref().filter(|_| !self.selection.is_open()) {
            self.lives.extend(events.take().lives);
        }
        std::mem::take(&mut self.lives)
    }

    /// Makes the processes due that something happened to since the last time.
    pub(crate) fn hear(&mut self, now: Instant) {
        let Some(events) = &self.events else {
            self.listed = None;
            return;
        };
        let heard = events.take();
        self.lives.extend(heard.lives);
        if !heard.is_all {
            self.listed = None;
        }
        self.others.extend(heard.pids.into_iter().map(|pid| (pid, Other::new(now))));
    }
}

impl Other {
    /// A process that was not checked yet.
    fn new(now: Instant) -> Self {
        Self { due: now, gap: FIRST_GAP / 2 }
    }

    /// `is_told` says whether the kernel reports all changes that can make the process belong to the selection.
    fn looked_at(&mut self, now: Instant, is_told: bool) {
        self.gap = if is_told { LONGEST_GAP } else { (self.gap * 2).min(LONGEST_GAP) };
        self.due = now + self.gap;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use isotherm_testing::or_skip;

    use super::*;
    use crate::NamePattern;
    use crate::select::Selector;

    /// What is found within 30 s, while no time passes for the finder.
    fn found_soon(finder: &mut Finder, now: Instant) -> Vec<u32> {
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut found = Vec::new();
        while found.is_empty() && Instant::now() < deadline {
            found = finder.find(now, usize::MAX, |_| false).unwrap();
        }
        found
    }

    #[test]
    fn a_process_is_found_without_a_list_of_all_processes_where_the_kernel_tells_what_begins() {
        or_skip!(ProcessEvents::open());
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("foundunlisted");
        std::fs::copy("/bin/sleep", &program).unwrap();
        let name = Selector::Name(NamePattern::new("^foundunlisted$").unwrap());
        let mut finder = Finder::new(Selection { any: vec![name], ..Selection::default() });
        let now = Instant::now();
        finder.find(now, usize::MAX, |_| false).unwrap();
        let mut child = Command::new(&program).arg("600").spawn().unwrap();
        // No time passes for the finder. A list would set its time.
        finder.listed = Some(now + LIST_EVERY);
        let found = found_soon(&mut finder, now);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((found, finder.listed), (vec![child.id()], Some(now + LIST_EVERY)));
    }

    #[test]
    fn a_process_that_executes_another_program_long_after_its_start_is_found_at_once() {
        // Only root may listen.
        or_skip!(ProcessEvents::open());
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("executedlate");
        std::fs::copy("/bin/sleep", &program).unwrap();
        let script = format!("read line; exec {} 600", program.display());
        let mut child = Command::new("sh").args(["-c", &script]).stdin(Stdio::piped()).spawn().unwrap();
        let name = Selector::Name(NamePattern::new("^executedlate$").unwrap());
        let mut finder = Finder::new(Selection { any: vec![name], ..Selection::default() });
        let mut now = Instant::now();
        for _ in 0..10 {
            now += LONGEST_GAP;
            assert!(finder.find(now, usize::MAX, |_| false).unwrap().is_empty());
        }
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        // No time passes for the finder.
        let found = found_soon(&mut finder, now);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, [child.id()]);
    }
}
