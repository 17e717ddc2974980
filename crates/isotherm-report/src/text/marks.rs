//! Marks in text: above a time axis, and as a list.

use std::io::{self, Write};
use std::time::Duration;

use isotherm_core::units;
use isotherm_record::Mark;

use super::{Terminal, cut, width, wrap};
use crate::escape::sanitise;
use crate::marks::labels;

/// The least columns of a label with the gap after it.
const LEAST: f64 = 8.0;
/// The most marks of a list.
const LISTED: usize = 20;

/// Writes the labels of the marks within the time, and a line that points to them, above a time axis of `columns` after
/// a gutter.
pub(crate) fn above_axis(
    out: &mut dyn Write,
    terminal: &Terminal,
    gutter: usize,
    columns: usize,
    (start, end): (Duration, Duration),
    marks: &[Mark],
) -> io::Result<()> {
    let span = end.saturating_sub(start).as_secs_f64().max(1e-9);
    let column = |time: Duration| {
        let at = (time - start).as_secs_f64() / span * columns as f64;
        (at as usize).min(columns.saturating_sub(1))
    };
    let within = marks.iter().filter(|mark| (start..=end).contains(&mark.time));
    let places: Vec<(usize, String)> =
        within.map(|mark| (column(mark.time), sanitise(&mark.text).into_owned())).collect();
    if places.is_empty() {
        return Ok(());
    }
    let wide: Vec<(f64, f64)> = places.iter().map(|(at, text)| (*at as f64, width(text) as f64 + 1.0)).collect();
    let mut line = String::new();
    for label in labels(&wide, columns as f64 + 1.0, LEAST.min(columns as f64)) {
        let start = label.start.max(0.0) as usize;
        line += &" ".repeat(start.saturating_sub(width(&line)));
        line += &cut(&places[label.nth].1, label.room as usize - 1, terminal);
    }
    let pointer = terminal.pick("▾", "v");
    let pointers: String =
        (0..columns).map(|c| if places.iter().any(|&(at, _)| at == c) { pointer } else { " " }).collect();
    let shift = gutter + usize::from(gutter > 0);
    for line in [line, pointers] {
        writeln!(out, "{:shift$}{}", "", terminal.dim(line.trim_end()))?;
    }
    Ok(())
}

/// Writes the marks, one a line.
pub(crate) fn list(out: &mut dyn Write, terminal: &Terminal, marks: &[Mark]) -> io::Result<()> {
    if marks.is_empty() {
        return Ok(());
    }
    writeln!(out, "{}", terminal.bold("marks"))?;
    for mark in marks.iter().take(LISTED) {
        let line = format!("{:>9}  {}", units::duration(mark.time), sanitise(&mark.text));
        writeln!(out, "{}", cut(&line, terminal.width(), terminal))?;
    }
    if marks.len() > LISTED {
        let more = format!("{} more marks (--format json has all)", marks.len() - LISTED);
        writeln!(out, "{}", wrap(&more, terminal.width(), 2))?;
    }
    writeln!(out)
}
