//! Formats 1 and 2: their columns, and what these are in format 3.
//!
//! Format 2 is format 1 with the column `activity`. Both name a target by its pid, physical memory by 0, and have no
//! start since boot. A mapping of physical memory has its node in its name. An action has no parameters, and a refusal
//! is an error number.

mod columns;

use std::sync::Arc;

use isotherm_core::NodeId;
use isotherm_core::scheme::{Refusal, RefusalReason};

pub(crate) use columns::{Row, RowReader};

use crate::columns as present;
use crate::id::StoredId;

/// The text between the name and the node of a mapping of physical memory.
const NODE: &str = ", node ";

/// The identity that a number in a `pid` column means.
pub(crate) fn id(pid: u32) -> present::Id {
    match pid {
        0 => StoredId::PhysicalMemory,
        pid => StoredId::Process { pid, start_ns: None },
    }
    .column()
}

impl From<Row> for present::Row {
    fn from(row: Row) -> Self {
        let kind = if row.activity.is_some() { present::ACTIVITY } else { present::TARGET };
        let mappings = row.mappings.map(|mappings| mappings.into_iter().map(|old| mapping(row.pid, old)).collect());
        Self {
            kind: Arc::from(kind),
            time_ns: row.time_ns,
            aggregation_ns: Some(row.aggregation_ns),
            samples: Some(row.samples),
            id: Some(id(row.pid)),
            target: row.target,
            mappings,
            regions: Some(row.regions.into_iter().map(|old| region(&old, row.samples)).collect()),
            cost: row.cost,
            activity: row.activity.map(present::Activity::from),
            survey: None,
            mark: None,
            allocations: None,
            missed: None,
            panel: None,
        }
    }
}

fn mapping(pid: u32, old: columns::Mapping) -> present::Mapping {
    let (name, node) = if pid == 0 { split_node(&old.name) } else { (old.name, None) };
    present::Mapping {
        start: old.start,
        end: old.end,
        permissions: old.permissions,
        name,
        node: node.map(|NodeId(node)| node),
    }
}

/// The name of a mapping of physical memory, and its node.
fn split_node(name: &Arc<str>) -> (Arc<str>, Option<NodeId>) {
    let found = name.rsplit_once(NODE).and_then(|(name, node)| Some((name.into(), Some(NodeId(node.parse().ok()?)))));
    found.unwrap_or_else(|| (Arc::clone(name), None))
}

fn region(old: &columns::Region, samples: u32) -> present::Region {
    present::Region {
        start: old.start,
        end: old.end,
        nr_accesses: old.nr_accesses,
        // These formats do not say how many were taken.
        nr_samples: samples,
        age: old.age,
        nr_unobservable: old.nr_unobservable,
        present_bytes: None,
        touched_bytes: None,
        unobservable_bytes: None,
        unknown_bytes: None,
        swapped_bytes: None,
    }
}

impl From<columns::Activity> for present::Activity {
    fn from(old: columns::Activity) -> Self {
        let memory = old.memory.into_iter().map(|used| present::Memory {
            id: id(used.pid),
            resident_bytes: used.resident_bytes,
            proportional_bytes: Some(used.proportional_bytes),
            swapped_bytes: used.swapped_bytes,
        });
        Self {
            time_ns: old.time_ns,
            schemes: old.schemes.into_iter().map(present::Scheme::from).collect(),
            memory: memory.collect(),
            system: old.system,
            major_faults: None,
        }
    }
}

impl From<columns::Scheme> for present::Scheme {
    fn from(old: columns::Scheme) -> Self {
        Self {
            name: old.name,
            action: present::Action { name: old.action, target_node: None },
            awake: old.awake,
            quota_bytes: old.quota_bytes,
            goal_score: old.goal_score,
            quota_share: None,
            total: old.total.into(),
            last: old.last.into(),
        }
    }
}

impl From<columns::Total> for present::Total {
    fn from(old: columns::Total) -> Self {
        let refusals = old.refusals.into_iter().map(|count| {
            let Refusal { reason, code } = refusal(count.errno);
            present::Refusal { reason: reason.name().into(), code, regions: count.regions, bytes: count.bytes }
        });
        Self {
            applications: old.applications,
            tried_regions: old.tried_regions,
            tried_bytes: old.tried_bytes,
            passed_bytes: old.passed_bytes,
            applied_regions: old.applied_regions,
            applied_bytes: old.applied_bytes,
            rejected_bytes: old.rejected_bytes,
            refusals: refusals.collect(),
            quota_exceeded: old.quota_exceeded,
            spent_ns: old.spent_ns,
            watched_bytes: None,
            returned_bytes: None,
            unmapped_bytes: None,
        }
    }
}

impl From<columns::Last> for present::Last {
    fn from(old: columns::Last) -> Self {
        let regions = old.regions.into_iter().map(|region| present::Acted {
            id: id(region.pid),
            start: region.start,
            end: region.end,
            applied_bytes: region.applied_bytes,
        });
        Self {
            time_ns: old.time_ns,
            held_back_bytes: old.held_back_bytes,
            unobservable_bytes: old.unobservable_bytes,
            regions: regions.collect(),
        }
    }
}

/// The refusal that an error number of Linux means. A number that has several meanings becomes
/// [`RefusalReason::Other`].
fn refusal(errno: i32) -> Refusal {
    let reason = match errno {
        // Written for a refusal without an error number.
        0 => return RefusalReason::Other.into(),
        3 => RefusalReason::TargetGone,        // ESRCH
        4 => RefusalReason::Interrupted,       // EINTR
        1 | 13 => RefusalReason::NotPermitted, // EPERM, EACCES
        11 | 16 | 110 => RefusalReason::Busy,  // EAGAIN, EBUSY, ETIMEDOUT
        22 => RefusalReason::Unsuitable,       // EINVAL
        38 | 95 => RefusalReason::Unsupported, // ENOSYS, EOPNOTSUPP
        _ => RefusalReason::Other,             // ENOMEM: too little memory, or not mapped
    };
    reason.with_code(errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_of_physical_memory_is_split_off_its_name() {
        let split = |name: &str| {
            let (name, node) = split_node(&name.into());
            (name.to_string(), node)
        };
        assert_eq!(split("System RAM, node 1"), ("System RAM".into(), Some(NodeId(1))));
        assert_eq!(split("System RAM"), ("System RAM".into(), None));
        assert_eq!(split("System RAM, node x"), ("System RAM, node x".into(), None));
    }

    #[test]
    fn an_error_number_becomes_a_reason_that_keeps_it() {
        assert_eq!(refusal(11), RefusalReason::Busy.with_code(11));
        assert_eq!(refusal(12), RefusalReason::Other.with_code(12));
        assert_eq!(refusal(0), RefusalReason::Other.into());
    }
}
