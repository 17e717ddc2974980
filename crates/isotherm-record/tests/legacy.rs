//! Recordings of formats 1 and 2 are read as those of format 3, and brought to it.
//!
//! `format1.rec` and `format2.rec` hold what [`common`] makes, as earlier versions wrote it. `real1.rec` and
//! `real2.rec` are recordings of a process.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use isotherm_core::{NodeId, Permissions, TargetId};
use isotherm_output::{OutputError, Refusal};
use isotherm_record::{Activity, ConvertError, Ending, Format, Recording, SnapshotRecord, TargetInfo, convert};

fn kept(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files").join(name)
}

/// All that a recording holds.
fn read(path: &Path) -> (Vec<SnapshotRecord>, Vec<Activity>) {
    let recording = Recording::open(path).unwrap();
    let snapshots = recording.snapshots().unwrap().collect::<Result<_, _>>().unwrap();
    (snapshots, recording.activities().unwrap().collect::<Result<_, _>>().unwrap())
}

/// Snapshot number `i` as these formats hold it: no start since the boot, and all samples taken.
fn snapshot(i: u32) -> SnapshotRecord {
    let mut record = common::as_read(common::snapshot_record(i));
    record.snapshot.sampled_rounds = 0;
    if let Some(cost) = &mut record.cost {
        (cost.sampled_rounds, cost.other_cpu_ns, cost.limited, cost.not_afforded) = (None, None, None, None);
    }
    for target in &mut record.snapshot.targets {
        target.id = common::process_by_epoch(target.id.pid().unwrap());
        target.regions.iter_mut().for_each(|region| region.nr_samples = 20);
    }
    let as_then = |info: &TargetInfo| Arc::new(TargetInfo { cgroup: None, inner_pid: None, ..info.clone() });
    let infos = record.infos.iter().map(|(id, info)| (common::process_by_epoch(id.pid().unwrap()), as_then(info)));
    record.infos = infos.collect();
    record
}

fn activity(i: u32) -> Activity {
    let mut activity = common::activity(i);
    // What is new in format 3.
    activity.major_faults = None;
    for scheme in &mut activity.schemes {
        scheme.quota_share = None;
        (scheme.total.watched_bytes, scheme.total.returned_bytes, scheme.total.unmapped_bytes) = (0, 0, 0);
    }
    let acted_on = activity.schemes.iter_mut().flat_map(|scheme| &mut scheme.last.regions);
    for target in acted_on.map(|region| &mut region.target).chain(activity.memory.iter_mut().map(|(id, _)| id)) {
        *target = common::process_by_epoch(target.pid().unwrap());
    }
    activity
}

#[test]
fn both_formats_are_read() {
    let expected: Vec<_> = (1..=16).map(snapshot).collect();
    let (snapshots, activities) = read(&kept("format1.rec"));
    assert_eq!(Recording::open(&kept("format1.rec")).unwrap().format(), 1);
    assert_eq!((snapshots, activities), (expected.clone(), vec![]));

    let (snapshots, activities) = read(&kept("format2.rec"));
    assert_eq!(Recording::open(&kept("format2.rec")).unwrap().format(), 2);
    assert_eq!(snapshots, expected);
    assert_eq!(activities, (1..=8).map(|i| activity(2 * i)).collect::<Vec<_>>());
}

#[test]
fn the_nodes_of_physical_memory_are_taken_out_of_the_names() {
    let (snapshots, _) = read(&kept("format1-physical.rec"));
    let target = &snapshots[0].snapshot.targets[0];
    assert_eq!(target.id, TargetId::PhysicalMemory);
    let mappings: Vec<_> = target.mappings.iter().map(|m| (&*m.name, m.node, m.permissions)).collect();
    let ram = |node| ("System RAM", node, Permissions::NONE);
    assert_eq!(mappings, [ram(Some(NodeId(0))), ram(Some(NodeId(1))), ram(None)]);
}

#[test]
fn a_recording_of_any_format_is_brought_to_the_present_one() {
    let directory = tempfile::tempdir().unwrap();
    let newest = directory.path().join("newest.rec");
    common::record_with_activities(&newest, 9);
    let files = ["format1.rec", "format1-physical.rec", "format2.rec", "real1.rec", "real2.rec"].map(kept);
    for old in files.into_iter().chain([newest]) {
        let output = directory.path().join("new.rec");
        let recording = Recording::open(&old).unwrap();
        convert(&recording, &output, Format::Recording).unwrap();
        let converted = Recording::open(&output).unwrap();
        assert_eq!((converted.format(), converted.ending()), (3, Ending::Whole));
        assert_eq!(converted.header(), recording.header());
        let (held, holds) = (read(&old), read(&output));
        assert!(!holds.0.is_empty());
        assert_eq!(holds, held, "{}", old.display());
    }
}

#[test]
fn a_real_recording_has_its_process_and_what_schemes_did() {
    let (snapshots, activities) = read(&kept("real2.rec"));
    let target = &snapshots[0].snapshot.targets[0];
    assert_eq!(snapshots[0].info(target.id).command, "sleep 30");
    assert!(target.mappings.iter().any(|mapping| &*mapping.name == "[stack]"));
    let last = activities.last().unwrap();
    assert_eq!(last.schemes.iter().map(|report| &*report.action.name).collect::<Vec<_>>(), ["pageout", "stat"]);
    assert_eq!(last.memory[0].0, target.id);
}

#[test]
fn a_recording_without_an_end_mark_stays_one() {
    let directory = tempfile::tempdir().unwrap();
    let (old, new) = (directory.path().join("old.rec"), directory.path().join("new.rec"));
    let bytes = std::fs::read(kept("format2.rec")).unwrap();
    std::fs::write(&old, &bytes[..bytes.len() - 8]).unwrap();
    convert(&Recording::open(&old).unwrap(), &new, Format::Recording).unwrap();
    assert_eq!(Recording::open(&new).unwrap().ending(), Ending::Unfinished);
    assert_eq!(read(&new), read(&old));
}

#[test]
fn a_recording_is_not_converted_to_itself_and_a_damaged_one_not_at_all() {
    let directory = tempfile::tempdir().unwrap();
    let (old, new) = (directory.path().join("old.rec"), directory.path().join("new.rec"));
    let mut bytes = std::fs::read(kept("format1.rec")).unwrap();
    std::fs::write(&old, &bytes).unwrap();
    let error = convert(&Recording::open(&old).unwrap(), &old, Format::Recording).unwrap_err();
    assert!(matches!(error, ConvertError::Output(OutputError { refusal: Refusal::Input, .. })), "{error}");
    assert_eq!(std::fs::read(&old).unwrap(), bytes);

    let near_the_end = bytes.len() - 30;
    bytes[near_the_end] ^= 1;
    std::fs::write(&old, &bytes).unwrap();
    let error = convert(&Recording::open(&old).unwrap(), &new, Format::Recording).unwrap_err();
    assert!(matches!(error, ConvertError::Record(_)), "{error}");
    assert!(!new.exists());
}
