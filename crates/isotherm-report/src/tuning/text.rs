//! The result for a terminal.

use std::io::{self, Write};

use isotherm_core::units::bytes;

use super::{Changed, Point, Tuning, percent, signed};
use crate::sanitise;
use crate::text::table::{Cell, Column, table};
use crate::text::{Terminal, note, wrap};

pub(super) fn write(out: &mut dyn Write, terminal: &Terminal, tuning: &Tuning) -> io::Result<()> {
    writeln!(out, "{}", terminal.bold(&wrap(&head(tuning), terminal.width(), 0)))?;
    writeln!(out, "{}", wrap(&format!("best: {}", tuning.objective), terminal.width(), 2))?;
    if let Some(text) = baseline(tuning) {
        writeln!(out, "{}", wrap(&text, terminal.width(), 2))?;
    }
    writeln!(out)?;
    let Some(best) = &tuning.best else {
        writeln!(out, "no run succeeded, so that nothing is known")?;
        return note(out, terminal, notes(tuning));
    };
    let mut columns = vec![Column::name("")];
    columns.extend(tuning.parameters.iter().map(|parameter| Column::titled(parameter.name.clone(), 0)));
    columns.extend(["score", "runtime", "memory", "runs"].map(|title| Column::figure(title, 0)));
    let mut rows = vec![row("best", best)];
    rows.extend(tuning.usual.iter().map(|usual| row("usual", usual)));
    table(out, terminal, &columns, &rows)?;
    if !tuning.runs.is_empty() {
        writeln!(out)?;
        let runs = tuning.runs.iter().enumerate().map(|(nth, run)| row(&format!("run {}", nth + 1), run));
        table(out, terminal, &columns[..columns.len() - 1], &runs.collect::<Vec<_>>())?;
    }
    writeln!(out)?;
    for sentence in tuning.sentences() {
        writeln!(out, "{}", wrap(&sentence, terminal.width(), 2))?;
    }
    note(out, terminal, notes(tuning))
}

fn row(name: &str, point: &Point) -> Vec<Cell> {
    let mut cells = vec![Cell::from(name)];
    cells.extend(point.shown.iter().cloned().map(Cell::from));
    cells.extend(changes(&point.changed).map(Cell::from));
    cells.push(Cell::from(point.runs.to_string()));
    cells
}

fn changes(changed: &Changed) -> [String; 3] {
    [signed(changed.score), percent(changed.runtime), percent(changed.rss)]
}

fn notes(tuning: &Tuning) -> Option<String> {
    (!tuning.notes.is_empty()).then(|| tuning.notes.join("; "))
}

/// What was tuned, in a line.
pub(super) fn head(tuning: &Tuning) -> String {
    let names: Vec<&str> = tuning.parameters.iter().map(|parameter| &*parameter.name).collect();
    sanitise(&format!("{} for {}", names.join(", "), tuning.subject)).into()
}

/// What changes are compared with.
pub(super) fn baseline(tuning: &Tuning) -> Option<String> {
    let baseline = tuning.baseline?;
    let runs = if baseline.runs == 1 { "1 run".into() } else { format!("{} runs", baseline.runs) };
    let spread = baseline.deviation_percent.map_or(String::new(), |spread| format!(" ± {spread:.1} %"));
    let rss = bytes(baseline.rss_bytes as u64);
    Some(format!("without a scheme: {:.2} s{spread}, {rss} resident, by {runs}", baseline.seconds))
}
