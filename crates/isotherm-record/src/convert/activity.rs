//! An activity in JSON: as in the recording's column.

use isotherm_core::NodeId;
use isotherm_core::scheme::Report;
use serde::Serialize;

use super::identity::IdOut;
use crate::id::pid_column;
use crate::time::nanoseconds;
use crate::{Activity, Surroundings};

#[derive(Serialize)]
pub(super) struct ActivityOut<'a> {
    time_ns: u64,
    schemes: Vec<Scheme<'a>>,
    memory: Vec<Memory>,
    system: System,
    major_faults: Option<u64>,
    surroundings: Option<&'a Surroundings>,
}

#[derive(Serialize)]
struct Scheme<'a> {
    name: &'a str,
    action: &'a str,
    target_node: Option<u32>,
    awake: bool,
    quota_bytes: Option<u64>,
    goal_score: Option<f64>,
    quota_share: Option<f64>,
    total: Total<'a>,
    last: Last,
}

#[derive(Serialize)]
struct Total<'a> {
    applications: u64,
    tried_regions: u64,
    tried_bytes: u64,
    passed_bytes: u64,
    applied_regions: u64,
    applied_bytes: u64,
    rejected_bytes: u64,
    refusals: Vec<Refusal<'a>>,
    quota_exceeded: u64,
    spent_ns: u64,
    watched_bytes: u64,
    returned_bytes: u64,
    unmapped_bytes: u64,
}

#[derive(Serialize)]
struct Refusal<'a> {
    errno: i32,
    reason: &'a str,
    regions: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct Last {
    time_ns: u64,
    held_back_bytes: u64,
    unobservable_bytes: u64,
    regions: Vec<Acted>,
}

#[derive(Serialize)]
struct Acted {
    pid: u32,
    id: IdOut,
    start: u64,
    end: u64,
    applied_bytes: u64,
}

#[derive(Serialize)]
struct Memory {
    pid: u32,
    id: IdOut,
    resident_bytes: u64,
    proportional_bytes: Option<u64>,
    swapped_bytes: u64,
}

#[derive(Serialize)]
struct System {
    total_bytes: u64,
    free_bytes: u64,
    available_bytes: u64,
    swap_total_bytes: u64,
    swap_free_bytes: u64,
    stalled_ns: Option<u64>,
}

impl<'a> ActivityOut<'a> {
    /// `from_boot`: starts of processes are counted from the boot.
    pub(super) fn new(activity: &'a Activity, from_boot: bool) -> Self {
        let memory = activity.memory.iter().map(|(target, used)| Memory {
            pid: pid_column(*target),
            id: IdOut::new(*target, from_boot),
            resident_bytes: used.resident,
            proportional_bytes: used.proportional,
            swapped_bytes: used.swapped,
        });
        let system = &activity.system;
        Self {
            time_ns: nanoseconds(activity.time),
            schemes: activity.schemes.iter().map(|report| Scheme::new(report, from_boot)).collect(),
            memory: memory.collect(),
            system: System {
                total_bytes: system.total,
                free_bytes: system.free,
                available_bytes: system.available,
                swap_total_bytes: system.swap_total,
                swap_free_bytes: system.swap_free,
                stalled_ns: system.stalled.map(nanoseconds),
            },
            major_faults: activity.major_faults,
            surroundings: activity.surroundings.as_ref(),
        }
    }
}

impl<'a> Scheme<'a> {
    fn new(report: &'a Report, from_boot: bool) -> Self {
        let (total, last) = (&report.total, &report.last);
        let refusals = total.refusals.iter().map(|refusal| Refusal {
            errno: refusal.refusal.code.unwrap_or(0),
            reason: refusal.unknown_reason.as_deref().unwrap_or_else(|| refusal.refusal.reason.name()),
            regions: refusal.regions,
            bytes: refusal.bytes,
        });
        let regions = last.regions.iter().map(|region| Acted {
            pid: pid_column(region.target),
            id: IdOut::new(region.target, from_boot),
            start: region.range.start(),
            end: region.range.end(),
            applied_bytes: region.applied,
        });
        Self {
            name: &report.name,
            action: &report.action.name,
            target_node: report.action.target_node.map(|NodeId(node)| node),
            awake: report.awake,
            quota_bytes: report.quota,
            goal_score: report.goal_score,
            quota_share: report.quota_share,
            total: Total {
                applications: total.applications,
                tried_regions: total.tried_regions,
                tried_bytes: total.tried_bytes,
                passed_bytes: total.passed_bytes,
                applied_regions: total.applied_regions,
                applied_bytes: total.applied_bytes,
                rejected_bytes: total.rejected_bytes,
                refusals: refusals.collect(),
                quota_exceeded: total.quota_exceeded,
                spent_ns: nanoseconds(total.time),
                watched_bytes: total.watched_bytes,
                returned_bytes: total.returned_bytes,
                unmapped_bytes: total.unmapped_bytes,
            },
            last: Last {
                time_ns: nanoseconds(last.time),
                held_back_bytes: last.held_back_bytes,
                unobservable_bytes: last.unobservable_bytes,
                regions: regions.collect(),
            },
        }
    }
}
