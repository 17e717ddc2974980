//! Tables of text, which the formats for people draw.

use std::collections::BTreeMap;

use isotherm_core::units;

use super::conclusions::shown;
use super::{Cell, Detail, Report, Table};
use crate::{Configuration, Paper};

/// A table of text.
#[derive(Clone, Debug)]
pub(crate) struct Grid {
    pub(crate) title: String,
    pub(crate) header: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
    /// How many columns are words; the others are figures.
    pub(crate) words: usize,
}

/// What stands for no figure.
pub(crate) const NONE: &str = "-";

/// The tables of a report. `spread` adds those of deviations.
pub(super) fn grids(report: &Report, paper: Paper, spread: bool) -> Vec<Grid> {
    let mut grids: Vec<Grid> = report.tables.iter().map(|table| changes(table, paper)).collect();
    if spread {
        grids.extend(report.tables.iter().map(deviations));
    }
    grids.push(details(&report.details));
    grids
}

/// The papers' table: the mean of `orig`, and the change of each configuration, ours and theirs.
fn changes(table: &Table, paper: Paper) -> Grid {
    let (unit, size) = table.metric.unit();
    let others: Vec<Configuration> =
        table.configurations.iter().copied().filter(|of| *of != Configuration::Orig).collect();
    let has_theirs = |of: &Configuration| {
        table
            .rows
            .iter()
            .flat_map(|row| &row.cells)
            .any(|cell| cell.configuration == *of && cell.papers.contains_key(&paper))
    };
    let mut header = vec!["workload".to_owned(), format!("orig, {unit}")];
    for of in &others {
        header.push(format!("{}, %", of.name()));
        if has_theirs(of) {
            header.push(paper.name().to_owned());
        }
    }
    let mean = |cell: &Cell| cell.mean.map_or(NONE.into(), |mean| figure(mean / size));
    let rows = table.rows.iter().map(|row| {
        let cell = |of: Configuration| row.cells.iter().find(|cell| cell.configuration == of);
        let mut cells = vec![row.name.clone(), cell(Configuration::Orig).map_or(NONE.into(), mean)];
        for of in &others {
            let cell = cell(*of);
            let change = cell.and_then(|cell| cell.change);
            cells.push(change.map_or(NONE.into(), |change| shown(&change).replace(" %", "")));
            if has_theirs(of) {
                let theirs = cell.and_then(|cell| cell.papers.get(&paper));
                cells.push(theirs.map_or(NONE.into(), |theirs| format!("{theirs:+.2}")));
            }
        }
        cells
    });
    Grid { title: table.metric.title().into(), rows: rows.collect(), header, words: 1 }
}

fn deviations(table: &Table) -> Grid {
    let (unit, size) = table.metric.unit();
    let row = |name: &str, cell: &Cell| {
        let [least, most] =
            cell.range.map_or([NONE.into(), NONE.into()], |range| range.map(|value| figure(value / size)));
        let [mean, deviation] = [cell.mean, cell.deviation].map(|of| of.map_or(NONE.into(), |of| figure(of / size)));
        vec![name.into(), cell.configuration.name().into(), cell.count.to_string(), mean, deviation, least, most]
    };
    let rows = table.workloads().flat_map(|of| of.cells.iter().map(|cell| row(&of.name, cell)));
    let header = ["workload", "configuration", "runs", &format!("mean, {unit}"), "stdev", "min", "max"];
    let header = header.map(str::to_owned).to_vec();
    Grid { title: format!("{}: runs", table.metric.title()), header, rows: rows.collect(), words: 2 }
}

/// A column of the details: its name, and its cell.
type Column = (&'static str, fn(&Detail) -> Option<String>);

const COLUMNS: [Column; 16] = [
    ("isotherm CPU, %", |of| Some(format!("{:.2}", of.isotherm_cpu_percent?))),
    ("isotherm RSS", |of| bytes(of.isotherm_rss)),
    ("working set", |of| bytes(of.working_set)),
    ("freed", |of| bytes(of.freed)),
    ("back, % of it/min", |of| Some(format!("{:.2}", of.came_back_percent_per_minute?))),
    ("applied", |of| bytes(of.applied)),
    ("PSS", |of| bytes(of.pss)),
    ("RSS, last quarter", |of| bytes(Some(of.rss_late))),
    ("huge pages", |of| bytes(above_zero(of.huge))),
    ("swap", |of| bytes(above_zero(of.swap))),
    ("zram", |of| bytes(above_zero(of.zram))),
    ("major faults", |of| Some(units::count(above_zero(of.major_faults)? as u64))),
    ("modelled runtime, %", |of| Some(format!("{:+.2}", of.modelled_runtime_percent?))),
    ("refaults", |of| Some(units::count(above_zero(of.refaults)? as u64))),
    ("PSI some, %", |of| Some(format!("{:.2}", of.some_stalled_percent?))),
    ("PSI full, %", |of| Some(format!("{:.2}", of.all_stalled_percent?))),
];

fn above_zero(value: f64) -> Option<f64> {
    (value > 0.0).then_some(value)
}

fn bytes(of: Option<f64>) -> Option<String> {
    Some(units::bytes(of?.max(0.0) as u64))
}

/// The details. Columns in which nothing is known are left out.
fn details(details: &[Detail]) -> Grid {
    let columns: BTreeMap<usize, Vec<Option<String>>> = COLUMNS
        .iter()
        .map(|(_, cell)| details.iter().map(cell).collect::<Vec<_>>())
        .enumerate()
        .filter(|(_, cells)| cells.iter().any(Option::is_some))
        .collect();
    let mut header = vec!["workload".to_owned(), "configuration".to_owned()];
    header.extend(columns.keys().map(|nth| COLUMNS[*nth].0.to_owned()));
    let row = |(nth, of): (usize, &Detail)| {
        let figures = columns.values().map(|cells| cells[nth].clone().unwrap_or(NONE.into()));
        [of.workload.clone(), of.configuration.name().into()].into_iter().chain(figures).collect()
    };
    let rows = details.iter().enumerate().map(row).collect();
    Grid { title: "Cost, and pressure on memory".into(), header, rows, words: 2 }
}

/// A figure with three significant digits after the point at most.
pub(crate) fn figure(value: f64) -> String {
    let digits = match value.abs() {
        1000.0.. => 0,
        100.0.. => 1,
        10.0.. => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}
