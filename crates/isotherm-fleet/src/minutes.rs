//! The minutes of the recordings of one group: what was found last in each, and what was spent and done in it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::scheme::{Action, Statistics};
use isotherm_core::survey::{NodeSums, PageSums, SurveySnapshot};
use isotherm_core::{SystemMemory, TargetId};
use isotherm_record::{
    Activity, Cost, Event, JoinError, Joined, LEVEL_NEEDS, Level, Surroundings, TargetInfo, levelled,
};

use crate::classes::Classes;
use crate::row::int;

/// A minute of a group.
#[derive(Debug, Default)]
pub(crate) struct Minute {
    /// When the run that the minute is of started, in nanoseconds since the Unix epoch.
    pub(crate) started: u64,
    /// For how long the group had been watched at the last survey.
    pub(crate) watched: Duration,
    pub(crate) targets: HashMap<TargetId, TargetMinute>,
    /// All targets together, each page once. `None` if it is not known.
    pub(crate) total: Option<PageSums>,
    pub(crate) total_by_node: Vec<NodeSums>,
    pub(crate) has_survey: bool,
    pub(crate) cost: Option<Cost>,
    pub(crate) done: Option<Done>,
    pub(crate) system: Option<SystemMemory>,
    /// The cgroup of all targets, and its limit.
    pub(crate) limit: Option<(Arc<str>, u64)>,
}

/// A target in a minute.
#[derive(Debug, Default)]
pub(crate) struct TargetMinute {
    pub(crate) info: Arc<TargetInfo>,
    /// Whether the last survey had it. Otherwise nothing but its frequencies is known.
    pub(crate) is_surveyed: bool,
    pub(crate) sums: PageSums,
    pub(crate) by_node: Vec<NodeSums>,
    pub(crate) classes: Classes,
}

/// What schemes have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) freed: u64,
    pub(crate) watched: u64,
    pub(crate) returned: u64,
    pub(crate) moved: u64,
}

/// Reads the minutes of a group from its recordings.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    /// By the start of the minute, in seconds since the Unix epoch.
    pub(crate) minutes: BTreeMap<i64, Minute>,
    /// Minutes that a second run says something of, as it happens if the clock was set back. The first one counts.
    pub(crate) twice: u64,
    run: u64,
    /// Since when surveys know what was accessed, since the start of the run.
    since: Duration,
    is_surveyed: bool,
    /// The sums of each scheme at its last activity.
    before: Option<HashMap<Arc<str>, Statistics>>,
}

impl Reader {
    /// Takes in a recording. Those of a group come in the order of time. The run is known from `since` on, from earlier
    /// recordings that need not be read.
    pub(crate) fn read(&mut self, recording: &Joined, since: Duration) -> Result<(), JoinError> {
        let header = recording.header();
        let from = header.part.map_or(Duration::ZERO, |part| Duration::from_nanos(part.from_ns));
        if self.run != header.started_unix_ns {
            (self.run, self.since, self.before) = (header.started_unix_ns, since, None);
            self.is_surveyed = false;
            // The sums of schemes begin with the run.
            if from.is_zero() {
                self.before = Some(HashMap::new());
            }
        }
        // Time never goes back.
        let mut end = from;
        for event in levelled(recording.events(LEVEL_NEEDS), Level::Minute.length()) {
            let event = event?;
            end = end.max(event.time());
            match event {
                Event::Snapshot(record) => {
                    let Some(minute) = self.minute(end) else { continue };
                    if let Some(cost) = record.cost {
                        minute.cost.get_or_insert_default().add(&cost);
                    }
                    for row in record.rows() {
                        let target = minute.targets.entry(row.target.id).or_default();
                        (target.info, target.classes) = (Arc::clone(row.info), Classes::of(&row.target.regions));
                    }
                }
                Event::Survey(record) => {
                    // A level can lack the first survey of a run, which comes by then.
                    if !std::mem::replace(&mut self.is_surveyed, true) && self.since >= from {
                        self.since = record.survey.time.saturating_sub(record.survey.interval);
                    }
                    let since = self.since;
                    let Some(minute) = self.minute(end) else { continue };
                    minute.survey(&record.survey, |id| record.info(id), since);
                }
                Event::Activity(activity) => {
                    let done = self.done(&activity);
                    let Some(minute) = self.minute(end) else { continue };
                    minute.activity(&activity, done);
                }
                Event::Panel(_) | Event::Mark(_) | Event::Allocations(_) | Event::Missed(_) => {}
            }
        }
        Ok(())
    }

    /// The minute at `time` of the run. `None` if another run has it.
    fn minute(&mut self, time: Duration) -> Option<&mut Minute> {
        // What ends with a minute is of it.
        let wall = u128::from(self.run) + time.as_nanos();
        let start = int(wall.saturating_sub(1) / 60_000_000_000 * 60);
        let run = self.run;
        let minute = self.minutes.entry(start).or_insert_with(|| Minute { started: run, ..Minute::default() });
        if minute.started != run {
            self.twice += 1;
            return None;
        }
        Some(minute)
    }

    /// What schemes have done since the activity before. `None` if that is not known.
    fn done(&mut self, activity: &Activity) -> Option<Done> {
        let before = self.before.replace(
            activity.schemes.iter().map(|scheme| (Arc::clone(&scheme.name), scheme.total.clone())).collect(),
        )?;
        let mut done = Done::default();
        for scheme in &activity.schemes {
            // The sums begin at zero again when schemes are changed.
            let earlier = before.get(&scheme.name).filter(|of| of.applications <= scheme.total.applications);
            let more = |of: fn(&Statistics) -> u64| of(&scheme.total).saturating_sub(earlier.map_or(0, of));
            let action = Action::named(&scheme.action.name)?;
            if action.frees() {
                done.freed += more(|of| of.applied_bytes);
                done.watched += more(|of| of.watched_bytes);
                done.returned += more(|of| of.returned_bytes);
            } else if action.moves().is_some() {
                done.moved += more(|of| of.applied_bytes);
            }
        }
        Some(done)
    }
}

impl Minute {
    /// The targets of the last survey.
    pub(crate) fn surveyed(&self) -> impl Iterator<Item = (&TargetId, &TargetMinute)> {
        self.targets.iter().filter(|(_, target)| target.is_surveyed)
    }

    fn survey(&mut self, survey: &SurveySnapshot, info: impl Fn(TargetId) -> Arc<TargetInfo>, since: Duration) {
        self.has_survey = true;
        self.watched = survey.time.saturating_sub(since);
        self.total = survey.total.map(|total| total.sums);
        self.total_by_node = survey.by_node.clone();
        // Those that ended before the last survey of the minute have no memory.
        self.targets.values_mut().for_each(|target| target.is_surveyed = false);
        for found in &survey.targets {
            let target = self.targets.entry(found.id).or_default();
            (target.info, target.is_surveyed) = (info(found.id), true);
            (target.sums, target.by_node) = (found.total(), found.by_node.clone());
        }
    }

    fn activity(&mut self, activity: &Activity, done: Option<Done>) {
        self.system = Some(activity.system);
        self.limit = activity.surroundings.as_ref().and_then(limit);
        if let Some(done) = done {
            let sum = self.done.get_or_insert_default();
            sum.freed += done.freed;
            sum.watched += done.watched;
            sum.returned += done.returned;
            sum.moved += done.moved;
        }
    }
}

/// The cgroup of all targets, if it has a limit.
fn limit(surroundings: &Surroundings) -> Option<(Arc<str>, u64)> {
    let cgroup = surroundings.cgroup.as_ref()?;
    let lowest = cgroup.lowest_limit.as_ref().map(|limit| limit.bytes);
    let bytes = [cgroup.high_bytes, cgroup.max_bytes, lowest].into_iter().flatten().min()?;
    Some((cgroup.path.as_str().into(), bytes))
}
