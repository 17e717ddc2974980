//! Reads facts that a recording does not hold: the cgroup of the targets, swap, and huge pages in use.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use isotherm_core::TargetId;
use isotherm_kernel::cgroup::{self, Hierarchy};
use isotherm_kernel::{Process, Selection, anonymous_use, system_memory, transparent_huge_pages};
use isotherm_report::tune::{AnonymousMemory, Cgroup, Limit, Surroundings, Swap};
use isotherm_run::Event;

use crate::cli::WatchOptions;

/// The time of the first look. Each next one is at twice the time of the one before, since a look at a large process
/// takes some milliseconds for each GiB.
const FIRST: Duration = Duration::from_secs(1);

/// Looks at the targets during a run: at its end they may be gone.
pub struct Looks {
    targets: Vec<TargetId>,
    next: Duration,
    found: Surroundings,
}

impl Looks {
    /// Before the run; with the options that name the targets.
    pub fn new(target_options: String) -> Self {
        let found = Surroundings { target_options: Some(target_options), ..Surroundings::default() };
        Self { targets: vec![], next: FIRST, found }
    }

    /// Takes in an event of the run.
    pub fn event(&mut self, event: &Event) {
        let time = match event {
            Event::Targets(infos) => {
                self.targets = infos.iter().map(|(id, _)| *id).collect();
                return;
            }
            Event::Snapshot(record) => record.snapshot.time,
            _ => return,
        };
        if time >= self.next {
            self.next = time * 2;
            self.look();
        }
    }

    /// What is known at the end.
    pub fn finish(mut self) -> Surroundings {
        self.look();
        let root = Path::new("/");
        self.found.transparent_huge_pages = transparent_huge_pages(root);
        let memory = system_memory(root).ok();
        self.found.swap = memory.map(|memory| Swap { total_bytes: memory.swap_total, free_bytes: memory.swap_free });
        self.found
    }

    /// Looks at the targets that still run. If none does, the look before stays.
    fn look(&mut self) {
        let root = Path::new("/");
        // Another process may have the ID of one that has ended.
        let runs = |id: &TargetId| {
            let pid = id.pid()?;
            Process::open(pid).ok().filter(|process| process.id() == *id).map(|_| pid)
        };
        let pids: BTreeSet<u32> = self.targets.iter().filter_map(runs).collect();
        let mut anonymous: Option<AnonymousMemory> = None;
        for found in pids.iter().filter_map(|&pid| anonymous_use(root, pid).ok()) {
            let sum = anonymous.get_or_insert(AnonymousMemory { bytes: 0, huge_bytes: Some(0) });
            sum.bytes += found.resident;
            sum.huge_bytes = sum.huge_bytes.zip(found.huge).map(|(sum, huge)| sum + huge);
        }
        if anonymous.is_some() {
            self.found.anonymous = anonymous;
            self.found.cgroup = cgroup_of(root, &pids);
        }
    }
}

/// The cgroup of all of these processes. `None` if they are in different ones.
fn cgroup_of(root: &Path, pids: &BTreeSet<u32>) -> Option<Cgroup> {
    let hierarchy = Hierarchy::find(root).ok()?;
    let mut paths = pids.iter().filter_map(|&pid| hierarchy.of_process(pid));
    let path = paths.next().filter(|first| paths.all(|path| path == *first))?;
    let limits = cgroup::memory_limits(&hierarchy, &path);
    // isotherm is in the cgroup for the time of the run only.
    let own = std::process::id();
    let others = cgroup::processes_in(&hierarchy, &path, |_| false)
        .map(|found| found.iter().filter(|pid| !pids.contains(pid) && **pid != own).count() as u64);
    Some(Cgroup {
        version: hierarchy.version().number(),
        directory: limits.as_ref().map(|limits| limits.directory.display().to_string()),
        current_bytes: limits.as_ref().and_then(|limits| limits.current),
        high_bytes: limits.as_ref().and_then(|limits| limits.high),
        max_bytes: limits.as_ref().and_then(|limits| limits.max),
        lowest_limit: limits
            .as_ref()
            .and_then(|limits| limits.lowest.clone())
            .map(|(path, bytes)| Limit { path, bytes }),
        other_processes: others,
        path,
    })
}

/// The options that name the targets, quoted for a shell: those of `watch`, which name `selection`.
pub fn target_options(watch: &WatchOptions, selection: &Selection, physical: bool) -> String {
    let mut options: Vec<String> = vec![];
    let mut add = |name: &str, value: Option<String>| {
        options.push(format!("--{name}"));
        options.extend(value.map(|value| quoted(OsStr::new(&value))));
    };
    if physical {
        add("physical", None);
    }
    selection.any.iter().for_each(|selector| add(selector.kind(), selector.value()));
    for selector in &selection.except {
        add("exclude", Some(format!("{}={}", selector.kind(), selector.value().unwrap_or_default())));
    }
    if selection.least_resident > 0 {
        add("min-rss", Some(selection.least_resident.to_string()));
    }
    watch.mapping.iter().for_each(|name| add("mapping", Some(name.to_string())));
    if selection.children {
        add("children", None);
    }
    if !watch.command.is_empty() {
        options.push("--".into());
        options.extend(watch.command.iter().map(|word| quoted(word)));
    }
    options.join(" ")
}

/// A word as a shell reads it.
fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.into() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};
    use crate::watch::Call;

    #[test]
    fn options_name_the_targets_as_the_user_did() {
        let of = |call: &[&str]| match Cli::try_parse_from(["isotherm", "tune"].iter().chain(call)).unwrap().command {
            Command::Tune(options) => {
                let selection = Call::new("tune", &options.watch).selection().unwrap();
                target_options(&options.watch, &selection, options.physical.physical)
            }
            _ => String::new(),
        };
        assert_eq!(of(&["--pid", "7", "-p", "8", "--children"]), "--pid 7 --pid 8 --children");
        assert_eq!(
            of(&["--min-rss", "1M", "--exclude", "name=^sh$", "--all"]),
            "--all --exclude 'name=^sh$' --min-rss 1048576"
        );
        assert_eq!(
            of(&["--command", "a b", "--user", "0", "--user", "4294967294", "--mapping", "heap"]),
            "--command 'a b' --user 0 --user 4294967294 --mapping heap"
        );
        assert_eq!(of(&["--", "sh", "-c", "it's; $x", ""]), r"-- sh -c 'it'\''s; $x' ''");
        assert_eq!(of(&["--physical"]), "--physical");
    }

    #[test]
    fn the_surroundings_of_a_process_are_found_and_a_stranger_with_its_id_is_not() {
        let own = Process::open(std::process::id()).unwrap().id();
        let mut looks = Looks { targets: vec![own], ..Looks::new(String::new()) };
        looks.look();
        assert!(looks.found.anonymous.is_some_and(|anonymous| anonymous.bytes > 0));
        let stranger = TargetId::process(std::process::id(), Duration::from_nanos(1));
        let looks = Looks { targets: vec![stranger], ..Looks::new(String::new()) };
        let found = looks.finish();
        assert!(found.anonymous.is_none() && found.cgroup.is_none() && found.swap.is_some());
    }
}
