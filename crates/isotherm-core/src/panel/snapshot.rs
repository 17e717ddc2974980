//! What a reading of the panel says.

use std::time::Duration;

use super::Estimate;
use crate::survey::WINDOWS;
use crate::{AddrRange, TargetId};

/// How much memory is in use, as a reading of the panel has found it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PanelSnapshot {
    /// When the panel was read, since the start of the run.
    pub time: Duration,
    /// The time since the reading before. Shorter windows hold what was accessed within this time.
    pub interval: Duration,
    /// The longest window that the readings tell: the time since the first one, or the longest of all if nearly all
    /// memory has appeared since. Of longer windows, what nothing is known of is within the bounds.
    pub observed: Duration,
    /// How many pages were read.
    pub reads: u64,
    /// How many accessed bits were cleared.
    pub clears: u64,
    /// All targets together, by [`WINDOWS`]. Memory that several targets map counts once.
    pub total: [Estimate; WINDOWS.len()],
    /// The targets of each party together, in the order of their numbers. Empty unless targets have parties.
    pub by_party: Vec<(u32, [Estimate; WINDOWS.len()])>,
    /// The targets, sorted by ID, without most of those that have not run since the start, if there are many targets.
    pub targets: Vec<TargetPanel>,
}

/// How much memory of one target is in use.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetPanel {
    /// Which target.
    pub id: TargetId,
    /// By [`WINDOWS`].
    pub within: [Estimate; WINDOWS.len()],
    /// The mappings with enough pages in the panel, in the order of addresses.
    pub by_mapping: Vec<MappingPanel>,
}

/// How much memory of one mapping is in use.
#[derive(Clone, Debug, PartialEq)]
pub struct MappingPanel {
    /// The mapping.
    pub range: AddrRange,
    /// By [`WINDOWS`].
    pub within: [Estimate; WINDOWS.len()],
}
