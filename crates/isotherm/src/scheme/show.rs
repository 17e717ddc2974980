//! The result of a trial as text and as JSON.

use std::io::{self, Write};
use std::time::Duration;

use isotherm_core::shown_name;
use isotherm_core::units::{bytes, count, duration};
use isotherm_record::pid_column;
use isotherm_report::sanitise;
use serde_json::{Value, json};

use super::trial::{Step, Trial, Tried};

/// The number of lines in the table of a scheme, at most.
const LINES: u32 = 12;
/// The number of regions that are listed for a scheme, at most.
const REGIONS: usize = 5;
/// The width of the longest bar, in characters.
const BAR: u64 = 20;

pub fn text(trial: &Trial, out: &mut impl Write) -> io::Result<()> {
    let name = trial.recording.display().to_string();
    writeln!(out, "{}: {} in {} snapshots", sanitise(&name), duration(trial.duration), count(trial.snapshots))?;
    for tried in &trial.schemes {
        writeln!(out)?;
        scheme(tried, trial, out)?;
    }
    if !trial.notes.is_empty() {
        writeln!(out)?;
    }
    for note in &trial.notes {
        writeln!(out, "note: {note}")?;
    }
    Ok(())
}

fn scheme(tried: &Tried, trial: &Trial, out: &mut impl Write) -> io::Result<()> {
    let total = &tried.report.total;
    let applications = count(total.applications);
    let memory = if trial.present { "present memory" } else { "mapped memory" };
    let taking: Vec<&Step> = tried.steps.iter().filter(|step| step.bytes > 0).collect();
    writeln!(out, "{} ({})", sanitise(&tried.scheme.name), tried.scheme.action)?;
    match (taking.first(), taking.last()) {
        (Some(first), Some(last)) => {
            writeln!(
                out,
                "  would have acted on  {} in total, on {} of distinct {memory}",
                bytes(tried.bytes),
                bytes(tried.distinct_bytes)
            )?;
            writeln!(
                out,
                "                       in {} of {applications} applications, from {} to {}",
                count(taking.len() as u64),
                duration(first.time),
                duration(last.time)
            )?;
        }
        _ => writeln!(out, "  would have acted on  nothing in {applications} applications")?,
    }
    if total.rejected_bytes > 0 {
        writeln!(out, "  filters rejected     {} in total", bytes(total.rejected_bytes))?;
    }
    if tried.most_unobservable > 0 {
        let most = bytes(tried.most_unobservable);
        writeln!(out, "  could not observe    at most {most} at a time, and left it alone")?;
    }
    if let Some(most) = tried.steps.iter().filter(|step| step.held_back > 0).max_by_key(|step| step.held_back) {
        let times = tried.steps.iter().filter(|step| step.held_back > 0).count() as u64;
        writeln!(
            out,
            "  quota held back      at most {} at a time, at {}; some memory in {} applications; used up in {} periods",
            bytes(most.held_back),
            duration(most.time),
            count(times),
            count(total.quota_exceeded)
        )?;
    }
    if taking.is_empty() && tried.steps.is_empty() {
        return Ok(());
    }
    over_time(tried, trial, out)?;
    largest(tried, out)
}

/// A table of the bytes acted on and held back, by time.
fn over_time(tried: &Tried, trial: &Trial, out: &mut impl Write) -> io::Result<()> {
    let span = span(trial.duration);
    let lines = trial.duration.as_nanos().div_ceil(span.as_nanos()).clamp(1, LINES.into()) as u32;
    let rows: Vec<(Duration, u64, u64)> = (0..lines)
        .map(|i| {
            // A snapshot describes the time before it.
            let (from, to) = (span * i, if i + 1 == lines { Duration::MAX } else { span * (i + 1) });
            let steps = tried.steps.iter().filter(|step| from < step.time && step.time <= to);
            steps.fold((from, 0, 0), |(from, taken, held): (_, u64, u64), step| {
                (from, taken + step.bytes, held.max(step.held_back))
            })
        })
        .collect();
    let most = rows.iter().map(|(_, taken, _)| *taken).max().unwrap_or(0).max(1);
    writeln!(out, "\n  {:>9}  {:>10}  {:>14}", "from", "acted on", "held back")?;
    for (from, taken, held) in rows {
        let bar = "#".repeat((u128::from(taken) * u128::from(BAR)).div_ceil(u128::from(most)) as usize);
        let amount = |n: u64| if n == 0 { "-".to_owned() } else { bytes(n) };
        let line = format!("  {:>9}  {:>10}  {:>14}  {bar}", duration(from), amount(taken), amount(held));
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// A round time that divides `duration` into at most [`LINES`] parts.
fn span(duration: Duration) -> Duration {
    let millis = [1, 2, 5, 10, 20, 50, 100, 200, 500].map(Duration::from_millis);
    let seconds = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14_400].map(Duration::from_secs);
    let mut spans = millis.into_iter().chain(seconds);
    spans.find(|span| *span * LINES >= duration).unwrap_or(duration / LINES)
}

/// A list of the largest regions acted on.
fn largest(tried: &Tried, out: &mut impl Write) -> io::Result<()> {
    let mut all: Vec<_> =
        tried.steps.iter().flat_map(|step| step.regions.iter().map(move |r| (step.time, r))).collect();
    if all.is_empty() {
        return Ok(());
    }
    all.sort_by_key(|(time, (region, _))| (std::cmp::Reverse(region.range.size()), *time));
    writeln!(out, "\n  largest of {} regions:", count(all.len() as u64))?;
    for (time, (region, mapping)) in all.into_iter().take(REGIONS) {
        let mapping = sanitise(shown_name(mapping));
        let (at, size) = (duration(time), bytes(region.range.size()));
        writeln!(out, "  {at:>9}  {size:>10}  {} of {}  {mapping}", region.range, region.target)?;
    }
    Ok(())
}

pub fn json(trial: &Trial, out: &mut impl Write) -> io::Result<()> {
    let schemes: Vec<Value> = trial.schemes.iter().map(of_scheme).collect();
    let document = json!({
        "recording": trial.recording.display().to_string(),
        "duration_ns": trial.duration.as_nanos() as u64,
        "snapshots": trial.snapshots,
        "sizes": if trial.present { "present" } else { "mapped" },
        "schemes": schemes,
        "notes": trial.notes,
    });
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}

fn of_scheme(tried: &Tried) -> Value {
    let total = &tried.report.total;
    let steps: Vec<Value> = tried.steps.iter().map(of_step).collect();
    json!({
        "name": &*tried.scheme.name,
        "action": tried.scheme.action.name(),
        "applications": total.applications,
        "regions": total.tried_regions,
        "bytes": tried.bytes,
        "distinct_bytes": tried.distinct_bytes,
        "rejected_bytes": total.rejected_bytes,
        "most_unobservable_bytes": tried.most_unobservable,
        "quota_exceeded": total.quota_exceeded,
        "most_held_back_bytes": tried.steps.iter().map(|step| step.held_back).max().unwrap_or(0),
        "over_time": steps,
    })
}

fn of_step(step: &Step) -> Value {
    let regions = step.regions.iter().map(|(region, mapping)| {
        json!({
            "target": pid_column(region.target),
            "start": region.range.start(),
            "end": region.range.end(),
            "mapping": &**mapping,
        })
    });
    json!({
        "time_ns": step.time.as_nanos() as u64,
        "bytes": step.bytes,
        "held_back_bytes": step.held_back,
        "regions": regions.collect::<Vec<_>>(),
    })
}
