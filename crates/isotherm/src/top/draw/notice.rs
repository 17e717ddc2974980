//! Messages over the lowest lines of the screen.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::widgets::{Clear, Widget};

use super::super::app::Notice;
use super::painter::Painter;

/// Draws a message above the line of keys, on at most a third of the screen.
pub fn overlay(notice: &Notice, painter: &Painter, buffer: &mut Buffer) {
    let area = buffer.area;
    let most = usize::from(area.height / 3).max(1);
    let width = area.width.saturating_sub(2);
    let mut lines: Vec<String> = notice.text.lines().flat_map(|line| painter.lines(line, width)).collect();
    if lines.len() > most {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            *last = painter.cut(&format!("{last} {}", "…".repeat(usize::from(width))), width.into());
        }
    }
    let height = lines.len() as u16;
    let place = Rect { y: area.bottom().saturating_sub(height + 1), height, ..area };
    Clear.render(place, buffer);
    let style = if notice.warning { painter.warning() } else { Style::new() }.add_modifier(Modifier::REVERSED);
    buffer.set_style(place, style);
    for (line, row) in lines.iter().zip(place.rows()) {
        painter.text(buffer, row, 1, line, style);
    }
}
