//! What the rules of the advice see.

use std::time::Duration;

use isotherm_core::units;

use super::blocks::Blocks;
use super::surroundings::Surroundings;
use super::working_set::WorkingSet;

/// Why there is no advice on memory that has to go somewhere. What is right with swap ends the target without it.
pub(super) const UNKNOWN_SWAP: &str =
    "whether there is swap is not known, and without swap anonymous memory cannot make room";

/// Why there is no advice on a limit. It would apply to all processes of the cgroup, beside the limits that it has.
pub(super) const UNKNOWN_CGROUP: &str = "a limit is for all processes of a cgroup, and the targets are in different \
                                         ones, or the recording does not tell which";

/// What the rules of the advice see.
pub(super) struct Facts<'a> {
    pub working_set: &'a WorkingSet,
    pub blocks: Option<&'a Blocks>,
    pub surroundings: &'a Surroundings,
    /// The options that name the targets.
    pub target_options: &'a str,
}

impl Facts<'_> {
    /// Whether the machine has no swap with room. `None` if that is not known.
    pub(super) fn no_swap(&self) -> Option<bool> {
        self.surroundings.swap.map(|swap| swap.free_bytes == 0)
    }

    /// The time under survey, as text.
    pub(super) fn covered(&self) -> String {
        units::nanoseconds(self.working_set.covered_ns.unwrap_or(0))
    }
}

/// A time as it is written in an option or a scheme: `30s`, `250ms`, `1500us`.
pub(super) fn written(time: Duration) -> String {
    let ns = time.as_nanos();
    match ns {
        _ if ns.is_multiple_of(1_000_000_000) => format!("{}s", ns / 1_000_000_000),
        _ if ns.is_multiple_of(1_000_000) => format!("{}ms", ns / 1_000_000),
        _ => format!("{}us", ns / 1_000),
    }
}
