//! The result of an idle-memory scan.

use std::sync::Arc;

use isotherm_core::{AddrRange, IdleTally, NodeId, Permissions};

use isotherm_kernel::cgroup::CgroupVersion;

/// The method by which a scan finds idle memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanMethod {
    /// Idle page tracking, page frame by page frame. Memory counts for the cgroup that it is charged to.
    IdlePageTracking,
    /// The accessed bits in page tables, process by process. Memory counts for the cgroup that the process is in.
    PageTables,
}

/// The result of a scan for the last interval.
#[derive(Clone, Debug)]
pub struct IdleFindings {
    /// The method of the scan.
    pub method: ScanMethod,
    /// The version of the cgroup hierarchy that accounts memory, if there is one.
    pub cgroup_version: Option<CgroupVersion>,
    /// All memory that was scanned, in bytes. Each page counts once.
    pub total: IdleTally,
    /// The part of [`total`](Self::total) that several of the scanned processes map. `None` if that is not known.
    pub shared: Option<IdleTally>,
    /// The memory of each NUMA node, sorted. Empty if all memory of the machine is on one node
    /// and no node was named.
    pub nodes: Vec<NodeIdle>,
    /// The cgroups that have some of this memory, sorted by path.
    pub cgroups: Vec<CgroupIdle>,
    /// The processes that map some of this memory, sorted by PID. Empty unless they were asked for.
    pub processes: Vec<ProcessIdle>,
    /// Remarks on the figures: for example, which processes ended, and which could not be scanned.
    pub notes: Vec<String>,
}

/// The memory of one NUMA node.
#[derive(Clone, Debug)]
pub struct NodeIdle {
    /// The node, or `None` for memory whose node is not known.
    pub node: Option<NodeId>,
    /// The memory in bytes, by idle time.
    pub tally: IdleTally,
}

/// The memory of one cgroup, without the cgroups below it.
///
/// A page that processes of several cgroups map counts for the cgroup that is above all of them, unless the method
/// knows which cgroup it is charged to.
#[derive(Clone, Debug)]
pub struct CgroupIdle {
    /// The path of the cgroup within the hierarchy, or `None` if the memory is in no cgroup or the path is not known.
    pub path: Option<String>,
    /// The inode number of the cgroup's directory, if the path is not known.
    pub inode: Option<u64>,
    /// The memory in bytes, by idle time.
    pub own: IdleTally,
}

/// The memory that one process maps.
#[derive(Clone, Debug)]
pub struct ProcessIdle {
    /// The process ID.
    pub pid: u32,
    /// The process ID in the PID namespace of the process, if that is another one than isotherm's.
    pub inner_pid: Option<u32>,
    /// The command line, or the name of a process without one.
    pub command: String,
    /// The path of the process's cgroup, if there is one.
    pub cgroup: Option<String>,
    /// The memory in bytes, by idle time.
    pub total: IdleTally,
    /// The bytes of [`total`](Self::total) that other scanned processes map, too. 0 if that is not known.
    pub shared: u64,
    /// The mappings with present pages, sorted by address. Empty unless they were asked for.
    pub mappings: Vec<MappingIdle>,
}

/// The memory that is present in one mapping.
#[derive(Clone, Debug)]
pub struct MappingIdle {
    /// The addresses of the mapping.
    pub range: AddrRange,
    /// The permissions of the mapping.
    pub permissions: Permissions,
    /// The name of the mapping, such as the path of a file; empty if it is anonymous.
    pub name: Arc<str>,
    /// The memory in bytes, by idle time.
    pub tally: IdleTally,
}
