//! Recordings become rows, once.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::scheme::{Action, Application, Report, Statistics};
use isotherm_core::survey::{MappingSums, PageSums, SurveySnapshot, TargetSurvey, TotalSums, WINDOWS};
use isotherm_core::{
    AddrRange, Figures, Frequency, Mapping, Permissions, Quantity, RegionSnapshot, Snapshot, SystemMemory, TargetId,
    TargetSnapshot, chain,
};
use isotherm_fleet::{Dataset, Names, Source, Written, write};
use isotherm_record::{
    Activity, Contents, Cost, Event, Header, Host, Part, Recorder, SnapshotRecord, SurveyRecord, TargetInfo,
    recording_at,
};
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::Field;

const MIB: u64 = 1 << 20;
/// Some day at midnight, in seconds since the Unix epoch.
const START: u64 = 20_000 * 86_400;
const DATE: &str = "date=2024-10-04";
/// Later than all that is recorded.
const LATER: i64 = START as i64 + 86_400;

/// A process of a made recording: its PID, cgroup and size.
type Process = (u32, &'static str, u64);

const ALL: [Process; 3] = [(1, "/a.slice/a.service", 64), (2, "/a.slice/a.service", 32), (3, "/b.service", 16)];

/// What a recording is of.
#[derive(Clone, Copy)]
struct Made<'a> {
    processes: &'a [Process],
    /// The machine, and its name.
    host: (&'static str, &'static str),
    /// The start of the run, in seconds since that day.
    started: i64,
    /// The part of the run, in seconds.
    seconds: (u64, u64),
    /// The MiB that are shared by all processes.
    shared: u64,
}

const MADE: Made = Made { processes: &ALL, host: ("a1", "node"), started: 0, seconds: (0, 3600), shared: 8 };

fn sums(mib: u64) -> PageSums {
    let bytes = mib * MIB;
    let figures = Figures { present: bytes, touched: bytes / 8, swapped: Quantity::unknown(), ..Figures::default() };
    PageSums { within: [bytes / 4; WINDOWS.len()], ..PageSums::of(figures) }
}

/// Writes a recording that has each half minute a snapshot, a survey and an activity.
fn recorded(path: &Path, made: Made) {
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
        let scheme = Report {
            name: "cold".into(),
            action: Action::PageOut.into(),
            awake: true,
            quota: None,
            goal_score: None,
            quota_share: None,
            total,
            last: Application::default(),
        };
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

/// Writes recordings of groups into a dataset at a time.
fn written(dataset: &Dataset, groups: &[(&str, &[&Path])], now: i64) -> Written {
    let source = |(group, paths): &(&str, &[&Path])| Source {
        group: (*group).into(),
        paths: paths.iter().map(|path| path.to_path_buf()).collect(),
    };
    let sources: Vec<Source> = groups.iter().map(source).collect();
    let names = |cgroup: &str| match cgroup {
        "/b.service" => Names { container: Some("<b>".into()), namespace: Some("shop".into()), pod: None },
        _ => Names::default(),
    };
    let written = write(dataset, &sources, &names, now).unwrap();
    assert_eq!(written.problems, Vec::<String>::new());
    written
}

/// The files of a dataset that engines read.
fn files(dataset: &Dataset) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut ahead = vec![dataset.root().to_owned()];
    while let Some(directory) = ahead.pop() {
        for path in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                ahead.push(path);
            } else if path.extension().is_some_and(|extension| extension == "parquet") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// All rows of a dataset, each with the texts and numbers of its columns.
fn read(dataset: &Dataset) -> Vec<Vec<(String, Field)>> {
    let rows = |path: PathBuf| {
        let reader = SerializedFileReader::new(fs::File::open(path).unwrap()).unwrap();
        let row = |row: Result<parquet::record::Row, _>| row.unwrap().into_columns();
        reader.get_row_iter(None).unwrap().map(row).collect::<Vec<_>>()
    };
    files(dataset).into_iter().flat_map(rows).collect()
}

/// The sum of a column over the rows in which other columns have these texts. `None` if it is null in all of them.
fn sum(rows: &[Vec<(String, Field)>], column: &str, of: &[(&str, &str)]) -> Option<i64> {
    let cell = |row: &[(String, Field)], column: &str| row.iter().find(|(name, _)| name == column).unwrap().1.clone();
    let wanted = rows.iter().filter(|row| {
        of.iter().all(|(column, value)| match cell(row, column) {
            Field::Str(text) => text == *value,
            Field::Long(number) => number.to_string() == *value,
            _ => value.is_empty(),
        })
    });
    let numbers = wanted.filter_map(|row| match cell(row, column) {
        Field::Long(number) => Some(number),
        _ => None,
    });
    numbers.fold(None, |sum, number| Some(sum.unwrap_or(0) + number))
}

#[test]
fn a_recording_becomes_rows_whose_sums_count_shared_memory_once() {
    let directory = tempfile::tempdir().unwrap();
    let (recording, dataset) = (directory.path().join("a.rec"), Dataset::new(&directory.path().join("fleet")));
    recorded(&recording, MADE);
    let done = written(&dataset, &[("all", &[&recording])], LATER);
    assert_eq!((done.quarters, done.present, done.unfinished, done.future, done.twice), (4, 0, 0, 0, 0));
    let rows = read(&dataset);
    assert_eq!(rows.len() as u64, done.rows);
    let mib = |mib: u64| Some((mib * MIB) as i64);
    assert_eq!(sum(&rows, "present_bytes", &[]), mib(60 * (64 + 32 + 16 - 8)));
    assert_eq!(sum(&rows, "present_bytes", &[("kind", "shared")]), Some(-((60 * 8 * MIB) as i64)));
    // Both processes of a service, each program of it, and a container with its namespace.
    assert_eq!(sum(&rows, "present_bytes", &[("service", "a.service")]), mib(60 * 96));
    assert_eq!(sum(&rows, "present_bytes", &[("command", "program-2")]), mib(60 * 32));
    assert_eq!(sum(&rows, "present_bytes", &[("service", "shop/<b>")]), mib(60 * 16));
    assert_eq!(sum(&rows, "swapped_bytes", &[]), None, "nothing is known of swap");
    assert_eq!(sum(&rows, "swapped_bounds", &[]), Some(60 * 3));
    // The first survey is at 30 s. So a window of ten minutes is known from 10:30 on, the eleventh minute.
    assert_eq!(sum(&rows, "within_600s_bytes", &[("command", "program-1")]), mib(50 * 16));
    assert_eq!(sum(&rows, "within_600s_bytes", &[("minute", &(START + 540).to_string())]), None);
    assert_eq!(sum(&rows, "hz_1_bytes", &[("command", "program-1")]), mib(60 * 64));
    assert_eq!(sum(&rows, "hz_1_accesses", &[("command", "program-1")]), Some(60 * 2 * 60 * 64 * 256));
    assert_eq!(sum(&rows, "cpu_ns", &[]), Some(120 * 1000));
    assert_eq!(sum(&rows, "freed_bytes", &[]), Some(3600 * 4096));
    assert_eq!(sum(&rows, "returned_bytes", &[]), Some(3600 * 1024));
    assert_eq!(sum(&rows, "host_memory_bytes", &[]), mib(60 * 1024));
}

#[test]
fn a_process_that_several_groups_watch_counts_in_the_smallest_one() {
    let directory = tempfile::tempdir().unwrap();
    let (all, inner) = (directory.path().join("all.rec"), directory.path().join("inner.rec"));
    recorded(&all, MADE);
    recorded(&inner, Made { processes: &ALL[..2], shared: 5, ..MADE });
    let dataset = Dataset::new(&directory.path().join("fleet"));
    written(&dataset, &[("all", &[&all]), ("a", &[&inner])], LATER);
    let rows = read(&dataset);
    let mib = |mib: i64| Some(60 * mib * MIB as i64);
    assert_eq!(sum(&rows, "present_bytes", &[]), mib(64 + 32 + 16 - 8));
    assert_eq!(sum(&rows, "present_bytes", &[("group_name", "a")]), mib(64 + 32 - 5));
    assert_eq!(sum(&rows, "present_bytes", &[("service", "a.service")]), mib(64 + 32 - 5), "once in its service");
    assert_eq!(sum(&rows, "present_bytes", &[("group_name", "all"), ("kind", "shared")]), mib(-3));
    assert_eq!(sum(&rows, "cpu_ns", &[]), Some(2 * 120 * 1000), "each group has its own cost");
}

#[test]
fn what_is_missing_is_written_later_and_nothing_twice() {
    let directory = tempfile::tempdir().unwrap();
    let [first, second] = ["seconds-1.rec", "seconds-2.rec"].map(|name| directory.path().join("all").join(name));
    let dataset = Dataset::new(&directory.path().join("fleet"));
    recorded(&first, MADE);
    let start = START as i64;
    let done = written(&dataset, &[("all", &[&first])], start + 1800);
    assert_eq!((done.quarters, done.unfinished, done.future), (1, 2, 2), "the second one has just ended");
    // The host was cut off, and went on recording.
    recorded(&second, Made { seconds: (3600, 7200), ..MADE });
    let done = written(&dataset, &[("all", &[&second, &first])], LATER);
    assert_eq!((done.quarters, done.present), (7, 1));
    let whole = read(&dataset);
    let done = written(&dataset, &[("all", &[&first, &second])], LATER);
    assert_eq!((done.quarters, done.rows, done.present), (0, 0, 8));
    // The sums of schemes, and for how long the group was watched, go on from the file before.
    assert_eq!(sum(&whole, "freed_bytes", &[]), Some(7200 * 4096));
    assert_eq!(sum(&whole, "within_600s_bytes", &[("command", "program-1")]), Some(110 * 16 * MIB as i64));

    let compacted = dataset.compact("2024-10-05").unwrap();
    assert_eq!((compacted.days, compacted.files, compacted.twice), (1, 8, 0));
    assert_eq!(read(&dataset), whole);
    assert_eq!(dataset.compact("2024-10-05").unwrap(), Default::default());
    let done = written(&dataset, &[("all", &[&first, &second])], LATER);
    assert_eq!((done.quarters, done.present), (0, 8));
    assert!(dataset.check().unwrap().is_empty());

    // What comes after a compaction is taken into the file of the day.
    let third = directory.path().join("all/seconds-3.rec");
    recorded(&third, Made { seconds: (7200, 9000), ..MADE });
    assert_eq!(written(&dataset, &[("all", &[&first, &second, &third])], LATER).quarters, 2);
    let more = read(&dataset).len();
    assert_eq!(dataset.compact("2024-10-05").unwrap().files, 3);
    assert_eq!((files(&dataset).len(), read(&dataset).len()), (1, more));
}

#[test]
fn a_compaction_that_was_ended_goes_on_and_copies_of_files_go() {
    let directory = tempfile::tempdir().unwrap();
    let (recording, dataset) = (directory.path().join("a.rec"), Dataset::new(&directory.path().join("fleet")));
    recorded(&recording, MADE);
    written(&dataset, &[("all", &[&recording])], LATER);
    let whole = read(&dataset);
    let folder = dataset.root().join(DATE).join("host=a1");
    let kept = directory.path().join("kept");
    fs::copy(folder.join("quarter-02.parquet"), &kept).unwrap();
    dataset.compact("2024-10-05").unwrap();

    // It ended after it had removed one of the files.
    fs::rename(folder.join("day.parquet"), folder.join("day.parquet.new")).unwrap();
    fs::copy(&kept, folder.join("quarter-02.parquet")).unwrap();
    let done = written(&dataset, &[("all", &[&recording])], LATER);
    assert_eq!((done.quarters, done.present), (0, 4));
    assert_eq!(dataset.compact("2024-10-05").unwrap().days, 1);
    assert_eq!(read(&dataset), whole);
    assert!(!folder.join("day.parquet.new").exists());

    // Somebody has put a file back.
    fs::copy(&kept, folder.join("quarter-02.parquet")).unwrap();
    let wrong = dataset.check().unwrap();
    assert!(wrong[0].to_string().contains("another file of this host and day has"), "{wrong:?}");
    assert_eq!(dataset.compact("2024-10-05").unwrap().twice, 1);
    assert_eq!(read(&dataset), whole);
}

#[test]
fn hosts_of_one_name_are_two_and_clocks_that_jump_count_nothing_twice() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = Dataset::new(&directory.path().join("fleet"));
    let path = |name: &str| directory.path().join(name);
    recorded(&path("a.rec"), MADE);
    recorded(&path("b.rec"), Made { host: ("b2", "node"), ..MADE });
    let done = written(&dataset, &[("all", &[&path("a.rec"), &path("b.rec")])], LATER);
    assert_eq!((done.quarters, files(&dataset).len()), (8, 8));
    assert_eq!(sum(&read(&dataset), "present_bytes", &[("host_name", "node")]), Some(120 * 104 * MIB as i64));

    // The clock was set back by half an hour: a second run has minutes that the first one had.
    recorded(&path("c.rec"), Made { host: ("c3", "node"), ..MADE });
    recorded(&path("d.rec"), Made { host: ("c3", "node"), started: 1800, ..MADE });
    let done = written(&dataset, &[("all", &[&path("d.rec"), &path("c.rec")])], LATER);
    assert_eq!((done.quarters, done.twice > 0), (6, true));
    assert_eq!(sum(&read(&dataset), "host_memory_bytes", &[]), Some((120 + 90) * 1024 * MIB as i64));

    // A clock that is a year ahead.
    recorded(&path("e.rec"), Made { host: ("e5", "node"), started: 365 * 86_400, ..MADE });
    let done = written(&dataset, &[("all", &[&path("e.rec")])], LATER);
    assert_eq!((done.quarters, done.future), (0, 5));

    recorded(&path("f.rec"), Made { host: ("", "node"), ..MADE });
    let source = Source { group: "all".into(), paths: vec![path("f.rec")] };
    let error = write(&dataset, &[source], &|_| Names::default(), LATER).unwrap_err();
    assert!(error.to_string().contains("does not say which machine it is of"), "{error}");
}

#[test]
fn files_that_are_cut_short_misplaced_or_of_another_version_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let (recording, dataset) = (directory.path().join("a.rec"), Dataset::new(&directory.path().join("fleet")));
    recorded(&recording, MADE);
    written(&dataset, &[("all", &[&recording])], LATER);
    let folder = dataset.root().join(DATE).join("host=a1");
    let file = folder.join("quarter-01.parquet");
    let whole = fs::read(&file).unwrap();
    let wrong = |expected: &str| {
        let wrong = dataset.check().unwrap();
        assert_eq!(wrong.len(), 1, "{wrong:?}");
        let text = chain(&wrong[0]);
        assert!(text.contains(expected), "{text}");
        let error = dataset.compact("2024-10-05").unwrap_err();
        assert_eq!(chain(&error), text, "nothing is made of it");
        assert!(!folder.join("day.parquet").exists());
    };

    fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    wrong("quarter-01.parquet is cut short");
    fs::write(&file, b"").unwrap();
    wrong("quarter-01.parquet is cut short");

    let key = b"isotherm.fleet.version";
    let place = whole.windows(key.len()).position(|part| part == key).unwrap() + key.len() + 2;
    let mut later = whole.clone();
    assert_eq!(std::mem::replace(&mut later[place], b'7'), b'1');
    fs::write(&file, &later).unwrap();
    wrong("is of version 7 of the dataset, and this isotherm reads version 1");

    fs::write(&file, &whole).unwrap();
    fs::copy(&file, folder.join("mine.parquet")).unwrap();
    wrong("mine.parquet is no file of isotherm's dataset");
    fs::remove_file(folder.join("mine.parquet")).unwrap();
    let other = dataset.root().join(DATE).join("host=b2");
    fs::create_dir(&other).unwrap();
    fs::copy(&file, other.join("quarter-01.parquet")).unwrap();
    let text = dataset.check().unwrap()[0].to_string();
    assert!(text.contains("has rows of host a1 on 2024-10-04, and was moved or copied here"), "{text}");
    let nothing = Dataset::new(directory.path()).check().unwrap_err();
    assert!(nothing.to_string().contains("has no rows of hosts"), "{nothing}");
}
