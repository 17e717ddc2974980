//! What is recorded is what is read.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{
    AddrRange, CgroupId, Mapping, MemoryUse, NodeId, PAGE_SIZE, Permissions, RegionSnapshot, Snapshot, TargetId,
    TargetSnapshot,
};
use isotherm_record::{Activity, Cost, Ending, RecordError, Recorder, Recording, SnapshotRecord, TargetInfo};
use proptest::prelude::*;

use crate::common;

fn ranges(most: usize) -> impl Strategy<Value = Vec<AddrRange>> {
    prop::collection::vec((0_u64..1000, 1_u64..1000), 0..most).prop_map(|steps| {
        let mut at = 0;
        let range = |(gap, pages): (u64, u64)| {
            let start = at + gap * PAGE_SIZE;
            at = start + pages * PAGE_SIZE;
            AddrRange::new(start, at).unwrap()
        };
        steps.into_iter().map(range).collect()
    })
}

fn code(range: AddrRange) -> Mapping {
    let permissions = Permissions { read: true, execute: true, ..Permissions::NONE };
    Mapping { permissions, ..Mapping::anonymous(range) }
}

fn mappings() -> impl Strategy<Value = Arc<[Mapping]>> {
    (ranges(6), ".{0,12}", prop::option::of(0_u32..3)).prop_map(|(ranges, name, node)| {
        let mapping = |range| Mapping { name: name.as_str().into(), node: node.map(NodeId), ..code(range) };
        ranges.into_iter().map(mapping).collect()
    })
}

fn target(samples: u32) -> impl Strategy<Value = TargetSnapshot> {
    let regions = ranges(12).prop_flat_map(move |ranges| {
        let regions: Vec<_> = ranges
            .into_iter()
            .map(|range| {
                (0..=samples, 0..=samples, 0..=samples, any::<u32>()).prop_map(
                    move |(nr_accesses, nr_samples, nr_unobservable, age)| RegionSnapshot {
                        nr_accesses,
                        nr_samples,
                        nr_unobservable,
                        age,
                        ..RegionSnapshot::new(range)
                    },
                )
            })
            .collect();
        regions
    });
    (1_u32..4, regions, mappings()).prop_map(|(id, regions, mappings)| TargetSnapshot {
        id: common::process(id),
        regions,
        mappings,
    })
}

fn snapshots() -> impl Strategy<Value = Vec<(Snapshot, Cost)>> {
    let snapshot = (1_u32..40).prop_flat_map(|samples| {
        (prop::collection::vec(target(samples), 0..3), 1_u64..2_000_000_000, any::<u64>()).prop_map(
            move |(mut targets, step, cpu_ns)| {
                targets.dedup_by_key(|target| target.id);
                (samples, targets, step, cpu_ns)
            },
        )
    });
    prop::collection::vec(snapshot, 0..12).prop_map(|steps| {
        let mut time = Duration::ZERO;
        let snapshot = |(samples, targets, step, cpu_ns)| {
            time += Duration::from_nanos(step);
            let aggregation = Duration::from_nanos(step);
            (
                Snapshot { time, aggregation, samples, targets, ..Snapshot::default() },
                Cost { cpu_ns, ..common::cost(1) },
            )
        };
        steps.into_iter().map(snapshot).collect()
    })
}

proptest! {
    #![proptest_config(common::cases(64))]

    #[test]
    fn what_is_read_is_what_was_written(snapshots in snapshots()) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.rec");
        let mut recorder = Recorder::create(&path, &common::header()).unwrap();
        for (snapshot, cost) in &snapshots {
            recorder.write(&common::record_of(snapshot, *cost)).unwrap();
        }
        let bytes = recorder.finish().unwrap();
        prop_assert_eq!(bytes, std::fs::metadata(&path).unwrap().len());

        let recording = Recording::open(&path).unwrap();
        prop_assert_eq!(recording.header(), &common::header());
        prop_assert_eq!(recording.ending(), Ending::Whole);
        prop_assert_eq!(common::read(&path).unwrap(), common::rows_of(&snapshots));
    }
}

#[test]
fn a_recording_without_snapshots_is_whole_and_empty() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    common::record(&path, 0);
    assert_eq!(Recording::open(&path).unwrap().ending(), Ending::Whole);
    assert_eq!(common::read(&path).unwrap(), []);
}

#[test]
fn several_passes_give_the_same_snapshots() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    common::record(&path, 12);
    let recording = Recording::open(&path).unwrap();
    let written: Vec<_> = (1..=12).map(common::snapshot_record).map(common::as_read).collect();
    let mut first = recording.snapshots();
    first.next();
    let second: Vec<_> = recording.snapshots().map(Result::unwrap).collect();
    assert_eq!(second, written);
    assert_eq!(first.map(Result::unwrap).collect::<Vec<_>>(), written[1..]);
}

#[test]
fn rows_share_what_does_not_change() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    common::record(&path, 3);
    let rows = common::read(&path).unwrap();
    assert!(Arc::ptr_eq(&rows[0].info, &rows[2].info));
    assert!(Arc::ptr_eq(&rows[0].target.mappings, &rows[2].target.mappings));
}

#[test]
fn a_target_that_becomes_another_program_gets_its_command_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let mut recorder = Recorder::create(&path, &common::header()).unwrap();
    for i in 1..=4 {
        let mut record = common::snapshot_record(i);
        let named = Arc::new(TargetInfo { command: format!("program {}", i / 3), ..TargetInfo::default() });
        record.infos = record.infos.iter().map(|(id, _)| (*id, Arc::clone(&named))).collect();
        recorder.write(&record).unwrap();
    }
    recorder.finish().unwrap();
    let commands: Vec<_> = common::read(&path).unwrap().iter().map(|row| row.info.command.clone()).collect();
    assert_eq!(commands, [0, 0, 0, 0, 1, 1, 1, 1].map(|n| format!("program {n}")));
}

#[test]
fn a_target_that_was_missing_is_described_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let mut recorder = Recorder::create(&path, &common::header()).unwrap();
    for i in 1..=9 {
        let mut snapshot = common::snapshot(i);
        snapshot.targets.retain(|target| i % 3 != 0 || target.id == common::process(7));
        recorder.write(&common::record_of(&snapshot, common::cost(i))).unwrap();
    }
    recorder.finish().unwrap();
    assert_eq!(common::read(&path).unwrap().len(), 15);
}

#[test]
fn what_is_half_a_second_old_has_been_handed_over() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let mut recorder = Recorder::create(&path, &common::header()).unwrap();
    for i in 1..=50 {
        recorder.write(&common::snapshot_record(i)).unwrap();
        // There is no recording before its first batch.
        let rows = if path.exists() { common::read(&path).unwrap() } else { Vec::new() };
        let seen = rows.last().map_or(Duration::ZERO, |row| row.time);
        let now = common::snapshot(i).time;
        assert!(now - seen < Duration::from_millis(500), "at {now:?} only {seen:?} is there");
    }
}

#[test]
fn dropping_a_recorder_hands_over_what_it_holds() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let mut recorder = Recorder::create(&path, &common::header()).unwrap();
    recorder.write(&common::snapshot_record(1)).unwrap();
    drop(recorder);
    assert_eq!(Recording::open(&path).unwrap().ending(), Ending::Unfinished);
    assert_eq!(common::read(&path).unwrap().len(), 2);
}

#[test]
fn only_the_owner_may_read_whatever_was_there_before() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    std::fs::write(&path, vec![1; 100_000]).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
    common::record(&path, 1);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(common::read(&path).unwrap().len(), 2);

    let new = directory.path().join("new.rec");
    common::record(&new, 1);
    assert_eq!(std::fs::metadata(&new).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_pipe_is_written_to_as_a_file_is() {
    let directory = tempfile::tempdir().unwrap();
    let (pipe, file) = (directory.path().join("pipe"), directory.path().join("a.rec"));
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
    let path = pipe.clone();
    let reader = std::thread::spawn(move || std::fs::read(path).unwrap());
    common::record(&pipe, 12);
    common::record(&file, 12);
    let piped = directory.path().join("piped.rec");
    std::fs::write(&piped, reader.join().unwrap()).unwrap();
    assert_eq!(common::read(&piped).unwrap(), common::read(&file).unwrap());
    assert!(!std::fs::metadata(&pipe).unwrap().is_file());
}

#[test]
fn a_snapshot_with_regions_that_overlap_is_not_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let mut recorder = Recorder::create(&path, &common::header()).unwrap();
    let mut snapshot = common::snapshot(1);
    snapshot.targets[0].regions.reverse();
    let error = recorder.write(&common::record_of(&snapshot, common::cost(1))).unwrap_err();
    assert!(matches!(error, RecordError::Encode { .. }), "{error}");

    // What follows is readable all the same.
    for i in 2..=5 {
        let mut snapshot = common::snapshot(i);
        if i == 3 {
            snapshot.targets[1].regions.reverse();
        }
        assert_eq!(recorder.write(&common::record_of(&snapshot, common::cost(i))).is_err(), i == 3);
    }
    recorder.finish().unwrap();
    // Nothing of a snapshot is written if one of its targets is wrong.
    assert_eq!(common::read(&path).unwrap().len(), 2 * 3);
}

/// A snapshot of one target, which started at this time since the boot and since the epoch.
fn one_target(i: u32, id: TargetId, started_unix_ns: u64) -> SnapshotRecord {
    let mut snapshot = common::snapshot(i);
    snapshot.targets.truncate(1);
    snapshot.targets[0].id = id;
    let info = Arc::new(TargetInfo { command: "server".into(), started_unix_ns, ..TargetInfo::default() });
    SnapshotRecord { snapshot, infos: Arc::new([(id, info)]), ..SnapshotRecord::default() }
}

#[test]
fn two_processes_of_one_pid_are_two_targets() {
    let used = |id| Activity { schemes: vec![], memory: vec![(id, MemoryUse::default())], ..common::activity(1) };
    let mut header = common::header();
    // Without an ID of the boot, starts are counted from the Unix epoch.
    for boot_id in ["4567", ""] {
        header.host.boot_id = boot_id.into();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.rec");
        let process = |ns| TargetId::process(7, Duration::from_nanos(ns));
        let mut recorder = Recorder::create_with_activities(&path, &header).unwrap();
        for (i, ns) in [(1, 1), (2, 2), (3, 2)] {
            let started_unix_ns = if boot_id.is_empty() { ns } else { 1_000_000 };
            recorder.write(&one_target(i, process(ns), started_unix_ns)).unwrap();
            recorder.write_activity(&used(process(ns))).unwrap();
        }
        recorder.finish().unwrap();
        let rows: Vec<_> = common::read(&path).unwrap().into_iter().map(|row| row.target.id).collect();
        assert_eq!(rows, [process(1), process(2), process(2)]);
        let activities = common::read_activities(&path).unwrap();
        assert_eq!(activities.iter().map(|activity| activity.memory[0].0).collect::<Vec<_>>(), rows);
    }
}

#[test]
fn physical_memory_keeps_its_nodes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let ram = |pages, node| Mapping {
        range: common::range(pages),
        permissions: Permissions::NONE,
        name: "System RAM".into(),
        node,
        file: None,
    };
    let mut snapshot = common::snapshot(1);
    snapshot.targets.truncate(1);
    snapshot.targets[0].id = TargetId::PhysicalMemory;
    snapshot.targets[0].mappings =
        [ram(1..30, Some(NodeId(0))), ram(30..60, Some(NodeId(1))), ram(60..99, None)].into();
    let mut recorder = Recorder::create(&path, &common::header()).unwrap();
    recorder.write(&common::record_of(&snapshot, common::cost(1))).unwrap();
    recorder.finish().unwrap();
    assert_eq!(common::read(&path).unwrap()[0].target, snapshot.targets[0]);
}

#[test]
fn cgroups_and_processes_with_one_number_are_different_targets() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let mut recorder = Recorder::create(&path, &common::header()).unwrap();
    let mut written = common::snapshot_record(1);
    written.snapshot.targets[1].id = TargetId::Cgroup(CgroupId(7));
    let infos = [0, 1].map(|nth| (written.snapshot.targets[nth].id, common::info(written.snapshot.targets[nth].id)));
    written.infos = Arc::new(infos);
    recorder.write(&written).unwrap();
    recorder.finish().unwrap();
    let read: Vec<_> = Recording::open(&path).unwrap().snapshots().map(Result::unwrap).collect();
    assert_eq!(read, [common::as_read(written)]);
}

#[test]
fn a_snapshot_that_is_older_than_the_one_before_is_not_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let mut recorder = Recorder::create(&path, &common::header()).unwrap();
    recorder.write(&common::snapshot_record(2)).unwrap();
    let error = recorder.write(&common::snapshot_record(1)).unwrap_err();
    assert!(matches!(error, RecordError::Encode { .. }), "{error}");
    recorder.finish().unwrap();
    assert_eq!(common::read(&path).unwrap().len(), 2);
}
