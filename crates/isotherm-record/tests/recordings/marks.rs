//! Marks come back as they were made, and harm nothing else in a recording.

use std::path::Path;
use std::time::Duration;

use isotherm_record::{Contents, Cut, Format, Mark, MarkText, RecordError, Recorder, Recording, convert, cut, examine};
use serde_json::{Value, json};

use crate::common::{self, Row};

const MARKS: Contents = Contents { activities: false, surveys: false, marks: true, allocations: false, live: false };

fn mark(ms: u64, text: &str) -> Mark {
    Mark { time: Duration::from_millis(ms), text: MarkText::new(text.as_bytes()).unwrap() }
}

fn read_marks(path: &Path) -> Vec<Mark> {
    Recording::open(path).unwrap().marks().map(Result::unwrap).collect()
}

/// Records 20 snapshots, 100 ms apart, with these marks among them. Returns the rows of the snapshots.
fn record(path: &Path, marks: &[Mark]) -> Vec<Row> {
    let mut recorder = Recorder::create_with(path, &common::header(), MARKS).unwrap();
    let mut left = marks.iter().peekable();
    for i in 1..=20 {
        let record = common::snapshot_record(i);
        while let Some(mark) = left.next_if(|mark| mark.time <= record.snapshot.time) {
            recorder.write_mark(mark).unwrap();
        }
        recorder.write(&record).unwrap();
    }
    left.for_each(|mark| recorder.write_mark(mark).unwrap());
    recorder.finish().unwrap();
    common::rows_of(&(1..=20).map(|i| (common::snapshot(i), common::cost(i))).collect::<Vec<_>>())
}

#[test]
fn marks_are_read_as_they_were_made() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let marks = [mark(0, "start"), mark(250, "load \x1b[2J\u{202e}"), mark(250, "again"), mark(9000, "after the end")];
    let rows = record(&path, &marks);
    assert_eq!(read_marks(&path), marks);
    assert_eq!(common::read(&path).unwrap(), rows);
    assert_eq!(examine(&Recording::open(&path).unwrap()).unwrap().marks, 4);
}

#[test]
fn a_recording_without_a_column_for_marks_has_none() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    common::record(&path, 3);
    assert_eq!(read_marks(&path), []);
    let mut recorder = Recorder::create(&path, &common::header()).unwrap();
    assert!(matches!(recorder.write_mark(&mark(0, "a")), Err(RecordError::Encode { .. })));
}

#[test]
fn a_mark_that_is_older_than_the_one_before_is_not_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let mut recorder = Recorder::create_with(&path, &common::header(), MARKS).unwrap();
    recorder.write_mark(&mark(20, "a")).unwrap();
    assert!(matches!(recorder.write_mark(&mark(10, "b")), Err(RecordError::Encode { .. })));
    recorder.finish().unwrap();
    assert_eq!(read_marks(&path), [mark(20, "a")]);
}

#[test]
fn a_part_has_the_marks_within_its_time() {
    let directory = tempfile::tempdir().unwrap();
    let (path, part) = (directory.path().join("a.rec"), directory.path().join("part.rec"));
    let early = [mark(0, "at the start of the run"), mark(500, "at its start")];
    let late = [mark(501, "within"), mark(1000, "at its end"), mark(1001, "after")];
    record(&path, &[&early[..], &late].concat());
    let time = Some(Duration::from_millis(500)..Duration::from_millis(1000));
    cut(&Recording::open(&path).unwrap(), &Cut { time, ..Cut::default() }, &part).unwrap();
    assert_eq!(read_marks(&part), [mark(501, "within"), mark(1000, "at its end")]);
}

#[test]
fn a_converted_recording_has_its_marks() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let marks = [mark(150, "\"one\""), mark(9000, "two")];
    record(&path, &marks);
    let recording = Recording::open(&path).unwrap();
    let (again, document) = (directory.path().join("b.rec"), directory.path().join("b.json"));
    convert(&recording, &again, Format::Recording).unwrap();
    assert_eq!(read_marks(&again), marks);
    convert(&recording, &document, Format::Json).unwrap();
    let document: Value = serde_json::from_slice(&std::fs::read(document).unwrap()).unwrap();
    let expected = json!([{"time_ns": 150_000_000, "text": "\"one\""}, {"time_ns": 9_000_000_000_u64, "text": "two"}]);
    assert_eq!(document["marks"], expected);
}
