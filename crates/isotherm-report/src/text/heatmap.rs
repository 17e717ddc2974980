//! The heatmap for a terminal: half blocks in colour, or digits.

use std::io::{self, Write};

use isotherm_core::units;

use super::chart::time_axis;
use super::{Colour, Terminal, cut, left, name_in, right, target_title};
use crate::axis::{Area, Axis, AxisResolution};
use crate::colour::{Rgb, SWAPPED, UNOBSERVABLE, of_rate};
use crate::extent::{Extent, shown_name};
use crate::heatmap::{Heatmap, Resolution, Shown, TargetMap};
use crate::measure::Measure;
use crate::ticks;

/// The division of the width of a terminal.
struct Layout {
    /// Columns for labels on the left and a space, or 0.
    gutter: usize,
    /// Columns for a mark, a space and names on the right, or 0.
    names: usize,
    /// Columns of the picture.
    plot: usize,
    /// Rows of the heatmap per line: 2 with half blocks.
    group: usize,
}

impl Layout {
    fn new(terminal: &Terminal) -> Self {
        let width = terminal.width();
        let gutter = if width >= 40 { 10 } else { 0 };
        let names = if width >= 72 { (width / 5).min(30) } else { 0 };
        let group = if terminal.colour != Colour::None && terminal.unicode { 2 } else { 1 };
        Self { gutter, names, plot: width - gutter - usize::from(gutter > 0) - names, group }
    }
}

/// The resolution at which the heatmap fills the terminal.
pub(crate) fn resolution(terminal: &Terminal, extent: &Extent) -> Resolution {
    let layout = Layout::new(terminal);
    let targets = extent.targets.len().max(1);
    // Title, axis, legend and the prompt need lines too.
    let lines = (terminal.rows.saturating_sub(4) / targets).saturating_sub(4).max(4);
    let areas = if layout.gutter > 0 { (lines / 4).clamp(1, 8) } else { 8 };
    let fineness = |rows| AxisResolution { rows, rows_of_area: layout.group, areas, group: layout.group };
    let headed =
        extent.targets.iter().map(|target| Axis::new(&target.mapped, fineness(0)).areas.len()).max().unwrap_or(1);
    let lines = if layout.gutter > 0 { lines.saturating_sub(headed) } else { lines };
    Resolution { columns: layout.plot, axis: fineness(lines.max(1) * layout.group) }
}

/// Writes a picture for each target.
pub(crate) fn heatmap(out: &mut dyn Write, terminal: &Terminal, heatmap: &Heatmap) -> io::Result<()> {
    let layout = Layout::new(terminal);
    for (i, target) in heatmap.targets.iter().enumerate() {
        if i > 0 {
            writeln!(out)?;
        }
        write_title(out, terminal, target)?;
        for area in target.axis.areas.iter().rev() {
            write_area(out, terminal, &layout, heatmap, target, area)?;
        }
        time_axis(out, terminal, layout.gutter, layout.plot, (heatmap.start, heatmap.end))?;
    }
    legend(out, terminal, heatmap.measure, heatmap.shows_swap())?;
    // Another line says how often surveys came.
    let worth = heatmap.measure == Measure::Rate || heatmap.intervals.varies();
    super::note(out, terminal, heatmap.caption().filter(|_| worth))
}

/// The target and its size, in two lines if one is too short for both.
fn write_title(out: &mut dyn Write, terminal: &Terminal, target: &TargetMap) -> io::Result<()> {
    let (title, size) = (target_title(target.id, &target.info), target.size());
    let line = format!("{title} ({size})");
    if super::width(&line) <= terminal.width() {
        return writeln!(out, "{}", terminal.bold(&line));
    }
    writeln!(out, "{}", terminal.bold(&cut(&title, terminal.width(), terminal)))?;
    writeln!(out, "{}", cut(&size, terminal.width(), terminal))
}

fn write_area(
    out: &mut dyn Write,
    terminal: &Terminal,
    layout: &Layout,
    heatmap: &Heatmap,
    target: &TargetMap,
    area: &Area,
) -> io::Result<()> {
    let dash = terminal.pick("─", "-");
    if layout.gutter > 0 {
        let text = format!("{dash} {:#x} to {:#x}: {} ", area.start(), area.end(), units::bytes(area.bytes));
        let text = cut(&text, layout.plot + 1, terminal);
        let rest = (layout.plot + 1).saturating_sub(super::width(&text));
        writeln!(out, "{:1$}{2}", "", layout.gutter, terminal.dim(&(text + &dash.repeat(rest))))?;
    }
    let lines = area.rows.div_ceil(layout.group);
    let rows_of = |line: usize| {
        let low = area.first_row + line * layout.group;
        (low, low + layout.group - 1)
    };
    let offset = |line: usize| area.row_offset(line * layout.group);
    let ticks = ticks::bytes(area.bytes, (lines / 3).max(1));
    let names: Vec<_> = (0..lines).map(|line| target.axis.row_name(rows_of(line).0)).collect();
    for line in (0..lines).rev() {
        if layout.gutter > 0 {
            let tick = ticks.iter().find(|(at, _)| (offset(line)..offset(line + 1)).contains(at));
            let label = tick.filter(|_| lines > 1).map_or("", |(_, label)| label);
            write!(out, "{}", terminal.dim(&right(label, layout.gutter - 1)))?;
            write!(out, "{}", terminal.pick(" │", " |"))?;
        }
        let (low, high) = rows_of(line);
        let high = (high < area.first_row + area.rows).then_some(high);
        let cells = (0..heatmap.columns)
            .map(|column| (target.shown(low, column), high.and_then(|row| target.shown(row, column))));
        let text =
            if layout.group == 2 { half_blocks(terminal, cells) } else { plain(terminal, cells.map(|(low, _)| low)) };
        if layout.names == 0 {
            writeln!(out, "{}", text.trim_end())?;
            continue;
        }
        let same = |other: Option<usize>| other.and_then(|i| names.get(i)) == Some(&names[line]);
        let (above, below) = (same(Some(line + 1)), same(line.checked_sub(1)));
        let mark = match (above, below) {
            (false, false) => terminal.pick("╶", "-"),
            (false, true) => terminal.pick("┐", "\\"),
            (true, true) => terminal.pick("│", "|"),
            (true, false) => terminal.pick("┘", "/"),
        };
        let name = if above { String::new() } else { short_name(&names[line], layout.names - 2, terminal) };
        writeln!(out, "{text}{}", terminal.dim(format!("{mark} {name}").trim_end()))?;
    }
    Ok(())
}

/// The name of a file without its directories.
fn short_name(name: &str, columns: usize, terminal: &Terminal) -> String {
    let name = shown_name(name);
    let base = if name.starts_with('/') { name.rsplit('/').next().unwrap_or(name) } else { name };
    name_in(base, columns, terminal)
}

fn colour_of(cell: Shown) -> Rgb {
    match cell {
        Shown::Rate(rate) => of_rate(f64::from(rate)),
        Shown::Unobservable => UNOBSERVABLE,
        Shown::Swapped => SWAPPED,
    }
}

/// Two rows of cells in one line. The upper half of each character is the row with higher addresses.
fn half_blocks(terminal: &Terminal, cells: impl Iterator<Item = (Option<Shown>, Option<Shown>)>) -> String {
    runs(cells.map(|(low, high)| (low.map(colour_of), high.map(colour_of))), |(low, high), n| match (low, high) {
        (None, None) => " ".repeat(n),
        (Some(_), Some(_)) => terminal.paint(&"▀".repeat(n), high, low),
        (Some(_), None) => terminal.paint(&"▄".repeat(n), low, None),
        (None, Some(_)) => terminal.paint(&"▀".repeat(n), high, None),
    })
}

/// One row of cells in one line, as coloured spaces or as digits.
fn plain(terminal: &Terminal, cells: impl Iterator<Item = Option<Shown>>) -> String {
    if terminal.colour != Colour::None {
        return runs(cells.map(|cell| cell.map(colour_of)), |colour, n| terminal.paint(&" ".repeat(n), None, colour));
    }
    cells
        .map(|cell| match cell {
            None => ' ',
            Some(Shown::Unobservable) => '?',
            Some(Shown::Swapped) => 's',
            Some(Shown::Rate(rate)) => digit(f64::from(rate)),
        })
        .collect()
}

/// 0 for memory without accesses, 1 to 9 for increasing access rates.
fn digit(rate: f64) -> char {
    char::from_digit((rate * 9.0).ceil().clamp(0.0, 9.0) as u32, 10).unwrap_or('0')
}

/// Joins equal neighbours, so that their colour is set once.
fn runs<T: PartialEq + Copy>(items: impl Iterator<Item = T>, show: impl Fn(T, usize) -> String) -> String {
    let mut text = String::new();
    let mut run: Option<(T, usize)> = None;
    for item in items {
        run = match run {
            Some((same, n)) if same == item => Some((same, n + 1)),
            Some((other, n)) => {
                text += &show(other, n);
                Some((item, 1))
            }
            None => Some((item, 1)),
        };
    }
    text + &run.map_or_else(String::new, |(item, n)| show(item, n))
}

fn legend(out: &mut dyn Write, terminal: &Terminal, measure: Measure, swap: bool) -> io::Result<()> {
    let width = terminal.width();
    if terminal.colour == Colour::None {
        let texts = match measure {
            Measure::Rate => [
                "access rate: 0 never to 9 always; ? could not be observed; blank: not mapped",
                "0 never to 9 always, ? not observable",
                "0-9, ? n/a",
            ],
            Measure::Touched => [
                "touched within a survey interval: 0 nothing to 9 all; blank: nothing resident",
                "touched: 0 nothing to 9 all",
                "0-9",
            ],
            Measure::IdleTime => [
                "idle: 9 just touched, 4 for about 1 min, 0 for 30 min; blank: nothing resident",
                "idle: 9 just touched to 0 30 min",
                "0-9",
            ],
        };
        let swaps = if swap { ["; s: in swap", ", s in swap", ", s swap"] } else { [""; 3] };
        let texts = texts.into_iter().zip(swaps).map(|(text, swap)| format!("{text}{swap}"));
        let text = texts.into_iter().find(|text| text.len() <= width).unwrap_or_default();
        return writeln!(out, "{text}");
    }
    let block = terminal.pick("█", " ");
    let paint = |rgb| {
        if terminal.unicode { terminal.paint(block, Some(rgb), None) } else { terminal.paint(block, None, Some(rgb)) }
    };
    let scale = |n: usize| -> String { (0..n).map(|i| paint(of_rate(i as f64 / (n - 1) as f64))).collect() };
    // What swap needs more.
    let (longer, long) = if swap { (14, 8) } else { (0, 0) };
    let two = |rgb| paint(rgb) + &paint(rgb);
    let text = if width >= 70 + longer {
        let [title, cold, hot] = measure.scale();
        let mut text = format!("{title} {cold} {} {hot}", scale(24));
        if measure == Measure::Rate {
            text += &format!("   {} could not be observed", two(UNOBSERVABLE));
        }
        if swap {
            text += &format!("   {} in swap", two(SWAPPED));
        }
        text
    } else if width >= 36 + long {
        let text = match measure.scale() {
            _ if measure == Measure::Rate => format!("rate 0 {} 1  {} unobserved", scale(12), paint(UNOBSERVABLE)),
            [title, cold, hot] => format!("{title} {cold} {} {hot}", scale(8)),
        };
        if swap { format!("{text}  {} swap", paint(SWAPPED)) } else { text }
    } else {
        format!("0 {} 1", scale(width - 4))
    };
    writeln!(out, "{}", left(&text, 0))
}
