//! perf hears the probes and the user_events of the program.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::path::Path;
use std::process::Command;

use isotherm_lab::{EMULATED, HOT_IN_COLD, Running, Workload, eventually, isotherm, result_file, run, shell};
use isotherm_testing::or_skip;

/// A recording of a workload, and what perf says of the events with this name in it.
fn heard(event: &str) -> (String, String) {
    let workload = Workload::start(HOT_IN_COLD);
    let pid = workload.process.pid().to_string();
    let recording = result_file("traced.rec");
    let recorder =
        Running::start(isotherm(&["record", "-o", recording.to_str().unwrap(), "--pid", &pid]).args(EMULATED));
    let tracee = recorder.pid().to_string();
    let mut said = String::new();
    eventually("perf hears of a region", || {
        let events = ["record", "--quiet", "-o", "/tmp/perf.data", "-e", event, "-p", &tracee];
        let recorded = run(Command::new("perf").args(events).args(["--", "sleep", "2"]));
        // An event of the kernel is there once the program has told of it.
        if recorded.status == 0 {
            said = run(Command::new("perf").args(["script", "-i", "/tmp/perf.data"])).out;
        }
        said.contains(event)
    });
    (pid, said)
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn perf_gets_regions_with_their_arguments() {
    // As docs/tracing.md says.
    shell("perf buildid-cache --add /bin/isotherm; perf probe --quiet sdt_isotherm:aggregated");
    let (pid, said) = heard("sdt_isotherm:aggregated");
    // The first argument is the process.
    let hears = |line: &str| line.contains(&format!(" arg1={pid} ")) || line.ends_with(&format!(" arg1={pid}"));
    assert!(said.lines().any(hears), "arg1={pid}: {said}");
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn the_kernel_knows_the_events_by_name() {
    or_skip!(has_user_events());
    let (pid, said) = heard("user_events:isotherm_aggregated");
    assert!(said.lines().any(|line| line.contains(&format!(" pid={pid} ")) && line.contains(" age_ms=")), "{said}");
}

fn has_user_events() -> Result<(), &'static str> {
    let file = Path::new("/sys/kernel/tracing/user_events_data");
    file.exists().then_some(()).ok_or("this kernel has no user_events")
}
