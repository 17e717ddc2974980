//! If a file is missing or cannot be written, the error is clear and nothing is left behind.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use isotherm_core::{Attributes, IntervalsGoal};
use isotherm_probes::damon::{DamonError, DamonPaths, Features, Run, Scope, Settings, check, check_operations};

use crate::made::{Made, processes, settings};

/// Checks that the text of the error and its sources contains `parts`.
fn assert_says(error: &DamonError, parts: &[&str]) {
    let error = isotherm_core::chain(error);
    for part in parts {
        assert!(error.contains(part), "{part} in {error}");
    }
}

#[test]
fn without_damon_the_error_names_the_missing_kernel_option() {
    let dir = tempfile::tempdir().unwrap();
    let error = Run::prepare(DamonPaths::under(dir.path())).unwrap_err();
    assert!(matches!(error, DamonError::NoSysfs(_)));
    assert_says(&error, &["CONFIG_DAMON_SYSFS", "another probe"]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn without_the_operations_the_error_lists_the_available_ones() {
    let made = Made::new();
    made.context("avail_operations", "paddr\n");
    let run = Run::prepare(made.places.clone()).unwrap();
    assert_says(&run.can_watch("vaddr").unwrap_err(), &["`vaddr`", "it has: paddr", "CONFIG_DAMON_VADDR"]);
    run.can_watch("paddr").unwrap();
}

#[test]
fn without_tracefs_and_tried_regions_the_error_says_how_to_mount_tracefs() {
    let made = Made::new();
    fs::remove_dir_all(made.path("0/contexts/0/schemes/0/tried_regions")).unwrap();
    let error = Run::prepare(made.places.clone()).unwrap_err();
    assert_says(&error, &["tracefs is not mounted", "mount -t tracefs", "6.2"]);
    assert_eq!(made.read("nr_kdamonds"), "0");
    assert!(!made.claim().exists());

    // tracefs is mounted but does not have the event.
    fs::create_dir_all(made.places.tracefs[1].join("events")).unwrap();
    assert_says(
        &Run::prepare(made.places.clone()).unwrap_err(),
        &["no tracepoint", "debug/tracing", "CONFIG_EVENT_TRACING"],
    );
}

#[test]
fn a_tracepoint_without_a_field_is_an_error() {
    let made = Made::new();
    fs::remove_dir_all(made.path("0/contexts/0/schemes/0/tried_regions")).unwrap();
    let event = made.places.tracefs[0].join("events/damon/damon_aggregated");
    fs::create_dir_all(&event).unwrap();
    fs::write(event.join("id"), "567\n").unwrap();
    fs::write(event.join("format"), "field:unsigned long target_id;\toffset:8;\tsize:8;\tsigned:0;\n").unwrap();
    assert_says(&Run::prepare(made.places.clone()).unwrap_err(), &["the offset of the field nr_regions"]);
}

#[test]
fn a_missing_file_is_an_error_and_the_kdamond_is_removed() {
    let made = Made::new();
    let mut run = Run::prepare(made.places.clone()).unwrap();
    fs::remove_file(made.path("0/contexts/0/targets/0/pid_target")).unwrap();
    let error = run.start(&processes(&[4321])).unwrap_err();
    assert_says(&error, &["`4321` cannot be written to", "pid_target", "No such file"]);
    drop(run);
    assert_eq!((made.read("nr_kdamonds"), made.read("0/state")), ("0".into(), "off".into()));
}

#[test]
fn a_write_error_contains_the_value() {
    let made = Made::new();
    let mut run = Run::prepare(made.places.clone()).unwrap();
    // This file of the kernel accepts only numbers, so the write fails with EINVAL.
    let state = made.path("0/state");
    fs::remove_file(&state).unwrap();
    symlink("/proc/self/oom_score_adj", &state).unwrap();
    let error = run.start(&processes(&[4321])).unwrap_err();
    assert_says(&error, &["`on` cannot be written to", "0/state", "Invalid argument", "a target has ended"]);
}

#[test]
fn the_hint_depends_on_the_error_number() {
    for (errno, hint) in [
        (rustix::io::Errno::BUSY, "another kdamond is running"),
        (rustix::io::Errno::PERM, "as root"),
        (rustix::io::Errno::ROFS, "outside the container"),
    ] {
        let path = PathBuf::from("state");
        assert_says(&DamonError::Write { path, value: "on".into(), source: errno.into() }, &[hint]);
    }
}

#[test]
fn a_replaced_directory_is_noticed_before_the_kdamond_is_turned_on() {
    let made = Made::new();
    let mut run = Run::prepare(made.places.clone()).unwrap();
    // The kernel replaces the directory when another program sets the number of kdamonds.
    fs::rename(made.path("0"), made.path("old")).unwrap();
    fs::create_dir(made.path("0")).unwrap();
    fs::rename(made.path("old/contexts"), made.path("0/contexts")).unwrap();
    made.file("0/state", "off\n");
    let error = run.start(&processes(&[4321])).unwrap_err();
    assert!(matches!(error, DamonError::Overtaken { .. }), "{error}");
    assert_says(&error, &["another program configures DAMON"]);
    drop(run);
    assert_eq!(
        (made.read("nr_kdamonds"), made.read("0/state")),
        ("1".into(), "off".into()),
        "the directory belongs to the other program"
    );
}

#[test]
fn a_kdamond_that_ends_at_once_is_an_error() {
    let made = Made::new();
    made.file("0/pid", "-1\n");
    let mut run = Run::prepare(made.places.clone()).unwrap();
    assert!(matches!(run.start(&processes(&[4321])), Err(DamonError::TurnedOff)));
}

#[test]
fn settings_that_the_kernel_rejects_without_a_reason_are_rejected_with_one() {
    use std::time::Duration;
    let made = Made::new();
    let mut run = Run::prepare(made.places.clone()).unwrap();
    let nanos =
        Attributes::new(Duration::from_nanos(5_000_500), Duration::from_secs(1), Duration::from_secs(1), 10, 100);
    let odd = Settings { attributes: nanos.unwrap(), ..processes(&[1]) };
    assert_says(&run.start(&odd).unwrap_err(), &["5.0005ms", "microseconds"]);
    let goal = IntervalsGoal { least: Duration::from_millis(40), ..IntervalsGoal::default() };
    let apart = Settings { goal: Some(goal), ..processes(&[1]) };
    assert_says(&run.start(&apart).unwrap_err(), &["5ms", "goal allows (40ms to 10s)"]);
    assert_says(&run.start(&settings(Scope::Physical(vec![]))).unwrap_err(), &["contain no memory"]);
    assert_says(&run.start(&processes(&[])).unwrap_err(), &["no target left"]);
    assert_eq!(made.read("0/state"), "off");
}

#[test]
fn features_are_found_without_a_kdamond() {
    let made = Made::new();
    fs::remove_dir_all(made.path("0")).unwrap();
    made.proc("kallsyms", "0 t damon_pa_apply_scheme\n0 t damon_sysfs_scheme_region_release\n0 t damon_va_update\n");
    let features = Features::find(&made.places);
    assert!(!features.intervals_goal);
    assert_eq!(
        features.to_string(),
        "operations: vaddr, fvaddr, paddr; tracepoint: no; tried_regions: yes; intervals_goal: no"
    );
    check(&made.places).unwrap();
    made.proc("kallsyms", "0 t damon_sysfs_intervals_goal_add_dirs\n");
    assert!(Features::find(&made.places).intervals_goal);
    made.proc("kallsyms", "0 t damon_pa_apply_scheme\n");
    assert_eq!(Features::find(&made.places).operations, ["paddr"]);
    assert_says(&check_operations(&made.places, "vaddr").unwrap_err(), &["it has: paddr"]);
    check_operations(&made.places, "paddr").unwrap();
    assert_says(&check(&made.places).unwrap_err(), &["tracefs is not mounted"]);
}
