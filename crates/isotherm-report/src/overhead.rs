//! What the monitoring cost, against what it may cost: regions, reads, CPU time, late rounds.

use std::time::Duration;

use isotherm_record::Header;
use serde::Serialize;
use serde_json::Value;

use crate::source::{Seen, View};
use crate::wss::Percentiles;
use crate::{ReportError, escape};

/// One snapshot's cost, of all targets together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Moment {
    /// Since the recording's start.
    pub time_ns: u64,
    /// Regions of all targets.
    pub regions: u64,
    /// Pages read a sampling round, on the mean of the rounds since the snapshot before.
    pub reads_per_sampling: f64,
    /// Pages read in the round that read most.
    pub max_reads: u64,
    /// CPU time of the monitor since the snapshot before, in per cent of one CPU.
    pub cpu_percent: f64,
    /// Rounds that began late since the snapshot before.
    pub late_rounds: u64,
    /// Mapped bytes that could not be observed.
    pub unobservable_bytes: u64,
}

/// A mean and a maximum, with the distribution over the snapshots between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Load {
    /// The mean.
    pub mean: f64,
    /// The highest there ever was.
    pub max: u64,
    /// The distribution over the snapshots.
    pub percentiles: Percentiles<f64>,
}

/// What the monitoring cost. Costs are those of all targets: of a selection, only its time counts.
#[derive(Clone, Debug, Serialize)]
pub struct Overhead {
    /// The probe's name.
    pub probe: String,
    /// CPU time of the monitor's thread in per cent of one CPU.
    pub cpu_percent: f64,
    /// Regions of all targets in a snapshot.
    pub regions: Load,
    /// Pages read in a sampling round. The percentiles are of each snapshot's mean.
    pub reads_per_sampling: Load,
    /// The number of regions, and so of reads, that may not be exceeded.
    pub max_regions: u64,
    /// Rounds that began late.
    pub late_rounds: u64,
    /// All rounds.
    pub rounds: u64,
    /// Aggregations that are missing: events of the kernel's DAMON that were not taken in time.
    pub lost_aggregations: u64,
    /// Mapped bytes that could not be observed: the mean of the snapshots.
    pub unobservable_bytes: u64,
    /// The highest number of bytes that could not be observed.
    pub unobservable_bytes_max: u64,
    /// Pages read, all together.
    pub reads: u64,
    /// Pages cleared, all together.
    pub clears: u64,
    /// CPU time of the monitor's thread.
    pub cpu_ns: u64,
    /// The time that all this is spread over.
    pub wall_ns: u64,
    /// Snapshot by snapshot.
    pub over_time: Vec<Moment>,
    /// Whether the recording tells what it cost. One that was imported does not: all but regions and times is 0 then, and `null` in
    /// JSON.
    #[serde(skip)]
    pub measured: bool,
    #[serde(skip)]
    current: Option<Moment>,
}

/// Figures that are not there when nothing was measured, of all and of each moment.
const MEASURED: [&str; 10] = [
    "cpu_percent",
    "reads_per_sampling",
    "late_rounds",
    "lost_aggregations",
    "rounds",
    "unobservable_bytes",
    "unobservable_bytes_max",
    "reads",
    "clears",
    "cpu_ns",
];
const MEASURED_OF_MOMENT: [&str; 5] =
    ["reads_per_sampling", "max_reads", "cpu_percent", "late_rounds", "unobservable_bytes"];

impl Overhead {
    /// Nothing yet, of a recording with this header.
    pub fn new(header: &Header) -> Self {
        Self {
            probe: header.probe.clone(),
            cpu_percent: 0.0,
            regions: Load::default(),
            reads_per_sampling: Load::default(),
            max_regions: header.max_regions,
            late_rounds: 0,
            rounds: 0,
            lost_aggregations: 0,
            unobservable_bytes: 0,
            unobservable_bytes_max: 0,
            reads: 0,
            clears: 0,
            cpu_ns: 0,
            wall_ns: 0,
            over_time: vec![],
            measured: false,
            current: None,
        }
    }

    /// The sums and distributions, once all rows were seen.
    pub fn finish(mut self) -> Self {
        self.over_time.extend(self.current.take());
        let n = self.over_time.len().max(1) as f64;
        let mean = |value: &dyn Fn(&Moment) -> f64| self.over_time.iter().map(value).sum::<f64>() / n;
        let spread = |value: &dyn Fn(&Moment) -> f64| Percentiles::of(self.over_time.iter().map(value).collect());
        let regions = |m: &Moment| m.regions as f64;
        self.regions = Load {
            mean: mean(&regions),
            max: self.over_time.iter().map(|m| m.regions).max().unwrap_or(0),
            percentiles: spread(&regions),
        };
        self.reads_per_sampling = Load {
            mean: self.reads as f64 / self.rounds.max(1) as f64,
            max: self.over_time.iter().map(|m| m.max_reads).max().unwrap_or(0),
            percentiles: spread(&|m| m.reads_per_sampling),
        };
        self.cpu_percent = share(self.cpu_ns, self.wall_ns) * 100.0;
        self.unobservable_bytes = mean(&|m| m.unobservable_bytes as f64) as u64;
        self.unobservable_bytes_max = self.over_time.iter().map(|m| m.unobservable_bytes).max().unwrap_or(0);
        self
    }

    /// As JSON on one line: what was not measured is `null`.
    pub(crate) fn json(&self) -> Result<String, ReportError> {
        if self.measured {
            return escape::json(self);
        }
        let mut json = serde_json::to_value(self)?;
        nothing(&mut json, &MEASURED);
        for moment in json["over_time"].as_array_mut().into_iter().flatten() {
            nothing(moment, &MEASURED_OF_MOMENT);
        }
        escape::json(&json)
    }

    /// The share of rounds that began late, 0 to 1.
    pub fn late_share(&self) -> f64 {
        share(self.late_rounds, self.rounds)
    }

    /// The time that the costs are spread over.
    pub fn wall(&self) -> Duration {
        Duration::from_nanos(self.wall_ns)
    }
}

impl View for Overhead {
    fn add(&mut self, seen: &Seen<'_>) -> Result<(), ReportError> {
        if seen.first_of_snapshot || self.current.is_none() {
            self.over_time.extend(self.current.take());
            self.measured |= seen.row.cost.is_some();
            let cost = seen.row.cost.unwrap_or_default();
            let elapsed = seen.elapsed.as_nanos() as u64;
            self.late_rounds = self.late_rounds.saturating_add(u64::from(cost.late_rounds));
            self.rounds = self.rounds.saturating_add(u64::from(cost.rounds));
            let lost = cost.lost_aggregations(seen.row.samples);
            self.lost_aggregations = self.lost_aggregations.saturating_add(lost);
            self.reads = self.reads.saturating_add(cost.reads);
            self.clears = self.clears.saturating_add(cost.clears);
            self.cpu_ns = self.cpu_ns.saturating_add(cost.cpu_ns);
            self.wall_ns = self.wall_ns.saturating_add(elapsed);
            self.current = Some(Moment {
                time_ns: seen.row.time.as_nanos() as u64,
                regions: 0,
                reads_per_sampling: share(cost.reads, u64::from(cost.rounds)),
                max_reads: u64::from(cost.max_reads),
                cpu_percent: share(cost.cpu_ns, elapsed) * 100.0,
                late_rounds: u64::from(cost.late_rounds),
                unobservable_bytes: cost.unobservable_bytes,
            });
        }
        if let Some(moment) = &mut self.current {
            moment.regions += seen.row.target.regions.len() as u64;
        }
        Ok(())
    }
}

fn nothing(json: &mut Value, names: &[&str]) {
    for name in names {
        json[name] = Value::Null;
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
