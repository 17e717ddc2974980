//! The memory that is charged to a cgroup of version 2, and its limits.

use std::fs;
use std::path::PathBuf;

use super::{CgroupVersion, Hierarchy};

/// The memory that is charged to a cgroup, and its limits, in bytes (Linux `Documentation/admin-guide/cgroup-v2.rst`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryLimits {
    /// The directory of the cgroup.
    pub directory: PathBuf,
    /// `memory.current`. `None` if the cgroup has no such file, as the root.
    pub current: Option<u64>,
    /// `memory.high`. `None` if there is no limit.
    pub high: Option<u64>,
    /// `memory.max`. `None` if there is no limit.
    pub max: Option<u64>,
}

/// The memory and the limits of the cgroup at `path`. `None` if the hierarchy is not mounted or not of version 2, or
/// the cgroup was removed.
pub fn memory_limits(hierarchy: &Hierarchy, path: &str) -> Option<MemoryLimits> {
    let mount = hierarchy.mount().filter(|_| hierarchy.version() == CgroupVersion::V2)?;
    let directory = mount.directory_of(path).filter(|directory| directory.is_dir())?;
    // Without a limit, the file says `max`.
    let bytes = |name: &str| fs::read_to_string(directory.join(name)).ok()?.trim().parse().ok();
    let (current, high, max) = (bytes("memory.current"), bytes("memory.high"), bytes("memory.max"));
    Some(MemoryLimits { directory, current, high, max })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::super::made::{mounted_at_cg, write};
    use super::*;

    #[test]
    fn a_limit_that_is_not_set_is_none() {
        let root = mounted_at_cg();
        let write = |path: &str, text: &str| write(root.path(), path, text);
        write("cg/a/memory.current", "4096\n");
        write("cg/a/memory.high", "8192\n");
        write("cg/a/memory.max", "max\n");
        let hierarchy = Hierarchy::find(root.path()).unwrap();
        let found = memory_limits(&hierarchy, "/a").unwrap();
        assert_eq!((found.current, found.high, found.max), (Some(4096), Some(8192), None));
        assert_eq!(found.directory, root.path().join("cg/a"));
        assert_eq!(memory_limits(&hierarchy, "/gone"), None);
        assert_eq!(memory_limits(&hierarchy, "/").unwrap().current, None);
    }
}
