//! Reads control groups: the hierarchy that accounts memory, the paths of its cgroups by inode number, and the cgroup
//! of a process.
//!
//! A machine can have several hierarchies of version 1, each with its own set of controllers, and one of version 2
//! (Linux `Documentation/admin-guide/cgroup-v1` and `cgroup-v2.rst`). The memory controller belongs to one hierarchy at
//! a time. This module uses only that hierarchy. Inode numbers are unique within one hierarchy.
//!
//! Of version 2, it also asks the kernel to reclaim memory of a cgroup, and sets limits of it ([`CgroupMemory`]).
//! [`OwnCgroup`] makes a cgroup and removes it.

mod charges;
mod files;
mod gauges;
mod hierarchy;
mod limit;
mod limits;
#[cfg(test)]
mod made;
mod members;
mod memory;
mod own;
mod refused;
mod selected;
mod tree;

pub use charges::{CgroupCharges, charges, may_swap};
pub use files::{CgroupDirectory, CgroupFiles};
pub use gauges::CgroupGauges;
pub use hierarchy::{CgroupVersion, Hierarchy, NoHierarchy, of_process};
pub use limit::{LimitFile, MemoryLimit};
pub use limits::{MemoryLimits, memory_limits};
pub use members::processes_in;
pub use memory::{CgroupCounters, CgroupMemory, Reclaimed};
pub use own::{NoOwnCgroup, OwnCgroup};
pub use refused::NoMemoryCgroup;
pub use selected::SelectedCgroups;
pub use tree::CgroupPaths;
pub(crate) use tree::is_below;
