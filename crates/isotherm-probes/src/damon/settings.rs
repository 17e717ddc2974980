//! What the kernel's DAMON is to watch, and how.

use isotherm_core::{AddrRange, Attributes};

use super::DamonError;

/// What one kdamond is to do.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Intervals and numbers of regions.
    pub attributes: Attributes,
    /// What it watches.
    pub scope: Scope,
}

/// What a kdamond watches. The targets are numbered in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All that these processes have mapped; the kernel follows it.
    Processes(Vec<u32>),
    /// These ranges of the virtual memory of one process.
    Ranges(u32, Vec<AddrRange>),
    /// These ranges of physical memory.
    Physical(Vec<AddrRange>),
}

impl Scope {
    /// The kernel's name for what is asked for, before there are targets: physical memory, ranges of a process, or processes.
    pub fn operations_for(physical: bool, ranges: bool) -> &'static str {
        match (physical, ranges) {
            (true, _) => "paddr",
            (false, true) => "fvaddr",
            (false, false) => "vaddr",
        }
    }

    /// The kernel's name for it.
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

    /// Where the regions of the only target are to be; nothing if the kernel finds that out.
    pub(super) fn ranges(&self) -> &[AddrRange] {
        match self {
            Self::Processes(_) => &[],
            Self::Ranges(_, ranges) | Self::Physical(ranges) => ranges,
        }
    }
}

impl Settings {
    /// Checks what the kernel would refuse without saying why.
    pub(super) fn check(&self) -> Result<(), DamonError> {
        let a = &self.attributes;
        for (interval, name) in [(a.sampling(), "sampling"), (a.aggregation(), "aggregation"), (a.update(), "update")] {
            if interval.subsec_nanos() % 1000 != 0 {
                let what = format!(
                    "the {name} interval ({interval:?}) is no whole number of microseconds, in which the kernel counts"
                );
                return Err(DamonError::Settings(what));
            }
        }
        if self.scope.targets().is_empty() {
            return Err(DamonError::Settings("there is no target left to watch".into()));
        }
        let ranges = self.scope.ranges();
        if ranges.len() > a.max_regions() {
            let what = format!(
                "{} ranges need as many regions, and there may be {} (--regions)",
                ranges.len(),
                a.max_regions()
            );
            return Err(DamonError::Settings(what));
        }
        if ranges.is_empty() && !matches!(self.scope, Scope::Processes(_)) {
            return Err(DamonError::Settings("no memory lies in the range that was asked for".into()));
        }
        Ok(())
    }
}
