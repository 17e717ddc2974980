//! The working set of each group: its mean over the life of the group, and its peak.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use super::mappings::{self, MappingWss};
use super::{Basis, Total, Wss};
use isotherm_record::Needs;

use crate::ReportError;
use crate::course::{Course, Life};
use crate::extent::shown_name;
use crate::groups::{Group, GroupBy, Grouping};
use crate::source::{Accumulator, Seen, Selection, Source, walk};

/// The working set of one group.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GroupWss {
    /// The targets that belong to it. All that have such memory, if it is a mapping.
    #[serde(flatten)]
    pub group: Group,
    /// When it lived, and when most of it was accessed.
    #[serde(flatten)]
    pub life: Life,
    /// The mean of the working set over its life.
    pub mean_bytes: u64,
    /// The mean of its bytes in memory over its life. `None` if the recording does not tell.
    pub present_bytes: Option<u64>,
    /// Whether each page counts once: the group never had more than one target at a time.
    pub counted_once: bool,
    /// The working set over time.
    #[serde(skip)]
    pub(crate) over_time: Vec<Held>,
}

/// The working set of a group at a time, which holds for a time before that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) time: Duration,
    pub(crate) span: Duration,
    pub(crate) bytes: u64,
}

/// The working sets of groups, the largest mean first.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GroupedWss {
    /// What the groups are by.
    pub group_by: GroupBy,
    /// The groups. Surveys whose window goes back to before the first one are left out, unless there are no others.
    pub groups: Vec<GroupWss>,
}

/// The bytes of a group over time: accessed, and in memory.
#[derive(Clone, Default)]
struct Courses {
    accessed: Course,
    present: Course,
    tells_present: bool,
    over_time: Vec<Held>,
}

impl Courses {
    fn add(&mut self, time: Duration, span: Duration, (bytes, present): (u64, Option<u64>)) {
        // Before the first survey that has found it, and after its end, a target has nothing in memory.
        let is_known = present != Some(0);
        self.accessed.add(time, span, is_known.then_some(bytes));
        self.present.add(time, span, present.filter(|_| is_known));
        self.tells_present |= present.is_some();
        match self.over_time.last_mut() {
            Some(last) if (last.time, last.span) == (time, span) => last.bytes = last.bytes.saturating_add(bytes),
            _ => self.over_time.push(Held { time, span, bytes }),
        }
    }
}

impl GroupedWss {
    /// The working set of each group of `grouping`, which is of the same source and selection as `wss`.
    ///
    /// # Errors
    /// If the source cannot be read.
    pub fn new(
        wss: &Wss,
        source: &dyn Source,
        selection: &Selection,
        grouping: &Grouping,
    ) -> Result<Self, ReportError> {
        let courses = match (grouping.by(), wss.basis) {
            (GroupBy::Mapping, Basis::Survey) => of_mappings(wss, source, selection, grouping)?,
            (GroupBy::Mapping, Basis::Samples) => {
                let mut sampled = SampledMappings { grouping, courses: BTreeMap::new() };
                walk(source, selection, &mut [&mut sampled])?;
                sampled.courses
            }
            (
                GroupBy::Process | GroupBy::Command | GroupBy::Cgroup | GroupBy::Unit | GroupBy::Stack,
                Basis::Survey | Basis::Samples,
            ) => of_targets(wss, grouping),
        };
        let group = |(nth, courses): (usize, Courses)| {
            Some(GroupWss {
                group: grouping.groups().get(nth)?.clone(),
                life: courses.accessed.life(),
                mean_bytes: courses.accessed.mean(),
                present_bytes: courses.tells_present.then(|| courses.present.mean()),
                counted_once: !courses.accessed.overlaps(),
                over_time: courses.over_time,
            })
        };
        let mut groups: Vec<GroupWss> = courses.into_iter().filter_map(group).collect();
        groups.sort_by_key(|of| (Reverse((of.mean_bytes, of.life.peak_bytes)), of.group.name.clone()));
        Ok(Self { group_by: grouping.by(), groups })
    }
}

fn of_targets(wss: &Wss, grouping: &Grouping) -> BTreeMap<usize, Courses> {
    let mut courses: BTreeMap<usize, Courses> = BTreeMap::new();
    if let ([_], Some(once)) = (grouping.groups(), &wss.once) {
        // Of all targets together it is known what they share.
        for Total { time, amount, warm_up, span } in once {
            if !*warm_up {
                courses.entry(0).or_default().add(*time, *span, (amount.bytes, amount.present_bytes));
            }
        }
        return courses;
    }
    for point in wss.points.iter().filter(|point| !point.warm_up) {
        let Some(nth) = grouping.of_target(point.target) else { continue };
        courses.entry(nth).or_default().add(point.time, point.span, (point.amount.bytes, point.amount.present_bytes));
    }
    courses
}

/// Those of mappings, from surveys and from the panel.
fn of_mappings(
    wss: &Wss,
    source: &dyn Source,
    selection: &Selection,
    grouping: &Grouping,
) -> Result<BTreeMap<usize, Courses>, ReportError> {
    let mut courses: BTreeMap<usize, Courses> = BTreeMap::new();
    mappings::each(wss, source, selection, |target, (time, span), mappings| {
        let mut sums: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
        for MappingWss { mapping, bytes, present } in mappings {
            let Some(nth) = grouping.of_memory(target, shown_name(&mapping.label())) else { continue };
            let sum = sums.entry(nth).or_default();
            *sum = (sum.0 + bytes, sum.1 + present);
        }
        for (nth, (bytes, present)) in sums {
            courses.entry(nth).or_default().add(time, span, (bytes, Some(present)));
        }
    })?;
    Ok(courses)
}

/// Those of mappings, as samples estimate them.
struct SampledMappings<'a> {
    grouping: &'a Grouping,
    courses: BTreeMap<usize, Courses>,
}

impl Accumulator for SampledMappings<'_> {
    fn needs(&self) -> Needs {
        Needs { snapshots: true, regions: true, ..Needs::NOTHING }
    }

    fn event(&mut self, event: &Seen<'_>) -> Result<(), ReportError> {
        let Seen::Row(visit) = event else { return Ok(()) };
        if !visit.chosen {
            return Ok(());
        }
        let mut sums: BTreeMap<usize, (u64, Option<u64>)> = BTreeMap::new();
        for (piece, size) in visit.present_pieces() {
            let name = piece.mapping.label();
            let Some(nth) = self.grouping.of_memory(visit.row.target.id, shown_name(&name)) else { continue };
            let (bytes, present) = sums.entry(nth).or_default();
            *bytes += if piece.region.nr_accesses > 0 { size } else { 0 };
            if piece.region.pages.is_some() {
                *present = Some(present.unwrap_or(0) + size);
            }
        }
        for (nth, sums) in sums {
            self.courses.entry(nth).or_default().add(visit.row.time, visit.span(), sums);
        }
        Ok(())
    }
}
