//! Whether there is a place in swap for memory that no file on a disk backs.

use std::path::Path;
use std::time::{Duration, Instant};

use isotherm_core::Mapping;
use isotherm_kernel::cgroup::{Hierarchy, may_swap};
use isotherm_kernel::system_memory;

/// For how long a reading counts.
const VALID: Duration = Duration::from_secs(1);

/// The names of mappings of shared memory without a file on a disk begin so. `/dev/zero` stands for shared anonymous
/// memory.
const SHARED_MEMORY: [&str; 4] = ["/memfd:", "/dev/zero", "/dev/shm/", "/SYSV"];

/// The last reading of the free swap.
#[derive(Debug, Default)]
pub(super) struct Swap {
    read: Option<(Instant, bool)>,
    /// The cgroups of processes. The inner value is `None` if there are none.
    cgroups: Option<Option<Hierarchy>>,
}

impl Swap {
    /// Whether swap is free, read once a second. If it cannot be read, it counts as free. `root` is the directory that
    /// stands for `/`.
    pub(super) fn is_free(&mut self, root: &Path) -> bool {
        match self.read {
            Some((at, is_free)) if at.elapsed() < VALID => is_free,
            _ => {
                let is_free = system_memory(root).map_or(true, |memory| memory.swap_free > 0);
                self.read = Some((Instant::now(), is_free));
                is_free
            }
        }
    }

    /// Whether there is free swap that process `pid` may use.
    pub(super) fn is_free_for(&mut self, root: &Path, pid: u32) -> bool {
        if !self.is_free(root) {
            return false;
        }
        let cgroups = self.cgroups.get_or_insert_with(|| Hierarchy::find(root).ok());
        let may = |of: &Hierarchy| of.of_process(pid).is_none_or(|path| may_swap(of, &path));
        cgroups.as_ref().is_none_or(may)
    }
}

/// Whether the memory of this mapping can be freed only if there is swap for it, as its name says. A mapping of a file
/// may have changed private pages, which need swap as well.
pub(super) fn needs_swap(mapping: &Mapping) -> bool {
    mapping.name.is_empty()
        || mapping.name.starts_with('[')
        || SHARED_MEMORY.iter().any(|name| mapping.name.starts_with(name))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use isotherm_core::AddrRange;

    use super::*;

    #[test]
    fn memory_without_a_file_on_a_disk_needs_swap() {
        let named = |name: &str| Mapping { name: name.into(), ..Mapping::anonymous(AddrRange::new(0, 4096).unwrap()) };
        for name in ["", "[heap]", "[anon:cache]", "/memfd:jit (deleted)", "/dev/zero (deleted)", "/SYSV00000000"] {
            assert!(needs_swap(&named(name)), "{name}");
        }
        assert!(!needs_swap(&named("/usr/lib/libc.so.6")) && !needs_swap(&named("/data/index (deleted)")));
    }

    #[test]
    fn a_process_whose_cgroup_may_not_swap_has_no_swap() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("proc/self/cgroup", "0::/\n");
        write("proc/self/mountinfo", "30 1 0:26 / /cg rw - cgroup2 cgroup2 rw\n");
        write("cg/pod/memory.swap.max", "0\n");
        for (pid, cgroup) in [(7, "/pod"), (8, "/other")] {
            write(&format!("proc/{pid}/cgroup"), &format!("0::{cgroup}\n"));
        }
        let mut swap = Swap::default();
        assert_eq!([7, 8, 9].map(|pid| swap.is_free_for(root.path(), pid)), [false, true, true]);
    }

    #[test]
    fn swap_is_free_if_the_kernel_says_so() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        assert!(Swap::default().is_free(root.path()), "it cannot be read");
        let own = std::fs::read_to_string("/proc/meminfo").unwrap();
        for free in [0, 64] {
            let lines = own.lines().map(|line| match line.split_once(':') {
                Some(("SwapFree", _)) => format!("SwapFree: {free} kB\n"),
                _ => format!("{line}\n"),
            });
            std::fs::write(root.path().join("proc/meminfo"), lines.collect::<String>()).unwrap();
            assert_eq!(Swap::default().is_free(root.path()), free > 0);
        }
    }
}
