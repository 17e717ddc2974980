//! Several recordings are read as one stream of events.

use std::path::{Path, PathBuf};
use std::time::Duration;

use isotherm_core::TargetId;
use isotherm_record::{
    Contents, Cut, Event, Header, JoinError, Joined, Needs, Recorder, Recording, SnapshotRecord, cut,
};

use crate::common::*;

const MS: Duration = Duration::from_millis(1);

/// A header of a run on a machine that started this many milliseconds after another one.
fn started(after: u64, machine: &str) -> Header {
    let mut header = header();
    header.started_unix_ns += after * 1_000_000;
    (header.host.id, header.host.name) = (machine.repeat(32), format!("host-{machine}"));
    header
}

/// Ten snapshots of a target, 100 ms apart.
fn record(path: &Path, header: &Header, id: TargetId) {
    let mut recorder = Recorder::create(path, header).unwrap();
    for i in 1..=10 {
        let mut record = snapshot_record(i);
        record.snapshot.targets.truncate(1);
        record.snapshot.targets[0].id = id;
        recorder.write(&SnapshotRecord { infos: [(id, info(id))].into(), ..record }).unwrap();
    }
    recorder.finish().unwrap();
}

fn join(paths: &[&PathBuf]) -> Result<Joined, JoinError> {
    Joined::new(paths.iter().map(|path| Recording::open(path)).collect::<Result<_, _>>()?)
}

/// The snapshots, or why there are none any more.
fn snapshots(joined: &Joined) -> Result<Vec<SnapshotRecord>, JoinError> {
    let events = joined.events(Needs::SNAPSHOTS);
    events.map(|event| Ok(if let Event::Snapshot(record) = event? { record } else { panic!("no snapshot") })).collect()
}

#[test]
fn parts_of_a_run_are_read_as_the_whole() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let contents = Contents { activities: true, surveys: true, live: true, marks: true, allocations: false };
    let mut recorder = Recorder::create_with(&path("all.rec"), &header(), contents).unwrap();
    for i in 1..=40 {
        recorder.write(&snapshot_record(i)).unwrap();
        if i % 7 == 0 {
            recorder.write_survey(&survey(i)).unwrap();
            recorder.write_activity(&activity(i)).unwrap();
        }
    }
    recorder.finish().unwrap();
    let whole = Recording::open(&path("all.rec")).unwrap();
    let needs = Needs { costs: false, ..Needs::SNAPSHOTS } | Needs::PANELS | Needs::MARKS;
    let expected: Vec<Event> = whole.events(needs).map(Result::unwrap).collect();
    for at in [MS * 100, MS * 1234, MS * 3900] {
        for (name, time) in [("a.rec", Duration::ZERO..at), ("b.rec", at..MS * 5000)] {
            cut(&whole, &Cut { time: Some(time), ..Cut::default() }, &path(name)).unwrap();
        }
        let joined = join(&[&path("b.rec"), &path("a.rec")]).unwrap();
        let found: Vec<Event> = joined.events(needs).map(Result::unwrap).collect();
        assert!(found == expected, "cut at {at:?}");
        let all: Vec<Duration> = joined.events(Needs::ALL).map(|event| event.unwrap().time()).collect();
        assert!(all.is_sorted() && all.len() == whole.events(Needs::ALL).count(), "cut at {at:?}");
    }
}

#[test]
fn equal_process_ids_of_two_machines_are_two_targets_whose_commands_name_the_machine() {
    let directory = tempfile::tempdir().unwrap();
    let [a, b, later] = ["a", "b", "c"].map(|name| directory.path().join(name));
    record(&a, &started(0, "a"), process(7));
    record(&b, &started(20, "b"), process(7));
    record(&later, &started(5000, "b"), process(7));
    let joined = join(&[&later, &a, &b]).unwrap();
    assert_eq!(joined.header().host.name, "host-a, host-b");
    let mut targets: Vec<_> = snapshots(&joined)
        .unwrap()
        .iter()
        .flat_map(|record| record.rows().map(|row| (row.target.id, row.info.command.clone())).collect::<Vec<_>>())
        .collect();
    targets.sort();
    targets.dedup();
    let told: Vec<_> = targets.iter().map(|(id, command)| (id.pid(), command.as_str())).collect();
    let command = info(process(7)).command.clone();
    assert_eq!(told, [(Some(7), &*format!("{command} (host-a)")), (Some(7), &*format!("{command} (host-b)"))]);
    let why = joined.must_be_of_one_machine().unwrap_err().to_string();
    assert!(why.contains("the machines differ (host-a and host-b)"), "{why}");
    assert!(join(&[&b, &later]).unwrap().must_be_of_one_machine().is_ok());
}

#[test]
fn an_error_names_the_file_and_the_others_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let [a, b] = ["a", "b"].map(|name| directory.path().join(name));
    record(&a, &started(0, "a"), process(7));
    record(&b, &started(5000, "a"), process(8));
    let joined = join(&[&a, &b]).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&a).unwrap();
    file.set_len(0).unwrap();
    let found: Vec<_> = joined.events(Needs::SNAPSHOTS).collect();
    let errors: Vec<String> = found.iter().filter_map(|event| Some(event.as_ref().err()?.to_string())).collect();
    let [error] = &errors[..] else { panic!("{errors:?}") };
    assert!(error.contains(a.to_str().unwrap()), "{error}");
    assert_eq!(found.iter().filter(|event| event.is_ok()).count(), 10);
}

#[test]
fn recordings_that_do_not_fit_together_are_refused_with_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let [a, b] = ["a", "b"].map(|name| directory.path().join(name));
    let refused = |first: (Header, TargetId), second: (Header, TargetId)| {
        record(&a, &first.0, first.1);
        record(&b, &second.0, second.1);
        let why = join(&[&a, &b]).and_then(|joined| snapshots(&joined).map(drop)).unwrap_err().to_string();
        assert!(why.contains(a.to_str().unwrap()) && why.contains(b.to_str().unwrap()), "{why}");
        why
    };
    let unknown = Header { started_unix_ns: 0, ..started(0, "a") };
    let why = refused((unknown, process(7)), (started(0, "a"), process(8)));
    assert!(why.contains("it is not known when it started") && why.contains("report on each by itself"), "{why}");
    let why = refused((started(0, "a"), process(7)), (started(500, "a"), process(7)));
    assert!(why.contains("process 7") && why.contains("isotherm cut --time"), "{why}");
    let physical = TargetId::PhysicalMemory;
    let why = refused((started(0, "a"), physical), (started(5000, "b"), physical));
    assert!(why.contains("of different machines") && why.contains("report on each by itself"), "{why}");
    let other = Header { probe: "idle".into(), ..started(5000, "b") };
    let why = refused((started(0, "a"), process(7)), (other, process(8)));
    assert!(why.contains("the probes differ") && why.contains("report on each by itself"), "{why}");
    assert!(matches!(Joined::new(vec![]), Err(JoinError::Nothing)));
}
