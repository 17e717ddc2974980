//! Calls that mapped memory, written and read.

use std::time::Duration;

use isotherm_core::{AddrRange, Allocation, Allocations, MappingCall, StackFrame, TargetId};
use isotherm_record::{Contents, Cut, Format, Items, RecordError, Recorder, Recording, convert, cut, examine};

use crate::common::*;

const ALLOCATIONS: Contents =
    Contents { activities: false, surveys: false, live: false, marks: false, allocations: true };

fn frame(function: Option<&str>, module: Option<&str>) -> StackFrame {
    StackFrame { function: function.map(Into::into), module: module.map(Into::into), offset: 19 }
}

fn call(pid: u32, time: Duration, call: MappingCall, stack: Option<u32>) -> Allocation {
    let range = AddrRange::new(0x7000_0000, 0x7040_0000).unwrap();
    Allocation { time, target: TargetId::process(pid, Duration::from_secs(1)), call, range, stack }
}

/// The calls of processes 7 and 2 in two batches. The second refers to a stack of the first.
fn batches() -> [Allocations; 2] {
    let ms = Duration::from_millis;
    let libc = Some("/lib/libc.so.6");
    let first = Allocations {
        time: ms(30),
        stacks: vec![
            (0, [frame(Some("mmap"), libc), frame(Some("table_grow"), Some("/bin/program"))].into()),
            (1, [frame(None, None)].into()),
        ],
        calls: vec![
            call(7, ms(0), MappingCall::Exec, None),
            call(7, ms(10), MappingCall::Mmap, Some(0)),
            call(2, ms(20), MappingCall::Brk, Some(1)),
        ],
        lost: 0,
    };
    let calls = vec![call(7, ms(250), MappingCall::Mremap, Some(0))];
    [first, Allocations { time: ms(260), stacks: Vec::new(), calls, lost: 7 }]
}

fn recorded(name: &str) -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    let mut recorder = Recorder::create_with(&path, &header(), ALLOCATIONS).unwrap();
    let [first, second] = batches();
    recorder.write_allocations(&first).unwrap();
    recorder.write(&snapshot_record(1)).unwrap();
    recorder.write_allocations(&second).unwrap();
    recorder.write(&snapshot_record(3)).unwrap();
    recorder.finish().unwrap();
    (dir, path)
}

fn calls_of(path: &std::path::Path) -> Vec<Allocations> {
    let recording = Recording::open(path).unwrap();
    let all: Items<Allocations> = recording.allocations();
    all.collect::<Result<_, RecordError>>().unwrap()
}

#[test]
fn calls_are_read_as_they_were_written_and_other_readers_pass_over_them() {
    let (_dir, path) = recorded("a.rec");
    assert_eq!(calls_of(&path), batches());
    let recording = Recording::open(&path).unwrap();
    assert_eq!(recording.snapshots().count(), 2);
    let found = examine(&recording).unwrap();
    assert_eq!((found.allocations, found.lost_allocations), (4, 7));
}

#[test]
fn a_recording_without_a_column_for_calls_has_none_and_takes_none() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.rec");
    let mut recorder = Recorder::create(&path, &header()).unwrap();
    assert!(matches!(recorder.write_allocations(&batches()[0]), Err(RecordError::Encode { .. })));
    recorder.write(&snapshot_record(1)).unwrap();
    recorder.finish().unwrap();
    assert_eq!(calls_of(&path), []);
}

#[test]
fn a_conversion_to_the_present_format_keeps_calls_and_json_has_them() {
    let (dir, path) = recorded("a.rec");
    let recording = Recording::open(&path).unwrap();
    let (again, json) = (dir.path().join("b.rec"), dir.path().join("b.json"));
    convert(&recording, &again, Format::Recording).unwrap();
    assert_eq!(calls_of(&again), batches());
    convert(&recording, &json, Format::Json).unwrap();
    let json: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    let first = &json["allocations"][0];
    assert_eq!(first["stacks"][0]["frames"][1]["function"], "table_grow");
    assert_eq!((&first["calls"][1]["call"], &first["calls"][1]["stack"]), (&"mmap".into(), &0.into()));
}

#[test]
fn a_part_has_the_calls_of_its_targets_from_the_start() {
    let (dir, path) = recorded("a.rec");
    let output = dir.path().join("part.rec");
    let time = Some(Duration::from_millis(150)..Duration::from_millis(300));
    cut(&Recording::open(&path).unwrap(), &Cut { time, targets: [7].into() }, &output).unwrap();
    let calls: Vec<_> = calls_of(&output).into_iter().flat_map(|found| found.calls).collect();
    assert_eq!(calls.iter().map(|call| call.call.name()).collect::<Vec<_>>(), ["execve", "mmap", "mremap"]);
}

#[test]
fn calls_that_are_older_than_those_before_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::create_with(&dir.path().join("a.rec"), &header(), ALLOCATIONS).unwrap();
    let [first, second] = batches();
    recorder.write_allocations(&second).unwrap();
    assert!(matches!(recorder.write_allocations(&first), Err(RecordError::Encode { .. })));
}
