//! Runs that need no privileges: simulations, replays, and what is refused.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use isotherm_core::scheme::{Action, Condition, Scheme};
use isotherm_core::{AddrRange, AttributeOptions, AttributesError, BoxError};
use isotherm_record::Recording;
use isotherm_run::{
    ConfigError, EndReason, Event, MarkError, MarkSocket, NamePattern, Need, Part, ProbeChoice, RunConfig, RunError,
    RunningRecording, Selection, Selector, Source, SurveyChoice, Targets, UnreachedError, WatchedFiles,
};
use isotherm_sim::Pattern;

/// A hot area in cold memory, for a minute.
const PATTERN: &str = r#"
about = "hot in cold"
[[area]]
name = "cold"
size = "30 MiB"
[[area]]
name = "hot"
size = "2 MiB"
[[phase]]
time = "60s"
touch = [{ area = "hot", every = "2ms" }]
"#;

/// Snapshots of [`simulation`]: more than the queue of a receiver holds.
const SNAPSHOTS: usize = 400;

fn simulation() -> RunConfig {
    let pattern = Pattern::parse(PATTERN).unwrap();
    RunConfig::new(Source::Simulation(Box::new(pattern))).seed(1).duration(Duration::from_secs(40))
}

/// The same for so long that a test ends it. The simulation goes on while events are handed on.
fn long_simulation() -> RunConfig {
    let pattern = Pattern::parse(&PATTERN.replace("60s", "20000s")).unwrap();
    RunConfig::new(Source::Simulation(Box::new(pattern))).seed(1)
}

/// All events of a run.
fn events(config: RunConfig) -> Vec<Event> {
    let mut run = config.prepare().unwrap();
    let events = run.subscribe();
    let session = run.start().unwrap();
    let events = events.collect();
    session.wait().unwrap();
    events
}

fn snapshots(events: &[Event]) -> Vec<isotherm_core::Snapshot> {
    let snapshot = |event: &Event| match event {
        Event::Snapshot(record) => Some(record.snapshot.clone()),
        _ => None,
    };
    events.iter().filter_map(snapshot).collect()
}

#[test]
fn events_begin_with_attributes_and_targets_and_end_with_the_end() {
    let events = events(simulation());
    let names: Vec<&str> = events
        .iter()
        .map(|event| match event {
            Event::Attributes(_) => "attributes",
            Event::Targets(_) => "targets",
            Event::Snapshot(_) => "snapshot",
            Event::End(EndReason::DurationOver) => "end",
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(names[..3], ["attributes", "targets", "snapshot"]);
    assert_eq!(names.len(), 2 + SNAPSHOTS + 1);
    assert!(names[2..2 + SNAPSHOTS].iter().all(|name| *name == "snapshot"));
    assert_eq!(names.last(), Some(&"end"));
}

#[test]
fn the_same_seed_makes_the_same_snapshots() {
    let [one, other] = [simulation(), simulation()].map(|config| snapshots(&events(config)));
    assert!(!one.is_empty());
    assert_eq!(one, other);
}

#[test]
fn every_sink_and_iterator_gets_every_event_of_a_run_without_a_clock() {
    let mut run = simulation().prepare().unwrap();
    let (sender, receiver) = channel();
    run.add_sink("count", Need::Needed, move |event: &Event| -> Result<(), BoxError> {
        Ok(sender.send(event.clone())?)
    });
    let (first, second) = (run.subscribe(), run.subscribe());
    let session = run.start().unwrap();
    // The run waits for the slower receiver.
    let second = std::thread::spawn(move || snapshots(&second.collect::<Vec<_>>()));
    let first = snapshots(&first.collect::<Vec<_>>());
    let summary = session.wait().unwrap();
    assert_eq!(summary.snapshots, SNAPSHOTS as u64);
    assert_eq!(first.len(), SNAPSHOTS);
    assert_eq!(first, second.join().unwrap());
    assert_eq!(first, snapshots(&receiver.iter().collect::<Vec<_>>()));
}

#[test]
fn a_receiver_that_goes_away_does_not_hold_up_the_others() {
    let mut run = simulation().prepare().unwrap();
    let (gone, stays) = (run.subscribe(), run.subscribe());
    let session = run.start().unwrap();
    drop(gone);
    assert_eq!(snapshots(&stays.collect::<Vec<_>>()).len(), SNAPSHOTS);
    session.wait().unwrap();
}

#[test]
fn the_error_of_a_sink_ends_the_run_and_is_its_error() {
    let mut run = simulation().prepare().unwrap();
    run.add_sink("broken", Need::Needed, |_: &Event| -> Result<(), BoxError> { Err("the disk is full".into()) });
    let error = run.start().unwrap().wait().unwrap_err();
    assert!(matches!(&*error, RunError::Sink { name, .. } if name == "broken"), "{error:?}");
    assert_eq!(isotherm_run::chain(&*error), "the sink \"broken\" failed: the disk is full");
}

#[test]
fn a_run_goes_on_without_an_optional_sink_that_fails_or_panics() {
    let mut run = simulation().prepare().unwrap();
    run.add_sink("full", Need::Optional, |_: &Event| -> Result<(), BoxError> { Err("the disk is full".into()) });
    run.add_sink("wrong", Need::Optional, |_: &Event| -> Result<(), BoxError> { panic!("a bug of this sink") });
    let events = run.subscribe();
    let session = run.start().unwrap();
    let events: Vec<Event> = events.collect();
    let summary = session.wait().unwrap();
    assert_eq!(snapshots(&events).len(), SNAPSHOTS);
    assert!(matches!(events.last(), Some(Event::End(reason)) if !reason.is_failure()));
    let mut detached: Vec<String> = summary.detached.iter().map(|error| isotherm_run::chain(&**error)).collect();
    detached.sort();
    assert_eq!(detached[0], "the sink \"full\" failed: the disk is full");
    assert!(detached[1].starts_with("the thread \"wrong\" panicked"), "{detached:?}");
}

#[test]
fn the_other_sinks_learn_why_a_needed_one_has_ended_the_run() {
    let mut run = long_simulation().prepare().unwrap();
    run.add_sink("broken", Need::Needed, |_: &Event| -> Result<(), BoxError> { Err("the disk is full".into()) });
    let events = run.subscribe();
    let session = run.start().unwrap();
    let last = events.last().unwrap();
    let Event::End(EndReason::Failed(error)) = last else { panic!("{last:?}") };
    assert!(matches!(&*error, RunError::Sink { name, .. } if name == "broken"), "{error:?}");
    session.wait().unwrap_err();
}

#[test]
fn attributes_that_are_changed_in_a_run_change_its_clock() {
    let mut run = simulation().prepare().unwrap();
    let (control, events) = (run.control(), run.subscribe());
    let session = run.start().unwrap();
    let slower = AttributeOptions { sampling: Some(Duration::from_millis(50)), ..AttributeOptions::default() };
    let slower = slower.resolve(isotherm_core::Granularity::Page).unwrap();
    let mut changed_at = None;
    let mut times = Vec::new();
    for event in events {
        match event {
            Event::Attributes(attributes) if attributes == slower => changed_at = times.last().copied(),
            Event::Attributes(_) => control.set_attributes(slower),
            Event::Snapshot(record) => times.push(record.snapshot.time),
            _ => {}
        }
    }
    session.wait().unwrap();
    let changed_at = changed_at.expect("the change is an event, after the last snapshot of the attributes before");
    let gaps: Vec<Duration> = times.windows(2).filter(|w| w[0] > changed_at).map(|w| w[1] - w[0]).collect();
    assert!(!gaps.is_empty() && gaps.iter().all(|gap| *gap == Duration::from_secs(1)), "{gaps:?}");
}

#[test]
fn a_recorded_simulation_replays_the_same_and_schemes_say_what_they_would_have_done() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("simulated.rec");
    let recorded = snapshots(&events(simulation().record(&path)));
    assert!(Recording::open(&path).unwrap().header().probe == "simulation");

    let all = Scheme::new("all", Condition::ANY, Action::Stat);
    let events = events(RunConfig::new(Source::Replay { path, max_memory: None }).schemes(vec![all]));
    let replayed = snapshots(&events);
    assert_eq!(replayed.len(), recorded.len());
    for (replayed, recorded) in replayed.iter().zip(&recorded) {
        assert_eq!((replayed.time, &replayed.targets), (recorded.time, &recorded.targets));
    }
    // Each snapshot is followed by what the scheme made of it.
    let mut in_use = 0;
    let mut total = 0;
    for event in &events {
        match event {
            Event::Snapshot(record) => in_use += record.snapshot.targets[0].mapped_bytes().map(|(_, b)| b).sum::<u64>(),
            Event::Activity(activity) => {
                total = activity.schemes[0].total.applied_bytes;
                assert_eq!(total, in_use);
            }
            _ => {}
        }
    }
    assert!(total > 0);
}

#[test]
fn a_stopped_run_ends_and_keeps_what_was_recorded() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("stopped.rec");
    let mut run = long_simulation().record(&path).prepare().unwrap();
    let control = run.control();
    let reason = Arc::new(Mutex::new(None));
    let kept = Arc::clone(&reason);
    run.add_sink("stop", Need::Needed, move |event: &Event| -> Result<(), BoxError> {
        match event {
            Event::Snapshot(record) if record.snapshot.time >= Duration::from_secs(3) => control.stop(),
            Event::End(reason) => *kept.lock().unwrap() = Some(reason.clone()),
            _ => {}
        }
        Ok(())
    });
    let summary = run.start().unwrap().wait().unwrap();
    assert!(matches!(summary.reason, EndReason::Stopped));
    assert!(matches!(*reason.lock().unwrap(), Some(EndReason::Stopped)));
    let recording = Recording::open(&path).unwrap();
    assert_eq!(recording.snapshots().count() as u64, summary.snapshots);
    assert_eq!(recording.ending(), isotherm_record::Ending::Whole);
}

/// The times and the texts of the marks of a recording.
fn marks(path: &Path) -> Vec<(Duration, String)> {
    let marks = Recording::open(path).unwrap().marks().map(Result::unwrap);
    marks.map(|mark| (mark.time, mark.text.to_string())).collect()
}

#[test]
fn marks_are_recorded_and_replayed() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("marked.rec");
    let mut run = simulation().record(&path).prepare().unwrap();
    let (control, events) = (run.control(), run.subscribe());
    let session = run.start().unwrap();
    for event in events {
        match event {
            Event::Snapshot(record) if record.snapshot.time == Duration::from_secs(30) => control.mark("load").unwrap(),
            _ => {}
        }
    }
    session.wait().unwrap();
    assert_eq!(control.mark("late"), Err(MarkError::Over));
    let recorded = marks(&path);
    assert!(matches!(&recorded[..], [(at, text)] if *at >= Duration::from_secs(30) && text == "load"), "{recorded:?}");

    let again = place.path().join("again.rec");
    let run = RunConfig::new(Source::Replay { path, max_memory: None }).record(&again).prepare().unwrap();
    run.control().mark("a replay").unwrap();
    run.start().unwrap().wait().unwrap();
    let replayed = [(Duration::ZERO, "a replay".to_owned()), recorded[0].clone()];
    assert_eq!(marks(&again), replayed);
}

#[test]
fn a_run_takes_marks_from_other_processes_until_its_socket_is_dropped() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("marked.rec");
    let run = simulation().record(&path).prepare().unwrap();
    let socket = MarkSocket::open(&path, run.control()).unwrap();
    let running = || RunningRecording::all().unwrap().into_iter().find(|running| running.is_at(&path));
    running().unwrap().mark(b"from outside").unwrap();
    let refused = running().unwrap().mark(b" ").unwrap_err();
    assert!(matches!(&refused, UnreachedError::Refused(why) if why == "a mark needs a text"), "{refused:?}");
    drop(socket);
    // The thread of the socket closes it.
    while running().is_some() {}
    run.start().unwrap().wait().unwrap();
    assert_eq!(marks(&path), [(Duration::ZERO, "from outside".to_owned())]);
}

/// What is wrong with a description.
fn refusal(targets: Targets, probe: ProbeChoice) -> ConfigError {
    RunConfig::new(Source::Live { targets, probe }).validate().unwrap_err()
}

#[test]
fn a_description_that_contradicts_itself_is_refused_before_anything_is_opened() {
    let range = vec![AddrRange::new(0x1000, 0x2000).unwrap()];
    let processes = |pids: &[u32], children, ranges: &[AddrRange]| Targets::Processes {
        selection: Selection { children, ..Selection::pids(pids.iter().copied()) },
        waits: false,
        part: Part { ranges: ranges.into(), ..Part::default() },
    };
    let named = |waits, part: Part| Targets::Processes {
        selection: Selection { any: vec![Selector::All], ..Selection::default() },
        waits,
        part,
    };
    assert_eq!(refusal(processes(&[], false, &[]), ProbeChoice::Auto), ConfigError::NoTarget);
    assert_eq!(refusal(processes(&[1], true, &range), ProbeChoice::Bpf), ConfigError::RangeNeedsOneProcess);
    let part = Part { ranges: range.clone(), ..Part::default() };
    assert_eq!(refusal(named(false, part), ProbeChoice::Bpf), ConfigError::RangeNeedsOneProcess);
    assert_eq!(refusal(processes(&[1, 2], false, &range), ProbeChoice::Damon), ConfigError::RangeNeedsOneProcess);
    assert_eq!(refusal(processes(&[1], true, &[]), ProbeChoice::Damon), ConfigError::DamonWithNewcomers);
    assert_eq!(refusal(named(true, Part::default()), ProbeChoice::Damon), ConfigError::DamonWithNewcomers);
    let waiting = Targets::Processes { selection: Selection::pids([1]), waits: true, part: Part::default() };
    assert_eq!(refusal(waiting, ProbeChoice::Auto), ConfigError::NothingToWaitFor);
    let heap = Part { mappings: vec![NamePattern::new("heap").unwrap()], ..Part::default() };
    let two = Targets::Processes { selection: Selection::pids([1, 2]), waits: false, part: heap };
    assert_eq!(refusal(two, ProbeChoice::Damon), ConfigError::DamonWithMappings);
    let physical = || Targets::Physical { ranges: vec![], nodes: vec![], during: None };
    assert_eq!(refusal(physical(), ProbeChoice::Refs), ConfigError::ProbeSeesProcessesOnly);
    let acting = |probe| {
        RunConfig::new(Source::Live { targets: physical(), probe }).schemes(vec![Scheme::new(
            "all",
            Condition::ANY,
            Action::Stat,
        )])
    };
    assert_eq!(acting(ProbeChoice::Auto).validate(), Ok(()));
    let blind = acting(ProbeChoice::Auto).survey(SurveyChoice::Off);
    assert_eq!(blind.validate(), Err(ConfigError::SchemesOnPhysicalMemory));
    assert_eq!(acting(ProbeChoice::Damon).validate(), Err(ConfigError::SchemesOnPhysicalMemory));

    let files = |paths: &[&str]| Targets::Files(WatchedFiles::At(paths.iter().map(Into::into).collect()));
    assert_eq!(refusal(files(&[]), ProbeChoice::Auto), ConfigError::NoTarget);
    let of_nobody = Targets::Files(WatchedFiles::UsedBy(Selection::default()));
    assert_eq!(refusal(of_nobody, ProbeChoice::Auto), ConfigError::NoTarget);
    assert_eq!(refusal(files(&["/usr"]), ProbeChoice::Bpf), ConfigError::ProbeSeesNoFiles);
    let files = RunConfig::new(Source::Live { targets: files(&["/usr"]), probe: ProbeChoice::Auto });
    assert_eq!(files.clone().survey(SurveyChoice::Off).validate(), Err(ConfigError::FilesWithSamples));
    assert_eq!(files.validate(), Ok(()));

    let short = RunConfig::processes([1]).duration(Duration::from_millis(1));
    assert!(matches!(short.validate(), Err(ConfigError::DurationTooShort { .. })));
    let few = AttributeOptions { regions: Some((1, 10)), ..AttributeOptions::default() };
    let few = RunConfig::processes([1]).attributes(few).validate();
    assert_eq!(few, Err(ConfigError::Attributes(AttributesError::TooFewRegions(1))));
}

#[test]
fn a_duration_is_compared_with_the_aggregation_interval_of_the_probe() {
    let slow = AttributeOptions { sampling: Some(Duration::from_millis(200)), ..AttributeOptions::default() };
    let of =
        |probe| RunConfig::processes([1]).probe(probe).attributes(slow).duration(Duration::from_secs(3)).validate();
    // A sampling interval of 200 ms makes an aggregation interval of 2 s with refs, and of 4 s with other probes.
    assert_eq!(of(ProbeChoice::Refs), Ok(()));
    assert_eq!(of(ProbeChoice::Auto), Ok(()));
    assert!(matches!(of(ProbeChoice::Bpf), Err(ConfigError::DurationTooShort { .. })));
}

#[test]
fn a_recording_of_1_gib_with_surveys_takes_at_most_1_mib_a_minute() {
    let pattern = r#"
        about = "a server: much cold memory, some in use at random, some hot"
        [[area]]
        name = "cold"
        size = "704 MiB"
        [[area]]
        name = "cache"
        size = "256 MiB"
        [[area]]
        name = "hot"
        size = "64 MiB"
        [[phase]]
        time = "60s"
        touch = [{ area = "cache", every = "20s", order = "random" }, { area = "hot", every = "50ms" }]
    "#;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let intervals = AttributeOptions {
        sampling: Some(Duration::from_millis(25)),
        aggregation: Some(Duration::from_millis(500)),
        ..AttributeOptions::default()
    };
    let simulation = RunConfig::new(Source::Simulation(Box::new(Pattern::parse(pattern).unwrap())));
    let config = simulation.seed(1).attributes(intervals).survey(SurveyChoice::Every(Duration::from_secs(1)));
    events(config.record(&path));
    let recording = Recording::open(&path).unwrap();
    assert!(recording.surveys().count() >= 60);
    assert!(recording.snapshots().count() >= 110);
    let bytes = path.metadata().unwrap().len();
    assert!((20 << 10..1 << 20).contains(&bytes), "{bytes}");
}
