//! Recordings to test with.

#![allow(dead_code, reason = "each test takes what it needs")]
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{AddrRange, Mapping, PAGE_SIZE, RegionSnapshot, Snapshot, TargetId, TargetSnapshot};
use isotherm_record::{Cost, Header, Host, RecordError, Recorder, Recording, Row, TargetInfo};

pub fn header() -> Header {
    Header {
        isotherm_version: "0.1.0".into(),
        probe: "sim".into(),
        granularity: "page".into(),
        sampling_ns: 5_000_000,
        aggregation_ns: 100_000_000,
        update_ns: 1_000_000_000,
        min_regions: 10,
        max_regions: 1000,
        seed: 42,
        started_unix_ns: 1_700_000_000_000_000_000,
        host: Host {
            name: "höst \"one\"".into(),
            kernel: "6.1.0-18-amd64".into(),
            architecture: "x86_64".into(),
            cpus: 2,
            memory_bytes: 8 << 30,
        },
    }
}

pub fn info(id: TargetId) -> Arc<TargetInfo> {
    Arc::new(TargetInfo { command: format!("server, \"{id}\" --port 80"), started_unix_ns: 1_600_000_000_000_000_000 })
}

pub fn range(pages: std::ops::Range<u64>) -> AddrRange {
    AddrRange::new(pages.start * PAGE_SIZE, pages.end * PAGE_SIZE).unwrap()
}

pub fn mapping(pages: std::ops::Range<u64>, name: &str) -> Mapping {
    Mapping { range: range(pages), permissions: *b"rw-p", name: name.into() }
}

/// Snapshot number `i`, 100 ms apart, of two targets; their mappings change with every seventh.
pub fn snapshot(i: u32) -> Snapshot {
    let target = |id: u32| {
        let grown = u64::from(i / 7 % 40);
        let mappings =
            [mapping(16..32, "[heap]"), mapping(40..50 + grown, ""), mapping(100..101, "/usr/lib/libc.so.6")];
        let regions = [(16..20, i % 21), (20..32, 0), (40..50, 20), (100..101, id % 21)];
        TargetSnapshot {
            id: TargetId(id),
            mappings: Arc::from(mappings),
            regions: regions
                .map(|(pages, nr_accesses)| RegionSnapshot {
                    range: range(pages),
                    nr_accesses,
                    nr_unobservable: i % 3,
                    age: i,
                })
                .to_vec(),
        }
    };
    Snapshot {
        time: Duration::from_millis(100) * i,
        aggregation: Duration::from_millis(100),
        samples: 20,
        targets: vec![target(7), target(9)],
        ..Snapshot::default()
    }
}

pub fn cost(i: u32) -> Cost {
    Cost {
        rounds: 20,
        late_rounds: i % 2,
        reads: 160,
        max_reads: 8,
        clears: 3,
        cpu_ns: 1000 + u64::from(i),
        unobservable_bytes: 4096,
    }
}

/// The rows that reading `snapshots` has to give.
pub fn rows_of(snapshots: &[(Snapshot, Cost)]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (snapshot, cost) in snapshots {
        for (i, target) in snapshot.targets.iter().enumerate() {
            rows.push(Row {
                time: snapshot.time,
                aggregation: snapshot.aggregation,
                samples: snapshot.samples,
                target: target.clone(),
                info: info(target.id),
                cost: (i == 0).then_some(*cost),
            });
        }
    }
    rows
}

/// Records snapshots 1 to `count` and returns the rows that reading them has to give.
pub fn record(path: &Path, count: u32) -> Vec<Row> {
    let snapshots: Vec<_> = (1..=count).map(|i| (snapshot(i), cost(i))).collect();
    let mut recorder = Recorder::create(path, &header()).unwrap();
    for (snapshot, cost) in &snapshots {
        recorder.write(snapshot, cost, &info).unwrap();
    }
    recorder.finish().unwrap();
    rows_of(&snapshots)
}

/// Opens and reads all rows.
pub fn read(path: &Path) -> Result<Vec<Row>, RecordError> {
    Recording::open(path)?.rows()?.collect()
}

/// The configuration of property tests: the same cases each time.
pub fn cases(cases: u32) -> proptest::test_runner::Config {
    let rng_seed = proptest::test_runner::RngSeed::Fixed(1);
    proptest::test_runner::Config { cases, rng_seed, failure_persistence: None, ..Default::default() }
}

/// Runs `tests/read.py LIBRARY PATH` and returns what it prints, or `None`, said loudly, where the library is missing.
pub fn python(library: &str, path: &Path) -> Option<serde_json::Value> {
    const MISSING: i32 = 77;
    let python = std::env::var("ISOTHERM_PYTHON").unwrap_or_else(|_| "python3".into());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/read.py");
    let Ok(output) = std::process::Command::new(&python).arg(script).arg(library).arg(path).output() else {
        eprintln!("SKIPPED: reading a recording with {library}: there is no {python}");
        return None;
    };
    if output.status.code() == Some(MISSING) {
        eprintln!("SKIPPED: reading a recording with {library}: {python} does not have it");
        return None;
    }
    assert!(output.status.success(), "{library}: {}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}
