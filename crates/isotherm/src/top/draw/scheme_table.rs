//! The table of schemes: totals of each, and the last application of one of them.

use std::time::Duration;

use isotherm_core::scheme::ActedRegion;
use isotherm_core::units;
use isotherm_report::extent::shown_name;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::super::app::App;
use super::super::scheme_activity::SchemeStatus;
use super::painter::Painter;
use super::schemes::{rate, reasons};

const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

/// Width of names, and the column where they start.
const NAME: u16 = 14;
const START: u16 = 2;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    Action,
    State,
    Tried,
    Passed,
    Applied,
    Unmapped,
    Returned,
    Rate,
    Refused,
    Why,
    Rejected,
    Quota,
    Exceeded,
    Goal,
    Time,
}

/// The columns after the name: title, width, and rank. On a narrow screen the highest rank is left out first.
const COLUMNS: [(Column, &str, u16, u8); 15] = [
    (Column::Action, "action", 11, 1),
    (Column::State, "state", 8, 3),
    (Column::Tried, "tried", 10, 7),
    (Column::Passed, "advised", 10, 12),
    (Column::Applied, "applied", 10, 0),
    (Column::Unmapped, "not freed", 11, 13),
    (Column::Returned, "came back", 11, 14),
    (Column::Rate, "recently", 11, 2),
    (Column::Refused, "refused", 10, 4),
    (Column::Why, "why", 12, 9),
    (Column::Rejected, "rejected", 10, 8),
    (Column::Quota, "quota", 10, 5),
    (Column::Exceeded, "exceeded", 9, 11),
    (Column::Goal, "goal", 7, 10),
    (Column::Time, "time", 9, 6),
];

/// Draws the schemes, as many as fit, and the last application of the selected one.
pub fn schemes(app: &App, painter: &Painter, place: Rect, buffer: &mut Buffer) {
    let mut rows = place.rows();
    let Some(heading) = rows.next() else { return };
    let reversed = Style::new().add_modifier(Modifier::REVERSED);
    buffer.set_style(heading, reversed);
    let statuses = app.model().schemes.all();
    let chosen = app.view.scheme.min(statuses.len().saturating_sub(1));
    let columns = columns(&statuses, place.width);

    // Leave some lines for the last application.
    let lines = usize::from(place.height - 1);
    let shown = statuses.len().min(lines.saturating_sub(if lines >= 4 { 2 } else { 1 }).max(1));
    let first = (chosen + 1).saturating_sub(shown);
    let title = if shown < statuses.len() {
        format!("{}-{} of {}", first + 1, first + shown, statuses.len())
    } else {
        "scheme".into()
    };
    painter.text(buffer, heading, START, &title, reversed);
    line(&columns, painter, heading, buffer, |_, title| (title.into(), reversed));
    for (nth, status) in statuses.iter().enumerate().skip(first).take(shown) {
        let Some(row) = rows.next() else { return };
        if nth < 9 {
            painter.text(buffer, row, 0, &format!("{}", nth + 1), DIM);
        }
        let name = painter.cut(&status.report.name, NAME.into());
        painter.text(buffer, row, START, &name, if nth == chosen { BOLD } else { Style::new() });
        line(&columns, painter, row, buffer, |column, _| cell(column, status, painter));
    }
    if let Some(status) = statuses.get(chosen) {
        last(app, status, painter, rows, buffer);
    }
}

/// The columns that have information and fit.
fn columns(statuses: &[SchemeStatus<'_>], width: u16) -> Vec<Column> {
    let any = |holds: fn(&SchemeStatus<'_>) -> bool| statuses.iter().any(holds);
    let says = |column| match column {
        Column::Why => any(|status| !status.report.total.refusals.is_empty()),
        Column::Unmapped => any(|status| status.report.total.unmapped_bytes > 0),
        Column::Returned => any(|status| status.report.total.watched_bytes > 0),
        Column::Passed => any(|status| status.report.total.passed_bytes != status.report.total.applied_bytes),
        Column::Rejected => any(|status| {
            let total = &status.report.total;
            total.rejected_bytes > 0 || total.passed_bytes != total.tried_bytes
        }),
        Column::Quota => any(|status| status.report.quota.is_some()),
        Column::Exceeded => any(|status| status.report.quota.is_some() || status.report.total.quota_exceeded > 0),
        Column::Goal => any(|status| status.report.goal_score.is_some()),
        _ => true,
    };
    let mut by_need: Vec<_> = COLUMNS.iter().filter(|(column, ..)| says(*column)).collect();
    by_need.sort_by_key(|(.., need)| need);
    let mut left = width.saturating_sub(START + NAME);
    by_need.retain(|(_, _, width, _)| {
        let fits = *width <= left;
        left -= if fits { *width } else { 0 };
        fits
    });
    COLUMNS.iter().filter(|column| by_need.contains(column)).map(|&(column, ..)| column).collect()
}

fn line(
    columns: &[Column],
    painter: &Painter,
    row: Rect,
    buffer: &mut Buffer,
    text: impl Fn(Column, &str) -> (String, Style),
) {
    let mut x = START + NAME;
    for (column, title, width, _) in COLUMNS {
        if !columns.contains(&column) {
            continue;
        }
        let (text, style) = text(column, title);
        if matches!(column, Column::Action | Column::Why) {
            let place = Rect { width: (x + width).min(row.width), ..row };
            painter.text(buffer, place, x + 1, &painter.cut(&text, usize::from(width - 1)), style);
        }
        x += width;
        if !matches!(column, Column::Action | Column::Why) {
            painter.right(buffer, Rect { width: x.min(row.width), ..row }, x, &text, style);
        }
    }
}

fn cell(column: Column, status: &SchemeStatus<'_>, painter: &Painter) -> (String, Style) {
    let SchemeStatus { report, quota, .. } = status;
    let total = &report.total;
    let bytes = |bytes: u64| (units::table_bytes(bytes), if bytes > 0 { Style::new() } else { DIM });
    let plain = |text: String| (text, Style::new());
    let none = || (painter.pick("–", "-").to_owned(), DIM);
    match column {
        Column::Action => plain(report.action.name.to_string()),
        Column::State if report.awake => plain("awake".into()),
        Column::State => ("asleep".into(), BOLD),
        Column::Tried => bytes(total.tried_bytes),
        Column::Passed => bytes(total.passed_bytes),
        Column::Applied => bytes(total.applied_bytes),
        Column::Unmapped => bytes(total.unmapped_bytes),
        Column::Returned if total.watched_bytes == 0 => none(),
        Column::Returned => plain(units::percent(total.returned_bytes as f64 / total.watched_bytes as f64)),
        Column::Rate => (rate(status.rate), if status.rate < 1.0 { DIM } else { Style::new() }),
        Column::Refused => {
            let (text, style) = bytes(total.refused_bytes());
            (text, if total.refused_bytes() > 0 { painter.warning() } else { style })
        }
        Column::Why => plain(reasons(&total.refusals)),
        Column::Rejected => bytes(total.rejected_bytes),
        Column::Quota => match (quota, report.quota) {
            (_, Some(limit)) => plain(units::bytes(limit)),
            _ => none(),
        },
        Column::Exceeded => plain(units::count(total.quota_exceeded)),
        Column::Goal => report.goal_score.map_or_else(none, |score| plain(units::percent(score))),
        Column::Time => plain(units::duration(total.time)),
    }
}

/// Draws the last application of a scheme.
fn last(
    app: &App,
    status: &SchemeStatus<'_>,
    painter: &Painter,
    rows: impl Iterator<Item = Rect>,
    buffer: &mut Buffer,
) {
    let mut rows = rows.collect::<Vec<Rect>>().into_iter();
    let mut next = |style: Style, text: String| {
        let Some(row) = rows.next() else { return 0 };
        painter.text(buffer, row, START, &painter.cut(&text, usize::from(row.width.saturating_sub(START))), style);
        rows.len()
    };
    let mut left = next(BOLD, headline(app, status));
    if left >= 4 && !status.selects.is_empty() {
        left = next(DIM, status.selects.into());
    }
    let regions = status.acted.map_or(&[][..], |application| &application.regions);
    for (nth, region) in regions.iter().enumerate() {
        if left == 1 && regions.len() - nth > 1 {
            next(DIM, format!("… and {} others", regions.len() - nth));
            return;
        }
        if left == 0 {
            return;
        }
        left = next(Style::new(), region_line(app, region));
    }
}

fn headline(app: &App, status: &SchemeStatus<'_>) -> String {
    let (report, newest) = (status.report, &status.report.last);
    let mut text = match status.acted {
        Some(acted) => {
            let sum = |of: fn(&ActedRegion) -> u64| acted.regions.iter().map(of).fold(0, u64::saturating_add);
            let bytes = of_asked(sum(|region| region.applied), sum(|region| region.range.size()));
            let regions = units::counted(acted.regions.len() as u64, "region");
            let now = app.model().schemes.newest().map_or(app.model().now, |newest| newest.time);
            let ago = now.saturating_sub(acted.time).as_secs();
            let ago =
                if ago > 0 { format!(", {} ago", units::duration(Duration::from_secs(ago))) } else { String::new() };
            let at = units::duration(Duration::from_millis(acted.time.as_millis() as u64 / 100 * 100));
            format!("{} last at {at}{ago}: {regions}, {bytes}", report.name)
        }
        None if report.total.applications > 0 => format!("{} has found nothing to act on", report.name),
        None => format!("{} was not applied yet", report.name),
    };
    let left = [("held back", newest.held_back_bytes), ("unobservable", newest.unobservable_bytes)];
    let left =
        left.iter().filter(|(_, bytes)| *bytes > 0).map(|(what, bytes)| format!("{what} {}", units::bytes(*bytes)));
    let left: Vec<String> = left.collect();
    if !left.is_empty() {
        text += &format!("; {}", left.join(", "));
    }
    text
}

fn of_asked(applied: u64, asked: u64) -> String {
    match applied {
        _ if applied == asked => units::bytes(applied),
        0 => format!("nothing of {}", units::bytes(asked)),
        _ => format!("{} of {}", units::bytes(applied), units::bytes(asked)),
    }
}

fn region_line(app: &App, region: &ActedRegion) -> String {
    let ActedRegion { target, range, applied } = *region;
    let track = app.model().tracks.iter().find(|track| track.id == target);
    // The range of several mappings with one name goes from the first to the last. So take the smallest that
    // contains it.
    let mappings = track.map_or(&[][..], |track| &track.figures.mappings);
    let holding = mappings.iter().filter(|mapping| mapping.range.intersection(range) == Some(range));
    let name = holding.min_by_key(|mapping| mapping.range.size()).map_or("", |mapping| shown_name(&mapping.name));
    let of_several = match target.pid() {
        Some(pid) if app.model().tracks.len() > 1 => format!("pid {pid}  "),
        _ => String::new(),
    };
    format!("{of_several}{:#x} to {:#x}  {}  {name}", range.start(), range.end(), of_asked(applied, range.size()))
}
