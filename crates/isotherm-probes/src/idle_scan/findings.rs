//! What a scan found.

use std::sync::Arc;

use isotherm_core::{AddrRange, IdleTally, Permissions};

use isotherm_kernel::cgroup::CgroupVersion;

/// How it was found which memory is idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By the kernel's idle page tracking, page frame by page frame; memory is of the cgroup that it is charged to.
    IdlePageTracking,
    /// By the accessed bits of page tables, process by process; memory is of the cgroup that the process is in.
    PageTables,
}

/// What a scan found of the last interval.
#[derive(Clone, Debug)]
pub struct IdleFindings {
    /// How.
    pub way: Way,
    /// The kind of the hierarchy that the cgroups are of, if there is one.
    pub cgroup_version: Option<CgroupVersion>,
    /// All memory that was looked at.
    pub total: IdleTally,
    /// The cgroups that have some of it, by path.
    pub cgroups: Vec<CgroupIdle>,
    /// The processes that have some of it mapped, by ID, if they were asked for.
    pub processes: Vec<ProcessIdle>,
    /// What is to be known of these figures: what went away, what could not be looked at.
    pub notes: Vec<String>,
}

/// The memory of one cgroup, without those below it.
#[derive(Clone, Debug)]
pub struct CgroupIdle {
    /// Its path within the hierarchy; nothing for memory that is in no cgroup, or whose cgroup cannot be told.
    pub path: Option<String>,
    /// Its inode number, if that is what is known of it.
    pub inode: Option<u64>,
    /// How much is idle.
    pub own: IdleTally,
}

/// What one process has mapped.
#[derive(Clone, Debug)]
pub struct ProcessIdle {
    /// Its ID.
    pub pid: u32,
    /// Its command line, or its name where it has none.
    pub command: String,
    /// The path of its cgroup, if there are any.
    pub cgroup: Option<String>,
    /// How much is idle.
    pub total: IdleTally,
    /// Its mappings that have something present, by address, if they were asked for.
    pub mappings: Vec<MappingIdle>,
}

/// What is present of one mapping.
#[derive(Clone, Debug)]
pub struct MappingIdle {
    /// Where it lies.
    pub range: AddrRange,
    /// What may be done with it.
    pub permissions: Permissions,
    /// What is mapped; empty if it is anonymous.
    pub name: Arc<str>,
    /// How much is idle.
    pub tally: IdleTally,
}
