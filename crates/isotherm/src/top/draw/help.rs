//! The help over the screen.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::widgets::{Clear, Widget};

use super::super::app::App;
use super::super::keys::HELP;
use super::painter::Painter;

const WIDTH: u16 = 76;

/// Draws the help, starting with line `first`.
pub fn overlay(app: &App, painter: &Painter, first: usize, buffer: &mut Buffer) {
    let lines = lines(app);
    let area = buffer.area;
    let width = WIDTH.min(area.width);
    let height = (lines.len() as u16 + 2).min(area.height);
    let place = Rect::new((area.width - width) / 2, (area.height - height) / 2, width, height);
    Clear.render(place, buffer);
    let bar = Style::new().add_modifier(Modifier::REVERSED | Modifier::BOLD);
    let heading = Rect { height: 1, ..place };
    buffer.set_style(heading, bar);
    painter.text(buffer, heading, 1, "isotherm top: help", bar);
    let visible_rows = usize::from(height.saturating_sub(2));
    let first = first.min(lines.len().saturating_sub(visible_rows));
    for ((key, text), row) in lines[first..].iter().zip(place.rows().skip(1).take(visible_rows)) {
        let x = if key.is_empty() { 1 } else { 16.min(width / 3) };
        painter.text(
            buffer,
            Rect { width: x.min(row.width), ..row },
            1,
            key,
            Style::new().add_modifier(Modifier::BOLD),
        );
        painter.text(buffer, row, x, &painter.cut(text, usize::from(width.saturating_sub(x + 1))), Style::new());
    }
    let foot = Rect { y: place.bottom().saturating_sub(1), height: 1, ..place };
    buffer.set_style(foot, Style::new().add_modifier(Modifier::REVERSED));
    let more = if lines.len() > visible_rows { "↑ ↓ more; " } else { "" };
    painter.text(buffer, foot, 1, &format!("{more}any other key closes this help"), bar);
}

fn lines(app: &App) -> Vec<(String, String)> {
    let mut lines: Vec<(String, String)> = HELP.iter().map(|&(key, text)| (key.into(), text.into())).collect();
    let mut note = |text: &str| lines.push((String::new(), text.into()));
    note("Picture: time from left to right, addresses from bottom to top.");
    note("Gaps between mappings are left out. Figures are means over a second.");
    note("Rate: share of accessed samples. Hz: accesses of a page in a second.");
    note("Age: time since the rate changed.");
    if let Some(output) = &app.run.output {
        note(&format!("The command's output: {output}."));
    }
    lines
}
