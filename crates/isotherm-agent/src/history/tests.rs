use std::sync::Arc;
use std::time::Duration;

use isotherm_core::scheme::{Action, Condition, Scheme};
use isotherm_core::{AddrRange, RegionSnapshot, Snapshot, TargetId, TargetSnapshot};
use isotherm_record::{Activity, Header, Host, Needs, SnapshotRecord};
use isotherm_run::{EndReason, Event};

use super::*;
use crate::config::{HistorySettings, Size, Time};

const HOUR: u64 = 3_600_000;
/// Some day at midnight.
const START: u64 = 1_800_000_000_000 / (24 * HOUR) * 24 * HOUR;

fn header() -> Header {
    Header {
        isotherm_version: "0".into(),
        probe: "bpf".into(),
        granularity: "page".into(),
        sampling_ns: 5_000_000,
        aggregation_ns: 100_000_000,
        update_ns: 1_000_000_000,
        min_regions: 10,
        max_regions: 1000,
        seed: 1,
        intervals: Some("auto".into()),
        started_unix_ns: START * 1_000_000,
        host: Host {
            id: "a".into(),
            boot_id: "b".into(),
            name: "c".into(),
            kernel: "6".into(),
            architecture: "x86_64".into(),
            cpus: 1,
            memory_bytes: 1 << 30,
        },
        ..Header::default()
    }
}

fn snapshot(second: u64) -> Event {
    snapshot_of(7, second)
}

fn snapshot_of(pid: u32, second: u64) -> Event {
    let region = RegionSnapshot::new(AddrRange::new(0x1000, 0x9000).unwrap());
    let id = TargetId::process(pid, Duration::ZERO);
    let target = TargetSnapshot { id, regions: vec![region], mappings: Arc::default() };
    let snapshot = Snapshot {
        time: Duration::from_secs(second),
        aggregation: Duration::from_secs(1),
        samples: 20,
        targets: vec![target],
        ..Snapshot::default()
    };
    Event::Snapshot(Arc::new(SnapshotRecord { snapshot, ..SnapshotRecord::default() }))
}

#[test]
fn a_history_that_begins_before_the_schemes_are_known_takes_their_activities() {
    let directory = tempfile::tempdir().unwrap();
    let (header, own) = (header(), std::process::id());
    let mut writer = HistoryWriter::new(directory.path(), Arc::default());
    let mut put = |event| assert_eq!(writer.event(&event, (&header, Duration::ZERO), true), None);
    put(snapshot_of(own, 1));
    put(Event::Schemes([Scheme::new("s", Condition::ANY, Action::Stat)].into()));
    put(snapshot_of(own, 3));
    // The thread of the schemes has read the clock just before.
    put(Event::Activity(Arc::new(Activity { time: Duration::from_millis(2900), ..Activity::default() })));
}

/// Writes one file of a history, of these seconds.
fn written(directory: &Path, header: &Header, seconds: std::ops::Range<u64>) {
    let mut writer = HistoryWriter::new(directory, Arc::default());
    for second in seconds {
        assert_eq!(writer.event(&snapshot(second), (header, Duration::ZERO), false), None);
    }
    assert_eq!(writer.event(&Event::End(EndReason::Stopped), (header, Duration::ZERO), false), None);
}

fn names(directory: &Path) -> Vec<String> {
    let name = |segment: Segment| segment.path.file_name().unwrap().to_str().unwrap().to_owned();
    segments(directory).unwrap().into_iter().map(name).collect()
}

#[test]
fn files_are_made_coarser_and_go_when_they_are_old() {
    let directory = tempfile::tempdir().unwrap();
    let group = directory.path().join("a");
    written(&group, &header(), 1..300);
    let later = Header { started_unix_ns: (START + HOUR) * 1_000_000, ..header() };
    written(&group, &later, 1..100);
    let settings = HistorySettings::default();
    // A daemon that was killed has left the lock of the first file. The newest one is being written.
    let locks = [START, START + HOUR].map(|start| group.join(format!(".seconds-{start}.rec.isotherm-lock")));
    locks.iter().for_each(|lock| std::fs::write(lock, "4711\n").unwrap());
    let (bytes, failed) = maintain(directory.path(), &settings, START + HOUR + 100_000);
    assert!(bytes > 0 && failed.is_empty(), "{failed:?}");
    assert_eq!(locks.map(|lock| lock.exists()), [false, true]);
    let first = START;
    assert_eq!(
        names(&group),
        [format!("seconds-{first}.rec"), format!("seconds-{}.rec", START + HOUR), format!("minutes-{first}.rec"),]
    );
    let kept = open(&group, START + HOUR, START + HOUR + 100_000).unwrap();
    let count = |kept: &read::Kept| {
        let events = kept.recordings.events(Needs { merged: false, ..Needs::ALL });
        events.filter(|event| matches!(event, Ok(isotherm_record::Event::Snapshot(_)))).count()
    };
    assert!(count(&kept) >= 99, "{}", count(&kept));

    // After a day, hours are left of the first file, whose seconds are gone.
    let (_, failed) = maintain(directory.path(), &settings, START + 25 * HOUR);
    assert_eq!(failed, [] as [String; 0]);
    let left = names(&group);
    assert!(left.contains(&format!("hours-{first}.rec")), "{left:?}");
    assert!(!left.contains(&format!("seconds-{first}.rec")), "{left:?}");
    let kept = open(&group, START, START + 25 * HOUR).unwrap();
    let snapshots = count(&kept);
    assert!((100..130).contains(&snapshots), "{snapshots}: the newest file, and five minutes");

    // Nothing but the newest file has room.
    let small = HistorySettings { size: Size(1), ..settings };
    maintain(directory.path(), &small, START + 25 * HOUR);
    assert_eq!(names(&group), [format!("seconds-{}.rec", START + HOUR)]);
    let none = HistorySettings { seconds: Time(Duration::from_secs(1)), ..HistorySettings::default() };
    assert_eq!(maintain(&directory.path().join("none"), &none, START).0, 0);
}

#[test]
fn a_history_that_cannot_be_written_says_so_once_and_harms_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = tempfile::NamedTempFile::new_in(directory.path()).unwrap();
    // A file is no directory.
    let mut writer = HistoryWriter::new(&file.path().join("a"), Arc::default());
    let said = writer.event(&snapshot(1), (&header(), Duration::ZERO), false).unwrap();
    assert!(said.starts_with("the history has stopped: "), "{said}");
    assert_eq!(writer.event(&snapshot(2), (&header(), Duration::ZERO), false), None);
    assert!(writer.failure().is_some() && !file.path().join("a").exists());
    assert!(matches!(open(&directory.path().join("none"), 0, 1), Err(HistoryError::Nothing)));
}
