//! Recordings whose memory is known, for tests of datasets.
#![allow(dead_code, reason = "each test uses a part")]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::scheme::{Action, Report, Statistics};
use isotherm_core::survey::{MappingSums, PageSums, SurveySnapshot, TargetSurvey, TotalSums, WINDOWS};
use isotherm_core::{
    AddrRange, Figures, Frequency, Mapping, Permissions, Quantity, RegionSnapshot, Snapshot, SystemMemory, TargetId,
    TargetSnapshot,
};
use isotherm_record::{
    Activity, Contents, Cost, Event, Header, Host, Part, Recorder, SnapshotRecord, SurveyRecord, TargetInfo,
    recording_at,
};

pub const MIB: u64 = 1 << 20;
/// Some day at midnight, in seconds since the Unix epoch.
pub const START: u64 = 20_000 * 86_400;
pub const DATE: &str = "date=2024-10-04";
/// Later than all that is recorded.
pub const LATER: i64 = START as i64 + 86_400;

/// A process of a made recording: its PID, cgroup and size.
pub type Process = (u32, &'static str, u64);

pub const ALL: [Process; 3] = [(1, "/a.slice/a.service", 64), (2, "/a.slice/a.service", 32), (3, "/b.service", 16)];

/// What a recording is of.
#[derive(Clone, Copy)]
pub struct Made<'a> {
    pub processes: &'a [Process],
    /// The machine, and its name.
    pub host: (&'static str, &'static str),
    /// The start of the run, in seconds since that day.
    pub started: i64,
    /// The part of the run, in seconds.
    pub seconds: (u64, u64),
    /// The MiB that are shared by all processes.
    pub shared: u64,
}

pub const MADE: Made = Made { processes: &ALL, host: ("a1", "node"), started: 0, seconds: (0, 3600), shared: 8 };

fn sums(mib: u64) -> PageSums {
    let bytes = mib * MIB;
    let figures = Figures { present: bytes, touched: bytes / 8, swapped: Quantity::unknown(), ..Figures::default() };
    PageSums { within: [bytes / 4; WINDOWS.len()], ..PageSums::of(figures) }
}

/// Writes a recording that has each half minute a snapshot, a survey and an activity.
pub fn recorded(path: &Path, made: Made) {
    let (id, name) = made.host;
    let header = Header {
        isotherm_version: "0".into(),
        probe: "bpf".into(),
        granularity: "page".into(),
        sampling_ns: 5_000_000,
        aggregation_ns: 100_000_000,
        update_ns: 1_000_000_000,
        min_regions: 10,
        max_regions: 1000,
        started_unix_ns: (START as i64 + made.started) as u64 * 1_000_000_000,
        host: Host { id: id.into(), boot_id: "boot".into(), name: name.into(), ..Host::default() },
        part: (made.seconds.0 > 0).then(|| Part { from_ns: made.seconds.0 * 1_000_000_000, to_ns: None }),
        ..Header::default()
    };
    let contents = Contents { activities: true, surveys: true, ..Contents::default() };
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut recorder = Recorder::begin(recording_at(path).create().unwrap(), &header, contents).unwrap();
    let target = |pid: u32| TargetId::process(pid, Duration::from_secs(pid.into()));
    let range = |mib: u64| AddrRange::new(0x1000_0000, 0x1000_0000 + mib * MIB).unwrap();
    let mappings: Vec<Arc<[Mapping]>> = made.processes.iter().map(|(_, _, mib)| mapping(range(*mib))).collect();
    let infos: Arc<[_]> = made
        .processes
        .iter()
        .map(|(pid, cgroup, _)| {
            let command = format!("/usr/bin/program-{pid} --option");
            let info = TargetInfo { command, cgroup: Some((*cgroup).into()), ..TargetInfo::default() };
            (target(*pid), Arc::new(info))
        })
        .collect();
    let each = || made.processes.iter().zip(&mappings);
    for second in (made.seconds.0 + 30..=made.seconds.1).step_by(30) {
        let time = Duration::from_secs(second);
        let snapshot = Snapshot {
            time,
            aggregation: Duration::from_secs(30),
            samples: 100,
            targets: each()
                .map(|((pid, _, mib), mappings)| {
                    let mut region = RegionSnapshot::new(range(*mib));
                    region.frequency = Some(Frequency::new(2.0, Some(1.5)));
                    region.pages = Some(sums(*mib).figures);
                    TargetSnapshot { id: target(*pid), regions: vec![region], mappings: Arc::clone(mappings) }
                })
                .collect(),
            ..Snapshot::default()
        };
        let cost = Cost { cpu_ns: 1000, reads: 10, clears: 1, holds_ns: Some(5), ..Cost::default() };
        let record = SnapshotRecord { snapshot, cost: Some(cost), infos: Arc::clone(&infos), ..Default::default() };
        recorder.write_event(&Event::Snapshot(record)).unwrap();
        let survey = SurveySnapshot {
            time,
            interval: Duration::from_secs(if second == 30 { 0 } else { 30 }),
            targets: each()
                .map(|((pid, _, mib), mappings)| TargetSurvey {
                    id: target(*pid),
                    mappings: Arc::clone(mappings),
                    by_mapping: vec![MappingSums::new(0, mappings, sums(*mib)).unwrap()],
                    by_block: Default::default(),
                    by_node: Vec::new(),
                })
                .collect(),
            total: Some(TotalSums {
                sums: sums(made.processes.iter().map(|(_, _, mib)| mib).sum::<u64>() - made.shared),
                shared: made.shared * MIB,
            }),
            ..SurveySnapshot::default()
        };
        let record = SurveyRecord { survey, infos: Arc::clone(&infos), ..SurveyRecord::default() };
        recorder.write_event(&Event::Survey(record)).unwrap();
        let total = Statistics {
            applications: second,
            applied_bytes: second * 4096,
            watched_bytes: second * 2048,
            returned_bytes: second * 1024,
            ..Statistics::default()
        };
        let scheme = Report { total, ..Report::new("cold", Action::PageOut) };
        let system = SystemMemory { total: 1024 * MIB, available: 512 * MIB, ..SystemMemory::default() };
        let activity = Activity { time, schemes: vec![scheme], system, ..Activity::default() };
        recorder.write_event(&Event::Activity(activity)).unwrap();
    }
    recorder.finish().unwrap();
}

fn mapping(range: AddrRange) -> Arc<[Mapping]> {
    let permissions = Permissions { read: true, write: true, ..Permissions::default() };
    Arc::new([Mapping { range, permissions, name: "".into(), node: None, file: None }])
}
