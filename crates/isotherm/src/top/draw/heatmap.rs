//! The moving pictures: the working set and the heatmap over the same time.

use std::time::Duration;

use isotherm_core::{AddrRange, units};
use isotherm_report::heatmap::Cell;
use isotherm_report::space::shown_name;
use isotherm_report::{colour, ticks};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::super::app::App;
use super::super::grid::{Grid, Window};
use super::super::ladder::{Cells, Ladder, Rung};
use super::super::model::Track;
use super::super::places::Places;
use super::pen::Pen;

const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const EIGHTHS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// Draws working set, heatmap, axis of time and legend.
pub fn pictures(app: &App, track: &Track, pen: &Pen, places: &Places, buffer: &mut Buffer) {
    let window = app.window(places);
    let ladder = app.ladder(track, places);
    let grid = app.grid(track, &ladder, &window);
    working_set(&grid, pen, places, buffer);
    heatmap(app, &ladder, &grid, pen, places, buffer);
    time_axis(app, &window, pen, places, buffer);
    legend(app, &ladder, &grid, pen, places.legend, buffer);
}

/// The working set over time, in columns whose height is their value.
fn working_set(grid: &Grid, pen: &Pen, places: &Places, buffer: &mut Buffer) {
    let place = places.working_set;
    if place.is_empty() {
        return;
    }
    let values: Vec<Option<f64>> = (0..places.plot.into()).map(|column| grid.working_set(column)).collect();
    let top = values.iter().flatten().copied().fold(0.0, f64::max).max(1.0);
    for (nth, row) in place.rows().enumerate() {
        let line = usize::from(place.height) - 1 - nth;
        let plot = places.plot(row);
        for (x, value) in values.iter().enumerate() {
            let Some(value) = value else { continue };
            let full = (value / top * f64::from(place.height) - line as f64).clamp(0.0, 1.0);
            let eighths = (full * 8.0).round() as usize;
            // What is not nothing must not look like nothing.
            let eighths = if line == 0 && *value > 0.0 { eighths.max(1) } else { eighths };
            let ascii = [" ", ".", ".", "-", "-", "=", "=", "#", "#"][eighths];
            let text = if pen.unicode() { EIGHTHS[eighths] } else { ascii };
            pen.text(buffer, plot, x as u16, text, pen.accent());
        }
        if places.gutter > 0 {
            let label = if nth == 0 { units::bytes(top as u64) } else { String::new() };
            gutter(pen, buffer, row, places, &label);
        }
    }
    let names = Rect { x: place.x + places.gutter + places.plot, width: places.names, height: 1, ..place };
    if names.width > 0 {
        pen.text(buffer, names, 1, "working set", DIM);
    }
}

fn gutter(pen: &Pen, buffer: &mut Buffer, row: Rect, places: &Places, label: &str) {
    pen.right(buffer, row, places.gutter - 2, label, DIM);
    pen.text(buffer, row, places.gutter - 1, "│", DIM);
}

fn heatmap(app: &App, ladder: &Ladder, grid: &Grid, pen: &Pen, places: &Places, buffer: &mut Buffer) {
    let names: Vec<&str> = ladder.cells().map(|cells| shown_name(&cells.name)).collect();
    let cursor = app.view.cursor.and_then(|addr| ladder.line_of(addr));
    let selection = app.selection(ladder);
    let mut line = 0;
    for (rung, row) in ladder.rungs.iter().zip(places.heatmap.rows()) {
        match rung {
            Rung::Area { start, end, bytes } => area(*start, *end, *bytes, pen, row, places, buffer),
            Rung::Cells(cells) => {
                let selected = selection.is_some_and(|range| range.intersection(cells.range).is_some());
                let marked = cursor == Some(line);
                cells_line(cells, grid, pen, row, places, buffer);
                if marked || selected {
                    mark(pen, row, places, marked, selected, buffer);
                }
                if places.names > 0 {
                    // A name stands at the highest of its lines, unless the heading of an area comes between.
                    let touches = |other: Option<usize>| other.and_then(|i| names.get(i)) == Some(&names[line]);
                    let (above, below) = (touches(line.checked_sub(1)), touches(Some(line + 1)));
                    name(names[line], above, below, marked, pen, row, places, buffer);
                }
                line += 1;
            }
        }
    }
}

/// The heading of an area.
fn area(start: u64, end: u64, bytes: u64, pen: &Pen, row: Rect, places: &Places, buffer: &mut Buffer) {
    let x = places.gutter.saturating_sub(1);
    let place = Rect { width: places.gutter + places.plot, ..row };
    for x in x..place.width {
        pen.text(buffer, place, x, "─", DIM);
    }
    pen.text(buffer, place, x + 1, &format!(" {start:#x} to {end:#x}: {} ", units::bytes(bytes)), DIM);
}

fn cells_line(cells: &Cells, grid: &Grid, pen: &Pen, row: Rect, places: &Places, buffer: &mut Buffer) {
    if places.gutter > 0 {
        gutter(pen, buffer, row, places, &cells.tick);
    }
    let plot = places.plot(row);
    for x in 0..plot.width {
        let low = grid.cell(cells.low, x.into());
        let high = cells.high.and_then(|high| grid.cell(high, x.into()));
        let (text, style) = match (pen.coloured(), pen.group(), low, high) {
            (_, _, None, None) => continue,
            (false, ..) => (digit(low), Style::new()),
            (true, 2, Some(low), Some(high)) if pen.cell(low) == pen.cell(high) => {
                (" ", Style::new().bg(pen.cell(low)))
            }
            (true, 2, Some(low), Some(high)) => ("▀", Style::new().fg(pen.cell(high)).bg(pen.cell(low))),
            // A line of one row is filled by it.
            (true, 2, Some(low), None) if cells.high.is_some() => ("▄", Style::new().fg(pen.cell(low))),
            (true, _, Some(low), None) => (" ", Style::new().bg(pen.cell(low))),
            (true, _, _, Some(high)) => ("▀", Style::new().fg(pen.cell(high))),
        };
        pen.text(buffer, plot, x, text, style);
    }
}

/// 0 for memory that was not found accessed at all, 1 to 9 for more and more.
fn digit(cell: Option<Cell>) -> &'static str {
    const DIGITS: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    match cell {
        None => " ",
        Some(cell) if cell.is_unobservable() => "?",
        Some(cell) => DIGITS[(f64::from(cell.rate) * 9.0).ceil().clamp(0.0, 9.0) as usize],
    }
}

/// Marks the line of the cursor and the lines of the selection, beside the picture or at its edge.
fn mark(pen: &Pen, row: Rect, places: &Places, cursor: bool, selected: bool, buffer: &mut Buffer) {
    let place = Rect { width: places.gutter.max(1), ..row };
    let style = Style::reset().add_modifier(Modifier::REVERSED);
    if selected {
        buffer.set_style(place, style);
    }
    if cursor {
        let last = Rect { x: place.right().saturating_sub(2), width: 2.min(place.width), ..place };
        buffer.set_style(last, style.add_modifier(Modifier::BOLD));
        pen.text(buffer, place, place.width - 1, ">", Style::new());
    }
}

#[expect(clippy::too_many_arguments, reason = "a line of text and its place")]
fn name(
    name: &str,
    above: bool,
    below: bool,
    marked: bool,
    pen: &Pen,
    row: Rect,
    places: &Places,
    buffer: &mut Buffer,
) {
    let place = Rect { x: row.x + places.gutter + places.plot, width: places.names, ..row };
    let bracket = match (above, below) {
        (false, false) => pen.pick("╶", "-"),
        (false, true) => pen.pick("┐", "\\"),
        (true, true) => pen.pick("│", "|"),
        (true, false) => pen.pick("┘", "/"),
    };
    let style = if marked { Style::new().add_modifier(Modifier::BOLD) } else { DIM };
    let x = if pen.unicode() {
        buffer.set_stringn(place.x, place.y, bracket, 1, style);
        2
    } else {
        pen.text(buffer, place, 0, bracket, style) + 1
    };
    if !above || marked {
        let base = if name.starts_with('/') { name.rsplit('/').next().unwrap_or(name) } else { name };
        pen.text(buffer, place, x, &pen.cut(base, usize::from(places.names).saturating_sub(3)), style);
    }
}

/// The axis of time: how long ago, or at what time of the run if what is shown is not now.
fn time_axis(app: &App, window: &Window, pen: &Pen, places: &Places, buffer: &mut Buffer) {
    if places.axis.is_empty() {
        return;
    }
    if places.gutter > 0 {
        pen.text(buffer, places.axis, places.gutter - 1, pen.pick("└", "+"), DIM);
    }
    let plot = places.plot(places.axis);
    for x in 0..plot.width {
        pen.text(buffer, plot, x, "─", DIM);
    }
    let span = window.column * u32::try_from(window.columns).unwrap_or(u32::MAX);
    let end = if app.follows() && !app.paused() && app.ended.is_none() {
        " now".into()
    } else {
        format!(" {}", units::duration(Duration::from_millis(app.until().as_millis() as u64 / 100 * 100)))
    };
    let mut free = plot.width.saturating_sub(pen.width(&end) as u16);
    pen.text(buffer, plot, free, &end, DIM);
    for (ago, label) in ticks::time(Duration::ZERO, span, usize::from(plot.width / 14).clamp(1, 10)) {
        let label =
            format!(" -{} ", label.trim_end_matches(" s").to_owned() + if label.ends_with(" s") { " s" } else { "" });
        let x = (f64::from(plot.width) * (1.0 - ago.as_secs_f64() / span.as_secs_f64())).round() as u16;
        let width = pen.width(&label) as u16;
        // A label stands around the moment it names.
        let x = x.saturating_sub(width / 2);
        if !ago.is_zero() && x + width < free {
            pen.text(buffer, plot, x, &label, DIM);
            free = x;
        }
    }
}

/// What colours mean, or what lies under the cursor.
fn legend(app: &App, ladder: &Ladder, grid: &Grid, pen: &Pen, place: Rect, buffer: &mut Buffer) {
    if place.is_empty() {
        return;
    }
    let cursor = app.view.cursor.and_then(|addr| ladder.cells().nth(ladder.line_of(addr)?));
    if let Some(cells) = cursor {
        return under_cursor(app, cells, ladder, grid, pen, place, buffer);
    }
    if !pen.coloured() {
        let texts = ["access rate: 0 never to 9 always, ? not observable, blank: not mapped", "0 never to 9 always"];
        let text = texts.into_iter().find(|text| text.len() <= place.width.into()).unwrap_or("");
        pen.right(buffer, place, place.width, text, DIM);
        return;
    }
    let (before, after, dark) = ("access rate 0 ", " 1  ", " unobservable");
    let steps: u16 = if place.width >= 72 { 20 } else { 6 };
    let width = before.len() + usize::from(steps) + after.len() + 2 + dark.len() + 1;
    if width > usize::from(place.width) {
        return;
    }
    let mut x = place.width - width as u16;
    x = pen.text(buffer, place, x, before, DIM);
    for i in 0..steps {
        let rate = f64::from(i) / f64::from(steps - 1);
        x = pen.text(buffer, place, x, " ", Style::new().bg(pen.rgb(colour::of_rate(rate))));
    }
    x = pen.text(buffer, place, x, after, DIM);
    x = pen.text(buffer, place, x, "  ", Style::new().bg(pen.rgb(colour::UNOBSERVABLE)));
    pen.text(buffer, place, x, dark, DIM);
}

fn under_cursor(app: &App, cells: &Cells, ladder: &Ladder, grid: &Grid, pen: &Pen, place: Rect, buffer: &mut Buffer) {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    if let Some(range) = app.selection(ladder) {
        let bytes: u64 = mapped_bytes(ladder, range);
        let text = format!("selected {:#x} to {:#x}: {} mapped", range.start(), range.end(), units::bytes(bytes));
        pen.text(buffer, place, 1, &text, bold);
        return;
    }
    let newest = [Some(cells.low), cells.high].map(|row| row.and_then(|row| grid.newest(row)));
    let seen: Vec<Cell> = newest.into_iter().flatten().collect();
    let rate = seen.iter().map(|cell| cell.rate).fold(f32::NAN, f32::max);
    let rate = match seen.iter().all(|cell| cell.is_unobservable()) {
        true if seen.is_empty() => "not mapped now".into(),
        true => "not observable".into(),
        false => format!("access rate {rate:.2}"),
    };
    let bytes = units::bytes(mapped_bytes(ladder, cells.range));
    let range = cells.range;
    let x = pen.text(buffer, place, 1, &format!("{:#x} to {:#x}", range.start(), range.end()), bold);
    let name = shown_name(&cells.name);
    let text = format!("  {bytes}, {rate}, {name}");
    pen.text(buffer, place, x, &pen.cut(&text, usize::from(place.width.saturating_sub(x))), Style::new());
}

fn mapped_bytes(ladder: &Ladder, range: AddrRange) -> u64 {
    let pieces = ladder.axis.areas.iter().flat_map(|area| &area.mapped);
    pieces.filter_map(|piece| piece.range.intersection(range)).map(AddrRange::size).sum()
}
