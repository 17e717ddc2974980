//! The pictures: the working set and the heatmap over the same time.

use std::time::Duration;

use isotherm_core::{AddrRange, units};
use isotherm_report::extent::shown_name;
use isotherm_report::heatmap::Cell;
use isotherm_report::ticks;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::super::address_lines::{AddressLines, CellLine, Line};
use super::super::app::App;
use super::super::grid::{Grid, TimeWindow};
use super::super::layout::ScreenLayout;
use super::super::model::Track;
use super::legend::{legend, unknown};
use super::painter::Painter;

const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const EIGHTHS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// Draws working set, heatmap, axis of time and legend.
pub fn pictures(app: &App, track: &Track, painter: &Painter, layout: &ScreenLayout, buffer: &mut Buffer) {
    let window = app.window(layout);
    let address_lines = app.address_lines(track, layout);
    let grid = app.grid(track, &address_lines, &window);
    working_set(&grid, painter, layout, buffer);
    heatmap(app, &address_lines, &grid, painter, layout, buffer);
    time_axis(app, &window, painter, layout, buffer);
    below_the_axis(app, &address_lines, &grid, painter, layout.legend, buffer);
}

/// Draws the working set over time as a bar chart.
fn working_set(grid: &Grid, painter: &Painter, layout: &ScreenLayout, buffer: &mut Buffer) {
    let place = layout.working_set;
    if place.is_empty() {
        return;
    }
    let values: Vec<Option<f64>> = (0..layout.plot.into()).map(|column| grid.working_set(column)).collect();
    let top = values.iter().flatten().copied().fold(0.0, f64::max).max(1.0);
    for (nth, row) in place.rows().enumerate() {
        let line = usize::from(place.height) - 1 - nth;
        let plot = layout.plot(row);
        for (x, value) in values.iter().enumerate() {
            let Some(value) = value else { continue };
            let full = (value / top * f64::from(place.height) - line as f64).clamp(0.0, 1.0);
            let eighths = (full * 8.0).round() as usize;
            // A value above zero is always visible.
            let eighths = if line == 0 && *value > 0.0 { eighths.max(1) } else { eighths };
            let ascii = [" ", ".", ".", "-", "-", "=", "=", "#", "#"][eighths];
            let text = if painter.unicode() { EIGHTHS[eighths] } else { ascii };
            painter.text(buffer, plot, x as u16, text, painter.accent());
        }
        if layout.gutter > 0 {
            let label = if nth == 0 { units::bytes(top as u64) } else { String::new() };
            gutter(painter, buffer, row, layout, &label);
        }
    }
    let names = Rect { x: place.x + layout.gutter + layout.plot, width: layout.names, height: 1, ..place };
    if names.width > 0 {
        painter.text(buffer, names, 1, "working set", DIM);
    }
}

fn gutter(painter: &Painter, buffer: &mut Buffer, row: Rect, layout: &ScreenLayout, label: &str) {
    painter.right(buffer, row, layout.gutter - 2, label, DIM);
    painter.text(buffer, row, layout.gutter - 1, "│", DIM);
}

fn heatmap(
    app: &App,
    address_lines: &AddressLines,
    grid: &Grid,
    painter: &Painter,
    layout: &ScreenLayout,
    buffer: &mut Buffer,
) {
    let names: Vec<&str> = address_lines.cells().map(|cells| shown_name(&cells.name)).collect();
    let cursor = app.view.cursor.and_then(|addr| address_lines.line_of(addr));
    let selection = app.selection(address_lines);
    let mut nth = 0;
    for (line, row) in address_lines.lines.iter().zip(layout.heatmap.rows()) {
        match line {
            Line::Area { start, end, bytes } => area(*start, *end, *bytes, painter, row, layout, buffer),
            Line::Cells(cells) => {
                let selected = selection.is_some_and(|range| range.intersection(cells.range).is_some());
                let marked = cursor == Some(nth);
                cell_line(cells, grid, painter, row, layout, buffer);
                if marked || selected {
                    mark(painter, row, layout, marked, selected, buffer);
                }
                if layout.names > 0 {
                    // A name is drawn at the highest of its lines.
                    let touches = |other: Option<usize>| other.and_then(|i| names.get(i)) == Some(&names[nth]);
                    let (above, below) = (touches(nth.checked_sub(1)), touches(Some(nth + 1)));
                    name(names[nth], above, below, marked, painter, row, layout, buffer);
                }
                nth += 1;
            }
        }
    }
}

/// Draws the heading of an area.
fn area(start: u64, end: u64, bytes: u64, painter: &Painter, row: Rect, layout: &ScreenLayout, buffer: &mut Buffer) {
    let x = layout.gutter.saturating_sub(1);
    let place = Rect { width: layout.gutter + layout.plot, ..row };
    for x in x..place.width {
        painter.text(buffer, place, x, "─", DIM);
    }
    painter.text(buffer, place, x + 1, &format!(" {start:#x} to {end:#x}: {} ", units::bytes(bytes)), DIM);
}

fn cell_line(cells: &CellLine, grid: &Grid, painter: &Painter, row: Rect, layout: &ScreenLayout, buffer: &mut Buffer) {
    if layout.gutter > 0 {
        gutter(painter, buffer, row, layout, &cells.tick);
    }
    let plot = layout.plot(row);
    for x in 0..plot.width {
        let low = grid.cell(cells.low, x.into());
        let high = cells.high.and_then(|high| grid.cell(high, x.into()));
        let (text, style) = match (painter.coloured(), painter.group(), low, high) {
            (_, _, None, None) => continue,
            (false, ..) => (digit(low), Style::new()),
            (true, 2, Some(low), Some(high)) if painter.cell(low) == painter.cell(high) => {
                (" ", Style::new().bg(painter.cell(low)))
            }
            (true, 2, Some(low), Some(high)) => ("▀", Style::new().fg(painter.cell(high)).bg(painter.cell(low))),
            // A line with one row uses its full height.
            (true, 2, Some(low), None) if cells.high.is_some() => ("▄", Style::new().fg(painter.cell(low))),
            (true, _, Some(low), None) => (" ", Style::new().bg(painter.cell(low))),
            (true, _, _, Some(high)) => ("▀", Style::new().fg(painter.cell(high))),
        };
        painter.text(buffer, plot, x, text, style);
    }
}

/// The digit of an access rate: 0 for never accessed, 1 to 9 for increasing rates. A letter where there is no rate.
fn digit(cell: Option<Cell>) -> &'static str {
    const DIGITS: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    match cell {
        None => " ",
        Some(cell) if cell.is_unobservable() => "?",
        Some(cell) if cell.is_unknown() => "u",
        Some(cell) => DIGITS[(f64::from(cell.rate) * 9.0).ceil().clamp(0.0, 9.0) as usize],
    }
}

/// Marks the line of the cursor and the lines of the selection, next to the picture or at its edge.
fn mark(painter: &Painter, row: Rect, layout: &ScreenLayout, cursor: bool, selected: bool, buffer: &mut Buffer) {
    let place = Rect { width: layout.gutter.max(1), ..row };
    let style = Style::reset().add_modifier(Modifier::REVERSED);
    if selected {
        buffer.set_style(place, style);
    }
    if cursor {
        let last = Rect { x: place.right().saturating_sub(2), width: 2.min(place.width), ..place };
        buffer.set_style(last, style.add_modifier(Modifier::BOLD));
        painter.text(buffer, place, place.width - 1, ">", Style::new());
    }
}

#[expect(clippy::too_many_arguments, reason = "a line of text and its position")]
fn name(
    name: &str,
    above: bool,
    below: bool,
    marked: bool,
    painter: &Painter,
    row: Rect,
    layout: &ScreenLayout,
    buffer: &mut Buffer,
) {
    let place = Rect { x: row.x + layout.gutter + layout.plot, width: layout.names, ..row };
    let bracket = match (above, below) {
        (false, false) => painter.pick("╶", "-"),
        (false, true) => painter.pick("┐", "\\"),
        (true, true) => painter.pick("│", "|"),
        (true, false) => painter.pick("┘", "/"),
    };
    let style = if marked { Style::new().add_modifier(Modifier::BOLD) } else { DIM };
    let x = if painter.unicode() {
        buffer.set_stringn(place.x, place.y, bracket, 1, style);
        2
    } else {
        painter.text(buffer, place, 0, bracket, style) + 1
    };
    if !above || marked {
        let base = if name.starts_with('/') { name.rsplit('/').next().unwrap_or(name) } else { name };
        painter.text(buffer, place, x, &painter.cut(base, usize::from(layout.names).saturating_sub(3)), style);
    }
}

/// Draws the time axis: how long ago, or the time of the run if an earlier time is shown.
fn time_axis(app: &App, window: &TimeWindow, painter: &Painter, layout: &ScreenLayout, buffer: &mut Buffer) {
    if layout.axis.is_empty() {
        return;
    }
    if layout.gutter > 0 {
        painter.text(buffer, layout.axis, layout.gutter - 1, painter.pick("└", "+"), DIM);
    }
    let plot = layout.plot(layout.axis);
    for x in 0..plot.width {
        painter.text(buffer, plot, x, "─", DIM);
    }
    let span = window.column * u32::try_from(window.columns).unwrap_or(u32::MAX);
    let end = if app.follows() && !app.paused() && app.ended.is_none() {
        " now".into()
    } else {
        format!(" {}", units::duration(Duration::from_millis(app.until().as_millis() as u64 / 100 * 100)))
    };
    let mut free = plot.width.saturating_sub(painter.width(&end) as u16);
    painter.text(buffer, plot, free, &end, DIM);
    for (ago, label) in ticks::time(Duration::ZERO, span, usize::from(plot.width / 14).clamp(1, 10)) {
        let label =
            format!(" -{} ", label.trim_end_matches(" s").to_owned() + if label.ends_with(" s") { " s" } else { "" });
        let x = (f64::from(plot.width) * (1.0 - ago.as_secs_f64() / span.as_secs_f64())).round() as u16;
        let width = painter.width(&label) as u16;
        // A label is centred on its time.
        let x = x.saturating_sub(width / 2);
        if !ago.is_zero() && x + width < free {
            painter.text(buffer, plot, x, &label, DIM);
            free = x;
        }
    }
}

/// Draws the memory under the cursor, or the legend.
fn below_the_axis(
    app: &App,
    address_lines: &AddressLines,
    grid: &Grid,
    painter: &Painter,
    place: Rect,
    buffer: &mut Buffer,
) {
    let cursor = app.view.cursor.and_then(|addr| address_lines.cells().nth(address_lines.line_of(addr)?));
    match cursor {
        _ if place.is_empty() => {}
        Some(cells) => under_cursor(app, cells, address_lines, grid, painter, place, buffer),
        None => legend(app, painter, place, buffer),
    }
}

fn under_cursor(
    app: &App,
    cells: &CellLine,
    address_lines: &AddressLines,
    grid: &Grid,
    painter: &Painter,
    place: Rect,
    buffer: &mut Buffer,
) {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    if let Some(range) = app.selection(address_lines) {
        let bytes: u64 = mapped_bytes(address_lines, range);
        let text = format!("selected {:#x} to {:#x}: {} mapped", range.start(), range.end(), units::bytes(bytes));
        painter.text(buffer, place, 1, &text, bold);
        return;
    }
    let newest = [Some(cells.low), cells.high].map(|row| row.and_then(|row| grid.newest(row)));
    let seen: Vec<Cell> = newest.into_iter().flatten().collect();
    let rate = seen.iter().map(|cell| cell.rate).fold(f32::NAN, f32::max);
    let is_dark = |cell: &Cell| cell.is_unobservable() || cell.is_unknown();
    let rate = match seen.iter().all(is_dark) {
        true if seen.is_empty() => "nothing in memory".into(),
        true if seen.iter().any(Cell::is_unknown) => unknown(app.run.sampled).into(),
        true => "not observable".into(),
        false if !app.run.sampled => format!("touched share {rate:.2}"),
        false => {
            let hz = seen.iter().map(|cell| cell.hz).fold(0.0, f32::max);
            format!("accessed at {}", units::hertz(hz.into()))
        }
    };
    let bytes = units::bytes(mapped_bytes(address_lines, cells.range));
    let range = cells.range;
    let x = painter.text(buffer, place, 1, &format!("{:#x} to {:#x}", range.start(), range.end()), bold);
    let name = shown_name(&cells.name);
    let text = format!("  {bytes}, {rate}, {name}");
    painter.text(buffer, place, x, &painter.cut(&text, usize::from(place.width.saturating_sub(x))), Style::new());
}

fn mapped_bytes(address_lines: &AddressLines, range: AddrRange) -> u64 {
    let pieces = address_lines.axis.areas.iter().flat_map(|area| &area.mapped);
    pieces.filter_map(|piece| piece.range.intersection(range)).map(AddrRange::size).sum()
}
