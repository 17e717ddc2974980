//! Drawing primitives for this terminal: colours, characters, and text that is clipped to its area.

use std::borrow::Cow;

use isotherm_report::heatmap::Cell;
use isotherm_report::{Colour, colour, part_in, sanitise, wrap};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

use super::super::app::Appearance;
use super::super::figures::Temperature;

/// Draws with the colours and characters that the terminal has.
pub struct Painter {
    appearance: Appearance,
}

impl Painter {
    pub fn new(appearance: Appearance) -> Self {
        Self { appearance }
    }

    /// `unicode`, or `ascii` if the terminal shows ASCII only.
    pub fn pick(&self, unicode: &'static str, ascii: &'static str) -> &'static str {
        if self.appearance.unicode { unicode } else { ascii }
    }

    pub fn unicode(&self) -> bool {
        self.appearance.unicode
    }

    pub fn coloured(&self) -> bool {
        self.appearance.colour != Colour::None
    }

    pub fn group(&self) -> usize {
        self.appearance.group()
    }

    /// The nearest colour that the terminal has.
    pub fn rgb(&self, rgb: colour::Rgb) -> Color {
        match self.appearance.colour {
            Colour::True => Color::Rgb(rgb[0], rgb[1], rgb[2]),
            Colour::Ansi256 => Color::Indexed(colour::ansi256(rgb)),
            Colour::None => Color::Reset,
        }
    }

    /// The colour of a cell.
    pub fn cell(&self, cell: Cell) -> Color {
        self.rgb(match cell {
            _ if cell.is_unobservable() => colour::UNOBSERVABLE,
            _ if cell.is_unknown() => colour::UNKNOWN,
            _ => colour::of_rate(cell.rate.into()),
        })
    }

    /// The style of text in the colour of an access rate.
    pub fn rate(&self, rate: f64) -> Style {
        Style::new().fg(self.rgb(colour::of_rate(rate)))
    }

    /// The style of text in this colour.
    pub fn in_colour(&self, rgb: colour::Rgb) -> Style {
        Style::new().fg(self.rgb(rgb))
    }

    /// The style of charts.
    pub fn accent(&self) -> Style {
        Style::new().fg(self.rgb([94, 129, 222]))
    }

    pub fn warning(&self) -> Style {
        Style::new().fg(self.rgb([214, 158, 46])).add_modifier(Modifier::BOLD)
    }

    /// Draws a bar of hot, warm, cold, unobservable and unknown memory. The full width of `place` means `most` bytes.
    pub fn bar(&self, buffer: &mut Buffer, place: Rect, memory: &Temperature, most: f64) {
        let parts = [
            (memory.hot, colour::of_rate(0.9), "#"),
            (memory.warm, colour::of_rate(0.5), "+"),
            (memory.cold, colour::of_rate(0.15), "."),
            (memory.unobservable, colour::UNOBSERVABLE, "?"),
            (memory.unknown, colour::UNKNOWN, "u"),
        ];
        let (mut sum, mut drawn) = (0.0, 0);
        for (bytes, rgb, ascii) in parts {
            sum += bytes;
            let end = ((sum / most.max(1.0) * f64::from(place.width)).round() as u16).min(place.width);
            let part = " ".repeat(usize::from(end.saturating_sub(drawn)));
            if self.coloured() {
                self.text(buffer, place, drawn, &part, Style::new().bg(self.rgb(rgb)));
            } else {
                self.text(buffer, place, drawn, &part.replace(' ', ascii), Style::new());
            }
            drawn = drawn.max(end);
        }
    }

    /// Writes a text at column `x` of `place`, clipped at its right edge. Returns the column after the text.
    pub fn text(&self, buffer: &mut Buffer, place: Rect, x: u16, text: &str, style: Style) -> u16 {
        let place = place.intersection(buffer.area);
        let x = place.x.saturating_add(x);
        if place.is_empty() || x >= place.right() {
            return x.saturating_sub(place.x);
        }
        let text = self.shown(text);
        let (end, _) = buffer.set_stringn(x, place.y, &text, usize::from(place.right() - x), style);
        end - place.x
    }

    /// Writes a text that ends before column `end` of `place`.
    pub fn right(&self, buffer: &mut Buffer, place: Rect, end: u16, text: &str, style: Style) {
        let width = self.width(text);
        let text = if width > usize::from(end) { self.cut(text, end.into()) } else { text.into() };
        let start = usize::from(end).saturating_sub(self.width(&text));
        self.text(buffer, Rect { width: end.min(place.width), ..place }, start as u16, &text, style);
    }

    /// Writes a text over several lines.
    pub fn wrapped(&self, buffer: &mut Buffer, place: Rect, text: &str) {
        for (line, row) in self.lines(text, place.width).iter().zip(place.rows()) {
            self.text(buffer, row, 0, line, Style::new());
        }
    }

    /// Breaks a text into lines of at most `width` columns, at spaces. Wider words are broken too.
    pub fn lines(&self, text: &str, width: u16) -> Vec<String> {
        wrap(&self.shown(text), usize::from(width), 0).split('\n').map(String::from).collect()
    }

    /// The width of a text in columns.
    pub fn width(&self, text: &str) -> usize {
        isotherm_report::width(&self.shown(text))
    }

    /// The text in at most `columns` columns, with a mark where it is cut. Of a path the end is kept, of
    /// other texts the start.
    pub fn cut(&self, text: &str, columns: usize) -> String {
        part_in(&self.shown(text), columns, self.pick("…", "~"))
    }

    /// The text as it is written: harmless to the terminal, and in ASCII if that shows ASCII only.
    fn shown<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let text = sanitise(text);
        if self.appearance.unicode || text.is_ascii() {
            return text;
        }
        let plain = |c| match c {
            '─' => '-',
            '│' => '|',
            '…' => '~',
            '·' | '•' => '.',
            '↑' => '^',
            '↓' => 'v',
            '←' => '<',
            '→' => '>',
            '▾' => 'v',
            '▴' => '^',
            c if c.is_ascii() => c,
            _ => '?',
        };
        text.chars().map(plain).collect::<String>().into()
    }
}
