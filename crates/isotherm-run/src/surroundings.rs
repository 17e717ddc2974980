//! Reads the surroundings of the targets of a run: what advice on their memory needs beside it.

use std::path::Path;

use isotherm_kernel::cgroup::{self, Hierarchy};
use isotherm_kernel::{anonymous_bytes, huge_bytes, meminfo, transparent_huge_pages};
use isotherm_record::{AnonymousMemory, Cgroup, Limit, Surroundings};

/// More anonymous memory than this is not searched for huge pages: it takes about 2 ms of CPU time for each GiB.
const MOST_SEARCHED: u64 = 16 << 30;

/// The surroundings of these processes.
pub(crate) fn read(root: &Path, pids: &[u32]) -> Surroundings {
    Surroundings {
        transparent_huge_pages: transparent_huge_pages(root),
        anonymous: anonymous_of(root, pids),
        cgroup: cgroup_of(root, pids),
    }
}

/// The anonymous memory of all of these processes that still run. `None` if none does.
fn anonymous_of(root: &Path, pids: &[u32]) -> Option<AnonymousMemory> {
    let each: Vec<(u32, u64)> = pids.iter().filter_map(|&pid| Some((pid, anonymous_bytes(root, pid).ok()?))).collect();
    let bytes = each.iter().map(|(_, bytes)| bytes).sum();
    let huge_bytes = match meminfo(root).ok().and_then(|info| info.anon_hugepages) {
        Some(0) => Some(0),
        _ if bytes > MOST_SEARCHED => None,
        _ => each.iter().map(|&(pid, _)| huge_bytes(root, pid)).sum(),
    };
    (!each.is_empty()).then_some(AnonymousMemory { bytes, huge_bytes })
}

/// The cgroup of all of these processes. `None` if they are in different ones.
fn cgroup_of(root: &Path, pids: &[u32]) -> Option<Cgroup> {
    let hierarchy = Hierarchy::find(root).ok()?;
    let mut paths = pids.iter().filter_map(|&pid| hierarchy.of_process(pid));
    let path = paths.next().filter(|first| paths.all(|path| path == *first))?;
    let limits = cgroup::memory_limits(&hierarchy, &path);
    // isotherm is in the cgroup for the time of the run only.
    let own = std::process::id();
    let others = cgroup::processes_in(&hierarchy, &path, |_| false)
        .map(|found| found.iter().filter(|pid| !pids.contains(pid) && **pid != own).count() as u64);
    let limits = limits.as_ref();
    let lowest = limits.and_then(|limits| limits.lowest.clone());
    Some(Cgroup {
        version: hierarchy.version().number().into(),
        directory: limits.map(|limits| limits.directory.display().to_string()),
        current_bytes: limits.and_then(|limits| limits.current),
        high_bytes: limits.and_then(|limits| limits.high),
        max_bytes: limits.and_then(|limits| limits.max),
        lowest_limit: lowest.map(|(path, bytes)| Limit { path, bytes }),
        other_processes: others,
        path,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn limits_of_the_cgroups_above_and_other_processes_are_read_below_the_root() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("proc/self/cgroup", "0::/\n");
        write("proc/self/mountinfo", "30 1 0:26 / /cg rw - cgroup2 cgroup rw\n");
        // The parser needs all lines that a kernel has.
        let own = std::fs::read_to_string("/proc/meminfo").unwrap();
        let others = own.lines().filter(|line| !line.starts_with("AnonHugePages"));
        let meminfo: String = others.map(|line| format!("{line}\n")).collect();
        write("proc/meminfo", &format!("{meminfo}AnonHugePages: 2048 kB\n"));
        for pid in [7, 8] {
            write(&format!("proc/{pid}/cgroup"), "0::/a/b\n");
            write(&format!("proc/{pid}/status"), "RssAnon:\t    1024 kB\n");
        }
        write("cg/cgroup.controllers", "memory\n");
        write("cg/a/memory.max", "2147483648\n");
        write("cg/a/b/memory.max", "max\n");
        write("cg/a/b/memory.current", "4096\n");
        write("cg/a/b/cgroup.procs", "7\n8\n9\n");
        let found = read(root.path(), &[7, 8]);
        let cgroup = found.cgroup.unwrap();
        assert_eq!((cgroup.path.as_str(), cgroup.version, cgroup.current_bytes), ("/a/b", 2, Some(4096)));
        assert_eq!(cgroup.lowest_limit, Some(Limit { path: "/a".into(), bytes: 2 * GIB }));
        assert_eq!((cgroup.max_bytes, cgroup.other_processes), (None, Some(1)));
        // A made tree has no pagemap.
        assert_eq!(found.anonymous, Some(AnonymousMemory { bytes: 2 << 20, huge_bytes: None }));

        write("proc/meminfo", &format!("{meminfo}AnonHugePages: 0 kB\n"));
        write("proc/8/cgroup", "0::/a\n");
        let apart = read(root.path(), &[7, 8]);
        assert_eq!((apart.cgroup, apart.anonymous.unwrap().huge_bytes), (None, Some(0)));
        assert_eq!(read(root.path(), &[]), Surroundings::default());
    }
}
