//! Small files that hold very much: each takes a bounded amount of memory and time.
//!
//! The bounds are about ten times what is needed, so that only a bomb exceeds them.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod common;

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use common::{Place, Ran};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use isotherm_core::{AddrRange, Mapping, PAGE_SIZE, RegionSnapshot, Snapshot, TargetId, TargetSnapshot};
use isotherm_record::{Recorder, Recording, SnapshotRecord};
use nix::sys::resource::{UsageWho, getrusage};

const MIB: u64 = 1 << 20;
/// Tests run at the same time, and the CPU time is that of all children.
const MOST_CPU: Duration = Duration::from_secs(200);

/// Runs isotherm, and checks that no call so far took more memory than this or more CPU time than [`MOST_CPU`].
fn run(place: &Place, arguments: &[&str], most: u64) -> Ran {
    let ran = place.run(arguments);
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap();
    let peak = usage.max_rss() as u64 * 1024;
    assert!(peak <= most, "{arguments:?}: {} MiB", peak / MIB);
    let cpu = Duration::from_secs(usage.user_time().tv_sec().unsigned_abs());
    assert!(cpu <= MOST_CPU, "{arguments:?}: {cpu:?}");
    ran
}

/// A file of damo whose list of snapshots has `item` very often.
fn damo(place: &Place, name: &str, item: &str, count: usize) -> u64 {
    let mut file = ZlibEncoder::new(std::fs::File::create(place.path(name)).unwrap(), Compression::best());
    let intervals = r#"{"sample_us": 5000, "aggr_us": 100000, "ops_update_us": 1000000}"#;
    write!(file, r#"[{{"target_id": 0, "intervals": {intervals}, "snapshots": ["#).unwrap();
    let many = item.repeat(1000);
    (0..count / 1000).for_each(|_| file.write_all(many.as_bytes()).unwrap());
    file.finish().unwrap();
    std::fs::metadata(place.path(name)).unwrap().len()
}

/// All in one test, since memory is measured as the most that any child took.
#[test]
fn small_files_that_hold_very_much_take_bounded_memory_and_time() {
    let place = Place::new();

    // Each field was compared with all before it.
    let fields: Vec<String> = (0..80_000).map(|i| format!("f{i}: 1")).collect();
    std::fs::write(place.path("fields.yaml"), format!("- {{action: stat, {}}}\n", fields.join(", "))).unwrap();
    let ran = run(&place, &["scheme", "check", "fields.yaml"], 256 * MIB);
    assert!(ran.status == 1 && ran.err.contains("has no field \"f0\""), "{}", ran.err);
    std::fs::write(place.path("deep.yaml"), "[".repeat(1 << 19)).unwrap();
    assert_eq!(run(&place, &["scheme", "check", "deep.yaml"], 256 * MIB).status, 1);

    // A compressed file of damo.
    let bytes = damo(&place, "small.damo", r#"{"end_time":2,"regions":[]},"#, 1_000_000);
    let ran = run(&place, &["import", "damo", "small.damo", "--pid", "1"], 512 * MIB);
    assert!(bytes < 2 * MIB && ran.status == 1 && ran.err.contains("--max-memory"), "{bytes}: {}", ran.err);
    let ran = run(&place, &["import", "damo", "small.damo", "--pid", "1", "--max-memory", "10M"], 512 * MIB);
    assert!(ran.err.contains("takes more than 10 MiB of memory"), "{}", ran.err);

    // A recording with many regions: reports show one snapshot after another.
    place.make_recording("a.rec");
    let header = Recording::open(&place.path("a.rec")).unwrap().header().clone();
    let mut recorder = Recorder::create(&place.path("large.rec"), &header).unwrap();
    let range = |at: u64| AddrRange::new(at * PAGE_SIZE, (at + 1) * PAGE_SIZE).unwrap();
    let region = |at| RegionSnapshot {
        range: range(at),
        nr_accesses: 1,
        nr_samples: 20,
        nr_unobservable: 0,
        age: 1,
        pages: None,
    };
    let whole = AddrRange::new(PAGE_SIZE, 150_000 * PAGE_SIZE).unwrap();
    let target = TargetSnapshot {
        id: TargetId::process(7, Duration::ZERO),
        regions: (1..150_000).map(region).collect(),
        mappings: Arc::new([Mapping::anonymous(whole)]),
    };
    for i in 1..=2 {
        let interval = Duration::from_millis(100);
        let (time, targets) = (interval * i, vec![target.clone()]);
        let snapshot = Snapshot { time, aggregation: interval, samples: 20, targets, ..Snapshot::default() };
        recorder.write(&SnapshotRecord { snapshot, ..SnapshotRecord::default() }).unwrap();
    }
    recorder.finish().unwrap();
    for kind in ["regions", "summary", "wss", "heatmap", "overhead"] {
        let ran = run(&place, &["report", kind, "large.rec", "--format", "json"], 512 * MIB);
        assert_eq!(ran.status, 0, "{kind}: {}", ran.err);
    }
    let ran = run(&place, &["report", "regions", "large.rec", "--at", "200ms"], 512 * MIB);
    assert!(ran.out.contains("49,999 more; choose fewer"), "{}", ran.err);
}
