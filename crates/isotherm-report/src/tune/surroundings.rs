//! What advice can use beside a recording: the cgroup of the targets, swap, and the setting of huge pages.

use serde::Serialize;

/// What is known of the machine and of the targets at the end of the run. What is not known is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Surroundings {
    /// The options with which the targets were named, quoted for a shell, such as `--pid 1234 --children`. `None`
    /// derives them from the targets.
    pub target_options: Option<String>,
    /// The swap of the machine.
    pub swap: Option<Swap>,
    /// The setting of transparent huge pages: `always`, `madvise` or `never`.
    pub transparent_huge_pages: Option<String>,
    /// The anonymous memory of all targets together.
    pub anonymous: Option<AnonymousMemory>,
    /// The cgroup that accounts the memory of all targets. `None` also if they are in different ones.
    pub cgroup: Option<Cgroup>,
}

/// The swap of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Swap {
    /// Its size.
    pub total_bytes: u64,
    /// The unused part.
    pub free_bytes: u64,
}

/// Anonymous memory, as `/proc/PID/status` and `/proc/PID/pagemap` tell it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AnonymousMemory {
    /// All anonymous memory that is resident.
    pub bytes: u64,
    /// The part of it in huge pages. `None` if the kernel does not tell.
    pub huge_bytes: Option<u64>,
}

/// A limit on the memory of a cgroup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Limit {
    /// The path of the cgroup that has it.
    pub path: String,
    /// The limit.
    pub bytes: u64,
}

/// A cgroup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cgroup {
    /// Its path within the hierarchy.
    pub path: String,
    /// Its directory. `None` if the hierarchy is not mounted.
    pub directory: Option<String>,
    /// The version of the hierarchy, 1 or 2.
    pub version: u8,
    /// The memory that is charged to it (`memory.current`, or `memory.usage_in_bytes` in version 1).
    pub current_bytes: Option<u64>,
    /// Its `memory.high`. `None` if there is no such limit, and in version 1.
    pub high_bytes: Option<u64>,
    /// Its `memory.max`, or `memory.limit_in_bytes` in version 1. `None` if there is no such limit.
    pub max_bytes: Option<u64>,
    /// The lowest limit of the cgroup and its ancestors. `None` if none of them has a limit.
    pub lowest_limit: Option<Limit>,
    /// The number of processes in it and below it that are not targets. `None` if they cannot be counted.
    pub other_processes: Option<u64>,
}
