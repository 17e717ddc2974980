//! The summary: by mapping name, how much memory is hot, warm and cold, and for how long the cold has been cold.
//!
//! Sizes are means over the selected time, weighted by time, so that hot + warm + cold + unobservable is the size
//! and the sum over the names is the mean size of all. How long the cold memory has been cold is told as of
//! the last snapshot in which the name was there: a mean over time would say half of it.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::TargetId;
use isotherm_record::{Header, TargetInfo, pid_column};
use serde::Serialize;

use crate::ReportError;
use crate::overhead::Overhead;
use crate::source::{Seen, Share, View};
use crate::space::shown_name;

/// From this access rate on, memory is hot; below it, if it was accessed at all, warm; otherwise cold.
pub const HOT: f64 = 0.5;

/// Late rounds above this share of all rounds make the figures doubtful.
pub const MANY_LATE: f64 = 0.01;

/// How warm the memory of one name is.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Temperature {
    /// The name of the mappings; `anonymous` for memory without one.
    pub name: Arc<str>,
    /// Mapped bytes: the sum of the next four.
    pub size_bytes: u64,
    /// Bytes with an access rate of at least [`HOT`].
    pub hot_bytes: u64,
    /// Bytes that were accessed, but less than that.
    pub warm_bytes: u64,
    /// Bytes that were not found accessed.
    pub cold_bytes: u64,
    /// Bytes that could not be observed.
    pub unobservable_bytes: u64,
    /// Bytes of regions that were found accessed at least once in an aggregation, on the mean.
    pub working_set_bytes: u64,
    /// The largest working set of a single snapshot.
    pub working_set_max_bytes: u64,
    /// For how long the cold bytes had been cold at the last snapshot, on the mean; nothing if none were cold.
    pub cold_for_ns: Option<u64>,
}

/// One target, in all.
#[derive(Clone, Debug, Serialize)]
pub struct TargetTemperature {
    /// Which target.
    pub pid: u32,
    /// Its command line.
    pub command: String,
    /// The time of its first snapshot in the selection.
    pub first_ns: u64,
    /// The time of its last snapshot in the selection.
    pub last_ns: u64,
    /// All of its memory.
    #[serde(flatten)]
    pub total: Temperature,
}

/// The answer to "what is my memory doing".
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The time that is summed up: from here …
    pub from_ns: u64,
    /// … to here.
    pub to_ns: u64,
    /// Snapshots in it.
    pub snapshots: u64,
    /// What holds for the whole recording.
    pub recording: Header,
    /// Why the recording does not reach to the end of its run, if it does not.
    pub cut_short: Option<String>,
    /// Rounds of sampling, and how many of them began late.
    pub rounds: u64,
    /// Rounds that began later than they should.
    pub late_rounds: u64,
    /// Aggregations that are missing: events of the kernel's DAMON that were not taken in time.
    pub lost_aggregations: u64,
    /// Target by target.
    pub targets: Vec<TargetTemperature>,
    /// All memory.
    pub total: Temperature,
    /// Name by name: the most hot first, then the largest.
    pub mappings: Vec<Temperature>,
}

/// Means over time, in bytes × seconds until the end.
#[derive(Clone, Default)]
struct Sums {
    hot: f64,
    warm: f64,
    cold: f64,
    unobservable: f64,
    working_set: f64,
    /// The working set in the snapshot that is being seen, and the largest so far.
    current: (Duration, u64),
    largest: u64,
    /// Target by target: the time of its last snapshot, its cold bytes then, and these times their age.
    idle: HashMap<TargetId, (Duration, f64, f64)>,
}

impl Sums {
    fn add(&mut self, seen: &Seen<'_>, bytes: u64, region: &isotherm_core::RegionSnapshot) {
        let share = Share::of(region, seen.row.samples);
        let time = seen.row.time;
        let weight = bytes as f64 * seen.span().as_secs_f64();
        self.unobservable += weight * (1.0 - share.observed);
        let idle = self.idle.entry(seen.row.target.id).or_insert((time, 0.0, 0.0));
        if idle.0 != time {
            *idle = (time, 0.0, 0.0);
        }
        match share.rate() {
            Some(rate) if rate >= HOT => self.hot += weight * share.observed,
            Some(rate) if rate > 0.0 => self.warm += weight * share.observed,
            Some(_) => {
                self.cold += weight * share.observed;
                let cold = bytes as f64 * share.observed;
                idle.1 += cold;
                idle.2 += cold * f64::from(region.age) * seen.row.aggregation.as_secs_f64();
            }
            None => {}
        }
        if region.nr_accesses > 0 {
            self.working_set += weight;
            if self.current.0 != time {
                self.current = (time, 0);
            }
            self.current.1 = self.current.1.saturating_add(bytes);
            self.largest = self.largest.max(self.current.1);
        }
    }

    fn over(&self, seconds: f64, name: Arc<str>) -> Temperature {
        let mean = |sum: f64| (sum / seconds).round() as u64;
        let (hot, warm, cold, unobservable) =
            (mean(self.hot), mean(self.warm), mean(self.cold), mean(self.unobservable));
        let (bytes, aged) = self.idle.values().fold((0.0, 0.0), |(b, a), &(_, bytes, aged)| (b + bytes, a + aged));
        Temperature {
            name,
            size_bytes: [hot, warm, cold, unobservable].into_iter().fold(0, u64::saturating_add),
            hot_bytes: hot,
            warm_bytes: warm,
            cold_bytes: cold,
            unobservable_bytes: unobservable,
            working_set_bytes: mean(self.working_set),
            working_set_max_bytes: self.largest,
            cold_for_ns: (bytes > 0.0).then(|| (aged / bytes * 1e9) as u64),
        }
    }
}

struct TargetSums {
    id: TargetId,
    info: Arc<TargetInfo>,
    first: Duration,
    last: Duration,
    sums: Sums,
}

/// Sums up what it sees.
#[derive(Default)]
pub struct SummaryBuilder {
    names: HashMap<Arc<str>, Sums>,
    targets: Vec<TargetSums>,
    total: Sums,
    span: Option<(Duration, Duration)>,
    covered: Duration,
    last: Option<Duration>,
    snapshots: u64,
}

impl SummaryBuilder {
    /// The summary, together with the costs of the same walk.
    pub fn finish(self, header: &Header, cut_short: Option<String>, overhead: &Overhead) -> Summary {
        let seconds = self.covered.as_secs_f64().max(1e-9);
        let mut mappings: Vec<_> = self.names.into_iter().map(|(name, sums)| sums.over(seconds, name)).collect();
        mappings.sort_by(|a, b| {
            let key = |t: &Temperature| Reverse((t.hot_bytes, t.size_bytes));
            key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
        });
        let targets = self
            .targets
            .into_iter()
            .map(|target| TargetTemperature {
                pid: pid_column(target.id),
                command: target.info.command.clone(),
                first_ns: target.first.as_nanos() as u64,
                last_ns: target.last.as_nanos() as u64,
                total: target.sums.over(seconds, "total".into()),
            })
            .collect();
        let (from, to) = self.span.unwrap_or_default();
        Summary {
            from_ns: from.as_nanos() as u64,
            to_ns: to.as_nanos() as u64,
            snapshots: self.snapshots,
            recording: header.clone(),
            cut_short,
            rounds: overhead.rounds,
            late_rounds: overhead.late_rounds,
            lost_aggregations: overhead.lost_aggregations,
            targets,
            total: self.total.over(seconds, "total".into()),
            mappings,
        }
    }
}

impl View for SummaryBuilder {
    fn add(&mut self, seen: &Seen<'_>) -> Result<(), ReportError> {
        if !seen.chosen {
            return Ok(());
        }
        let row = seen.row;
        let (start, end) = self.span.unwrap_or((seen.since, row.time));
        self.span = Some((start.min(seen.since), end.max(row.time)));
        if self.last.replace(row.time) != Some(row.time) {
            self.snapshots += 1;
            self.covered += seen.span();
        }
        let target = match self.targets.iter().position(|target| target.id == row.target.id) {
            Some(i) => &mut self.targets[i],
            None => {
                let (id, info) = (row.target.id, row.info.clone());
                self.targets.push(TargetSums { id, info, first: row.time, last: row.time, sums: Sums::default() });
                let last = self.targets.len() - 1;
                &mut self.targets[last]
            }
        };
        target.last = row.time;
        target.info = row.info.clone();
        for piece in seen.pieces() {
            let bytes = piece.range.size();
            let label = piece.mapping.label();
            let name = shown_name(&label);
            if !self.names.contains_key(name) {
                self.names.insert(name.into(), Sums::default());
            }
            if let Some(sums) = self.names.get_mut(name) {
                sums.add(seen, bytes, piece.region);
            }
            target.sums.add(seen, bytes, piece.region);
            self.total.add(seen, bytes, piece.region);
        }
        Ok(())
    }
}

/// The rows worth telling, and the rest as one: names of less than `least` of the size and the hot, or beyond `most` rows.
pub fn folded(mappings: &[Temperature], most: usize, least: f64) -> (Vec<&Temperature>, Option<(usize, Temperature)>) {
    let size: u64 = mappings.iter().map(|m| m.size_bytes).fold(0, u64::saturating_add);
    let hot: u64 = mappings.iter().map(|m| m.hot_bytes).fold(0, u64::saturating_add);
    let worth = |m: &Temperature| {
        m.size_bytes as f64 >= size as f64 * least || (hot > 0 && m.hot_bytes as f64 >= hot as f64 * least)
    };
    let few = mappings.len() <= most.min(4);
    let (mut told, mut rest): (Vec<_>, Vec<_>) = mappings.iter().partition(|m| few || worth(m));
    if told.len() + usize::from(!rest.is_empty()) > most {
        rest.extend(told.drain(most.saturating_sub(1).max(1)..));
    }
    if let [single] = rest[..] {
        told.push(single);
        return (told, None);
    }
    let sum = |value: fn(&Temperature) -> u64| rest.iter().map(|m| value(m)).fold(0, u64::saturating_add);
    let idle: f64 = rest.iter().map(|m| m.cold_bytes as f64 * m.cold_for_ns.unwrap_or(0) as f64).sum();
    let cold = sum(|m| m.cold_bytes);
    let others = Temperature {
        name: format!("others ({})", rest.len()).into(),
        size_bytes: sum(|m| m.size_bytes),
        hot_bytes: sum(|m| m.hot_bytes),
        warm_bytes: sum(|m| m.warm_bytes),
        cold_bytes: cold,
        unobservable_bytes: sum(|m| m.unobservable_bytes),
        working_set_bytes: sum(|m| m.working_set_bytes),
        working_set_max_bytes: sum(|m| m.working_set_max_bytes),
        cold_for_ns: (cold > 0).then(|| (idle / cold as f64) as u64),
    };
    let rest = (!rest.is_empty()).then_some((rest.len(), others));
    (told, rest)
}
