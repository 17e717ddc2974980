//! What isotherm has to stand for long, in short: system calls that fail, kills, processes that come and go.
//! `./dev soak` tries more of it, for longer.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

#[path = "cli/common/mod.rs"]
mod common;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use common::ISOTHERM;
use isotherm_soak::churn::{churn, is_parent};
use isotherm_soak::daemon::{self, Load};
use isotherm_soak::faults::{Case, Extent, Kind, Room, available, cases, kills, sweep};
use isotherm_soak::target::{CHURN, ROUNDS, Start, is_target};
use isotherm_testing::or_skip;

#[test]
#[ignore = "is what other tests watch"]
fn is_the_target() {
    if std::env::var_os(CHURN).is_some() {
        is_parent().unwrap();
        // It is no test here.
        std::process::exit(0);
    }
    let rounds = std::env::var(ROUNDS).map_err(|_| "it is a part of other tests");
    let rounds: u64 = or_skip!(rounds).parse().unwrap();
    is_target(rounds);
}

/// This program, as the target of isotherm.
fn target() -> Start {
    let program = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    let arguments = ["--ignored", "--exact", "--nocapture", "is_the_target"].map(str::to_owned);
    Start([vec![program], arguments.to_vec()].concat())
}

/// Lets calls of the commands fail that are chosen. An error is the reason to skip the test.
fn check(chosen: impl Fn(&Case) -> bool, extent: Extent) -> Result<(), &'static str> {
    available()?;
    let room = Room::new(ISOTHERM.as_ref(), &target()).unwrap();
    let mut findings = vec![];
    for case in cases(&room).iter().filter(|case| !case.long && chosen(case)) {
        let begun = std::time::Instant::now();
        let (found, runs) = sweep(&room, case, &Kind::ALL, extent).unwrap();
        assert!(runs > 1, "{case:?}");
        println!("{:?}: {runs} runs in {:?}", case.arguments, begun.elapsed());
        findings.extend(found);
    }
    assert!(findings.is_empty(), "{findings:#?}");
    Ok(())
}

/// A command that is new has a case.
#[test]
fn faults_are_injected_into_each_command() {
    or_skip!(available());
    let room = Room::new(ISOTHERM.as_ref(), &target()).unwrap();
    let cases: Vec<String> = cases(&room).iter().map(|case| case.arguments.join(" ") + " ").collect();
    let needs_bpf = ["run", "idle", "top"];
    for command in common::Place::new().commands() {
        let has_one = cases.iter().any(|case| case.starts_with(&format!("{command} ")));
        // All of them connect as `ctl status` does.
        let is_like_another = command.starts_with("ctl ");
        assert!(has_one || is_like_another || (!room.bpf && needs_bpf.contains(&&*command)), "{command}");
    }
}

#[test]
fn a_call_that_fails_is_told_and_no_output_is_lost() {
    or_skip!(check(|case| !case.slow, Extent { each: 8, every_error: false }));
}

/// What watches a process, and the doctor: these take most of a second each.
#[track_caller]
fn check_slow(commands: &[&str]) -> Result<(), &'static str> {
    // A build without optimisation takes seconds for a picture.
    let chosen = |case: &Case| case.varies && commands.contains(&case.arguments[0].as_str());
    check(chosen, Extent { each: 1, every_error: false })
}

#[test]
fn a_call_that_fails_harms_no_target_of_record() {
    or_skip!(check_slow(&["record"]));
}

#[test]
fn a_call_that_fails_harms_no_target_of_run_or_idle() {
    or_skip!(check_slow(&["run", "idle", "tier"]));
}

#[test]
fn a_call_that_fails_harms_no_target_of_top_or_tune() {
    or_skip!(check_slow(&["top", "tune", "doctor"]));
}

#[test]
fn a_killed_command_leaves_a_readable_recording_and_the_next_one_nothing_of_it() {
    or_skip!(available());
    let room = Room::new(ISOTHERM.as_ref(), &target()).unwrap();
    let mut killed = 0;
    let is_killed = |case: &Case| case.keeps && !case.long && !case.arguments.contains(&"TARGET".to_owned());
    for case in cases(&room).iter().filter(|case| is_killed(case)) {
        let extent = Extent { each: 1, every_error: false };
        let (findings, kills) = kills(&room, case, &[Kind::Write, Kind::Clone, Kind::Ptrace], extent).unwrap();
        assert!(findings.is_empty(), "{findings:#?}");
        killed += kills;
    }
    assert!(killed > 10, "{killed} kills");
}

/// Processes of one test that come and go would count for the other.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn what_isotherm_uses_does_not_grow_while_processes_come_and_go() {
    let _alone = alone();
    let probe = if common::bpf_works().is_ok() { "bpf" } else { "refs" };
    let churned = churn(ISOTHERM.as_ref(), &target(), probe, Duration::from_secs(20)).unwrap();
    assert!(churned.wrong.is_empty() && churned.targets > 20, "{churned:#?}");
}

#[test]
fn a_daemon_under_load_answers_all_and_its_rounds_are_not_late() {
    let load = Load { time: Duration::from_secs(10), rate: 100, streams: 20 };
    let loaded = daemon::load(ISOTHERM.as_ref(), &target(), load).unwrap();
    println!("{loaded:?}");
    assert_eq!(loaded.wrong, [""; 0], "{loaded:?}");
}

#[test]
fn a_daemon_that_is_killed_again_and_again_keeps_a_readable_history() {
    let killed = daemon::kills(ISOTHERM.as_ref(), &target(), 5).unwrap();
    assert!(killed.wrong.is_empty() && killed.snapshots > 0, "{killed:?}");
}

#[test]
fn what_a_daemon_uses_does_not_grow_as_processes_come_and_go() {
    let _alone = alone();
    let churned = daemon::churned(ISOTHERM.as_ref(), &target(), Duration::from_secs(20)).unwrap();
    assert_eq!(churned.wrong, [""; 0], "{churned:?}");
}
