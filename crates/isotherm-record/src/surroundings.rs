//! The surroundings of the targets: what advice on their memory needs beside it.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The surroundings of the targets at one time. What is not known is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Surroundings {
    /// The setting of transparent huge pages: `always`, `madvise` or `never`.
    pub transparent_huge_pages: Option<String>,
    /// The anonymous memory of all targets together.
    pub anonymous: Option<AnonymousMemory>,
    /// The cgroup that accounts the memory of all targets. `None` also if they are in different ones.
    pub cgroup: Option<Cgroup>,
}

/// Anonymous memory, as `/proc/PID/status` and `/proc/PID/pagemap` tell it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AnonymousMemory {
    /// All anonymous memory that is resident.
    pub bytes: u64,
    /// The part of it in huge pages. `None` if the kernel does not tell, or it would take too long.
    pub huge_bytes: Option<u64>,
}

/// A cgroup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cgroup {
    /// Its path within the hierarchy.
    pub path: String,
    /// Its directory. `None` if the hierarchy is not mounted.
    pub directory: Option<String>,
    /// The version of the hierarchy, 1 or 2.
    pub version: u32,
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

/// A limit on the memory of a cgroup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Limit {
    /// The path of the cgroup that has it.
    pub path: String,
    /// The limit.
    pub bytes: u64,
}

impl Surroundings {
    /// The surroundings of the targets without so many of them, which are other processes then.
    #[must_use]
    pub fn without(mut self, targets: usize) -> Self {
        if targets > 0 {
            // Which part of the memory is theirs is not known.
            self.anonymous = None;
            let others = self.cgroup.as_mut().and_then(|cgroup| cgroup.other_processes.as_mut());
            if let Some(others) = others {
                *others = others.saturating_add(targets as u64);
            }
        }
        self
    }

    /// This as JSON, for its column.
    pub(crate) fn to_json(&self) -> Option<Arc<str>> {
        serde_json::to_string(self).ok().map(Arc::from)
    }

    /// What the column holds.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn of_json(text: &str) -> Result<Self, &'static str> {
        serde_json::from_str(text).map_err(|_| "the surroundings of the targets are not the JSON that the format says")
    }
}
