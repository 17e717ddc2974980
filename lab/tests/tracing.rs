//! perf hears the probes of the program.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::process::Command;

use isotherm_lab::{EMULATED, HOT_IN_COLD, Running, Workload, eventually, isotherm, result_file, run, shell};

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn perf_gets_regions_with_their_arguments() {
    let workload = Workload::start(HOT_IN_COLD);
    let pid = workload.process.pid().to_string();
    let recording = result_file("traced.rec");
    let recorder =
        Running::start(isotherm(&["record", "-o", recording.to_str().unwrap(), "--pid", &pid]).args(EMULATED));
    // As docs/tracing.md says.
    shell("perf buildid-cache --add /bin/isotherm; perf probe --quiet sdt_isotherm:aggregated");
    let tracee = recorder.pid().to_string();
    let mut said = String::new();
    eventually("perf hears of a region", || {
        let events = ["record", "--quiet", "-o", "/tmp/perf.data", "-e", "sdt_isotherm:aggregated", "-p", &tracee];
        let recorded = run(Command::new("perf").args(events).args(["--", "sleep", "2"]));
        assert_eq!(recorded.status, 0, "{recorded:?}");
        said = run(Command::new("perf").args(["script", "-i", "/tmp/perf.data"])).out;
        said.contains("sdt_isotherm:aggregated")
    });
    // The first argument is the process.
    let hears = |line: &str| line.contains(&format!(" arg1={pid} ")) || line.ends_with(&format!(" arg1={pid}"));
    assert!(said.lines().any(hears), "arg1={pid}: {said}");
}
