//! The result of the runs under pressure as text.

use std::fmt::Write;

use isotherm_core::units;

use super::{PressureResult, PressureRow, PressureScheme};
use crate::Change;
use crate::report::{Grid, NONE, drawn, figure};
use crate::statistics::mean;

pub(super) fn text(result: &PressureResult) -> String {
    let mut text = format!("{}\n", result.machine.described());
    if result.machine.is_emulated() {
        text.push_str("The processors are emulated: their times say little about real ones.\n");
    }
    text.push_str(
        "Limits are shares of the most memory without a limit. Times and speeds are ratios, with the interval of 95 % \
         confidence.\n",
    );
    let _ = writeln!(text, "\n{}", drawn(&grid(&result.rows), false));
    let conclusions: Vec<String> = PressureScheme::ALL.into_iter().filter_map(|of| conclusion(of, result)).collect();
    if !conclusions.is_empty() {
        let _ = writeln!(text, "\nSpeed under a limit, compared with that without isotherm");
        conclusions.iter().for_each(|line| text.push_str(line));
        text.push_str("A prototype of the DAMON papers with mlock: 1.65 times as fast on the mean, 2.55 at best.\n");
    }
    let left_out = result.left_out.iter().map(|of| format!("{}: {}.", of.workload, of.why));
    let missing: Vec<String> = left_out.chain(result.failed.iter().cloned()).collect();
    if !missing.is_empty() {
        let _ = writeln!(text, "\nWhat is missing\n{}", missing.join("\n"));
    }
    text
}

/// What a scheme gained, over all workloads and limits.
fn conclusion(scheme: PressureScheme, result: &PressureResult) -> Option<String> {
    let rows = result.rows.iter().filter(|row| row.case.scheme == scheme);
    let speeds: Vec<(f64, &PressureRow)> = rows.filter_map(|row| Some((ratio(&row.speedup?), row))).collect();
    let (best, row) = speeds.iter().max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    let all: Vec<f64> = speeds.iter().map(|(speed, _)| *speed).collect();
    let (name, count, mean) = (scheme.name(), all.len(), mean(&all));
    let limit = row.case.limit.unwrap_or(100);
    Some(format!(
        "{name}: {mean:.2} times as fast on the mean of {count}, {best:.2} at best ({}, {limit} %)\n",
        row.workload
    ))
}

fn ratio(change: &Change) -> f64 {
    1.0 + change.percent / 100.0
}

fn grid(rows: &[PressureRow]) -> Grid {
    let header = [
        "workload",
        "limit, %",
        "scheme",
        "runs",
        "runtime, s",
        "of that without limit",
        "speed",
        "peak",
        "major faults",
        "refaults",
        "swapped out",
        "PSI some, %",
        "PSI full, %",
        "isotherm CPU, %",
    ];
    let or_none = |text: Option<String>| text.unwrap_or_else(|| NONE.into());
    let change = |change: Option<Change>| or_none(change.as_ref().map(shown));
    let percent = |value: Option<f64>| or_none(value.map(|value| format!("{value:.2}")));
    let rows = rows.iter().map(|row| {
        vec![
            row.workload.clone(),
            or_none(row.case.limit.map(|limit| limit.to_string())),
            row.case.scheme.name().into(),
            row.runs.to_string(),
            figure(row.seconds),
            change(row.slowdown),
            change(row.speedup),
            units::bytes(row.peak as u64),
            units::count(row.major_faults as u64),
            units::count(row.refaults as u64),
            units::count(row.swapped_out as u64),
            percent(row.some_stalled_percent),
            percent(row.all_stalled_percent),
            percent(row.isotherm_cpu_percent),
        ]
    });
    Grid { title: String::new(), header: header.map(str::to_owned).to_vec(), rows: rows.collect(), words: 1 }
}

/// A change as a ratio: `1.25 [1.10, 1.42]`.
fn shown(change: &Change) -> String {
    let interval = change.interval.map(|[low, high]| {
        let of = |percent: f64| 1.0 + percent / 100.0;
        format!(" [{:.2}, {:.2}]", of(low), of(high))
    });
    format!("{:.2}{}", ratio(change), interval.unwrap_or_default())
}
