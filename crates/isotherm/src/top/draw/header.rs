//! The lines above and below the pictures: what is watched, how warm it is, what watching costs, and the keys.

use isotherm_core::units;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::super::app::{App, Table};
use super::super::model::Track;
use super::pen::Pen;

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);

/// From this share of late rounds on, figures are doubtful: as the summary has it.
const MANY_LATE: f64 = isotherm_report::summary::MANY_LATE;

/// What is watched, and whether what is shown is now.
pub fn title(app: &App, pen: &Pen, place: Rect, buffer: &mut Buffer) {
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
    let width = pen.width(&state).min(place.width.into()) as u16;
    let left = Rect { width: place.width - width, ..place };
    let mut x = pen.text(buffer, left, 0, " isotherm ", bar.add_modifier(Modifier::BOLD));
    if let Some(track) = app.track() {
        let tracks = &model.tracks;
        let here = tracks.iter().position(|other| other.id == track.id).unwrap_or(0) + 1;
        let number = if tracks.len() > 1 { format!("[{here} of {}, Tab] ", tracks.len()) } else { String::new() };
        let gone = if app.ended.is_none() && !model.lives(track) { "(ended) " } else { "" };
        let others = if model.others > 0 { format!("(and {} others) ", model.others) } else { String::new() };
        let what = match track.id.pid() {
            Some(pid) => format!("pid {pid}: {}", track.info.command),
            None => track.info.command.clone(),
        };
        let text = format!("{number}{gone}{others}{what}");
        x = pen.text(buffer, left, x, &pen.cut(&text, usize::from(left.width.saturating_sub(x))), bar);
    }
    let style = if strong { bar.add_modifier(Modifier::BOLD) } else { bar };
    let start = place.width.saturating_sub(width).max(x.min(place.width - width));
    pen.text(buffer, place, start, &pen.cut(&state, width.into()), style);
}

/// Working set and temperature of the target; how much of it is in memory and in swap, if that is known.
pub fn memory(app: &App, track: &Track, pen: &Pen, place: Rect, buffer: &mut Buffer) {
    let total = &track.figures.total;
    let size = |bytes: f64| units::bytes(bytes.round() as u64);
    let mut rows = place.rows();
    let Some(first) = rows.next() else { return };
    let mut x = label(pen, buffer, first, "working set");
    x = pen.text(buffer, first, x, &size(total.working_set), BOLD);
    let share = units::percent(total.working_set / total.size.max(1.0));
    x = pen.text(buffer, first, x, &format!(" of {} mapped ({share})", size(total.size)), Style::new());
    if let Some((memory, system)) = app.model().doings.memory(track.id).zip(app.model().doings.newest()) {
        let mut parts = format!(" · RSS {}", units::bytes(memory.resident));
        if memory.swapped > 0 || system.system.swap_total > 0 {
            parts += &format!(" · swap {}", units::bytes(memory.swapped));
        }
        if usize::from(x) + pen.width(&parts) <= first.width.into() {
            x = pen.text(buffer, first, x, &parts, Style::new());
        }
    }
    let room = Rect { x: first.x + x + 2, width: first.width.saturating_sub(x + 3), ..first };
    if room.width >= 8 {
        pen.bar(buffer, room, total, total.size);
    }

    let Some(second) = rows.next() else { return };
    let x = label(pen, buffer, second, "memory");
    let parts = |dark| {
        [
            ("hot", total.hot, pen.rate(0.9)),
            ("warm", total.warm, pen.rate(0.5)),
            ("cold", total.cold, pen.rate(0.15)),
            (dark, total.unobservable, pen.grey()),
        ]
    };
    let width = |parts: &[(&str, f64, Style)]| -> usize {
        parts.iter().map(|(name, bytes, _)| name.len() + pen.width(&size(*bytes)) + 5).sum::<usize>() + usize::from(x)
    };
    let parts = Some(parts("unobservable")).filter(|p| width(p) <= place.width.into()).unwrap_or(parts("unobs."));
    let mut x = x;
    for (name, bytes, style) in parts {
        let text = size(bytes);
        // A figure that would be cut says something else.
        if usize::from(x) + name.len() + pen.width(&text) + 3 > place.width.into() {
            break;
        }
        if pen.coloured() {
            x = pen.text(buffer, second, x, pen.pick("■ ", "# "), style);
        }
        x = pen.text(buffer, second, x, &format!("{name} "), Style::new());
        x = pen.text(buffer, second, x, &text, BOLD) + 2;
    }
    let note = "hot: accessed in half of the samples or more";
    if usize::from(x) + note.len() + 2 < usize::from(second.width) {
        pen.right(buffer, second, second.width - 1, note, DIM);
    }
}

/// What the monitor takes.
pub fn monitor(app: &App, pen: &Pen, place: Rect, buffer: &mut Buffer) {
    if place.is_empty() {
        return;
    }
    if app.asleep() {
        return asleep(app, pen, place, buffer);
    }
    let took = &app.model().took;
    let late = took.late_rounds as f64 / took.rounds.max(1) as f64;
    let late_style = if late > MANY_LATE { pen.warning() } else { Style::new() };
    let cpu = format!("{:.1} %", took.cpu * 100.0);
    let [regions, most] = [took.regions, app.run.max_regions].map(|n| units::count(n as u64));
    let reads = units::count(took.reads.round() as u64);
    let [late, rounds] = [took.late_rounds, took.rounds].map(units::count);
    let dark = units::bytes(took.unobservable);
    let coarse = if app.run.coarse { ", a mapping at a time" } else { "" };
    let plain = Style::new();
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
    let start = label(pen, buffer, place, "monitor");
    let width = |parts: &[(String, Style)]| parts.iter().map(|(text, _)| pen.width(text) + 3).sum::<usize>();
    let parts = if usize::from(start) + width(&long) <= usize::from(place.width) + 3 { long } else { short };
    in_a_row(parts, start, pen, place, buffer);
}

/// The monitor does nothing, and why.
fn asleep(app: &App, pen: &Pen, place: Rect, buffer: &mut Buffer) {
    let start = label(pen, buffer, place, "monitor");
    let free = app.model().doings.newest().map_or(0.0, |newest| newest.system.free_share());
    let parts = [
        ("all schemes sleep: nothing is monitored".into(), pen.warning()),
        (format!("free memory {}", units::percent(free)), Style::new()),
    ];
    in_a_row(parts, start, pen, place, buffer);
}

/// Writes these with dots between them. A figure that would be cut says something else: what does not fit whole is left out.
pub fn in_a_row(
    parts: impl IntoIterator<Item = (String, Style)>,
    start: u16,
    pen: &Pen,
    place: Rect,
    buffer: &mut Buffer,
) {
    let mut x = start;
    for (text, style) in parts {
        let gap = if x == start { 0 } else { 3 };
        if x > start && usize::from(x) + gap + pen.width(&text) > usize::from(place.width) {
            break;
        }
        if x > start {
            x = pen.text(buffer, place, x, " · ", DIM);
        }
        x = pen.text(buffer, place, x, &text, style);
    }
}

pub fn label(pen: &Pen, buffer: &mut Buffer, place: Rect, name: &str) -> u16 {
    if place.width >= 48 {
        pen.right(buffer, place, 11, name, DIM);
        return 13;
    }
    let short = if name == "working set" { "wss " } else { "" };
    pen.text(buffer, place, 0, short, DIM)
}

/// The most important keys, as many as fit.
pub fn keys(app: &App, pen: &Pen, place: Rect, buffer: &mut Buffer) {
    let pause = if app.paused() { "go on" } else { "pause" };
    let zoomed = app.view.addresses.is_some();
    let mut keys = vec![("q", "quit"), ("?", "help"), ("Space", pause), ("↑↓", "cursor"), ("+", "zoom in")];
    if zoomed {
        keys.extend([("-", "out"), ("0", "all")]);
    }
    let schemes = app.view.table == Table::Schemes;
    if schemes {
        keys.insert(3, ("a", "mappings"));
        keys.insert(4, ("1-9", "scheme"));
    } else if app.model().doings.count() > 0 {
        keys.insert(3, ("a", "schemes"));
    }
    if app.view.anchor.is_some() {
        keys.insert(2, ("Enter", "zoom into selection"));
        keys.insert(3, ("Esc", "no selection"));
    }
    keys.extend([("[ ]", "time"), ("← →", "back, forth")]);
    if !app.follows() {
        keys.push(("End", "now"));
    }
    if !schemes {
        keys.extend([("s", "sort"), ("r", "reverse"), ("1-9", "zoom into mapping")]);
    }
    keys.push(("v", "select"));
    let mut x = 0;
    for (key, what) in keys {
        if usize::from(x) + pen.width(key) + pen.width(what) + 3 > usize::from(place.width) {
            break;
        }
        x = pen.text(buffer, place, x, &format!(" {key} "), Style::new().add_modifier(Modifier::REVERSED));
        x = pen.text(buffer, place, x, what, Style::new()) + 1;
    }
}
