//! What the monitoring cost: regions, page reads, CPU time, late rounds, and their limits.

use std::time::Duration;

use isotherm_record::{Header, Needs};
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde_json::{Value, json};

use crate::ReportError;
use crate::pace::{Pacing, RecordedPace, Windows};
use crate::source::{Accumulator, Seen, Selection};
use crate::wss::Percentiles;

/// The cost of one snapshot, of all targets together. There may be a million of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(transform = nullable(&MEASURED_OF_MOMENT))]
pub struct Moment {
    /// The time since the start of the recording.
    pub time_ns: u64,
    /// Regions of all targets.
    pub regions: u32,
    /// Pages read per sampling round: the mean of the rounds since the previous snapshot.
    pub reads_per_sampling: f64,
    /// The maximum of pages read in a round.
    pub max_reads: u32,
    /// CPU time of all threads of isotherm since the previous snapshot, in per cent of one CPU.
    pub cpu_percent: f64,
    /// Rounds since the previous snapshot that began late.
    pub late_rounds: u32,
    /// Mapped bytes that could not be observed.
    pub unobservable_bytes: u64,
    /// The time since the previous snapshot.
    #[serde(skip)]
    elapsed_ns: u64,
}

impl Moment {
    /// The cost of this and of another recorder at the same time.
    fn with(self, other: Self) -> Self {
        Self {
            regions: self.regions.saturating_add(other.regions),
            reads_per_sampling: self.reads_per_sampling + other.reads_per_sampling,
            max_reads: self.max_reads.max(other.max_reads),
            cpu_percent: self.cpu_percent + other.cpu_percent,
            late_rounds: self.late_rounds.saturating_add(other.late_rounds),
            unobservable_bytes: self.unobservable_bytes.saturating_add(other.unobservable_bytes),
            ..self
        }
    }
}

/// A load: mean, maximum, and percentiles over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Load {
    /// The mean.
    pub mean: f64,
    /// The maximum.
    pub max: u64,
    /// The percentiles over time.
    pub percentiles: Percentiles<f64>,
}

/// What the monitoring cost. Costs are those of all targets. Of a selection, only the time applies.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(transform = nullable(&MEASURED))]
pub struct Overhead {
    /// The name of the probe.
    pub probe: String,
    /// How often the recording surveyed and sampled, and the CPU time of all threads beside the budget.
    #[serde(flatten)]
    pub pace: RecordedPace,
    /// CPU time over each 10 s, in per cent of one CPU. `None` if the recording is too short.
    pub cpu_percent_10s: Option<Windows>,
    /// Regions of all targets in a snapshot.
    pub regions: Load,
    /// Pages read in a sampling round. The percentiles are those of the means of the snapshots, over time.
    pub reads_per_sampling: Load,
    /// The maximum number of regions, and so of reads in a round.
    pub max_regions: u64,
    /// Rounds that began late.
    pub late_rounds: u64,
    /// All rounds.
    pub rounds: u64,
    /// Missing aggregations: events of the kernel's DAMON that isotherm did not read in time.
    pub lost_aggregations: u64,
    /// Mapped bytes that could not be observed: the mean over time.
    pub unobservable_bytes: u64,
    /// The maximum of bytes that could not be observed.
    pub unobservable_bytes_max: u64,
    /// All pages read.
    pub reads: u64,
    /// All pages cleared.
    pub clears: u64,
    /// CPU time of the monitor's thread.
    pub cpu_ns: u64,
    /// CPU time of the threads that record and draw.
    pub other_cpu_ns: u64,
    /// The time in which these costs arose.
    pub wall_ns: u64,
    /// The cost of each snapshot.
    pub over_time: Vec<Moment>,
    /// Whether the recording has costs. An imported one has not: then all figures but regions and times are 0, and
    /// `null` in JSON.
    #[serde(skip)]
    pub measured: bool,
    #[serde(skip)]
    current: Option<Moment>,
    #[serde(skip)]
    pacing: Pacing,
    #[serde(skip)]
    selection: Selection,
    #[serde(skip)]
    only_sums: bool,
    /// The number of snapshots of the selected targets, and the time of the last one.
    #[serde(skip)]
    pub(crate) snapshots: u64,
    #[serde(skip)]
    last: Option<Duration>,
}

/// Figures that are missing in a recording without costs: of the whole, and of each snapshot.
const MEASURED: [&str; 10] = [
    "reads_per_sampling",
    "late_rounds",
    "lost_aggregations",
    "rounds",
    "unobservable_bytes",
    "unobservable_bytes_max",
    "reads",
    "clears",
    "cpu_ns",
    "other_cpu_ns",
];
const MEASURED_OF_MOMENT: [&str; 5] =
    ["reads_per_sampling", "max_reads", "cpu_percent", "late_rounds", "unobservable_bytes"];

impl Overhead {
    /// The costs of a selection of a recording with this header, before its walk.
    pub fn new(header: &Header, selection: &Selection) -> Self {
        Self {
            probe: header.probe.clone(),
            pace: RecordedPace::default(),
            cpu_percent_10s: None,
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
            other_cpu_ns: 0,
            wall_ns: 0,
            over_time: vec![],
            measured: false,
            current: None,
            pacing: Pacing::new(header.budget.map(|budget| budget.cpu)),
            selection: selection.clone(),
            only_sums: false,
            snapshots: 0,
            last: None,
        }
    }

    /// The sums of the costs, without those of each snapshot and without percentiles.
    pub(crate) fn sums(header: &Header, selection: &Selection) -> Self {
        Self { only_sums: true, ..Self::new(header, selection) }
    }

    /// Computes sums and percentiles. All rows must have been visited.
    pub fn finish(mut self) -> Self {
        self.over_time.extend(self.current.take());
        // Snapshots have different lengths, so that they count for their time.
        let seconds = |m: &Moment| m.elapsed_ns as f64 / 1e9;
        let time: f64 = self.over_time.iter().map(seconds).sum();
        let mean = |value: &dyn Fn(&Moment) -> f64| {
            self.over_time.iter().map(|m| value(m) * seconds(m)).sum::<f64>() / time.max(1e-9)
        };
        let spread = |value: &dyn Fn(&Moment) -> f64| {
            Percentiles::weighted(self.over_time.iter().map(|m| (value(m), seconds(m))).collect())
        };
        let regions = |m: &Moment| f64::from(m.regions);
        self.regions = Load {
            mean: mean(&regions),
            max: self.over_time.iter().map(|m| m.regions.into()).max().unwrap_or(0),
            percentiles: spread(&regions),
        };
        self.reads_per_sampling = Load {
            mean: self.reads as f64 / self.rounds.max(1) as f64,
            max: self.over_time.iter().map(|m| m.max_reads.into()).max().unwrap_or(0),
            percentiles: spread(&|m| m.reads_per_sampling),
        };
        self.pace = std::mem::take(&mut self.pacing).finish();
        self.cpu_percent_10s = self.pace.windows;
        self.unobservable_bytes = mean(&|m| m.unobservable_bytes as f64) as u64;
        self.unobservable_bytes_max = self.over_time.iter().map(|m| m.unobservable_bytes).max().unwrap_or(0);
        self
    }

    /// The JSON. Figures that were not measured are `null`.
    pub(crate) fn json(&self) -> Result<Value, ReportError> {
        let mut json = serde_json::to_value(self)?;
        if self.measured {
            return Ok(json);
        }
        nothing(&mut json, &MEASURED);
        for moment in json["over_time"].as_array_mut().into_iter().flatten() {
            nothing(moment, &MEASURED_OF_MOMENT);
        }
        Ok(json)
    }

    /// The share of rounds that began late, 0 to 1.
    pub fn late_share(&self) -> f64 {
        share(self.late_rounds, self.rounds)
    }

    /// The time in which the costs arose.
    pub fn wall(&self) -> Duration {
        Duration::from_nanos(self.wall_ns)
    }
}

impl Accumulator for Overhead {
    fn needs(&self) -> Needs {
        Needs { snapshots: true, region_counts: !self.only_sums, costs: true, surveys: true, ..Needs::NOTHING }
    }

    fn event(&mut self, event: &Seen<'_>) -> Result<(), ReportError> {
        if let Seen::Survey(record) = event
            && self.selection.holds_time(record.survey.time)
        {
            self.pacing.survey(record.survey.interval);
        }
        let Seen::Row(visit) = event else { return Ok(()) };
        self.pacing.add(visit);
        if visit.chosen && self.last.replace(visit.row.time) != Some(visit.row.time) {
            self.snapshots += 1;
        }
        if visit.first_of_snapshot || self.current.is_none() {
            self.measured |= visit.row.cost.is_some();
            let cost = visit.row.cost.unwrap_or_default();
            let time_ns = visit.row.time.as_nanos() as u64;
            // Of several recorders at one time, the costs add up.
            let others = self.current.take_if(|current| current.time_ns == time_ns);
            self.over_time.extend(self.current.take().filter(|_| !self.only_sums));
            let elapsed = visit.elapsed.as_nanos() as u64;
            self.late_rounds = self.late_rounds.saturating_add(u64::from(cost.late_rounds));
            self.rounds = self.rounds.saturating_add(u64::from(cost.rounds));
            let lost = cost.lost_aggregations(visit.row.samples);
            self.lost_aggregations = self.lost_aggregations.saturating_add(lost);
            self.reads = self.reads.saturating_add(cost.reads);
            self.clears = self.clears.saturating_add(cost.clears);
            self.cpu_ns = self.cpu_ns.saturating_add(cost.cpu_ns);
            self.other_cpu_ns = self.other_cpu_ns.saturating_add(cost.other_cpu_ns.unwrap_or(0));
            self.wall_ns = self.wall_ns.saturating_add(if others.is_none() { elapsed } else { 0 });
            let this = Moment {
                time_ns,
                regions: 0,
                reads_per_sampling: share(cost.reads, u64::from(cost.rounds)),
                max_reads: cost.max_reads,
                cpu_percent: share(cost.cpu_time().as_nanos() as u64, elapsed) * 100.0,
                late_rounds: cost.late_rounds,
                unobservable_bytes: cost.unobservable_bytes,
                elapsed_ns: elapsed,
            };
            self.current = Some(others.map_or(this, |others| this.with(others)));
        }
        if let Some(moment) = &mut self.current {
            let regions = u32::try_from(visit.row.nr_regions).unwrap_or(u32::MAX);
            moment.regions = moment.regions.saturating_add(regions);
        }
        Ok(())
    }
}

/// Lets these fields of a schema be `null`.
fn nullable(names: &'static [&'static str]) -> impl Fn(&mut Schema) + Clone + Send {
    move |schema| {
        let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
        for (_, property) in properties.into_iter().flatten().filter(|(name, _)| names.contains(&name.as_str())) {
            *property = json!({ "anyOf": [property, { "type": "null" }] });
        }
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
