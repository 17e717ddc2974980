//! Finds the features of this kernel's DAMON without changing anything. `isotherm doctor` shows them.

use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader};

use rustix::fs::{Access, access};
use serde::Serialize;

use super::others::Others;
use super::{DamonError, DamonPaths, claim, files, kdamond, run};

/// The features of this kernel's DAMON.
///
/// No kdamond is made to find them. If there is one already, its files show the features. Otherwise the names of the
/// kernel's functions do (`/proc/kallsyms`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Features {
    /// The available operations: some of `vaddr`, `fvaddr`, `paddr`.
    pub operations: Vec<String>,
    /// Whether the tracepoint is available, so that every aggregation can be collected.
    pub tracepoint: bool,
    /// Whether the tracepoint reports the ages of regions.
    pub ages: bool,
    /// Whether `tried_regions` is available (Linux 6.2 and later).
    pub tried_regions: bool,
    /// Whether the kernel can tune the intervals (Linux 6.15 and later).
    pub intervals_goal: bool,
}

impl Features {
    /// Finds the features.
    pub fn find(places: &DamonPaths) -> Self {
        let symbols = Symbols::read(places);
        let context = places.kdamond(0).join("contexts/0");
        let operations = match files::read(&context.join("avail_operations")) {
            Ok(available) => available.split_ascii_whitespace().map(str::to_owned).collect(),
            Err(_) => symbols.operations(),
        };
        let trace = run::trace(places).ok();
        let tried_regions = symbols.tried_regions || context.join("schemes/0/tried_regions").is_dir();
        let ages = trace.as_ref().is_some_and(super::Format::has_age);
        let goal = context.join("monitoring_attrs/intervals/intervals_goal");
        let intervals_goal = symbols.intervals_goal || goal.is_dir();
        Self { operations, tracepoint: trace.is_some(), ages, tried_regions, intervals_goal }
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operations = if self.operations.is_empty() { "none".into() } else { self.operations.join(", ") };
        let tracepoint = match (self.tracepoint, self.ages) {
            (true, true) => "yes",
            (true, false) => "yes, without ages",
            (false, _) => "no",
        };
        let yes = |has| if has { "yes" } else { "no" };
        let (tried, goal) = (yes(self.tried_regions), yes(self.intervals_goal));
        write!(f, "operations: {operations}; tracepoint: {tracepoint}; tried_regions: {tried}; intervals_goal: {goal}")
    }
}

/// Checks whether a run could start now. Writes nothing.
///
/// # Errors
/// Returns the error that the run would fail with.
pub fn check(places: &DamonPaths) -> Result<(), DamonError> {
    let others = Others::look(places)?;
    // The next run removes what a killed run left.
    if others.any() && !claim::left_by_a_killed_run(places)? {
        return Err(DamonError::Busy(others));
    }
    let nr_kdamonds = places.nr_kdamonds();
    access(&nr_kdamonds, Access::WRITE_OK).map_err(|error| DamonError::Write {
        path: nr_kdamonds,
        value: "1".into(),
        source: error.into(),
    })?;
    let features = Features::find(places);
    if let Err(trace) = run::trace(places)
        && !features.tried_regions
    {
        return Err(DamonError::NoFindings { trace, tried: Some("the kernel is older than Linux 6.2".into()) });
    }
    Ok(())
}

/// Checks whether the kernel has these operations, and returns its features. Writes nothing. Succeeds if the operations
/// of the kernel are unknown.
///
/// # Errors
/// Returns [`DamonError::Operations`] if the kernel does not have them.
pub fn check_operations(places: &DamonPaths, operations: &'static str) -> Result<Features, DamonError> {
    let features = Features::find(places);
    if !features.operations.is_empty() {
        kdamond::has(&features.operations, operations)?;
    }
    Ok(features)
}

/// The features that the names of the kernel's functions show.
#[derive(Default)]
struct Symbols {
    vaddr: bool,
    paddr: bool,
    tried_regions: bool,
    intervals_goal: bool,
}

impl Symbols {
    fn read(places: &DamonPaths) -> Self {
        let mut found = Self::default();
        let Ok(file) = File::open(places.proc.join("kallsyms")) else {
            return found;
        };
        for line in BufReader::new(file).lines().map_while(Result::ok) {
            let name = line.split_ascii_whitespace().nth(2).unwrap_or_default();
            found.vaddr |= name.starts_with("damon_va_");
            found.paddr |= name.starts_with("damon_pa_");
            found.intervals_goal |= name.starts_with("damon_sysfs_intervals_goal");
            found.tried_regions |= name.starts_with("damon_sysfs_scheme_region");
        }
        found
    }

    fn operations(&self) -> Vec<String> {
        let virtual_memory = self.vaddr.then_some(["vaddr", "fvaddr"]);
        let physical = self.paddr.then_some("paddr");
        virtual_memory.into_iter().flatten().chain(physical).map(str::to_owned).collect()
    }
}
