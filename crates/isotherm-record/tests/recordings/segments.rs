//! A segment grows by batches, until one batch takes their place. A recorder that is killed then loses nothing.

use std::path::Path;

use isotherm_record::{Ending, Recorder, Recording};

use crate::common::{self, Row};

/// A recording until its first segment is complete: its bytes at its creation, before the last batch, and after it, and
/// how many snapshots it has then.
fn complete(path: &Path) -> (usize, Vec<u8>, Vec<u8>, u32) {
    let mut recorder = Recorder::create(path, &common::header()).unwrap();
    let header = recorder.bytes_written() as usize;
    let mut before = Vec::new();
    for i in 1.. {
        let len = recorder.bytes_written();
        recorder.write(&common::snapshot_record(i)).unwrap();
        if recorder.bytes_written() < len {
            let after = std::fs::read(path).unwrap();
            assert_eq!(after.len() as u64, recorder.bytes_written());
            std::mem::forget(recorder);
            return (header, before, after, i);
        } else if recorder.bytes_written() > len {
            before = std::fs::read(path).unwrap();
        }
    }
    unreachable!()
}

fn rows(snapshots: u32) -> Vec<Row> {
    let snapshots: Vec<_> = (1..=snapshots).map(|i| (common::snapshot(i), common::cost(i))).collect();
    common::rows_of(&snapshots)
}

#[test]
fn a_complete_segment_is_one_batch_with_the_same_events_in_fewer_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let (header, before, after, snapshots) = complete(&path);
    assert!((after.len() - header) * 10 < before.len() - header, "{} of {} bytes", after.len(), before.len());
    assert!(common::read(&path).unwrap() == rows(snapshots));
}

#[test]
fn a_recorder_that_is_killed_while_it_replaces_a_segment_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let (header, before, after, snapshots) = complete(&path);
    let (rows, whole) = (rows(snapshots), &after[header..]);
    let read = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let recording = Recording::open(&path).unwrap();
        assert_eq!(recording.damage(), []);
        (recording.ending(), common::read(&path).unwrap())
    };
    // It is written after the batches that it replaces.
    for written in [1, 100, whole.len() / 2, whole.len() - 1] {
        let (ending, read) = read(&[&before, &whole[..written]].concat());
        assert_eq!(ending, Ending::CutShort { at: before.len() as u64 });
        assert!(!read.is_empty() && rows.starts_with(&read) && rows.len() - read.len() <= 12);
    }
    let copied = [&before[..], whole].concat();
    for moved in [0, 1, 8, 100, whole.len() / 2, whole.len() - 1, whole.len()] {
        let mut bytes = copied.clone();
        bytes[header..header + moved].copy_from_slice(&whole[..moved]);
        let (ending, read) = read(&bytes);
        assert!(ending == Ending::Unfinished && read == rows, "{moved}: {ending:?}, {} rows", read.len());
    }
}

#[test]
fn a_reader_sees_what_was_there_when_it_opened_the_recording() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let mut recorder = Recorder::create(&path, &common::header()).unwrap();
    recorder.write(&common::snapshot_record(1)).unwrap();
    recorder.flush().unwrap();
    let recording = Recording::open(&path).unwrap();
    let mut len = 0;
    for i in 2.. {
        recorder.write(&common::snapshot_record(i)).unwrap();
        if recorder.bytes_written() < len {
            break;
        }
        len = recorder.bytes_written();
    }
    let seen: Vec<_> = recording.snapshots().map(|record| record.unwrap().snapshot.time).collect();
    assert_eq!(seen, [common::snapshot(1).time]);
}
