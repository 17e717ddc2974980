//! The table of mappings, and what the table of processes is drawn with, too.

use isotherm_core::units;
use isotherm_report::extent::shown_name;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::super::app::App;
use super::super::figures::{MappingFigures, Temperature};
use super::super::model::Track;
use super::super::sort::{Column, Sort};
use super::painter::Painter;

/// The width of the bar, and the minimum width of the screen for it.
const BAR: (u16, u16) = (24, 100);

pub const DIM: Style = Style::new().add_modifier(Modifier::DIM);

/// A column: title, width, and the minimum width of the screen to show it.
pub type Place = (Column, &'static str, u16, u16);

const COLUMNS: [Place; 7] = [
    (Column::Hot, "hot", 9, 0),
    (Column::WorkingSet, "work.set", 10, 48),
    (Column::Size, "size", 9, 0),
    (Column::Rate, "rate", 7, 40),
    (Column::Hz, "Hz", 6, 56),
    (Column::Age, "age", 11, 64),
    (Column::Name, "mapping", 0, 0),
];

/// Draws the sorted mappings, as many as fit.
pub fn mappings(app: &App, track: &Track, painter: &Painter, place: Rect, buffer: &mut Buffer) {
    let mut rows = place.rows();
    let Some(row) = rows.next() else { return };
    heading(painter, &COLUMNS, app.view.sort, 1, row, buffer);
    let sorted = app.view.sort.sorted(&track.figures.mappings);
    let shown = usize::from(place.height - 1);
    let largest = sorted.iter().map(|mapping| mapping.temperature.size).fold(0.0, f64::max);
    for (nth, (mapping, row)) in sorted.iter().zip(rows).enumerate() {
        if nth + 1 == shown && sorted.len() > shown {
            let rest = sorted.len() - nth;
            painter.text(buffer, row, 2, &format!("… and {rest} others"), DIM);
            break;
        }
        if nth < 9 {
            painter.text(buffer, row, 0, &format!("{}", nth + 1), DIM);
        }
        let names = line(painter, &COLUMNS, 1, row, buffer, |column, _| cell(painter, mapping, column));
        bar(painter, names, &mapping.temperature, largest, row, buffer);
    }
}

/// Writes the titles of the columns from column `x` on, with a mark at the one that the table is sorted by.
pub fn heading(painter: &Painter, columns: &[Place], sort: Sort, x: u16, row: Rect, buffer: &mut Buffer) {
    let reversed = Style::new().add_modifier(Modifier::REVERSED);
    buffer.set_style(row, reversed);
    line(painter, columns, x, row, buffer, |column, title| {
        let arrow =
            if sort.reversed != (column == Column::Name) { painter.pick("▴", "^") } else { painter.pick("▾", "*") };
        let bold = reversed.add_modifier(Modifier::BOLD);
        if column == sort.column { (format!("{arrow}{title}"), bold) } else { (title.into(), reversed) }
    });
}

/// Draws the bar before the names, if the screen is wide enough.
pub fn bar(painter: &Painter, names: u16, memory: &Temperature, largest: f64, row: Rect, buffer: &mut Buffer) {
    if row.width >= BAR.1 {
        let place = Rect { x: row.x + names + 2 - BAR.0, width: BAR.0 - 2, ..row };
        painter.bar(buffer, place, memory, largest);
    }
}

/// Writes a line of a table from column `x` on. Returns the column where the names start.
pub fn line(
    painter: &Painter,
    columns: &[Place],
    mut x: u16,
    row: Rect,
    buffer: &mut Buffer,
    text: impl Fn(Column, &str) -> (String, Style),
) -> u16 {
    for &(column, title, width, from) in columns {
        if row.width < from {
            continue;
        }
        let (text, style) = text(column, title);
        if column == Column::Name {
            x += if row.width >= BAR.1 { BAR.0 } else { 0 };
            painter.text(buffer, row, x + 2, &painter.cut(&text, usize::from(row.width.saturating_sub(x + 3))), style);
            continue;
        }
        x += width;
        painter.right(buffer, Rect { width: x.min(row.width), ..row }, x, &text, style);
    }
    x
}

/// Bytes as they stand in a cell.
pub fn size(bytes: f64) -> (String, Style) {
    let style = if bytes >= 1.0 { Style::new() } else { DIM };
    (if bytes >= 1.0 { units::bytes(bytes as u64) } else { "0".into() }, style)
}

/// An access rate as it stands in a cell, of memory of this temperature.
pub fn rate(rate: f64, temperature: &Temperature) -> (String, Style) {
    if temperature.is_in_the_dark() {
        return ("?".into(), DIM);
    }
    (format!("{rate:.2}"), Style::new())
}

fn cell(painter: &Painter, mapping: &MappingFigures, column: Column) -> (String, Style) {
    let temperature = &mapping.temperature;
    match column {
        Column::Hot => size(temperature.hot),
        Column::WorkingSet => size(temperature.working_set),
        Column::Size => size(temperature.size),
        Column::Rate => rate(mapping.rate, temperature),
        Column::Hz if temperature.is_in_the_dark() => ("?".into(), DIM),
        Column::Hz => {
            let at_least = if mapping.is_least_hz { painter.pick("≥", ">=") } else { "" };
            (format!("{at_least}{}", units::table_hertz(mapping.hz)), Style::new())
        }
        Column::Age => (units::duration(mapping.age), Style::new()),
        Column::Name => {
            let start = mapping.range.start();
            let name = shown_name(&mapping.name);
            let name = if mapping.name.is_empty() { format!("{name} {start:#x}") } else { name.to_owned() };
            (painter.cut(&name, usize::MAX), Style::new())
        }
    }
}
