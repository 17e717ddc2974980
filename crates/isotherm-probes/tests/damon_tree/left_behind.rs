//! What a killed run leaves, and what the next one makes of it.
//!
//! A run is "killed" here by taking what it has written as it was at that moment, and letting go of its lock.

use std::fs;

use isotherm_probes::damon::{DamonError, Run, check};

use crate::made::{KDAMOND, Made, processes};

/// A tree as a run leaves it that is killed while it watches process 4321.
fn killed() -> Made {
    let made = Made::new();
    let mut run = Run::prepare(made.places.clone()).unwrap();
    run.start(&processes(&[4321])).unwrap();
    let claim = fs::read_to_string(made.claim()).unwrap();
    drop(run);
    made.file("nr_kdamonds", "1\n");
    made.file("0/state", "on\n");
    claim_says(&made, &claim);
    made
}

fn claim_says(made: &Made, claim: &str) {
    fs::create_dir_all(&made.places.run).unwrap();
    fs::write(made.claim(), claim).unwrap();
}

/// The claim without the lines that begin with `key`.
fn without(made: &Made, key: &str) -> String {
    let claim = fs::read_to_string(made.claim()).unwrap();
    claim.split_inclusive('\n').filter(|line| !line.starts_with(key)).collect()
}

fn next_run_cleans_up(made: &Made) {
    check(&made.places).unwrap();
    Run::prepare(made.places.clone()).unwrap().end().unwrap();
    assert_eq!((made.read("nr_kdamonds"), made.read("0/state")), ("0".into(), "off".into()));
    assert!(!made.claim().exists());
}

fn next_run_leaves_it_alone(made: &Made) {
    let (state, number) = (made.read("0/state"), made.read("nr_kdamonds"));
    assert!(matches!(check(&made.places), Err(DamonError::Busy(_))));
    assert!(matches!(Run::prepare(made.places.clone()), Err(DamonError::Busy(_))));
    assert_eq!((made.read("0/state"), made.read("nr_kdamonds")), (state, number));
}

#[test]
fn the_kdamond_of_a_killed_run_is_turned_off_by_the_next() {
    next_run_cleans_up(&killed());
}

#[test]
fn it_is_removed_when_it_has_ended_meanwhile() {
    let made = killed();
    made.file("0/state", "off\n");
    made.file("0/pid", "-1\n");
    made.end_thread();
    next_run_cleans_up(&made);
}

#[test]
fn another_thread_of_the_same_id_is_left_alone() {
    let made = killed();
    made.thread(KDAMOND, "kdamond.0", 6000);
    next_run_leaves_it_alone(&made);
}

#[test]
fn a_kdamond_that_was_started_again_is_left_alone() {
    let made = killed();
    made.thread(78, "kdamond.0", 6000);
    made.file("0/pid", "78\n");
    next_run_leaves_it_alone(&made);
}

#[test]
fn a_directory_that_another_has_made_is_left_alone() {
    for state in ["on\n", "off\n"] {
        let made = killed();
        // The kernel makes directories anew when their number is set, each with an inode of its own.
        fs::rename(made.path("0"), made.path("old")).unwrap();
        copy(&made.path("old"), &made.path("0"));
        made.file("0/state", state);
        next_run_leaves_it_alone(&made);
    }
}

#[test]
fn a_claim_of_another_boot_says_nothing() {
    let made = killed();
    made.proc("sys/kernel/random/boot_id", "ffffffff\n");
    next_run_leaves_it_alone(&made);
}

#[test]
fn a_run_killed_before_it_knew_its_thread_is_known_by_what_it_watches() {
    let made = killed();
    let claim = without(&made, "thread");
    claim_says(&made, &claim);
    made.context("targets/0/pid_target", "4322\n");
    next_run_leaves_it_alone(&made);

    let made = killed();
    claim_says(&made, &claim.replace(line(&claim, "directory"), line(&without(&made, "thread"), "directory")));
    next_run_cleans_up(&made);
}

fn line<'a>(text: &'a str, key: &str) -> &'a str {
    text.lines().find(|line| line.starts_with(key)).unwrap()
}

#[test]
fn a_run_killed_while_it_wrote_its_claim_is_known_by_the_lines_that_are_whole() {
    let made = killed();
    let claim = without(&made, "thread") + "thread 7";
    claim_says(&made, &claim);
    next_run_cleans_up(&made);
}

#[test]
fn a_run_killed_before_it_knew_its_directory_leaves_only_an_empty_one() {
    let made = killed();
    let claim: String = fs::read_to_string(made.claim()).unwrap().split_inclusive('\n').take(2).collect();
    claim_says(&made, &claim);
    made.file("0/state", "off\n");
    next_run_leaves_it_alone(&made);

    let claim: String = without(&made, "thread").split_inclusive('\n').take(2).collect();
    let made = killed();
    claim_says(&made, &claim);
    made.file("0/state", "off\n");
    // As the kernel makes it: without a context, and so without operations.
    fs::rename(made.path("0/contexts/0"), made.path("later")).unwrap();
    assert!(Run::prepare(made.places.clone()).is_err(), "the made tree has no context for the new run");
    assert_eq!(made.read("nr_kdamonds"), "0");
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
