//! The overview of all groups: what is known of each now, and how it was in the last hour.
//!
//! It is taken on the daemon's clock, and once for all who follow it.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use isotherm_core::survey::{PageSums, WINDOWS};
use isotherm_kernel::{memory_use, unix_ns};
use isotherm_record::SnapshotRecord;
use isotherm_report::{HOT_HZ, Parts, Share, pieces};
use rustix::time::{ClockId, clock_gettime};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

use crate::daemon::Daemon;
use crate::hub::Newest;
use crate::view::{self, Memory, PaceInForce, SchemeStatus, State, Streamed};
use crate::watched::Watched;

/// How many overviews wait for a client that reads slowly.
const STREAMED: usize = 8;

/// The time over which the CPU time of the daemon is taken.
const RECENT: Duration = Duration::from_secs(10);

/// How many points of a trend are kept: an hour of them.
const POINTS: usize = 360;

/// The bounds of the idle time from which on memory counts as reclaimable.
const LEAST_IDLE: Duration = Duration::from_secs(60);
const MOST_IDLE: Duration = Duration::from_secs(600);

/// With a larger share of memory of which nothing is known, the working set would be a guess.
const MUCH_UNKNOWN: f64 = 0.25;

/// What is known of all groups at a time.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Overview {
    /// When, since the Unix epoch.
    pub unix_ns: u64,
    /// When the daemon started, since the Unix epoch.
    pub started_unix_ns: u64,
    /// The name of the machine.
    pub host: Option<String>,
    /// The share of one CPU that the daemon may take.
    pub cpu_budget: f64,
    /// The share of one CPU that it took in about the last ten seconds. `None` before that is known.
    pub cpu: Option<f64>,
    /// The share of one CPU that requests, streams, metrics and the order of the history took in about the last
    /// minute. It is a part of the budget.
    pub serving_cpu: f64,
    /// The number of clients that follow overviews, such as live pages.
    pub followers: u64,
    /// The memory of the daemon.
    pub resident_bytes: Option<u64>,
    /// The size of the history of all groups. `None` if none is kept.
    pub history_bytes: Option<u64>,
    /// What is wrong, as the health has it.
    pub problems: Vec<String>,
    /// The groups, by name.
    pub groups: Vec<GroupOverview>,
}

/// What is known of a group at a time.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct GroupOverview {
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
    /// The time from its begin to its last survey.
    pub watched_ns: u64,
    /// Its memory. `None` before the first survey, and while it is not watched.
    pub memory: Option<Memory>,
    /// Its memory by access frequency. `None` without samples, and while it is not watched.
    pub temperature: Option<Temperature>,
    /// What can likely be reclaimed. `None` if it is not watched for long enough.
    pub reclaimable: Option<Reclaimable>,
    /// Its memory on each memory node. Empty if that is not known.
    pub nodes: Vec<NodeOverview>,
    /// The intervals that the run has settled on.
    pub pace: Option<PaceInForce>,
    /// The schemes.
    pub schemes: Vec<SchemeStatus>,
}

/// Bytes by access frequency, as `isotherm report summary` has them. What several processes map counts for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Temperature {
    /// Accessed at 10 Hz or more.
    pub hot: u64,
    /// Accessed less often.
    pub warm: u64,
    /// Not accessed.
    pub cold: u64,
    /// Not observable.
    pub unobservable: u64,
    /// Of which nothing is known yet.
    pub unknown: u64,
}

/// Memory that was idle for long.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reclaimable {
    /// Bytes that are known to have been idle for so long.
    pub bytes: u64,
    /// The idle time: ten minutes, or less if the group is not watched for that long.
    pub idle_for_ns: u64,
}

/// Memory on a memory node.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct NodeOverview {
    /// The number of the node.
    pub node: u32,
    /// The memory.
    pub memory: Memory,
    /// What of it can likely be reclaimed.
    pub reclaimable: Option<Reclaimable>,
}

/// The memory of a group over the last hour, a point each ten seconds.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Trend {
    /// The times, in seconds since the Unix epoch.
    pub time: Vec<u64>,
    /// What was in memory.
    pub resident: Vec<u64>,
    /// What was accessed within a minute. `null` where too little was known.
    pub touched: Vec<Option<u64>>,
}

#[derive(Clone, Copy)]
struct Point {
    time: u64,
    resident: u64,
    touched: Option<u64>,
}

/// Takes overviews, and keeps what trends need.
pub struct Overviews {
    stream: broadcast::Sender<Arc<Streamed>>,
    trends: Mutex<BTreeMap<String, VecDeque<Point>>>,
    /// The CPU time of the daemon at the last ticks.
    cpu: Mutex<VecDeque<(Instant, Duration)>>,
    serving: Mutex<f64>,
}

impl Default for Overviews {
    /// Nothing is known yet.
    fn default() -> Self {
        let stream = broadcast::Sender::new(STREAMED);
        Self { stream, trends: Mutex::default(), cpu: Mutex::default(), serving: Mutex::default() }
    }
}

impl Overviews {
    /// The overviews from now on, one a second.
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<Streamed>> {
        self.stream.subscribe()
    }

    /// The memory of each group over the last hour.
    pub fn trends(&self) -> BTreeMap<String, Trend> {
        let trends = self.trends.lock().unwrap_or_else(PoisonError::into_inner);
        let trend = |points: &VecDeque<Point>| Trend {
            time: points.iter().map(|point| point.time).collect(),
            resident: points.iter().map(|point| point.resident).collect(),
            touched: points.iter().map(|point| point.touched).collect(),
        };
        trends.iter().map(|(name, points)| (name.clone(), trend(points))).collect()
    }

    /// Takes in the share of one CPU that serving takes. Comes once a second.
    pub fn set_serving(&self, share: f64) {
        *self.serving.lock().unwrap_or_else(PoisonError::into_inner) = share;
    }

    /// Takes an overview for those who follow, if there is somebody. Comes once a second.
    pub fn tell(&self, daemon: &Daemon) {
        let mut cpu = self.cpu.lock().unwrap_or_else(PoisonError::into_inner);
        cpu.push_back((Instant::now(), process_cpu()));
        while cpu.get(1).is_some_and(|(time, _)| time.elapsed() >= RECENT) {
            cpu.pop_front();
        }
        drop(cpu);
        if self.stream.receiver_count() > 0 {
            // All receivers may have gone meanwhile.
            let _ = self.stream.send(Arc::new(Streamed::Overview(Box::new(self.take(daemon)))));
        }
    }

    /// Adds a point to the trend of each group. Comes each ten seconds.
    pub fn remember(&self, daemon: &Daemon) {
        let time = unix_ns() / 1_000_000_000;
        let mut trends = self.trends.lock().unwrap_or_else(PoisonError::into_inner);
        let groups = daemon.groups.all();
        trends.retain(|name, _| groups.iter().any(|(known, _)| known == name));
        for (name, group) in groups {
            let Some(survey) = group.hub.known().survey.filter(|_| group.state().0 == State::Watching) else {
                continue;
            };
            let (sums, points) = (survey.survey.sums(), trends.entry(name).or_default());
            if points.len() == POINTS {
                points.pop_front();
            }
            points.push_back(Point { time, resident: sums.figures.present, touched: touched(&sums) });
        }
    }

    /// The overview now.
    pub fn take(&self, daemon: &Daemon) -> Overview {
        let groups = daemon.groups.all();
        Overview {
            unix_ns: unix_ns(),
            started_unix_ns: daemon.started_unix_ns,
            host: groups.iter().find_map(|(_, group)| Some(group.hub.known().header?.host.name.clone())),
            cpu_budget: daemon.groups.allowance().whole().cpu,
            cpu: self.recent_cpu(),
            serving_cpu: *self.serving.lock().unwrap_or_else(PoisonError::into_inner),
            followers: self.stream.receiver_count() as u64,
            resident_bytes: memory_use(Path::new("/"), std::process::id()).ok().map(|memory| memory.resident),
            history_bytes: daemon.groups.history().map(|_| daemon.kept_bytes()),
            problems: daemon.health().problems,
            groups: groups.iter().map(|(name, group)| GroupOverview::new(name, group)).collect(),
        }
    }

    fn recent_cpu(&self) -> Option<f64> {
        let cpu = self.cpu.lock().unwrap_or_else(PoisonError::into_inner);
        let ((from, before), (to, now)) = (cpu.front()?, cpu.back()?);
        let time = to.duration_since(*from).as_secs_f64();
        (time > 0.0).then(|| now.saturating_sub(*before).as_secs_f64() / time)
    }
}

impl GroupOverview {
    fn new(name: &str, group: &Watched) -> Self {
        let ((state, why), known) = (group.state(), group.hub.known());
        let is_watched = state == State::Watching;
        let survey = known.survey.as_ref().filter(|_| is_watched).map(|record| &record.survey);
        let watched = survey.map_or(Duration::ZERO, |survey| survey.time.saturating_sub(known.from));
        let sums = survey.map(|survey| survey.sums());
        let snapshot = known.snapshot.as_ref().filter(|_| is_watched);
        Self {
            name: name.into(),
            state,
            why,
            probe: probe(&known),
            processes: known.processes(),
            watched_ns: watched.as_nanos() as u64,
            memory: sums.as_ref().map(Memory::new),
            temperature: snapshot.and_then(|record| Temperature::new(record)),
            reclaimable: sums.as_ref().and_then(|sums| Reclaimable::new(sums, watched)),
            nodes: survey.map_or_else(Vec::new, |survey| {
                let nodes = survey.by_node.iter().map(|node| NodeOverview {
                    node: node.node.0,
                    memory: Memory::new(&node.sums),
                    reclaimable: Reclaimable::new(&node.sums, watched),
                });
                nodes.collect()
            }),
            pace: known.pace.filter(|_| is_watched).map(Into::into),
            schemes: view::schemes(&known),
        }
    }
}

fn probe(known: &Newest) -> Option<String> {
    known.header.as_ref().map(|header| header.probe.clone())
}

/// What was accessed within a minute, if enough is known for a figure.
fn touched(sums: &PageSums) -> Option<u64> {
    let observable = sums.figures.present.saturating_sub(sums.figures.unobservable);
    let is_known = observable > 0 && sums.figures.unknown as f64 <= observable as f64 * MUCH_UNKNOWN;
    let within = WINDOWS.iter().zip(sums.within).find(|(window, _)| **window == LEAST_IDLE);
    within.filter(|_| is_known).map(|(_, bytes)| bytes)
}

impl Temperature {
    /// That of a snapshot. `None` if nothing was sampled.
    fn new(record: &SnapshotRecord) -> Option<Self> {
        let snapshot = &record.snapshot;
        if !snapshot.regions().any(|region| region.nr_samples > 0 || region.frequency.is_some()) {
            return None;
        }
        let mut sums = [0.0; 5];
        for row in record.rows() {
            for piece in pieces(&row, None) {
                let share = Share::of(piece.region, snapshot.samples, snapshot.aggregation);
                let Parts { hot, warm, cold, unobservable, unknown } = Parts::of(piece.region, share, HOT_HZ);
                let bytes = piece.present() as f64;
                sums.iter_mut().zip([hot, warm, cold, unobservable, unknown]).for_each(|(sum, part)| {
                    *sum += part * bytes;
                });
            }
        }
        let [hot, warm, cold, unobservable, unknown] = sums.map(|sum| sum as u64);
        Some(Self { hot, warm, cold, unobservable, unknown })
    }
}

impl Reclaimable {
    /// What is reclaimable of memory that has been watched for this time.
    fn new(sums: &PageSums, watched: Duration) -> Option<Self> {
        let windows = WINDOWS.iter().zip(sums.within).rev();
        let is_known = |window: Duration| window >= LEAST_IDLE && window <= MOST_IDLE && window <= watched;
        let (idle, accessed) = windows.into_iter().find(|(window, _)| is_known(**window))?;
        Some(Self { bytes: Memory::idle(sums, accessed), idle_for_ns: idle.as_nanos() as u64 })
    }
}

/// The CPU time of all threads of the daemon.
pub fn process_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use isotherm_core::Figures;

    use super::*;

    fn sums(unknown: u64) -> PageSums {
        let figures = Figures { present: 100, touched: 20, unobservable: 20, unknown, ..Figures::default() };
        PageSums { within: std::array::from_fn(|nth| 20 + nth as u64), ..PageSums::of(figures) }
    }

    #[test]
    fn what_is_reclaimable_was_idle_for_as_long_as_it_is_watched_but_no_longer_than_it_takes() {
        let of = |seconds| Reclaimable::new(&sums(0), Duration::from_secs(seconds));
        assert_eq!(of(59), None);
        for (watched, idle, bytes) in [(61, 60, 55), (599, 300, 53), (4000, 600, 52)] {
            let expected = Reclaimable { bytes, idle_for_ns: idle * 1_000_000_000 };
            assert_eq!(of(watched), Some(expected), "watched for {watched} s");
        }
        let unknown = Reclaimable::new(&sums(80), Duration::from_secs(4000));
        assert_eq!(unknown.map(|of| of.bytes), Some(0), "what is not known is not idle");
    }

    #[test]
    fn a_working_set_of_which_much_is_not_known_is_no_figure() {
        assert_eq!((touched(&sums(0)), touched(&sums(20)), touched(&sums(21))), (Some(25), Some(25), None));
        assert_eq!(touched(&PageSums::default()), None);
    }
}
