//! A line for each scheme: recent rate, totals, quota and goal.

use isotherm_core::scheme::{RefusalCount, Report};
use isotherm_core::units;
use isotherm_report::sanitise;
use isotherm_report::schemes::refusal_name;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::super::app::App;
use super::super::scheme_activity::{QuotaUse, SchemeStatus};
use super::header::{in_a_row, label};
use super::painter::Painter;

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);

/// The maximum width of names.
const NAME: usize = 16;

/// The width of the rate.
const RATE: u16 = 11;

/// Draws the schemes, as many as fit.
pub fn lines(app: &App, painter: &Painter, place: Rect, buffer: &mut Buffer) {
    let statuses = app.model().schemes.all();
    let rows = usize::from(place.height);
    if statuses.is_empty() || rows == 0 {
        return;
    }
    if rows == 1 && statuses.len() > 1 {
        return together(&statuses, painter, place, buffer);
    }
    let shown = if statuses.len() > rows { rows - 1 } else { statuses.len() };
    let widest = |text: fn(&Report) -> &str, most: usize| {
        let width =
            statuses[..shown].iter().map(|status| painter.width(&sanitise(text(status.report)))).max().unwrap_or(0);
        width.min(most) as u16
    };
    let (names, actions) = (widest(|report| &report.name, NAME), widest(|report| &report.action.name, NAME));
    for (nth, (status, row)) in statuses[..shown].iter().zip(place.rows()).enumerate() {
        let start = label(painter, buffer, row, if nth == 0 { "schemes" } else { "" });
        let report = status.report;
        painter.text(buffer, row, start, &painter.cut(&report.name, names.into()), BOLD);
        painter.text(buffer, row, start + names + 1, &report.action.name, Style::new());
        let end = start + names + 1 + actions + RATE;
        if end > row.width {
            continue;
        }
        let (text, style) = if report.awake { (rate(status.rate), Style::new()) } else { ("asleep".into(), DIM) };
        painter.right(buffer, row, end, &text, style);
        let left = usize::from(row.width.saturating_sub(end + 2));
        let width = |parts: &[(String, Style)]| parts.iter().map(|(text, _)| painter.width(text) + 3).sum::<usize>();
        let parts = Some(parts(status, painter, true))
            .filter(|p| width(p) <= left + 3)
            .unwrap_or(parts(status, painter, false));
        // `in_a_row` always writes the first part.
        if parts.first().is_some_and(|(text, _)| painter.width(text) <= left) {
            in_a_row(parts, end + 2, painter, row, buffer);
        }
    }
    if statuses.len() > shown {
        let Some(row) = place.rows().nth(shown) else { return };
        let start = label(painter, buffer, row, "");
        let rest = statuses.len() - shown;
        painter.text(buffer, row, start, &format!("… and {rest} more: a shows all"), DIM);
    }
}

/// The parts of a scheme's line, the most important first, in a long or a short form.
fn parts(status: &SchemeStatus<'_>, painter: &Painter, long: bool) -> Vec<(String, Style)> {
    let total = &status.report.total;
    let mut parts = vec![(format!("{} in all", units::table_bytes(total.applied_bytes)), Style::new())];
    if !total.refusals.is_empty() {
        let (refused, why) = (units::table_bytes(total.refused_bytes()), reasons(&total.refusals));
        parts.push((format!("{refused} {}{why}", if long { "refused: " } else { "" }), painter.warning()));
    }
    if let Some(quota) = status.quota {
        let share = units::percent(quota.used as f64 / quota.limit.max(1) as f64);
        parts.push((if long { format!("quota {}", used(quota)) } else { format!("quota {share}") }, Style::new()));
    }
    if let Some(score) = status.report.goal_score {
        parts.push((format!("goal {}", units::percent(score)), Style::new()));
    }
    parts
}

/// Draws all schemes in one line.
fn together(statuses: &[SchemeStatus<'_>], painter: &Painter, place: Rect, buffer: &mut Buffer) {
    let sum = |of: fn(&Report) -> u64| statuses.iter().map(|status| of(status.report)).fold(0, u64::saturating_add);
    let rates = statuses.iter().map(|status| status.rate).sum();
    let asleep = statuses.iter().filter(|status| !status.report.awake).count();
    let refused = sum(|report| report.total.refused_bytes());
    let parts = [
        Some((format!("{} schemes", statuses.len()), BOLD)),
        (asleep > 0).then(|| (format!("{asleep} asleep"), DIM)),
        Some((rate(rates), Style::new())),
        Some((format!("{} in all", units::table_bytes(sum(|report| report.total.applied_bytes))), Style::new())),
        (refused > 0).then(|| (format!("{} refused", units::bytes(refused)), painter.warning())),
    ];
    let start = label(painter, buffer, place, "schemes");
    in_a_row(parts.into_iter().flatten(), start, painter, place, buffer);
}

/// Formats bytes per second.
pub fn rate(bytes: f64) -> String {
    if bytes < 1.0 { "0".into() } else { format!("{}/s", units::bytes(bytes as u64)) }
}

/// Formats the use of a quota: `8.2 of 10 MiB/s`.
fn used(QuotaUse { limit, used, period }: QuotaUse) -> String {
    let (used, limit) = (units::table_bytes(used), units::table_bytes(limit));
    // Write the unit once if it is the same.
    let used = match (used.split_once(' '), limit.split_once(' ')) {
        (Some((number, unit)), Some((_, same))) if unit == same => number.to_owned(),
        _ => used,
    };
    if period.as_secs_f64() == 1.0 {
        format!("{used} of {limit}/s")
    } else {
        format!("{used} of {limit} in {}", units::duration(period))
    }
}

/// The names of error numbers, those of most bytes first.
pub fn reasons(refusals: &[RefusalCount]) -> String {
    let mut sorted: Vec<&RefusalCount> = refusals.iter().collect();
    sorted.sort_by_key(|count| std::cmp::Reverse(count.bytes));
    let more = if sorted.len() > 2 { " …" } else { "" };
    let names: Vec<String> =
        sorted.iter().take(2).map(|count| refusal_name(&count.refusal, count.unknown_reason.as_deref())).collect();
    names.join(", ") + more
}
