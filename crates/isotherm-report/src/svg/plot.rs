//! Plots of quantities over time, with axes.

use std::fmt::Write as _;
use std::time::Duration;

use super::{Anchor, Drawing, n};

/// The left edge of plots. The labels of the vertical axis are left of it.
pub(super) const LEFT: f64 = 84.0;

/// A plot: its place, its time and its axis.
pub(super) struct Plot<'a> {
    pub(super) at: (f64, f64),
    pub(super) size: (f64, f64),
    pub(super) time: (Duration, Duration),
    pub(super) curves: &'a [Curve<'a>],
    /// Ticks of the vertical axis, which goes from 0 to `top`.
    pub(super) ticks: Vec<(f64, String)>,
    pub(super) top: f64,
    pub(super) limit: Option<(f64, String)>,
}

/// One quantity over time.
pub(super) struct Curve<'a> {
    pub(super) points: &'a [(Duration, f64)],
    /// The class of the line. The main quantity also has a band from the lowest to the highest value.
    pub(super) class: &'static str,
}

impl<'a> Curve<'a> {
    /// The first or only quantity of a plot.
    pub(super) fn main(points: &'a [(Duration, f64)]) -> Self {
        Self { points, class: "curve" }
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
        for curve in self.curves {
            self.draw_curve(drawing, curve, &height);
        }
        if let Some((value, label)) = &self.limit {
            let at = height(*value);
            if *value <= top {
                drawing.line((x, at), (x + w, at), "limit");
                drawing.text(x + w - 6.0, at + 14.0, Anchor::End, "limit-label", label);
            } else {
                let label = format!("{label}, above this picture");
                drawing.text(x + w - 6.0, y + 14.0, Anchor::End, "limit-label", &label);
            }
        }
        drawing.time_axis(x, w, y + h, self.time);
    }

    fn draw_curve(&self, drawing: &mut Drawing, curve: &Curve<'_>, height: &dyn Fn(f64) -> f64) {
        let ((x, _), (w, _)) = (self.at, self.size);
        let (start, end) = (self.time.0.as_secs_f64(), self.time.1.as_secs_f64());
        let across = |t: f64| x + (t - start) / (end - start).max(1e-9) * w;
        // The lowest, the mean and the highest value of each one and a half pixels.
        let mut columns: Vec<(f64, f64, f64, f64, f64)> = vec![];
        for &(time, value) in curve.points {
            let at = across(time.as_secs_f64()).clamp(x, x + w);
            match columns.last_mut() {
                Some((first, low, sum, high, n)) if at - *first < 1.5 => {
                    (*low, *sum, *high, *n) = (low.min(value), *sum + value, high.max(value), *n + 1.0);
                }
                _ => columns.push((at, value, value, value, 1.0)),
            }
        }
        let (mut line, mut upper, mut lower) = (String::new(), String::new(), vec![]);
        // A value covers the time before it, so the first one starts at the edge.
        let first = columns.first().map(|&(_, low, sum, high, n)| (x, low, sum, high, n));
        for (at, low, sum, high, count) in first.into_iter().chain(columns) {
            let step = if line.is_empty() { 'M' } else { 'L' };
            let at = n(at);
            _ = write!(line, "{step}{at} {}", n(height(sum / count)));
            _ = write!(upper, "{step}{at} {}", n(height(high)));
            lower.push(format!("L{at} {}", n(height(low))));
        }
        if !line.is_empty() {
            let lower: String = lower.into_iter().rev().collect();
            if curve.class == "curve" {
                drawing.raw(&format!(r#"<path d="{upper}{lower}Z" class="band"/>"#));
            }
            drawing.raw(&format!(r#"<path d="{line}" class="{}"/>"#, curve.class));
        }
    }
}

/// The time that the points cover.
pub(super) fn time_of(points: &[(Duration, f64)]) -> (Duration, Duration) {
    let (Some(&(first, _)), Some(&(last, _))) = (points.first(), points.last()) else { return Default::default() };
    let step = if points.len() > 1 { (last - first) / (points.len() as u32 - 1) } else { first };
    (first.saturating_sub(step), last)
}
