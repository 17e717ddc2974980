//! Identities of targets as a recording has them.

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{CgroupId, TargetId};

use crate::time::nanoseconds;
use crate::{TargetInfo, columns};

/// The number of a target in `pid` columns and in JSON: the pid of a process, 0 for any other target.
pub fn pid_column(id: TargetId) -> u32 {
    id.pid().unwrap_or(0)
}

/// The process with this pid whose start since the boot of the machine is not known, or physical memory if `pid` is 0.
///
/// Recordings of other tools hold no such start. It is counted from the Unix epoch
/// instead, and is zero if `info` is not known.
pub fn identity(pid: u32, info: Option<&TargetInfo>) -> TargetId {
    match pid {
        0 => TargetId::PhysicalMemory,
        pid => TargetId::process(pid, Duration::from_nanos(info.map_or(0, |info| info.started_unix_ns))),
    }
}

/// The identity of a target as the column `id` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum StoredId {
    Process { pid: u32, start_ns: Option<u64> },
    PhysicalMemory,
    Cgroup(u64),
    PageCache,
}

impl StoredId {
    /// The names of the types of targets.
    const PROCESS: &str = "process";
    const PHYSICAL: &str = "physical";
    const CGROUP: &str = "cgroup";
    const PAGE_CACHE: &str = "page_cache";

    /// The identity of `id`. A start of a process that is not counted from the boot (`from_boot`) is left out.
    pub(crate) fn new(id: TargetId, from_boot: bool) -> Self {
        match id {
            TargetId::Process(process) => {
                Self::Process { pid: process.pid, start_ns: from_boot.then(|| nanoseconds(process.start)) }
            }
            TargetId::PhysicalMemory => Self::PhysicalMemory,
            TargetId::Cgroup(CgroupId(id)) => Self::Cgroup(id),
            TargetId::PageCache => Self::PageCache,
        }
    }

    /// The identity that the column holds; `None` if it is of a type that this version does not know.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn read(id: &columns::Id) -> Result<Option<Self>, &'static str> {
        Ok(Some(match &*id.kind {
            Self::PROCESS => {
                let pid = id.pid.filter(|&pid| pid > 0).ok_or("a process has no pid")?;
                Self::Process { pid, start_ns: id.start_ns }
            }
            Self::PHYSICAL => Self::PhysicalMemory,
            Self::CGROUP => Self::Cgroup(id.cgroup.ok_or("a cgroup has no ID")?),
            Self::PAGE_CACHE => Self::PageCache,
            _ => return Ok(None),
        }))
    }

    /// The value of the column.
    pub(crate) fn column(self) -> columns::Id {
        let id = |kind: &str| columns::Id { kind: Arc::from(kind), pid: None, start_ns: None, cgroup: None };
        match self {
            Self::Process { pid, start_ns } => columns::Id { pid: Some(pid), start_ns, ..id(Self::PROCESS) },
            Self::PhysicalMemory => id(Self::PHYSICAL),
            Self::Cgroup(cgroup) => columns::Id { cgroup: Some(cgroup), ..id(Self::CGROUP) },
            Self::PageCache => id(Self::PAGE_CACHE),
        }
    }

    /// The target. Where the start of a process is not known, `info` tells it.
    pub(crate) fn target(self, info: &TargetInfo) -> TargetId {
        match self {
            Self::Process { pid, start_ns: Some(start) } => TargetId::process(pid, Duration::from_nanos(start)),
            Self::Process { pid, start_ns: None } => identity(pid, Some(info)),
            Self::PhysicalMemory => TargetId::PhysicalMemory,
            Self::Cgroup(id) => TargetId::Cgroup(CgroupId(id)),
            Self::PageCache => TargetId::PageCache,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_read_as_they_are_written() {
        let info = TargetInfo { started_unix_ns: 9, ..TargetInfo::default() };
        let process = TargetId::process(7, Duration::from_millis(1230));
        for id in [process, TargetId::PhysicalMemory, TargetId::Cgroup(CgroupId(0)), TargetId::PageCache] {
            let stored = StoredId::new(id, true);
            assert_eq!(StoredId::read(&stored.column()), Ok(Some(stored)));
            assert_eq!(stored.target(&info), id);
        }
        let unknown_start = StoredId::new(process, false);
        assert_eq!(unknown_start.column().start_ns, None);
        assert_eq!(unknown_start.target(&info), TargetId::process(7, Duration::from_nanos(9)));
    }

    #[test]
    fn an_identity_of_another_type_is_not_known_and_one_without_a_number_is_wrong() {
        let id = |kind: &str, pid| columns::Id { kind: kind.into(), pid, start_ns: None, cgroup: None };
        assert_eq!(StoredId::read(&id("guest", Some(7))), Ok(None));
        assert_eq!(StoredId::read(&id("process", None)), Err("a process has no pid"));
        assert_eq!(StoredId::read(&id("process", Some(0))), Err("a process has no pid"));
        assert_eq!(StoredId::read(&id("cgroup", Some(7))), Err("a cgroup has no ID"));
    }
}
