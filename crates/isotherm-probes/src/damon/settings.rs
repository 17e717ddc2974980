//! The settings of a kdamond.

use isotherm_core::{AddrRange, Attributes, IntervalsGoal};

use super::DamonError;

/// The settings of a kdamond.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The intervals and the numbers of regions.
    pub attributes: Attributes,
    /// The monitored memory.
    pub scope: Scope,
    /// By what the kernel tunes the sampling and the aggregation interval, whose ratio stays. `None` if they are fixed.
    /// Needs [`Features::intervals_goal`](super::Features::intervals_goal). What DAMON does not have is left out: the
    /// share of the memory in use.
    pub goal: Option<IntervalsGoal>,
}

/// The memory that a kdamond monitors. The number of a target is its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All mappings of these processes. The kernel updates them.
    Processes(Vec<u32>),
    /// These ranges of the virtual memory of one process.
    Ranges(u32, Vec<AddrRange>),
    /// These ranges of physical memory.
    Physical(Vec<AddrRange>),
}

impl Scope {
    /// The kernel's name of the operations, before the targets are known: `paddr` if `physical` is set, else `fvaddr`
    /// if `ranges` is set, else `vaddr`.
    pub fn operations_for(physical: bool, ranges: bool) -> &'static str {
        match (physical, ranges) {
            (true, _) => "paddr",
            (false, true) => "fvaddr",
            (false, false) => "vaddr",
        }
    }

    /// The kernel's name of the operations.
    pub fn operations(&self) -> &'static str {
        match self {
            Self::Processes(_) => "vaddr",
            Self::Ranges(..) => "fvaddr",
            Self::Physical(_) => "paddr",
        }
    }

    /// The targets: process IDs, or 0 for physical memory.
    pub fn targets(&self) -> Vec<u32> {
        match self {
            Self::Processes(pids) => pids.clone(),
            Self::Ranges(pid, _) => vec![*pid],
            Self::Physical(_) => vec![0],
        }
    }

    /// The initial regions of the only target, or an empty list if the kernel finds them.
    pub(super) fn ranges(&self) -> &[AddrRange] {
        match self {
            Self::Processes(_) => &[],
            Self::Ranges(_, ranges) | Self::Physical(ranges) => ranges,
        }
    }
}

impl Settings {
    /// Checks for settings that the kernel would reject without a reason.
    pub(super) fn check(&self) -> Result<(), DamonError> {
        let a = &self.attributes;
        for (interval, name) in [(a.sampling(), "sampling"), (a.aggregation(), "aggregation"), (a.update(), "update")] {
            if interval.subsec_nanos() % 1000 != 0 {
                let what = format!(
                    "the {name} interval ({interval:?}) is not a whole number of microseconds, the kernel's unit"
                );
                return Err(DamonError::Settings(what));
            }
        }
        if let Some(goal) = &self.goal
            && !(goal.least..=goal.most).contains(&a.sampling())
        {
            let what = format!(
                "the sampling interval ({:?}) is not within what its goal allows ({:?} to {:?})",
                a.sampling(),
                goal.least,
                goal.most
            );
            return Err(DamonError::Settings(what));
        }
        if self.scope.targets().is_empty() {
            return Err(DamonError::Settings("there is no target left to monitor".into()));
        }
        let ranges = self.scope.ranges();
        if ranges.len() > a.max_regions() {
            let what = format!(
                "{} ranges need at least as many regions, but the maximum is {} (raise it with --regions)",
                ranges.len(),
                a.max_regions()
            );
            return Err(DamonError::Settings(what));
        }
        if ranges.is_empty() && !matches!(self.scope, Scope::Processes(_)) {
            return Err(DamonError::Settings("the requested ranges contain no memory".into()));
        }
        Ok(())
    }
}
