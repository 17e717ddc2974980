//! Files that are missing or refuse: a clear error, and nothing left behind.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use isotherm_core::Attributes;
use isotherm_probes::damon::{DamonError, Features, Places, Run, Scope, Settings, check, check_operations};

use crate::made::{Made, processes, settings};

fn told(error: &DamonError, parts: &[&str]) {
    let error = error.to_string();
    for part in parts {
        assert!(error.contains(part), "{part} in {error}");
    }
}

#[test]
fn a_kernel_without_damon_is_told_what_it_lacks() {
    let dir = tempfile::tempdir().unwrap();
    let error = Run::prepare(Places::under(dir.path())).unwrap_err();
    assert!(matches!(error, DamonError::NoSysfs(_)));
    told(&error, &["CONFIG_DAMON_SYSFS", "another probe"]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_kernel_without_the_operations_is_told_which_it_has() {
    let made = Made::new();
    made.context("avail_operations", "paddr\n");
    let run = Run::prepare(made.places.clone()).unwrap();
    told(&run.can_watch("vaddr").unwrap_err(), &["`vaddr`", "it has: paddr", "CONFIG_DAMON_VADDR"]);
    run.can_watch("paddr").unwrap();
}

#[test]
fn without_any_way_to_the_findings_it_says_how_to_mount_tracefs() {
    let made = Made::new();
    fs::remove_dir_all(made.path("0/contexts/0/schemes/0/tried_regions")).unwrap();
    let error = Run::prepare(made.places.clone()).unwrap_err();
    told(&error, &["tracefs is not mounted", "mount -t tracefs", "6.2"]);
    assert_eq!(made.read("nr_kdamonds"), "0");
    assert!(!made.claim().exists());

    // Mounted, but without the event.
    fs::create_dir_all(made.places.tracefs[1].join("events")).unwrap();
    told(&Run::prepare(made.places.clone()).unwrap_err(), &["no tracepoint", "debug/tracing", "CONFIG_EVENT_TRACING"]);
}

#[test]
fn a_tracepoint_of_another_layout_is_told() {
    let made = Made::new();
    fs::remove_dir_all(made.path("0/contexts/0/schemes/0/tried_regions")).unwrap();
    let event = made.places.tracefs[0].join("events/damon/damon_aggregated");
    fs::create_dir_all(&event).unwrap();
    fs::write(event.join("id"), "567\n").unwrap();
    fs::write(event.join("format"), "field:unsigned long target_id;\toffset:8;\tsize:8;\tsigned:0;\n").unwrap();
    told(&Run::prepare(made.places.clone()).unwrap_err(), &["where the field nr_regions lies"]);
}

#[test]
fn a_file_that_vanishes_is_told_and_the_kdamond_removed() {
    let made = Made::new();
    let mut run = Run::prepare(made.places.clone()).unwrap();
    fs::remove_file(made.path("0/contexts/0/targets/0/pid_target")).unwrap();
    let error = run.start(&processes(&[4321])).unwrap_err();
    told(&error, &["`4321` cannot be written to", "pid_target", "No such file"]);
    drop(run);
    assert_eq!((made.read("nr_kdamonds"), made.read("0/state")), ("0".into(), "off".into()));
}

#[test]
fn a_refusal_is_told_with_what_was_to_be_written() {
    let made = Made::new();
    let mut run = Run::prepare(made.places.clone()).unwrap();
    // A file of the kernel that takes no words: EINVAL.
    let state = made.path("0/state");
    fs::remove_file(&state).unwrap();
    symlink("/proc/self/oom_score_adj", &state).unwrap();
    let error = run.start(&processes(&[4321])).unwrap_err();
    told(&error, &["`on` cannot be written to", "0/state", "Invalid argument", "a target has ended"]);
}

#[test]
fn what_would_mend_a_refusal_depends_on_it() {
    for (errno, mend) in [
        (rustix::io::Errno::BUSY, "another kdamond runs"),
        (rustix::io::Errno::PERM, "as root"),
        (rustix::io::Errno::ROFS, "outside of the container"),
    ] {
        let path = PathBuf::from("state");
        told(&DamonError::Write { path, value: "on".into(), source: errno.into() }, &[mend]);
    }
}

#[test]
fn settings_of_another_are_noticed_before_anything_is_turned_on() {
    let made = Made::new();
    let mut run = Run::prepare(made.places.clone()).unwrap();
    // The directory is replaced, as it is when another sets the number of kdamonds.
    fs::rename(made.path("0"), made.path("old")).unwrap();
    fs::create_dir(made.path("0")).unwrap();
    fs::rename(made.path("old/contexts"), made.path("0/contexts")).unwrap();
    made.file("0/state", "off\n");
    let error = run.start(&processes(&[4321])).unwrap_err();
    assert!(matches!(error, DamonError::Overtaken { .. }), "{error}");
    told(&error, &["another program administrates DAMON"]);
    drop(run);
    assert_eq!((made.read("nr_kdamonds"), made.read("0/state")), ("1".into(), "off".into()), "it is the other's now");
}

#[test]
fn a_kdamond_that_ends_at_once_is_told() {
    let made = Made::new();
    made.file("0/pid", "-1\n");
    let mut run = Run::prepare(made.places.clone()).unwrap();
    assert!(matches!(run.start(&processes(&[4321])), Err(DamonError::TurnedOff)));
}

#[test]
fn what_the_kernel_would_refuse_without_a_word_is_refused_with_one() {
    use std::time::Duration;
    let made = Made::new();
    let mut run = Run::prepare(made.places.clone()).unwrap();
    let nanos =
        Attributes::new(Duration::from_nanos(5_000_500), Duration::from_secs(1), Duration::from_secs(1), 10, 100);
    let odd = Settings { attributes: nanos.unwrap(), scope: Scope::Processes(vec![1]) };
    told(&run.start(&odd).unwrap_err(), &["5.0005ms", "microseconds"]);
    told(&run.start(&settings(Scope::Physical(vec![]))).unwrap_err(), &["no memory lies"]);
    told(&run.start(&processes(&[])).unwrap_err(), &["no target left"]);
    assert_eq!(made.read("0/state"), "off");
}

#[test]
fn features_are_found_without_a_kdamond() {
    let made = Made::new();
    fs::remove_dir_all(made.path("0")).unwrap();
    made.proc("kallsyms", "0 t damon_pa_apply_scheme\n0 t damon_sysfs_scheme_region_release\n0 t damon_va_update\n");
    let features = Features::find(&made.places);
    assert_eq!(features.to_string(), "operations: vaddr, fvaddr, paddr; tracepoint: no; tried_regions: yes");
    check(&made.places).unwrap();
    made.proc("kallsyms", "0 t damon_pa_apply_scheme\n");
    assert_eq!(Features::find(&made.places).operations, ["paddr"]);
    told(&check_operations(&made.places, "vaddr").unwrap_err(), &["it has: paddr"]);
    check_operations(&made.places, "paddr").unwrap();
    told(&check(&made.places).unwrap_err(), &["tracefs is not mounted"]);
}
