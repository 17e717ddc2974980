//! The help that lies over the screen.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::widgets::{Clear, Widget};

use super::super::app::App;
use super::super::keys::HELP;
use super::painter::Pen;

const WIDTH: u16 = 76;

/// Draws the help from its line `first` on.
pub fn overlay(app: &App, pen: &Pen, first: usize, buffer: &mut Buffer) {
    let lines = lines(app);
    let area = buffer.area;
    let width = WIDTH.min(area.width);
    let height = (lines.len() as u16 + 2).min(area.height);
    let place = Rect::new((area.width - width) / 2, (area.height - height) / 2, width, height);
    Clear.render(place, buffer);
    let bar = Style::new().add_modifier(Modifier::REVERSED | Modifier::BOLD);
    let heading = Rect { height: 1, ..place };
    buffer.set_style(heading, bar);
    pen.text(buffer, heading, 1, "isotherm top: help", bar);
    let room = usize::from(height.saturating_sub(2));
    let first = first.min(lines.len().saturating_sub(room));
    for ((key, text), row) in lines[first..].iter().zip(place.rows().skip(1).take(room)) {
        let x = if key.is_empty() { 1 } else { 16.min(width / 3) };
        pen.text(buffer, Rect { width: x.min(row.width), ..row }, 1, key, Style::new().add_modifier(Modifier::BOLD));
        pen.text(buffer, row, x, &pen.cut(text, usize::from(width.saturating_sub(x + 1))), Style::new());
    }
    let foot = Rect { y: place.bottom().saturating_sub(1), height: 1, ..place };
    buffer.set_style(foot, Style::new().add_modifier(Modifier::REVERSED));
    let more = if lines.len() > room { "↑ ↓ more; " } else { "" };
    pen.text(buffer, foot, 1, &format!("{more}any other key closes this help"), bar);
}

fn lines(app: &App) -> Vec<(String, String)> {
    let mut lines: Vec<(String, String)> = HELP.iter().map(|&(key, text)| (key.into(), text.into())).collect();
    let mut note = |text: &str| lines.push((String::new(), text.into()));
    note("Picture: time across, addresses up; figures are means over a second.");
    note("Unmapped gaps are cut out; rate: share of samples that found it accessed.");
    note("Age: for how long the access rate has stayed as it is.");
    if let Some(output) = &app.run.output {
        note(&format!("The command's output: {output}."));
    }
    lines
}
