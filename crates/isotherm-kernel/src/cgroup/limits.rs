//! The memory that is charged to a cgroup, and its limits.

use std::fs;
use std::path::{Path, PathBuf};

use super::{CgroupVersion, Hierarchy};

/// The memory that is charged to a cgroup, and its limits, in bytes (Linux `Documentation/admin-guide/cgroup-v2.rst`
/// and `cgroup-v1/memory.rst`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryLimits {
    /// The directory of the cgroup.
    pub directory: PathBuf,
    /// `memory.current`, in version 1 `memory.usage_in_bytes`. `None` if the cgroup has no such file, as the root of
    /// version 2.
    pub current: Option<u64>,
    /// `memory.high`. `None` if there is no limit, and in version 1.
    pub high: Option<u64>,
    /// `memory.max`, in version 1 `memory.limit_in_bytes`. `None` if there is no limit.
    pub max: Option<u64>,
    /// The lowest such limit of the cgroup and of those above it, with the path of the nearest one that has it. `None`
    /// if none has a limit. What lies outside of a container is not known in it.
    pub lowest: Option<(String, u64)>,
}

/// The least limit of version 1 that means no limit. The kernel shows the largest number of whole pages.
const NO_LIMIT: u64 = 1 << 62;

/// The memory and the limits of the cgroup at `path`. `None` if the hierarchy is not mounted, or the cgroup was
/// removed.
pub fn memory_limits(hierarchy: &Hierarchy, path: &str) -> Option<MemoryLimits> {
    let mount = hierarchy.mount()?;
    let directory = mount.directory_of(path).filter(|directory| directory.is_dir())?;
    // Without a limit, the file says `max`.
    let bytes = |directory: &Path, name: &str| -> Option<u64> {
        fs::read_to_string(directory.join(name)).ok()?.trim().parse().ok().filter(|bytes| *bytes < NO_LIMIT)
    };
    let (current, max) = match hierarchy.version() {
        CgroupVersion::V1 => ("memory.usage_in_bytes", "memory.limit_in_bytes"),
        CgroupVersion::V2 => ("memory.current", "memory.max"),
    };
    let limited = Path::new(path).ancestors().filter_map(|above| {
        let above = above.to_str()?;
        Some((above.to_owned(), bytes(&mount.directory_of(above)?, max)?))
    });
    let lowest = limited.reduce(|near, far| if far.1 < near.1 { far } else { near });
    let (current, high, max) = (bytes(&directory, current), bytes(&directory, "memory.high"), bytes(&directory, max));
    Some(MemoryLimits { directory, current, high, max, lowest })
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
        assert_eq!(found.lowest, None);
        write("cg/memory.max", "9000\n");
        write("cg/a/b/memory.max", "9000\n");
        write("cg/a/memory.max", "5000\n");
        write("cg/a/b/c/memory.max", "max\n");
        let lowest = |path: &str| memory_limits(&hierarchy, path).unwrap().lowest.unwrap();
        assert_eq!(
            [lowest("/a/b/c"), lowest("/a"), lowest("/")],
            [("/a".to_owned(), 5000), ("/a".to_owned(), 5000), ("/".to_owned(), 9000)]
        );
        assert_eq!(memory_limits(&hierarchy, "/gone"), None);
        assert_eq!(memory_limits(&hierarchy, "/").unwrap().current, None);
    }

    #[test]
    fn the_limits_of_version_1_are_those_of_the_memory_controller() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| write(root.path(), path, text);
        write("proc/self/cgroup", "4:memory:/\n");
        write("proc/self/mountinfo", "30 1 0:26 / /cg rw - cgroup cgroup rw,memory\n");
        write("cg/a/memory.limit_in_bytes", "8192\n");
        write("cg/a/b/memory.limit_in_bytes", "9223372036854771712\n");
        write("cg/a/b/memory.usage_in_bytes", "4096\n");
        let found = memory_limits(&Hierarchy::find(root.path()).unwrap(), "/a/b").unwrap();
        assert_eq!((found.current, found.high, found.max), (Some(4096), None, None));
        assert_eq!(found.lowest, Some(("/a".to_owned(), 8192)));
    }
}
