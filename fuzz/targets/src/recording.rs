//! The reader of recordings.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::scheme::{ActedRegion, Action, Application, RefusalCount, RefusalReason, Report, Statistics};
use isotherm_core::survey::{BlockSums, MappingSums, PageSums, SurveySnapshot, TargetSurvey, WINDOWS};
use isotherm_core::{
    AddrRange, Figures, Frequency, Mapping, MemoryUse, Permissions, RegionSnapshot, Snapshot, SystemMemory, TargetId,
    TargetSnapshot,
};
use isotherm_record::{
    Activity, Cgroup, Contents, Cost, Cut, Event, Header, Host, Joined, Mark, MarkText, Needs, Recorder, Recording,
    SnapshotRecord, Surroundings, SurveyRecord, TargetInfo, TargetInfos, cut, merge,
};

use crate::scratch::Scratch;

thread_local! {
    static FILES: Scratch = Scratch::new("a.rec");
    static PARTS: Scratch = Scratch::new("a.rec");
}

/// Reads a recording as it is, and with correct checksums. A wrong checksum hides defects in the code that follows.
///
/// # Panics
/// If a snapshot is not as documented.
pub fn recording_reader(data: &[u8]) {
    FILES.with(|files| {
        read(files.input(data));
        let mut repaired = data.to_vec();
        repair_checksums(&mut repaired);
        if repaired != data {
            read(files.input(&repaired));
        }
    });
}

/// Cuts a recording in two, and merges the parts.
///
/// # Panics
/// If what is written is not as documented.
pub fn recording_convert(data: &[u8]) {
    PARTS.with(|files| {
        let mut repaired = data.to_vec();
        repair_checksums(&mut repaired);
        let Ok(recording) = Recording::open(files.input(&repaired)) else { return };
        let middle = Duration::from_millis(200);
        let parts = [("before.rec", Duration::ZERO..middle), ("after.rec", middle..Duration::MAX)];
        let parts = parts.into_iter().filter_map(|(name, time)| {
            let path = files.path(name);
            let wanted = Cut { time: Some(time), targets: BTreeSet::new() };
            cut(&recording, &wanted, &path).ok()?;
            read(&path);
            Some(Recording::open(&path).expect("what was cut can be read"))
        });
        let parts: Vec<Recording> = parts.collect();
        let merged = files.path("merged.rec");
        if Joined::new(parts).is_ok_and(|parts| merge(&parts, &merged).is_ok()) {
            read(&merged);
        }
    });
}

fn read(path: &Path) {
    let Ok(recording) = Recording::open(path) else { return };
    let snapshots = |needs: Needs| {
        let events = recording.events(needs).map_while(Result::ok);
        events.filter_map(|event| if let Event::Snapshot(record) = event { Some(record) } else { None })
    };
    let merged = snapshots(Needs { merged: true, ..Needs::SNAPSHOTS | Needs::SURVEYS });
    let merged = merged.filter(|record| record.is_merged);
    let mut time = Duration::ZERO;
    for record in snapshots(Needs::SNAPSHOTS).chain(merged) {
        let snapshot = &record.snapshot;
        assert!(time <= snapshot.time || record.is_merged, "time goes backwards");
        time = snapshot.time;
        for TargetSnapshot { regions, mappings, .. } in &snapshot.targets {
            assert!(regions.is_sorted_by(|a, b| a.range.end() <= b.range.start()), "regions overlap");
            assert!(regions.iter().all(|region| region.nr_accesses <= snapshot.samples), "more accesses than samples");
            assert!(mappings.is_sorted_by(|a, b| a.range.end() <= b.range.start()), "mappings overlap");
        }
    }
    for activity in recording.activities().map_while(Result::ok) {
        let scores = activity.schemes.iter().filter_map(|report| report.goal_score);
        scores.for_each(|score| assert!(score.is_finite()));
    }
    for mark in recording.marks().map_while(Result::ok) {
        let text = &mark.text;
        assert!(!text.is_empty() && text.len() <= LONGEST_TEXT, "the text of a mark is empty or too long");
    }
}

/// The most bytes of the text of a mark: each of its bytes takes four at most, and the end is `…`.
const LONGEST_TEXT: usize = 4 * MarkText::LONGEST + '…'.len_utf8();

const MARKER: [u8; 4] = [0xff; 4];
/// The marker and the length of the metadata.
const PREFIX: usize = 8;
/// The checksums of head and body, at the end of the metadata.
const CHECKSUMS: usize = 8;

/// Computes the checksums of all messages anew (`docs/recording.md` has the layout). Stops at what is not a message.
fn repair_checksums(bytes: &mut [u8]) {
    let mut rest = bytes;
    while let Some((head, body)) = message(rest) {
        let (message, after) = rest.split_at_mut(head + body);
        let (head, body) = message.split_at_mut(head);
        let (checked, sums) = head.split_at_mut(head.len() - CHECKSUMS);
        sums[..4].copy_from_slice(&crc32fast::hash(checked).to_le_bytes());
        sums[4..].copy_from_slice(&crc32fast::hash(body).to_le_bytes());
        rest = after;
    }
}

/// The lengths of the head and the body of the message that begins here.
fn message(bytes: &[u8]) -> Option<(usize, usize)> {
    let (prefix, rest) = bytes.split_at_checked(PREFIX)?;
    let (marker, length) = prefix.split_at(MARKER.len());
    let metadata = u32::from_le_bytes(length.try_into().ok()?) as usize;
    if marker != MARKER || metadata < CHECKSUMS || metadata > rest.len() {
        return None;
    }
    let (metadata, rest) = rest.split_at(metadata);
    let body = usize::try_from(arrow_ipc::root_as_message(metadata).ok()?.bodyLength()).ok()?;
    Some((PREFIX + metadata.len(), body.min(rest.len())))
}

/// What a seed has beside its snapshots.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    ActivitiesAndMarks,
    Surveys,
    /// One batch, with merged snapshots and surveys.
    Merged,
}

/// Small recordings of two targets.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let path = directory.path().join("a.rec");
    let all = [Beside::Nothing, Beside::ActivitiesAndMarks, Beside::Surveys, Beside::Merged];
    let recordings = all.map(|beside| {
        record(&path, beside).expect("a recording can be written");
        std::fs::read(&path).expect("a recording can be read")
    });
    recordings.into()
}

fn record(path: &Path, beside: Beside) -> Result<(), isotherm_record::RecordError> {
    let acts = beside == Beside::ActivitiesAndMarks;
    let surveys = matches!(beside, Beside::Surveys | Beside::Merged);
    let contents = Contents { activities: acts, marks: acts, surveys, live: surveys, ..Contents::default() };
    let mut recorder = Recorder::create_with(path, &header(), contents)?;
    if beside == Beside::Merged {
        recorder = recorder.appearing_whole();
    }
    let info = Arc::new(TargetInfo {
        command: "server --port 80".into(),
        started_unix_ns: 1 << 60,
        cgroup: Some("/a.slice/b".into()),
        inner_pid: Some(7),
    });
    let cost = Cost { rounds: 20, reads: 80, cpu_ns: 1000, ..Cost::default() };
    // So many are merged.
    for i in 1..=if beside == Beside::Merged { 9 } else { 3 } {
        let mut snapshot = snapshot(i);
        if surveys {
            snapshot.targets.iter_mut().flat_map(|target| &mut target.regions).for_each(|region| {
                let pages = Figures { present: 4096, touched: 4096, ..Figures::default() };
                (region.pages, region.frequency) = (Some(pages), Some(Frequency::new(3.0, Some(2.0))));
            });
        }
        let infos: TargetInfos = snapshot.targets.iter().map(|target| (target.id, Arc::clone(&info))).collect();
        let survey = surveys.then(|| survey(&snapshot, Arc::clone(&infos)));
        recorder.write(&SnapshotRecord { snapshot, cost: Some(cost), infos, ..SnapshotRecord::default() })?;
        survey.map_or(Ok(()), |survey| recorder.write_survey(&survey))?;
        if acts {
            recorder.write_activity(&activity(i))?;
            let text = MarkText::new(b"load \xff begins").expect("it has a text");
            recorder.write_mark(&Mark { time: Duration::from_millis(i.into()), text })?;
        }
    }
    recorder.finish().map(drop)
}

/// A survey with a snapshot.
fn survey(snapshot: &Snapshot, infos: TargetInfos) -> SurveyRecord {
    let sums = PageSums {
        figures: Figures { present: 8192, touched: 4096, ..Figures::default() },
        within: [4096; WINDOWS.len()],
        ..PageSums::default()
    };
    let block = BlockSums {
        pages: Figures { present: 20, touched: 3, unobservable: 1, unknown: 1, ..Figures::default() },
        mean_idle: Some(Duration::from_secs(1)),
        ..BlockSums::default()
    };
    let target = |target: &TargetSnapshot| TargetSurvey {
        id: target.id,
        mappings: Arc::clone(&target.mappings),
        by_mapping: MappingSums::new(0, &target.mappings, sums).into_iter().collect(),
        by_block: [block].into_iter().collect(),
        by_node: Vec::new(),
    };
    let targets = snapshot.targets.iter().map(target).collect();
    let interval = Duration::from_millis(100);
    let survey = SurveySnapshot { time: snapshot.time, interval, targets, ..SurveySnapshot::default() };
    SurveyRecord { survey, infos, ..SurveyRecord::default() }
}

fn header() -> Header {
    let host = Host {
        id: "0123456789abcdef0123456789abcdef".into(),
        boot_id: "01234567-89ab-cdef-0123-456789abcdef".into(),
        name: "host".into(),
        kernel: "6.1.0".into(),
        architecture: "x86_64".into(),
        cpus: 2,
        memory_bytes: 8 << 30,
    };
    Header {
        isotherm_version: "0.0.0".into(),
        probe: "sim".into(),
        granularity: "page".into(),
        sampling_ns: 5_000_000,
        aggregation_ns: 100_000_000,
        update_ns: 1_000_000_000,
        min_regions: 10,
        max_regions: 1000,
        seed: 42,
        started_unix_ns: 1 << 60,
        host,
        ..Header::default()
    }
}

fn process(pid: u32) -> TargetId {
    TargetId::process(pid, Duration::from_secs(1))
}

fn range(start: u64, end: u64) -> AddrRange {
    AddrRange::new(start << 12, end << 12).expect("the range is not empty")
}

fn snapshot(i: u32) -> Snapshot {
    let region = |start, end, nr_accesses| RegionSnapshot {
        nr_accesses,
        nr_samples: 20,
        nr_unobservable: i % 2,
        age: i,
        ..RegionSnapshot::new(range(start, end))
    };
    let mapping = |start, end, name: &str| Mapping {
        range: range(start, end),
        permissions: Permissions::READ_WRITE,
        name: name.into(),
        node: None,
        file: None,
    };
    let target = |id| TargetSnapshot {
        id: process(id),
        regions: vec![region(16, 20, i), region(20, 32, 0), region(40, 50, 20)],
        mappings: [mapping(16, 32, "[heap]"), mapping(40, 50 + u64::from(i), "/usr/lib/libc.so.6")].into(),
    };
    Snapshot {
        time: Duration::from_millis(100) * i,
        aggregation: Duration::from_millis(100),
        samples: 20,
        targets: vec![target(7), target(9)],
        ..Snapshot::default()
    }
}

fn activity(i: u32) -> Activity {
    let report = Report {
        name: "cold".into(),
        action: Action::PageOut.into(),
        awake: true,
        quota: Some(1 << 20),
        goal_score: Some(0.5),
        quota_share: Some(0.5),
        total: Statistics {
            refusals: vec![RefusalCount {
                refusal: RefusalReason::NoMemory.into(),
                unknown_reason: None,
                regions: 1,
                bytes: 4096,
            }],
            ..Statistics::default()
        },
        last: Application {
            regions: vec![ActedRegion { target: process(7), range: range(16, 20), applied: 4096 }],
            ..Application::default()
        },
    };
    Activity {
        time: Duration::from_millis(100) * i,
        schemes: vec![report],
        memory: vec![(process(7), MemoryUse::default())],
        system: SystemMemory { stalled: Some(Duration::from_nanos(1)), ..SystemMemory::default() },
        major_faults: Some(1),
        compressed_growth: Some(1),
        surroundings: Some(Surroundings { cgroup: Some(Cgroup::default()), ..Surroundings::default() }),
    }
}
