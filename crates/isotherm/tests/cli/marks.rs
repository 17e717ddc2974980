//! Marks in a recording that is being made.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};

use isotherm_record::Recording;
use isotherm_testing::or_skip;
use rustix::process::Signal;

use crate::common::{self, Kept, Place, Ran, eventually, signal};

/// A process that lives until it is dropped.
fn target() -> Kept {
    Kept(Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
}

/// A recorder of this process in `marked.rec`, by the probe that works for every user.
fn recorder(place: &Place, target: &Kept, arguments: &[&str]) -> Kept {
    start(place, target, &[&["record", "-o", "marked.rec"], arguments].concat())
}

fn start(place: &Place, target: &Kept, arguments: &[&str]) -> Kept {
    let pid = target.0.id().to_string();
    let mut command = place.isotherm(arguments);
    command.args(["--probe", "refs", "--pid", &pid]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    Kept(command.spawn().unwrap())
}

/// The texts of the marks so far. There is no recording before its first batch.
fn marks(place: &Place) -> Vec<String> {
    let path = place.path("marked.rec");
    if !path.exists() {
        return Vec::new();
    }
    let marks = Recording::open(&path).unwrap().marks();
    marks.map(|mark| mark.unwrap().text.to_string()).collect()
}

/// Ends the recorder, which must not complain.
fn end(mut recorder: Kept) {
    signal(&recorder.0, Signal::TERM);
    eventually("the recorder has ended", || recorder.0.try_wait().unwrap().is_some());
    assert_eq!(recorder.0.wait().unwrap().code(), Some(0));
}

fn write(recorder: &mut Child, text: &[u8]) {
    recorder.stdin.as_mut().unwrap().write_all(text).unwrap();
}

#[test]
fn lines_of_standard_input_are_marks_and_an_open_pipe_does_not_hold_up_the_end() {
    let (place, target) = (Place::new(), target());
    let mut recorder = recorder(&place, &target, &["--stdin-marks"]);
    write(&mut recorder.0, b"load begins\n\n\xff\n");
    eventually("the marks are recorded", || marks(&place).len() == 2);
    write(&mut recorder.0, b"load ends\n");
    eventually("the last mark is recorded", || marks(&place).len() == 3);
    end(recorder);
    assert_eq!(marks(&place), ["load begins", "\\xff", "load ends"]);
}

#[test]
fn a_command_has_no_input_if_its_lines_are_marks() {
    let place = Place::new();
    let mut command = place.isotherm(&["record", "--stdin-marks", "--probe", "refs", "-o", "marked.rec", "--", "cat"]);
    let mut recorder = Kept(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    write(&mut recorder.0, b"not for the command\n");
    let mut input = recorder.0.stdin.take();
    eventually("the command has ended", || recorder.0.try_wait().unwrap().is_some());
    drop(input.take());
    let mut out = String::new();
    std::io::Read::read_to_string(recorder.0.stdout.as_mut().unwrap(), &mut out).unwrap();
    assert_eq!(out, "");
}

#[test]
fn marks_of_a_run_without_a_recording_are_refused() {
    let place = Place::new();
    let ran: Ran = place.run(&["run", "--schemes", "x.yaml", "--stdin-marks", "--pid", "1"]);
    assert_eq!(ran.status, 2, "{ran:?}");
    assert!(ran.err.contains("--record"), "{ran:?}");
}

/// `isotherm mark` for the recording of this place alone: other tests record, too.
fn mark(place: &Place, text: &str) -> Ran {
    place.run(&["mark", "--recording", "marked.rec", text])
}

/// Waits until the recorder has taken and recorded a mark of this text.
fn mark_when_it_listens(place: &Place, text: &str) {
    eventually("the recorder listens", || mark(place, text).status == 0);
    eventually("the mark is recorded", || marks(place) == [text]);
}

#[test]
fn a_mark_reaches_a_running_recorder_and_fails_without_one() {
    let (place, target) = (Place::new(), target());
    let none = mark(&place, "too early");
    assert_eq!(none.status, 1, "{none:?}");
    assert!(none.err.contains("no recorder that this user may reach"), "{none:?}");

    let recorder = recorder(&place, &target, &[]);
    mark_when_it_listens(&place, "load");
    let again = mark(&place, "again\u{202e}");
    assert_eq!((again.status, &*again.err), (0, ""), "{again:?}");
    assert!(again.out.starts_with("1 recording has the mark: /"), "{again:?}");
    assert!(again.out.ends_with("/marked.rec\n"), "{again:?}");
    assert_eq!(mark(&place, " ").status, 2);
    end(recorder);
    assert_eq!(marks(&place), ["load", "again\u{202e}"]);
    assert_eq!(mark(&place, "too late").status, 1);
}

#[test]
fn a_mark_reaches_a_run_of_tune_that_keeps_its_recording() {
    let (place, target) = (Place::new(), target());
    let tune = start(&place, &target, &["tune", "-q", "--record", "marked.rec"]);
    mark_when_it_listens(&place, "load");
    end(tune);
}

#[test]
fn a_killed_recorder_leaves_nothing_that_marks_would_go_to() {
    let (place, target) = (Place::new(), target());
    let mut recorder = recorder(&place, &target, &[]);
    mark_when_it_listens(&place, "load");
    recorder.0.kill().unwrap();
    recorder.0.wait().unwrap();
    assert_eq!(mark(&place, "too late").status, 1);
}

#[test]
fn another_user_cannot_mark_the_recording_of_root() {
    if !common::is_root() {
        or_skip!(Err::<(), _>("it needs root"));
    }
    let (place, target) = (Place::new(), target());
    let recorder = recorder(&place, &target, &[]);
    mark_when_it_listens(&place, "by root");
    let other = or_skip!(place.run_as_nobody(&["mark", "--recording", "marked.rec", "by nobody"]));
    assert_eq!(other.status, 1, "{other:?}");
    end(recorder);
    assert_eq!(marks(&place), ["by root"]);
}

#[test]
fn a_silent_client_does_not_hold_up_the_end_of_a_recorder() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixStream};
    let (place, target) = (Place::new(), target());
    let recorder = recorder(&place, &target, &[]);
    mark_when_it_listens(&place, "load");
    let name = format!("isotherm/marks/{}-0", recorder.0.id());
    let _silent = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
    end(recorder);
}
