//! The trial for a terminal.

use std::io::{self, Write};

use isotherm_core::units::{bytes, nanoseconds, percent, table_bytes};

use super::{TierTrial, Tried};
use crate::text::table::{Cell, Column, table};
use crate::text::{Terminal, note, warning, wrap};

pub(super) fn write(out: &mut dyn Write, terminal: &Terminal, trial: &TierTrial) -> io::Result<()> {
    for text in &trial.warnings {
        warning(out, terminal, Some(text.clone()))?;
    }
    let head = format!("share of the accesses that the slow tier serves, {}", what(trial));
    writeln!(out, "{}", terminal.bold(&wrap(&head, terminal.width(), 0)))?;
    for text in &trial.notes {
        writeln!(out, "{}", wrap(text, terminal.width(), 2))?;
    }
    if !trial.has_accesses() {
        return Ok(());
    }
    for part in [&trial.sizes, &trial.curve].into_iter().filter(|part| !part.is_empty()) {
        writeln!(out)?;
        rows(out, terminal, trial, part)?;
    }
    writeln!(out)?;
    for sentence in trial.sentences() {
        writeln!(out, "{}", wrap(&sentence, terminal.width(), 2))?;
    }
    if let Some(price) = trial.slow_price {
        let text = format!(
            "modelled time: 1 is with fast memory only, and {price} with slow memory only; it is not measured, and \
             grows with the share"
        );
        writeln!(out, "{}", wrap(&text, terminal.width(), 2))?;
    }
    note(out, terminal, Some(format!("{}; {LATER}", foot(trial))))
}

/// What a column of the tables means.
pub(super) const LATER: &str = "\"later\" is that of isotherm in the second half of the time";

/// What was tried, in a few words.
pub(super) fn what(trial: &TierTrial) -> String {
    let targets = if trial.targets == 1 { "1 target".into() } else { format!("{} targets", trial.targets) };
    format!(
        "{targets}, {} resident at most, {}",
        bytes(trial.peak_resident_bytes),
        nanoseconds(trial.to_ns.saturating_sub(trial.from_ns))
    )
}

/// How the placements were made.
pub(super) fn foot(trial: &TierTrial) -> String {
    format!(
        "placed in units of {}, {} looks of {}; isotherm moves at most {}/s",
        bytes(trial.unit_bytes),
        trial.looks,
        nanoseconds(trial.look_ns),
        bytes(trial.rate_bytes)
    )
}

fn rows(out: &mut dyn Write, terminal: &Terminal, trial: &TierTrial, tried: &[Tried]) -> io::Result<()> {
    let mut columns = vec![
        Column::figure("fast", 0),
        Column::figure("of all", 2),
        Column::figure("first touch", 0),
        Column::figure("isotherm", 0),
        Column::figure("later", 3),
        Column::figure("best", 0),
        Column::figure("moved", 4),
    ];
    if trial.slow_price.is_some() {
        columns.push(Column::figure("modelled time", 1));
    }
    let row = |tried: &Tried| {
        let mut cells: Vec<Cell> = vec![
            table_bytes(tried.fast_bytes).into(),
            percent(tried.fast_share).into(),
            percent(tried.first_touch.slow_share).into(),
            percent(tried.isotherm.slow_share).into(),
            percent(tried.isotherm.late_slow_share).into(),
            percent(tried.best.slow_share).into(),
            table_bytes(tried.promoted_bytes + tried.demoted_bytes).into(),
        ];
        cells.extend(tried.isotherm.modelled_time.map(|time| {
            let first = tried.first_touch.modelled_time.unwrap_or_default();
            Cell::from(format!("{first:.3} -> {time:.3}"))
        }));
        cells
    };
    table(out, terminal, &columns, &tried.iter().map(row).collect::<Vec<_>>())
}
