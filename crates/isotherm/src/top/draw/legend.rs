//! The legend of the heatmap: what its colours, digits and letters mean.

use isotherm_report::colour::{self, Rgb};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::super::app::App;
use super::painter::Painter;

const DIM: Style = Style::new().add_modifier(Modifier::DIM);

/// A part of the legend.
enum Part {
    Text(String),
    /// The scale of colours, in so many columns.
    Scale(u16),
    /// A colour that the scale does not have.
    Mark(Rgb),
}

impl Part {
    fn width(&self, painter: &Painter) -> usize {
        match self {
            Self::Text(text) => painter.width(text),
            Self::Scale(columns) => (*columns).into(),
            Self::Mark(_) => 2,
        }
    }

    /// Draws it at `x`. Returns where the next part begins.
    fn draw(&self, painter: &Painter, buffer: &mut Buffer, place: Rect, x: u16) -> u16 {
        let mut cell = |x, rgb, text| painter.text(buffer, place, x, text, Style::new().bg(painter.rgb(rgb)));
        match self {
            Self::Text(text) => painter.text(buffer, place, x, text, DIM),
            Self::Scale(columns) => {
                let rate = |nth: u16| f64::from(nth) / f64::from(columns.saturating_sub(1).max(1));
                (0..*columns).fold(x, |x, nth| cell(x, colour::of_rate(rate(nth)), " "))
            }
            Self::Mark(rgb) => cell(x, *rgb, "  "),
        }
    }
}

/// The name of unknown memory. In a run with samples, it has none.
pub fn unknown(sampled: bool) -> &'static str {
    if sampled { "no sample" } else { "not known" }
}

/// Draws the longest legend that fits, at the right end of `place`.
pub fn legend(app: &App, painter: &Painter, place: Rect, buffer: &mut Buffer) {
    let sampled = app.run.sampled;
    let legends = if painter.coloured() { colours(sampled) } else { letters(sampled) };
    let width = |parts: &[Part]| parts.iter().map(|part| part.width(painter)).sum::<usize>();
    let Some(parts) = legends.iter().find(|parts| width(parts) <= place.width.into()) else { return };
    let mut x = place.width - width(parts) as u16;
    for part in parts {
        x = part.draw(painter, buffer, place, x);
    }
}

/// What the colours mean, the longest legend first.
fn colours(sampled: bool) -> Vec<Vec<Part>> {
    let title = if sampled { "frequency" } else { "touched" };
    let end = if sampled { " 200 Hz" } else { " 1" };
    let of = |title: &str, cold: &str, columns, blank: &str| {
        vec![
            Part::Text(format!("{title} 0 {cold}")),
            Part::Scale(columns),
            Part::Text(format!("{end}  ")),
            Part::Mark(colour::UNOBSERVABLE),
            Part::Text(" unobservable  ".into()),
            Part::Mark(colour::UNKNOWN),
            Part::Text(format!(" {}{blank}", unknown(sampled))),
        ]
    };
    let blank = "  blank: absent";
    vec![
        of(title, "(cold) ", 20, blank),
        of(title, "(cold) ", 20, ""),
        of(title, "(cold) ", 6, ""),
        of(title, "", 6, ""),
        of("", "", 6, ""),
    ]
}

/// What the digits and letters mean, the longest legend first.
fn letters(sampled: bool) -> Vec<Vec<Part>> {
    let (scale, short) = match sampled {
        true => ("frequency: 0 none (cold) to 9 at 200 Hz", "0 none to 9 at 200 Hz"),
        false => ("touched: 0 nothing (cold) to 9 all", "0 nothing to 9 all"),
    };
    let others = format!(", ? not observable, u {}", unknown(sampled));
    [
        format!("{scale}{others}, blank: absent"),
        format!("{scale}{others}"),
        format!("{scale}{others}"),
        format!("{short}{others}"),
        short.into(),
    ]
    .map(|text| vec![Part::Text(text)])
    .into()
}
