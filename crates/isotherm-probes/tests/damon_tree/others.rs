//! If another program uses DAMON, a run is refused, the error describes the use, and nothing is changed.

use isotherm_probes::damon::{DamonError, Others, Run, check};

use crate::made::Made;

/// Checks that a run is refused as busy and writes nothing. Returns the text of the error.
fn refused(made: &Made) -> String {
    let before = made.all();
    let error = Run::prepare(made.places.clone()).unwrap_err();
    assert!(matches!(error, DamonError::Busy(_)), "{error}");
    assert_eq!(made.all(), before, "nothing may be written");
    assert!(!made.places.run.exists());
    assert!(matches!(check(&made.places), Err(DamonError::Busy(_))), "`isotherm doctor` reports the same");
    error.to_string()
}

#[test]
fn a_running_kdamond_is_left_alone_and_described() {
    let error = refused(&Made::busy());
    for part in ["kdamond 0 is on (process 77)", "(vaddr): 4321, 4322", "end the program that uses it"] {
        assert!(error.contains(part), "{part} in {error}");
    }
}

#[test]
fn a_kdamond_that_is_off_is_left_alone_and_described() {
    let made = Made::busy();
    made.file("0/state", "off\n");
    made.file("0/pid", "-1\n");
    made.context("operations", "paddr\n");
    made.end_thread();
    let error = refused(&made);
    assert!(error.contains("is off and watches physical memory") && error.contains("echo 0 > "), "{error}");
}

#[test]
fn a_kdamond_that_is_on_disturbs_the_other_probes() {
    let disturbance = |made: &Made| Others::look(&made.places).unwrap().disturbance();
    let made = Made::busy();
    let told = disturbance(&made).unwrap();
    assert!(told.contains("kdamond 0 (process 77) looks at memory too"), "{told}");
    made.file("0/state", "off\n");
    made.end_thread();
    assert_eq!(disturbance(&made), None);
    made.thread(88, "kdamond.3", 1);
    assert!(disturbance(&made).unwrap().contains("kdamond.3 (process 88)"));
}

#[test]
fn a_kernel_module_that_uses_damon_is_named() {
    let made = Made::new();
    let parameter = made.places.modules.join("damon_reclaim/parameters/enabled");
    std::fs::create_dir_all(parameter.parent().unwrap()).unwrap();
    std::fs::write(parameter, "Y\n").unwrap();
    let error = refused(&made);
    assert!(error.contains("damon_reclaim is enabled") && error.contains("echo N > "), "{error}");
}

#[test]
fn a_kdamond_that_sysfs_does_not_list_is_found() {
    let made = Made::new();
    made.thread(88, "kdamond.3", 1);
    let error = refused(&made);
    assert!(error.contains("kdamond.3 (process 88)"), "{error}");
}

#[test]
fn a_running_damo_is_reported_as_the_probable_user() {
    let made = Made::busy();
    made.proc("99/comm", "python3\n");
    made.proc("99/cmdline", "python3\0/usr/bin/damo\0record\0");
    let error = refused(&made);
    assert!(error.contains("damo is running (process 99)"), "{error}");
}

#[test]
fn a_second_run_of_isotherm_is_refused_with_the_process_id_of_the_first() {
    let made = Made::new();
    let first = Run::prepare(made.places.clone()).unwrap();
    let error = Run::prepare(made.places.clone()).unwrap_err().to_string();
    assert!(error.contains(&format!("another isotherm (process {})", std::process::id())), "{error}");
    assert_eq!(made.read("nr_kdamonds"), "1", "the first run is unchanged");
    drop(first);
    Run::prepare(made.places.clone()).unwrap();
}
