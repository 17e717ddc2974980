//! Calls are refused in some processes, with a reason and without harm.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::calls::assert_unharmed;
use super::target::Target;
use crate::inside::program::ptrace::{Tracee, Waited};
use crate::{Inside, InsideCall, InsideError};

fn attempt(target: &Target) -> Result<(), InsideError> {
    Inside::new().make(target.pid(), InsideCall::NoHugePage, &[target.memory], &mut Vec::new())
}

#[test]
fn a_process_that_does_not_exist_is_gone() {
    let result = Inside::new().make(i32::MAX as u32, InsideCall::MLock, &[], &mut Vec::new());
    assert!(result.is_ok(), "there is no range");
    let range = isotherm_core::AddrRange::new(0x1000, 0x2000).unwrap();
    let result = Inside::new().make(i32::MAX as u32, InsideCall::MLock, &[range], &mut Vec::new());
    assert!(matches!(result, Err(InsideError::Gone(_))), "{result:?}");
}

#[test]
fn a_target_that_another_process_traces_is_refused() {
    let mut target = Target::start("compute");
    // The tracer is this thread.
    let tracee = Tracee(target.pid().cast_signed());
    tracee.seize().unwrap();
    assert!(matches!(attempt(&target), Err(InsideError::Traced(_))));
    tracee.interrupt().unwrap();
    while !matches!(tracee.wait(), Waited::Stopped(_)) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(matches!(attempt(&target), Err(InsideError::Traced(_))));
    tracee.detach(0).unwrap();
    attempt(&target).unwrap();
    assert_unharmed(&target.end());
}

#[test]
fn a_target_that_is_stopped_is_refused_and_stays_stopped() {
    let mut target = Target::start("compute");
    target.signal(Signal::STOP);
    while !target.status("State:").starts_with('T') {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(matches!(attempt(&target), Err(InsideError::Stopped(_))));
    assert!(target.status("State:").starts_with("T (stopped)"));
    target.signal(Signal::CONT);
    std::thread::sleep(Duration::from_millis(20));
    attempt(&target).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert_unharmed(&target.end());
}

#[test]
fn calls_are_made_in_a_target_that_is_stopped_and_continued_repeatedly() {
    let mut target = Target::start("compute");
    let began = Instant::now();
    let mut inside = Inside::new();
    let pid = rustix::process::Pid::from_raw(target.pid().cast_signed()).unwrap();
    let sender = std::thread::spawn(move || {
        while began.elapsed() < Duration::from_secs(1) {
            rustix::process::kill_process(pid, Signal::STOP).unwrap();
            std::thread::sleep(Duration::from_micros(150));
            rustix::process::kill_process(pid, Signal::CONT).unwrap();
            std::thread::sleep(Duration::from_micros(350));
        }
    });
    let mut done = 0;
    while !sender.is_finished() {
        match inside.make(target.pid(), InsideCall::NoHugePage, &[target.memory], &mut Vec::new()) {
            Ok(()) => done += 1,
            Err(InsideError::Stopped(_) | InsideError::Busy(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    sender.join().unwrap();
    assert_unharmed(&target.end());
    assert!(done > 0);
}

#[test]
fn a_target_under_seccomp_is_refused() {
    let mut target = Target::start("seccomp");
    assert!(matches!(attempt(&target), Err(InsideError::Seccomp(_))));
    assert_unharmed(&target.end());
}

#[test]
fn a_target_that_waits_for_a_child_after_vfork_is_refused_and_so_is_the_child() {
    let mut target = Target::start("vfork");
    while !target.status("State:").starts_with('D') {
        std::thread::sleep(Duration::from_millis(1));
    }
    let began = Instant::now();
    let result = attempt(&target);
    assert!(matches!(result, Err(InsideError::Unresponsive(_))), "{result:?}");
    assert!(began.elapsed() < Duration::from_secs(1), "the attempt ends soon");
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", target.pid())).unwrap();
    let child: u32 = children.trim().parse().unwrap();
    let result = Inside::new().make(child, InsideCall::NoHugePage, &[target.memory], &mut Vec::new());
    assert!(matches!(result, Err(InsideError::SharesMemory(_))), "{result:?}");
    assert!(!target.has_flag("nh"));
    assert_eq!(target.answer(), "done");
    attempt(&target).unwrap();
    assert!(target.has_flag("nh"));
}

#[test]
fn a_target_is_prepared_again_after_an_exec() {
    let mut command = Command::new("sh");
    // The shell reports its process ID as an address, and calls exec when it receives a line.
    command.args(["-c", "echo \"@ $$\"; read line; exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
    let mut target = Target::start_by(command, "compute");
    let mut inside = Inside::new();
    let unmapped = isotherm_core::AddrRange::new(0x1_0000, 0x1_1000).unwrap();
    let mut results = Vec::new();
    inside.make(target.pid(), InsideCall::NoHugePage, &[unmapped], &mut results).unwrap();
    assert_eq!(results, [Err(rustix::io::Errno::NOMEM)], "the shell has no memory there");
    target.send("exec");
    let start: u64 = target.answer().parse().unwrap();
    target.memory = isotherm_core::AddrRange::new(start, start + target.memory.size()).unwrap();
    inside.make(target.pid(), InsideCall::NoHugePage, &[target.memory], &mut Vec::new()).unwrap();
    assert!(target.has_flag("nh"));
    assert_unharmed(&target.end());
}
