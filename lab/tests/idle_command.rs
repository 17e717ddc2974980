//! `isotherm idle` on a kernel with idle page tracking: accuracy in cgroups of both versions, and processes,
//! cgroups and memory that go away during a run.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use isotherm_core::AddrRange;
use isotherm_lab::idle::{
    CgroupWorkload, MIB, V2, account_in_v2, assert_figures, bytes, idle, note, own, with_huge_pages,
};
use isotherm_lab::{EMULATED, Running, Workload, eventually, isotherm, result_file, run, succeed, ticks};
use serde_json::Value;

const V1: &str = "/tmp/cgroup-v1";

/// Both versions are one test, because the order matters: after the memory controller was in a hierarchy of
/// version 1, it takes minutes until it can go back.
#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn figures_of_cgroups_are_right_in_versions_1_and_2() {
    in_version_2();
    in_version_1_next_to_version_2();
}

fn in_version_2() {
    account_in_v2();
    // Shared pages, such as the program itself, are charged to the cgroup that touches them first. Touch them
    // outside.
    succeed(&["workload", "--list"]);
    let one = CgroupWorkload::new(&format!("{V2}/one"), 96, 32);
    let inner = CgroupWorkload::new(&format!("{V2}/outer/inner"), 64, 64);
    let huge = with_huge_pages(|| CgroupWorkload::new(&format!("{V2}/huge"), 128, 32));
    let reports = idle(&["--interval", "4s", "--count", "3", "--histogram"]);
    assert_eq!(reports.len(), 3);
    for report in &reports {
        assert_eq!((&report["way"], &report["cgroup_version"]), (&"idle_page_tracking".into(), &2.into()));
        assert_figures(own(report, "/one"), 96, 32);
        assert_figures(own(report, "/outer/inner"), 64, 64);
        assert_figures(own(report, "/huge"), 128, 32);
        let outer = report["cgroups"].as_array().unwrap().iter().find(|cgroup| cgroup["path"] == "/outer").unwrap();
        assert_figures(&outer["total"], 64, 64);
        assert_eq!(bytes(&outer["own"], "size_bytes"), 0);
    }
    // Cold memory has been idle for all three intervals, and so has what the workload has beside its two areas.
    let figures = own(&reports[2], "/one");
    let ages = figures["idle_by_intervals"].as_array().unwrap();
    let three = ages.iter().find(|age| age["intervals"] == 3).unwrap();
    let beside = bytes(figures, "size_bytes") - 128 * MIB;
    assert!((bytes(three, "bytes") - beside).abs_diff(96 * MIB) <= MIB, "{figures}");

    // The figures are also right for one cgroup, one process and its mappings.
    let report = &idle(&["--cgroup", "/one", "--by", "process", "--interval", "4s", "--count", "1"])[0];
    assert_figures(own(report, "/one"), 96, 32);
    assert!(
        report["cgroups"].as_array().unwrap().iter().all(|cgroup| cgroup["path"] == "/" || cgroup["path"] == "/one")
    );
    let [process] = &report["processes"].as_array().unwrap()[..] else { panic!("{report}") };
    assert_eq!(process["pid"].to_string(), one.pid());
    let report = &idle(&["--pid", &one.pid(), "--interval", "4s", "--count", "1"])[0];
    let areas = [one.workload.area("cold"), one.workload.area("hot")];
    let within = |mapping: &&Value| {
        let range = AddrRange::new(bytes(mapping, "start"), bytes(mapping, "end")).unwrap();
        areas.iter().any(|area| area.intersection(range).is_some())
    };
    let mappings = report["processes"][0]["mappings"].as_array().unwrap();
    let sum = |key| mappings.iter().filter(within).map(|mapping| bytes(mapping, key)).sum::<u64>();
    assert!(sum("idle_bytes").abs_diff(96 * MIB) <= MIB && sum("accessed_bytes").abs_diff(32 * MIB) <= MIB, "{report}");
    [one, inner, huge].into_iter().for_each(CgroupWorkload::end);
}

/// Moves the memory controller to a hierarchy of version 1, next to that of version 2.
fn account_in_v1() {
    for directory in [format!("{V2}/outer"), V2.into()] {
        let _ = fs::write(format!("{directory}/cgroup.subtree_control"), "-memory");
    }
    let _ = fs::remove_dir(format!("{V2}/outer"));
    fs::create_dir_all(V1).unwrap();
    // Removed cgroups keep the controller busy for a while.
    eventually("memory is accounted by version 1", || {
        fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
        run(Command::new("mount").args(["-t", "cgroup", "-o", "memory", "none", V1])).status == 0
    });
}

/// Returns the memory controller to version 2, so that the tests that follow find the machine as it was.
fn leave_v1() {
    // A hierarchy that is unmounted while the kernel still holds removed cgroups keeps its controllers.
    eventually("only the root cgroup is left", || {
        fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
        let controllers = fs::read_to_string("/proc/cgroups").unwrap();
        let memory = controllers.lines().find(|line| line.starts_with("memory\t")).unwrap();
        memory.split('\t').nth(2) == Some("1")
    });
    assert_eq!(run(Command::new("umount").arg(V1)).status, 0);
    eventually("version 1 releases the memory controller", || {
        !fs::read_to_string("/proc/self/cgroup").unwrap().contains(":memory:")
    });
}

fn in_version_1_next_to_version_2() {
    account_in_v1();
    succeed(&["workload", "--list"]);
    let one = CgroupWorkload::new(&format!("{V1}/one"), 80, 48);
    let below = CgroupWorkload::new(&format!("{V1}/one/below"), 64, 64);
    // The process is in another cgroup in the other hierarchy.
    fs::create_dir_all(format!("{V2}/other")).unwrap();
    fs::write(format!("{V2}/other/cgroup.procs"), one.pid()).unwrap();
    for report in &idle(&["--interval", "4s", "--count", "2"]) {
        assert_eq!(report["cgroup_version"], 1);
        assert_figures(own(report, "/one"), 80, 48);
        assert_figures(own(report, "/one/below"), 64, 64);
    }
    let report = &idle(&["--cgroup", "/one/below", "--by", "process", "--interval", "3s", "--count", "1"])[0];
    assert_eq!(report["processes"][0]["cgroup"], "/one/below");

    // The scan by page tables uses the same hierarchy.
    let report = &idle(&["--probe", "bpf", "--cgroup", "/one/below", "--interval", "3s", "--count", "1"])[0];
    assert_eq!((&report["way"], &report["cgroup_version"]), (&"page_tables".into(), &1.into()));
    let figures = own(report, "/one/below");
    // The cgroup also has the memory of the program itself: a few MiB that are mostly idle.
    let idle_bytes = bytes(figures, "idle_bytes");
    assert!((63 * MIB..80 * MIB).contains(&idle_bytes), "{figures}");
    assert!(bytes(figures, "accessed_bytes").abs_diff(64 * MIB) <= 4 * MIB, "{figures}");

    // So do recordings: a cgroup has all that is below it, a pattern may name each.
    let [of_one, of_below] = [(one.pid(), "/one"), (below.pid(), "/one/below")];
    for (cgroup, workloads) in [("/one", vec![of_one, of_below.clone()]), ("/*/below", vec![of_below])] {
        let recording = result_file("cgroup-v1.rec");
        let path = recording.to_str().unwrap();
        succeed(&["record", "--quiet", "--cgroup", cgroup, "--duration", "3s", "--output", path]);
        let summary = succeed(&["report", "summary", "--by", "cgroup", "--format", "json", path]);
        let summary: Value = serde_json::from_str(&summary).unwrap();
        let each = |list: &str, key: &str| {
            let of = |entry: &Value| entry[key].to_string().trim_matches('"').to_owned();
            summary[list].as_array().unwrap().iter().map(of).collect::<BTreeSet<_>>()
        };
        assert_eq!(each("targets", "pid"), workloads.iter().map(|(pid, _)| pid.clone()).collect(), "{summary}");
        assert_eq!(each("groups", "name"), workloads.iter().map(|(_, path)| path.to_string()).collect(), "{summary}");
    }

    below.end();
    one.end();
    fs::remove_dir(format!("{V2}/other")).unwrap();
    leave_v1();
}

/// Starts `isotherm idle` and waits until it has marked all pages: it uses no CPU time any more.
fn started(arguments: &[&str]) -> Running {
    let running = Running::start(isotherm(&["idle", "--format", "json"]).args(EMULATED).args(arguments));
    eventually("all pages are marked", || {
        let before = ticks(running.pid());
        thread::sleep(Duration::from_millis(500));
        before > 0 && ticks(running.pid()) == before
    });
    running
}

fn last(mut running: Running) -> Value {
    let report = serde_json::from_str(&running.wait_for_line("{")).unwrap();
    assert_eq!(running.wait(), 0);
    report
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn processes_and_memory_that_go_away_are_noted() {
    let workload = Workload::start("stairs");
    let pid = workload.process.pid().to_string();
    let other = Running::start(Command::new("sleep").arg("1000"));
    let running = started(&["--pid", &pid, "--pid", &other.pid().to_string(), "--interval", "8s", "--count", "1"]);
    drop(workload);
    let report = last(running);
    assert!(note(&report, &format!("process {pid} has ended")), "{report}");
    assert_eq!(report["processes"][0]["pid"], other.pid());

    let running = started(&["--interval", "8s", "--count", "1"]);
    let script = r#"
        for block in /sys/devices/system/node/node1/memory*; do
          if echo offline > "$block/state"; then echo "$block"; exit 0; fi
        done
        exit 1"#;
    let offline = run(Command::new("sh").args(["-c", script]));
    assert_eq!(offline.status, 0, "{offline:?}");
    let report = last(running);
    fs::write(format!("{}/state", offline.out.trim()), "online").unwrap();
    assert!(note(&report, "went offline"), "{report}");
    assert!(bytes(&report["total"], "size_bytes") > MIB);
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn a_signal_ends_the_run_with_a_report_so_far() {
    let mut running = started(&["--interval", "1h"]);
    running.interrupt();
    let report: Value = serde_json::from_str(&running.wait_for_line("{")).unwrap();
    assert_eq!((running.wait(), &report["cut_short"]), (0, &true.into()));
    assert!(bytes(&report, "interval_ns") < 60_000_000_000 && bytes(&report["total"], "size_bytes") > MIB, "{report}");
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn the_rate_is_kept() {
    let report = &idle(&["--interval", "1s", "--count", "1", "--rate", "256MiB"])[0];
    // The machine has 2 GiB.
    assert!(bytes(&report["cost"], "wall_ns") > 5_000_000_000, "{report}");
    let report = &idle(&["--interval", "1s", "--count", "1", "--rate", "10%"])[0];
    let (cpu, wall) = (bytes(&report["cost"], "cpu_ns"), bytes(&report["cost"], "wall_ns"));
    assert!(cpu * 5 < wall, "{cpu} of {wall}");
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn without_a_mounted_cgroup_file_system_cgroups_have_inode_numbers() {
    // A test before may have left version 1 mounted.
    let script = "umount -a -t cgroup2,cgroup 2>/dev/null; umount /sys/fs/cgroup; \
                  exec isotherm idle --format json -i 1s -n 1 \"$@\"";
    let ran = run(Command::new("unshare").args(["-m", "sh", "-c", script, "sh"]).args(EMULATED));
    assert_eq!(ran.status, 0, "{ran:?}");
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    assert!(note(&report, "not mounted"), "{report}");
    assert!(bytes(&report["total"], "size_bytes") > MIB, "{report}");
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn an_ordinary_user_gets_an_error_that_asks_for_root() {
    let ran = run(isotherm(&["idle", "-n", "1"]).uid(65534).gid(65534));
    assert_eq!(ran.status, 1);
    assert!(ran.err.contains("as root") && ran.err.lines().count() == 1, "{ran:?}");
    assert!(Path::new("/sys/kernel/mm/page_idle/bitmap").exists());
}
