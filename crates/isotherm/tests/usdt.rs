//! Marks of USDT probes, in recordings.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::process::Stdio;

use common::{Kept, Place, eventually, signal};
use isotherm_probes::usdt::UsdtTracer;
use isotherm_record::Recording;
use isotherm_testing::{Marker, installed_or_skip, or_skip};
use rustix::process::Signal;

/// A place with the program, if USDT probes work here.
fn place() -> Result<Place, String> {
    UsdtTracer::check().map_err(|error| isotherm_core::chain(&error))?;
    Ok(Place::new())
}

/// The texts and times of the marks so far. There is no recording before its first batch.
fn marks(place: &Place) -> Vec<(std::time::Duration, String)> {
    let path = place.path("isotherm.rec");
    if !path.exists() {
        return Vec::new();
    }
    let marks = Recording::open(&path).unwrap().marks().unwrap();
    marks.map(|mark| mark.unwrap()).map(|mark| (mark.time, mark.text.to_string())).collect()
}

fn texts(place: &Place) -> Vec<String> {
    marks(place).into_iter().map(|(_, text)| text).collect()
}

/// A recorder of these targets.
fn recorder(place: &Place, arguments: &[&str]) -> Kept {
    let mut command = place.isotherm(&["record", "--probe", "refs", "--usdt", "isotherm:mark", "--usdt", "demo:tick"]);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    Kept(command.spawn().unwrap())
}

/// Ends the recorder, which may warn, and returns what it has said.
fn end(mut recorder: Kept) -> String {
    signal(&recorder.0, Signal::TERM);
    eventually("the recorder has ended", || recorder.0.try_wait().unwrap().is_some());
    assert_eq!(recorder.0.wait().unwrap().code(), Some(0));
    std::io::read_to_string(recorder.0.stderr.take().unwrap()).unwrap()
}

/// Waits until probes of the program are watched.
fn wait_for_watcher(target: &mut Marker) {
    eventually("the probe has a watcher", || target.request("watchers") == 1);
}

#[test]
fn probes_of_a_process_are_marks_among_others_in_the_order_of_time() {
    let place = or_skip!(place());
    let (program, _) = installed_or_skip!(Marker::compile(place.dir.path()));
    let (mut target, mut other) = (Marker::start(&program), Marker::start(&program));
    let recorder = recorder(&place, &["--pid", &target.pid().to_string()]);
    wait_for_watcher(&mut target);
    eventually("the recording has begun", || place.path("isotherm.rec").exists());
    target.request("mark load begins");
    other.request("mark not watched");
    let ran = place.run(&["mark", "--recording", "isotherm.rec", "by command"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    target.request("tick");
    eventually("the marks are recorded", || texts(&place).len() == 3);
    let said = end(recorder);
    assert_eq!(texts(&place), ["load begins", "by command", "demo:tick"]);
    assert!(marks(&place).is_sorted(), "{:?}", marks(&place));
    assert!(!said.contains("USDT"), "{said}");
}

#[test]
fn descendants_and_processes_that_join_make_marks_and_the_excluded_make_none() {
    let place = or_skip!(place());
    let (program, _) = installed_or_skip!(Marker::compile(place.dir.path()));
    let mut parent = Marker::start(&program);
    let pid = parent.pid().to_string();
    let first = recorder(&place, &["--pid", &pid, "--children"]);
    wait_for_watcher(&mut parent);
    eventually("the recording has begun", || place.path("isotherm.rec").exists());
    parent.request("fork child");
    parent.request("exec grandchild");
    eventually("the marks are recorded", || texts(&place) == ["child", "grandchild"]);
    end(first);
    drop(parent);

    std::fs::remove_file(place.path("isotherm.rec")).unwrap();
    let command = format!("^{}", program.display());
    let second = recorder(&place, &["--command", &command, "--wait"]);
    let mut late = Marker::start(&program);
    wait_for_watcher(&mut late);
    late.request("mark joined");
    eventually("the mark is recorded", || texts(&place) == ["joined"]);
    end(second);

    std::fs::remove_file(place.path("isotherm.rec")).unwrap();
    let pid = late.pid().to_string();
    let third = recorder(&place, &["--pid", &pid, "--children", "--exclude", "name=^exe$"]);
    wait_for_watcher(&mut late);
    eventually("the recording has begun", || place.path("isotherm.rec").exists());
    late.request("exec excluded");
    late.request("mark not excluded");
    eventually("the mark is recorded", || texts(&place) == ["not excluded"]);
    end(third);
}

#[test]
fn a_command_has_the_marks_of_its_first_moment() {
    let place = or_skip!(place());
    let _ = installed_or_skip!(Marker::compile(place.dir.path()));
    let options = ["record", "--sample", "1ms", "--usdt", "isotherm:mark", "--", "./marker", "at the start"];
    let ran = place.run(&options);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(texts(&place), ["at the start"]);
}

#[test]
fn a_probe_that_no_program_has_is_told_with_those_that_there_are() {
    let place = or_skip!(place());
    let (program, _) = installed_or_skip!(Marker::compile(place.dir.path()));
    let mut target = Marker::start(&program);
    let recorder = recorder(&place, &["--pid", &target.pid().to_string(), "--usdt", "demo:tock"]);
    wait_for_watcher(&mut target);
    eventually("the recording has begun", || place.path("isotherm.rec").exists());
    let said = end(recorder);
    assert!(said.contains("no watched program has the USDT probe demo:tock ("), "{said}");
    assert!(said.contains("it has demo:tick"), "{said}");
    assert!(!said.contains("USDT probe isotherm:mark"), "{said}");
}

#[test]
fn more_hits_than_a_run_takes_marks_are_told() {
    let place = or_skip!(place());
    let (program, _) = installed_or_skip!(Marker::compile(place.dir.path()));
    let mut target = Marker::start(&program);
    let recorder = recorder(&place, &["--pid", &target.pid().to_string()]);
    wait_for_watcher(&mut target);
    eventually("the recording has begun", || place.path("isotherm.rec").exists());
    target.request("ticks 20000");
    eventually("the probe is not watched any more", || target.request("watchers") == 0);
    let said = end(recorder);
    assert_eq!(texts(&place).len(), 10_000);
    assert!(said.contains("a run takes 10000 marks: USDT probes are not watched any more"), "{said}");
}

#[test]
fn a_probe_without_a_provider_and_one_of_physical_memory_are_refused() {
    let place = Place::new();
    let ran = place.run(&["record", "--usdt", "mark", "--pid", "1"]);
    assert!(ran.status == 2 && ran.err.contains("\"mark\" is not PROVIDER:NAME"), "{ran:?}");
    let ran = place.run(&["record", "--usdt", "postgresql:transaction-start", "--pid", "1"]);
    assert!(ran.status == 2 && ran.err.contains("write postgresql:transaction__start"), "{ran:?}");
    assert_eq!(place.run(&["record", "--usdt", "isotherm:mark", "--physical"]).status, 2);
    let ran = place.run(&["run", "--schemes", "x.yaml", "--usdt", "isotherm:mark", "--pid", "1"]);
    assert!(ran.status == 2 && ran.err.contains("--record"), "{ran:?}");
}

#[test]
fn an_ordinary_user_is_told_why_it_does_not_work() {
    if !common::is_root() {
        or_skip!(Err::<(), _>("it needs root"));
    }
    let place = Place::new();
    let ran = or_skip!(place.run_as_nobody(&["record", "--usdt", "isotherm:mark", "--", "true"]));
    assert!(ran.status == 1 && ran.err.contains("without --usdt"), "{ran:?}");
    assert!(!place.path("isotherm.rec").exists());
}
