//! A reading of the panel in JSON: as in the recording's column.

use isotherm_core::survey::WINDOWS;
use isotherm_core::{Estimate, MappingPanel, PanelSnapshot, TargetPanel};
use serde::Serialize;

use super::identity::IdOut;
use crate::id::pid_column;
use crate::time::nanoseconds;

#[derive(Serialize)]
pub(super) struct PanelOut {
    time_ns: u64,
    interval_ns: u64,
    observed_ns: u64,
    reads: u64,
    clears: u64,
    windows_ns: [u64; WINDOWS.len()],
    total: [EstimateOut; WINDOWS.len()],
    targets: Vec<TargetOut>,
}

#[derive(Serialize)]
struct EstimateOut {
    low_bytes: u64,
    bytes: u64,
    high_bytes: u64,
}

#[derive(Serialize)]
struct TargetOut {
    pid: u32,
    id: IdOut,
    within: [EstimateOut; WINDOWS.len()],
    mappings: Vec<MappingOut>,
}

#[derive(Serialize)]
struct MappingOut {
    start: u64,
    end: u64,
    within: [EstimateOut; WINDOWS.len()],
}

impl PanelOut {
    /// `from_boot`: starts of processes are counted from the boot.
    pub(super) fn new(found: &PanelSnapshot, from_boot: bool) -> Self {
        Self {
            time_ns: nanoseconds(found.time),
            interval_ns: nanoseconds(found.interval),
            observed_ns: nanoseconds(found.observed),
            reads: found.reads,
            clears: found.clears,
            windows_ns: WINDOWS.map(nanoseconds),
            total: found.total.map(EstimateOut::new),
            targets: found.targets.iter().map(|target| TargetOut::new(target, from_boot)).collect(),
        }
    }
}

impl EstimateOut {
    fn new(Estimate { low, value, high }: Estimate) -> Self {
        Self { low_bytes: low, bytes: value, high_bytes: high }
    }
}

impl TargetOut {
    fn new(target: &TargetPanel, from_boot: bool) -> Self {
        let mapping = |of: &MappingPanel| MappingOut {
            start: of.range.start(),
            end: of.range.end(),
            within: of.within.map(EstimateOut::new),
        };
        Self {
            pid: pid_column(target.id),
            id: IdOut::new(target.id, from_boot),
            within: target.within.map(EstimateOut::new),
            mappings: target.by_mapping.iter().map(mapping).collect(),
        }
    }
}
