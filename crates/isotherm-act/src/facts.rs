//! What a process is, for filters: its name and its cgroup.

use std::fs;
use std::path::Path;

use isotherm_core::scheme::ProcessFacts;

/// The facts of process `pid`, below the directory that stands for `/`; nothing if it has gone.
pub(super) fn facts(root: &Path, pid: u32) -> Option<ProcessFacts> {
    let read = |name: &str| fs::read_to_string(root.join(format!("proc/{pid}/{name}")));
    let name = read("comm").ok()?;
    // A kernel without cgroups has none to tell.
    let cgroup = read("cgroup").unwrap_or_default();
    Some(ProcessFacts { name: name.trim_end_matches('\n').into(), cgroup: path(&cgroup).unwrap_or_default().into() })
}

/// The path in the one hierarchy of cgroup v2; on a machine with v1, where that has nothing in it, in the one of memory
/// (`cgroups(7)`, "/proc/pid/cgroup").
fn path(told: &str) -> Option<&str> {
    let lines = || {
        told.lines().filter_map(|line| {
            let (_, rest) = line.split_once(':')?;
            rest.split_once(':')
        })
    };
    let v1 = lines().find(|(controllers, _)| controllers.split(',').any(|controller| controller == "memory"));
    let v2 = || lines().find(|(controllers, _)| controllers.is_empty());
    v1.or_else(v2).map(|(_, path)| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cgroup_is_the_one_that_counts_memory() {
        assert_eq!(path("0::/system.slice/redis.service\n"), Some("/system.slice/redis.service"));
        assert_eq!(path("5:cpu,cpuacct:/a\n4:memory:/b:c\n0::/\n"), Some("/b:c"));
        assert_eq!(path("1:name=systemd:/a\n0::/d\n"), Some("/d"));
        assert_eq!(path(""), None);
    }

    #[test]
    fn this_process_has_a_name_and_what_is_not_there_has_none() {
        let own = facts(Path::new("/"), std::process::id()).unwrap();
        assert!(!own.name.is_empty() && !own.name.contains('\n'));
        assert_eq!(facts(Path::new("/"), u32::MAX), None);
    }
}
