//! Which processes are watched: by ID, name, command line, cgroup, unit, container or user.

mod advice;
mod container;
mod container_path;
mod facts;
mod finder;
mod parties;
mod told;

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::Path;

pub use container::{ContainerNames, Containers};
pub(crate) use facts::Facts;
pub(crate) use finder::Finder;
pub use parties::Parties;
pub use told::tell_containers;

use crate::births::Belonging;
use crate::cgroup::{Hierarchy, NoMemoryCgroup};
use crate::listing::{parent, process_ids};
use crate::pattern::{Glob, NamePattern};

/// Names some processes of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// The process with this ID.
    Pid(u32),
    /// Processes of a program whose name matches: the name of the process (`comm`), or that of its executable file.
    Name(NamePattern),
    /// Processes whose command line matches. The arguments are joined by spaces; what follows 4,096 bytes is left out.
    Command(NamePattern),
    /// Processes of the cgroups whose path matches, and of all cgroups below them. The path is that in the hierarchy
    /// that accounts memory.
    Cgroup(Glob),
    /// Processes of the systemd units whose name matches. A name without a suffix is that of a service.
    Unit(Glob),
    /// Processes of a container or a pod: its name, its ID, or the first characters of the ID, at least four. It is
    /// found by its cgroup. Docker, Podman, containerd (nerdctl), Kubernetes, ECS, LXC, Incus, libvirt and
    /// systemd-nspawn are known.
    Container(String),
    /// Processes that run as the user with this ID.
    User(u32),
    /// All processes with memory of their own.
    All,
    /// Processes of any of several selections.
    AnyOf(Parties),
}

/// The processes that are watched: those that a selector names, without those that are excepted. Those that appear
/// later count, too. What is named by its ID is watched in any case. The process that watches is watched only then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// What any of these names is watched.
    pub any: Vec<Selector>,
    /// What any of these names is not watched.
    pub except: Vec<Selector>,
    /// A process joins when it has at least this many resident bytes.
    pub least_resident: u64,
    /// Whether the descendants of what is watched are watched, too.
    pub children: bool,
    /// More processes than this are refused at the start, and do not join later.
    pub most: usize,
}

/// What [`Selection::most`] is unless it is set.
pub const MOST_SELECTED: usize = 10_000;

impl Default for Selection {
    fn default() -> Self {
        Self { any: Vec::new(), except: Vec::new(), least_resident: 0, children: false, most: MOST_SELECTED }
    }
}

impl Selection {
    /// The processes with these IDs.
    pub fn pids(pids: impl IntoIterator<Item = u32>) -> Self {
        Self { any: pids.into_iter().map(Selector::Pid).collect(), ..Self::default() }
    }

    /// The IDs that are named.
    pub fn named_pids(&self) -> impl Iterator<Item = u32> {
        self.any.iter().filter_map(|selector| match selector {
            Selector::Pid(pid) => Some(*pid),
            _ => None,
        })
    }

    /// Whether processes can join that have not been named by their ID.
    pub fn is_open(&self) -> bool {
        self.any.iter().any(|selector| !matches!(selector, Selector::Pid(_)))
    }

    /// Whether nothing is named.
    pub fn is_empty(&self) -> bool {
        self.any.is_empty()
    }

    /// How many processes belong to the selection now, if there are more than may be. `root` stands for `/`.
    ///
    /// # Errors
    /// If the processes cannot be listed.
    pub fn too_many(&self, root: &Path) -> io::Result<Option<usize>> {
        // Whom the processes belong to is looked up only on a machine that has as many.
        if self.named_pids().count() <= self.most && process_ids(root)?.nth(self.most).is_none() {
            return Ok(None);
        }
        Ok(Some(self.find(root)?.len()).filter(|&count| count > self.most))
    }

    /// The processes below `root`, which stands for `/`, that belong to the selection now, in the order of their IDs.
    /// Those that are named by their IDs are among them, whether they are there or not.
    ///
    /// # Errors
    /// If the processes cannot be listed.
    pub fn find(&self, root: &Path) -> io::Result<Vec<u32>> {
        let containers = Containers::new(root);
        let mut found: BTreeSet<u32> = self.named_pids().collect();
        if !self.is_open() && !self.children {
            return Ok(found.into_iter().collect());
        }
        let pids: Vec<u32> = process_ids(root)?.filter(|pid| *pid != std::process::id()).collect();
        if self.is_open() {
            found.extend(pids.iter().filter(|pid| self.takes(&Facts::new(root, **pid, &containers))));
        }
        if self.children {
            let parents: Vec<(u32, u32)> = pids.iter().filter_map(|&pid| Some((pid, parent(root, pid)?))).collect();
            let mut before = 0;
            while before < found.len() {
                before = found.len();
                let joins =
                    |pid: u32, parent| found.contains(&parent) && !self.excepts(&Facts::new(root, pid, &containers));
                let joined: Vec<u32> =
                    parents.iter().filter(|(pid, parent)| joins(*pid, *parent)).map(|(pid, _)| *pid).collect();
                found.extend(joined);
            }
        }
        Ok(found.into_iter().collect())
    }

    /// Whether a process belongs to the selection.
    pub(crate) fn takes(&self, process: &Facts<'_>) -> bool {
        self.names(process)
            && (self.least_resident == 0
                || process.resident() >= self.least_resident
                || self.named_pids().any(|pid| pid == process.pid()))
    }

    /// Whether a process belongs to the selection, however small it is.
    pub(crate) fn names(&self, process: &Facts<'_>) -> bool {
        self.named_pids().any(|pid| pid == process.pid())
            || self.any.iter().any(|selector| selector.matches(process)) && !self.excepts(process)
    }

    /// The selections that it consists of, if it is one of several.
    pub(crate) fn parties(&self) -> Option<&Parties> {
        self.any.iter().find_map(|selector| match selector {
            Selector::AnyOf(parties) => Some(parties),
            _ => None,
        })
    }

    /// How often it has changed.
    pub(crate) fn changes(&self) -> u64 {
        self.parties().map_or(0, Parties::changes)
    }

    /// Whether it depends on the cgroup of a process that it belongs to the selection.
    pub(crate) fn is_by_cgroup(&self) -> bool {
        self.any.iter().chain(&self.except).any(Selector::is_by_cgroup)
    }

    /// A warning for the user who waits for processes that are named by their cgroup: the cgroup hierarchy is not
    /// mounted, so that hardly any process gets into a cgroup of it. `None` if there is no reason for a warning. `root`
    /// stands for `/`.
    pub fn warning(&self, root: &Path) -> Option<String> {
        let named: Vec<String> =
            self.any.iter().filter(|selector| selector.is_by_cgroup()).map(Selector::to_string).collect();
        if named.is_empty() {
            return None;
        }
        let hierarchy = Hierarchy::find(root).ok().filter(|hierarchy| hierarchy.directory().is_none())?;
        Some(format!(
            "{}: the cgroup hierarchy that accounts memory (version {}) is not mounted: /proc/self/cgroup lists it, \
             and /proc/self/mountinfo does not; the wait may never end (to mount it: `{}`)",
            named.join(", "),
            hierarchy.version().number(),
            hierarchy.mount_command()
        ))
    }

    /// Whether a process belongs to the selection by its program, name and user alone, whose changes the kernel
    /// reports.
    pub(crate) fn is_told(&self) -> bool {
        let mut selectors = self.any.iter().chain(&self.except);
        self.least_resident == 0
            && selectors.all(|selector| match selector {
                Selector::Pid(_) | Selector::Name(_) | Selector::User(_) | Selector::All => true,
                Selector::Command(_) | Selector::Cgroup(_) | Selector::Unit(_) | Selector::Container(_) => false,
                Selector::AnyOf(parties) => parties.all(Self::is_told),
            })
    }

    /// Which of the processes that have begun belong to the selection.
    pub(crate) fn belonging(&self) -> Belonging {
        let all = self.any.iter().any(|selector| matches!(selector, Selector::All));
        match (all && self.except.is_empty() && self.least_resident == 0, self.children) {
            (true, _) => Belonging::All,
            (false, true) => Belonging::Descendants,
            (false, false) => Belonging::Unknown,
        }
    }

    /// Checks that it names cgroups, and leaves out nothing but cgroups: what is done to a cgroup is done to all of its
    /// processes.
    ///
    /// # Errors
    /// If that is not so.
    pub fn names_cgroups(&self) -> Result<(), NoMemoryCgroup> {
        if !self.any.iter().any(Selector::is_by_cgroup) {
            return Err(NoMemoryCgroup::NotSelected);
        }
        match self.except.iter().find(|selector| !selector.is_by_cgroup()) {
            Some(other) => Err(NoMemoryCgroup::LeavesOut(other.kind())),
            None => Ok(()),
        }
    }

    /// Whether it names the cgroup at `path` or one above it, and does not leave it out.
    pub(crate) fn names_cgroup(&self, path: &str, containers: &Containers) -> bool {
        let names = |selectors: &[Selector]| selectors.iter().any(|selector| selector.names_cgroup(path, containers));
        names(&self.any) && !names(&self.except)
    }

    /// Whether a process is excepted.
    pub(crate) fn excepts(&self, process: &Facts<'_>) -> bool {
        self.except.iter().any(|selector| selector.matches(process))
    }
}

impl Selector {
    /// Whether it names processes by their cgroup.
    fn is_by_cgroup(&self) -> bool {
        match self {
            Self::Cgroup(_) | Self::Unit(_) | Self::Container(_) => true,
            Self::Pid(_) | Self::Name(_) | Self::Command(_) | Self::User(_) | Self::All => false,
            Self::AnyOf(parties) => !parties.all(|selection| !selection.is_by_cgroup()),
        }
    }

    /// Whether it names the cgroup at `path` or one above it.
    fn names_cgroup(&self, path: &str, containers: &Containers) -> bool {
        match self {
            Self::Cgroup(glob) => glob.matches_at_or_above(path),
            Self::Unit(glob) => path.split('/').any(|part| glob.matches(part)),
            Self::Container(name) => containers.is_in(path, name),
            Self::Pid(_) | Self::Name(_) | Self::Command(_) | Self::User(_) | Self::All | Self::AnyOf(_) => false,
        }
    }

    fn matches(&self, process: &Facts<'_>) -> bool {
        match self {
            Self::Pid(pid) => *pid == process.pid(),
            Self::Name(pattern) => {
                let is = |name: Option<&str>| name.is_some_and(|name| pattern.matches(name));
                is(process.name()) || is(process.executable())
            }
            Self::Command(pattern) => pattern.matches(process.command()),
            Self::Cgroup(_) | Self::Unit(_) | Self::Container(_) => {
                process.cgroup().is_some_and(|path| self.names_cgroup(path, process.containers()))
            }
            Self::User(uid) => process.user() == Some(*uid),
            Self::All => true,
            Self::AnyOf(parties) => parties.any_takes(process),
        }
    }
}

impl Selector {
    /// By what it names processes, in a word: that of the command line's option.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Pid(_) => "pid",
            Self::Name(_) => "name",
            Self::Command(_) => "command",
            Self::Cgroup(_) => "cgroup",
            Self::Unit(_) => "unit",
            Self::Container(_) => "container",
            Self::User(_) => "user",
            Self::All => "all",
            Self::AnyOf(_) => "any group",
        }
    }

    /// The ID, name or pattern. `None` for [`All`](Self::All) and [`AnyOf`](Self::AnyOf).
    pub fn value(&self) -> Option<String> {
        match self {
            Self::Pid(id) | Self::User(id) => Some(id.to_string()),
            Self::Name(pattern) | Self::Command(pattern) => Some(pattern.to_string()),
            Self::Cgroup(glob) | Self::Unit(glob) => Some(glob.to_string()),
            Self::Container(name) => Some(name.clone()),
            Self::All | Self::AnyOf(_) => None,
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if matches!(self, Self::Pid(_)) { "process" } else { self.kind() })?;
        self.value().map_or(Ok(()), |value| write!(f, " {value}"))
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |selectors: &[Selector]| selectors.iter().map(Selector::to_string).collect::<Vec<_>>().join(", ");
        f.write_str(&list(&self.any))?;
        if self.children {
            f.write_str(", with their descendants")?;
        }
        if !self.except.is_empty() {
            write!(f, ", except {}", list(&self.except))?;
        }
        if self.least_resident > 0 {
            write!(f, ", with {} resident or more", isotherm_core::units::bytes(self.least_resident))?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::fs;

    use super::*;

    /// A made `/proc` with processes of these IDs, names, command lines and cgroups.
    fn made(processes: &[(u32, &str, &str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (pid, name, command, cgroup) in processes {
            let write = |file: &str, content: &str| {
                let path = root.path().join(format!("proc/{pid}/{file}"));
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, content).unwrap();
            };
            write("comm", &format!("{name}\n"));
            write("stat", &format!("{pid} ({name}) S {}", pid - 1));
            write("cmdline", &command.replace(' ', "\0"));
            write("cgroup", &format!("0::{cgroup}\n"));
            write("status", &format!("Name:\t{name}\nUid:\t1\t{}\t1\t1\n", pid * 100));
            write("statm", &format!("1000 {pid} 1 1 0 1 0"));
        }
        root
    }

    const PROCESSES: [(u32, &str, &str, &str); 4] = [
        (7, "redis-server", "/usr/bin/redis-server *:6379", "/system.slice/redis.service"),
        (8, "redis-cli", "redis-cli get x", "/user.slice/user-1000.slice/session-1.scope"),
        (9, "java", "java -jar app.jar", "/system.slice/app@blue.service/worker"),
        (10, "sh", "sh -c redis", "/"),
    ];

    fn selected(root: &Path, any: &[Selector], except: &[Selector], least_resident: u64) -> Vec<u32> {
        let selection = Selection { any: any.into(), except: except.into(), least_resident, ..Selection::default() };
        let containers = Containers::new(root);
        let takes = |pid: &u32| selection.takes(&Facts::new(root, *pid, &containers));
        PROCESSES.iter().map(|process| process.0).filter(takes).collect()
    }

    fn regex(text: &str) -> NamePattern {
        NamePattern::new(text).unwrap()
    }

    #[test]
    fn processes_are_selected_by_what_they_are() {
        let root = made(&PROCESSES);
        let of = |selector: Selector| selected(root.path(), &[selector], &[], 0);
        assert_eq!(of(Selector::Name(regex("redis"))), [7, 8]);
        assert_eq!(of(Selector::Name(regex("^redis-server$"))), [7]);
        assert_eq!(of(Selector::Command(regex("-jar .*jar$"))), [9]);
        assert_eq!(of(Selector::Command(regex("redis"))), [7, 8, 10]);
        assert_eq!(of(Selector::Cgroup(Glob::new("/system.slice").unwrap())), [7, 9]);
        assert_eq!(of(Selector::Cgroup(Glob::new("/system.slice/*@*").unwrap())), [9]);
        assert_eq!(of(Selector::Cgroup(Glob::new("/").unwrap())), [7, 8, 9, 10]);
        assert_eq!(of(Selector::Unit(Glob::unit("redis").unwrap())), [7]);
        assert_eq!(of(Selector::Unit(Glob::unit("app@*").unwrap())), [9]);
        assert_eq!(of(Selector::Unit(Glob::unit("session-1.scope").unwrap())), [8]);
        assert_eq!(of(Selector::User(800)), [8]);
        assert_eq!(of(Selector::Pid(9)), [9]);
        assert_eq!(of(Selector::All), [7, 8, 9, 10]);
    }

    #[test]
    fn what_is_excepted_or_small_is_left_out() {
        let root = made(&PROCESSES);
        let of = |any: &[Selector], except: &[Selector], least| selected(root.path(), any, except, least);
        let redis = Selector::Name(regex("redis"));
        assert_eq!(of(&[redis.clone(), Selector::Pid(9)], &[Selector::User(800)], 0), [7, 9]);
        assert_eq!(of(&[Selector::All], &[Selector::Pid(9), redis.clone()], 0), [10]);
        let page = isotherm_core::PAGE_SIZE;
        assert_eq!(of(&[Selector::All], &[], 9 * page), [9, 10]);
        assert_eq!(of(&[redis.clone(), Selector::Pid(7)], &[redis], 8 * page), [7], "an ID that is named");
    }

    #[test]
    fn descendants_are_found_with_what_they_descend_from() {
        let root = made(&PROCESSES);
        let of = |any: &[Selector], except: &[Selector]| {
            let selection =
                Selection { any: any.into(), except: except.into(), children: true, ..Selection::default() };
            selection.find(root.path()).unwrap()
        };
        assert_eq!(of(&[Selector::Pid(8)], &[]), [8, 9, 10]);
        assert_eq!(of(&[Selector::Name(regex("cli"))], &[Selector::Name(regex("java"))]), [8], "and their children");
        assert_eq!(Selection::pids([99, 9]).find(root.path()).unwrap(), [9, 99]);
    }

    #[test]
    fn more_processes_than_may_be_selected_are_counted() {
        let root = made(&PROCESSES);
        let of = |any: &[Selector], children, most| {
            let selection = Selection { any: any.into(), children, most, ..Selection::default() };
            selection.too_many(root.path()).unwrap()
        };
        assert_eq!(of(&[Selector::All], false, 4), None);
        assert_eq!(of(&[Selector::All], false, 3), Some(4));
        assert_eq!(of(&[Selector::Pid(8)], false, 1), None);
        assert_eq!(of(&[Selector::Pid(8)], true, 3), None);
        assert_eq!(of(&[Selector::Pid(8)], true, 2), Some(3), "with its descendants");
        assert_eq!(of(&[Selector::Pid(7), Selector::Pid(9)], false, 1), Some(2));
    }

    #[test]
    fn a_cgroup_that_vanishes_selects_nothing_until_it_is_back() {
        let root = made(&PROCESSES);
        let cgroup = |pid: u32, path: &str| {
            fs::write(root.path().join(format!("proc/{pid}/cgroup")), format!("0::{path}\n")).unwrap();
        };
        let any = vec![Selector::Cgroup(Glob::new("/system.slice/app@*").unwrap())];
        let selection = Selection { any, ..Selection::default() };
        assert_eq!(selection.find(root.path()).unwrap(), [9]);
        // The kernel removes a cgroup when the last process has left it or ended.
        cgroup(9, "/system.slice");
        fs::remove_dir_all(root.path().join("proc/10")).unwrap();
        assert_eq!(selection.find(root.path()).unwrap(), [] as [u32; 0]);
        cgroup(8, "/system.slice/app@green.service");
        assert_eq!(selection.find(root.path()).unwrap(), [8]);
    }

    #[test]
    fn a_wait_for_cgroups_warns_if_their_hierarchy_is_not_mounted() {
        let root = tempfile::tempdir().unwrap();
        let write = |file: &str, content: &str| {
            fs::create_dir_all(root.path().join("proc/self")).unwrap();
            fs::write(root.path().join("proc/self").join(file), content).unwrap();
        };
        let of = |selector: Selector| Selection { any: vec![selector], ..Selection::default() }.warning(root.path());
        let cgroup = || Selector::Cgroup(Glob::new("/app.slice").unwrap());
        write("cgroup", "4:memory:/\n0::/\n");
        let unified = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        write("mountinfo", unified);
        let warning = of(cgroup()).unwrap();
        for part in
            ["cgroup /app.slice", "version 1", "not mounted", "/proc/self/mountinfo", "mount -t cgroup -o memory"]
        {
            assert!(warning.contains(part), "{part}: {warning}");
        }
        assert!(of(Selector::Unit(Glob::unit("redis").unwrap())).is_some());
        assert!(of(Selector::Container("web".into())).is_some());
        assert_eq!(of(Selector::Name(regex("redis"))), None, "a name needs no cgroup");

        write("mountinfo", &format!("{unified}35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"));
        assert_eq!(of(cgroup()), None, "it is mounted");
        write("cgroup", "0::/\n");
        write("mountinfo", "20 1 0:5 / /proc rw - proc proc rw\n");
        assert!(of(cgroup()).unwrap().contains("mount -t cgroup2"));
    }

    #[test]
    fn a_process_that_has_shrunk_is_still_named_and_one_that_was_moved_is_not() {
        let root = made(&PROCESSES);
        let any = vec![Selector::Unit(Glob::unit("redis").unwrap())];
        let selection = Selection { any, least_resident: 1 << 30, ..Selection::default() };
        assert!(selection.is_by_cgroup());
        let containers = Containers::new(root.path());
        let names = || selection.names(&Facts::new(root.path(), 7, &containers));
        assert!(names() && !selection.takes(&Facts::new(root.path(), 7, &containers)));
        let was_moved = Facts::new(root.path(), 7, &containers).with_cgroup(Some("/".into()));
        assert!(!selection.names(&was_moved), "its cgroup is the one that was read when it was opened");
        fs::write(root.path().join("proc/7/cgroup"), "0::/system.slice\n").unwrap();
        assert!(!names());
    }

    #[test]
    fn a_selection_says_what_it_is() {
        let selection = Selection {
            any: vec![Selector::Name(regex("x.*")), Selector::User(0)],
            except: vec![Selector::Pid(1)],
            least_resident: 1 << 20,
            children: true,
            ..Selection::default()
        };
        assert_eq!(
            selection.to_string(),
            "name x.*, user 0, with their descendants, except process 1, with 1 MiB resident or more"
        );
    }
}
