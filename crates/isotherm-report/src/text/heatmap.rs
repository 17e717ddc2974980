//! The heatmap for a terminal: half blocks in colour, or digits.

use std::io::{self, Write};

use isotherm_core::units;
use isotherm_record::Mark;

use super::chart::time_axis;
use super::marks::above_axis;
use super::title::{title, title_in};
use super::{Colour, Terminal, cut, name_in, right};
use crate::axis::{Area, Axis, AxisResolution};
use crate::colour::{ABSENT, Rgb, SWAPPED, UNKNOWN, UNOBSERVABLE, of_rate};
use crate::extent::{Extent, shown_name};
use crate::heatmap::{Heatmap, LeftOut, Plan, Shown, TargetMap};
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

/// The largest targets, at the resolution at which their lanes fill the terminal.
pub(crate) fn plan(terminal: &Terminal, extent: &Extent) -> Plan {
    let layout = Layout::new(terminal);
    // Time axis, legend and the prompt need lines, too. A lane of a title, an area and cells has six lines at least.
    let lines = terminal.rows.saturating_sub(6);
    let most = (lines / 6).clamp(4, 12);
    let lanes = extent.targets.len().clamp(1, most);
    let each = (lines / lanes).saturating_sub(2).max(4);
    let areas = if layout.gutter > 0 { (each / 4).clamp(1, 8) } else { 8 };
    let fineness = |rows| AxisResolution { rows, rows_of_area: layout.group, areas, group: layout.group };
    Plan::largest(extent, most, layout.plot, |target, share| {
        let lines = ((each * lanes) as f64 * share) as usize;
        let headed = if layout.gutter > 0 { Axis::new(&target.mapped, fineness(0)).areas.len() } else { 0 };
        (fineness(lines.saturating_sub(headed).max(2) * layout.group), None)
    })
}

/// Writes a lane for each target, on one time axis with the marks.
pub(crate) fn heatmap(out: &mut dyn Write, terminal: &Terminal, heatmap: &Heatmap, marks: &[Mark]) -> io::Result<()> {
    let layout = Layout::new(terminal);
    for (i, target) in heatmap.targets.iter().enumerate() {
        if i > 0 {
            writeln!(out)?;
        }
        write_title(out, terminal, target)?;
        for area in target.axis.areas.iter().rev() {
            write_area(out, terminal, &layout, heatmap, target, area)?;
        }
    }
    let time = (heatmap.start, heatmap.end);
    above_axis(out, terminal, layout.gutter, layout.plot, time, marks)?;
    time_axis(out, terminal, layout.gutter, layout.plot, time)?;
    super::note(out, terminal, heatmap.left_out.map(LeftOut::text))?;
    legend(out, terminal, heatmap)?;
    // Another line says how often surveys came.
    let worth = heatmap.measure == Measure::Rate || heatmap.intervals.varies();
    super::note(out, terminal, heatmap.caption().filter(|_| worth))
}

/// The target and its size, in two lines if one is too short for both.
fn write_title(out: &mut dyn Write, terminal: &Terminal, target: &TargetMap) -> io::Result<()> {
    let (columns, size) = (terminal.width(), format!(" ({})", target.size()));
    let room = columns.saturating_sub(super::width(&size));
    if room >= 40 || super::width(&title(target.id, &target.info)) <= room {
        let title = title_in(target.id, &target.info, room, terminal);
        return writeln!(out, "{}", terminal.bold(&(title + &size)));
    }
    writeln!(out, "{}", terminal.bold(&title_in(target.id, &target.info, columns, terminal)))?;
    writeln!(out, "{}", cut(&target.size(), columns, terminal))
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
        let measure = heatmap.measure;
        let text = if layout.group == 2 {
            half_blocks(terminal, measure, cells)
        } else {
            plain(terminal, measure, cells.map(|(low, _)| low))
        };
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

fn colour_of(measure: Measure, cell: Shown) -> Rgb {
    match cell {
        Shown::Rate(rate) => measure.colour(f64::from(rate)),
        Shown::Absent => ABSENT,
        Shown::Unobservable => UNOBSERVABLE,
        Shown::Unknown => UNKNOWN,
        Shown::Swapped => SWAPPED,
    }
}

/// Two rows of cells in one line. The upper half of each character is the row with higher addresses.
fn half_blocks(
    terminal: &Terminal,
    measure: Measure,
    cells: impl Iterator<Item = (Option<Shown>, Option<Shown>)>,
) -> String {
    let colour = |cell: Option<Shown>| cell.map(|cell| colour_of(measure, cell));
    runs(cells.map(|(low, high)| (colour(low), colour(high))), |(low, high), n| match (low, high) {
        (None, None) => " ".repeat(n),
        (Some(_), Some(_)) => terminal.paint(&"▀".repeat(n), high, low),
        (Some(_), None) => terminal.paint(&"▄".repeat(n), low, None),
        (None, Some(_)) => terminal.paint(&"▀".repeat(n), high, None),
    })
}

/// One row of cells in one line, as coloured spaces or as digits.
fn plain(terminal: &Terminal, measure: Measure, cells: impl Iterator<Item = Option<Shown>>) -> String {
    if terminal.colour != Colour::None {
        let colours = cells.map(|cell| cell.map(|cell| colour_of(measure, cell)));
        return runs(colours, |colour, n| terminal.paint(&" ".repeat(n), None, colour));
    }
    cells
        .map(|cell| match cell {
            None => ' ',
            Some(Shown::Unobservable) => '?',
            Some(Shown::Unknown) => 'u',
            Some(Shown::Swapped) => 's',
            Some(Shown::Absent) => '.',
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

/// A colour or character that is not of the scale.
struct OtherMark {
    colour: Rgb,
    letter: char,
    /// What it means, in full and short.
    long: &'static str,
    short: &'static str,
}

/// The marks of a heatmap that are not of its scale.
fn other_marks(heatmap: &Heatmap) -> Vec<OtherMark> {
    // Samples tell the rate, and surveys the other measures.
    let unknown = if heatmap.measure == Measure::Rate { "no sample" } else { "not known yet" };
    let all = [
        (UNOBSERVABLE, '?', "could not be observed", "unobserved", heatmap.may_show(Shown::Unobservable)),
        (UNKNOWN, 'u', unknown, "unknown", heatmap.shows(Shown::Unknown)),
        (SWAPPED, 's', "in swap", "swap", heatmap.shows(Shown::Swapped)),
        (ABSENT, '.', "absent", "absent", heatmap.shows(Shown::Absent)),
    ];
    let shown = all.into_iter().filter(|&(.., shown)| shown);
    shown.map(|(colour, letter, long, short, _)| OtherMark { colour, letter, long, short }).collect()
}

/// Writes what the characters or colours mean: the longest text that fits.
fn legend(out: &mut dyn Write, terminal: &Terminal, heatmap: &Heatmap) -> io::Result<()> {
    let texts = if terminal.colour == Colour::None { letters(heatmap) } else { colours(terminal, heatmap) };
    let fitting = texts.iter().find(|&&(wide, _)| wide <= terminal.width());
    writeln!(out, "{}", fitting.or(texts.last()).map_or("", |(_, text)| text))
}

/// What the characters mean, with the columns that it takes, the longest first.
fn letters(heatmap: &Heatmap) -> Vec<(usize, String)> {
    let (scale, long, short, blank) = match heatmap.measure {
        Measure::Rate => ("frequency: 0 none to 9 at 200 Hz", "0 none to 9 at 200 Hz", "0-9", "not mapped"),
        Measure::Touched => (
            "touched within a survey interval: 0 nothing to 9 all",
            "touched: 0 nothing to 9 all",
            "0-9",
            "nothing resident",
        ),
        Measure::IdleTime => (
            "idle: 9 just touched, 4 for about 1 min, 0 for 30 min",
            "idle: 9 just touched to 0 30 min",
            "0-9",
            "nothing resident",
        ),
    };
    let others = other_marks(heatmap);
    let with = |scale: &str, between: &str, each: fn(&OtherMark) -> String| {
        others.iter().fold(scale.to_owned(), |text, other| text + between + &each(other))
    };
    let short_mark = |mark: &OtherMark| format!("{} {}", mark.letter, mark.short);
    [
        with(scale, "; ", |mark| format!("{}: {}", mark.letter, mark.long)) + "; blank: " + blank,
        with(long, ", ", short_mark),
        with(short, ", ", short_mark),
        short.to_owned(),
    ]
    .map(|text| (super::width(&text), text))
    .into()
}

/// What the colours mean, with the columns that it takes, the longest first.
fn colours(terminal: &Terminal, heatmap: &Heatmap) -> Vec<(usize, String)> {
    let block = terminal.pick("█", " ");
    let paint = |rgb| {
        if terminal.unicode { terminal.paint(block, Some(rgb), None) } else { terminal.paint(block, None, Some(rgb)) }
    };
    let marks = &other_marks(heatmap)[..];
    let [title, cold, hot] = heatmap.measure.scale();
    let text =
        |low: &str, columns: usize, (marks, boxes): (&[OtherMark], usize), name: fn(&OtherMark) -> &'static str| {
            let scale: String = (0..columns).map(|i| paint(of_rate(i as f64 / (columns - 1) as f64))).collect();
            let mut text = format!("{low} {scale} {hot}");
            let mut wide = super::width(low) + columns + super::width(hot) + 2;
            for mark in marks {
                let name = name(mark);
                text += &format!("  {} {name}", paint(mark.colour).repeat(boxes));
                wide += 3 + boxes + super::width(name);
            }
            (wide, text)
        };
    let rest = terminal.width().saturating_sub(super::width(cold) + super::width(hot) + 2).max(2);
    vec![
        text(&format!("{title} {cold} (cold)"), 24, (marks, 2), |mark| mark.long),
        text(&format!("{title} {cold}"), 24, (marks, 2), |mark| mark.long),
        text(&format!("{} {cold}", heatmap.measure.title()), 12, (marks, 2), |mark| mark.short),
        text(cold, 8, (marks, 1), |mark| mark.short),
        text(cold, rest, (&[], 0), |mark| mark.short),
    ]
}
