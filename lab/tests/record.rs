//! `isotherm record` and `isotherm report summary` on the laboratory's kernels.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use isotherm_lab::{
    EMULATED, HOT_IN_COLD, Workload, isotherm, pattern_file, precision_and_recall, report, result_file, run, succeed,
};

/// Intervals that are long enough for an emulated, busy machine to touch the hot area in each of them.
const LONG_INTERVALS: [&str; 4] = ["--sample", "30ms", "--aggr", "300ms"];

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn the_hot_part_of_a_command_is_found_and_summarised() {
    let recording = result_file("command.rec");
    let file = recording.to_str().unwrap();
    let pattern = pattern_file(HOT_IN_COLD);
    let mut command = isotherm(&["record", "--probe", "bpf", "-o", file, "--seed", "1"]);
    command.args(LONG_INTERVALS).args(EMULATED);
    // On a machine beside a busy one, a snapshot takes longer than a second.
    command.args(["--", "isotherm", "workload", &pattern, "--announce", "--time", "40s"]);
    let mut workload = Workload::announced(&mut command);
    assert_eq!(workload.process.wait(), 0);

    let hot = workload.area("hot");
    let snapshots = report("regions", &recording);
    let late = &snapshots[snapshots.len() / 4 * 3..];
    let (precision, recall) = precision_and_recall(late, hot);
    assert!(precision >= 0.7 && recall >= 0.7, "precision {precision:.2}, recall {recall:.2}, see {file}");

    let summary = &report("summary", &recording)[0];
    assert_eq!(summary["recording"]["probe"], "bpf");
    assert!(summary["cut_short"].is_null(), "{summary}");
    let anonymous = summary["mappings"].as_array().unwrap().iter().find(|m| m["name"] == "anonymous").unwrap();
    let bytes = |key: &str| anonymous[key].as_u64().unwrap();
    // The mean includes the time before the hot area was found.
    assert!(bytes("hot_bytes") >= hot.size() / 3 && bytes("hot_bytes") <= hot.size() * 2, "{anonymous}");
    assert!(bytes("cold_bytes") >= 48 << 20, "{anonymous}");
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn a_running_process_is_watched_and_keeps_running() {
    let recording = result_file("process.rec");
    let workload = Workload::start(HOT_IN_COLD);
    let pid = workload.process.pid().to_string();
    succeed(&["record", "-o", recording.to_str().unwrap(), "--pid", &pid, "--duration", "3s"]);
    let process = std::path::Path::new("/proc").join(&pid).join("stat");
    let stat = std::fs::read_to_string(process).unwrap();
    assert!(!stat.contains(") Z "), "the workload has ended: {stat}");
    drop(workload);
    let snapshots = report("regions", &recording);
    assert!(snapshots.len() >= 3, "{} snapshots in 3 s", snapshots.len());
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn the_probe_refs_records() {
    let recording = result_file("refs.rec");
    let file = recording.to_str().unwrap();
    let pattern = pattern_file(HOT_IN_COLD);
    let mut command = isotherm(&["record", "--probe", "refs", "-o", file]);
    command.args(EMULATED).args(["--", "isotherm", "workload", &pattern, "--announce", "--time", "8s"]);
    // The kernel clears referenced marks without a TLB flush. The workload comes with switches of the address space, so
    // that an emulated processor sets them again.
    let mut workload = Workload::announced(&mut command);
    assert_eq!(workload.process.wait(), 0);
    let summary = &report("summary", &recording)[0];
    assert_eq!(summary["recording"]["granularity"], "mapping");
    let wss = &report("wss", &recording)[0];
    // A slow machine takes some surveys to write the areas, of 128 MiB, once.
    let surveys = wss["over_time"].as_array().unwrap().iter();
    let written = surveys.filter(|survey| survey["present_bytes"].as_u64().unwrap() > 130 << 20);
    let mut accessed: Vec<u64> = written.map(|survey| survey["bytes"].as_u64().unwrap()).collect();
    accessed.sort_unstable();
    // Beside the hot area, the workload accesses its code, stack and libraries.
    assert!((15 << 20..32 << 20).contains(accessed.get(accessed.len() / 2).unwrap()), "{wss}");
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn the_doctor_finds_that_the_probes_work() {
    let ran = run(&mut isotherm(&["doctor", "--format", "json"]));
    assert_eq!(ran.status, 0, "{ran:?}");
    let found: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(found["kernel"], std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap().trim(), "{found}");
    for name in ["bpf", "refs"] {
        let probe = found["probes"].as_array().unwrap().iter().find(|probe| probe["probe"] == name).unwrap();
        assert_eq!(probe["works"], true, "{found}");
    }
}
