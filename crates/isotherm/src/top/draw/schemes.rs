//! A line for each scheme: what it does of late, and what it has done.

use isotherm_core::scheme::{RefusalCount, Report};
use isotherm_core::units;
use isotherm_report::sanitise;
use isotherm_report::schemes::refusal_name;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::super::app::App;
use super::super::doings::{Doing, QuotaUse};
use super::header::{in_a_row, label};
use super::pen::Pen;

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);

/// The widest that names are here.
const NAME: usize = 16;

/// Columns of the rate.
const RATE: u16 = 11;

/// Draws them, as many as fit.
pub fn lines(app: &App, pen: &Pen, place: Rect, buffer: &mut Buffer) {
    let doings = app.model().doings.all();
    let room = usize::from(place.height);
    if doings.is_empty() || room == 0 {
        return;
    }
    if room == 1 && doings.len() > 1 {
        return together(&doings, pen, place, buffer);
    }
    let shown = if doings.len() > room { room - 1 } else { doings.len() };
    let widest = |text: fn(&Report) -> &str, most: usize| {
        let width = doings[..shown].iter().map(|doing| pen.width(&sanitise(text(doing.report)))).max().unwrap_or(0);
        width.min(most) as u16
    };
    let (names, actions) = (widest(|report| &report.name, NAME), widest(|report| &report.action.name, NAME));
    for (nth, (doing, row)) in doings[..shown].iter().zip(place.rows()).enumerate() {
        let start = label(pen, buffer, row, if nth == 0 { "schemes" } else { "" });
        let report = doing.report;
        pen.text(buffer, row, start, &pen.cut(&report.name, names.into()), BOLD);
        pen.text(buffer, row, start + names + 1, &report.action.name, Style::new());
        let end = start + names + 1 + actions + RATE;
        if end > row.width {
            continue;
        }
        let (text, style) = if report.awake { (rate(doing.rate), Style::new()) } else { ("asleep".into(), DIM) };
        pen.right(buffer, row, end, &text, style);
        let left = usize::from(row.width.saturating_sub(end + 2));
        let width = |parts: &[(String, Style)]| parts.iter().map(|(text, _)| pen.width(text) + 3).sum::<usize>();
        let parts = Some(parts(doing, pen, true)).filter(|p| width(p) <= left + 3).unwrap_or(parts(doing, pen, false));
        // The first is written in any case, cut or not.
        if parts.first().is_some_and(|(text, _)| pen.width(text) <= left) {
            in_a_row(parts, end + 2, pen, row, buffer);
        }
    }
    if doings.len() > shown {
        let Some(row) = place.rows().nth(shown) else { return };
        let start = label(pen, buffer, row, "");
        let rest = doings.len() - shown;
        pen.text(buffer, row, start, &format!("… and {rest} more: a shows all"), DIM);
    }
}

/// What a scheme has done, the most important first; in many words or in few.
fn parts(doing: &Doing<'_>, pen: &Pen, long: bool) -> Vec<(String, Style)> {
    let total = &doing.report.total;
    let mut parts = vec![(format!("{} in all", size(total.applied_bytes)), Style::new())];
    if !total.refusals.is_empty() {
        let (refused, why) = (size(total.refused_bytes()), reasons(&total.refusals));
        parts.push((format!("{refused} {}{why}", if long { "refused: " } else { "" }), pen.warning()));
    }
    if let Some(quota) = doing.quota {
        let share = units::percent(quota.used as f64 / quota.limit.max(1) as f64);
        parts.push((if long { format!("quota {}", used(quota)) } else { format!("quota {share}") }, Style::new()));
    }
    if let Some(score) = doing.report.goal_score {
        parts.push((format!("goal {}", units::percent(score)), Style::new()));
    }
    parts
}

/// All schemes in one line.
fn together(doings: &[Doing<'_>], pen: &Pen, place: Rect, buffer: &mut Buffer) {
    let sum = |of: fn(&Report) -> u64| doings.iter().map(|doing| of(doing.report)).fold(0, u64::saturating_add);
    let rates = doings.iter().map(|doing| doing.rate).sum();
    let asleep = doings.iter().filter(|doing| !doing.report.awake).count();
    let refused = sum(|report| report.total.refused_bytes());
    let parts = [
        Some((format!("{} schemes", doings.len()), BOLD)),
        (asleep > 0).then(|| (format!("{asleep} asleep"), DIM)),
        Some((rate(rates), Style::new())),
        Some((format!("{} in all", size(sum(|report| report.total.applied_bytes))), Style::new())),
        (refused > 0).then(|| (format!("{} refused", units::bytes(refused)), pen.warning())),
    ];
    let start = label(pen, buffer, place, "schemes");
    in_a_row(parts.into_iter().flatten(), start, pen, place, buffer);
}

/// Bytes; a plain zero for nothing.
pub fn size(bytes: u64) -> String {
    if bytes == 0 { "0".into() } else { units::bytes(bytes) }
}

/// Bytes a second.
pub fn rate(bytes: f64) -> String {
    if bytes < 1.0 { "0".into() } else { format!("{}/s", units::bytes(bytes as u64)) }
}

/// What is used of a quota: `8.2 of 10 MiB/s`.
fn used(QuotaUse { limit, used, period }: QuotaUse) -> String {
    let (used, limit) = (size(used), size(limit));
    // The unit once, if it is the same.
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

/// The names of error numbers, that of the most bytes first.
pub fn reasons(refusals: &[RefusalCount]) -> String {
    let mut sorted: Vec<&RefusalCount> = refusals.iter().collect();
    sorted.sort_by_key(|count| std::cmp::Reverse(count.bytes));
    let more = if sorted.len() > 2 { " …" } else { "" };
    let names: Vec<String> = sorted.iter().take(2).map(|count| refusal_name(&count.refusal, count.unknown_reason.as_deref())).collect();
    names.join(", ") + more
}
