//! What schemes did, in a terminal.

use std::io::{self, Write};

use super::chart::Chart;
use super::table::{Cell, Column, table};
use super::wss::time_of;
use super::{Terminal, fact, wrap};
use crate::escape::sanitise;
use crate::schemes::{Last, Points, Scheme, Schemes};
use crate::units;

/// Schemes that have charts; of more, those that were applied to most.
const CHARTS: usize = 8;

/// Writes a line for each scheme, then what is to be said of each, then charts over time.
pub(crate) fn schemes(out: &mut dyn Write, terminal: &Terminal, s: &Schemes) -> io::Result<()> {
    let (from, to) = s.time();
    let plural = if s.schemes.len() == 1 { "" } else { "s" };
    let head = format!("{} scheme{plural} in {}", units::count(s.schemes.len() as u64), units::duration(to - from));
    writeln!(out, "{}", terminal.bold(&wrap(&head, terminal.width(), 0)))?;
    if let Some(why) = &s.cut_short {
        writeln!(out, "{}", wrap(&format!("! {why}"), terminal.width(), 2))?;
    }
    writeln!(out)?;
    table(out, terminal, &COLUMNS, &s.schemes.iter().map(line).collect::<Vec<_>>())?;
    for scheme in &s.schemes {
        writeln!(out, "\n{}", terminal.bold(&wrap(&title(scheme), terminal.width(), 0)))?;
        for (name, text) in facts(scheme, s) {
            fact(out, terminal, name, &text)?;
        }
        if let Some(last) = &scheme.last {
            regions(out, terminal, last)?;
        }
    }
    charts(out, terminal, s)
}

const COLUMNS: [Column; 9] = [
    Column::name("scheme"),
    Column::text("action", 4),
    Column::figure("tried", 3),
    Column::figure("applied", 0),
    Column::figure("refused", 1),
    Column::figure("rejected", 2),
    Column::figure("held back", 5),
    Column::figure("took", 6),
    Column::figure("awake", 7),
];

fn line(scheme: &Scheme) -> Vec<Cell> {
    let (total, held_back) = (&scheme.total, scheme.last.as_ref().map_or(0, |last| last.held_back_bytes));
    vec![
        sanitise(&scheme.name).into_owned().into(),
        scheme.action.into(),
        size(total.tried_bytes).into(),
        size(total.applied_bytes).into(),
        size(total.refused_bytes()).into(),
        size(total.rejected_bytes).into(),
        size(held_back).into(),
        units::nanoseconds(total.spent_ns).into(),
        units::percent(scheme.awake_share).into(),
    ]
}

fn title(scheme: &Scheme) -> String {
    let gone = if scheme.in_force { "" } else { ", not in force at the end" };
    format!("{} ({}{gone})", sanitise(&scheme.name), scheme.action)
}

/// What is to be said of a scheme, for people; what it has not is left out.
pub(crate) fn facts(scheme: &Scheme, s: &Schemes) -> Vec<(&'static str, String)> {
    let total = &scheme.total;
    let mut facts = vec![
        (
            "tried",
            format!(
                "{} in {}, in {}",
                size(total.tried_bytes),
                counted(total.tried_regions, "region"),
                counted(total.applications, "application")
            ),
        ),
        ("applied", format!("to {} in {}", size(total.applied_bytes), counted(total.applied_regions, "region"))),
    ];
    if !total.refusals.is_empty() {
        let refused = |r: &crate::schemes::Refusal| {
            format!("{} {} in {}", r.called(), size(r.bytes), counted(r.regions, "region"))
        };
        facts.push(("refused", total.refusals.iter().map(refused).collect::<Vec<_>>().join("; ")));
    }
    if total.rejected_bytes > 0 {
        facts.push(("rejected", format!("{} by filters", size(total.rejected_bytes))));
    }
    let held_back = scheme.last.as_ref().map_or(0, |last| last.held_back_bytes);
    if scheme.quota_bytes.is_some() || total.quota_exceeded > 0 || held_back > 0 {
        let mut quota =
            scheme.quota_bytes.map_or_else(|| "no limit".into(), |quota| format!("{} a period", size(quota)));
        quota += &format!(" at the end; exceeded in {}", counted(total.quota_exceeded, "period"));
        if held_back > 0 {
            quota += &format!("; it held back {} in the last application", size(held_back));
        }
        facts.push(("quota", quota));
    }
    if let Some(score) = scheme.goal_score {
        facts.push(("goals", format!("reached to {} at the end", units::percent(score.max(0.0)))));
    }
    let now = if scheme.awake { "awake" } else { "asleep" };
    if scheme.awake_share < 1.0 || !scheme.awake {
        facts.push(("awake", format!("{} of the time; {now} at the end", units::percent(scheme.awake_share))));
    }
    let (from, to) = s.time();
    let share = total.spent_ns as f64 / ((to - from).as_nanos() as f64).max(1.0);
    facts.push(("took", format!("{}, {} of the time", units::nanoseconds(total.spent_ns), units::percent(share))));
    match &scheme.last {
        Some(last) => facts.push(("last applied", told(last))),
        None => facts.push(("last applied", "never".into())),
    }
    facts
}

/// The last application in a line.
fn told(last: &Last) -> String {
    let applied = last.regions.iter().map(|region| region.applied_bytes).fold(0, u64::saturating_add);
    let mut text = format!("at {}", units::nanoseconds(last.time_ns));
    text += &match last.regions.len() {
        0 => ", to nothing".into(),
        n => format!(", to {} in {}", size(applied), counted(n as u64, "region")),
    };
    if last.unobservable_bytes > 0 {
        text += &format!("; left alone {} that could not be observed", size(last.unobservable_bytes));
    }
    text
}

/// The first of the regions of the last application.
fn regions(out: &mut dyn Write, terminal: &Terminal, last: &Last) -> io::Result<()> {
    let most = (terminal.rows / 5).clamp(3, 10);
    if last.regions.is_empty() {
        return Ok(());
    }
    let indent = if terminal.width() >= 60 { 14 } else { 0 };
    let narrow = Terminal { columns: terminal.width() - indent, ..*terminal };
    let rows: Vec<Vec<Cell>> = last
        .regions
        .iter()
        .take(most)
        .map(|region| {
            vec![
                region.pid.to_string().into(),
                format!("{:#x}", region.start).into(),
                size(region.end - region.start).into(),
                size(region.applied_bytes).into(),
            ]
        })
        .collect();
    let columns =
        [Column::figure("pid", 1), Column::figure("from", 2), Column::figure("size", 3), Column::figure("applied", 0)];
    let mut text = vec![];
    table(&mut text, &narrow, &columns, &rows)?;
    if last.regions.len() > most {
        let more = format!("and {} more", units::count((last.regions.len() - most) as u64));
        writeln!(text, "{}", terminal.dim(&wrap(&more, narrow.width(), 0)))?;
    }
    for line in String::from_utf8_lossy(&text).lines() {
        writeln!(out, "{:indent$}{line}", "")?;
    }
    Ok(())
}

/// A quantity over time, and what it is counted in.
struct Series {
    title: String,
    points: Points,
    unit: Unit,
}

#[derive(Clone, Copy)]
enum Unit {
    Bytes,
    Percent,
}

fn charts(out: &mut dyn Write, terminal: &Terminal, s: &Schemes) -> io::Result<()> {
    let mut series = vec![];
    let (busiest, left_out) = s.busiest(CHARTS);
    for scheme in busiest {
        let name = sanitise(&scheme.name);
        let rate = s.rate(&scheme.name);
        series.push(Series { title: format!("{name}: applied, bytes a second"), points: rate, unit: Unit::Bytes });
        let quota = s.tuned_quota(&scheme.name);
        series.push(Series { title: format!("{name}: quota, bytes a period"), points: quota, unit: Unit::Bytes });
    }
    for (title, part) in [("RSS of the targets", 0), ("PSS of the targets", 1), ("swap of the targets", 2)] {
        let points = s.points(|moment| Some(moment.used()?[part] as f64));
        series.push(Series { title: title.into(), points, unit: Unit::Bytes });
    }
    let stalled = s.points(|moment| Some(moment.system.stalled_share? * 100.0));
    series.push(Series {
        title: "some task waits for memory (PSI), % of time".into(),
        points: stalled,
        unit: Unit::Percent,
    });
    let free = s.points(|moment| (moment.system.total_bytes > 0).then_some(moment.system.free_bytes as f64));
    series.push(Series { title: "free memory".into(), points: free, unit: Unit::Bytes });

    let height = (terminal.rows / 7).clamp(3, 6);
    for Series { title, points, unit } in series.into_iter().filter(|series| !series.points.is_empty()) {
        let top = points.iter().map(|&(_, value)| value).fold(0.0, f64::max);
        if top <= 0.0 {
            writeln!(out, "\n{}", wrap(&format!("{}: 0 all the time", terminal.bold(&title)), terminal.width(), 0))?;
            continue;
        }
        writeln!(out, "\n{}", terminal.bold(&wrap(&title, terminal.width(), 0)))?;
        let ticks = match unit {
            Unit::Bytes => bytes_ticks(top, height / 2),
            Unit::Percent => units::count_ticks(top, height / 2),
        };
        // All charts share one axis, so that they can be read down.
        let time = (time_of(&points).0.min(s.time().0), s.time().1);
        Chart { time, points: &points, ticks, largest: false, height }.write(out, terminal)?;
    }
    if left_out > 0 {
        let text = format!("{left_out} more schemes, applied to less, have no chart; take --format json");
        writeln!(out, "\n{}", terminal.dim(&wrap(&text, terminal.width(), 0)))?;
    }
    Ok(())
}

/// Even sizes with their labels.
pub(crate) fn bytes_ticks(top: f64, most: usize) -> Vec<(f64, String)> {
    units::byte_ticks(top as u64, most).into_iter().map(|(value, label)| (value as f64, label)).collect()
}

fn size(bytes: u64) -> String {
    if bytes == 0 { "0".into() } else { units::bytes(bytes) }
}

fn counted(n: u64, what: &str) -> String {
    format!("{} {what}{}", units::count(n), if n == 1 { "" } else { "s" })
}
