//! What activities tell of the memory in use: PSS, and bytes in swap.

use crate::bytes::Bytes;
use std::collections::HashMap;
use std::time::Duration;

use isotherm_core::TargetId;
use isotherm_record::{Header, Needs};

use crate::ReportError;
use crate::course::Course;
use crate::groups::Grouping;
use crate::source::{Accumulator, Seen, Selection};
use crate::summary::Summary;

/// The memory in use, by the activities of a selection.
#[derive(Default)]
pub(crate) struct Used {
    header: Option<Header>,
    selection: Selection,
    grouping: Grouping,
    /// The time of the last activity.
    before: Duration,
    /// For each target its proportional bytes, if they are known, and its bytes in swap at the end.
    targets: HashMap<TargetId, (Course, u64)>,
    /// The proportional bytes of each group, by its place. A mapping has none.
    groups: HashMap<usize, Course>,
}

impl Used {
    /// That of a selection, before its walk.
    pub(crate) fn new(header: &Header, selection: &Selection, grouping: &Grouping) -> Self {
        let (header, selection, grouping) = (Some(header.clone()), selection.clone(), grouping.clone());
        Self { header, selection, grouping, ..Self::default() }
    }

    /// Writes it to a summary with the groups that it was read with.
    pub(crate) fn write(&self, summary: &mut Summary) {
        for target in &mut summary.targets {
            let used = self.targets.get(&target.id);
            target.proportional_bytes = used.and_then(|(course, _)| mean(course));
            target.total.surveyed.swapped_bytes = used.map(|(_, swapped)| *swapped).into();
        }
        for group in &mut summary.groups {
            group.proportional_bytes = self.groups.get(&group.place).and_then(mean);
        }
        if !self.targets.is_empty() {
            let swapped = self.targets.values().map(|(_, swapped)| *swapped);
            summary.total.surveyed.swapped_bytes = Bytes::exact(swapped.fold(0, u64::saturating_add));
        }
    }
}

impl Accumulator for Used {
    fn needs(&self) -> Needs {
        Needs::ACTIVITIES
    }

    fn event(&mut self, event: &Seen<'_>) -> Result<(), ReportError> {
        let (Seen::Activity(activity), Some(header)) = (event, &self.header) else { return Ok(()) };
        let elapsed = header.recorded(std::mem::replace(&mut self.before, activity.time), activity.time);
        if !self.selection.holds_time(activity.time) {
            return Ok(());
        }
        for (id, memory) in activity.memory.iter().filter(|(id, _)| self.selection.holds_target(*id)) {
            let group = self.grouping.of_target(*id).map(|nth| self.groups.entry(nth).or_default());
            let (course, swapped) = self.targets.entry(*id).or_default();
            *swapped = memory.swapped;
            for course in group.into_iter().chain([course]) {
                course.add(activity.time, elapsed, memory.proportional);
            }
        }
        Ok(())
    }
}

/// The mean of what is known. `None` if nothing is.
fn mean(course: &Course) -> Option<u64> {
    (!course.known().is_zero()).then(|| course.mean())
}
