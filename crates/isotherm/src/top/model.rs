//! What is known of a run: the targets, their figures and their past, and what the monitor took.

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{Snapshot, TargetId};
use isotherm_record::{Activity, Cost, Row, SnapshotRecord, TargetInfo};
use isotherm_run::Missed;

use super::doings::Doings;
use super::figures::{Figures, Sums};
use super::frame::Frame;
use super::history::History;
use super::mapped::Mapped;

/// How often figures change: more often, nobody could read them.
const BEAT: Duration = Duration::from_secs(1);

/// Strips of a frame, all targets together: with [`History`], at most 24 MB of the past.
const STRIPS: usize = 512;

/// Targets whose past is kept.
const TARGETS: usize = 64;

/// One target.
#[derive(Clone)]
pub struct Track {
    pub id: TargetId,
    pub info: Arc<TargetInfo>,
    pub history: History,
    pub mapped: Mapped,
    pub figures: Figures,
    /// The time of its last snapshot.
    pub last: Duration,
    sums: Sums,
    /// Whether it has figures.
    told: bool,
}

/// What the monitor took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Took {
    /// CPU time of the monitor's thread over the time that passed, in the last beat.
    pub cpu: f64,
    /// Pages read a second, in the last beat.
    pub reads: f64,
    /// Regions of all targets now.
    pub regions: usize,
    /// Rounds of sampling so far, and how many of them were late.
    pub rounds: u64,
    pub late_rounds: u64,
    /// Mapped bytes that could not be observed, now.
    pub unobservable: u64,
}

/// All that is known of a run. A copy shares its past.
#[derive(Clone, Default)]
pub struct Model {
    /// In the order in which they appeared.
    pub tracks: Vec<Track>,
    /// Targets that are watched, but that there is no room for here.
    pub others: usize,
    /// The time of the last snapshot.
    pub time: Duration,
    /// The time that the run has come to: later than that if nothing is monitored because all schemes sleep.
    pub now: Duration,
    pub snapshots: u64,
    pub took: Took,
    pub doings: Doings,
    beat: Beat,
}

/// What has come in since figures changed.
#[derive(Clone, Copy, Default)]
struct Beat {
    start: Duration,
    cpu_ns: u64,
    reads: u64,
}

impl Model {
    /// Takes a snapshot.
    pub fn take(&mut self, record: &SnapshotRecord) {
        let snapshot = &record.snapshot;
        let time = snapshot.time;
        self.snapshots += 1;
        let regions = snapshot.targets.iter().map(|target| target.regions.len()).sum();
        let over = self.snapshots == 1 || time.saturating_sub(self.beat.start) >= BEAT;
        self.count(&record.cost.unwrap_or_default(), time, regions, over);
        self.make_room(snapshot);

        let most = (STRIPS / snapshot.targets.len().max(1)).max(8);
        self.others = 0;
        for row in record.rows() {
            let Some(track) = track(&mut self.tracks, row.target.id, &row.info) else {
                self.others += 1;
                continue;
            };
            track.take(&row, most, over);
        }
        self.time = time;
        self.now = self.now.max(time);
    }

    /// Takes what the schemes have done.
    pub fn take_activity(&mut self, activity: &Arc<Activity>) {
        let time = activity.time;
        self.doings.take(Arc::clone(activity));
        if self.doings.all_sleep() {
            self.now = self.now.max(time);
        }
    }

    /// Whether the target was there in the last snapshot.
    pub fn lives(&self, track: &Track) -> bool {
        track.last == self.time
    }

    fn count(&mut self, cost: &Cost, time: Duration, regions: usize, over: bool) {
        let (took, beat) = (&mut self.took, &mut self.beat);
        took.rounds += u64::from(cost.rounds);
        took.late_rounds += u64::from(cost.late_rounds);
        took.regions = regions;
        took.unobservable = cost.unobservable_bytes;
        beat.cpu_ns += cost.cpu_ns;
        beat.reads += cost.reads;
        if over {
            let seconds = time.saturating_sub(beat.start).as_secs_f64().max(1e-3);
            took.cpu = beat.cpu_ns as f64 / 1e9 / seconds;
            took.reads = beat.reads as f64 / seconds;
            *beat = Beat { start: time, ..Beat::default() };
        }
    }

    /// Counts the cost of snapshots that did not arrive, because this screen was stopped for long.
    pub fn missed(&mut self, missed: &Missed) {
        self.beat.cpu_ns += missed.cost.cpu_ns;
        self.beat.reads += missed.cost.reads;
        self.took.rounds += u64::from(missed.cost.rounds);
        self.took.late_rounds += u64::from(missed.cost.late_rounds);
    }

    /// Forgets those that ended first while there are too many.
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
}

/// The track of a target, a new one if there is room.
fn track<'a>(tracks: &'a mut Vec<Track>, id: TargetId, info: &Arc<TargetInfo>) -> Option<&'a mut Track> {
    let known = tracks.iter().position(|track| track.id == id);
    if known.is_none() && tracks.len() < TARGETS {
        tracks.push(Track {
            id,
            info: Arc::clone(info),
            history: History::default(),
            mapped: Mapped::default(),
            figures: Figures::default(),
            last: Duration::ZERO,
            sums: Sums::default(),
            told: false,
        });
        return tracks.last_mut();
    }
    tracks.get_mut(known?)
}

impl Track {
    fn take(&mut self, row: &Row, most: usize, over: bool) {
        // From its snapshot before, unless that is so far back that something is missing.
        let before = row.time.saturating_sub(row.aggregation);
        let gap = row.time.saturating_sub(self.last) > row.aggregation * 2;
        let since = if gap { before.max(self.last) } else { self.last };
        self.history.push(Frame::new(row, since, most), most);
        self.mapped.note(row.time, &row.target.mappings);
        self.sums.add(row);
        if over || !self.told {
            self.figures = self.sums.take();
            self.told = true;
        }
        self.info = Arc::clone(&row.info);
        self.last = row.time;
    }
}
