//! The report of an evaluation: the papers' tables, with their figures beside ours.

mod conclusions;
mod csv;
mod details;
mod grid;
mod html;
mod rendering;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::statistics::{deviation, mean};
use crate::{Change, Configuration, EvalError, LeftOut, Paper, Results, Run, Session};

pub use details::Detail;
pub(crate) use grid::{Grid, NONE, figure};
pub use rendering::Rendering;
pub(crate) use rendering::drawn;

/// What a table is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// Runtime, in seconds.
    Runtime,
    /// Memory of the system that is not free, minus that before the run, in bytes.
    System,
    /// Resident memory of the processes of the program, in bytes.
    Rss,
}

impl Metric {
    /// All of them, in the order of the papers.
    pub const ALL: [Self; 3] = [Self::Runtime, Self::System, Self::Rss];

    fn of(self, run: &Run) -> f64 {
        match self {
            Self::Runtime => run.seconds,
            Self::System => run.system,
            Self::Rss => run.rss,
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Runtime => "Runtime",
            Self::System => "System memory",
            Self::Rss => "Resident memory",
        }
    }

    /// The unit of means in tables, and its size.
    const fn unit(self) -> (&'static str, f64) {
        match self {
            Self::Runtime => ("s", 1.0),
            Self::System | Self::Rss => ("MiB", 1_048_576.0),
        }
    }
}

/// A report.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The calls that made the runs, the oldest first.
    pub sessions: Vec<Session>,
    /// The tables of the papers.
    pub tables: Vec<Table>,
    /// What else was measured, by workload and configuration.
    pub details: Vec<Detail>,
    /// What the tables say, in sentences.
    pub conclusions: Vec<String>,
    /// What was not run, and why.
    pub left_out: Vec<LeftOut>,
    /// Runs that failed and were not made again.
    pub failed: Vec<Run>,
}

/// A table: a row for each workload, the total and the average.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// What it is about.
    pub metric: Metric,
    /// The columns.
    pub configurations: Vec<Configuration>,
    /// The rows.
    pub rows: Vec<Row>,
}

/// A row of a table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The name of the workload; `total` or `average`.
    pub name: String,
    /// Why there are no figures, if there are none.
    pub reason: Option<String>,
    /// The figures of each configuration that was measured.
    pub cells: Vec<Cell>,
}

/// The figures of a workload under a configuration.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// The configuration.
    pub configuration: Configuration,
    /// The number of runs; of a total or an average, the number of workloads.
    pub count: usize,
    /// The mean, in seconds or bytes. `None` of an average.
    pub mean: Option<f64>,
    /// The standard deviation, of at least two runs.
    pub deviation: Option<f64>,
    /// The least and the most of the runs.
    pub range: Option<[f64; 2]>,
    /// The change to `orig`.
    pub change: Option<Change>,
    /// The changes that the papers have, in per cent.
    #[serde(serialize_with = "by_name")]
    pub papers: BTreeMap<Paper, f64>,
}

fn by_name<S: Serializer>(papers: &BTreeMap<Paper, f64>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(papers.iter().map(|(paper, change)| (paper.name(), change)))
}

impl Report {
    /// Makes the report of a directory of results. Where processors are emulated, `fault` is what a major page fault
    /// costs in the [model of runtimes](Detail::modelled_runtime_percent).
    ///
    /// # Errors
    /// If no run is there.
    pub fn new(results: &Results, fault: Duration) -> Result<Self, EvalError> {
        let latest = results.sessions.last().ok_or_else(|| EvalError::NoResults(results.directory().into()))?;
        let is_used = |configuration: &Configuration| results.done().any(|run| run.configuration == *configuration);
        let configurations: Vec<_> = Configuration::ALL.into_iter().filter(is_used).collect();
        if configurations.is_empty() {
            return Err(EvalError::NoResults(results.directory().into()));
        }
        // Sessions may be of several suites, whose workloads have other names.
        let mut names: Vec<&str> = Vec::new();
        for name in results.sessions.iter().rev().flat_map(|session| &session.workloads) {
            if !names.contains(&&**name) {
                names.push(name);
            }
        }
        let left_out = left_out(results);
        let failed = failed(results);
        let measured = Measured { results, names: &names, configurations: &configurations };
        let tables: Vec<Table> =
            Metric::ALL.into_iter().map(|metric| measured.table(metric, &left_out, &failed)).collect();
        let fault = latest.machine.is_emulated().then_some(fault);
        let details = details::details(&measured, fault);
        let conclusions = conclusions::conclusions(&tables, &details, fault);
        Ok(Self { sessions: results.sessions.clone(), details, tables, conclusions, left_out, failed })
    }
}

/// What was not run in the end: what the last session of a workload says of it, unless there are figures.
fn left_out(results: &Results) -> Vec<LeftOut> {
    let mut found: Vec<LeftOut> = Vec::new();
    for left_out in results.sessions.iter().rev().flat_map(|session| &session.left_out) {
        let is_run = results.done().any(|run| {
            run.workload == left_out.workload && left_out.configuration.is_none_or(|of| of == run.configuration)
        });
        let is_same =
            |other: &LeftOut| (&other.workload, other.configuration) == (&left_out.workload, left_out.configuration);
        if !is_run && !found.iter().any(is_same) {
            found.push(left_out.clone());
        }
    }
    found
}

/// The runs that failed and were not made again: the last one of each.
fn failed(results: &Results) -> Vec<Run> {
    let same = |one: &Run, other: &Run| {
        (&one.workload, one.configuration, one.nth) == (&other.workload, other.configuration, other.nth)
    };
    let mut failed: Vec<Run> = Vec::new();
    for run in results.runs.iter().rev().filter(|run| run.failed.is_some()) {
        if !results.done().any(|done| same(done, run)) && !failed.iter().any(|known| same(known, run)) {
            failed.push(run.clone());
        }
    }
    failed.reverse();
    failed
}

/// The number of a round, its value of the baseline, and that of a configuration.
type Pair = (u32, f64, f64);

/// The runs by workload and configuration.
struct Measured<'a> {
    results: &'a Results,
    names: &'a [&'a str],
    configurations: &'a [Configuration],
}

impl Measured<'_> {
    /// The runs of a workload under a configuration, by their number.
    fn runs(&self, workload: &str, configuration: Configuration) -> Vec<&Run> {
        let is_it = |run: &&Run| run.workload == workload && run.configuration == configuration;
        let mut runs: Vec<&Run> = self.results.done().filter(is_it).collect();
        runs.sort_by_key(|run| run.nth);
        runs.dedup_by_key(|run| run.nth);
        runs
    }

    /// The rounds that have both the baseline and a configuration: the run of each.
    fn rounds(&self, workload: &str, configuration: Configuration) -> Vec<(&Run, &Run)> {
        let before = self.runs(workload, Configuration::Orig);
        let after = self.runs(workload, configuration).into_iter();
        after.filter_map(|run| Some((*before.iter().find(|base| base.nth == run.nth)?, run))).collect()
    }

    /// The values of the rounds. Where other work has freed more memory of the system than the program took, there is
    /// nothing to compare.
    fn pairs(&self, metric: Metric, workload: &str, configuration: Configuration) -> Vec<Pair> {
        let pair = |(base, run): (&Run, &Run)| {
            let (before, after) = (metric.of(base), metric.of(run));
            (before > 0.0 && after > 0.0).then_some((run.nth, before, after))
        };
        self.rounds(workload, configuration).into_iter().filter_map(pair).collect()
    }

    fn table(&self, metric: Metric, left_out: &[LeftOut], failed: &[Run]) -> Table {
        let is_baseline = |of: &LeftOut| of.configuration == Some(Configuration::Orig);
        let baseline = |name: &str| left_out.iter().find(|of| of.workload == name && is_baseline(of));
        let reason = |name: &str| {
            let left_out =
                left_out.iter().find(|left_out| left_out.workload == name && left_out.configuration.is_none());
            let refused = || baseline(name).map(|left_out| left_out.why.clone());
            let broken = || failed.iter().rev().find(|run| run.workload == name)?.failed.clone();
            left_out.map(|left_out| left_out.why.clone()).or_else(refused).or_else(broken)
        };
        let mut rows: Vec<Row> = Vec::new();
        for name in self.names {
            let of = |configuration: &Configuration| self.cell(metric, name, *configuration);
            let cells: Vec<Cell> = self.configurations.iter().filter_map(of).collect();
            let reason = if cells.is_empty() { reason(name) } else { None };
            if !cells.is_empty() || reason.is_some() {
                rows.push(Row { name: (*name).into(), reason, cells });
            }
        }
        if rows.iter().filter(|row| !row.cells.is_empty()).count() > 1 {
            let [total, average] = self.sums(metric);
            rows.push(Row { name: "total".into(), reason: None, cells: total });
            rows.push(Row { name: "average".into(), reason: None, cells: average });
        }
        Table { metric, configurations: self.configurations.to_vec(), rows }
    }

    fn cell(&self, metric: Metric, workload: &str, configuration: Configuration) -> Option<Cell> {
        let values: Vec<f64> = self.runs(workload, configuration).into_iter().map(|run| metric.of(run)).collect();
        if values.is_empty() {
            return None;
        }
        let pairs: Vec<(f64, f64)> =
            self.pairs(metric, workload, configuration).into_iter().map(|(_, before, after)| (before, after)).collect();
        let is_other = configuration != Configuration::Orig;
        let theirs = |paper: Paper| Some((paper, paper.change(metric, workload, configuration)?));
        let range = [f64::min, f64::max].map(|of| values.iter().copied().reduce(of).unwrap_or(0.0));
        Some(Cell {
            configuration,
            count: values.len(),
            mean: Some(mean(&values)),
            deviation: deviation(&values),
            range: Some(range),
            change: Change::of(&pairs).filter(|_| is_other),
            papers: Paper::ALL.into_iter().filter(|_| is_other).filter_map(theirs).collect(),
        })
    }

    /// The total and the average. Those of a configuration are over the workloads that it and the baseline have; the
    /// papers' are over the same workloads, or over all of theirs if they have none of ours.
    fn sums(&self, metric: Metric) -> [Vec<Cell>; 2] {
        let (mut totals, mut averages) = (Vec::new(), Vec::new());
        for &configuration in self.configurations {
            let of = |name| (name, self.pairs(metric, name, configuration));
            let mut all: Vec<(&str, Vec<Pair>)> = self.names.iter().copied().map(of).collect();
            all.retain(|(_, pairs)| !pairs.is_empty());
            if all.is_empty() {
                continue;
            }
            // Rounds that all these workloads have.
            let is_whole = |nth: &u32| all.iter().all(|(_, pairs)| pairs.iter().any(|(of, ..)| of == nth));
            let rounds: Vec<u32> = all[0].1.iter().map(|(nth, ..)| *nth).filter(is_whole).collect();
            let of_round = |nth: u32| {
                let found = all.iter().filter_map(move |(_, pairs)| pairs.iter().find(|(of, ..)| *of == nth));
                found.map(|(_, before, after)| (*before, *after)).collect::<Vec<_>>()
            };
            let sum = |pairs: Vec<(f64, f64)>| {
                pairs.into_iter().fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1))
            };
            let ratio = |pairs: Vec<(f64, f64)>| {
                (1.0, mean(&pairs.iter().map(|(before, after)| after / before).collect::<Vec<_>>()))
            };
            let total: Vec<(f64, f64)> = rounds.iter().map(|nth| sum(of_round(*nth))).collect();
            let average: Vec<(f64, f64)> = rounds.iter().map(|nth| ratio(of_round(*nth))).collect();
            let ours: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
            let theirs = |paper: Paper, nth: usize| {
                let summary = paper.summary(metric, &ours, configuration);
                Some((paper, summary.or_else(|| paper.summary(metric, &paper.workloads(), configuration))?[nth]))
            };
            let is_other = configuration != Configuration::Orig;
            let means: Vec<f64> = total.iter().map(|(_, after)| *after).collect();
            let cell = |pairs: &[(f64, f64)], mean, nth| Cell {
                configuration,
                count: all.len(),
                mean,
                deviation: None,
                range: None,
                change: Change::of(pairs).filter(|_| is_other),
                papers: Paper::ALL.into_iter().filter(|_| is_other).filter_map(|paper| theirs(paper, nth)).collect(),
            };
            totals.push(cell(&total, Some(mean(&means)), 0));
            averages.push(cell(&average, None, 1));
        }
        [totals, averages]
    }
}

impl Table {
    /// The cell of a row by its name.
    pub(crate) fn cell(&self, name: &str, configuration: Configuration) -> Option<&Cell> {
        let row = self.rows.iter().find(|row| row.name == name)?;
        row.cells.iter().find(|cell| cell.configuration == configuration)
    }

    /// The rows of workloads with figures.
    pub(crate) fn workloads(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| !["total", "average"].contains(&&*row.name) && !row.cells.is_empty())
    }

    /// The name of the row that sums up all workloads: the total, or the only workload.
    pub(crate) fn whole(&self) -> &str {
        let has_total = self.rows.iter().any(|row| row.name == "total");
        self.workloads().next().filter(|_| !has_total).map_or("total", |row| &row.name)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests;
