//! The data of a run: targets with their figures and history, schemes, and the cost of the monitor.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::survey::{NodeSums, SurveySnapshot, WINDOWS};
use isotherm_core::{Estimate, Pace, PanelSnapshot, Snapshot, TargetId};
use isotherm_record::{Activity, Cost, Row, SnapshotRecord, TargetInfo};
use isotherm_report::wss;
use isotherm_run::Missed;

use super::figures::{Sums, TargetFigures};
use super::frame::Frame;
use super::history::History;
use super::mapped_history::MappedHistory;
use super::scheme_activity::SchemeActivity;

/// How often figures change. More often, they could not be read.
const FIGURES_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum number of strips of a frame, all targets together. It bounds all [`History`] to 24 MB.
const STRIPS: usize = 512;

/// The maximum number of targets with a history.
const TARGETS: usize = 64;

/// Memory that was accessed within this time is in use.
const IN_USE: Duration = Duration::from_secs(5);

/// Less than one part of so many of the memory is little.
const LITTLE: u64 = 20;

/// One target.
#[derive(Clone)]
pub struct Track {
    pub id: TargetId,
    pub info: Arc<TargetInfo>,
    pub history: History,
    pub mapped: MappedHistory,
    pub figures: TargetFigures,
    /// Its memory on each node, as the last survey found it. Empty if all memory is on one node.
    pub nodes: Vec<NodeSums>,
    /// How much of it is in use, and within which time: by the last survey if that knows its memory, else by the last
    /// reading of the panel. `None` without either.
    pub in_use: Option<(Estimate, Duration)>,
    /// Bytes that it has freed lazily (`MADV_FREE`), and that count in no figure, as the last survey found them.
    pub lazily_freed: u64,
    /// The time of the last survey if that knows its memory, and of the first one.
    known_at: Option<Duration>,
    surveyed: Option<Duration>,
    /// The last reading of the panel, if it tells the whole window.
    panel: Option<Estimate>,
    /// Since when it is watched.
    pub joined: Duration,
    /// The time of its last snapshot.
    pub last: Duration,
    sums: Sums,
    /// Whether it has figures yet.
    has_figures: bool,
}

/// A target of the last snapshot that has no history.
#[derive(Clone)]
pub struct Other {
    pub info: Arc<TargetInfo>,
    /// The figures of one snapshot, without mappings.
    pub figures: TargetFigures,
    /// Since when it is watched.
    pub joined: Duration,
    /// The time of its last snapshot.
    last: Duration,
}

/// The cost of the monitor.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MonitorCost {
    /// CPU time of all threads of isotherm in the last interval, as a share of it.
    pub cpu: f64,
    /// Pages read per second in the last interval.
    pub reads: f64,
    /// Current number of regions of all targets.
    pub regions: usize,
    /// Sampling rounds so far, and how many of them were late.
    pub rounds: u64,
    pub late_rounds: u64,
    /// MappedHistory bytes that cannot be observed now.
    pub unobservable: u64,
    /// What the run has settled on.
    pub pace: Option<Pace>,
}

/// The data of a run. A copy shares the histories.
#[derive(Clone, Default)]
pub struct Model {
    /// The targets, in order of appearance.
    pub tracks: Vec<Track>,
    /// The targets that are watched, but have no history.
    pub others: HashMap<TargetId, Other>,
    /// Since when the first target is watched.
    pub start: Duration,
    /// The time of the last snapshot.
    pub time: Duration,
    /// The time of the run. It is later than `time` if nothing is monitored because all schemes sleep.
    pub now: Duration,
    pub snapshots: u64,
    pub monitor: MonitorCost,
    pub schemes: SchemeActivity,
    pending: Pending,
}

/// The cost since the figures changed last.
#[derive(Clone, Copy, Default)]
struct Pending {
    start: Duration,
    cpu: Duration,
    reads: u64,
}

impl Model {
    /// Takes a snapshot.
    pub fn take(&mut self, record: &SnapshotRecord) {
        let snapshot = &record.snapshot;
        let time = snapshot.time;
        self.snapshots += 1;
        let regions = snapshot.targets.iter().map(|target| target.regions.len()).sum();
        let over = self.snapshots == 1 || time.saturating_sub(self.pending.start) >= FIGURES_INTERVAL;
        self.count(&record.cost.unwrap_or_default(), time, regions, over);
        self.make_room(snapshot);

        let most = (STRIPS / snapshot.targets.len().max(1)).max(8);
        if self.tracks.is_empty() {
            self.start = time.saturating_sub(snapshot.aggregation);
        }
        for row in record.rows() {
            match self.track(&row) {
                Some(track) => track.take(&row, most, over),
                None => self.take_other(&row, over),
            }
        }
        self.others.retain(|_, other| other.last == time);
        self.time = time;
        self.now = self.now.max(time);
    }

    /// Takes what a survey has found.
    pub fn take_survey(&mut self, survey: &SurveySnapshot) {
        for target in &survey.targets {
            if let Some(track) = self.tracks.iter_mut().find(|track| track.id == target.id) {
                track.nodes.clone_from(&target.by_node);
                let sums = target.total();
                track.lazily_freed = sums.kinds.lazily_freed;
                // The first survey does not tell when memory was accessed.
                let first = *track.surveyed.get_or_insert(survey.time);
                let is_better = track.panel.is_some_and(|found| wss::is_better(found, survey.interval, IN_USE));
                let is_known = !survey.interval.is_zero() && wss::is_known(&sums) && !is_better;
                track.known_at = is_known.then_some(survey.time);
                if is_known {
                    let value = sums.within[in_use()];
                    // Of a longer time, the survey knows nothing.
                    let within = IN_USE.min(survey.time.saturating_sub(first).max(survey.interval));
                    // What cannot be observed may be in use as well, and matters if it is much.
                    let unseen = if sums.figures.unobservable > sums.figures.present / LITTLE {
                        sums.figures.unobservable
                    } else {
                        0
                    };
                    track.in_use = Some((Estimate { low: value, value, high: value + unseen }, within));
                }
            }
        }
    }

    /// Takes how much memory is in use.
    pub fn take_panel(&mut self, panel: &PanelSnapshot) {
        for target in &panel.targets {
            let Some(track) = self.tracks.iter_mut().find(|track| track.id == target.id) else { continue };
            let found = target.within[in_use()];
            track.panel = (panel.observed >= IN_USE).then_some(found);
            if track.known_at.is_none_or(|at| wss::is_after(panel.time, at, IN_USE)) {
                track.in_use = Some((found, IN_USE.min(panel.observed)));
            }
        }
    }

    /// Takes what the schemes have done.
    pub fn take_activity(&mut self, activity: &Arc<Activity>) {
        let time = activity.time;
        self.schemes.take(Arc::clone(activity));
        if self.schemes.all_sleep() {
            self.now = self.now.max(time);
        }
    }

    /// Whether the target was in the last snapshot.
    pub fn lives(&self, track: &Track) -> bool {
        track.last == self.time
    }

    fn count(&mut self, cost: &Cost, time: Duration, regions: usize, over: bool) {
        let (monitor, pending) = (&mut self.monitor, &mut self.pending);
        monitor.rounds += u64::from(cost.rounds);
        monitor.late_rounds += u64::from(cost.late_rounds);
        monitor.regions = regions;
        monitor.unobservable = cost.unobservable_bytes;
        pending.cpu += cost.cpu_time();
        pending.reads += cost.reads;
        if over {
            let seconds = time.saturating_sub(pending.start).as_secs_f64().max(1e-3);
            monitor.cpu = pending.cpu.as_secs_f64() / seconds;
            monitor.reads = pending.reads as f64 / seconds;
            *pending = Pending { start: time, ..Pending::default() };
        }
    }

    /// Counts the cost of snapshots that did not arrive, because this screen was stopped for long.
    pub fn missed(&mut self, missed: &Missed) {
        self.pending.cpu += missed.cost.cpu_time();
        self.pending.reads += missed.cost.reads;
        self.monitor.rounds += u64::from(missed.cost.rounds);
        self.monitor.late_rounds += u64::from(missed.cost.late_rounds);
    }

    /// Removes the targets that ended first while there are too many.
    fn make_room(&mut self, snapshot: &Snapshot) {
        let known = |id| self.tracks.iter().any(|track| track.id == id);
        let new = snapshot.targets.iter().filter(|target| !known(target.id)).count();
        for _ in 0..(self.tracks.len() + new).saturating_sub(TARGETS) {
            let lives = |track: &Track| snapshot.targets.iter().any(|target| target.id == track.id);
            let ended = self.tracks.iter().enumerate().filter(|(_, track)| !lives(track));
            let Some((first, _)) = ended.min_by_key(|(_, track)| track.last) else { return };
            self.tracks.remove(first);
        }
    }

    /// The track of a target; a new one if there is space for it.
    fn track(&mut self, row: &Row<'_>) -> Option<&mut Track> {
        let id = row.target.id;
        let known = self.tracks.iter().position(|track| track.id == id);
        if known.is_none() && self.tracks.len() < TARGETS {
            self.tracks.push(Track {
                id,
                info: Arc::clone(row.info),
                history: History::default(),
                mapped: MappedHistory::default(),
                figures: TargetFigures::default(),
                nodes: Vec::new(),
                in_use: None,
                lazily_freed: 0,
                known_at: None,
                surveyed: None,
                panel: None,
                joined: self.others.remove(&id).map_or(before(row), |other| other.joined),
                last: Duration::ZERO,
                sums: Sums::default(),
                has_figures: false,
            });
            return self.tracks.last_mut();
        }
        self.tracks.get_mut(known?)
    }

    /// Takes the row of a target without a history. Its figures are new with those of all others.
    fn take_other(&mut self, row: &Row<'_>, over: bool) {
        let known = self.others.remove(&row.target.id);
        let other = match known {
            Some(known) if !over => Other { last: row.time, ..known },
            known => Other {
                info: Arc::clone(row.info),
                figures: TargetFigures::of_whole(row),
                joined: known.map_or(before(row), |known| known.joined),
                last: row.time,
            },
        };
        self.others.insert(row.target.id, other);
    }
}

/// The place of [`IN_USE`] among the windows of surveys and of the panel.
fn in_use() -> usize {
    WINDOWS.iter().position(|&window| window == IN_USE).unwrap_or(0)
}

/// The start of the aggregation that this row is of.
fn before(row: &Row<'_>) -> Duration {
    row.time.saturating_sub(row.aggregation)
}

impl Track {
    /// Whether bounds of how much is in use are so close that the estimate between them tells something: no further
    /// apart than it is large, or than what is little.
    pub fn is_figure(&self, Estimate { low, value, high }: Estimate) -> bool {
        high - low <= value.max(self.figures.total.size as u64 / LITTLE)
    }

    fn take(&mut self, row: &Row<'_>, most: usize, over: bool) {
        // Since its last snapshot, unless snapshots are missing in between.
        let before = before(row);
        let gap = row.time.saturating_sub(self.last) > row.aggregation * 2;
        let since = if gap { before.max(self.last) } else { self.last };
        // One figure for one thing, wherever it is shown.
        let used = self.in_use.map(|(used, _)| used).filter(|used| self.is_figure(*used)).map(|used| used.value);
        let frame = Frame::new(row, since, most);
        self.history.push(Frame { working_set: used.unwrap_or(frame.working_set), ..frame }, most);
        self.mapped.note(row.time, &row.target.mappings);
        self.sums.add(row);
        if over || !self.has_figures {
            self.figures = self.sums.take();
            self.figures.total.working_set = used.map_or(self.figures.total.working_set, |used| used as f64);
            self.has_figures = true;
        }
        self.info = Arc::clone(row.info);
        self.last = row.time;
    }
}
