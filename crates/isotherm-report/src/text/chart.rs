//! Charts over time, and bars, made of block characters.

use std::io::{self, Write};
use std::time::Duration;

use isotherm_record::Mark;

use super::marks::above_axis;
use super::{Terminal, left, right, width};
use crate::colour::Rgb;
use crate::ticks;

/// The colour of charts.
pub(crate) const ACCENT: Rgb = [94, 129, 222];

const EIGHTHS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// A quantity over time.
pub(crate) struct Chart<'a> {
    /// The start and the end of the time axis.
    pub(crate) time: (Duration, Duration),
    /// Times and values, in the order of time.
    pub(crate) points: &'a [(Duration, f64)],
    /// For how long before its time each value holds. If it is empty, back to the value before, unless values are
    /// missing in between.
    pub(crate) spans: &'a [Duration],
    /// Ticks of the vertical axis, which goes from 0 to the largest value.
    pub(crate) ticks: Vec<(f64, String)>,
    /// The minimum width of the labels. It aligns the time axes of several charts.
    pub(crate) labels: usize,
    /// Whether a column shows the largest of its values, not the mean.
    pub(crate) largest: bool,
    /// The number of lines, without the axis.
    pub(crate) height: usize,
    /// Marks, above the time axis.
    pub(crate) marks: &'a [Mark],
}

impl Chart<'_> {
    /// Writes the chart, as wide as the terminal.
    pub(crate) fn write(&self, out: &mut dyn Write, terminal: &Terminal) -> io::Result<()> {
        let labels = self.ticks.iter().map(|(_, label)| width(label)).max().unwrap_or(0).max(self.labels);
        let gutter = if terminal.width() >= labels + 20 { labels + 1 } else { 0 };
        let columns = terminal.width() - gutter - usize::from(gutter > 0);
        let values = self.values(columns);
        let top = self.points.iter().map(|&(_, v)| v).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
        let height = self.height.max(1);
        for line in (0..height).rev() {
            let (from, to) = (top * line as f64 / height as f64, top * (line + 1) as f64 / height as f64);
            if gutter > 0 {
                let inside = |v: f64| v >= from && (v < to || line + 1 == height);
                let label = self.ticks.iter().rev().find(|&&(v, _)| inside(v)).map_or("", |(_, label)| label);
                write!(out, "{}{}", terminal.dim(&right(label, labels)), terminal.pick(" │", " |"))?;
            }
            let text: String = values
                .iter()
                .map(|value| match value {
                    None => " ",
                    Some(value) => {
                        let full = (value / top * height as f64 - line as f64).clamp(0.0, 1.0);
                        let eighths = (full * 8.0).round() as usize;
                        // A value above 0 is always visible.
                        let eighths = if line == 0 && *value > 0.0 { eighths.max(1) } else { eighths };
                        if terminal.unicode {
                            EIGHTHS[eighths]
                        } else {
                            [" ", "#"][usize::from(eighths >= 4 || (line == 0 && eighths > 0))]
                        }
                    }
                })
                .collect();
            let text = text.trim_end();
            writeln!(
                out,
                "{}",
                if text.is_empty() { String::new() } else { terminal.paint(text, Some(ACCENT), None) }
            )?;
        }
        above_axis(out, terminal, gutter, columns, self.time, self.marks)?;
        time_axis(out, terminal, gutter, columns, self.time)
    }

    /// The value of each column, if it has one.
    fn values(&self, columns: usize) -> Vec<Option<f64>> {
        let (start, end) = (self.time.0.as_secs_f64(), self.time.1.as_secs_f64());
        let mut sums = vec![(0.0_f64, 0_u32); columns];
        for &(time, value) in self.points {
            let at = (time.as_secs_f64() - start) / (end - start).max(1e-9) * columns as f64;
            // A value covers the time before it.
            let column = ((at.ceil() as usize).max(1) - 1).min(columns.saturating_sub(1));
            if let Some((sum, n)) = sums.get_mut(column) {
                *sum = if self.largest { sum.max(value) } else { *sum + value };
                *n += 1;
            }
        }
        let mut values: Vec<_> = sums
            .into_iter()
            .map(|(sum, n)| (n > 0).then(|| if self.largest { sum } else { sum / f64::from(n) }))
            .collect();
        let wide = (end - start).max(1e-9) / columns.max(1) as f64;
        if !self.spans.is_empty() {
            for (nth, (&(time, value), span)) in self.points.iter().zip(self.spans).enumerate() {
                // The first survey has none before it.
                let span = if nth == 0 && span.is_zero() { time } else { *span };
                let to = ((time.as_secs_f64() - start) / wide).ceil().max(1.0) as usize - 1;
                let from = ((time.as_secs_f64() - span.as_secs_f64() - start) / wide).floor().max(0.0) as usize;
                let covered = values.iter_mut().take(to + 1).skip(from);
                covered.filter(|column| column.is_none()).for_each(|column| *column = Some(value));
            }
            return values;
        }
        // A value covers all columns back to the previous value, unless values are missing in between.
        let reach = 2 * columns / self.points.len().max(1) + 2;
        let mut next: Option<(usize, f64)> = None;
        for column in (0..columns).rev() {
            match values[column] {
                Some(value) => next = Some((column, value)),
                None => values[column] = next.filter(|&(at, _)| at - column < reach).map(|(_, value)| value),
            }
        }
        values
    }
}

/// Writes the time axis below a plot of `columns`, after a gutter.
pub(crate) fn time_axis(
    out: &mut dyn Write,
    terminal: &Terminal,
    gutter: usize,
    columns: usize,
    (start, end): (Duration, Duration),
) -> io::Result<()> {
    let span = (end - start.min(end)).as_secs_f64().max(1e-9);
    let column =
        |t: Duration| ((t.saturating_sub(start).as_secs_f64() / span * columns as f64) as usize).min(columns - 1);
    let ticks: Vec<_> = (1..=(columns / 9).max(1))
        .rev()
        .map(|most| ticks::time(start, end, most))
        .find(|ticks| ticks.windows(2).all(|pair| column(pair[0].0) + width(&pair[0].1) + 1 < column(pair[1].0)))
        .unwrap_or_default()
        .into_iter()
        .map(|(t, label)| (column(t), label))
        .collect();
    let (dash, tick, corner) = (terminal.pick("─", "-"), terminal.pick("┴", "+"), terminal.pick("└", "+"));
    let line: String = (0..columns).map(|c| if ticks.iter().any(|&(at, _)| at == c) { tick } else { dash }).collect();
    let corner = if gutter > 0 { corner } else { "" };
    writeln!(out, "{:gutter$}{corner}{line}", "")?;
    let mut labels = String::new();
    for (at, label) in ticks {
        // A label starts at its tick. The last label may be moved to the left.
        let at = at.min(columns.saturating_sub(width(&label)));
        if at >= width(&labels) {
            labels = left(&labels, at) + &label;
        }
    }
    let shift = gutter + usize::from(gutter > 0);
    writeln!(out, "{:shift$}{}", "", terminal.dim(&labels))
}

/// A bar of `columns` for a share of 0 to 1.
pub(crate) fn bar(share: f64, columns: usize, terminal: &Terminal) -> String {
    let eighths = (share.clamp(0.0, 1.0) * columns as f64 * 8.0).round() as usize;
    if !terminal.unicode {
        return left(&"#".repeat(eighths.div_ceil(8)), columns);
    }
    const LEFT: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    left(&("█".repeat(eighths / 8) + LEFT[eighths % 8]), columns)
}
