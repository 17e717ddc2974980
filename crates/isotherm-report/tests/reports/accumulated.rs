//! One accumulator serves all reports: parts of a stream are merged, and what is long becomes a level.

use std::time::Duration;

use isotherm_record::{Event, Needs};
use isotherm_report::{Accumulated, Format, Kind, Options, ReportError, Selection, Source, write};
use proptest::prelude::*;
use serde_json::Value;

use crate::made::{self, Made};

/// The events of a recording.
fn events(made: &Made) -> Vec<Event> {
    made.events(Needs::ALL).unwrap().map(Result::unwrap).collect()
}

fn accumulated(made: &Made, events: &[Event]) -> Accumulated {
    let mut accumulated = Accumulated::new(made.header.clone(), Accumulated::MOST);
    events.iter().for_each(|event| accumulated.event(event.clone()));
    accumulated
}

/// Recordings with all kinds of events: surveys, schemes, marks, two targets.
fn recordings() -> [Made; 3] {
    let mut surveyed = made::surveyed(20);
    surveyed.marks = made::marks(&[(900, "one"), (900, "two"), (7000, "three")]);
    surveyed.activities = made::schemed(20).activities;
    let mut two = made::phases_of(77, 60);
    two.rows.extend(made::phases_of(78, 30).rows.into_iter().map(|mut row| {
        row.time += Duration::from_millis(1500);
        row
    }));
    two.rows.sort_by_key(|row| row.time);
    [surveyed, two, made::on_two_nodes(10)]
}

/// A report, or the error that it ends with.
fn report(kind: Kind, format: Format, source: &dyn Source) -> Result<Vec<u8>, String> {
    let mut out = vec![];
    let written = write(kind, format, source, &Selection::default(), &Options::default(), &mut out);
    written.map(|()| out).map_err(|error| error.to_string())
}

fn summary(source: &dyn Source) -> Value {
    serde_json::from_slice(&report(Kind::Summary, Format::Json, source).unwrap()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_parts_of_a_stream_merge_into_the_report_of_the_whole(
        nth in 0..3_usize, cut in 0.0..=1.0_f64,
    ) {
        let made = &recordings()[nth];
        let all = events(made);
        let (one, two) = all.split_at((all.len() as f64 * cut) as usize);
        let (mut one, two) = (accumulated(made, one), accumulated(made, two));
        one.merge(two).unwrap();
        for kind in Kind::ALL {
            for &format in kind.formats().iter().filter(|format| **format != Format::Png) {
                prop_assert!(report(kind, format, &one) == report(kind, format, made), "{kind:?} {format:?}");
            }
        }
    }
}

#[test]
fn what_is_long_takes_bounded_memory_and_keeps_its_sums() {
    let made = made::surveyed(120);
    let mut level = Accumulated::new(made.header.clone(), 64 << 10);
    events(&made).into_iter().for_each(|event| level.event(event));
    let length = level.length().unwrap();
    assert!(length >= Duration::from_millis(200), "{length:?}");
    let count = |source: &dyn Source| source.events(Needs::SNAPSHOTS).unwrap().count();
    assert!(count(&level) * 8 < count(&made), "{}", count(&level));

    let (whole, level) = (summary(&made), summary(&level));
    assert_eq!((&whole["from_ns"], &whole["to_ns"]), (&level["from_ns"], &level["to_ns"]));
    for name in ["size_bytes", "hot_bytes", "warm_bytes", "cold_bytes", "unobservable_bytes"] {
        let of = |summary: &Value| summary["total"][name].as_f64().unwrap();
        let (one, other) = (of(&whole), of(&level));
        assert!((one - other).abs() <= 0.03 * of(&whole).max(whole["total"]["size_bytes"].as_f64().unwrap()), "{name}");
    }
}

#[test]
fn parts_of_different_runs_and_in_the_wrong_order_are_refused() {
    let made = &recordings()[1];
    let all = events(made);
    let other = Made { header: isotherm_record::Header { seed: 8, ..made.header.clone() }, ..made.clone() };
    let of_other_run = accumulated(made, &all).merge(accumulated(&other, &all));
    let (before, after) = all.split_at(all.len() / 2);
    let in_wrong_order = accumulated(made, after).merge(accumulated(made, before));
    for merged in [of_other_run, in_wrong_order] {
        assert!(matches!(merged, Err(ReportError::NotOneStream)), "{merged:?}");
    }
}
