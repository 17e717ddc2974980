//! What clients get to see of a group, as plain data that is written as JSON.

mod snapshot;

use std::collections::BTreeMap;
use std::time::Duration;

use isotherm_core::survey::{PageSums, WINDOWS};
use isotherm_core::{Attributes, Pace, PanelSnapshot, TargetId};
use isotherm_record::{Activity, SurveyRecord, TargetInfo, TargetInfos};
use isotherm_run::{Event, Notice, Severity};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::{GroupSettings, Limits};
use crate::hub::Newest;
use crate::overview::Overview;

pub use snapshot::{PagesView, RegionView, SnapshotView, TargetRegions};

/// A time in nanoseconds.
fn ns(time: Duration) -> u64 {
    time.as_nanos() as u64
}

/// Whether the daemon does what it was told.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// Whether all groups are watched or paused, and the history is written.
    pub ok: bool,
    /// What is wrong.
    pub problems: Vec<String>,
}

/// Which isotherm this is.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Version {
    /// The version of the program.
    pub version: String,
    /// The format of the recordings that it writes.
    pub recording_format: u64,
}

/// The state of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It is watched.
    Watching,
    /// Nothing is watched until it is resumed.
    Paused,
    /// Its processes have ended.
    Ended,
    /// It cannot be watched. It is tried again.
    Failed,
}

/// A group.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct GroupStatus {
    /// Its name.
    pub name: String,
    /// What it does.
    pub state: State,
    /// Why it failed.
    pub why: Option<String>,
    /// The probe.
    pub probe: Option<String>,
    /// The number of processes.
    pub processes: usize,
    /// The memory of all processes. `None` before the first survey.
    pub memory: Option<Memory>,
    /// An estimate of the memory in use. It comes before the first survey, and is newer than the last one. `None`
    /// before the first reading of the panel, and without a panel.
    pub in_use: Option<InUse>,
    /// The attributes in force.
    pub attributes: Option<AttributesInForce>,
    /// The intervals that the run has settled on. `None` if they are not known yet.
    pub pace: Option<PaceInForce>,
    /// The schemes.
    pub schemes: Vec<SchemeStatus>,
    /// Their goals that are about metrics which programs feed.
    pub fed_goals: Vec<FedGoal>,
    /// What the schemes may do together at most: what the group says, within what the configuration says.
    pub limits: Limits,
    /// Bytes that are out of memory, if the limits bound them.
    pub out_bytes: Option<u64>,
    /// The names of the recordings that are being made.
    pub recordings: Vec<String>,
    /// The last notices.
    pub notices: Vec<NoticeView>,
    /// What its configuration says.
    pub settings: GroupSettings,
}

/// An estimate of the memory in use, from pages that are drawn at random; in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InUse {
    /// In use is what was accessed within this time, such as `10s`.
    pub window: String,
    /// The most likely number.
    pub likely: u64,
    /// In 19 of 20 cases, the true number is at least this,
    pub least: u64,
    /// and at most this.
    pub most: u64,
}

impl InUse {
    /// The estimate of a reading of the panel for its longest window, a minute at most. `None` if it has no window yet.
    pub fn new(panel: &PanelSnapshot) -> Option<Self> {
        let longest = panel.observed.min(Duration::from_secs(60));
        let (window, found) = WINDOWS.iter().zip(panel.total).rfind(|(window, _)| **window <= longest)?;
        Some(Self { window: window_name(*window), likely: found.value, least: found.low, most: found.high })
    }
}

/// Memory, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Memory {
    /// In memory.
    pub resident: u64,
    /// Accessed within a time before the survey, by that time, such as `10s`.
    pub touched_within: BTreeMap<String, u64>,
    /// In memory, and known not to have been accessed since the survey before.
    pub idle: u64,
    /// In swap. `None` if that is not known.
    pub swapped: Option<u64>,
    /// Freed lazily (`MADV_FREE`).
    pub lazily_freed: u64,
    /// In memory, and cannot be observed.
    pub unobservable: u64,
    /// In memory, and not yet known whether it was accessed.
    pub unknown: u64,
}

impl Memory {
    /// What a survey says.
    pub fn new(sums: &PageSums) -> Self {
        let within = WINDOWS.iter().zip(sums.within);
        Self {
            resident: sums.figures.present,
            touched_within: within.map(|(window, bytes)| (window_name(*window), bytes)).collect(),
            idle: Self::idle(sums, sums.figures.touched),
            swapped: sums.figures.swapped.known(),
            lazily_freed: sums.kinds.lazily_freed,
            unobservable: sums.figures.unobservable,
            unknown: sums.figures.unknown,
        }
    }

    /// What of some memory is known not to be among the accessed bytes.
    pub fn idle(sums: &PageSums, accessed: u64) -> u64 {
        // The figures count what is not known as accessed in the same share as what is.
        let observable = sums.figures.present.saturating_sub(sums.figures.unobservable);
        let known = observable.saturating_sub(sums.figures.unknown) as f64 / observable.max(1) as f64;
        (observable.saturating_sub(accessed) as f64 * known) as u64
    }
}

/// The name of a window: `10s`, `5m`.
pub fn window_name(window: Duration) -> String {
    match window.as_secs() {
        seconds if seconds >= 3600 && seconds % 3600 == 0 => format!("{}h", seconds / 3600),
        seconds if seconds >= 60 && seconds % 60 == 0 => format!("{}m", seconds / 60),
        seconds => format!("{seconds}s"),
    }
}

/// The attributes in force.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct AttributesInForce {
    /// The sampling interval.
    pub sampling_ns: u64,
    /// The aggregation interval.
    pub aggregation_ns: u64,
    /// The update interval.
    pub update_ns: u64,
    /// The number of regions that is kept at least.
    pub min_regions: u64,
    /// The number of regions that is never exceeded.
    pub max_regions: u64,
}

impl From<Attributes> for AttributesInForce {
    fn from(of: Attributes) -> Self {
        Self {
            sampling_ns: ns(of.sampling()),
            aggregation_ns: ns(of.aggregation()),
            update_ns: ns(of.update()),
            min_regions: of.min_regions() as u64,
            max_regions: of.max_regions() as u64,
        }
    }
}

/// The intervals that a run has settled on, and what it costs.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct PaceInForce {
    /// The time from a survey to the next. `None` without surveys.
    pub survey_interval_ns: Option<u64>,
    /// The time from a round with samples to the next. `None` without samples.
    pub sampling_interval_ns: Option<u64>,
    /// The share of one CPU that was spent in about the last ten seconds.
    pub cpu: f64,
    /// Whether the budget does not suffice for the shortest intervals.
    pub limited: bool,
}

impl From<Pace> for PaceInForce {
    fn from(of: Pace) -> Self {
        Self {
            survey_interval_ns: of.survey_interval.map(ns),
            sampling_interval_ns: of.sampling_interval.map(ns),
            cpu: of.cpu,
            limited: of.is_limited,
        }
    }
}

/// A scheme, and what it has done since the run began.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct SchemeStatus {
    /// Its name.
    pub name: String,
    /// What it does: `pageout`, for example.
    pub action: String,
    /// What it says, in words.
    pub about: String,
    /// Whether it is awake by its watermarks. `None` before it was applied.
    pub awake: Option<bool>,
    /// What the quota allows in a period now, in bytes.
    pub quota_bytes: Option<u64>,
    /// How far its goals are reached; 1 is exactly.
    pub goal_score: Option<f64>,
    /// How often it was applied.
    pub applications: u64,
    /// Bytes that matched, and that the quota allowed.
    pub tried_bytes: u64,
    /// Bytes that the action was carried out on.
    pub applied_bytes: u64,
    /// Those of them that were freed.
    pub freed_bytes: u64,
    /// Those of them that were moved to another memory node.
    pub moved_bytes: u64,
    /// Bytes that filters rejected.
    pub rejected_bytes: u64,
    /// Bytes of those that were freed or moved and then watched for a time.
    pub watched_bytes: u64,
    /// The part of them that came back within that time.
    pub returned_bytes: u64,
    /// Bytes that the system refused to act on, by reason.
    pub refused_bytes: BTreeMap<String, u64>,
    /// How many periods were too short of quota.
    pub quota_exceeded: u64,
}

/// A goal that is about a metric which programs feed.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct FedGoal {
    /// The scheme.
    pub scheme: String,
    /// The name of the metric.
    pub metric: String,
    /// The value to reach.
    pub target: f64,
    /// The value that was fed last. `None` if there is none, or it is not valid any more.
    pub value: Option<f64>,
    /// The time since it was fed.
    pub age_ns: Option<u64>,
}

/// The schemes of a group.
pub fn schemes(known: &Newest) -> Vec<SchemeStatus> {
    let reports = known.activity.as_ref().map(|activity| &activity.schemes[..]).unwrap_or_default();
    let status = |scheme: &isotherm_core::scheme::Scheme| {
        let report = reports.iter().find(|report| report.name == scheme.name);
        let total = report.map(|report| report.total.clone()).unwrap_or_default();
        let mut refused: BTreeMap<String, u64> = BTreeMap::new();
        for count in &total.refusals {
            *refused.entry(refusal(count)).or_default() += count.bytes;
        }
        SchemeStatus {
            name: scheme.name.to_string(),
            action: scheme.action.name().into(),
            about: isotherm_scheme::describe(scheme),
            awake: report.map(|report| report.awake),
            quota_bytes: report.and_then(|report| report.quota),
            goal_score: report.and_then(|report| report.goal_score),
            applications: total.applications,
            tried_bytes: total.tried_bytes,
            applied_bytes: total.applied_bytes,
            freed_bytes: if scheme.action.frees() { total.applied_bytes } else { 0 },
            moved_bytes: if scheme.action.moves().is_some() { total.applied_bytes } else { 0 },
            rejected_bytes: total.rejected_bytes,
            watched_bytes: total.watched_bytes,
            returned_bytes: total.returned_bytes,
            refused_bytes: refused,
            quota_exceeded: total.quota_exceeded,
        }
    };
    known.schemes.iter().map(status).collect()
}

/// The name of a reason for which the system refused to act.
fn refusal(count: &isotherm_core::scheme::RefusalCount) -> String {
    count.unknown_reason.as_deref().map_or_else(|| count.refusal.reason.name().to_owned(), str::to_owned)
}

/// A process of a group.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct TargetView {
    /// The process ID. 0 for physical memory.
    pub pid: u32,
    /// The command line, or the name.
    pub command: String,
    /// The path of its cgroup.
    pub cgroup: Option<String>,
    /// Its memory. `None` before the first survey of it.
    pub memory: Option<Memory>,
}

/// The processes of a group.
pub fn targets(known: &Newest) -> Vec<TargetView> {
    let surveyed = |id: TargetId| {
        let record = known.survey.as_ref()?;
        let found = record.survey.targets.iter().find(|target| target.id == id)?;
        Some(Memory::new(&found.total()))
    };
    let view = |(id, info): &(TargetId, std::sync::Arc<TargetInfo>)| TargetView {
        pid: id.pid().unwrap_or(0),
        command: info.command.clone(),
        cgroup: info.cgroup.clone(),
        memory: surveyed(*id),
    };
    known.targets.iter().map(view).collect()
}

/// A message to the user.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct NoticeView {
    /// When, since the Unix epoch.
    pub unix_ns: u64,
    /// Whether something went differently than it was asked for.
    pub warning: bool,
    /// What happened.
    pub text: String,
}

impl NoticeView {
    /// A notice of this time.
    pub fn new(unix_ns: u64, notice: &Notice) -> Self {
        Self { unix_ns, warning: notice.severity == Severity::Warning, text: notice.text.to_string() }
    }
}

/// An event of a group, as a stream has it.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Streamed {
    /// The processes from now on.
    Targets {
        /// Their IDs and command lines.
        targets: Vec<(u32, String)>,
    },
    /// All regions, at the end of an aggregation.
    Snapshot(SnapshotView),
    /// What a survey of all pages found, all processes together.
    Survey {
        /// Since the run began.
        time_ns: u64,
        /// The memory.
        memory: Memory,
    },
    /// What schemes have done since the run began.
    Activity {
        /// Since the run began.
        time_ns: u64,
        /// Applied bytes, by scheme.
        applied_bytes: BTreeMap<String, u64>,
    },
    /// A moment with a name.
    Mark {
        /// Since the run began.
        time_ns: u64,
        /// The name.
        text: String,
    },
    /// A message to the user.
    Notice(NoticeView),
    /// The run is over.
    End {
        /// Why.
        reason: String,
    },
    /// All groups, in a stream of its own.
    Overview(Box<Overview>),
}

impl Streamed {
    /// What a stream has of an event of a run that began at this time since the Unix epoch. `None` if it has nothing of
    /// it.
    pub fn new(event: &Event, started_unix_ns: u64) -> Option<Self> {
        Some(match event {
            Event::Targets(infos) => Self::Targets { targets: named(infos) },
            Event::Snapshot(record) => Self::Snapshot(SnapshotView::new(record, started_unix_ns)),
            Event::Survey(record) => Self::survey(record),
            Event::Activity(activity) => Self::activity(activity),
            Event::Mark(mark) => Self::Mark { time_ns: ns(mark.time), text: mark.text.to_string() },
            Event::Notice(notice) => Self::Notice(NoticeView::new(isotherm_kernel::unix_ns(), notice)),
            Event::End(reason) => Self::End { reason: reason.to_string() },
            Event::Attributes(_)
            | Event::Schemes(_)
            | Event::Panel(_)
            | Event::Allocations(_)
            | Event::Pace { .. }
            | Event::Missed(_) => return None,
        })
    }

    /// Its name, which its JSON has as `event`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Targets { .. } => "targets",
            Self::Snapshot(_) => "snapshot",
            Self::Survey { .. } => "survey",
            Self::Activity { .. } => "activity",
            Self::Mark { .. } => "mark",
            Self::Notice(_) => "notice",
            Self::End { .. } => "end",
            Self::Overview(_) => "overview",
        }
    }

    fn survey(record: &SurveyRecord) -> Self {
        Self::Survey { time_ns: ns(record.survey.time), memory: Memory::new(&record.survey.sums()) }
    }

    fn activity(activity: &Activity) -> Self {
        let applied = activity.schemes.iter().map(|report| (report.name.to_string(), report.total.applied_bytes));
        Self::Activity { time_ns: ns(activity.time), applied_bytes: applied.collect() }
    }
}

fn named(infos: &TargetInfos) -> Vec<(u32, String)> {
    infos.iter().map(|(id, info)| (id.pid().unwrap_or(0), info.command.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::Figures;

    #[test]
    fn what_is_not_known_is_not_idle() {
        for (unknown, idle) in [(0, 60), (40, 30), (80, 0)] {
            let sums =
                PageSums::of(Figures { present: 100, touched: 20, unobservable: 20, unknown, ..Figures::default() });
            assert_eq!(Memory::new(&sums).idle, idle);
        }
    }

    #[test]
    fn windows_have_the_units_that_people_write() {
        let names: Vec<String> = WINDOWS.map(window_name).into();
        assert_eq!(names, ["1s", "2s", "5s", "10s", "30s", "1m", "2m", "5m", "10m", "30m", "1h"]);
    }
}
