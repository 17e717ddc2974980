//! Debian's kernel has neither DAMON nor idle page tracking, so the tests on it prove that isotherm does not
//! need them. It can be suspended, too.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use isotherm_lab::{EMULATED, HOT_IN_COLD, Running, Workload, eventually, isotherm, result_file, run};
use isotherm_record::Recording;

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn there_is_neither_damon_nor_idle_page_tracking() {
    assert!(Path::new("/sys/kernel/mm").exists());
    for missing in ["/sys/kernel/mm/damon", "/sys/kernel/mm/page_idle"] {
        assert!(!Path::new(missing).exists(), "{missing} exists: this is not the kernel stock");
    }
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn call_stacks_slow_no_calls_but_those_that_map_memory() {
    let ran = run(&mut isotherm(&["doctor", "--format", "json"]));
    let found: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(found["stacks"]["slows_all_calls"], false, "{}", found["stacks"]);
}

/// Suspends the machine for about 5 s, as far as its clocks and programs see: the kernel's own test of suspending.
fn suspend() {
    write("/sys/power/pm_test", "core");
    write("/sys/power/state", "mem");
    write("/sys/power/pm_test", "none");
}

fn write(path: &str, text: &str) {
    fs::write(path, text).unwrap_or_else(|error| panic!("{path}: {error}"));
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn a_suspension_is_a_gap_that_no_age_includes_and_a_step_of_the_clock_is_nothing() {
    let recording = result_file("suspended.rec");
    let workload = Workload::start(HOT_IN_COLD);
    let pid = workload.process.pid().to_string();
    let options = ["record", "--duration", "9s", "--survey", "1s", "--intervals", "fixed", "--pid", &pid, "-o"];
    let arguments = [&options[..], &[recording.to_str().unwrap()], &EMULATED].concat();
    let mut recorder = Running::start(&mut isotherm(&arguments));
    let surveys = || {
        let file = Recording::open(&recording).ok()?;
        Some(file.surveys().filter_map(Result::ok).count())
    };
    eventually("there are surveys", || surveys().is_some_and(|surveys| surveys >= 2));
    succeed_in_shell("date -s @$(($(date +%s) + 3600))");
    suspend();
    succeed_in_shell("date -s @$(($(date +%s) - 3600))");
    assert_eq!(recorder.wait(), 0);

    let file = Recording::open(&recording).unwrap();
    let marks: Vec<_> = file.marks().map(Result::unwrap).collect();
    let [mark] = &marks[..] else { panic!("{marks:?}") };
    assert!(mark.text.starts_with("suspended for "), "{mark:?}");
    let times: Vec<_> = file.snapshots().map(|record| record.unwrap().snapshot.time).collect();
    let gap = times.windows(2).max_by_key(|pair| pair[1] - pair[0]).unwrap();
    let lasted = gap[1] - gap[0];
    assert!(lasted > Duration::from_secs(4) && gap[0] <= mark.time && mark.time < gap[1], "{mark:?} {gap:?}");
    assert!(times.last().unwrap() < &Duration::from_secs(1800), "the clock was set an hour forward: {times:?}");
    for survey in file.surveys().map(Result::unwrap) {
        assert!(survey.survey.interval < lasted, "no interval includes the gap: {:?}", survey.survey.interval);
    }
}

fn succeed_in_shell(script: &str) {
    let ran = run(Command::new("sh").args(["-c", script]));
    assert_eq!(ran.status, 0, "{ran:?}");
}
