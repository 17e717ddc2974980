//! Finds the processes of a selection as they appear.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use super::container::Containers;
use super::{Facts, Selection};
use crate::listing::{ROOT, process_ids};
use crate::process_events::ProcessEvents;

/// A process that does not belong to the selection may call execve(2), change its user or its cgroup, or grow. So it is
/// looked at again, soon after it has appeared, and then ever less often. Where the kernel tells what it does, it is
/// looked at at once.
const FIRST_GAP: Duration = Duration::from_millis(100);
const LONGEST_GAP: Duration = Duration::from_secs(5);

/// Finds the processes of a selection.
#[derive(Debug)]
pub(crate) struct Finder {
    selection: Selection,
    containers: Containers,
    /// When names of containers were forgotten last.
    forgotten: Option<Instant>,
    /// The processes that do not belong to the selection.
    others: HashMap<u32, Other>,
    /// Tells what processes do. `None` if the kernel does not.
    events: Option<ProcessEvents>,
}

/// A process that does not belong to the selection.
#[derive(Clone, Copy, Debug)]
struct Other {
    /// When it is looked at again.
    due: Instant,
    /// How long after that the next time is.
    gap: Duration,
}

impl Finder {
    pub(crate) fn new(selection: Selection) -> Self {
        let events = if selection.is_open() { ProcessEvents::open().ok() } else { None };
        Self {
            selection,
            containers: Containers::new(Path::new(ROOT)),
            forgotten: None,
            others: HashMap::new(),
            events,
        }
    }

    pub(crate) fn selection(&self) -> &Selection {
        &self.selection
    }

    /// Whether a process belongs to the selection.
    pub(crate) fn takes(&self, pid: u32) -> bool {
        self.selection.takes(&self.facts(pid))
    }

    /// Whether a process is excepted from the selection.
    pub(crate) fn excepts(&self, pid: u32) -> bool {
        self.selection.excepts(&self.facts(pid))
    }

    fn facts(&self, pid: u32) -> Facts<'_> {
        Facts::new(Path::new(ROOT), pid, &self.containers)
    }

    /// The processes of the machine that belong to the selection at `now` and are no members: at most `most`, those
    /// with the lowest IDs. A process that was found is found again as long as it is no member, less and less often.
    ///
    /// # Errors
    /// If the processes cannot be listed. The next call finds what this one has missed.
    pub(crate) fn find(&mut self, now: Instant, most: usize, is_member: impl Fn(u32) -> bool) -> io::Result<Vec<u32>> {
        let pids = process_ids(Path::new(ROOT))?;
        if self.forgotten.is_none_or(|at| now >= at + LONGEST_GAP) {
            self.containers.forget();
            self.forgotten = Some(now);
        }
        for pid in self.events.iter().flat_map(ProcessEvents::take) {
            self.others.remove(&pid);
        }
        let (before, own) = (std::mem::take(&mut self.others), std::process::id());
        let mut found = Vec::new();
        for pid in pids {
            if pid == own || is_member(pid) {
                continue;
            }
            let known = before.get(&pid).copied();
            if found.len() >= most || known.is_some_and(|other| now < other.due) {
                self.others.extend(known.map(|other| (pid, other)));
                continue;
            }
            let gap = known.map_or(FIRST_GAP, |other| (other.gap * 2).min(LONGEST_GAP));
            self.others.insert(pid, Other { due: now + gap, gap });
            if self.takes(pid) {
                found.push(pid);
            }
        }
        Ok(found)
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
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut found = Vec::new();
        while found.is_empty() && Instant::now() < deadline {
            found = finder.find(now, usize::MAX, |_| false).unwrap();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, [child.id()]);
    }
}
