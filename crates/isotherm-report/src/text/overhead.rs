//! The cost of monitoring for a terminal.

use std::io::{self, Write};
use std::time::Duration;

use isotherm_core::units;

use super::chart::Chart;
use super::table::{Cell, Column, table};
use super::wss::time_of;
use super::{Terminal, fact, wrap};
use crate::escape::sanitise;
use crate::facts::lost_aggregations;
use crate::overhead::{Load, Overhead};
use crate::pace::Windows;
use crate::ticks;

/// Writes the figures, the percentiles with the limit, and charts over time.
pub(crate) fn overhead(out: &mut dyn Write, terminal: &Terminal, overhead: &Overhead) -> io::Result<()> {
    let o = overhead;
    let measured = [
        ("probe", sanitise(&o.probe).into_owned()),
        ("pace", o.pace.line().unwrap_or_default()),
        ("CPU", cpu(o)),
        ("CPU over 10 s", cpu_over_windows(o)),
        (
            "rounds",
            format!(
                "{}, {} late ({})",
                units::count(o.rounds),
                units::count(o.late_rounds),
                units::percent(o.late_share())
            ),
        ),
        ("pages", format!("{} read, {} cleared", units::count(o.reads), units::count(o.clears))),
        (
            "unobservable",
            format!(
                "{} on the mean, {} at most",
                units::bytes(o.unobservable_bytes),
                units::bytes(o.unobservable_bytes_max)
            ),
        ),
    ];
    let (probe, rest) = (&measured[..1], &measured[1..]);
    let unknown = [("cost", format!("not known: {} tells none", sanitise(&o.probe)))];
    for (name, text) in probe.iter().chain(if o.measured { rest } else { &unknown }) {
        fact(out, terminal, name, text)?;
    }
    if o.lost_aggregations > 0 {
        let text = format!("! {}", lost_aggregations(o.lost_aggregations));
        writeln!(out, "{}", wrap(&text, terminal.width(), 2))?;
    }
    writeln!(out)?;
    let limit = if o.max_regions > 0 { units::count(o.max_regions) } else { "?".into() };
    let row = |name: &str, load: &Load| -> Vec<Cell> {
        let mut cells: Vec<Cell> = vec![name.into(), figure(load.mean).into()];
        cells.extend(load.percentiles.iter().skip(1).take(5).map(|(_, v)| figure(v).into()));
        cells.extend([units::count(load.max).into(), limit.clone().into()]);
        cells
    };
    let columns = [
        Column::name(""),
        Column::figure("mean", 2),
        Column::figure("p25", 8),
        Column::figure("p50", 4),
        Column::figure("p75", 7),
        Column::figure("p90", 6),
        Column::figure("p99", 5),
        Column::figure("max", 1),
        Column::figure("limit", 3),
    ];
    let loads = [row("regions", &o.regions), row("reads per sampling", &o.reads_per_sampling)];
    let shown = if o.measured { 2 } else { 1 };
    table(out, terminal, &columns, &loads[..shown])?;
    let height = (terminal.rows.saturating_sub(18) / 2).clamp(3, 8);
    let series = [
        ("regions", o.regions.max as f64, (|m| f64::from(m.regions)) as fn(&crate::overhead::Moment) -> f64),
        ("CPU, % of one", o.over_time.iter().map(|m| m.cpu_percent).fold(0.0, f64::max), |m| m.cpu_percent),
    ];
    for (name, top, value) in series.into_iter().take(shown) {
        writeln!(out, "\n{}", terminal.bold(name))?;
        let points: Vec<(Duration, f64)> =
            o.over_time.iter().map(|m| (Duration::from_nanos(m.time_ns), value(m))).collect();
        let ticks = ticks::count(top, height / 2);
        Chart {
            time: time_of(&points),
            points: &points,
            spans: &[],
            ticks,
            labels: 0,
            largest: true,
            height,
            marks: &[],
        }
        .write(out, terminal)?;
    }
    Ok(())
}

/// The CPU time of all threads.
pub(crate) fn cpu(o: &Overhead) -> String {
    format!(
        "{:.2} % of one CPU after the first 3 s; in all the monitor {}, other threads {}, in {}",
        o.pace.cpu_percent.unwrap_or(0.0),
        units::nanoseconds(o.cpu_ns),
        units::nanoseconds(o.other_cpu_ns),
        units::nanoseconds(o.wall_ns)
    )
}

/// The CPU time over each 10 s.
pub(crate) fn cpu_over_windows(o: &Overhead) -> String {
    match o.cpu_percent_10s {
        Some(Windows { mean, p99, max }) => {
            format!("{mean:.2} % on the mean, {p99:.2} % at the 99th percentile, {max:.2} % at most")
        }
        None => "the recording is too short".into(),
    }
}

fn figure(value: f64) -> String {
    if value < 99.95 && value.fract() != 0.0 { format!("{value:.1}") } else { units::count(value.round() as u64) }
}
