//! What schemes did, for a terminal.

use std::io::{self, Write};

use isotherm_core::units::{self, counted};

use super::chart::Chart;
use super::table::{Cell, Column, table};
use super::wss::time_of;
use super::{Terminal, fact, wrap};
use crate::escape::sanitise;
use crate::schemes::{Application, Points, Scheme, Schemes, Total};
use crate::ticks;

/// The maximum number of schemes with charts: those that were applied to the most bytes.
const CHARTS: usize = 8;

/// Writes a table of the schemes, facts about each, and charts over time.
pub(crate) fn schemes(out: &mut dyn Write, terminal: &Terminal, s: &Schemes) -> io::Result<()> {
    let (from, to) = s.time();
    let head = format!("{} in {}", counted(s.schemes.len() as u64, "scheme"), units::duration(to - from));
    writeln!(out, "{}", terminal.bold(&wrap(&head, terminal.width(), 0)))?;
    if let Some(why) = &s.cut_short {
        writeln!(out, "{}", wrap(&format!("! {why}"), terminal.width(), 2))?;
    }
    if let Some(faults) = s.major_faults {
        let faults = counted(faults, "major fault");
        let text = format!("{faults} of the targets: pages read from a disk or swap");
        writeln!(out, "{}", wrap(&text, terminal.width(), 0))?;
    }
    if let Some(text) = net_freed(s.compressed_growth_bytes, s.net_freed_bytes) {
        writeln!(out, "{}", wrap(&text, terminal.width(), 0))?;
    }
    writeln!(out)?;
    table(out, terminal, &COLUMNS, &s.schemes.iter().map(line).collect::<Vec<_>>())?;
    for scheme in &s.schemes {
        writeln!(out, "\n{}", terminal.bold(&wrap(&title(scheme), terminal.width(), 0)))?;
        for (name, text) in facts(scheme, s) {
            fact(out, terminal, name, &text)?;
        }
        if let Some(last) = &scheme.last_acting {
            regions(out, terminal, last)?;
        }
    }
    charts(out, terminal, s)
}

/// The freed bytes, those by which compressed swap has `grown`, and the difference, which is `net`. `None` without
/// compressed swap, or if nothing was freed.
pub fn net_freed(grown: Option<i64>, net: Option<i64>) -> Option<String> {
    let (grown, net) = (grown?, net?);
    let freed = net.saturating_add(grown);
    (freed > 0).then(|| {
        format!(
            "{} freed, {} more in compressed swap: {} net",
            units::table_bytes(freed.cast_unsigned()),
            signed(grown),
            signed(net)
        )
    })
}

fn signed(bytes: i64) -> String {
    format!("{}{}", if bytes < 0 { "-" } else { "" }, units::table_bytes(bytes.unsigned_abs()))
}

const COLUMNS: [Column; 11] = [
    Column::name("scheme"),
    Column::text("action", 5),
    Column::figure("tried", 8),
    Column::figure("advised", 1),
    Column::figure("applied", 0),
    Column::figure("came back", 3),
    Column::figure("refused", 2),
    Column::figure("rejected", 4),
    Column::figure("held back", 6),
    Column::figure("took", 7),
    Column::figure("awake", 9),
];

fn line(scheme: &Scheme) -> Vec<Cell> {
    let (total, held_back) = (&scheme.total, scheme.last.as_ref().map_or(0, |last| last.held_back_bytes));
    vec![
        sanitise(&scheme.name).into_owned().into(),
        sanitise(&scheme.action).into_owned().into(),
        units::table_bytes(total.tried_bytes).into(),
        units::table_bytes(total.passed_bytes).into(),
        units::table_bytes(total.applied_bytes).into(),
        returned_share(scheme).unwrap_or_else(|| "-".into()).into(),
        units::table_bytes(total.refused_bytes()).into(),
        units::table_bytes(total.rejected_bytes).into(),
        units::table_bytes(held_back).into(),
        units::nanoseconds(total.spent_ns).into(),
        units::percent(scheme.awake_share).into(),
    ]
}

/// The share of what a scheme freed that came back soon. None if nothing was watched.
pub(crate) fn returned_share(scheme: &Scheme) -> Option<String> {
    let Total { watched_bytes, returned_bytes, .. } = scheme.total;
    (watched_bytes > 0).then(|| units::percent(returned_bytes as f64 / watched_bytes as f64))
}

fn title(scheme: &Scheme) -> String {
    let gone = if scheme.in_force { "" } else { ", not in force at the end" };
    format!("{} ({}{gone})", sanitise(&scheme.name), sanitise(&scheme.action))
}

/// Facts about a scheme, as names and texts.
pub(crate) fn facts(scheme: &Scheme, s: &Schemes) -> Vec<(&'static str, String)> {
    let total = &scheme.total;
    let mut facts = vec![
        (
            "tried",
            format!(
                "{} in {}, in {}",
                units::table_bytes(total.tried_bytes),
                counted(total.tried_regions, "region"),
                counted(total.applications, "application")
            ),
        ),
        applied(scheme),
    ];
    if total.unmapped_bytes > 0 {
        let unmapped = units::table_bytes(total.unmapped_bytes);
        facts.push(("not freed", format!("{unmapped} were unmapped and are in memory still")));
    }
    if let Some(share) = returned_share(scheme) {
        let (watched, returned) = (units::table_bytes(total.watched_bytes), units::table_bytes(total.returned_bytes));
        facts.push(("came back", format!("{returned} of {watched} that were freed and watched, {share}")));
    }
    if !total.refusals.is_empty() {
        let refused = |r: &crate::schemes::Refusal| {
            format!("{} {} in {}", r.label(), units::table_bytes(r.bytes), counted(r.regions, "region"))
        };
        facts.push(("refused", total.refusals.iter().map(refused).collect::<Vec<_>>().join("; ")));
    }
    if total.rejected_bytes > 0 {
        facts.push(("rejected", format!("{} by filters", units::table_bytes(total.rejected_bytes))));
    }
    let held_back = scheme.last.as_ref().map_or(0, |last| last.held_back_bytes);
    if scheme.quota_bytes.is_some() || total.quota_exceeded > 0 || held_back > 0 {
        let mut quota = scheme
            .quota_bytes
            .map_or_else(|| "no limit".into(), |quota| format!("{} a period", units::table_bytes(quota)));
        quota += &format!(" at the end; exceeded in {}", counted(total.quota_exceeded, "period"));
        if held_back > 0 {
            quota += &format!("; it held back {} in the last application", units::table_bytes(held_back));
        }
        if let Some(share) = scheme.quota_share {
            let share = units::percent(share);
            quota += &format!("; only {share} of it in force at the end, because what was freed came back");
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
    let mut took = units::nanoseconds(total.spent_ns);
    if share >= 0.0005 {
        took += &format!(", {} of the time", units::percent(share));
    }
    facts.push(("took", took));
    match &scheme.last {
        Some(last) => facts.push(("last applied", application_line(last))),
        None => facts.push(("last applied", "never".into())),
    }
    // If the last application found nothing, the last one that acted is shown too.
    if let Some(acting) = scheme.last_acting.as_ref().filter(|_| scheme.last.iter().any(|last| last.regions.is_empty()))
    {
        facts.push(("last acted", application_line(acting)));
    }
    facts
}

/// What the action was carried out on, of what it was called for.
fn applied(scheme: &Scheme) -> (&'static str, String) {
    let total = &scheme.total;
    let (bytes, asked) = (units::table_bytes(total.applied_bytes), units::table_bytes(total.passed_bytes));
    let regions = counted(total.applied_regions, "region");
    if scheme.frees() {
        ("freed", format!("{bytes} in {regions}, of {asked} advised"))
    } else if total.applied_bytes == total.passed_bytes {
        ("applied", format!("to {bytes} in {regions}"))
    } else {
        ("applied", format!("to {bytes} in {regions}, of {asked} advised"))
    }
}

/// An application in a line.
fn application_line(last: &Application) -> String {
    let applied = last.regions.iter().map(|region| region.applied_bytes).fold(0, u64::saturating_add);
    let mut text = format!("at {}", units::nanoseconds(last.time_ns));
    text += &match last.regions.len() {
        0 => ", to nothing".into(),
        n => format!(", to {} in {}", units::table_bytes(applied), counted(n as u64, "region")),
    };
    if last.unobservable_bytes > 0 {
        text += &format!("; left alone {} that could not be observed", units::table_bytes(last.unobservable_bytes));
    }
    text
}

/// Writes the first regions of an application.
fn regions(out: &mut dyn Write, terminal: &Terminal, last: &Application) -> io::Result<()> {
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
                units::table_bytes(region.end - region.start).into(),
                units::table_bytes(region.applied_bytes).into(),
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

/// A quantity over time.
struct Series {
    title: String,
    points: Points,
    /// The highest value.
    top: f64,
    /// Ticks of the vertical axis.
    ticks: Vec<(f64, String)>,
}

impl Series {
    fn new(title: String, points: Points, ticks: impl Fn(f64) -> Vec<(f64, String)>) -> Self {
        let top = points.iter().map(|&(_, value)| value).fold(0.0, f64::max);
        Self { title, ticks: if top > 0.0 { ticks(top) } else { vec![] }, points, top }
    }
}

fn charts(out: &mut dyn Write, terminal: &Terminal, s: &Schemes) -> io::Result<()> {
    let height = (terminal.rows / 7).clamp(3, 6);
    let bytes = |title: String, points: Points| Series::new(title, points, |top| bytes_ticks(top, height / 2));
    let mut series = vec![];
    let (busiest, left_out) = s.busiest(CHARTS);
    for scheme in busiest {
        let name = sanitise(&scheme.name);
        series.push(bytes(format!("{name}: applied, bytes a second"), s.rate(&scheme.name)));
        series.push(bytes(format!("{name}: quota, bytes a period"), s.tuned_quota(&scheme.name)));
    }
    let faults = s.fault_rate();
    series
        .push(Series::new("major faults of the targets a second".into(), faults, |top| ticks::count(top, height / 2)));
    let now = |points: &Points| points.last().map_or(String::new(), |&(_, value)| units::table_bytes(value as u64));
    for (title, part) in [("RSS", 0), ("PSS", 1), ("swap", 2)] {
        let points = s.points(|moment| Some(moment.used()[part]? as f64));
        series.push(bytes(format!("{title} of the targets: {} at the end", now(&points)), points));
    }
    let stalled = s.points(|moment| Some(moment.system.stalled_share? * 100.0));
    let title = "some task waits for memory (PSI), % of the time";
    series.push(Series::new(title.into(), stalled, |top| ticks::count(top, height / 2)));
    let free = s.points(|moment| (moment.system.total_bytes > 0).then_some(moment.system.free_bytes as f64));
    series.push(bytes(format!("free memory: {} at the end", now(&free)), free));

    series.retain(|series| !series.points.is_empty());
    let labels = series.iter().flat_map(|series| &series.ticks).map(|(_, label)| super::width(label)).max();
    for Series { title, points, ticks, top } in series {
        if top <= 0.0 {
            // A quantity that is always 0 needs no chart.
            let title = title.split(": 0 at the end").next().unwrap_or(&title);
            writeln!(out, "\n{}", terminal.bold(&wrap(&format!("{title}: 0 all the time"), terminal.width(), 0)))?;
            continue;
        }
        writeln!(out, "\n{}", terminal.bold(&wrap(&title, terminal.width(), 0)))?;
        let time = (time_of(&points).0.min(s.time().0), s.time().1);
        let chart = Chart {
            time,
            points: &points,
            spans: &[],
            ticks,
            labels: labels.unwrap_or(0),
            largest: false,
            height,
            marks: &[],
        };
        chart.write(out, terminal)?;
    }
    if left_out > 0 {
        let text = format!("{left_out} more schemes, applied to less, have no chart; take --format json");
        writeln!(out, "\n{}", terminal.dim(&wrap(&text, terminal.width(), 0)))?;
    }
    Ok(())
}

/// Ticks for sizes.
pub(crate) fn bytes_ticks(top: f64, most: usize) -> Vec<(f64, String)> {
    ticks::bytes(top as u64, most).into_iter().map(|(value, label)| (value as f64, label)).collect()
}
