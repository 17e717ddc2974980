//! Drawing: a pure function of the state into the cells of a screen.

mod header;
mod heatmap;
mod help;
mod notice;
mod pen;
mod scheme_table;
mod schemes;
mod table;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::app::{App, Table};
use super::places::{Places, SMALLEST};
use pen::Pen;

/// Draws the whole screen, of any size.
pub fn draw(app: &App, buffer: &mut Buffer) {
    let area = buffer.area;
    let pen = Pen::new(app.look);
    let Some(places) = Places::new(area.width, area.height, app.model().doings.count()) else {
        return too_small(&pen, buffer);
    };
    header::title(app, &pen, places.title, buffer);
    match app.track() {
        Some(track) => {
            header::memory(app, track, &pen, places.memory, buffer);
            header::monitor(app, &pen, places.monitor, buffer);
            schemes::lines(app, &pen, places.schemes, buffer);
            heatmap::pictures(app, track, &pen, &places, buffer);
            match app.view.table {
                Table::Mappings => table::mappings(app, track, &pen, places.table, buffer),
                Table::Schemes => scheme_table::schemes(app, &pen, places.table, buffer),
            }
        }
        None => {
            let aggregation = isotherm_core::units::duration(app.run.aggregation);
            let text = match &app.ended {
                Some(_) => format!("the end came before the first aggregation interval ({aggregation}) was over"),
                None => format!("waiting for the first aggregation interval ({aggregation}) to be over …"),
            };
            pen.wrapped(buffer, places.heatmap, &text);
        }
    }
    header::keys(app, &pen, places.keys, buffer);
    if let Some(notice) = &app.notice {
        notice::overlay(notice, &pen, buffer);
    }
    if let Some(line) = app.help {
        help::overlay(app, &pen, line, buffer);
    }
}

/// What a screen says on which nothing can be shown: as much of it as fits.
fn too_small(pen: &Pen, buffer: &mut Buffer) {
    let Rect { width, height, .. } = buffer.area;
    let (columns, rows) = SMALLEST;
    let long = format!("this terminal is too small: {width}x{height}; isotherm needs {columns}x{rows} (q quits)");
    let short = format!("too small; needs {columns}x{rows}");
    let room = usize::from(width) * usize::from(height);
    let text = if width >= 16 && room >= long.len() * 3 / 2 { long } else { short };
    pen.wrapped(buffer, buffer.area, &text);
}

#[cfg(test)]
#[path = "../draw_tests.rs"]
mod tests;
