//! What the tables say, in sentences, with what the papers say.

use std::time::Duration;

use isotherm_core::units;

use super::{Detail, Metric, Table};
use crate::statistics::mean;
use crate::{Change, Configuration, Paper};

/// Shares of a waste or of a gain below this many per cent are left out: noise.
const LEAST: f64 = 1.0;

/// The sentences. The tables are those of all metrics. `fault` is what a major fault costs in the model of runtimes, if
/// processors are emulated.
pub(super) fn conclusions(tables: &[Table], details: &[Detail], fault: Option<Duration>) -> Vec<String> {
    let mut said = Vec::new();
    if let Some(fault) = fault {
        said.push(
            "The processors are emulated: times are not those of a real machine. Counts and memory are right.".into(),
        );
        said.extend(Configuration::ALL.into_iter().filter_map(|of| modelled(details, of, fault)));
    }
    for configuration in Configuration::ALL.into_iter().skip(1) {
        said.extend(summary(tables, configuration));
    }
    said.extend(huge_pages(tables));
    said.extend(best(tables));
    said
}

fn table(tables: &[Table], metric: Metric) -> Option<&Table> {
    tables.iter().find(|table| table.metric == metric)
}

/// The change of all workloads together.
fn whole(tables: &[Table], metric: Metric, configuration: Configuration) -> Option<(Change, Option<f64>)> {
    let table = table(tables, metric)?;
    let cell = table.cell(table.whole(), configuration)?;
    Some((cell.change?, cell.papers.get(&Paper::V24).copied()))
}

pub(super) fn shown(change: &Change) -> String {
    let interval = change.interval.map_or_else(String::new, |[low, high]| format!(" [{low:+.2}, {high:+.2}]"));
    format!("{:+.2} %{interval}", change.percent)
}

fn summary(tables: &[Table], configuration: Configuration) -> Option<String> {
    let part = |metric: Metric, name: &str| {
        let (change, theirs) = whole(tables, metric, configuration)?;
        let theirs = theirs.map_or_else(String::new, |theirs| format!(" (v24: {theirs:+.2} %)"));
        Some(format!("{name} {}{theirs}", shown(&change)))
    };
    let parts = [(Metric::Runtime, "runtime"), (Metric::System, "system memory"), (Metric::Rss, "RSS")];
    let parts: Vec<String> = parts.into_iter().filter_map(|(metric, name)| part(metric, name)).collect();
    let runtime = table(tables, Metric::Runtime)?;
    let slowest = runtime.workloads().filter_map(|row| {
        let cell = row.cells.iter().find(|cell| cell.configuration == configuration)?;
        Some((&row.name, cell.change?.percent))
    });
    let slowest = slowest.max_by(|one, other| one.1.total_cmp(&other.1));
    let slowest = slowest.filter(|(name, _)| *name != runtime.whole());
    let slowest = slowest.map_or_else(String::new, |(name, percent)| format!("; at worst {percent:+.2} % ({name})"));
    (!parts.is_empty()).then(|| format!("{}: {}{slowest}.", configuration.name(), parts.join(", ")))
}

/// What the runtime would be if nothing but major faults took more time than without isotherm.
fn modelled(details: &[Detail], configuration: Configuration, fault: Duration) -> Option<String> {
    let of = details.iter().filter(|detail| detail.configuration == configuration);
    let of: Vec<(f64, &str)> =
        of.filter_map(|detail| Some((detail.modelled_runtime_percent?, &*detail.workload))).collect();
    let (worst, name) = of.iter().copied().max_by(|one, other| one.0.total_cmp(&other.0))?;
    let mean = mean(&of.iter().map(|(percent, _)| *percent).collect::<Vec<_>>());
    Some(format!(
        "{}, modelled: runtime {mean:+.2} % on the mean, {worst:+.2} % at worst ({name}), if each major fault beyond \
         those of orig takes {}, and nothing else takes longer.",
        configuration.name(),
        units::duration(fault)
    ))
}

/// How much of the waste of huge pages the schemes remove, and how much of their speed they keep.
fn huge_pages(tables: &[Table]) -> Option<String> {
    use Configuration::{Ethp, Thp};
    let share = |metric| {
        let of = |configuration| whole(tables, metric, configuration);
        let ((thp, thp_theirs), (ethp, ethp_theirs)) = (of(Thp)?, of(Ethp)?);
        let ours = ethp.percent / thp.percent;
        Some((thp.percent, ours, Some(ethp_theirs? / thp_theirs?)))
    };
    let per_cent = |share: f64| format!("{:.0} %", share * 100.0);
    let theirs = |share: Option<f64>| share.map_or_else(String::new, |share| format!(" (v24: {})", per_cent(share)));
    let (waste, remains, their_rest) = share(Metric::System)?;
    let (gain, kept, they_keep) = share(Metric::Runtime)?;
    let removed = match waste >= LEAST {
        true => format!("removes {} of the memory that thp wastes", per_cent(1.0 - remains)),
        false => "has nothing to remove, as thp wastes no memory".into(),
    };
    let keeps = match gain <= -LEAST {
        true => format!("keeps {} of the time that thp saves", per_cent(kept)),
        false => "has no time to keep, as thp saves none".into(),
    };
    let their_removal = their_rest.map(|rest| 1.0 - rest);
    Some(format!("ethp {removed}{}, and {keeps}{}.", theirs(their_removal), theirs(they_keep)))
}

/// The workload with the least resident memory under `prcl`.
fn best(tables: &[Table]) -> Option<String> {
    let change = |metric, name: &str| table(tables, metric)?.cell(name, Configuration::Prcl)?.change;
    let rss = table(tables, Metric::Rss)?;
    let found = rss.workloads().filter_map(|row| Some((&*row.name, change(Metric::Rss, &row.name)?)));
    let (name, saved) = found.min_by(|one, other| one.1.percent.total_cmp(&other.1.percent))?;
    let slower = change(Metric::Runtime, name)?;
    Some(format!(
        "prcl at best ({name}): RSS {}, runtime {} (v24, parsec3/freqmine: -93.38 %, +1.22 %).",
        shown(&saved),
        shown(&slower)
    ))
}
