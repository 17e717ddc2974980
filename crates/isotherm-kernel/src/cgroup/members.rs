//! The processes whose memory a cgroup accounts.

use std::fs;
use std::path::Path;

use super::Hierarchy;

/// The processes of the cgroup at `path` and of those cgroups below it that `is_own` does not claim for themselves.
/// `None` if they cannot be listed: the hierarchy is not mounted, the cgroup was removed, or has threads of processes
/// of other cgroups.
pub fn processes_in(hierarchy: &Hierarchy, path: &str, is_own: impl Fn(&str) -> bool) -> Option<Vec<u32>> {
    let mount = hierarchy.mount()?;
    let mut left = vec![mount.directory_of(path)?];
    let mut found = Vec::new();
    while let Some(directory) = left.pop() {
        let listed = fs::read_to_string(directory.join("cgroup.procs")).ok()?;
        for line in listed.lines() {
            // 0 stands for a process of another PID namespace.
            found.push(line.parse().ok().filter(|&pid| pid != 0)?);
        }
        for entry in fs::read_dir(directory).ok()?.flatten() {
            let directory = entry.path();
            let is_own = |directory: &Path| {
                directory.strip_prefix(&mount.directory).is_ok_and(|below| is_own(&mount.path(below)))
            };
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) && !is_own(&directory) {
                left.push(directory);
            }
        }
    }
    Some(found)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::super::made::{mounted_at_cg, write};
    use super::*;

    #[test]
    fn processes_of_cgroups_that_are_accounted_apart_are_left_out() {
        let root = mounted_at_cg();
        let write = |path: &str, text: &str| write(root.path(), path, text);
        write("cg/a/cgroup.procs", "1\n2\n");
        write("cg/a/b/cgroup.procs", "3\n");
        write("cg/a/own/cgroup.procs", "4\n");
        write("cg/a/own/c/cgroup.procs", "5\n");
        write("cg/other/cgroup.procs", "6\n");
        let hierarchy = Hierarchy::find(root.path()).unwrap();
        let in_a = |path: &str| processes_in(&hierarchy, path, |path| path == "/a/own");
        let mut found = in_a("/a").unwrap();
        found.sort_unstable();
        assert_eq!(found, [1, 2, 3]);
        assert_eq!(in_a("/gone"), None);
        write("cg/a/b/cgroup.procs", "0\n");
        assert_eq!(in_a("/a"), None);
    }
}
