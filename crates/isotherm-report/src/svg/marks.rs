//! Marks in pictures over time: a line at each, and a row of labels above.

use std::fmt::Write as _;
use std::time::Duration;

use isotherm_core::units;
use isotherm_record::Mark;

use super::{Anchor, Drawing, fit, n, text_width};
use crate::escape::{markup, sanitise};
use crate::marks::labels;

/// The least room of a label, and the most.
const LEAST: f64 = 48.0;
const MOST: f64 = 240.0;
/// Lines that are nearer to each other than this are one.
const NEAR: f64 = 0.5;

/// The classes of lines on colours: a light line on a dark one can be seen on all of them.
pub(crate) const ON_COLOURS: &[&str] = &["moment-shade", "moment"];
/// The class of lines on the ground of a plot.
pub(crate) const ON_PLOT: &[&str] = &["moment-line"];

/// A time axis from `left`, of this width.
#[derive(Clone, Copy)]
pub(crate) struct Across {
    pub(crate) left: f64,
    pub(crate) width: f64,
    pub(crate) time: (Duration, Duration),
}

impl Across {
    /// The marks within the time, each with its place.
    fn places(self, marks: &[Mark]) -> Vec<(f64, &Mark)> {
        let (start, end) = self.time;
        let span = end.saturating_sub(start).as_secs_f64().max(1e-9);
        let within = marks.iter().filter(|mark| (start..=end).contains(&mark.time));
        within.map(|mark| (self.left + (mark.time - start).as_secs_f64() / span * self.width, mark)).collect()
    }
}

/// The height of the row of labels; 0 without marks.
pub(crate) fn row(marks: &[Mark]) -> f64 {
    if marks.is_empty() { 0.0 } else { 16.0 }
}

impl Drawing {
    /// A line at each mark, from `top` to `bottom`, in each of these classes.
    pub(crate) fn mark_lines(&mut self, marks: &[Mark], across: Across, (top, bottom): (f64, f64), classes: &[&str]) {
        let (mut path, mut last) = (String::new(), f64::NEG_INFINITY);
        for (x, _) in across.places(marks) {
            if x - last >= NEAR {
                _ = write!(path, "M{} {}V{}", n(x), n(top), n(bottom));
                last = x;
            }
        }
        for class in classes.iter().filter(|_| !path.is_empty()) {
            self.raw(&format!(r#"<path d="{path}" class="{class}"/>"#));
        }
    }

    /// The labels of marks, above `bottom` and up to `right`. A page draws them anew when its part of the time changes.
    pub(crate) fn mark_labels(&mut self, marks: &[Mark], across: Across, right: f64, bottom: f64) {
        if marks.is_empty() {
            return;
        }
        let place = (n(across.left), n(bottom), n(across.width), n(right));
        self.raw(&format!(
            r#"<g class="moments" data-x="{}" data-y="{}" data-width="{}" data-right="{}">"#,
            place.0, place.1, place.2, place.3
        ));
        let places = across.places(marks);
        let wide: Vec<(f64, f64)> =
            places.iter().map(|(x, mark)| (*x, (text_width(&sanitise(&mark.text)) + 10.0).min(MOST))).collect();
        for label in labels(&wide, right, LEAST) {
            let mark = places[label.nth].1;
            let tip = format!("{}: {}", units::duration(mark.time), mark.text);
            self.raw(&format!("<g><title>{}</title>", markup(&tip)));
            let text = fit(&mark.text, label.room - 8.0);
            self.text(label.start, bottom - 4.0, Anchor::Start, "moment-label", &text);
            self.raw("</g>");
        }
        self.raw("</g>");
    }
}
