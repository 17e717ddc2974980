//! Targets that only surveys have found: they lived between two snapshots.

use std::collections::BTreeMap;
use std::sync::Arc;

use isotherm_core::TargetId;
use isotherm_record::{SurveyRecord, TargetInfo, pid_column};

use crate::course::Course;
use crate::groups::Grouping;
use crate::source::Selection;
use crate::summary::{Summary, TargetTemperature, Temperature};
use crate::surveys::selected;

/// What surveys found in memory of the targets that no snapshot has. How hot it was is not known.
#[derive(Default)]
pub(crate) struct Brief {
    targets: BTreeMap<TargetId, (Arc<TargetInfo>, Course)>,
    /// Those of groups, by their places.
    groups: BTreeMap<usize, Course>,
}

impl Brief {
    /// Takes in a survey.
    pub(crate) fn add(&mut self, record: &SurveyRecord, selection: &Selection, grouping: &Grouping) {
        let survey = &record.survey;
        let is_brief = |id: TargetId| selection.holds_target(id) && !grouping.is_sampled(id);
        let brief = record.described().filter(|(found, _)| selection.holds_time(survey.time) && is_brief(found.id));
        for (found, described) in brief {
            let present = Some(selected(found, selection.address).0.figures.present).filter(|bytes| *bytes > 0);
            let (info, course) = self.targets.entry(found.id).or_default();
            if info.command.is_empty() {
                *info = Arc::clone(described);
            }
            course.add(survey.time, survey.interval, present);
            if let Some(nth) = grouping.of_target(found.id) {
                self.groups.entry(nth).or_default().add(survey.time, survey.interval, present);
            }
        }
    }

    /// Adds these targets to the summary, and what is known of groups that have no others.
    pub(crate) fn write(self, summary: &mut Summary) {
        for (id, (info, course)) in self.targets {
            summary.targets.push(TargetTemperature {
                id,
                pid: pid_column(id),
                inner_pid: info.inner_pid,
                command: info.command.clone(),
                life: course.life(),
                proportional_bytes: None,
                nodes: Vec::new(),
                total: of_unknown_heat(&course, Temperature { name: "total".into(), ..Temperature::default() }),
            });
        }
        for group in summary.groups.iter_mut().filter(|group| group.life.last_ns == 0) {
            if let Some(course) = self.groups.get(&group.place) {
                group.life = course.life();
                group.counted_once = !course.overlaps();
                group.total = of_unknown_heat(course, std::mem::take(&mut group.total));
            }
        }
    }
}

fn of_unknown_heat(course: &Course, of: Temperature) -> Temperature {
    Temperature { size_bytes: course.mean(), unknown_bytes: course.mean(), ..of }
}
