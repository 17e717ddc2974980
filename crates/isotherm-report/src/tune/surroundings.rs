//! What advice can use beside the working set: the cgroup of the targets, swap, and the setting of huge pages.

use isotherm_core::{SystemMemory, TargetId};
use isotherm_record::{AnonymousMemory, Cgroup};
use schemars::JsonSchema;
use serde::Serialize;

use crate::ReportError;
use crate::source::{Selection, Source, activities};

/// What is known of the machine and of the targets, as it was read last. What is not known is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Surroundings {
    /// The options with which the targets were named, quoted for a shell, such as `--pid 1234 --children`. `None`
    /// derives them from the targets.
    pub target_options: Option<String>,
    /// The swap of the machine.
    pub swap: Option<Swap>,
    /// The setting of transparent huge pages: `always`, `madvise` or `never`.
    pub transparent_huge_pages: Option<String>,
    /// The anonymous memory of all targets together.
    pub anonymous: Option<AnonymousMemory>,
    /// The cgroup that accounts the memory of all targets. `None` also if they are in different ones.
    pub cgroup: Option<Cgroup>,
}

/// The swap of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Swap {
    /// Its size.
    pub total_bytes: u64,
    /// The unused part.
    pub free_bytes: u64,
}

impl Surroundings {
    /// What a recording tells of these targets at the end of the selected time.
    pub(super) fn recorded(
        source: &dyn Source,
        selection: &Selection,
        targets: &[TargetId],
    ) -> Result<Self, ReportError> {
        let mut found = Self::default();
        for activity in activities(source)? {
            let activity = activity?;
            if selection.time.as_ref().is_some_and(|time| activity.time > time.end) {
                break;
            }
            let SystemMemory { total, swap_total, swap_free, .. } = activity.system;
            // Without any memory, nothing of the system could be read.
            if total > 0 {
                found.swap = Some(Swap { total_bytes: swap_total, free_bytes: swap_free });
            }
            if let Some(surroundings) = activity.surroundings {
                let left_out = activity.memory.iter().filter(|(id, _)| !targets.contains(id)).count();
                let known = surroundings.without(left_out);
                found.transparent_huge_pages = known.transparent_huge_pages;
                found.anonymous = known.anonymous;
                found.cgroup = known.cgroup;
            }
        }
        Ok(found)
    }
}
