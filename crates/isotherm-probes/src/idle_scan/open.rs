//! Chooses the method of a scan.

use crate::bpf::{SharedLimits, SharedMemory};
use isotherm_core::NodeId;

use super::{Detail, PageTableScan, PhysicalScan, Scan, ScanError, Scope};

/// Which method is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanChoice {
    /// Idle page tracking if it works here, else page tables.
    Auto,
    /// Idle page tracking.
    Idle,
    /// Page tables, read by eBPF.
    Bpf,
}

/// Opens a scan of `scope`, of all its memory or only of what lies on `nodes`. `shared` says how a scan of page tables
/// observes memory that several processes map, within `limits`.
///
/// # Errors
/// If the method that was asked for does not work here, or neither does for [`ScanChoice::Auto`]; or if a given process
/// or cgroup does not exist, or a given node has no memory.
pub fn open(
    choice: ScanChoice,
    scope: Scope,
    nodes: &[NodeId],
    detail: Detail,
    shared: SharedMemory,
    limits: SharedLimits,
) -> Result<Box<dyn Scan>, ScanError> {
    match choice {
        ScanChoice::Idle => Ok(Box::new(PhysicalScan::open(scope, detail)?.of_nodes(nodes)?)),
        ScanChoice::Bpf => Ok(Box::new(PageTableScan::open(scope, detail, shared, limits)?.of_nodes(nodes)?)),
        ScanChoice::Auto => match PhysicalScan::open(scope.clone(), detail) {
            Err(ScanError::Idle(idle)) => match PageTableScan::open(scope, detail, shared, limits) {
                Err(ScanError::Bpf(bpf)) => Err(ScanError::Neither { idle: Box::new(idle), bpf: Box::new(bpf) }),
                opened => Ok(Box::new(opened?.of_nodes(nodes)?)),
            },
            opened => Ok(Box::new(opened?.of_nodes(nodes)?)),
        },
    }
}
