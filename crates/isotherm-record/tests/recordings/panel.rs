//! Readings of the panel come back as they were made.

use std::path::Path;
use std::time::Duration;

use isotherm_core::survey::WINDOWS;
use isotherm_core::{Estimate, MappingPanel, PanelSnapshot, TargetPanel};
use isotherm_record::{Contents, Cut, Format, RecordError, Recorder, Recording, convert, cut};

use crate::common;

const SURVEYS: Contents = Contents { activities: false, surveys: true, live: true, marks: false, allocations: false };

fn within(bytes: u64) -> [Estimate; WINDOWS.len()] {
    std::array::from_fn(|nth| Estimate { low: bytes, value: bytes + nth as u64, high: 2 * bytes + nth as u64 })
}

/// A reading of two processes, this many milliseconds after the start.
fn reading(ms: u64) -> PanelSnapshot {
    let mapping = MappingPanel { range: common::range(16..32), within: within(ms) };
    let target =
        |pid| TargetPanel { id: common::process(pid), within: within(ms + 1), by_mapping: vec![mapping.clone()] };
    PanelSnapshot {
        time: Duration::from_millis(ms),
        interval: Duration::from_millis(999),
        observed: Duration::from_millis(ms),
        reads: 4000,
        clears: 400,
        total: within(3 * ms),
        by_party: vec![],
        targets: vec![target(7), target(8)],
    }
}

fn read(path: &Path) -> Vec<PanelSnapshot> {
    Recording::open(path).unwrap().panels().map(Result::unwrap).collect()
}

fn record(path: &Path) -> Vec<PanelSnapshot> {
    let mut recorder = Recorder::create_with(path, &common::header(), SURVEYS).unwrap();
    let readings: Vec<PanelSnapshot> = [250, 1250, 9000].map(reading).into();
    for i in 1..=20 {
        recorder.write(&common::snapshot_record(i)).unwrap();
    }
    readings.iter().for_each(|reading| recorder.write_panel(reading).unwrap());
    assert!(matches!(recorder.write_panel(&reading(100)), Err(RecordError::Encode { .. })), "time goes backwards");
    recorder.finish().unwrap();
    readings
}

#[test]
fn readings_are_read_as_they_were_made_also_after_a_conversion() {
    let directory = tempfile::tempdir().unwrap();
    let [path, copy] = ["a.rec", "b.rec"].map(|name| directory.path().join(name));
    let readings = record(&path);
    assert_eq!(read(&path), readings);
    convert(&Recording::open(&path).unwrap(), &copy, Format::Recording).unwrap();
    assert_eq!(read(&copy), readings);
}

#[test]
fn json_has_each_reading_with_its_bounds() {
    let directory = tempfile::tempdir().unwrap();
    let [path, json] = ["a.rec", "a.json"].map(|name| directory.path().join(name));
    let readings = record(&path);
    convert(&Recording::open(&path).unwrap(), &json, Format::Json).unwrap();
    let document: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let found = document["panel"].as_array().unwrap();
    assert_eq!(found.len(), readings.len());
    let within = |of: &serde_json::Value| of["within"][1].clone();
    assert_eq!(found[2]["time_ns"], 9_000_000_000_u64);
    let (total, target) = (&found[2]["total"][1], &found[2]["targets"][1]);
    assert_eq!(*total, serde_json::json!({"low_bytes": 27_000, "bytes": 27_001, "high_bytes": 54_001}));
    assert_eq!((&target["id"]["pid"], &within(target)["bytes"]), (&8.into(), &9002.into()));
    assert_eq!(within(&target["mappings"][0])["low_bytes"], 9000);
}

#[test]
fn a_part_with_some_of_the_targets_has_their_sums() {
    let directory = tempfile::tempdir().unwrap();
    let [path, part] = ["a.rec", "b.rec"].map(|name| directory.path().join(name));
    let readings = record(&path);
    let wanted = Cut { targets: [7].into(), ..Cut::default() };
    cut(&Recording::open(&path).unwrap(), &wanted, &part).unwrap();
    let found = read(&part);
    assert_eq!(found[0].targets, readings[0].targets[..1]);
    assert_eq!(found[0].total, readings[0].targets[0].within);
}
