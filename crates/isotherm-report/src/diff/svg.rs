//! The difference as a picture: for each quantity, two bars for each name, before and after.

use isotherm_core::units;

use super::text::what;
use super::{Changes, Count, Diff, folded, signed};
use crate::options::Picture;
use crate::svg::{Anchor, Drawing, fit};

/// The maximum number of names of a quantity.
const NAMES: usize = 8;
/// The width of names, and of the figures at the end of bars.
const NAME: f64 = 190.0;
const FIGURES: f64 = 150.0;
/// The height of a pair of bars with the space below it, and of one bar.
const STEP: f64 = 30.0;
const BAR: f64 = 10.0;
/// The classes of the bars of both recordings.
const BEFORE: &str = r#"class="kept""#;
const AFTER: &str = r#"class="bar""#;

/// Draws the totals, and the names whose difference is largest.
pub(super) fn draw(diff: &Diff, picture: Picture) -> Drawing {
    let width = f64::from(picture.width.max(720));
    let mut drawing = Drawing::new(width);
    let title = format!("From {} to {}", diff.before.name, diff.after.name);
    drawing.text(12.0, 26.0, Anchor::Start, "title", &fit(&title, width * 0.8));
    let mut y = 38.0;
    for (name, paint, side) in [("before", BEFORE, &diff.before), ("after", AFTER, &diff.after)] {
        drawing.rect((12.0, y), (12.0, 12.0), paint);
        let text = format!("{name}: {}", what(side));
        drawing.text(30.0, y + 10.0, Anchor::Start, "label", &fit(&text, width - 42.0));
        y += 18.0;
    }
    let column = (width - 24.0) / 2.0;
    y += 8.0;
    for pair in Count::ALL.chunks(2) {
        let heights = pair.iter().zip([12.0, 12.0 + column]).map(|(&quantity, x)| {
            let mut panel = Panel { drawing: &mut drawing, diff, quantity, x, width: column - 12.0 };
            panel.draw(y)
        });
        y = heights.fold(y, f64::max) + 16.0;
    }
    drawing.height = y;
    drawing
}

/// The part of the picture about one quantity.
struct Panel<'a> {
    drawing: &'a mut Drawing,
    diff: &'a Diff,
    quantity: Count,
    x: f64,
    width: f64,
}

impl Panel<'_> {
    /// Draws the panel from `y` on. Returns where it ends.
    fn draw(&mut self, y: f64) -> f64 {
        let title = fit(&self.diff.meaning(self.quantity), self.width);
        self.drawing.text(self.x, y + 18.0, Anchor::Start, "name", &title);
        let mut y = y + 32.0;
        y = self.bars(&self.diff.total, y, self.diff.total.of(self.quantity).largest());
        self.drawing.line((self.x, y - 4.0), (self.x + self.width, y - 4.0), "grid");
        y += 4.0;
        let (shown, others) = folded(&self.diff.mappings, self.quantity, NAMES);
        let shown: Vec<&Changes> = shown.into_iter().chain(&others).collect();
        let largest = shown.iter().map(|changes| changes.of(self.quantity).largest()).max().unwrap_or(0);
        for changes in shown {
            y = self.bars(changes, y, largest);
        }
        y
    }

    /// Draws the two bars of a name. `largest` bytes take the whole width.
    fn bars(&mut self, changes: &Changes, y: f64, largest: u64) -> f64 {
        let change = changes.of(self.quantity);
        self.drawing.text(self.x + NAME - 10.0, y + 14.0, Anchor::End, "name", &fit(&changes.name, NAME - 12.0));
        let most = self.width - NAME - FIGURES;
        let mut end: f64 = 0.0;
        for (nth, (amount, paint, when)) in
            [(change.before, BEFORE, "before"), (change.after, AFTER, "after")].into_iter().enumerate()
        {
            let bytes = amount.map_or(0, |amount| amount.mean_bytes);
            let long = bytes as f64 / largest.max(1) as f64 * most;
            let peak = amount.map_or_else(String::new, |a| format!(", at most {}", units::bytes(a.peak_bytes)));
            let tip = format!("{}: {} {when}{peak}", changes.name, units::bytes(bytes));
            let at = (self.x + NAME, y + BAR * nth as f64);
            if bytes > 0 {
                self.drawing.rect_with_tip(at, (long, BAR - 1.0), paint, &tip);
            }
            end = end.max(long);
        }
        let after = change.after.map_or(0, |amount| amount.mean_bytes);
        let figures = match change.difference() {
            0 => units::table_bytes(after),
            difference => format!("{} ({})", units::table_bytes(after), signed(difference)),
        };
        self.drawing.text(self.x + NAME + end + 8.0, y + 14.0, Anchor::Start, "label", &figures);
        y + STEP
    }
}
