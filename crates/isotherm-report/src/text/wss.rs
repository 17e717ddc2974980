//! The working set for a terminal.

use std::io::{self, Write};
use std::time::Duration;

use isotherm_core::units;
use isotherm_record::Mark;

use super::chart::{ACCENT, Chart, bar};
use super::table::{Cell, Column, table};
use super::{Terminal, wrap};
use crate::groups::GroupBy;
use crate::ticks;
use crate::wss::{Basis, GroupedWss, Wss};

/// Writes the percentiles, the groups if there are several, and a chart over time.
pub(crate) fn wss(
    out: &mut dyn Write,
    terminal: &Terminal,
    wss: &Wss,
    groups: &GroupedWss,
    marks: &[Mark],
) -> io::Result<()> {
    let sums = wss.sums();
    let targets = wss.targets();
    let of = if targets > 1 { format!(" of {targets} targets together") } else { String::new() };
    let count = units::count(sums.len() as u64);
    let has_panel = sums.iter().any(|total| total.amount.low_bytes.is_some());
    let times = match wss.basis {
        Basis::Survey if has_panel => "times",
        Basis::Survey => "surveys",
        Basis::Samples => "snapshots",
    };
    let head = format!("working set{of}, {}, {count} {times}", wss.meaning());
    writeln!(out, "{}", terminal.bold(&wrap(&head, terminal.width(), 0)))?;
    for line in notes(wss) {
        writeln!(out, "{}", wrap(&line, terminal.width(), 2))?;
    }
    let Some(percentiles) = wss.percentiles() else { return Ok(()) };
    let bounds = wss.percentiles_of_bounds();
    let largest = percentiles.0[6].max(1) as f64;
    let bar_width = terminal.width().saturating_sub(if bounds.is_some() { 46 } else { 26 }).min(40);
    let rows: Vec<Vec<Cell>> = percentiles
        .iter()
        .enumerate()
        .map(|(nth, (p, bytes))| {
            let text = bar(bytes as f64 / largest, bar_width, terminal).trim_end().to_owned();
            let styled = terminal.paint(&text, Some(ACCENT), None);
            let mut cells = vec![p.to_string().into(), units::bytes(bytes).into()];
            if let Some((low, high)) = &bounds {
                let (low, high) = (low.0[nth], high.0[nth]);
                cells.push(if low < high { units::bounds(low, high).into() } else { "exact".into() });
            }
            cells.push(Cell::painted(text, styled));
            cells
        })
        .collect();
    let mut columns = vec![Column::figure("percentile", 1), Column::figure("bytes", 0)];
    columns.extend(bounds.map(|_| Column::figure("bounds, 95 %", 1)));
    columns.push(Column::text("", 2));
    table(out, terminal, &columns, &rows)?;
    writeln!(out)?;
    if groups.group_by != GroupBy::Process || groups.groups.len() > 1 {
        let time: Duration = sums.iter().map(|total| total.span).sum();
        super::groups::grouped_wss(out, terminal, groups, time.as_nanos() as u64)?;
        writeln!(out)?;
    }
    let all: Vec<(Duration, f64)> = sums.iter().map(|total| (total.time, total.amount.bytes as f64)).collect();
    let unknown_until = wss.unknown_until();
    let known = || sums.iter().filter(|total| unknown_until.is_none_or(|until| total.time > until));
    let points: Vec<(Duration, f64)> = known().map(|total| (total.time, total.amount.bytes as f64)).collect();
    let height = terminal.rows.saturating_sub(15).clamp(4, 12);
    let ticks = ticks::bytes(percentiles.0[6], height / 2).into_iter().map(|(v, label)| (v as f64, label)).collect();
    let spans: Vec<Duration> = known().map(|total| total.span).collect();
    Chart { time: time_of(&all), points: &points, spans: &spans, ticks, labels: 0, largest: false, height, marks }
        .write(out, terminal)
}

/// Lines about the working set: resident memory beside it, and how sure it is.
pub(crate) fn notes(wss: &Wss) -> Vec<String> {
    let mut notes: Vec<String> = wss.unknown().into_iter().collect();
    let median = |bytes| units::bytes(bytes);
    if wss.unknown().is_none() && wss.is_lower_bound() {
        notes.push("at least: what is not observable may be in use, too".into());
    }
    if let Some(until) = wss.unknown_until() {
        let until = units::duration(until);
        notes.push(format!("not known until {until}: left out"));
    }
    // The kernel tells it more often than surveys do, but counts pages as often as they are mapped.
    let surveyed = wss.percentiles_of(|amount| amount.present_bytes);
    if let Some(present) = wss.resident.or(surveyed) {
        let mut note = format!("resident (RSS): {} median, {} most", median(present.median()), median(present.0[6]));
        if let Some(once) = surveyed.filter(|once| once.median() < present.median() / 100 * 95) {
            let bytes = median(once.median());
            note += &format!("; {bytes} by surveys, which count each page once and nothing that is freed lazily");
        }
        for (what, bytes) in [
            ("not observable", wss.percentiles_of(|amount| amount.unobservable_bytes)),
            ("unknown", wss.percentiles_of(|amount| amount.unknown_bytes)),
        ] {
            if let Some(bytes) = bytes.filter(|bytes| bytes.median() > 0) {
                note += &format!("; {what}: {} median", median(bytes.median()));
            }
        }
        notes.push(note);
    }
    match (wss.percentiles_of_bounds(), wss.basis) {
        (Some(_), Basis::Survey) => notes.push(
            "estimated from a random part of the pages where surveys do not know all of them, with bounds that hold in \
             19 of 20 cases (docs/survey.md)"
                .into(),
        ),
        (Some((low, high)), Basis::Samples) => notes.push(format!(
            "error band of the median, 95 %: {} to {}; a survey would tell exactly (record with --survey auto)",
            median(low.median()),
            median(high.median())
        )),
        (None, Basis::Survey | Basis::Samples) => {}
    }
    if let Some(interval) = wss.longer_interval() {
        notes.push(format!("estimated from surveys {} apart (docs/survey.md)", units::duration(interval)));
    }
    if !wss.counts_once() {
        notes.push("what several targets share counts once for each of them".into());
    }
    let again = wss.counted_again();
    if wss.targets() > 1 && again > 0 {
        notes.push(format!(
            "what several targets share counts once here, and for each of them where they are listed: together {} more \
             (median)",
            median(again)
        ));
    }
    notes
}

/// The time that the points cover. Each point covers the time since the previous one.
pub(crate) fn time_of(points: &[(Duration, f64)]) -> (Duration, Duration) {
    let (Some(&(first, _)), Some(&(last, _))) = (points.first(), points.last()) else { return Default::default() };
    let step = if points.len() > 1 { (last - first) / (points.len() as u32 - 1) } else { first };
    (first.saturating_sub(step), last)
}
