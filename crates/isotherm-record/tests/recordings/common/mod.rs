//! Recordings to test with.

#![allow(dead_code, reason = "each test takes what it needs")]
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::scheme::{
    ActedRegion, Action, Application, Refusal, RefusalCount, RefusalReason, Report, Statistics,
};
use isotherm_core::survey::{
    BLOCK_SIZE, BlockSums, Kinds, MappingSums, PageSums, SurveyCost, SurveySnapshot, TargetSurvey, Unseen,
};
use isotherm_core::{
    AddrRange, Figures, Mapping, MemoryUse, PAGE_SIZE, RegionSnapshot, Snapshot, SystemMemory, TargetId, TargetSnapshot,
};
use isotherm_record::{
    Activity, AnonymousMemory, Cgroup, Contents, Cost, Header, Host, Limit, NotAfforded, RecordError, RecordedBudget,
    Recorder, Recording, SnapshotRecord, Surroundings, SurveyRecord, TargetInfo, pid_column,
};

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
        budget: Some(RecordedBudget { cpu: 0.01, targets: 0.005 }),
        intervals: Some("auto".into()),
        started_unix_ns: 1_700_000_000_000_000_000,
        host: Host {
            id: "0123456789abcdef0123456789abcdef".into(),
            boot_id: "01234567-89ab-cdef-0123-456789abcdef".into(),
            name: "höst \"one\"".into(),
            kernel: "6.1.0-18-amd64".into(),
            architecture: "x86_64".into(),
            cpus: 2,
            memory_bytes: 8 << 30,
        },
        ..Header::default()
    }
}

/// When all processes started, since the Unix epoch.
const STARTED_UNIX_NS: u64 = 1_600_000_000_000_000_000;

/// The process with this pid. It started 12.34 s after the boot of the machine.
pub fn process(pid: u32) -> TargetId {
    TargetId::process(pid, Duration::from_millis(12_340))
}

/// The identity of the process with this pid in JSON.
pub fn id_json(pid: u32) -> serde_json::Value {
    serde_json::json!({"type": "process", "pid": pid, "start_ns": 12_340_000_000_u64, "cgroup": null})
}

/// Refusals of two reasons.
pub const REFUSALS: [Refusal; 2] = [RefusalReason::Busy.with_code(11), RefusalReason::Other.with_code(12)];

pub fn info(id: TargetId) -> Arc<TargetInfo> {
    Arc::new(TargetInfo {
        command: format!("server, \"{}\" --port 80", pid_column(id)),
        started_unix_ns: STARTED_UNIX_NS,
        cgroup: Some(format!("/system.slice/server@{}.service", pid_column(id))),
        inner_pid: id.pid().filter(|pid| pid % 2 == 0).map(|pid| pid / 2),
    })
}

pub fn range(pages: std::ops::Range<u64>) -> AddrRange {
    AddrRange::new(pages.start * PAGE_SIZE, pages.end * PAGE_SIZE).unwrap()
}

pub fn mapping(pages: std::ops::Range<u64>, name: &str) -> Mapping {
    Mapping { name: name.into(), ..Mapping::anonymous(range(pages)) }
}

/// Snapshot number `i`, 100 ms apart, of two targets; their mappings change with every seventh.
pub fn snapshot(i: u32) -> Snapshot {
    let target = |id: u32| {
        let grown = u64::from(i / 7 % 40);
        let mappings =
            [mapping(16..32, "[heap]"), mapping(40..50 + grown, ""), mapping(100..101, "/usr/lib/libc.so.6")];
        let regions = [(16..20, i % 21), (20..32, 0), (40..50, 20), (100..101, id % 21)];
        TargetSnapshot {
            id: process(id),
            mappings: Arc::from(mappings),
            regions: regions
                .map(|(pages, nr_accesses)| RegionSnapshot {
                    nr_accesses,
                    nr_samples: 20 - i % 2,
                    nr_unobservable: i % 3,
                    age: i,
                    ..RegionSnapshot::new(range(pages))
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
        sampled_rounds: Some(10),
        reads: 160,
        max_reads: 8,
        clears: 3,
        cpu_ns: 1000 + u64::from(i),
        limited: (i > 0).then_some(i.is_multiple_of(2)),
        not_afforded: (i > 0).then_some(NotAfforded {
            surveys: i.is_multiple_of(2),
            samples: i.is_multiple_of(3),
            mappings: i.is_multiple_of(5),
            clears: i.is_multiple_of(7),
        }),
        other_cpu_ns: (i > 0).then_some(10 * u64::from(i)),
        unobservable_bytes: 4096,
        longest_hold_ns: None,
        holds_ns: None,
    }
}

/// Activity number `i`, 30 ms before snapshot number `i`: with each field of another value, and what may be missing
/// there at times.
pub fn activity(i: u32) -> Activity {
    let n = u64::from(i);
    let report = |name: &str, action| Report {
        name: name.into(),
        action: Action::into(action),
        awake: i.is_multiple_of(2),
        quota: (!i.is_multiple_of(3)).then_some(n << 20),
        goal_score: (i % 3 > 1).then_some(0.25 * f64::from(i)),
        quota_share: (i % 3 > 1).then_some(1.0 / f64::from(i)),
        total: Statistics {
            applications: n,
            tried_regions: 2 * n,
            tried_bytes: 30 * PAGE_SIZE * n,
            passed_bytes: 20 * PAGE_SIZE * n,
            applied_regions: n + 1,
            applied_bytes: 10 * PAGE_SIZE * n,
            unmapped_bytes: 11 * PAGE_SIZE * n,
            watched_bytes: 9 * PAGE_SIZE * n,
            returned_bytes: 8 * PAGE_SIZE * n,
            rejected_bytes: 5 * PAGE_SIZE * n,
            refusals: REFUSALS
                .into_iter()
                .take(i as usize % 3)
                .map(|refusal| RefusalCount { refusal, unknown_reason: None, regions: n, bytes: n * PAGE_SIZE })
                .collect(),
            quota_exceeded: n / 2,
            time: Duration::from_micros(7) * i,
        },
        last: Application {
            time: Duration::from_millis(100) * i - Duration::from_millis(40),
            regions: (0..u64::from(i % 4))
                .map(|at| ActedRegion { target: process(7), range: range(16 + at..17 + at), applied: at * PAGE_SIZE })
                .collect(),
            held_back_bytes: 3 * n,
            unobservable_bytes: 4 * n,
        },
    };
    let used = |resident| MemoryUse { resident, proportional: Some(resident - 1), swapped: n };
    Activity {
        time: Duration::from_millis(100) * i - Duration::from_millis(30),
        schemes: vec![report("prcl", Action::PageOut), report("hot \"ones\"", Action::HugePage)],
        memory: [7, 9].into_iter().take(i as usize % 3).map(|id| (process(id), used(n + (1 << 20)))).collect(),
        system: SystemMemory {
            total: 8 << 30,
            free: n << 20,
            available: n << 21,
            swap_total: 1 << 30,
            swap_free: n,
            stalled: i.is_multiple_of(2).then_some(Duration::from_millis(1) * i),
        },
        major_faults: (!i.is_multiple_of(3)).then_some(6 * n),
        compressed_growth: i.is_multiple_of(2).then_some(9 * n),
        surroundings: i.is_multiple_of(2).then(|| surroundings(n)),
    }
}

/// Surroundings with each field of another value, and what may be missing there at times.
fn surroundings(n: u64) -> Surroundings {
    let known = n.is_multiple_of(4);
    let cgroup = Cgroup {
        path: "/a/b".into(),
        directory: known.then(|| "/sys/fs/cgroup/a/b".into()),
        version: 2,
        current_bytes: known.then_some(n << 21),
        high_bytes: known.then_some(n << 22),
        max_bytes: known.then_some(n << 24),
        lowest_limit: known.then(|| Limit { path: "/a".into(), bytes: n << 23 }),
        other_processes: known.then_some(n),
    };
    Surroundings {
        transparent_huge_pages: known.then(|| "always".into()),
        anonymous: (n > 2).then(|| AnonymousMemory { bytes: 3 * n, huge_bytes: known.then_some(n) }),
        cgroup: (n > 2).then_some(cgroup),
    }
}

/// Records snapshots 1 to `count`, each second followed by an activity, and returns what reading them has to give.
pub fn record_with_activities(path: &Path, count: u32) -> (Vec<Row>, Vec<Activity>) {
    let mut recorder = Recorder::create_with_activities(path, &header()).unwrap();
    let mut written = (Vec::new(), Vec::new());
    for i in 1..=count {
        written.0.push((snapshot(i), cost(i)));
        recorder.write(&snapshot_record(i)).unwrap();
        if i.is_multiple_of(2) {
            written.1.push(activity(i));
            recorder.write_activity(&activity(i)).unwrap();
        }
    }
    recorder.finish().unwrap();
    (rows_of(&written.0), written.1)
}

/// Survey number `i`, taken with snapshot number `i`, whose mappings it has. Surveys are a second apart.
pub fn survey(i: u32) -> SurveyRecord {
    let snapshot = snapshot(i);
    let n = u64::from(i);
    let target = |target: &TargetSnapshot| TargetSurvey {
        id: target.id,
        mappings: Arc::clone(&target.mappings),
        by_mapping: (0..2)
            .map(|mapping| {
                let within = std::array::from_fn(|window| window as u64 / 2 * PAGE_SIZE);
                let sums = PageSums {
                    figures: Figures {
                        present: 9 * PAGE_SIZE,
                        touched: n % 9 * PAGE_SIZE,
                        unobservable: 2 * PAGE_SIZE,
                        unknown: n % 3 * PAGE_SIZE,
                        swapped: (mapping == 0).then_some(PAGE_SIZE).into(),
                    },
                    kinds: Kinds {
                        lazily_freed: mapping as u64 * PAGE_SIZE,
                        unseen: [(Unseen::Guest, PAGE_SIZE)].into_iter().collect(),
                    },
                    mapped_again: mapping as u64 * 3 * PAGE_SIZE,
                    within,
                };
                MappingSums::new(mapping, &target.mappings, sums).unwrap()
            })
            .collect(),
        by_block: (0..n % 4)
            .map(|nth| BlockSums {
                pages: Figures {
                    present: 9,
                    touched: 3,
                    swapped: (nth > 0).then_some(2).into(),
                    unobservable: 4,
                    unknown: u16::from(nth != 1),
                },
                start: nth * BLOCK_SIZE,
                idle: Duration::from_secs(nth),
                mean_idle: (nth > 0).then(|| Duration::from_secs(2 * nth)),
            })
            .collect(),
        by_node: Vec::new(),
    };
    SurveyRecord {
        survey: SurveySnapshot {
            time: snapshot.time,
            interval: Duration::from_secs(u64::from(i > 10)),
            cost: SurveyCost { reads: 18, clears: n },
            targets: snapshot.targets.iter().map(target).collect(),
            total: None,
            by_node: Vec::new(),
            by_party: Vec::new(),
            left_out: i.is_multiple_of(30).then(|| format!("{i} bytes of shared memory").into()),
        },
        cpu: (!i.is_multiple_of(20)).then_some(Duration::from_micros(n)),
        infos: snapshot.targets.iter().map(|target| (target.id, info(target.id))).collect(),
        ..SurveyRecord::default()
    }
}

/// Records snapshots 1 to `count` whose regions have present bytes, every tenth followed by a survey, and returns what
/// reading them has to give.
pub fn record_with_surveys(path: &Path, count: u32) -> (Vec<Row>, Vec<SurveyRecord>) {
    let contents = Contents { surveys: true, live: true, ..Contents::default() };
    let mut recorder = Recorder::create_with(path, &header(), contents).unwrap();
    let mut written = (Vec::new(), Vec::new());
    for i in 1..=count {
        let mut record = snapshot_record(i);
        for region in record.snapshot.targets.iter_mut().flat_map(|target| &mut target.regions).skip(1) {
            region.pages = Some(Figures {
                present: PAGE_SIZE,
                touched: 10,
                unobservable: 20,
                unknown: u64::from(i % 30),
                swapped: i.is_multiple_of(2).then_some(0).into(),
            });
        }
        recorder.write(&record).unwrap();
        written.0.push((record.snapshot, cost(i)));
        if i.is_multiple_of(10) {
            recorder.write_survey(&survey(i)).unwrap();
            written.1.push(survey(i));
        }
    }
    recorder.finish().unwrap();
    (rows_of(&written.0), written.1)
}

/// Opens and reads all surveys.
pub fn read_surveys(path: &Path) -> Result<Vec<SurveyRecord>, RecordError> {
    Recording::open(path)?.surveys().collect()
}

/// Opens and reads all activities.
pub fn read_activities(path: &Path) -> Result<Vec<Activity>, RecordError> {
    Recording::open(path)?.activities().collect()
}

/// A snapshot with all that belongs to it.
pub fn record_of(snapshot: &Snapshot, cost: Cost) -> SnapshotRecord {
    let infos = snapshot.targets.iter().map(|target| (target.id, info(target.id))).collect();
    SnapshotRecord { snapshot: snapshot.clone(), cost: Some(cost), infos, ..SnapshotRecord::default() }
}

/// The snapshot as it is read back: what its rounds took stands in its cost.
pub fn as_read(mut record: SnapshotRecord) -> SnapshotRecord {
    let cost = record.cost.unwrap_or_default();
    let snapshot = &mut record.snapshot;
    (snapshot.rounds, snapshot.reads) = (cost.rounds, cost.reads);
    snapshot.sampled_rounds = cost.sampled_rounds.unwrap_or(0);
    (snapshot.max_reads, snapshot.clears) = (cost.max_reads, cost.clears);
    record
}

/// Snapshot number `i` with its cost.
pub fn snapshot_record(i: u32) -> SnapshotRecord {
    record_of(&snapshot(i), cost(i))
}

/// One target in one snapshot.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub time: Duration,
    pub aggregation: Duration,
    pub samples: u32,
    pub target: TargetSnapshot,
    pub info: Arc<TargetInfo>,
    pub cost: Option<Cost>,
}

/// The rows of a snapshot.
pub fn rows(record: &SnapshotRecord) -> impl Iterator<Item = Row> {
    record.rows().map(|row| Row {
        time: row.time,
        aggregation: row.aggregation,
        samples: row.samples,
        target: row.target.clone(),
        info: Arc::clone(row.info),
        cost: row.cost,
    })
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
        recorder.write(&record_of(snapshot, *cost)).unwrap();
    }
    recorder.finish().unwrap();
    rows_of(&snapshots)
}

/// Opens and reads all rows.
pub fn read(path: &Path) -> Result<Vec<Row>, RecordError> {
    let records: Vec<_> = Recording::open(path)?.snapshots().collect::<Result<_, _>>()?;
    Ok(records.iter().flat_map(rows).collect())
}

/// The configuration of property tests: the same cases each time.
pub fn cases(cases: u32) -> proptest::test_runner::Config {
    let rng_seed = proptest::test_runner::RngSeed::Fixed(1);
    proptest::test_runner::Config { cases, rng_seed, failure_persistence: None, ..Default::default() }
}

/// Runs the Python that `ISOTHERM_PYTHON` names, or `python3`, and returns what it prints. It must succeed. An error is
/// the reason to skip the test: there is no Python, or it lacks a module (the scripts end with status 77 then).
pub fn run_python(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>, directory: &Path) -> Result<String, String> {
    const MISSING: i32 = 77;
    let python = std::env::var("ISOTHERM_PYTHON").unwrap_or_else(|_| "python3".into());
    let mut command = std::process::Command::new(&python);
    command.args(arguments).current_dir(directory).stdin(std::process::Stdio::null());
    let output = command.output().map_err(|e| format!("{python} cannot be run: {e}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(MISSING) || error.contains("ModuleNotFoundError") {
        return Err(format!("{python} lacks a module or a program that the script needs; ./dev test installs them"));
    }
    assert!(output.status.success(), "{command:?}: {error}");
    Ok(String::from_utf8(output.stdout).unwrap())
}

/// Runs `tests/read.py LIBRARY PATH` and returns what it prints. An error is the reason to skip the test.
pub fn python(library: &str, path: &Path) -> Result<serde_json::Value, String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/read.py");
    let printed = run_python([OsStr::new(script), OsStr::new(library), path.as_os_str()], Path::new("."))?;
    Ok(serde_json::from_str(&printed).unwrap())
}
