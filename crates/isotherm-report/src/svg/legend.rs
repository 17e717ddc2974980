//! The colour scale of pictures, and what other colours mean.

use super::{Anchor, Drawing, text_width};
use crate::colour::{ABSENT, Rgb, SWAPPED, UNKNOWN, UNOBSERVABLE, hex, of_rate};
use crate::measure::Measure;

/// The width of the colour scale.
const WIDTH: f64 = 180.0;
/// The height of the colour scale with its ticks.
pub(crate) const HEIGHT: f64 = 30.0;

/// What the colours of a picture mean.
#[derive(Default)]
pub(crate) struct Scale {
    pub(crate) measure: Measure,
    /// Whether unobservable memory is shown.
    pub(crate) unobservable: bool,
    /// Whether unknown memory is shown.
    pub(crate) unknown: bool,
    /// Whether memory in swap is shown.
    pub(crate) swap: bool,
    /// Whether absent memory is shown.
    pub(crate) absent: bool,
}

impl Scale {
    /// The colours that are not of the scale, each with what it means.
    fn others(&self) -> impl Iterator<Item = (Rgb, &'static str)> {
        let all = [
            (UNOBSERVABLE, "not observable", self.unobservable),
            (UNKNOWN, "unknown", self.unknown),
            (SWAPPED, "in swap", self.swap),
            (ABSENT, "absent", self.absent),
        ];
        all.into_iter().filter(|&(_, _, shown)| shown).map(|(colour, what, _)| (colour, what))
    }

    /// The width of the legend.
    fn width(&self) -> f64 {
        let [title, cold, hot] = self.measure.scale();
        let others: f64 = self.others().map(|(_, what)| 32.0 + text_width(what)).sum();
        text_width(title) + 14.0 + text_width(cold) + 6.0 + WIDTH + 6.0 + text_width(hot) + others
    }

    /// The legend as a picture of its own.
    pub(crate) fn draw(&self) -> Drawing {
        let mut drawing = Drawing::new(self.width() + 8.0);
        drawing.scale(self, self.width() + 4.0, 2.0);
        drawing.height = HEIGHT;
        drawing
    }
}

impl Drawing {
    /// The colour scale of a measure with its ticks, and what other colours mean. It ends at `right`.
    pub(crate) fn scale(&mut self, scale: &Scale, right: f64, y: f64) {
        let [title, cold, hot] = scale.measure.scale();
        let mut x = right - scale.width();
        self.text(x, y + 10.0, Anchor::Start, "label", title);
        x += text_width(title) + 14.0 + text_width(cold);
        self.text(x, y + 10.0, Anchor::End, "label", cold);
        x += 6.0;
        let steps = 64;
        let w = WIDTH / f64::from(steps);
        for i in 0..steps {
            let fill = format!(r#"fill="{}""#, hex(of_rate(f64::from(i) / f64::from(steps - 1))));
            self.rect((x + f64::from(i) * w, y), (w + 0.3, 12.0), &fill);
        }
        for (place, label) in scale.measure.ticks() {
            let at = x + place * WIDTH;
            self.line((at, y + 12.0), (at, y + 15.0), "axis");
            self.text(at, y + 26.0, Anchor::Middle, "label", label);
        }
        x += WIDTH + 6.0;
        self.text(x, y + 10.0, Anchor::Start, "label", hot);
        x += text_width(hot);
        for (colour, what) in scale.others() {
            self.rect((x + 14.0, y), (12.0, 12.0), &format!(r#"fill="{}""#, hex(colour)));
            self.text(x + 31.0, y + 10.0, Anchor::Start, "label", what);
            x += 32.0 + text_width(what);
        }
    }
}
