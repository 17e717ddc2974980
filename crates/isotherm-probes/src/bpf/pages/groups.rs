//! Which targets the multi-generational LRU ages together, and whether it may.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use isotherm_core::TargetId;
use isotherm_kernel::cgroup::{Hierarchy, of_process, processes_in};
use isotherm_kernel::lru_gen::{LruGen, Memcg, memcg_of};
use isotherm_kernel::resident;

/// The paths of the cgroups that account the memory of the targets.
#[derive(Debug, Default)]
pub(super) struct Groups {
    lru_gen: Option<LruGen>,
    of: HashMap<TargetId, Arc<str>>,
    /// The cgroups most of whose resident memory belongs to targets.
    mostly_targets: HashSet<Arc<str>>,
}

impl Groups {
    /// Finds the cgroups of these targets. None is found where the multi-generational LRU cannot be asked to age.
    pub(super) fn find(root: &Path, targets: impl Iterator<Item = TargetId> + Clone) -> Self {
        let Some((lru_gen, memcgs)) =
            LruGen::open(root).and_then(|lru| Ok((lru.memcgs()?, lru))).ok().map(|(m, l)| (l, m))
        else {
            return Self::default();
        };
        let mut groups = Self { lru_gen: Some(lru_gen), ..Self::default() };
        let mut paths: HashMap<&str, Arc<str>> = HashMap::new();
        for target in targets {
            let path = target.pid().and_then(|pid| of_process(root, pid));
            if let Some(memcg) = path.and_then(|path| memcg_of(&memcgs, &path)) {
                let path = paths.entry(&memcg.path).or_insert_with(|| memcg.path.as_str().into());
                groups.of.insert(target, Arc::clone(path));
            }
        }
        if let Ok(hierarchy) = Hierarchy::find(root) {
            let mostly = paths.into_values().filter(|path| groups.is_mostly_targets(root, &hierarchy, &memcgs, path));
            groups.mostly_targets = mostly.collect();
        }
        groups
    }

    /// Whether targets have at least half of the resident memory of the processes whose memory this cgroup accounts.
    /// The others have to set their accessed bits again too, and nobody asked them.
    fn is_mostly_targets(&self, root: &Path, hierarchy: &Hierarchy, memcgs: &[Memcg], path: &str) -> bool {
        let is_own = |path: &str| memcgs.iter().any(|memcg| memcg.path == path);
        let Some(processes) = processes_in(hierarchy, path, is_own) else { return false };
        let targets: HashSet<u32> = self.members(path).filter_map(|target| target.pid()).collect();
        let mut sums = [0, 0];
        for pid in processes {
            sums[usize::from(targets.contains(&pid))] += resident(root, pid).unwrap_or_default();
        }
        let [others, of_targets] = sums;
        others <= of_targets
    }

    /// The cgroup of a target.
    pub(super) fn of(&self, target: TargetId) -> Option<&Arc<str>> {
        self.of.get(&target)
    }

    /// The targets in a cgroup.
    pub(super) fn members(&self, path: &str) -> impl Iterator<Item = TargetId> {
        self.of.iter().filter(move |(_, of)| ***of == *path).map(|(&target, _)| target)
    }

    /// Whether most of the resident memory of a cgroup belongs to targets.
    pub(super) fn are_mostly_targets(&self, path: &str) -> bool {
        self.mostly_targets.contains(path)
    }

    /// Ages a cgroup. Returns whether the kernel has done it. If not, no cgroup is found until the next look.
    pub(super) fn age(&mut self, path: &str) -> bool {
        let Some(lru_gen) = &self.lru_gen else { return false };
        // The ID of a cgroup is another one if the cgroup was removed and created again.
        let memcgs = lru_gen.memcgs().unwrap_or_default();
        let memcg = memcg_of(&memcgs, path).filter(|memcg| memcg.path == path);
        let aged = memcg.is_some_and(|memcg| lru_gen.age(memcg).is_ok());
        if !aged {
            *self = Self::default();
        }
        aged
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_cgroup_is_mostly_targets_if_they_have_half_of_its_memory() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("sys/kernel/mm/lru_gen/enabled", "0x0007\n");
        let node = " node     0\n          0          0          0           0 \n";
        write("sys/kernel/debug/lru_gen", &format!("memcg     1 /\n{node}memcg     2 /a\n{node}"));
        write("proc/self/cgroup", "0::/\n");
        write("proc/self/mountinfo", "30 1 0:26 / /cg rw - cgroup2 cgroup2 rw\n");
        for (pid, path, pages) in [(1, "/", 100), (2, "/a", 60), (3, "/a/b", 40), (4, "/a", 100)] {
            write(&format!("proc/{pid}/cgroup"), &format!("0::{path}\n"));
            write(&format!("proc/{pid}/statm"), &format!("1000 {pages} 1 1 0 1 0\n"));
        }
        write("cg/cgroup.procs", "1\n");
        write("cg/a/cgroup.procs", "2\n4\n");
        write("cg/a/b/cgroup.procs", "3\n");

        let id = |pid| TargetId::process(pid, Duration::ZERO);
        let find = |pids: &[u32]| Groups::find(root.path(), pids.iter().map(|&pid| id(pid)));
        let both = find(&[2, 3]);
        assert_eq!((both.of(id(2)).map(|path| &**path), both.of(id(3)).map(|path| &**path)), (Some("/a"), Some("/a")));
        assert_eq!(both.members("/a").count(), 2);
        assert!(both.are_mostly_targets("/a"));
        assert!(!find(&[2]).are_mostly_targets("/a"));
        let of_root = find(&[1]);
        assert_eq!(of_root.of(id(1)).map(|path| &**path), Some("/"));
        assert!(of_root.are_mostly_targets("/") && !of_root.are_mostly_targets("/a"));

        write("sys/kernel/mm/lru_gen/enabled", "0x0000\n");
        assert_eq!(find(&[2, 3]).of(id(2)), None);
    }
}
