//! Processes and monitors in unusual states: stopped, in time namespaces, and hundreds that live for milliseconds.

use std::time::Duration;

use isotherm_record::{Ending, Recording};
use isotherm_testing::or_skip;
use rustix::process::Signal;

use crate::common::{self, HOT_IN_COLD, ISOTHERM, Kept, Place, bpf_works, eventually, signal};

/// A workload that runs until it is killed.
fn workload(place: &Place) -> Kept {
    std::fs::write(place.path("work.toml"), HOT_IN_COLD).unwrap();
    Kept(place.isotherm(&["workload", "work.toml"]).spawn().unwrap())
}

fn surveys(place: &Place) -> Vec<isotherm_record::SurveyRecord> {
    let Ok(recording) = Recording::open(&place.path("isotherm.rec")) else { return Vec::new() };
    recording.surveys().filter_map(Result::ok).collect()
}

#[test]
fn a_stopped_process_is_watched_and_its_memory_becomes_idle() {
    or_skip!(bpf_works());
    let place = Place::new();
    let target = workload(&place);
    let pid = target.0.id().to_string();
    let mut record = place.isotherm(&["record", "-q", "--survey", "200ms", "--cpu-budget", "100%", "--pid", &pid]);
    let mut record = Kept(record.spawn().unwrap());
    let touched =
        |of: &isotherm_record::SurveyRecord| of.survey.targets.iter().map(|of| of.total().figures.touched).sum::<u64>();
    eventually("memory is in use", || surveys(&place).iter().skip(1).any(|survey| touched(survey) > 1 << 20));
    signal(&target.0, Signal::STOP);
    eventually("nothing is in use", || surveys(&place).last().is_some_and(|last| touched(last) == 0));
    signal(&target.0, Signal::CONT);
    eventually("it is in use again", || surveys(&place).last().is_some_and(|last| touched(last) > 1 << 20));
    signal(&record.0, Signal::INT);
    assert!(record.0.wait().unwrap().success());
}

#[test]
fn after_a_time_in_which_the_monitor_did_not_run_there_is_a_gap_and_no_burst() {
    let place = Place::new();
    let target = workload(&place);
    let pid = target.0.id().to_string();
    let mut record = place.isotherm(&["record", "-q", "--intervals", "fixed", "--pid", &pid]);
    let mut record = Kept(record.spawn().unwrap());
    let snapshots = || {
        let Ok(recording) = Recording::open(&place.path("isotherm.rec")) else { return Vec::new() };
        recording.snapshots().flatten().map(|record| record.snapshot).collect()
    };
    eventually("there are snapshots", || snapshots().len() >= 2);
    signal(&record.0, Signal::STOP);
    let stopped = std::time::Instant::now();
    eventually("2 s have passed", || stopped.elapsed() > Duration::from_secs(2));
    let before = snapshots().len();
    signal(&record.0, Signal::CONT);
    eventually("it goes on", || snapshots().len() >= before + 5);
    signal(&record.0, Signal::INT);
    assert!(record.0.wait().unwrap().success());

    let all = snapshots();
    let after = all.windows(2).position(|pair| pair[1].time - pair[0].time > Duration::from_millis(1500)).unwrap() + 1;
    // One snapshot for all of the gap, and the rounds after it take their time.
    assert!(all[after].aggregation <= Duration::from_millis(200), "{:?}", all[after].aggregation);
    for pair in all[after..].windows(2) {
        assert!(pair[1].time - pair[0].time >= pair[1].aggregation / 2, "{:?} {:?}", pair[0].time, pair[1].time);
    }
}

#[test]
fn hundreds_of_processes_that_live_for_milliseconds_come_and_go() {
    let place = Place::new();
    let script = "for i in $(seq 300); do sleep 0.003; done; sleep 0.3";
    let ran = place.run(&["record", "--children", "--", "sh", "-c", script]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(!ran.err.contains("not watched"), "{ran:?}");
    let recording = Recording::open(&place.path("isotherm.rec")).unwrap();
    assert_eq!(recording.ending(), Ending::Whole);
    let last = recording.snapshots().last().unwrap().unwrap();
    assert!(last.snapshot.targets.len() <= 3, "those that have ended are gone: {}", last.snapshot.targets.len());
}

#[test]
fn a_target_in_another_time_namespace_is_watched_as_any_other() {
    or_skip!(bpf_works());
    let place = Place::new();
    std::fs::write(place.path("work.toml"), HOT_IN_COLD.replace("1000s", "1s")).unwrap();
    let namespace = ["--time", "--fork", "--monotonic", "100000", "--boottime", "7200"];
    let watch = ["record", "--children", "--survey", "200ms", "--cpu-budget", "100%", "--", "unshare"];
    let ran = place.run(&[&watch[..], &namespace, &[ISOTHERM, "workload", "work.toml"]].concat());
    if ran.err.contains("unshare: ") {
        return isotherm_testing::skip(&ran.err);
    }
    assert_eq!(ran.status, 0, "{ran:?}");
    let touched =
        |of: &isotherm_record::SurveyRecord| of.survey.targets.iter().map(|of| of.total().figures.touched).max();
    assert!(surveys(&place).iter().any(|survey| touched(survey) > Some(1 << 20)), "{ran:?}");
    let recording = Recording::open(&place.path("isotherm.rec")).unwrap();
    let last = recording.snapshots().last().unwrap().unwrap().snapshot.time;
    assert!(last < Duration::from_secs(60), "{last:?}");
}

#[test]
fn in_a_time_namespace_calls_that_map_memory_belong_to_their_process_and_time() {
    or_skip!(isotherm_probes::stacks::StackTracer::open().map_err(|error| isotherm_core::chain(&error)));
    let place = Place::new();
    std::fs::write(place.path("work.toml"), HOT_IN_COLD.replace("1000s", "1s")).unwrap();
    let mut command = std::process::Command::new("unshare");
    command.args([
        "--time",
        "--fork",
        "--monotonic",
        "100000",
        "--boottime",
        "7200",
        ISOTHERM,
        "record",
        "--stacks",
        "--",
    ]);
    command.args([ISOTHERM, "workload", "work.toml"]).current_dir(place.dir.path());
    let ran = common::Ran::new(command.output().unwrap());
    if ran.err.contains("unshare") {
        return isotherm_testing::skip(&ran.err);
    }
    assert_eq!(ran.status, 0, "{ran:?}");
    let recording = Recording::open(&place.path("isotherm.rec")).unwrap();
    let target = recording.snapshots().next().unwrap().unwrap().snapshot.targets[0].id;
    let batches: Vec<_> = recording.allocations().map(Result::unwrap).collect();
    let calls: Vec<_> = batches.iter().flat_map(|batch| &batch.calls).collect();
    assert!(calls.iter().any(|call| call.target == target && call.range.size() >= 16 << 20), "{calls:?}");
    assert!(calls.iter().all(|call| call.time < Duration::from_secs(60)), "{calls:?}");
}
