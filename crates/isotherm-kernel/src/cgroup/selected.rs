//! The cgroups of the processes of a selection, as far as the selection names them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{CgroupMemory, Hierarchy, NoHierarchy, NoMemoryCgroup, is_below, of_process};
use crate::select::{Containers, Selection};

/// Finds the cgroups of processes that are selected by their cgroup, unit or container. Others are refused: what is
/// done to a cgroup is done to all processes in it.
#[derive(Debug)]
pub struct SelectedCgroups {
    root: PathBuf,
    selection: Selection,
    containers: Containers,
    hierarchy: Result<Hierarchy, NoHierarchy>,
}

impl SelectedCgroups {
    /// The cgroups of this selection. `root` stands for `/`.
    pub fn new(root: &Path, selection: Selection) -> Self {
        let (containers, hierarchy) = (Containers::new(root), Hierarchy::find(root));
        Self { root: root.into(), selection, containers, hierarchy }
    }

    /// Checks that the selection names cgroups, and that they can be acted on here.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self) -> Result<(), NoMemoryCgroup> {
        CgroupMemory::check(self.hierarchy()?)?;
        self.selection.names_cgroups()
    }

    /// The cgroup that accounts the memory of process `pid` now.
    ///
    /// # Errors
    /// If it is none of those that the selection names, is not there any more, or does not account memory.
    pub fn of(&self, pid: u32) -> Result<CgroupMemory, NoMemoryCgroup> {
        self.of_path(&self.path_of(pid)?)
    }

    /// The cgroups that account the memory of these processes now, each once, with its processes, in the order of
    /// their paths. Those that [`of`](Self::of) refuses are left out.
    pub fn of_each(&self, pids: impl IntoIterator<Item = u32>) -> Vec<(CgroupMemory, Vec<u32>)> {
        let mut by_path: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for pid in pids {
            self.path_of(pid).into_iter().for_each(|path| by_path.entry(path).or_default().push(pid));
        }
        // Several may have their memory accounted by one above them.
        let mut found: BTreeMap<String, (CgroupMemory, Vec<u32>)> = BTreeMap::new();
        for (path, pids) in by_path {
            let Ok(cgroup) = self.of_path(&path) else { continue };
            found.entry(cgroup.path().to_owned()).or_insert((cgroup, Vec::new())).1.extend(pids);
        }
        found.into_values().collect()
    }

    /// The path of the cgroup of process `pid` now.
    ///
    /// # Errors
    /// If it is not there any more.
    fn path_of(&self, pid: u32) -> Result<String, NoMemoryCgroup> {
        of_process(&self.root, pid).ok_or_else(|| NoMemoryCgroup::Gone { path: format!("of {pid}") })
    }

    /// The cgroup that accounts the memory of the one at `path`, as [`of`](Self::of) has it.
    fn of_path(&self, path: &str) -> Result<CgroupMemory, NoMemoryCgroup> {
        let named = self.named(path).ok_or_else(|| NoMemoryCgroup::OtherCgroup { path: path.into() })?;
        let found = CgroupMemory::open(self.hierarchy()?, path)?;
        // One above it has other processes, too.
        if is_below(found.path(), &named) { Ok(found) } else { Err(NoMemoryCgroup::NoController { path: named }) }
    }

    /// The cgroup at `path`, whether it is selected or not: it is only read.
    ///
    /// # Errors
    /// If it does not account memory.
    pub fn at(&self, path: &str) -> Result<CgroupMemory, NoMemoryCgroup> {
        CgroupMemory::open(self.hierarchy()?, path)
    }

    /// The path of the cgroup that the selection names and that has the one at `path`: that one or one above it, the
    /// topmost that is named.
    pub fn named(&self, path: &str) -> Option<String> {
        let ends = path.char_indices().filter(|(at, c)| *c == '/' && *at > 0).map(|(at, _)| at).chain([path.len()]);
        let mut above = ["/"].into_iter().chain(ends.map(|end| &path[..end]));
        above.find(|above| self.selection.names_cgroup(above, &self.containers)).map(str::to_owned)
    }

    fn hierarchy(&self) -> Result<&Hierarchy, NoMemoryCgroup> {
        self.hierarchy.as_ref().map_err(|error| NoMemoryCgroup::NoHierarchy(error.clone()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::super::made::{mounted_at_cg, write};
    use super::*;
    use crate::pattern::{Glob, NamePattern};
    use crate::select::Selector;

    fn cgroup(glob: &str) -> Selector {
        Selector::Cgroup(Glob::new(glob).unwrap())
    }

    fn selection(any: &[Selector], except: &[Selector]) -> Selection {
        Selection { any: any.into(), except: except.into(), ..Selection::default() }
    }

    #[test]
    fn a_process_is_acted_on_in_its_cgroup_if_the_selection_names_that_or_one_above() {
        let root = mounted_at_cg();
        let write = |path: &str, text: &str| write(root.path(), path, text);
        for (pid, path) in [(1, "/a.slice/x.service/worker"), (2, "/a.slice/y.service"), (3, "/b.slice")] {
            write(&format!("proc/{pid}/cgroup"), &format!("0::{path}\n"));
            write(&format!("cg{path}/cgroup.procs"), "");
        }
        for path in ["/a.slice", "/a.slice/x.service/worker", "/b.slice"] {
            write(&format!("cg{path}/memory.current"), "1");
        }
        let unit = Selector::Unit(Glob::unit("x").unwrap());
        let of = |any: &[Selector], pid| {
            let cgroups = SelectedCgroups::new(root.path(), selection(any, &[]));
            cgroups.of(pid).map(|cgroup| cgroup.path().to_owned())
        };
        assert_eq!(of(&[cgroup("/a.slice")], 1).unwrap(), "/a.slice/x.service/worker");
        assert_eq!(of(std::slice::from_ref(&unit), 1).unwrap(), "/a.slice/x.service/worker");
        assert_eq!(of(&[cgroup("/a.slice")], 2).unwrap(), "/a.slice", "it accounts the memory of the one below");
        let refused = of(&[cgroup("/a.slice/*")], 2).unwrap_err();
        assert!(matches!(refused, NoMemoryCgroup::NoController { .. }), "the slice is not selected: {refused}");
        assert!(matches!(of(&[unit], 3), Err(NoMemoryCgroup::OtherCgroup { .. })));
        assert!(matches!(of(&[cgroup("/")], 4), Err(NoMemoryCgroup::Gone { .. })));
        let cgroups = SelectedCgroups::new(root.path(), selection(&[cgroup("/a.slice")], &[]));
        let each = cgroups.of_each([1, 2, 3, 4]);
        let found: Vec<_> = each.iter().map(|(cgroup, pids)| (cgroup.path(), &pids[..])).collect();
        assert_eq!(found, [("/a.slice", &[2][..]), ("/a.slice/x.service/worker", &[1])]);

        let cgroups = SelectedCgroups::new(root.path(), selection(&[cgroup("/a.slice/*")], &[]));
        assert_eq!(cgroups.named("/a.slice/x.service/worker").as_deref(), Some("/a.slice/x.service"));
        assert_eq!(cgroups.named("/b.slice"), None);
        let not_y = [cgroup("/a.slice/y.service")];
        let cgroups = SelectedCgroups::new(root.path(), selection(&[cgroup("/a.slice/*")], &not_y));
        assert_eq!(cgroups.named("/a.slice/y.service"), None);
    }

    #[test]
    fn only_a_selection_by_cgroups_can_be_acted_on() {
        let name = Selector::Name(NamePattern::new("redis").unwrap());
        let names = |any: &[Selector], except: &[Selector]| selection(any, except).names_cgroups();
        names(&[cgroup("/a"), Selector::Container("web".into())], &[cgroup("/a/b")]).unwrap();
        assert!(matches!(names(&[name.clone(), Selector::All], &[]), Err(NoMemoryCgroup::NotSelected)));
        assert!(matches!(names(&[cgroup("/a")], &[name]), Err(NoMemoryCgroup::LeavesOut("name"))));
    }
}
