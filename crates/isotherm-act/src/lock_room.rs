//! How much more memory of processes may be locked, so that the kernel finds other memory to reclaim, and does not have
//! to kill.

use std::collections::HashMap;
use std::path::Path;

use isotherm_core::{AddrRange, TargetId};
use isotherm_kernel::cgroup::{Hierarchy, memory_limits, of_process};
use isotherm_kernel::{locked, meminfo};

/// The share of the memory of a cgroup that is never locked: a quarter.
const KEPT: u64 = 4;

/// The room for locked memory of each cgroup of targets.
#[derive(Debug, Default)]
pub(super) struct LockRoom {
    /// By the path of the cgroup; an empty one for processes whose cgroup is not known.
    rooms: HashMap<String, u64>,
    cgroups: HashMap<TargetId, String>,
}

impl LockRoom {
    /// The room of processes: three quarters of the lowest limit of memory that holds for their cgroup, or else of all
    /// memory, less what they have locked. Memory that they lock when it becomes resident counts as well. `root` is the
    /// directory that stands for `/`.
    pub(super) fn read(root: &Path, targets: impl Iterator<Item = TargetId>) -> Self {
        let all = meminfo(root).map_or(0, |info| info.mem_total);
        let hierarchy = Hierarchy::find(root).ok();
        let limit = |path: &str| memory_limits(hierarchy.as_ref()?, path)?.lowest.map(|(_, bytes)| bytes);
        let most = |path: &str| {
            let memory = limit(path).map_or(all, |limit| limit.min(all));
            memory - memory / KEPT
        };
        let mut room = Self::default();
        for (target, pid) in targets.filter_map(|target| Some((target, target.pid()?))) {
            let path = of_process(root, pid).unwrap_or_default();
            let left = room.rooms.entry(path.clone()).or_insert_with(|| most(&path));
            *left = left.saturating_sub(locked(root, pid).unwrap_or(0));
            room.cgroups.insert(target, path);
        }
        room
    }

    /// The room of all cgroups together.
    pub(super) fn bytes(&self) -> u64 {
        self.rooms.values().fold(0, |sum, room| sum.saturating_add(*room))
    }

    /// Whether the target is among those that it was read for.
    pub(super) fn knows(&self, target: TargetId) -> bool {
        self.cgroups.contains_key(&target)
    }

    /// Takes the room for the first of `ranges` of a target. Returns for how many of them there is some.
    pub(super) fn take(&mut self, target: TargetId, ranges: &[AddrRange]) -> usize {
        let Some(room) = self.cgroups.get(&target).and_then(|path| self.rooms.get_mut(path)) else { return 0 };
        let fits = |range: &&AddrRange| match room.checked_sub(range.size()) {
            Some(left) => {
                *room = left;
                true
            }
            None => false,
        };
        ranges.iter().take_while(fits).count()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_quarter_of_the_limit_of_a_cgroup_is_not_locked() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
        let rest = meminfo.split_once('\n').unwrap().1;
        write("proc/meminfo", &format!("MemTotal: 4000 kB\n{rest}"));
        write("proc/self/cgroup", "0::/\n");
        write("proc/self/mountinfo", "30 1 0:26 / /cg rw - cgroup2 cgroup2 rw\n");
        write("cg/limited/memory.max", "409600\n");
        for (pid, path, locked) in [(1, "/limited", 100), (2, "/limited", 50), (3, "/other", 1000)] {
            write(&format!("proc/{pid}/cgroup"), &format!("0::{path}\n"));
            write(&format!("proc/{pid}/status"), &format!("Name:\tx\nVmLck:\t{locked} kB\n"));
        }
        let [first, second, third] = [1, 2, 3].map(|pid| TargetId::process(pid, Duration::ZERO));
        let mut room = LockRoom::read(root.path(), [first, second, third].into_iter());
        assert_eq!(room.bytes(), (300 - 150 + 3000 - 1000) * 1024);
        let kib = |from: u64, size: u64| AddrRange::new(from * 1024, (from + size) * 1024).unwrap();
        let ranges = [kib(0, 60), kib(100, 60), kib(200, 60)];
        assert_eq!(room.take(first, &ranges), 2);
        assert_eq!((room.take(second, &ranges), room.take(third, &ranges)), (0, 3));
        let other = TargetId::process(4, Duration::ZERO);
        assert_eq!((room.take(other, &ranges), room.knows(other), room.knows(first)), (0, false, true));
    }
}
