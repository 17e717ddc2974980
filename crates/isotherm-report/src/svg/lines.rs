//! Quantities over time as pictures: the working set, and what the monitoring cost.

use std::fmt::Write as _;
use std::time::Duration;

use super::{Anchor, Drawing, n};
use crate::overhead::{Moment, Overhead};
use crate::report::Picture;
use crate::units;
use crate::wss::Wss;

const LEFT: f64 = 84.0;

/// A quantity over time, and where it is drawn.
struct Plot<'a> {
    at: (f64, f64),
    size: (f64, f64),
    time: (Duration, Duration),
    points: &'a [(Duration, f64)],
    /// Even values of the vertical axis with their labels; the axis begins at 0 and ends at `top`.
    ticks: Vec<(f64, String)>,
    top: f64,
    limit: Option<(f64, String)>,
}

impl Plot<'_> {
    fn draw(&self, drawing: &mut Drawing) {
        let ((x, y), (w, h)) = (self.at, self.size);
        let top = self.top.max(f64::MIN_POSITIVE);
        let height = |value: f64| y + h * (1.0 - (value / top).clamp(0.0, 1.0));
        drawing.rect((x, y), (w, h), r#"class="frame""#);
        for (value, label) in &self.ticks {
            let at = height(*value);
            drawing.line((x, at), (x + w, at), "grid");
            drawing.text(x - 7.0, at + 4.0, Anchor::End, "label", label);
        }
        let (start, end) = (self.time.0.as_secs_f64(), self.time.1.as_secs_f64());
        let across = |t: f64| x + (t - start) / (end - start).max(1e-9) * w;
        // Of the moments in one and a half pixels: the lowest, the mean and the highest.
        let mut columns: Vec<(f64, f64, f64, f64, f64)> = vec![];
        for &(time, value) in self.points {
            let at = across(time.as_secs_f64()).clamp(x, x + w);
            match columns.last_mut() {
                Some((first, low, sum, high, n)) if at - *first < 1.5 => {
                    (*low, *sum, *high, *n) = (low.min(value), *sum + value, high.max(value), *n + 1.0);
                }
                _ => columns.push((at, value, value, value, 1.0)),
            }
        }
        let (mut curve, mut upper, mut lower) = (String::new(), String::new(), vec![]);
        // A value speaks for the time before it: the first reaches back to the edge.
        let first = columns.first().map(|&(_, low, sum, high, n)| (x, low, sum, high, n));
        for (at, low, sum, high, count) in first.into_iter().chain(columns) {
            let step = if curve.is_empty() { 'M' } else { 'L' };
            let at = n(at);
            _ = write!(curve, "{step}{at} {}", n(height(sum / count)));
            _ = write!(upper, "{step}{at} {}", n(height(high)));
            lower.push(format!("L{at} {}", n(height(low))));
        }
        if !curve.is_empty() {
            let lower: String = lower.into_iter().rev().collect();
            drawing.raw(&format!(r#"<path d="{upper}{lower}Z" class="band"/>"#));
            drawing.raw(&format!(r#"<path d="{curve}" class="curve"/>"#));
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
}

/// The time that points speak for, from the first's beginning.
fn time_of(points: &[(Duration, f64)]) -> (Duration, Duration) {
    let (Some(&(first, _)), Some(&(last, _))) = (points.first(), points.last()) else { return Default::default() };
    let step = if points.len() > 1 { (last - first) / (points.len() as u32 - 1) } else { first };
    (first.saturating_sub(step), last)
}

/// The working set over time, with its percentiles at the right.
pub(crate) fn wss(wss: &Wss, picture: Picture) -> Drawing {
    let width = f64::from(picture.width.max(420));
    let height = (f64::from(picture.height) / 2.0).max(160.0);
    let mut drawing = Drawing::new(width);
    let sums = wss.sums();
    let percentiles = wss.percentiles();
    let largest = percentiles.0[6];
    let targets = wss.targets();
    let of = if targets > 1 { format!(" of {targets} targets together") } else { String::new() };
    let mapped = sums.iter().map(|&(_, _, mapped)| mapped as f64).sum::<f64>() / sums.len().max(1) as f64;
    let title = format!(
        "Working set{of}: {} median, {} most, of {} mapped",
        units::bytes(percentiles.median()),
        units::bytes(largest),
        units::bytes(mapped as u64)
    );
    drawing.text(12.0, 28.0, Anchor::Start, "title", &title);
    let side = (width * 0.26).min(300.0);
    let points: Vec<_> = sums.iter().map(|&(time, bytes, _)| (time, bytes as f64)).collect();
    let top = largest as f64 * 1.06;
    let ticks = units::byte_ticks(top as u64, 6).into_iter().map(|(v, label)| (v as f64, label)).collect();
    let size = (width - LEFT - side - 24.0, height);
    Plot { at: (LEFT, 46.0), size, time: time_of(&points), points: &points, ticks, top, limit: None }
        .draw(&mut drawing);
    // The percentiles: a bar each, from the largest down.
    let x = width - side;
    drawing.text(x + 40.0, 58.0, Anchor::End, "label", "percentile");
    let step = (height - 16.0) / 7.0;
    for (i, (p, bytes)) in percentiles.iter().enumerate() {
        let y = 46.0 + height - step * (i as f64 + 1.0) + 2.0;
        let room = side - 48.0 - 84.0;
        let long = room * bytes as f64 / largest.max(1) as f64;
        drawing.text(x + 40.0, y + step / 2.0 + 2.0, Anchor::End, "label", &p.to_string());
        drawing.rect((x + 48.0, y), (long, step - 5.0), r#"class="bar""#);
        drawing.text(x + 54.0 + long, y + step / 2.0 + 2.0, Anchor::Start, "name", &units::bytes(bytes));
    }
    drawing.height = 46.0 + height + 34.0;
    drawing
}

/// What is drawn of a snapshot's cost.
type Value<'a> = &'a dyn Fn(&Moment) -> f64;

/// Regions, reads and CPU time over time, against what is allowed.
pub(crate) fn overhead(overhead: &Overhead, picture: Picture) -> Drawing {
    let width = f64::from(picture.width.max(420));
    let height = (f64::from(picture.height) / 4.0).max(90.0);
    let mut drawing = Drawing::new(width);
    let limit = overhead.max_regions as f64;
    let highest = |value: &dyn Fn(&Moment) -> f64| overhead.over_time.iter().map(value).fold(0.0, f64::max);
    let regions = |m: &Moment| m.regions as f64;
    let reads = |m: &Moment| m.max_reads as f64;
    let cpu = |m: &Moment| m.cpu_percent;
    let told =
        |load: &crate::overhead::Load| format!("{:.1} on the mean, {} at most", load.mean, units::count(load.max));
    let unknown = if overhead.measured { "" } else { "; the recording tells no costs" };
    let plots: [(String, Value<'_>, bool); 3] = [
        (format!("Regions: {}{unknown}", told(&overhead.regions)), &regions, true),
        (format!("Pages read in a sampling round: {}", told(&overhead.reads_per_sampling)), &reads, true),
        (
            format!(
                "CPU time of the monitor: {:.2} % of one CPU; {} of {} rounds began late",
                overhead.cpu_percent,
                units::count(overhead.late_rounds),
                units::count(overhead.rounds)
            ),
            &cpu,
            false,
        ),
    ];
    let mut y = 8.0;
    let told = if overhead.measured { plots.len() } else { 1 };
    for (title, value, limited) in plots.into_iter().take(told) {
        let limited = limited && overhead.max_regions > 0;
        drawing.text(12.0, y + 20.0, Anchor::Start, "title", &title);
        y += 34.0;
        let points: Vec<_> = overhead.over_time.iter().map(|m| (Duration::from_nanos(m.time_ns), value(m))).collect();
        let most = highest(value);
        // Against the limit, unless the values would be a flat line at the bottom.
        let top = if limited && most > limit / 5.0 { limit.max(most) * 1.04 } else { (most * 1.15).max(1e-3) };
        let ticks = units::count_ticks(top, 4);
        let limit = limited.then(|| (limit, format!("limit {}", units::count(overhead.max_regions))));
        let size = (width - LEFT - 16.0, height);
        Plot { at: (LEFT, y), size, time: time_of(&points), points: &points, ticks, top, limit }.draw(&mut drawing);
        y += height + 30.0;
    }
    drawing.height = y + 6.0;
    drawing
}
