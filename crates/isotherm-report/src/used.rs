//! What activities tell of the memory in use: PSS, and bytes in swap.

use std::collections::HashMap;
use std::time::Duration;

use isotherm_core::TargetId;

use crate::ReportError;
use crate::course::Course;
use crate::groups::Grouping;
use crate::source::{Selection, Source};
use crate::summary::Summary;

/// The memory in use, by the activities of a selection.
#[derive(Default)]
pub(crate) struct Used {
    /// For each target its proportional bytes, if they are known, and its bytes in swap at the end.
    targets: HashMap<TargetId, (Course, u64)>,
    /// The proportional bytes of each group, by its place. A mapping has none.
    groups: HashMap<usize, Course>,
}

impl Used {
    /// Reads it.
    ///
    /// # Errors
    /// If the source cannot be read.
    pub(crate) fn read(source: &dyn Source, selection: &Selection, grouping: &Grouping) -> Result<Self, ReportError> {
        let mut used = Self::default();
        let mut before = Duration::ZERO;
        for activity in source.activities().map_err(ReportError::Source)? {
            let activity = activity.map_err(ReportError::Source)?;
            let elapsed = source.header().recorded(std::mem::replace(&mut before, activity.time), activity.time);
            if !selection.holds_time(activity.time) {
                continue;
            }
            for (id, memory) in activity.memory.into_iter().filter(|(id, _)| selection.holds_target(*id)) {
                let group = grouping.of_target(id).map(|nth| used.groups.entry(nth).or_default());
                let (course, swapped) = used.targets.entry(id).or_default();
                *swapped = memory.swapped;
                for course in group.into_iter().chain([course]) {
                    course.add(activity.time, elapsed, memory.proportional);
                }
            }
        }
        Ok(used)
    }

    /// Writes it to a summary with the groups that it was read with.
    pub(crate) fn write(&self, summary: &mut Summary) {
        for target in &mut summary.targets {
            let used = self.targets.get(&target.id);
            target.proportional_bytes = used.and_then(|(course, _)| mean(course));
            target.total.surveyed.swapped_bytes = used.map(|(_, swapped)| *swapped);
        }
        for group in &mut summary.groups {
            group.proportional_bytes = self.groups.get(&group.place).and_then(mean);
        }
        if !self.targets.is_empty() {
            let swapped = self.targets.values().map(|(_, swapped)| *swapped);
            summary.total.surveyed.swapped_bytes = Some(swapped.fold(0, u64::saturating_add));
        }
    }
}

/// The mean of what is known. `None` if nothing is.
fn mean(course: &Course) -> Option<u64> {
    (!course.known().is_zero()).then(|| course.mean())
}
