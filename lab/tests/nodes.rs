//! `isotherm idle --node` and `isotherm record --physical --node` on a machine with four memory nodes.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::fs;
use std::path::Path;

use isotherm_core::{NodeId, PAGE_SIZE};
use isotherm_kernel::pages::{FrameNodes, SystemRam};
use isotherm_lab::idle::{CgroupWorkload, MIB, V2, assert_temperature, bytes, idle, own};
use isotherm_lab::migration::share_on;
use isotherm_lab::{EMULATED, Running, eventually, isotherm, report, result_file, run, succeed};
use serde_json::Value;

/// A workload whose memory lies on `node`, in the cgroup of this name.
fn on_node(node: u32, name: &str, cold: u64, hot: u64) -> CgroupWorkload {
    eventually("the controllers are available", || {
        fs::write(format!("{V2}/cgroup.subtree_control"), "+memory +cpuset").is_ok()
    });
    let directory = format!("{V2}/{name}");
    fs::create_dir_all(&directory).unwrap();
    fs::write(format!("{directory}/cpuset.mems"), node.to_string()).unwrap();
    let begun = CgroupWorkload::new(&directory, cold, hot);
    for area in ["cold", "hot"] {
        let pid = begun.pid().parse().unwrap();
        assert!(share_on(pid, begun.workload.area(area), NodeId(node)) > 0.99, "{area} on node {node}");
    }
    begun
}

/// The bytes of the processes of a report, by process ID.
fn of_process<'a>(report: &'a Value, pid: &str) -> Option<&'a Value> {
    report["processes"].as_array().unwrap().iter().find(|process| process["pid"].as_u64() == pid.parse().ok())
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn idle_reports_the_memory_of_the_named_nodes_only() {
    // Shared pages, such as the program itself, lie where they were touched first.
    succeed(&["workload", "--list"]);
    let near = on_node(1, "near", 48, 16);
    let far = on_node(3, "far", 32, 32);
    let pids = ["--pid", &near.pid(), "--pid", &far.pid()];
    for probe in ["idle", "bpf"] {
        let of = |arguments: &[&str]| {
            let reports = idle(&[&["--probe", probe, "--interval", "4s", "--count", "2"], arguments].concat());
            assert_eq!(reports.len(), 2);
            reports.into_iter().next_back().unwrap()
        };
        let nodes = |report: &Value| {
            report["nodes"].as_array().unwrap().iter().map(|node| node["node"].as_u64().unwrap()).collect::<Vec<_>>()
        };
        let report = of(&["--node", "3", "--cgroup", "/near", "--cgroup", "/far"]);
        assert_eq!(nodes(&report), [3], "{probe}: {report}");
        assert_temperature(own(&report, "/far"), 32, 32);
        let elsewhere = report["cgroups"].as_array().unwrap().iter().find(|cgroup| cgroup["path"] == "/near");
        assert!(elsewhere.is_none_or(|near| bytes(&near["own"], "size_bytes") < 2 * MIB), "{probe}: {report}");

        let report = of(&[&["--node", "1", "--by", "process"], &pids[..]].concat());
        assert_eq!(nodes(&report), [1], "{probe}: {report}");
        assert_temperature(of_process(&report, &near.pid()).unwrap(), 48, 16);
        assert!(of_process(&report, &far.pid()).is_none_or(|far| bytes(far, "size_bytes") < 2 * MIB), "{report}");

        let report = of(&[&["--node", "1", "--node", "3", "--by", "process"], &pids[..]].concat());
        assert_eq!(nodes(&report), [1, 3], "{probe}: {report}");
        assert_temperature(of_process(&report, &near.pid()).unwrap(), 48, 16);
        assert_temperature(of_process(&report, &far.pid()).unwrap(), 32, 32);

        let refused = run(&mut isotherm(&["idle", "--probe", probe, "--node", "7", "-n", "1"]));
        assert_eq!(refused.status, 1, "{refused:?}");
        assert!(refused.err.contains("node 7 has none of the memory") && refused.err.contains("nodes: 0, 1, 2, 3"));
    }
    // All memory of a node: the two workloads are most of what is there.
    let report = &idle(&["--probe", "idle", "--node", "3", "--interval", "4s", "--count", "1"])[0];
    let size = bytes(&report["total"], "size_bytes");
    assert!((64 * MIB..80 * MIB).contains(&size), "{report}");
    [near, far].into_iter().for_each(CgroupWorkload::end);
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn a_recording_of_physical_memory_has_the_named_node_only() {
    let far = on_node(3, "far", 32, 32);
    let recording = result_file("node.rec");
    let file = recording.to_str().unwrap();
    let wanted = ["--physical", "--node", "3", "--survey", "2s", "--duration", "12s"];
    succeed(&[&["record", "--quiet", "-o", file], &wanted[..], &EMULATED].concat());
    let nodes = FrameNodes::new(&SystemRam::new(Path::new("/")).read().unwrap());
    let snapshots = report("regions", &recording);
    let regions = || snapshots.iter().flat_map(|snapshot| snapshot["regions"].as_array().unwrap());
    assert!(regions().count() > 0, "{snapshots:?}");
    for region in regions() {
        for address in [bytes(region, "start"), bytes(region, "end") - PAGE_SIZE] {
            assert_eq!(nodes.node(address / PAGE_SIZE), Some(NodeId(3)), "{region}");
        }
    }
    // Nothing else uses that node.
    let wss = &report("wss", &recording)[0];
    let median = bytes(&wss["percentiles"], "50");
    assert!((24 * MIB..48 * MIB).contains(&median), "{wss}");
    far.end();
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn the_daemon_tells_what_is_on_each_node() {
    let (near, far) = (on_node(1, "near", 48, 16), on_node(3, "far", 32, 32));
    let config = result_file("nodes.yaml");
    let socket = "/tmp/nodes.sock";
    let text = format!(
        "cpu_budget: 100%\nsocket: {socket}\nhistory: {{directory: null}}\n\
         groups: [{{name: both, select: {{pid: [{}, {}]}}, survey: 1s}}]\n",
        near.pid(),
        far.pid()
    );
    fs::write(&config, text).unwrap();
    let _daemon = Running::start(&mut isotherm(&["daemon", "--config", config.to_str().unwrap()]));
    let ctl = |arguments: &[&str]| run(&mut isotherm(&[&["ctl", "--socket", socket], arguments].concat())).out;
    // The bytes of a state on a node, of metrics that are 5 s old at most.
    let on = |node: u32, state: &str| {
        let labels = format!("isotherm_node_memory_bytes{{group=\"both\",node=\"{node}\",state=\"{state}\"}} ");
        let text = ctl(&["metrics"]);
        let value = text.lines().find_map(|line| line.strip_prefix(&labels)?.trim().parse::<f64>().ok());
        value.map_or(0, |bytes| bytes as u64)
    };
    let about = |bytes: u64, mib: u64| (mib * MIB..(mib + 6) * MIB).contains(&bytes);
    eventually("cold memory is idle on both nodes", || {
        about(on(1, "resident"), 64)
            && about(on(3, "resident"), 64)
            && on(1, "idle") >= 48 * MIB
            && on(3, "idle") >= 32 * MIB
    });
    [near, far].into_iter().for_each(CgroupWorkload::end);
}
