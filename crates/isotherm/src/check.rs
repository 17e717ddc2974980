//! `isotherm check`: recordings that are damaged.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use isotherm_core::survey::PageSums;
use isotherm_core::{Figures, chain, units};
use isotherm_output::standard_output;
use isotherm_record::{Condition, Ending, Examination, Missing, Punctuality, Recording, examine, missed_words};
use serde_json::{Value, json};

use crate::cli::{Check, PlainFormat};
use crate::tell;

/// The exit status for a recording without an end mark.
const UNFINISHED: u8 = 3;
/// The exit status for a damaged recording.
const DAMAGED: u8 = 4;

pub fn run(options: &Check) -> Result<ExitCode> {
    let recording = Recording::open_within(&options.recording, options.reading.max_memory)?;
    let found = examine(&recording)?;
    if let Some(output) = &options.save {
        save(&recording, &found, output)?;
    }
    let mut out = standard_output().apart_from([&options.recording])?;
    match options.format {
        PlainFormat::Text => write!(out, "{}", text(&found))?,
        PlainFormat::Json => writeln!(out, "{}", as_json(&found))?,
    }
    if options.save.is_some() {
        return Ok(ExitCode::SUCCESS);
    }
    Ok(match found.condition() {
        Condition::Whole => ExitCode::SUCCESS,
        Condition::Unfinished => ExitCode::from(UNFINISHED),
        Condition::Damaged => ExitCode::from(DAMAGED),
    })
}

/// Writes a recording of what can be read.
fn save(recording: &Recording, found: &Examination, output: &Path) -> Result<()> {
    if found.snapshots + found.activities + found.surveys == 0 {
        let why = match &found.error {
            Some(error) => chain(error),
            None => "it has no snapshot, activity or survey".into(),
        };
        bail!("nothing of {} can be saved: {why}", recording.path().display());
    }
    if let Some(error) = isotherm_record::recover(recording, output)? {
        tell(format_args!("isotherm: what follows is missing: {}", chain(&error)));
    }
    tell(format_args!("isotherm: {} in {}", contents(found), output.display()));
    Ok(())
}

/// What a recording has, such as `20 snapshots, 2 activities and 2 surveys`.
fn contents(found: &Examination) -> String {
    let Examination { snapshots, activities, surveys, marks, .. } = found;
    match marks {
        0 => format!("{snapshots} snapshots, {activities} activities and {surveys} surveys"),
        1 => format!("{snapshots} snapshots, {activities} activities, {surveys} surveys and 1 mark"),
        _ => format!("{snapshots} snapshots, {activities} activities, {surveys} surveys and {marks} marks"),
    }
}

fn text(found: &Examination) -> String {
    let mut text = format!("{}: {}, {} bytes", word(found.condition()), contents(found), found.bytes);
    if let Some(last) = found.last {
        let _ = write!(text, ", {} of the run", units::duration(last));
    }
    text.push('\n');
    text += &quality(found);
    for part in &found.missing {
        let _ = writeln!(text, "missing: {}", missing(part));
    }
    if found.is_header_corrected {
        text.push_str("the header has one wrong bit, which its checksum identifies; nothing of it is missing\n");
    }
    if let Some(error) = &found.error {
        let _ = writeln!(text, "what follows cannot be read: {}", chain(error));
    }
    match found.ending {
        Ending::Whole => {}
        Ending::Unfinished => {
            text.push_str("no end mark: it is still being recorded, or its recorder was killed\n");
        }
        Ending::CutShort { at } => {
            let _ = writeln!(text, "cut short: a message is whole up to byte {at} only; its rest is missing");
        }
    }
    if found.condition() == Condition::Damaged {
        text.push_str("`isotherm check BAD --save GOOD` writes a recording of what can be read\n");
    }
    text
}

/// How much the recording tells: whether its rounds were in time, and how much of the memory surveys know.
fn quality(found: &Examination) -> String {
    let Punctuality { rounds, late_rounds, longest_gap, gap_end } = found.punctuality;
    let mut text = String::new();
    if rounds > 0 {
        let late = units::percent(late_rounds as f64 / rounds as f64);
        let [late_rounds, rounds] = [late_rounds, rounds].map(units::count);
        let _ = write!(text, "rounds: {late} began late ({late_rounds} of {rounds}); ");
    }
    if found.snapshots > 0 {
        let gap = match longest_gap.is_zero() {
            true => "no gap between snapshots".into(),
            false => {
                format!("longest gap {}, up to {} of the run", units::duration(longest_gap), units::duration(gap_end))
            }
        };
        let _ = writeln!(text, "{gap}");
    }
    if let Some(words) = missed_words(&found.missed) {
        let _ = writeln!(text, "{words}");
    }
    if found.allocations > 0 {
        let [calls, lost] = [found.allocations, found.lost_allocations].map(units::count);
        let _ = writeln!(text, "call stacks: {calls} calls that mapped memory, {lost} more were lost");
    }
    match found.last_survey {
        None if found.snapshots == 0 => text.push_str("no snapshots, so there is nothing to report\n"),
        None => text.push_str("surveys: none, so working sets are estimates from samples\n"),
        Some(PageSums { figures: Figures { present, unknown, unobservable, .. }, .. }) => {
            let share = |part: u64| units::percent(part as f64 / present.max(1) as f64);
            let _ = writeln!(
                text,
                "surveys: the last one found {} in memory, {} unknown, {} unobservable",
                units::bytes(present),
                share(unknown),
                share(unobservable)
            );
        }
    }
    text
}

/// A damaged part, by bytes and by time.
fn missing(Missing { damage, after, before }: &Missing) -> String {
    let time = match (after.map(units::duration), before.map(units::duration)) {
        (None, None) => "all of the run".into(),
        (None, Some(before)) => format!("from the start to {before} of the run"),
        (Some(after), None) => format!("from {after} to the end of the run"),
        (Some(after), Some(before)) => format!("between {after} and {before} of the run"),
    };
    format!("bytes {} to {}, {time}: {}", damage.start, damage.end, damage.reason)
}

fn word(condition: Condition) -> &'static str {
    match condition {
        Condition::Whole => "whole",
        Condition::Unfinished => "unfinished",
        Condition::Damaged => "damaged",
    }
}

fn as_json(found: &Examination) -> Value {
    let nanoseconds = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let missing = found.missing.iter().map(|Missing { damage, after, before }| {
        json!({
            "start": damage.start,
            "end": damage.end,
            "reason": damage.reason,
            "after_ns": after.map(nanoseconds),
            "before_ns": before.map(nanoseconds),
        })
    });
    json!({
        "condition": word(found.condition()),
        "ending": match found.ending {
            Ending::Whole => "whole",
            Ending::Unfinished => "unfinished",
            Ending::CutShort { .. } => "cut_short",
        },
        "bytes": found.bytes,
        "snapshots": found.snapshots,
        "activities": found.activities,
        "surveys": found.surveys,
        "marks": found.marks,
        "allocations": found.allocations,
        "lost_allocations": found.lost_allocations,
        "missed": found.missed.iter().map(|(kind, count)| (kind.name(), *count)).collect::<BTreeMap<_, _>>(),
        "last_ns": found.last.map(nanoseconds),
        "rounds": found.punctuality.rounds,
        "late_rounds": found.punctuality.late_rounds,
        "longest_gap_ns": nanoseconds(found.punctuality.longest_gap),
        "longest_gap_end_ns": nanoseconds(found.punctuality.gap_end),
        "present_bytes": found.last_survey.map(|sums| sums.figures.present),
        "unknown_bytes": found.last_survey.map(|sums| sums.figures.unknown),
        "unobservable_bytes": found.last_survey.map(|sums| sums.figures.unobservable),
        "missing": missing.collect::<Vec<_>>(),
        "header_corrected": found.is_header_corrected,
        "error": found.error.as_ref().map(|error| chain(error)),
    })
}
