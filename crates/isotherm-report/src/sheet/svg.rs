//! Bars as a picture.

use super::{Bar, Bars};
use crate::colour::hex;
use crate::svg::{Anchor, BAR_STEP, Drawing, fit};

/// Narrow, so that it can be read where a page is no wider than a phone.
const WIDTH: f64 = 900.0;
const NAMES: f64 = 240.0;
const FIGURES: f64 = 130.0;

impl Bars {
    /// The picture, for a page.
    pub(super) fn draw(&self) -> Drawing {
        let mut drawing = Drawing::new(WIDTH);
        let mut x = NAMES;
        for (name, colour) in &self.parts {
            x = drawing.key((x, 8.0), &format!(r#"fill="{}""#, hex(*colour)), name);
        }
        if let Some(mark) = self.mark {
            drawing.line((x + 6.0, 8.0), (x + 6.0, 20.0), "limit");
            drawing.text(x + 18.0, 18.0, Anchor::Start, "label", mark);
        }
        let length = |bar: &Bar| bar.lengths.iter().fold(0, |sum: u64, part| sum.saturating_add(*part));
        let longest = self.bars.iter().map(|bar| length(bar).max(bar.mark.unwrap_or(0))).max().unwrap_or(0).max(1);
        let scale = (WIDTH - NAMES - FIGURES - 12.0) / longest as f64;
        let mut y = 32.0;
        for bar in &self.bars {
            drawing.text(NAMES - 10.0, y + 15.0, Anchor::End, "name", &fit(&bar.name, NAMES - 22.0));
            let parts = self.parts.iter().zip(&bar.lengths).zip(&bar.shown);
            let parts = parts.map(|(((name, colour), length), shown)| {
                (*length as f64 * scale, *colour, format!("{}: {shown} {name}", bar.name))
            });
            let end = drawing.stacked((NAMES, y), parts);
            let marked = bar.mark.map(|mark| NAMES + mark as f64 * scale);
            if let Some(at) = marked {
                drawing.line((at, y - 2.0), (at, y + BAR_STEP - 5.0), "limit");
            }
            let figures = end.max(marked.unwrap_or(end)) + 8.0;
            drawing.text(figures, y + 14.0, Anchor::Start, "label", &bar.figure);
            y += BAR_STEP;
        }
        drawing.height = y + 4.0;
        drawing
    }
}
