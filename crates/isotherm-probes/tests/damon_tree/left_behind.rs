//! What a killed run leaves behind, and how the next run cleans up.
//!
//! The tests simulate a killed run: they end a run, which releases its lock, and restore the files that it had written.

use std::fs;

use isotherm_probes::damon::{DamonError, Run, check};

use crate::made::{KDAMOND, Made, processes};

/// The files that a run leaves if it is killed while it monitors process 4321.
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

/// The claim without the lines that start with `key`.
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
fn the_next_run_turns_the_kdamond_of_a_killed_run_off() {
    next_run_cleans_up(&killed());
}

#[test]
fn the_next_run_removes_a_kdamond_that_has_ended() {
    let made = killed();
    made.file("0/state", "off\n");
    made.file("0/pid", "-1\n");
    made.end_thread();
    next_run_cleans_up(&made);
}

#[test]
fn another_thread_with_the_same_id_is_left_alone() {
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
fn a_directory_that_another_program_made_is_left_alone() {
    for state in ["on\n", "off\n"] {
        let made = killed();
        // The kernel makes new directories, with new inode numbers, when the number of kdamonds is set.
        fs::rename(made.path("0"), made.path("old")).unwrap();
        copy(&made.path("old"), &made.path("0"));
        made.file("0/state", state);
        next_run_leaves_it_alone(&made);
    }
}

#[test]
fn a_claim_of_another_boot_is_ignored() {
    let made = killed();
    made.proc("sys/kernel/random/boot_id", "ffffffff\n");
    next_run_leaves_it_alone(&made);
}

#[test]
fn a_claim_without_a_thread_is_matched_by_operations_and_targets() {
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
fn an_incomplete_last_line_of_a_claim_is_ignored() {
    let made = killed();
    let claim = without(&made, "thread") + "thread 7";
    claim_says(&made, &claim);
    next_run_cleans_up(&made);
}

#[test]
fn a_claim_without_a_directory_matches_only_an_empty_one() {
    let made = killed();
    let claim: String = fs::read_to_string(made.claim()).unwrap().split_inclusive('\n').take(2).collect();
    claim_says(&made, &claim);
    made.file("0/state", "off\n");
    next_run_leaves_it_alone(&made);

    let claim: String = without(&made, "thread").split_inclusive('\n').take(2).collect();
    let made = killed();
    claim_says(&made, &claim);
    made.file("0/state", "off\n");
    // The kernel makes the directory without a context, and so without operations.
    fs::rename(made.path("0/contexts/0"), made.path("later")).unwrap();
    assert!(Run::prepare(made.places.clone()).is_err(), "the tree has no context for the new run");
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
