//! Draws the state into the cells of a screen. Drawing depends on nothing else.

mod header;
mod heatmap;
mod help;
mod legend;
mod notice;
mod painter;
mod processes;
mod scheme_table;
mod schemes;
mod table;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::app::{App, Table};
use super::layout::SMALLEST;
use painter::Painter;

/// Draws the whole screen, of any size.
pub fn draw(app: &App, buffer: &mut Buffer) {
    let area = buffer.area;
    let painter = Painter::new(app.appearance);
    let Some(layout) = app.layout_of(area.width, area.height) else {
        return too_small(&painter, buffer);
    };
    header::title(app, &painter, layout.title, buffer);
    match app.track() {
        Some(track) => {
            header::memory(app, track, &painter, layout.memory, buffer);
            header::nodes(track, &painter, layout.nodes, buffer);
            header::monitor(app, &painter, layout.monitor, buffer);
            schemes::lines(app, &painter, layout.schemes, buffer);
            heatmap::pictures(app, track, &painter, &layout, buffer);
            match app.view.table {
                Table::Mappings => table::mappings(app, track, &painter, layout.table, buffer),
                Table::Processes => processes::processes(app, track, &painter, layout.table, buffer),
                Table::Schemes => scheme_table::schemes(app, &painter, layout.table, buffer),
            }
        }
        None => {
            let aggregation = isotherm_core::units::duration(app.run.aggregation);
            let text = match &app.ended {
                Some(_) => format!("the run ended before the first aggregation interval ({aggregation})"),
                None => format!("waiting for the first aggregation interval ({aggregation}) …"),
            };
            painter.wrapped(buffer, layout.heatmap, &text);
        }
    }
    header::keys(app, &painter, layout.keys, buffer);
    if let Some(notice) = &app.notice {
        notice::overlay(notice, &painter, buffer);
    }
    if let Some(line) = app.help {
        help::overlay(app, &painter, line, buffer);
    }
}

/// Draws a message on a screen that is too small, as much of it as fits.
fn too_small(painter: &Painter, buffer: &mut Buffer) {
    let Rect { width, height, .. } = buffer.area;
    let (columns, rows) = SMALLEST;
    let long = format!("this terminal is too small: {width}x{height}; isotherm needs {columns}x{rows} (q quits)");
    let short = format!("too small; needs {columns}x{rows}");
    let cells = usize::from(width) * usize::from(height);
    let text = if width >= 16 && cells >= long.len() * 3 / 2 { long } else { short };
    painter.wrapped(buffer, buffer.area, &text);
}

#[cfg(test)]
#[path = "../draw_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "../names_tests.rs"]
mod names_tests;
