//! Control groups, as far as it matters whose memory is: the hierarchy that memory is accounted in, the path of each of its
//! cgroups by inode number, and the cgroup that a process belongs to.
//!
//! There are hierarchies of version 1, one for each set of controllers, and one of version 2 (Linux
//! `Documentation/admin-guide/cgroup-v1` and `cgroup-v2.rst`). They may be there side by side; the memory controller is in one of them
//! at a time, and only that one matters here. Inode numbers are unique within a hierarchy only.

mod hierarchy;
mod tree;

pub use hierarchy::{CgroupVersion, Hierarchy, NoHierarchy, of_process};
pub use tree::{CgroupPaths, is_below};
