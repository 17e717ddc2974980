//! The table of processes.

use std::time::Duration;

use isotherm_core::units;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::super::app::App;
use super::super::model::Track;
use super::super::processes::{Entry, Line, Process};
use super::super::sort::Column;
use super::painter::Painter;
use super::table::{DIM, Place, bar, heading, line, rate, size};

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

/// Where the column of process IDs ends, and the others start.
const PID_END: u16 = 10;

/// The columns after the process ID, with this title of that of sizes.
const fn columns(size: &'static str) -> [Place; 6] {
    [
        (Column::Size, size, 10, 0),
        (Column::WorkingSet, "work.set", 10, 48),
        (Column::Hot, "hot", 9, 36),
        (Column::Rate, "rate", 7, 56),
        (Column::Age, "watched", 11, 64),
        (Column::Name, "command", 0, 0),
    ]
}

/// Draws the sorted processes, as many as fit, and marks the selected one.
pub fn processes(app: &App, selected: &Track, painter: &Painter, place: Rect, buffer: &mut Buffer) {
    let mut rows = place.rows();
    let Some(row) = rows.next() else { return };
    let lines = app.process_lines();
    let surveyed = lines.iter().any(|line| line.figures().resident.is_some());
    let columns = columns(if surveyed { "resident" } else { "mapped" });
    heading(painter, &columns, app.view.process_sort, PID_END, row, buffer);
    let heading = Style::new().add_modifier(Modifier::REVERSED);
    painter.right(buffer, Rect { width: PID_END.min(row.width), ..row }, PID_END, "pid", heading);

    let shown = usize::from(place.height - 1);
    let largest = lines.iter().map(|line| line.figures().total.size).fold(0.0, f64::max);
    let mut number = 0;
    for (nth, (entry, row)) in lines.iter().zip(rows.by_ref()).enumerate() {
        if nth + 1 == shown && lines.len() > shown {
            let rest = lines[nth..].iter().filter(|line| matches!(line.what, Entry::Process(_))).count();
            let plural = if rest == 1 { "" } else { "s" };
            painter.text(buffer, row, 2, &format!("… and {rest} other{plural}"), DIM);
            return;
        }
        let chosen = entry.target() == Some(selected.id);
        if entry.target().is_some() {
            number += 1;
            if number <= 9 {
                painter.text(buffer, row, 0, &number.to_string(), DIM);
            }
        }
        if chosen {
            painter.text(buffer, row, 1, painter.pick("▸", ">"), BOLD);
        }
        let bold = if chosen || matches!(entry.what, Entry::Cgroup(_)) { BOLD } else { Style::new() };
        painter.right(buffer, Rect { width: PID_END.min(row.width), ..row }, PID_END, &pid(entry), bold);
        let names = line(painter, &columns, PID_END, row, buffer, |column, _| {
            let (text, style) = cell(entry, surveyed, column);
            (text, style.patch(bold))
        });
        bar(painter, names, &entry.figures().total, largest, row, buffer);
    }
    if let Some(row) = rows.next().filter(|_| lines.is_empty()) {
        painter.text(buffer, row, 2, "all processes have ended", DIM);
    }
}

/// The ID of a process, or the number of processes in parentheses.
fn pid(line: &Line<'_>) -> String {
    match &line.what {
        Entry::Process(process) => process.id.pid().map_or(String::new(), |pid| pid.to_string()),
        Entry::Cgroup(group) => format!("({})", group.processes),
    }
}

fn cell(line: &Line<'_>, surveyed: bool, column: Column) -> (String, Style) {
    let figures = line.figures();
    match column {
        Column::Size if surveyed => figures.resident.map_or(("?".into(), DIM), size),
        Column::Size => size(figures.total.size),
        Column::WorkingSet => size(figures.total.working_set),
        Column::Hot => size(figures.total.hot),
        Column::Rate => rate(figures.rate, &figures.total),
        Column::Age => match &line.what {
            Entry::Process(process) => (watched(process), Style::new()),
            Entry::Cgroup(_) => (String::new(), Style::new()),
        },
        Column::Hz => (String::new(), Style::new()),
        Column::Name => {
            let name = match &line.what {
                Entry::Process(process) => &process.name,
                Entry::Cgroup(group) => group.name,
            };
            (format!("{:1$}{name}", "", 2 * line.depth), Style::new())
        }
    }
}

/// For how long a process is watched, in whole seconds, and whether it is new.
fn watched(process: &Process<'_>) -> String {
    let new = if process.new { "new " } else { "" };
    format!("{new}{}", units::duration(Duration::from_secs(process.watched.as_secs())))
}
