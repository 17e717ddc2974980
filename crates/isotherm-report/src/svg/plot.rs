//! Plots of quantities over time, with axes.

use std::fmt::Write as _;
use std::time::Duration;

use isotherm_record::Mark;

use super::layers::{self, Layer};
use super::marks::ON_PLOT;
use super::{Across, Anchor, Drawing, n};

/// The left edge of plots. The labels of the vertical axis are left of it.
pub(super) const LEFT: f64 = 84.0;

/// A plot: its place, its time and its axis.
pub(super) struct Plot<'a> {
    pub(super) at: (f64, f64),
    pub(super) size: (f64, f64),
    pub(super) time: (Duration, Duration),
    /// Layers, one on the other.
    pub(super) layers: &'a [Layer],
    pub(super) curves: &'a [Curve<'a>],
    /// Ticks of the vertical axis, which goes from 0 to `top`.
    pub(super) ticks: Vec<(f64, String)>,
    pub(super) top: f64,
    pub(super) limit: Option<(f64, String)>,
    /// Marks, whose labels stand above the plot.
    pub(super) marks: &'a [Mark],
}

/// One quantity over time.
pub(super) struct Curve<'a> {
    pub(super) points: &'a [(Duration, f64)],
    /// The bounds of each of the points. Empty if all are exact.
    pub(super) bounds: &'a [(f64, f64)],
    /// Since when the first of them holds. `None` if that is the start of the plot.
    pub(super) since: Option<Duration>,
    /// The class of the line. The main quantity also has a band from the lowest to the highest value or bound.
    pub(super) class: &'static str,
}

impl<'a> Curve<'a> {
    /// The first or only quantity of a plot.
    pub(super) fn main(points: &'a [(Duration, f64)]) -> Self {
        Self { points, bounds: &[], since: None, class: "curve" }
    }
}

impl Plot<'_> {
    pub(super) fn draw(&self, drawing: &mut Drawing) {
        let ((x, y), (w, h)) = (self.at, self.size);
        let top = self.top.max(f64::MIN_POSITIVE);
        let height = |value: f64| y + h * (1.0 - (value / top).clamp(0.0, 1.0));
        drawing.rect((x, y), (w, h), r#"class="frame""#);
        for (value, label) in &self.ticks {
            let at = height(*value);
            drawing.line((x, at), (x + w, at), "grid");
            drawing.text(x - 7.0, at + 4.0, Anchor::End, "label", label);
        }
        // A page zooms in time by the view box.
        let (x0, y0, w0, h0) = (n(x), n(y), n(w), n(h));
        let time = (self.time.0.as_secs_f64(), self.time.1.as_secs_f64());
        drawing.raw(&format!(
            concat!(
                r#"<svg class="panel" x="{x0}" y="{y0}" width="{w0}" height="{h0}" viewBox="{x0} {y0} {w0} {h0}" "#,
                r#"preserveAspectRatio="none" data-start="{start}" data-end="{end}">"#
            ),
            x0 = x0,
            y0 = y0,
            w0 = w0,
            h0 = h0,
            start = time.0,
            end = time.1,
        ));
        let across = Across { left: x, width: w, time: self.time };
        layers::draw(drawing, self.layers, x, w, &height);
        for curve in self.curves {
            self.draw_curve(drawing, curve, &height);
        }
        drawing.mark_lines(self.marks, across, (y, y + h), ON_PLOT);
        drawing.raw("</svg>");
        drawing.mark_labels(self.marks, across, x + w, y);
        if let Some((value, label)) = &self.limit {
            let at = height(*value);
            if *value <= top {
                drawing.line((x, at), (x + w, at), "limit");
                // Near the bottom, the label stands above the line.
                let below = if at + 16.0 < y + h { 14.0 } else { -5.0 };
                drawing.text(x + w - 6.0, at + below, Anchor::End, "limit-label", label);
            } else {
                let label = format!("{label}, above this picture");
                drawing.text(x + w - 6.0, y + 14.0, Anchor::End, "limit-label", &label);
            }
        }
        drawing.time_axis(x, w, y + h, self.time);
    }

    /// Draws a curve in steps: a value holds for the time since the one before.
    fn draw_curve(&self, drawing: &mut Drawing, curve: &Curve<'_>, height: &dyn Fn(f64) -> f64) {
        let ((x, _), (w, _)) = (self.at, self.size);
        let (start, end) = (self.time.0.as_secs_f64(), self.time.1.as_secs_f64());
        let across = |t: f64| x + (t - start) / (end - start).max(1e-9) * w;
        let mut steps: Vec<Step> = vec![];
        let bounds = curve.bounds.iter().copied().map(Some).chain(std::iter::repeat(None));
        for (&(time, value), bounds) in curve.points.iter().zip(bounds) {
            let at = across(time.as_secs_f64()).clamp(x, x + w);
            let (low, high) = bounds.unwrap_or((value, value));
            match steps.last_mut() {
                Some(step) if at - step.from < NARROWEST => step.add(at, value, (low, high)),
                last => {
                    // The first value holds from the edge on.
                    let first = || curve.since.map_or(x, |since| across(since.as_secs_f64()).max(x));
                    let from = last.map_or_else(first, |step| step.to);
                    steps.push(Step { from, to: at, low, sum: value, high, count: 1.0 });
                }
            }
        }
        let Some(first) = steps.first() else { return };
        let mut line = format!("M{} {}", n(first.from), n(height(first.mean())));
        let mut band = format!("M{} {}", n(first.from), n(height(first.high)));
        for step in &steps {
            _ = write!(line, "V{}H{}", n(height(step.mean())), n(step.to));
            _ = write!(band, "V{}H{}", n(height(step.high)), n(step.to));
        }
        for step in steps.iter().rev() {
            _ = write!(band, "V{}H{}", n(height(step.low)), n(step.from));
        }
        if curve.class == "curve" {
            drawing.raw(&format!(r#"<path d="{band}Z" class="band"/>"#));
        }
        drawing.raw(&format!(r#"<path d="{line}" class="{}"/>"#, curve.class));
    }
}

/// The least width of a step. Values of a shorter time are drawn as their lowest, mean and highest.
const NARROWEST: f64 = 0.75;

/// A step of a curve.
struct Step {
    /// Its left and right edge.
    from: f64,
    to: f64,
    low: f64,
    sum: f64,
    high: f64,
    /// The number of values.
    count: f64,
}

impl Step {
    fn add(&mut self, to: f64, value: f64, (low, high): (f64, f64)) {
        self.to = to;
        (self.low, self.high) = (self.low.min(low), self.high.max(high));
        (self.sum, self.count) = (self.sum + value, self.count + 1.0);
    }

    fn mean(&self) -> f64 {
        self.sum / self.count
    }
}

/// The time that the points cover.
pub(super) fn time_of(points: &[(Duration, f64)]) -> (Duration, Duration) {
    let (Some(&(first, _)), Some(&(last, _))) = (points.first(), points.last()) else { return Default::default() };
    let step = if points.len() > 1 { (last - first) / (points.len() as u32 - 1) } else { first };
    (first.saturating_sub(step), last)
}
