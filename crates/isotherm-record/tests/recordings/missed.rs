//! What a recorder could not take in is in the recording, by kind, and stays there when it is converted, cut or merged.

use std::path::Path;
use std::time::Duration;

use isotherm_record::{
    Contents, Cut, Format, Joined, Missed, MissedKind, RecordError, Recorder, Recording, convert, cut, examine, merge,
    missed_words,
};
use serde_json::{Value, json};

use crate::common;

const MISSED: Contents = Contents { activities: false, surveys: false, marks: false, allocations: false, live: true };

fn missed(ms: u64, kind: MissedKind, count: u64) -> Missed {
    Missed { time: Duration::from_millis(ms), kind, count }
}

fn read(path: &Path) -> Vec<Missed> {
    Recording::open(path).unwrap().missed().map(Result::unwrap).collect()
}

/// A recording of 2 s that lacks these.
fn record(path: &Path, all: &[Missed]) {
    let mut recorder = Recorder::create_with(path, &common::header(), MISSED).unwrap();
    let mut left = all.iter().peekable();
    for nth in 1..=20_u32 {
        recorder.write(&common::snapshot_record(nth)).unwrap();
        while let Some(missed) = left.next_if(|missed| missed.time <= Duration::from_millis(100) * nth) {
            recorder.write_missed(missed).unwrap();
        }
    }
    left.for_each(|missed| recorder.write_missed(missed).unwrap());
    recorder.finish().unwrap();
}

fn some() -> [Missed; 4] {
    [
        missed(400, MissedKind::Surveys, 1),
        missed(700, MissedKind::Snapshots, 3),
        missed(700, MissedKind::Activities, 2),
        missed(2100, MissedKind::Surveys, 1),
    ]
}

#[test]
fn what_is_missing_is_read_as_it_was_written_and_counted_by_kind() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    record(&path, &some());
    assert_eq!(read(&path), some());
    let found = examine(&Recording::open(&path).unwrap()).unwrap();
    assert_eq!(found.snapshots, 20);
    assert_eq!(
        missed_words(&found.missed).unwrap(),
        "missing from the recording: 3 snapshots and 2 surveys, because the recorder could not keep up; 2 activities \
         of schemes were added up into later ones"
    );
}

#[test]
fn how_long_targets_were_held_is_read_as_it_was_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let mut recorder = Recorder::create_with(&path, &common::header(), MISSED).unwrap();
    let mut record = common::snapshot_record(1);
    record.cost.as_mut().unwrap().longest_hold_ns = Some(7);
    record.cost.as_mut().unwrap().holds_ns = Some(9);
    recorder.write(&record).unwrap();
    recorder.finish().unwrap();
    let cost = Recording::open(&path).unwrap().snapshots().next().unwrap().unwrap().cost.unwrap();
    assert_eq!((cost.longest_hold_ns, cost.holds_ns), (Some(7), Some(9)));
}

#[test]
fn a_part_a_conversion_and_a_merged_recording_say_what_is_missing() {
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name);
    record(&place("a.rec"), &some());
    let recording = Recording::open(&place("a.rec")).unwrap();
    let time = Some(Duration::from_millis(500)..Duration::from_millis(1000));
    cut(&recording, &Cut { time, ..Cut::default() }, &place("part.rec")).unwrap();
    assert_eq!(read(&place("part.rec")), some()[1..3]);
    convert(&recording, &place("b.rec"), Format::Recording).unwrap();
    assert_eq!(read(&place("b.rec")), some());
    convert(&recording, &place("b.json"), Format::Json).unwrap();
    let document: Value = serde_json::from_slice(&std::fs::read(place("b.json")).unwrap()).unwrap();
    assert_eq!(document["missed"][1], json!({"time_ns": 700_000_000, "kind": "snapshots", "count": 3}));
    merge(&Joined::new(vec![recording]).unwrap(), &place("all.rec")).unwrap();
    assert_eq!(read(&place("all.rec")), some());
}

#[test]
fn what_is_missing_has_an_order_and_needs_a_column() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let mut recorder = Recorder::create_with(&path, &common::header(), MISSED).unwrap();
    recorder.write_missed(&missed(20, MissedKind::Marks, 1)).unwrap();
    let earlier = recorder.write_missed(&missed(10, MissedKind::Marks, 1));
    assert!(matches!(earlier, Err(RecordError::Encode { .. })));
    recorder.finish().unwrap();
    assert_eq!(read(&path), [missed(20, MissedKind::Marks, 1)]);

    let mut without = Recorder::create(&path, &common::header()).unwrap();
    assert!(matches!(without.write_missed(&missed(20, MissedKind::Marks, 1)), Err(RecordError::Encode { .. })));
    without.write(&common::snapshot_record(1)).unwrap();
    without.finish().unwrap();
    assert_eq!(read(&path), []);
}

#[test]
fn nothing_is_said_where_nothing_is_missing() {
    assert_eq!(missed_words(&[].into()), None);
    assert_eq!(missed_words(&[(MissedKind::Marks, 0)].into()), None);
    let one = missed_words(&[(MissedKind::Activities, 1)].into()).unwrap();
    assert_eq!(one, "1 activity of schemes was added up into later ones, because the recorder could not keep up");
    let short = missed_words(&[(MissedKind::Processes, 1934), (MissedKind::Surveys, 1)].into()).unwrap();
    let missing = "missing from the recording: 1 survey, because the recorder could not keep up";
    let unobserved = "1,934 processes came and went unobserved, and were counted in no figure";
    assert_eq!(short, format!("{missing}; {unobserved}"));
}
