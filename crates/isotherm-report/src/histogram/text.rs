//! A histogram for a terminal: a bar for each band, percentiles by name, and a chart over time.

use std::io::{self, Write};

use isotherm_core::units;

use super::{Histogram, NamedSizes, Sizes, folded};
use crate::colour::{UNKNOWN, UNOBSERVABLE, of_rate};
use crate::text::bar::{Part, stacked};
use crate::text::chart::Chart;
use crate::text::table::{Cell, Column, table};
use crate::text::{Terminal, wrap};
use crate::ticks;

/// The most names in a table.
const NAMES: usize = 12;

/// Characters of bands without colours, from cold to hot.
const SHADES: [(&str, &str); 4] = [("░", "."), ("▒", "-"), ("▓", "+"), ("█", "#")];

/// Writes the histogram.
pub(crate) fn write(out: &mut dyn Write, terminal: &Terminal, histogram: &Histogram<'_>) -> io::Result<()> {
    let width = terminal.width();
    writeln!(out, "{}", terminal.bold(&wrap(&histogram.title, width, 2)))?;
    for note in &histogram.notes {
        writeln!(out, "{}", wrap(note, width, 2))?;
    }
    writeln!(out)?;
    bands(out, terminal, histogram)?;
    for (title, all) in histogram.lists() {
        writeln!(out)?;
        names(out, terminal, histogram, title, all)?;
    }
    let Some((title, bands)) = &histogram.chart else { return Ok(()) };
    let points = histogram.over_time(bands);
    if points.len() > 1 {
        writeln!(out, "\n{}", terminal.bold(&wrap(title, width, 2)))?;
        let top = points.iter().map(|&(_, bytes)| bytes).fold(0.0, f64::max);
        let height = terminal.rows.saturating_sub(20).clamp(4, 8);
        let ticks = ticks::bytes(top as u64, height / 2).into_iter().map(|(v, label)| (v as f64, label)).collect();
        let chart = Chart {
            time: histogram.time(),
            points: &points,
            spans: &[],
            ticks,
            labels: 0,
            largest: false,
            height,
            marks: &[],
        };
        chart.write(out, terminal)?;
    }
    Ok(())
}

/// A part of a bar in the colour of a band.
fn part(bytes: u64, heat: f64) -> Part {
    let (unicode, ascii) = SHADES[((heat * SHADES.len() as f64) as usize).min(SHADES.len() - 1)];
    (bytes, of_rate(heat), unicode, ascii)
}

fn bands(out: &mut dyn Write, terminal: &Terminal, histogram: &Histogram<'_>) -> io::Result<()> {
    let all = histogram.total.all();
    let rows = histogram.bands.iter().zip(&histogram.total.bytes).map(|(band, &bytes)| {
        let full: Part = (bytes, of_rate(band.heat), "█", "#");
        (&*band.name, bytes, full)
    });
    let unobservable = (histogram.total.unobservable_bytes, UNOBSERVABLE, "?", "?");
    let unknown = (histogram.total.unknown_bytes, UNKNOWN, "u", "u");
    let others = [("not observable", unobservable), ("unknown", unknown)];
    let others = others.into_iter().filter(|(_, part)| part.0 > 0).map(|(name, part)| (name, part.0, part));
    let rows: Vec<_> = rows.chain(others).collect();
    let largest = rows.iter().map(|&(_, bytes, _)| bytes).max().unwrap_or(0);
    let row = |&(name, bytes, part): &(&str, u64, Part)| {
        let (text, styled) = stacked(&[part], largest, terminal.width().saturating_sub(44).clamp(8, 40), terminal);
        let share = units::percent(bytes as f64 / all.max(1) as f64);
        vec![name.into(), units::table_bytes(bytes).into(), share.into(), Cell::painted(text, styled)]
    };
    let columns = [
        Column::text(histogram.quantity, 0),
        Column::figure("bytes", 0),
        Column::figure("share", 1),
        Column::text("", 2),
    ];
    table(out, terminal, &columns, &rows.iter().map(row).collect::<Vec<_>>())
}

fn names(
    out: &mut dyn Write,
    terminal: &Terminal,
    histogram: &Histogram<'_>,
    title: &'static str,
    all: &[NamedSizes],
) -> io::Result<()> {
    let shown = folded(all, NAMES);
    let largest = shown.iter().map(|of| of.sizes.all()).max().unwrap_or(0);
    let row = |name: &str, sizes: &Sizes, bar: (String, String)| {
        let band = |p| sizes.percentile(p).and_then(|band| histogram.bands.get(band)).map_or("", |band| &band.name);
        let mut cells: Vec<Cell> = vec![units::table_bytes(sizes.all()).into()];
        cells.extend([25, 50, 75].map(|p| Cell::from(band(p))));
        cells.push(Cell::painted(bar.0, bar.1));
        cells.push(name.into());
        cells
    };
    let of_bar = |sizes: &Sizes| {
        let parts = histogram.bands.iter().zip(&sizes.bytes).map(|(band, &bytes)| part(bytes, band.heat));
        let unobservable = (sizes.unobservable_bytes, UNOBSERVABLE, "?", "?");
        let parts: Vec<Part> = parts.chain([unobservable, (sizes.unknown_bytes, UNKNOWN, "u", "u")]).collect();
        stacked(&parts, largest, 12, terminal)
    };
    let rows = shown.iter().map(|of| row(&of.name, &of.sizes, of_bar(&of.sizes)));
    let total = row("total", histogram.total, Default::default());
    let columns = [
        Column::figure("size", 0),
        Column::text("25 %", 3),
        Column::text("half", 1),
        Column::text("75 %", 2),
        Column::text("", 4),
        Column::name(title),
    ];
    table(out, terminal, &columns, &rows.chain([total]).collect::<Vec<_>>())
}
