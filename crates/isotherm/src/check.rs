//! `isotherm check` and `isotherm recover`: recordings that are damaged.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use isotherm_core::{chain, units};
use isotherm_output::standard_output;
use isotherm_record::{Condition, Ending, Examination, Missing, Recording, examine};
use serde_json::{Value, json};

use crate::cli::{Check, CheckFormat, Recover};
use crate::tell;

/// The exit status for a recording without an end mark.
const UNFINISHED: u8 = 3;
/// The exit status for a damaged recording.
const DAMAGED: u8 = 4;

pub fn run(options: &Check) -> Result<ExitCode> {
    let recording = Recording::open(&options.recording)?;
    let found = examine(&recording)?;
    let mut out = standard_output().apart_from([&options.recording])?;
    match options.format {
        CheckFormat::Text => write!(out, "{}", text(&found))?,
        CheckFormat::Json => writeln!(out, "{}", as_json(&found))?,
    }
    Ok(match found.condition() {
        Condition::Whole => ExitCode::SUCCESS,
        Condition::Unfinished => ExitCode::from(UNFINISHED),
        Condition::Damaged => ExitCode::from(DAMAGED),
    })
}

pub fn recover(options: &Recover) -> Result<ExitCode> {
    let recording = Recording::open(&options.recording)?;
    let stopped = isotherm_record::recover(&recording, &options.output)?;
    let found = examine(&recording)?;
    found.missing.iter().for_each(|part| tell(format_args!("isotherm: missing: {}", missing(part))));
    if let Some(error) = stopped {
        tell(format_args!("isotherm: what follows is missing: {}", chain(&error)));
    }
    tell(format_args!("isotherm: {} in {}", contents(&found), options.output.display()));
    Ok(ExitCode::SUCCESS)
}

/// What a recording has, such as `20 snapshots, 2 activities and 2 surveys`.
fn contents(found: &Examination) -> String {
    let Examination { snapshots, activities, surveys, .. } = found;
    format!("{snapshots} snapshots, {activities} activities and {surveys} surveys")
}

fn text(found: &Examination) -> String {
    let mut text = format!("{}: {}, {} bytes", word(found.condition()), contents(found), found.bytes);
    if let Some(last) = found.last {
        let _ = write!(text, ", {} of the run", units::duration(last));
    }
    text.push('\n');
    for part in &found.missing {
        let _ = writeln!(text, "missing: {}", missing(part));
    }
    if found.is_header_corrected {
        text.push_str("the header has one wrong bit, which its checksum tells; nothing of it is missing\n");
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
        text.push_str("`isotherm recover BAD GOOD` writes a recording of what can be read\n");
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
        "last_ns": found.last.map(nanoseconds),
        "missing": missing.collect::<Vec<_>>(),
        "header_corrected": found.is_header_corrected,
        "error": found.error.as_ref().map(|error| chain(error)),
    })
}
