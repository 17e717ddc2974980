//! One recording of several.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use isotherm_core::scheme::{Action, Report, Statistics};
use isotherm_core::survey::TotalSums;
use isotherm_core::{AddrRange, Allocation, Allocations, MappingCall, MemoryUse, StackFrame, TargetId};
use isotherm_record::{
    Activity, Contents, Cut, Ending, Header, JoinError, Joined, Mark, MarkText, MergeError, Merged, Recorder,
    Recording, Run, SnapshotRecord, cut, examine, merge,
};

use crate::common::*;

const MS: Duration = Duration::from_millis(1);
const ALL: Contents = Contents { activities: true, surveys: true, live: true, marks: true, allocations: true };

/// A header of a run that started this many milliseconds after another one.
fn started(after: u64) -> Header {
    let header = header();
    Header { started_unix_ns: header.started_unix_ns + after * 1_000_000, ..header }
}

/// Snapshots with these numbers, 100 ms apart, of the process `pid`.
fn snapshots(pid: u32, numbers: RangeInclusive<u32>) -> Vec<SnapshotRecord> {
    let one = |i| {
        let mut record = snapshot_record(i);
        record.snapshot.targets.truncate(1);
        record.snapshot.targets[0].id = process(pid);
        SnapshotRecord { infos: [(process(pid), info(process(pid)))].into(), ..record }
    };
    numbers.map(one).collect()
}

/// A directory with recordings, and the result of merging them.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn record(&self, name: &str, header: &Header, records: &[SnapshotRecord]) {
        self.record_with(name, header, Contents::default(), |recorder| {
            records.iter().for_each(|record| recorder.write(record).unwrap());
        });
    }

    fn record_with(&self, name: &str, header: &Header, contents: Contents, write: impl FnOnce(&mut Recorder)) {
        let mut recorder = Recorder::create_with(&self.path(name), header, contents).unwrap();
        write(&mut recorder);
        recorder.finish().unwrap();
    }

    fn merge(&self, names: &[&str]) -> Result<Merged, MergeError> {
        let recordings: Vec<_> = names.iter().map(|name| Recording::open(&self.path(name)).unwrap()).collect();
        merge(&Joined::new(recordings)?, &self.path("all.rec"))
    }

    fn merged(&self) -> Recording {
        Recording::open(&self.path("all.rec")).unwrap()
    }

    fn rows(&self) -> Vec<Row> {
        read(&self.path("all.rec")).unwrap()
    }

    /// Why the recordings are not merged. There is no output then.
    fn refused(&self, names: &[&str]) -> String {
        let error = self.merge(names).unwrap_err().to_string();
        assert!(!self.path("all.rec").exists(), "{error}");
        error
    }
}

fn ms(time: Duration) -> u128 {
    time.as_millis()
}

/// The targets at each time in milliseconds.
fn targets(rows: &[Row]) -> BTreeMap<u128, Vec<TargetId>> {
    let mut targets: BTreeMap<u128, Vec<TargetId>> = BTreeMap::new();
    rows.iter().for_each(|row| targets.entry(ms(row.time)).or_default().push(row.target.id));
    targets
}

/// The rows of a target without their times.
fn of_target(rows: &[Row], id: TargetId) -> Vec<Row> {
    let rows = rows.iter().filter(|row| row.target.id == id);
    rows.map(|row| Row { time: Duration::ZERO, cost: None, ..row.clone() }).collect()
}

#[test]
fn snapshots_at_once_are_joined_so_that_each_has_all_targets() {
    let place = Place::new();
    place.record("b.rec", &started(30), &snapshots(2, 1..=20));
    place.record("a.rec", &started(0), &snapshots(1, 1..=20));
    let merged = place.merge(&["b.rec", "a.rec"]).unwrap();
    assert_eq!(merged, Merged { snapshots: 20, targets: 2, incomplete: vec![] });
    let rows = place.rows();
    let times: BTreeMap<u128, Vec<TargetId>> = (1..=20).map(|i| (i * 100, vec![process(1), process(2)])).collect();
    assert_eq!(targets(&rows), times);
    for (pid, name) in [(1, "a.rec"), (2, "b.rec")] {
        let own = read(&place.path(name)).unwrap();
        assert_eq!(of_target(&rows, process(pid)), of_target(&own, process(pid)));
        assert!(rows.iter().filter(|row| row.target.id == process(pid)).all(|row| row.cost.is_some()));
    }
    let recording = place.merged();
    assert_eq!((recording.ending(), recording.header().started_unix_ns), (Ending::Whole, header().started_unix_ns));
    assert_eq!(
        recording.header().runs,
        [Run { from_ns: 0, to_ns: 2_000_000_000 }, Run { from_ns: 30_000_000, to_ns: 2_030_000_000 }]
    );
    // Two recorders may cost twice as much as one.
    assert_eq!(recording.header().budget.unwrap().cpu, 0.02);
    let found = examine(&recording).unwrap();
    assert_eq!((found.snapshots, found.punctuality.longest_gap), (20, Duration::ZERO));
}

#[test]
fn a_longer_snapshot_is_repeated_and_its_cost_is_not() {
    let place = Place::new();
    place.record("a.rec", &started(0), &snapshots(1, 1..=8));
    let mut slow = snapshots(2, 1..=8);
    slow.retain_mut(|record| {
        record.snapshot.aggregation = MS * 400;
        record.snapshot.time.as_millis().is_multiple_of(400)
    });
    place.record("b.rec", &started(0), &slow);
    place.merge(&["a.rec", "b.rec"]).unwrap();
    let rows = place.rows();
    assert!(targets(&rows).values().all(|targets| targets.len() == 2), "{:?}", targets(&rows));
    let slow: Vec<&Row> = rows.iter().filter(|row| row.target.id == process(2)).collect();
    let costs: Vec<u128> = slow.iter().filter(|row| row.cost.is_some()).map(|row| ms(row.time)).collect();
    assert_eq!((slow.len(), costs), (8, vec![100, 500]));
    assert!(slow.iter().all(|row| row.aggregation == MS * 400));
}

#[test]
fn a_target_is_described_once_although_each_recorder_has_snapshots_of_its_own() {
    let place = Place::new();
    let mappings: Vec<_> = (0..500).map(|i| mapping(16 + i..17 + i, &format!("/{}", i * 7919 % 1009))).collect();
    for (name, start, pid) in [("a.rec", 0, 1), ("b.rec", 50, 2)] {
        let mut records = snapshots(pid, 1..=200);
        let mappings: std::sync::Arc<[_]> = mappings.clone().into();
        records.iter_mut().for_each(|record| record.snapshot.targets[0].mappings = mappings.clone());
        place.record(name, &started(start), &records);
    }
    place.merge(&["a.rec", "b.rec"]).unwrap();
    let bytes = |name: &str| std::fs::metadata(place.path(name)).unwrap().len();
    // Mappings that are written for each time would take more than half of a recording.
    let [all, one] = ["all.rec", "a.rec"].map(bytes);
    assert!(all < one + one / 2, "{all} bytes of both, {one} of one");
}

#[test]
fn recordings_one_after_another_follow_each_other_with_a_gap() {
    let place = Place::new();
    place.record("a.rec", &started(0), &snapshots(1, 1..=10));
    place.record("b.rec", &started(60_000), &snapshots(1, 1..=10));
    place.record("c.rec", &started(30_000), &snapshots(3, 1..=10));
    let merged = place.merge(&["a.rec", "b.rec", "c.rec"]).unwrap();
    assert_eq!((merged.snapshots, merged.targets), (30, 2));
    let times: BTreeSet<u128> = place.rows().iter().map(|row| ms(row.time)).collect();
    let starts = [0, 30_000, 60_000];
    assert_eq!(times, starts.iter().flat_map(|start| (1..=10).map(move |i| start + i * 100)).collect());
    let header = place.merged().header().clone();
    assert_eq!(header.recorded(Duration::ZERO, MS * 61_000), MS * 3000);
    assert_eq!(header.recorded(MS * 900, MS * 30_100), MS * 200);
    // One recorder ran at a time.
    assert_eq!((header.budget.unwrap().cpu, header.max_regions), (0.01, 1000));
    assert_eq!(examine(&place.merged()).unwrap().punctuality.longest_gap, MS * 29_000);
}

#[test]
fn what_was_merged_can_be_merged_with_another() {
    let place = Place::new();
    place.record("a.rec", &started(0), &snapshots(1, 1..=10));
    place.record("b.rec", &started(20), &snapshots(2, 1..=10));
    place.record("c.rec", &started(500), &snapshots(3, 1..=10));
    place.merge(&["a.rec", "b.rec"]).unwrap();
    std::fs::rename(place.path("all.rec"), place.path("two.rec")).unwrap();
    place.merge(&["two.rec", "c.rec"]).unwrap();
    let rows = place.rows();
    for (pid, name) in [(1, "a.rec"), (2, "b.rec"), (3, "c.rec")] {
        let mut merged = of_target(&rows, process(pid));
        merged.dedup();
        assert!(merged == of_target(&read(&place.path(name)).unwrap(), process(pid)), "{name}");
    }
    let cpu = |rows: &[Row]| rows.iter().filter_map(|row| row.cost).map(|cost| cost.cpu_ns).sum::<u64>();
    assert_eq!(cpu(&rows), 3 * cpu(&read(&place.path("a.rec")).unwrap()));
    assert_eq!(place.merged().header().runs.len(), 3);
}

#[test]
fn a_process_that_two_recordings_have_at_the_same_time_is_refused_by_name() {
    let place = Place::new();
    place.record("a.rec", &started(0), &snapshots(7, 1..=10));
    place.record("b.rec", &started(950), &snapshots(7, 1..=10));
    place.record("c.rec", &started(1000), &snapshots(7, 1..=10));
    let why = place.refused(&["a.rec", "b.rec"]);
    for part in ["a.rec", "b.rec", "process 7 (server, \"7\" --port 80)", "count twice"] {
        assert!(why.contains(part), "{why}");
    }
    let why = place.refused(&["c.rec", "c.rec"]);
    assert!(why.contains("process 7"), "{why}");
    // Where one ends as the other one begins, it is one process.
    assert_eq!(place.merge(&["a.rec", "c.rec"]).unwrap().targets, 1);
}

#[test]
fn recordings_that_differ_in_what_figures_rest_on_are_refused() {
    let place = Place::new();
    place.record("a.rec", &started(0), &snapshots(1, 1..=3));
    let with = |change: &dyn Fn(&mut Header)| {
        let mut header = started(10_000);
        change(&mut header);
        place.record("b.rec", &header, &snapshots(2, 1..=3));
        place.refused(&["b.rec", "a.rec"])
    };
    let fixed = |header: &mut Header| header.intervals = Some("fixed".into());
    for (change, what) in [
        (&(|h: &mut Header| h.probe = "idle".into()) as &dyn Fn(&mut Header), "the probes differ (sim and idle)"),
        (&|h| h.granularity = "mapping".into(), "granularities of the probes differ (page and mapping)"),
        (&|h| h.host.id = "f".repeat(32), "the machines differ"),
        (&|h| h.host.boot_id = "other".into(), "the boots of the machine differ"),
        (&|h| h.host.architecture = "aarch64".into(), "the architectures of the machine differ (x86_64 and aarch64)"),
        (&fixed, "the ways of choosing intervals differ (auto and fixed)"),
    ] {
        let why = with(change);
        assert!(why.contains(what) && why.contains("a.rec and ") && why.contains("b.rec as one:"), "{why}");
    }
    let mut header = started(0);
    fixed(&mut header);
    place.record("a.rec", &header, &snapshots(1, 1..=3));
    let why = with(&|header| (header.intervals, header.sampling_ns) = (Some("fixed".into()), 10_000_000));
    assert!(why.contains("the sampling intervals differ (5 ms and 10 ms)"), "{why}");
}

#[test]
fn physical_memory_is_not_merged_with_processes() {
    let place = Place::new();
    place.record("a.rec", &started(0), &snapshots(1, 1..=3));
    let mut physical = snapshots(2, 1..=3);
    physical.iter_mut().for_each(|record| record.snapshot.targets[0].id = TargetId::PhysicalMemory);
    place.record("b.rec", &started(10_000), &physical);
    let why = place.refused(&["a.rec", "b.rec"]);
    assert!(why.contains("one is of processes, the other physical memory"), "{why}");
    place.record("c.rec", &started(20_000), &physical);
    assert_eq!(place.merge(&["b.rec", "c.rec"]).unwrap().targets, 1);
}

/// Records `count` snapshots of a process, with a survey each second.
fn surveyed(place: &Place, name: &str, start: u64, pid: u32, count: u32) {
    place.record_with(
        name,
        &started(start),
        Contents { surveys: true, live: true, ..Contents::default() },
        |recorder| {
            for record in snapshots(pid, 1..=count) {
                let i = (record.snapshot.time.as_millis() / 100) as u32;
                recorder.write(&record).unwrap();
                if i.is_multiple_of(10) {
                    let mut survey = survey(i);
                    survey.survey.targets.truncate(1);
                    survey.survey.targets[0].id = process(pid);
                    survey.survey.total = Some(TotalSums { sums: survey.survey.targets[0].total(), shared: 0 });
                    survey.infos = record.infos;
                    recorder.write_survey(&survey).unwrap();
                }
            }
        },
    );
}

#[test]
fn surveys_at_once_are_joined_and_the_total_of_one_is_not_that_of_both() {
    let place = Place::new();
    surveyed(&place, "a.rec", 0, 1, 50);
    surveyed(&place, "b.rec", 300, 2, 50);
    place.merge(&["a.rec", "b.rec"]).unwrap();
    let found = read_surveys(&place.path("all.rec")).unwrap();
    let told: Vec<_> = found
        .iter()
        .map(|record| {
            let survey = &record.survey;
            (ms(survey.time), ms(survey.interval), survey.targets.len(), survey.total.is_some())
        })
        .collect();
    // The first survey of each tells nothing of when memory was accessed.
    let all = [(1000, 0, 1, true), (1300, 0, 2, false), (2000, 700, 2, false), (3000, 1000, 2, false)];
    assert_eq!(told[..4], all);
    assert_eq!(told.last(), Some(&(5000, 1000, 2, false)));
    for (pid, name) in [(1, "a.rec"), (2, "b.rec")] {
        let of = |record: &isotherm_record::SurveyRecord| {
            record.survey.targets.iter().find(|target| target.id == process(pid)).cloned()
        };
        let own: Vec<_> = read_surveys(&place.path(name)).unwrap().iter().filter_map(of).collect();
        let mut merged: Vec<_> = found.iter().filter_map(of).collect();
        merged.dedup();
        assert_eq!(merged, own);
    }
    let cost = |name: &str| -> u64 {
        read_surveys(&place.path(name)).unwrap().iter().map(|record| record.survey.cost.clears).sum()
    };
    assert_eq!(cost("all.rec"), cost("a.rec") + cost("b.rec"));
}

#[test]
fn surveys_one_after_another_keep_their_totals_and_begin_anew() {
    let place = Place::new();
    surveyed(&place, "a.rec", 0, 1, 30);
    surveyed(&place, "b.rec", 10_000, 1, 30);
    place.merge(&["a.rec", "b.rec"]).unwrap();
    let mut expected = read_surveys(&place.path("a.rec")).unwrap();
    let mut later = read_surveys(&place.path("b.rec")).unwrap();
    later.iter_mut().for_each(|record| record.survey.time += MS * 10_000);
    expected.extend(later);
    assert_eq!(read_surveys(&place.path("all.rec")).unwrap(), expected);
    assert_eq!(expected[3].survey.interval, Duration::ZERO);
}

#[test]
fn parts_of_a_run_are_what_the_run_was() {
    let place = Place::new();
    // The first survey is at the start of the run, and each part has it without its memory.
    place.record_with(
        "a.rec",
        &started(0),
        Contents { surveys: true, live: true, ..Contents::default() },
        |recorder| {
            for record in snapshots(1, 1..=40) {
                let i = (record.snapshot.time.as_millis() / 100) as u32;
                if i % 10 == 1 {
                    let mut survey = survey(i + 9);
                    survey.survey.time = MS * (i - 1) * 100;
                    survey.survey.targets.truncate(1);
                    survey.survey.targets[0].id = process(1);
                    survey.infos = record.infos.clone();
                    recorder.write_survey(&survey).unwrap();
                }
                recorder.write(&record).unwrap();
            }
        },
    );
    for (name, time) in [("one.rec", Duration::ZERO..MS * 1500), ("two.rec", MS * 1500..MS * 9000)] {
        let wanted = Cut { time: Some(time), ..Cut::default() };
        cut(&Recording::open(&place.path("a.rec")).unwrap(), &wanted, &place.path(name)).unwrap();
    }
    place.merge(&["one.rec", "two.rec"]).unwrap();
    assert!(place.rows() == read(&place.path("a.rec")).unwrap());
    let times = |name: &str| -> Vec<u128> {
        read_surveys(&place.path(name)).unwrap().iter().map(|record| ms(record.survey.time)).collect()
    };
    assert_eq!((times("all.rec"), times("a.rec")), (vec![0, 1000, 2000, 3000], vec![0, 1000, 2000, 3000]));
}

/// An activity of a scheme that has done this much, with the memory of a process.
fn did(time: Duration, scheme: &str, pid: u32, done: u64) -> Activity {
    let total = Statistics { applications: done, applied_bytes: done << 20, ..Statistics::default() };
    let report =
        Report { name: scheme.into(), action: Action::PageOut.into(), total, ..activity(2).schemes[0].clone() };
    let used = MemoryUse { resident: u64::from(pid) << 20, proportional: Some(1), swapped: 0 };
    Activity {
        time,
        schemes: vec![report],
        memory: vec![(process(pid), used)],
        major_faults: Some(done),
        ..activity(2)
    }
}

fn acted(place: &Place, name: &str, start: u64, scheme: &str, pid: u32, done: &[u64]) {
    place.record_with(name, &started(start), ALL, |recorder| {
        for (record, nth) in snapshots(pid, 1..=10).iter().zip(1..) {
            recorder.write(record).unwrap();
            if let Some(done) = done.get(nth - 1) {
                recorder.write_activity(&did(record.snapshot.time, scheme, pid, *done)).unwrap();
            }
        }
    });
}

/// The time of an activity, what each of its schemes has done, and its major faults.
type Done = (u128, Vec<(String, u64, u64)>, Option<u64>);

/// What the activities tell.
fn done(place: &Place) -> Vec<Done> {
    let activities = read_activities(&place.path("all.rec")).unwrap();
    let of = |scheme: &Report| (scheme.name.to_string(), scheme.total.applications, scheme.total.applied_bytes >> 20);
    let all = activities.iter().map(|a| (ms(a.time), a.schemes.iter().map(of).collect(), a.major_faults));
    all.collect()
}

#[test]
fn sums_of_schemes_and_faults_go_on_where_the_recording_before_ended() {
    let place = Place::new();
    // In the first one, the scheme begins anew after its second activity.
    acted(&place, "a.rec", 0, "prcl", 1, &[2, 5, 1]);
    acted(&place, "b.rec", 5000, "prcl", 1, &[7, 8]);
    place.merge(&["a.rec", "b.rec"]).unwrap();
    let of = |time, did, faults| (time, vec![("prcl".to_owned(), did, did)], Some(faults));
    assert_eq!(done(&place), [of(100, 2, 2), of(200, 5, 5), of(300, 6, 5), of(5100, 13, 12), of(5200, 14, 13)]);
    let activities = read_activities(&place.path("all.rec")).unwrap();
    let own = read_activities(&place.path("b.rec")).unwrap();
    assert_eq!(activities[3].schemes[0].last.time, own[0].schemes[0].last.time + MS * 5000);
}

#[test]
fn activities_at_once_have_the_schemes_and_the_memory_of_both() {
    let place = Place::new();
    acted(&place, "a.rec", 0, "cold", 1, &[1, 2, 3]);
    acted(&place, "b.rec", 20, "hot", 2, &[5, 6, 7]);
    place.merge(&["a.rec", "b.rec"]).unwrap();
    let of = |time, a, b| (time, vec![("cold".to_owned(), a, a), ("hot".to_owned(), b, b)], Some(a + b));
    assert_eq!(done(&place), [of(100, 1, 5), of(200, 2, 6), of(300, 3, 7)]);
    let memory = |activity: &Activity| activity.memory.iter().map(|(id, _)| *id).collect::<Vec<_>>();
    let activities = read_activities(&place.path("all.rec")).unwrap();
    assert!(activities.iter().all(|activity| memory(activity) == [process(1), process(2)]));

    acted(&place, "c.rec", 50, "cold", 3, &[1]);
    std::fs::remove_file(place.path("all.rec")).unwrap();
    let why = place.refused(&["a.rec", "c.rec"]);
    assert!(why.contains("both have a scheme \"cold\"") && why.contains("c.rec"), "{why}");
}

#[test]
fn marks_are_all_kept_in_the_order_of_time() {
    let place = Place::new();
    let mark = |time: u64, text: &str| Mark { time: MS * time as u32, text: MarkText::new(text.as_bytes()).unwrap() };
    for (name, start, pid, marks) in
        [("a.rec", 0, 1, vec![mark(100, "a"), mark(500, "b")]), ("b.rec", 200, 2, vec![mark(0, "c"), mark(300, "d")])]
    {
        place.record_with(name, &started(start), ALL, |recorder| {
            snapshots(pid, 1..=9).iter().for_each(|record| recorder.write(record).unwrap());
            marks.iter().for_each(|mark| recorder.write_mark(mark).unwrap());
        });
    }
    place.merge(&["a.rec", "b.rec"]).unwrap();
    let marks: Vec<Mark> = place.merged().marks().collect::<Result<_, _>>().unwrap();
    assert_eq!(marks, [mark(100, "a"), mark(200, "c"), mark(500, "b"), mark(500, "d")]);
}

#[test]
fn stacks_get_numbers_of_their_own() {
    let place = Place::new();
    for (name, start, pid) in [("a.rec", 0, 1), ("b.rec", 20, 2)] {
        let frame = StackFrame { function: Some(name.into()), module: None, offset: 1 };
        let call = |time: u32| Allocation {
            time: MS * time,
            target: process(pid),
            call: MappingCall::Mmap,
            range: AddrRange::new(0x10_000, 0x20_000).unwrap(),
            stack: Some(0),
        };
        place.record_with(name, &started(start), ALL, |recorder| {
            let stacks = vec![(0, [frame].into())];
            recorder.write_allocations(&Allocations { time: MS * 50, stacks, calls: vec![call(40)], lost: 1 }).unwrap();
            snapshots(pid, 1..=9).iter().for_each(|record| recorder.write(record).unwrap());
            let later = Allocations { time: MS * 800, calls: vec![call(790)], ..Allocations::default() };
            recorder.write_allocations(&later).unwrap();
        });
    }
    place.merge(&["a.rec", "b.rec"]).unwrap();
    let (mut stacks, mut calls) = (BTreeMap::new(), vec![]);
    for found in place.merged().allocations() {
        let found = found.unwrap();
        stacks.extend(found.stacks);
        calls.extend(found.calls.into_iter().map(|call| (ms(call.time), call.target, call.stack.unwrap())));
    }
    let told: Vec<_> = calls
        .iter()
        .map(|(time, target, stack)| (*time, *target, stacks[stack][0].function.as_deref().unwrap().to_owned()))
        .collect();
    let of = |time, pid, name: &str| (time, process(pid), name.to_owned());
    assert_eq!(told, [of(40, 1, "a.rec"), of(60, 2, "b.rec"), of(790, 1, "a.rec"), of(810, 2, "b.rec")]);
}

#[test]
fn what_can_be_read_of_a_recording_without_an_end_is_merged_and_told() {
    let place = Place::new();
    place.record("a.rec", &started(0), &snapshots(1, 1..=40));
    place.record("b.rec", &started(10_000), &snapshots(2, 1..=10));
    let bytes = std::fs::read(place.path("a.rec")).unwrap();
    std::fs::write(place.path("a.rec"), &bytes[..bytes.len() - 8]).unwrap();
    let merged = place.merge(&["a.rec", "b.rec"]).unwrap();
    assert_eq!(merged.snapshots, 50);
    let [(path, why)] = &merged.incomplete[..] else { panic!("{merged:?}") };
    assert!(path.ends_with("a.rec") && why.contains("no end mark"), "{why}");
    assert_eq!(place.merged().ending(), Ending::Unfinished);

    // A damaged batch in the middle.
    let mut damaged = bytes;
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0xff;
    std::fs::write(place.path("a.rec"), damaged).unwrap();
    let merged = place.merge(&["b.rec", "a.rec"]).unwrap();
    assert!((11..50).contains(&merged.snapshots), "{merged:?}");
    assert!(merged.incomplete[0].1.contains("a part of it is damaged"), "{merged:?}");
    assert_eq!(place.merged().ending(), Ending::Unfinished);
    assert!(examine(&place.merged()).unwrap().error.is_none());
}

#[test]
fn of_a_part_of_a_run_only_the_part_is_merged() {
    let place = Place::new();
    acted(&place, "a.rec", 0, "prcl", 1, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    let wanted = Cut { time: Some(MS * 300..MS * 700), ..Cut::default() };
    cut(&Recording::open(&place.path("a.rec")).unwrap(), &wanted, &place.path("part.rec")).unwrap();
    acted(&place, "b.rec", 2000, "prcl", 1, &[5]);
    place.merge(&["part.rec", "b.rec"]).unwrap();
    let times: Vec<u128> = targets(&place.rows()).into_keys().collect();
    assert_eq!(times[..5], [400, 500, 600, 700, 2100]);
    // What the scheme did before the part does not count.
    let sums: Vec<_> = done(&place).into_iter().map(|(time, schemes, _)| (time, schemes[0].1)).collect();
    assert_eq!(sums, [(400, 1), (500, 2), (600, 3), (700, 4), (2100, 9)]);
    let header = place.merged().header().clone();
    assert_eq!(header.part.map(|part| (part.from_ns, part.to_ns)), Some((300_000_000, None)));
    assert_eq!(header.runs[0], Run { from_ns: 300_000_000, to_ns: 700_000_000 });
    // The rest of the run can follow.
    let wanted = Cut { time: Some(MS * 700..MS * 5000), ..Cut::default() };
    cut(&Recording::open(&place.path("a.rec")).unwrap(), &wanted, &place.path("rest.rec")).unwrap();
    assert_eq!(place.merge(&["rest.rec", "part.rec"]).unwrap().snapshots, 7);
}

#[test]
fn the_output_appears_when_it_is_whole_and_is_none_of_the_recordings() {
    let place = Place::new();
    place.record("a.rec", &started(0), &snapshots(1, 1..=3));
    place.record("b.rec", &started(0), &snapshots(2, 1..=3));
    let open = |name: &str| Recording::open(&place.path(name)).unwrap();
    let before = std::fs::read(place.path("a.rec")).unwrap();
    let joined = Joined::new(vec![open("a.rec"), open("b.rec")]).unwrap();
    let error = merge(&joined, &place.path("a.rec")).unwrap_err();
    assert!(matches!(error, MergeError::Output(_)), "{error}");
    assert_eq!(std::fs::read(place.path("a.rec")).unwrap(), before);
    std::fs::write(place.path("all.rec"), "before").unwrap();
    let error = place.merge(&["a.rec", "a.rec"]).unwrap_err();
    assert!(matches!(error, MergeError::Join(JoinError::SameTarget { .. })), "{error}");
    assert_eq!(std::fs::read_to_string(place.path("all.rec")).unwrap(), "before");
    place.merge(&["a.rec", "b.rec"]).unwrap();
    let old = std::fs::read_to_string(place.path("all.rec.old")).unwrap();
    assert_eq!((old.as_str(), Recording::open(&place.path("all.rec")).unwrap().ending()), ("before", Ending::Whole));
}

#[test]
fn recordings_without_anything_are_refused() {
    let place = Place::new();
    place.record("a.rec", &started(0), &[]);
    place.record("b.rec", &started(9), &[]);
    assert!(place.refused(&["a.rec", "b.rec"]).contains("nothing to merge"));
    place.record("b.rec", &started(9), &snapshots(2, 1..=3));
    assert_eq!(place.merge(&["a.rec", "b.rec"]).unwrap().snapshots, 3);
}
