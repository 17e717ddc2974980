//! The difference for a terminal: what is compared, the totals, and a table of names for each quantity.

use std::io::{self, Write};

use isotherm_core::units;

use super::{Change, Changes, Compared, Count, Diff, folded, signed};
use crate::colour::{Rgb, of_rate};
use crate::escape::sanitise;
use crate::text::bar::stacked;
use crate::text::table::{Cell, Column, table};
use crate::text::{Terminal, fact, warning, wrap};
use crate::wss::Basis;

/// The maximum number of names in the table of a quantity.
const NAMES: usize = 8;

/// A smaller share would be shown as 0.0 %.
const LEAST_SHARE: f64 = 0.0005;

pub(super) fn write(out: &mut dyn Write, terminal: &Terminal, diff: &Diff) -> io::Result<()> {
    let title = format!("From {} to {}", sanitise(&diff.before.name), sanitise(&diff.after.name));
    writeln!(out, "{}", terminal.bold(&wrap(&title, terminal.width(), 2)))?;
    for (name, side) in [("before", &diff.before), ("after", &diff.after)] {
        fact(out, terminal, name, &what(side))?;
    }
    for text in &diff.warnings {
        warning(out, terminal, Some(sanitise(text).into_owned()))?;
    }
    writeln!(out)?;
    totals(out, terminal, diff)?;
    if let Some(note) = sharing(diff) {
        writeln!(out, "{}", terminal.dim(&wrap(note, terminal.width(), 2)))?;
    }
    let programs = if diff.programs.len() > 1 { &diff.programs[..] } else { &[] };
    for quantity in Count::ALL {
        for (all, title) in [(&diff.mappings[..], "mapping"), (programs, "command")] {
            names(out, terminal, diff, quantity, all, title)?;
        }
    }
    Ok(())
}

/// How often memory counts that several targets share.
pub(super) fn sharing(diff: &Diff) -> Option<&'static str> {
    let shared = diff.before.targets > 1 || diff.after.targets > 1;
    shared.then_some(match (diff.counts_once, diff.basis) {
        (true, Basis::Survey) => {
            "Each page counts once in the first two lines. In all other figures, what several targets share counts for \
             each of them."
        }
        _ => "What several targets share counts for each of them.",
    })
}

/// What is compared of a recording.
pub(super) fn what(side: &Compared) -> String {
    let targets = if side.targets == 1 { "1 target".into() } else { format!("{} targets", side.targets) };
    let mut text = format!(
        "{} to {} ({}), {targets}, {} snapshots; probe {}",
        units::duration(side.from),
        units::duration(side.to),
        units::duration(side.to.saturating_sub(side.from)),
        units::count(side.snapshots),
        sanitise(&side.probe)
    );
    match side.survey_interval {
        Some(interval) => {
            text += &format!(", {} surveys every {}", units::count(side.surveys as u64), units::duration(interval));
        }
        None => text += ", no surveys",
    }
    match side.sampling {
        Some(sampling) => text += &format!(", sampling every {}", units::duration(sampling)),
        None => text += ", no samples",
    }
    text
}

fn totals(out: &mut dyn Write, terminal: &Terminal, diff: &Diff) -> io::Result<()> {
    let columns = [
        Column::text("", 0),
        Column::figure("before", 1),
        Column::figure("after", 0),
        Column::figure("difference", 0),
        Column::figure("", 4),
        Column::figure("peak before", 3),
        Column::figure("after", 2),
    ];
    let row = |quantity| {
        let change = diff.total.of(quantity);
        let peak =
            |amount: Option<super::Amount>| amount.map_or_else(String::new, |a| units::table_bytes(a.peak_bytes));
        let [before, after] = means(change);
        let cells = [
            diff.name(quantity).into(),
            before,
            after,
            signed(change.difference()),
            percent(change),
            peak(change.before),
            peak(change.after),
        ];
        cells.map(Cell::from).into()
    };
    table(out, terminal, &columns, &Count::ALL.map(row))
}

fn names(
    out: &mut dyn Write,
    terminal: &Terminal,
    diff: &Diff,
    quantity: Count,
    all: &[Changes],
    title: &'static str,
) -> io::Result<()> {
    let (shown, others) = folded(all, quantity, NAMES);
    if shown.is_empty() {
        return Ok(());
    }
    let meaning = format!("{}, by {title}", diff.meaning(quantity));
    writeln!(out, "\n{}", terminal.bold(&wrap(&meaning, terminal.width(), 2)))?;
    let shown: Vec<&Changes> = shown.into_iter().chain(&others).collect();
    let largest = shown.iter().map(|changes| changes.of(quantity).difference().unsigned_abs()).max().unwrap_or(0);
    let row = |changes: &&Changes| {
        let change = changes.of(quantity);
        let [before, after] = means(change);
        let (text, styled) = bar(change.difference(), largest, terminal);
        let mut cells: Vec<Cell> = [before, after, signed(change.difference())].map(Cell::from).into();
        cells.push(Cell::painted(text, styled));
        cells.push(changes.name.clone().into());
        cells
    };
    let rows: Vec<Vec<Cell>> = shown.iter().map(row).collect();
    let columns = [
        Column::figure("before", 1),
        Column::figure("after", 2),
        Column::figure("difference", 0),
        Column::text("", 3),
        Column::name(title),
    ];
    table(out, terminal, &columns, &rows)
}

/// The means before and after, for columns. What a recording does not have is empty.
pub(super) fn means(change: &Change) -> [String; 2] {
    [change.before, change.after]
        .map(|amount| amount.map_or_else(|| "-".into(), |amount| units::table_bytes(amount.mean_bytes)))
}

/// The difference as a share of what was before.
pub(super) fn percent(change: &Change) -> String {
    let before = change.before.map_or(0, |amount| amount.mean_bytes);
    let difference = change.difference();
    if before == 0 || difference == 0 {
        return String::new();
    }
    let share = difference.unsigned_abs() as f64 / before as f64;
    if share < LEAST_SHARE {
        return String::new();
    }
    format!("{}{}", if difference > 0 { "+" } else { "-" }, units::percent(share))
}

/// A bar of the difference: full for growth, light for decline.
fn bar(difference: i64, largest: u64, terminal: &Terminal) -> (String, String) {
    const GROWTH: f64 = 0.65;
    const DECLINE: f64 = 0.15;
    let (colour, unicode, ascii): (Rgb, _, _) =
        if difference > 0 { (of_rate(GROWTH), "█", "+") } else { (of_rate(DECLINE), "░", "-") };
    stacked(&[(difference.unsigned_abs(), colour, unicode, ascii)], largest, 12, terminal)
}
