//! A recording that comes piece by piece.

use isotherm_record::{Contents, Event, Needs, Recorder, Recording, StreamReader};

use crate::common;

const CONTENTS: Contents = Contents { activities: true, surveys: true, live: true, marks: true, allocations: false };

/// A recording in memory, and the events of a file with the same.
fn recorded() -> (Vec<u8>, Vec<Event>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let mut file = Recorder::create_with(&path, &common::header(), CONTENTS).unwrap();
    let mut recorder = Recorder::in_memory(&common::header(), CONTENTS).unwrap();
    let mut bytes = Vec::new();
    for i in 1..=40 {
        let mut events = vec![Event::Snapshot(common::snapshot_record(i))];
        if i % 7 == 0 {
            events.push(Event::Survey(common::survey(i)));
        }
        if i % 10 == 0 {
            events.push(Event::Activity(common::activity(i)));
        }
        for event in events {
            recorder.write_event(&event).unwrap();
            file.write_event(&event).unwrap();
        }
        bytes.extend(recorder.take());
    }
    recorder.flush().unwrap();
    bytes.extend(recorder.take());
    file.finish().unwrap();
    (bytes, Recording::open(&path).unwrap().events(Needs::ALL).map(Result::unwrap).collect())
}

#[test]
fn a_reader_gets_the_events_however_their_bytes_come_as_a_reader_of_a_file_does() {
    let (bytes, written) = recorded();
    for piece in [997, 4096, bytes.len()] {
        let mut reader = StreamReader::new(Needs::ALL);
        assert!(reader.header().is_none());
        let mut found: Vec<Event> = Vec::new();
        for part in bytes.chunks(piece) {
            found.extend(reader.take(part).unwrap());
        }
        assert_eq!(reader.header(), Some(&common::header()));
        assert_eq!(found.len(), written.len(), "in pieces of {piece}");
        for event in &written {
            assert!(found.contains(event), "in pieces of {piece}: {event:?}");
        }
    }
}

#[test]
fn damage_and_foreign_bytes_are_errors() {
    let (mut bytes, _) = recorded();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    let mut reader = StreamReader::new(Needs::ALL);
    assert!(reader.take(&bytes).is_err());
    assert!(StreamReader::new(Needs::ALL).take(b"HTTP/1.1 200 OK and more").is_err());
}
