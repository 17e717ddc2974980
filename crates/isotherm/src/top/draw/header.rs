//! The lines above and below the pictures: title, memory, monitor, keys.

use std::time::Duration;

use isotherm_core::survey::NodeSums;
use isotherm_core::{Estimate, Pace, units};
use isotherm_report::{STARVED, colour, shown_command, shown_interval, shown_pid};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::super::app::{App, Table};
use super::super::model::Track;
use super::painter::Painter;

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);

/// Above this share of late rounds, figures are doubtful, as in the summary.
const MANY_LATE: f64 = isotherm_report::summary::MANY_LATE;

/// Draws the title: the target, and the time that is shown.
pub fn title(app: &App, painter: &Painter, place: Rect, buffer: &mut Buffer) {
    let bar = Style::new().add_modifier(Modifier::REVERSED);
    buffer.set_style(place, bar);
    let model = app.model();
    let time = units::duration(std::time::Duration::from_millis(model.now.as_millis() as u64 / 100 * 100));
    let state = match (&app.ended, app.paused()) {
        (Some(why), _) => format!(" ENDED after {time}: {why} "),
        (None, true) => format!(" PAUSED at {time} "),
        (None, false) if !app.follows() => format!(" at {}, now {time} ", units::duration(app.until())),
        (None, false) if app.asleep() => format!(" ASLEEP {time} "),
        (None, false) => format!(" {time} "),
    };
    let strong = app.ended.is_some() || app.paused() || app.asleep();
    let width = painter.width(&state).min(place.width.into()) as u16;
    let left = Rect { width: place.width - width, ..place };
    let mut x = painter.text(buffer, left, 0, " isotherm ", bar.add_modifier(Modifier::BOLD));
    if let Some(track) = app.track() {
        let tracks = &model.tracks;
        let here = tracks.iter().position(|other| other.id == track.id).unwrap_or(0) + 1;
        let number = if tracks.len() > 1 { format!("[{here} of {}, Tab] ", tracks.len()) } else { String::new() };
        let gone = if app.ended.is_none() && !model.lives(track) { "(ended) " } else { "" };
        let others =
            if model.others.is_empty() { String::new() } else { format!("(and {} others) ", model.others.len()) };
        let what = match track.id.pid() {
            Some(pid) => {
                let pid = shown_pid(pid, track.info.inner_pid);
                format!("pid {pid}: {}", shown_command(&track.info.command))
            }
            None => track.info.command.clone(),
        };
        let text = format!("{number}{gone}{others}{what}");
        x = painter.text(buffer, left, x, &painter.cut(&text, usize::from(left.width.saturating_sub(x))), bar);
    }
    let style = if strong { bar.add_modifier(Modifier::BOLD) } else { bar };
    let start = place.width.saturating_sub(width).max(x.min(place.width - width));
    painter.text(buffer, place, start, &painter.cut(&state, width.into()), style);
}

/// Draws working set and temperature of the target, and its RSS and swap if known.
pub fn memory(app: &App, track: &Track, painter: &Painter, place: Rect, buffer: &mut Buffer) {
    let total = &track.figures.total;
    let size = |bytes: f64| units::bytes(bytes.round() as u64);
    let mut rows = place.rows();
    let Some(first) = rows.next() else { return };
    let mut x = label(painter, buffer, first, "working set");
    let used = track.in_use.map_or(total.working_set, |(used, _)| used.value as f64);
    let not_known = track.in_use.map(|(used, _)| used).filter(|used| !track.is_figure(*used));
    let text = match (not_known, track.in_use) {
        (Some(Estimate { low, high, .. }), _) => units::bounds(low, high),
        (None, Some((used, _))) => used.to_string(),
        (None, None) => size(used),
    };
    x = painter.text(buffer, first, x, &text, BOLD);
    if let Some((_, within)) = track.in_use {
        let within = units::duration(Duration::from_secs(within.as_secs().max(1)));
        x = painter.text(buffer, first, x, &format!(" within {within},"), Style::new());
    }
    let share = match not_known {
        Some(_) => String::new(),
        None => format!(" ({})", units::percent(used / total.size.max(1.0))),
    };
    let what = if track.figures.resident.is_some() { "resident" } else { "mapped" };
    x = painter.text(buffer, first, x, &format!(" of {} {what}{share}", size(total.size)), Style::new());
    if let Some((memory, system)) = app.model().schemes.memory(track.id).zip(app.model().schemes.newest()) {
        let mut parts = format!(" · RSS {}", units::bytes(memory.resident));
        if memory.swapped > 0 || system.system.swap_total > 0 {
            parts += &format!(" · swap {}", units::bytes(memory.swapped));
        }
        if usize::from(x) + painter.width(&parts) <= first.width.into() {
            x = painter.text(buffer, first, x, &parts, Style::new());
        }
    }
    let bar_area = Rect { x: first.x + x + 2, width: first.width.saturating_sub(x + 3), ..first };
    if bar_area.width >= 8 {
        painter.bar(buffer, bar_area, total, total.size);
    }

    let Some(second) = rows.next() else { return };
    let x = label(painter, buffer, second, "memory");
    let parts = |dark| {
        let mut parts = vec![
            ("hot", total.hot, painter.rate(0.9)),
            ("warm", total.warm, painter.rate(0.5)),
            ("cold", total.cold, painter.rate(0.15)),
            (dark, total.unobservable, painter.in_colour(colour::UNOBSERVABLE)),
        ];
        if total.unknown >= 1.0 {
            parts.push(("unknown", total.unknown, painter.in_colour(colour::UNKNOWN)));
        }
        if track.lazily_freed > 0 {
            parts.push(("freed lazily", track.lazily_freed as f64, DIM));
        }
        parts
    };
    let width = |parts: &[(&str, f64, Style)]| -> usize {
        parts.iter().map(|(name, bytes, _)| name.len() + painter.width(&size(*bytes)) + 5).sum::<usize>()
            + usize::from(x)
    };
    let parts = Some(parts("unobservable")).filter(|p| width(p) <= place.width.into()).unwrap_or(parts("unobs."));
    let mut x = x;
    for (name, bytes, style) in parts {
        let text = size(bytes);
        // A figure that is cut would be wrong.
        if usize::from(x) + name.len() + painter.width(&text) + 3 > place.width.into() {
            break;
        }
        if painter.coloured() {
            x = painter.text(buffer, second, x, painter.pick("■ ", "# "), style);
        }
        x = painter.text(buffer, second, x, &format!("{name} "), Style::new());
        x = painter.text(buffer, second, x, &text, BOLD) + 2;
    }
    let note = "hot: accessed in half of the samples or more";
    if usize::from(x) + note.len() + 2 < usize::from(second.width) {
        painter.right(buffer, second, second.width - 1, note, DIM);
    }
}

/// Draws the memory of the target on each node.
pub fn nodes(track: &Track, painter: &Painter, place: Rect, buffer: &mut Buffer) {
    if place.is_empty() {
        return;
    }
    let start = label(painter, buffer, place, "nodes");
    let node = |on: &NodeSums| {
        let [present, touched] = [on.sums.figures.present, on.sums.figures.touched].map(units::bytes);
        (format!("{}: {present}, {touched} touched", on.node), Style::new())
    };
    in_a_row(track.nodes.iter().map(node), start, painter, place, buffer);
}

/// Draws the cost of the monitor.
pub fn monitor(app: &App, painter: &Painter, place: Rect, buffer: &mut Buffer) {
    if place.is_empty() {
        return;
    }
    if app.asleep() {
        return asleep(app, painter, place, buffer);
    }
    let monitor = &app.model().monitor;
    let late = monitor.late_rounds as f64 / monitor.rounds.max(1) as f64;
    let unreliable = late > STARVED;
    let late_style = if late > MANY_LATE { painter.warning() } else { Style::new() };
    let cpu = format!("{:.1} %", monitor.cpu * 100.0);
    let [regions, most] = [monitor.regions, app.run.max_regions].map(|n| units::count(n as u64));
    let reads = units::count(monitor.reads.round() as u64);
    let [late, rounds] = [monitor.late_rounds, monitor.rounds].map(units::count);
    let dark = units::bytes(monitor.unobservable);
    let coarse = if app.run.coarse { ", a mapping at a time" } else { "" };
    let plain = Style::new();
    let pace = pace(monitor.pace);
    let long = [
        (format!("{}{coarse}", app.run.probe), BOLD),
        (format!("{cpu} of a CPU"), plain),
        (format!("{regions} of {most} regions"), plain),
        (format!("{reads} reads/s"), plain),
        (format!("{late} of {rounds} rounds late"), late_style),
        (format!("{dark} unobservable"), plain),
    ];
    let short = [
        (app.run.probe.clone(), BOLD),
        (format!("{cpu} CPU"), plain),
        (format!("{regions}/{most} regions"), plain),
        (format!("{reads} reads/s"), plain),
        (format!("{late} late"), late_style),
        (format!("{dark} unobs."), plain),
    ];
    let start = label(painter, buffer, place, "monitor");
    let width = |parts: &[(String, Style)]| parts.iter().map(|(text, _)| painter.width(text) + 3).sum::<usize>();
    let parts = if usize::from(start) + width(&long) <= usize::from(place.width) + 3 { long } else { short };
    let warning = unreliable.then(|| ("rates and ages cannot be relied on".to_owned(), painter.warning()));
    let pace = pace.into_iter().map(|part| (part, plain));
    in_a_row(warning.into_iter().chain(parts).chain(pace), start, painter, place, buffer);
}

/// How often the run surveys and samples, and whether the budget allows for less than wanted.
fn pace(pace: Option<Pace>) -> Vec<String> {
    let Some(Pace { survey_interval, sampling_interval, is_limited, .. }) = pace else { return vec![] };
    let survey = survey_interval.map(|interval| format!("survey every {}", shown_interval(interval)));
    let sampling = sampling_interval.map(|interval| format!("sampling every {}", shown_interval(interval)));
    survey.into_iter().chain(sampling).chain(is_limited.then(|| "limited by the budget".into())).collect()
}

/// Draws why nothing is monitored.
fn asleep(app: &App, painter: &Painter, place: Rect, buffer: &mut Buffer) {
    let start = label(painter, buffer, place, "monitor");
    let free = app.model().schemes.newest().map_or(0.0, |newest| newest.system.free_share());
    let parts = [
        ("all schemes sleep: nothing is monitored".into(), painter.warning()),
        (format!("free memory {}", units::percent(free)), Style::new()),
    ];
    in_a_row(parts, start, painter, place, buffer);
}

/// Writes parts separated by dots. Parts that do not fit completely are left out, because a figure that is
/// cut would be wrong.
pub fn in_a_row(
    parts: impl IntoIterator<Item = (String, Style)>,
    start: u16,
    painter: &Painter,
    place: Rect,
    buffer: &mut Buffer,
) {
    let mut x = start;
    for (text, style) in parts {
        let gap = if x == start { 0 } else { 3 };
        if x > start && usize::from(x) + gap + painter.width(&text) > usize::from(place.width) {
            break;
        }
        if x > start {
            x = painter.text(buffer, place, x, " · ", DIM);
        }
        x = painter.text(buffer, place, x, &text, style);
    }
}

pub fn label(painter: &Painter, buffer: &mut Buffer, place: Rect, name: &str) -> u16 {
    if place.width >= 48 {
        painter.right(buffer, place, 11, name, DIM);
        return 13;
    }
    let short = if name == "working set" { "wss " } else { "" };
    painter.text(buffer, place, 0, short, DIM)
}

/// Draws the most important keys, as many as fit.
pub fn keys(app: &App, painter: &Painter, place: Rect, buffer: &mut Buffer) {
    let pause = if app.paused() { "continue" } else { "pause" };
    let zoomed = app.view.addresses.is_some();
    let mut keys = vec![("q", "quit"), ("?", "help"), ("Space", pause), ("↑↓", "cursor"), ("+", "zoom in")];
    if zoomed {
        keys.extend([("-", "out"), ("0", "all")]);
    }
    match app.view.table {
        Table::Schemes => keys.splice(3..3, [("a", "back"), ("1-9", "scheme")]).for_each(drop),
        _ if app.model().schemes.count() > 0 => keys.insert(3, ("a", "schemes")),
        _ => {}
    }
    match app.view.table {
        Table::Processes => {
            let form = if app.view.by_cgroup { "list" } else { "cgroups" };
            let here = [("t", "mappings"), ("g", form), ("s", "sort"), ("r", "reverse"), ("1-9", "select")];
            keys.splice(3..3, here).for_each(drop);
        }
        Table::Mappings if app.model().tracks.len() > 1 => keys.insert(3, ("t", "processes")),
        Table::Mappings | Table::Schemes => {}
    }
    if app.view.anchor.is_some() {
        keys.insert(2, ("Enter", "zoom into selection"));
        keys.insert(3, ("Esc", "no selection"));
    }
    keys.extend([("[ ]", "time"), ("← →", "back, forth")]);
    if !app.follows() {
        keys.push(("End", "now"));
    }
    if app.view.table == Table::Mappings {
        keys.extend([("s", "sort"), ("r", "reverse"), ("1-9", "zoom into mapping")]);
    }
    keys.push(("v", "select"));
    let mut x = 0;
    for (key, what) in keys {
        if usize::from(x) + painter.width(key) + painter.width(what) + 3 > usize::from(place.width) {
            break;
        }
        x = painter.text(buffer, place, x, &format!(" {key} "), Style::new().add_modifier(Modifier::REVERSED));
        x = painter.text(buffer, place, x, what, Style::new()) + 1;
    }
}
