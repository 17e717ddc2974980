//! The target continues unharmed if isotherm or the helper dies at any moment.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg32;
use rustix::process::{Pid, Signal, kill_process};

use super::calls::assert_unharmed;
use super::target::Target;
use crate::inside::program::step::{Fault, Step};
use crate::{Inside, InsideCall, InsideError};

const STEPS: [Step; 7] = [
    Step::Seized,
    Step::Interrupted,
    Step::FrameWritten,
    Step::RegistersSet,
    Step::Entered,
    Step::Left,
    Step::Restored,
];

fn is_detached(target: &Target) -> bool {
    target.status("TracerPid:") == "0" && !target.status("State:").starts_with('t')
}

fn wait_until_detached(target: &Target) {
    let began = Instant::now();
    while !is_detached(target) {
        assert!(began.elapsed() < Duration::from_secs(20), "the target is still traced");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_helpers_death_at_any_step_harms_nothing() {
    let mut target = Target::start("compute");
    let mut inside = Inside::new();
    for round in 0..210 {
        for step in STEPS {
            inside.fault = Some((Fault::Killed, step));
            let result = inside.make(target.pid(), InsideCall::NoHugePage, &[target.memory], &mut Vec::new());
            assert!(matches!(result, Err(InsideError::HelperGone(_))), "{step:?} {result:?}");
            if round == 0 {
                wait_until_detached(&target);
            }
        }
    }
    inside.fault = None;
    inside.make(target.pid(), InsideCall::HugePage, &[target.memory], &mut Vec::new()).unwrap();
    assert!(target.has_flag("hg"));
    assert_unharmed(&target.end());
}

#[test]
fn a_helper_that_panics_hangs_or_is_stopped_at_any_step_lets_the_target_go() {
    for fault in [Fault::Panics, Fault::Hangs, Fault::Stopped] {
        let mut target = Target::start("compute");
        for step in STEPS {
            let mut inside = Inside::new();
            inside.fault = Some((fault, step));
            let result = inside.make(target.pid(), InsideCall::NoHugePage, &[target.memory], &mut Vec::new());
            assert!(matches!(result, Err(InsideError::HelperGone(_))), "{fault:?} {step:?} {result:?}");
            wait_until_detached(&target);
        }
        Inside::new().make(target.pid(), InsideCall::HugePage, &[target.memory], &mut Vec::new()).unwrap();
        assert!(target.has_flag("hg"), "{fault:?}");
        assert_unharmed(&target.end());
    }
}

#[test]
fn a_helper_that_hangs_lets_the_target_go_although_isotherm_has_been_killed() {
    let mut target = Target::start("compute");
    for step in STEPS {
        let mut victim = victim(&target, &format!(" {}", step as u64));
        let began = Instant::now();
        while is_detached(&target) {
            assert!(began.elapsed() < Duration::from_secs(20), "the target is not traced: {step:?}");
            std::thread::yield_now();
        }
        victim.kill().unwrap();
        victim.wait().unwrap();
        wait_until_detached(&target);
    }
    assert_unharmed(&target.end());
}

#[test]
fn a_target_that_waits_when_the_helper_dies_continues_to_wait() {
    for how in ["read", "poll-input", "epoll"] {
        // A call with a restart block inside the kernel returns EINTR, as after a signal handler.
        let eintr_at = |step| how == "poll-input" && matches!(step, Step::RegistersSet | Step::Entered | Step::Left);
        for step in STEPS.into_iter().filter(|step| !eintr_at(*step)) {
            let mut target = Target::start(&format!("block {how}"));
            let mut inside = Inside::new();
            inside.fault = Some((Fault::Killed, step));
            let result = inside.make(target.pid(), InsideCall::NoHugePage, &[target.memory], &mut Vec::new());
            assert!(matches!(result, Err(InsideError::HelperGone(_))), "{step:?} {result:?}");
            wait_until_detached(&target);
            std::thread::sleep(Duration::from_millis(20));
            target.send("x");
            let counts = target.end();
            let early = how == "epoll" && (step as u64) < Step::RegistersSet as u64;
            if early {
                // The target was detached before the tracer knew that the call is restartable.
                assert!([0, libc::EINTR as u64].contains(&counts.of("errno")), "{how} {step:?} {counts:?}");
            } else {
                assert_eq!((counts.of("result"), counts.of("errno")), (2, 0), "{how} {step:?} {counts:?}");
            }
        }
    }
}

#[test]
fn the_helpers_death_at_any_moment_harms_nothing() {
    let mut target = Target::start("compute");
    let mut random = Pcg32::seed_from_u64(7);
    let mut inside = Inside::new();
    let mut deaths = 0;
    while deaths < 1000 {
        inside.make(target.pid(), InsideCall::NoHugePage, &[target.memory], &mut Vec::new()).unwrap();
        let helper = Pid::from_raw(inside.helper().unwrap().cast_signed()).unwrap();
        let delay = Duration::from_micros(random.random_range(0..300));
        let killer = std::thread::spawn(move || {
            let began = Instant::now();
            while began.elapsed() < delay {
                std::hint::spin_loop();
            }
            // The process ID cannot be reused, because nobody waits for this child before the next call.
            kill_process(helper, Signal::KILL).unwrap();
        });
        while inside.make(target.pid(), InsideCall::HugePage, &[target.memory], &mut Vec::new()).is_ok()
            && !killer.is_finished()
        {}
        killer.join().unwrap();
        // If the helper died between two calls, this call finds that out.
        let _ = inside.make(target.pid(), InsideCall::HugePage, &[target.memory], &mut Vec::new());
        deaths += 1;
    }
    wait_until_detached(&target);
    assert_unharmed(&target.end());
}

/// The environment variable of the process that the test below kills.
const VICTIM: &str = "ISOTHERM_TEST_INSIDE_VICTIM";

#[test]
#[ignore = "the next test starts and kills it"]
fn act_without_end() {
    let value = isotherm_testing::or_skip!(std::env::var(VICTIM).map_err(|_| "it is a part of another test"));
    let numbers: Vec<u64> = value.split(' ').map(|number| number.parse().unwrap()).collect();
    let memory = isotherm_core::AddrRange::new(numbers[1], numbers[2]).unwrap();
    let mut inside = Inside::new();
    let hangs_at = numbers.get(3).and_then(|number| STEPS.into_iter().find(|step| *step as u64 == *number));
    inside.fault = hangs_at.map(|step| (Fault::Hangs, step));
    println!("begins");
    for turn in 0.. {
        let call = if turn % 2 == 0 { InsideCall::NoHugePage } else { InsideCall::HugePage };
        // The helper of the previous victim may still trace the target.
        let _ = inside.make(numbers[0] as u32, call, &[memory], &mut Vec::new());
    }
}

/// A process that acts on the target without end. `more` is the step at which its helper hangs.
fn victim(target: &Target, more: &str) -> std::process::Child {
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "inside::tests::deaths::act_without_end", "--ignored", "--nocapture"])
        .env(VICTIM, format!("{} {} {}{more}", target.pid(), target.memory.start(), target.memory.end()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(victim.stdout.take().unwrap()));
    assert!(lines.by_ref().map_while(Result::ok).any(|line| line.contains("begins")));
    victim
}

#[test]
fn isotherms_death_at_any_moment_interrupts_nothing() {
    let mut target = Target::start("compute");
    let mut random = Pcg32::seed_from_u64(11);
    for _ in 0..300 {
        let mut victim = victim(&target, "");
        std::thread::sleep(Duration::from_micros(random.random_range(0..8000)));
        victim.kill().unwrap();
        victim.wait().unwrap();
    }
    wait_until_detached(&target);
    let counts = target.end();
    assert_unharmed(&counts);
    assert_eq!(counts.of("interrupted"), 0, "the helpers completed their calls: {counts:?}");
}

#[test]
fn a_target_that_ends_during_a_call_is_reported_as_gone() {
    let mut random = Pcg32::seed_from_u64(13);
    let mut inside = Inside::new();
    for _ in 0..40 {
        let target = Target::start("threads");
        let pid = target.pid();
        let memory = target.memory;
        let delay = Duration::from_micros(random.random_range(0..3000));
        let killer = std::thread::spawn(move || {
            std::thread::sleep(delay);
            target.signal(Signal::KILL);
            // This waits for the end of the target, which succeeds only after its tracer has waited for it.
            drop(target);
        });
        let error = loop {
            if let Err(error) = inside.make(pid, InsideCall::NoHugePage, &[memory], &mut Vec::new()) {
                break error;
            }
        };
        killer.join().unwrap();
        let gone = matches!(error, InsideError::Gone(_) | InsideError::MainThreadEnded(_) | InsideError::NotX64(_));
        assert!(gone, "{error:?}");
    }
}
