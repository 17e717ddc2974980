//! What is watched: targets, their mappings, and where those come from.

use std::fmt;
use std::sync::Arc;

use crate::{AddrRange, BoxError};

/// Names a target within a run: the process ID, or 0 for physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetId(pub u32);

impl fmt::Display for TargetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A piece of a target's address space that is mapped as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Where it lies; page-aligned.
    pub range: AddrRange,
    /// Permissions in the four letters of `/proc/PID/maps`, as in `rw-p`.
    pub permissions: [u8; 4],
    /// The file's path, a name in brackets such as `[heap]`, or nothing for anonymous memory.
    pub name: Arc<str>,
}

/// How a target's mappings become the areas that its regions live in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// A process: the space from the first to the last mapping, cut at its two largest gaps.
    Process,
    /// Each run of touching mappings is an area: physical memory.
    Ranges,
}

/// What of one target there is to watch at one moment.
#[derive(Clone, Debug)]
pub struct TargetSpace {
    /// Which target.
    pub id: TargetId,
    /// How its mappings become areas.
    pub layout: Layout,
    /// Its mappings, sorted and disjoint.
    pub mappings: Arc<[Mapping]>,
}

/// Tells what there is to watch: at the start, at every update interval, and when a target ends.
pub trait AddressSpace {
    /// All targets that live now, in an order that stays; those that have ended are left out.
    ///
    /// An empty list ends the run.
    ///
    /// # Errors
    /// Only what makes going on senseless. A target that cannot be read any more is left out.
    fn survey(&mut self) -> Result<Vec<TargetSpace>, BoxError>;
}
