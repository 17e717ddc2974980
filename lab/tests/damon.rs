//! The probe `damon` on a kernel with DAMON: its results, its clean-up, and that it leaves other users'
//! kdamonds alone.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use isotherm_core::AddrRange;
use isotherm_lab::{
    HOT_IN_COLD, Ran, Running, Workload, eventually, isotherm, pattern_file, report, result_file, run, succeed,
};
use serde_json::Value;

const KDAMONDS: &str = "/sys/kernel/mm/damon/admin/kdamonds";

/// Intervals that the kernel does not tune.
const FIXED: [&str; 4] = ["--sample", "5ms", "--aggr", "100ms"];

fn read(name: &str) -> String {
    fs::read_to_string(Path::new(KDAMONDS).join(name)).unwrap_or_default().trim().to_owned()
}

fn write(name: &str, value: &str) {
    let path = Path::new(KDAMONDS).join(name);
    fs::write(&path, value).unwrap_or_else(|e| panic!("{value} to {}: {e}", path.display()));
}

/// Asserts that no kdamond and no claim is left.
fn no_kdamond_is_left() {
    assert_eq!(read("nr_kdamonds"), "0");
    assert!(!Path::new("/run/isotherm").exists(), "a claim is left");
    eventually("no kdamond runs", || kdamonds().is_empty());
}

/// Names of the kernel threads that are kdamonds.
fn kdamonds() -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let names = processes.filter_map(|process| fs::read_to_string(process.path().join("comm")).ok());
    names.filter(|name| name.starts_with("kdamond")).collect()
}

fn ranges(snapshot: &Value) -> impl Iterator<Item = (AddrRange, f64)> {
    snapshot["regions"].as_array().unwrap().iter().map(|region| {
        let range = AddrRange::new(region["start"].as_u64().unwrap(), region["end"].as_u64().unwrap()).unwrap();
        (range, region["access_rate"].as_f64().unwrap())
    })
}

/// The mean access rate of a range, by bytes, in these snapshots.
///
/// Compare such rates with each other, not with the truth: DAMON does not flush the TLB when it clears
/// accessed bits, and QEMU's emulated TLB evicts nothing, so hot memory looks much colder than it is.
fn rate(snapshots: &[Value], of: AddrRange) -> f64 {
    let (mut weighted, mut bytes) = (0.0, 0.0);
    for (range, rate) in snapshots.iter().flat_map(ranges) {
        if let Some(part) = range.intersection(of) {
            weighted += rate * part.size() as f64;
            bytes += part.size() as f64;
        }
    }
    weighted / f64::max(bytes, 1.0)
}

fn recorded(name: &str, arguments: &[&str]) -> Vec<Value> {
    let recording = result_file(name);
    let call = ["record", "--probe", "damon", "-o", recording.to_str().unwrap()];
    succeed(&[&call[..], arguments].concat());
    report("regions", &recording)
}

/// Starts `isotherm record` of a process and waits until the kernel's DAMON is on.
fn recording(name: &str, pid: u32, more: &[&str]) -> Running {
    let recording = result_file(name);
    let pid = pid.to_string();
    let mut command = isotherm(&["record", "--probe", "damon", "--pid", &pid, "-o", recording.to_str().unwrap()]);
    let running = Running::start(command.args(more));
    eventually("the kernel's DAMON is on", || read("0/state") == "on");
    running
}

/// Waits until a recording has snapshots.
fn has_recorded(name: &str) {
    let length = || fs::metadata(result_file(name)).map_or(0, |metadata| metadata.len());
    let begun = length();
    eventually("snapshots are recorded", || length() > begun);
}

fn signal(pid: u32, signal: &str) {
    assert_eq!(run(Command::new("kill").args([signal, &pid.to_string()])).status, 0);
}

fn refused(arguments: &[&str], says: &[&str]) -> Ran {
    let ran = run(&mut isotherm(arguments));
    assert_eq!(ran.status, 1, "{ran:?}");
    for part in says {
        assert!(ran.err.contains(part), "{part:?} is not in: {}", ran.err);
    }
    ran
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn the_hot_part_of_a_process_is_found_by_vaddr() {
    let workload = Workload::start(HOT_IN_COLD);
    let pid = workload.process.pid().to_string();
    let snapshots = recorded("damon-vaddr.rec", &[&FIXED[..], &["--pid", &pid, "--duration", "6s"]].concat());
    // On an emulated machine the kernel's rounds take longer than the sampling interval.
    assert!(snapshots.len() >= 30, "{} snapshots in 6 s", snapshots.len());
    let late = &snapshots[snapshots.len() / 2..];
    let (hot, cold) = (rate(late, workload.area("hot")), rate(late, workload.area("cold above")));
    assert!(hot > 0.01 && hot > cold * 3.0, "hot {hot:.3}, cold {cold:.3}");

    let summary = &report("summary", &result_file("damon-vaddr.rec"))[0];
    assert_eq!(summary["recording"]["probe"], "damon");
    assert!(summary["mappings"].as_array().unwrap().iter().any(|m| m["name"] == "[stack]"), "{summary}");
    let overhead = &report("overhead", &result_file("damon-vaddr.rec"))[0];
    assert!(overhead["cpu_ns"].as_u64().unwrap() > 0 && overhead["reads"].as_u64().unwrap() > 0, "{overhead}");
    assert!(snapshots.iter().all(|s| s["regions"].as_array().unwrap().len() <= 1000));
    no_kdamond_is_left();
}

/// The laboratory's Linux 7.2 tunes intervals, its 6.1 does not.
#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn the_kernel_tunes_the_intervals_if_it_can() {
    let workload = Workload::start(HOT_IN_COLD);
    let pid = workload.process.pid().to_string();
    let snapshots = recorded("damon-tuned.rec", &["--pid", &pid, "--duration", "6s"]);
    let summary = &report("summary", &result_file("damon-tuned.rec"))[0];
    let kernel = fs::read_to_string("/proc/kallsyms").unwrap();
    let tunes = kernel.contains(" damon_sysfs_intervals_goal");
    assert_eq!(summary["recording"]["intervals"] == "auto", tunes, "{summary}");
    let late = &snapshots[snapshots.len() / 2..];
    let (hot, cold) = (rate(late, workload.area("hot")), rate(late, workload.area("cold above")));
    assert!(hot > cold, "hot {hot:.3}, cold {cold:.3}");
    no_kdamond_is_left();
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn a_range_of_a_process_is_watched_by_fvaddr() {
    let workload = Workload::start(HOT_IN_COLD);
    let pid = workload.process.pid().to_string();
    let range = AddrRange::new(workload.area("cold below").end() - (8 << 20), workload.area("hot").end()).unwrap();
    let asked = format!("{:#x}:{:#x}", range.start(), range.end());
    let snapshots = recorded("damon-fvaddr.rec", &["--pid", &pid, "--range", &asked, "--duration", "4s"]);
    assert!(snapshots.iter().flat_map(ranges).all(|(found, _)| range.intersection(found) == Some(found)));
    let late = &snapshots[snapshots.len() / 2..];
    let below = AddrRange::new(range.start(), range.start() + (8 << 20)).unwrap();
    let (hot, cold) = (rate(late, workload.area("hot")), rate(late, below));
    assert!(hot > cold, "hot {hot:.3}, cold {cold:.3}");
    no_kdamond_is_left();
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn mappings_with_a_name_are_watched_by_fvaddr() {
    let workload = Workload::start(HOT_IN_COLD);
    let pid = workload.process.pid().to_string();
    let snapshots = recorded("damon-mapping.rec", &["--pid", &pid, "--mapping", "^anonymous$", "--duration", "4s"]);
    let (hot, last) = (workload.area("hot"), snapshots.last().unwrap());
    let covered = ranges(last).filter_map(|(range, _)| range.intersection(hot)).map(AddrRange::size).sum::<u64>();
    assert_eq!(covered, hot.size());
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let named = maps.lines().filter(|line| line.contains("/isotherm") || line.contains("[stack]"));
    for line in named {
        let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let number = |digits| u64::from_str_radix(digits, 16).unwrap();
        let named = AddrRange::new(number(start), number(end)).unwrap();
        assert!(snapshots.iter().flat_map(ranges).all(|(range, _)| range.intersection(named).is_none()), "{line}");
    }
    no_kdamond_is_left();
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn physical_memory_is_watched_by_paddr() {
    let _workload = Workload::start(HOT_IN_COLD);
    let iomem = fs::read_to_string("/proc/iomem").unwrap();
    let ram: Vec<AddrRange> = iomem.lines().filter_map(system_ram).collect();
    let snapshots = recorded("damon-paddr.rec", &[&FIXED[..], &["--physical", "--duration", "4s"]].concat());
    assert!(snapshots.len() >= 15, "{} snapshots in 4 s", snapshots.len());
    assert!(snapshots.iter().all(|s| s["pid"] == 0));
    let inside = |(found, _): (AddrRange, f64)| ram.iter().any(|ram| ram.intersection(found) == Some(found));
    assert!(snapshots.iter().flat_map(ranges).all(inside));
    assert!(snapshots.iter().flat_map(ranges).any(|(_, rate)| rate > 0.0), "nothing of a busy machine was accessed");
    no_kdamond_is_left();

    let largest = ram.iter().max_by_key(|ram| ram.size()).unwrap();
    let part = AddrRange::new(largest.start(), largest.start() + (64 << 20)).unwrap();
    let asked = format!("{:#x}:{:#x}", part.start(), part.end());
    let snapshots = recorded("damon-paddr.rec", &["--physical", "--range", &asked, "--", "sleep", "2"]);
    for snapshot in &snapshots {
        assert_eq!(ranges(snapshot).map(|(range, _)| range.size()).sum::<u64>(), part.size());
        assert!(ranges(snapshot).all(|(range, _)| part.intersection(range) == Some(range)));
    }
    no_kdamond_is_left();
}

/// A line of /proc/iomem such as `100000000-13fffffff : System RAM`.
fn system_ram(line: &str) -> Option<AddrRange> {
    let (start, end) = line.strip_suffix(" : System RAM")?.split_once('-')?;
    let address = |text| u64::from_str_radix(text, 16).unwrap();
    // Whole pages only.
    AddrRange::new(address(start).next_multiple_of(4096), (address(end) + 1) / 4096 * 4096)
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn several_processes_are_distinguished_and_the_run_ends_with_the_last() {
    let (first, second) = (Workload::start(HOT_IN_COLD), Workload::start(HOT_IN_COLD));
    let pids = [first.process.pid(), second.process.pid()].map(|pid| pid.to_string());
    let file = result_file("damon-two.rec");
    let call = ["record", "--probe", "damon", "--pid", &pids[0], "--pid", &pids[1], "-o", file.to_str().unwrap()];
    let mut isotherm = Running::start(&mut isotherm(&call));
    eventually("the kernel's DAMON is on", || read("0/state") == "on");
    has_recorded("damon-two.rec");
    let areas = [first.area("cold above"), second.area("cold above")];
    drop(first);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(read("0/state"), "on", "one target is left");
    drop(second);
    assert_eq!(isotherm.wait(), 0);
    no_kdamond_is_left();

    let snapshots = report("regions", &file);
    let of = |pid: &str| snapshots.iter().filter(|s| s["pid"].as_u64().unwrap().to_string() == pid).collect::<Vec<_>>();
    let (one, two) = (of(&pids[0]), of(&pids[1]));
    assert!(!one.is_empty() && two.len() >= one.len() + 5, "{} and {} snapshots", one.len(), two.len());
    for (snapshots, area) in [(one, areas[0]), (two, areas[1])] {
        let covers =
            |s: &&Value| ranges(s).filter_map(|(range, _)| range.intersection(area)).map(AddrRange::size).sum::<u64>();
        assert!(snapshots.iter().all(|s| covers(s) == area.size()), "each target has the memory of its process");
    }
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn a_command_is_watched_to_its_end_and_its_exit_status_is_returned() {
    let file = result_file("damon-command.rec");
    let pattern = pattern_file(HOT_IN_COLD);
    let script = format!("isotherm workload {pattern} --time 3s; exit 7");
    let ran = run(&mut isotherm(&[
        "record",
        "-q",
        "--probe",
        "damon",
        "-o",
        file.to_str().unwrap(),
        "--",
        "sh",
        "-c",
        &script,
    ]));
    assert_eq!((ran.status, ran.err.as_str()), (7, ""), "{ran:?}");
    assert!(report("regions", &file).len() >= 10);
    no_kdamond_is_left();
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn signals_leave_no_kdamond() {
    let workload = Workload::start(HOT_IN_COLD);
    for caught in ["-INT", "-TERM", "-HUP", "-QUIT"] {
        let mut isotherm = recording("damon-signal.rec", workload.process.pid(), &[]);
        has_recorded("damon-signal.rec");
        signal(isotherm.pid(), caught);
        assert_eq!(isotherm.wait(), 0, "{caught}");
        no_kdamond_is_left();
        assert!(!report("regions", &result_file("damon-signal.rec")).is_empty(), "{caught}: the recording is kept");
    }
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn errors_leave_no_kdamond() {
    let workload = Workload::start(HOT_IN_COLD);
    let pid = workload.process.pid().to_string();
    // The disk is full.
    let call = ["record", "--probe", "damon", "--pid", &pid, "-o", "/dev/full"];
    refused(&call, &["/dev/full"]);
    no_kdamond_is_left();
    // The recording reaches its size limit in the middle of a run.
    let file = result_file("damon-limit.rec");
    let script = format!("ulimit -f 8; exec isotherm record --probe damon --pid {pid} -o {}", file.display());
    let ran = run(Command::new("sh").args(["-c", &script]));
    assert_eq!(ran.status, 1, "{ran:?}");
    no_kdamond_is_left();
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn the_next_run_removes_the_kdamond_of_a_killed_run() {
    let workload = Workload::start(HOT_IN_COLD);
    let mut isotherm = recording("damon-killed.rec", workload.process.pid(), &[]);
    has_recorded("damon-killed.rec");
    signal(isotherm.pid(), "-KILL");
    isotherm.wait();
    assert_eq!(read("0/state"), "on", "the kernel goes on");
    assert!(!report("regions", &result_file("damon-killed.rec")).is_empty(), "what was recorded is readable");

    let pid = workload.process.pid().to_string();
    let snapshots = recorded("damon-next.rec", &["--pid", &pid, "--duration", "1s"]);
    assert!(snapshots.len() >= 3);
    no_kdamond_is_left();
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn a_kdamond_of_a_killed_run_that_another_user_restarted_is_left_alone() {
    let workload = Workload::start(HOT_IN_COLD);
    let mut isotherm = recording("damon-taken.rec", workload.process.pid(), &[]);
    signal(isotherm.pid(), "-KILL");
    isotherm.wait();
    write("0/state", "off");
    write("0/state", "on");
    let pid = workload.process.pid().to_string();
    refused(&["record", "--probe", "damon", "--pid", &pid, "-o", "/tmp/refused.rec"], &["DAMON is in use", &pid]);
    assert_eq!(read("0/state"), "on");
    write("0/state", "off");
    write("nr_kdamonds", "0");
    fs::remove_dir_all("/run/isotherm").unwrap();
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn another_users_kdamond_is_left_alone() {
    let (theirs, ours) = (Workload::start(HOT_IN_COLD), Workload::start(HOT_IN_COLD));
    write("nr_kdamonds", "1");
    write("0/contexts/nr_contexts", "1");
    write("0/contexts/0/operations", "vaddr");
    write("0/contexts/0/targets/nr_targets", "1");
    let (pid, our_pid) = (theirs.process.pid().to_string(), ours.process.pid().to_string());
    write("0/contexts/0/targets/0/pid_target", &pid);
    let call = ["record", "--probe", "damon", "--pid", &our_pid, "-o", "/tmp/refused.rec"];
    refused(&call, &["kdamond 0 is off", &pid, "nr_kdamonds"]);

    write("0/state", "on");
    let kdamond = read("0/pid");
    refused(&call, &["kdamond 0 is on", &format!("(process {kdamond})"), &format!("(vaddr): {pid}")]);
    assert!(!Path::new("/tmp/refused.rec").exists(), "no recording is begun");
    let doctor = run(&mut isotherm(&["doctor"]));
    assert!(doctor.out.contains("damon does not work") && doctor.out.contains(&kdamond), "{}", doctor.out);
    assert_eq!((read("0/state"), read("0/pid")), ("on".into(), kdamond));
    assert_eq!(read("0/contexts/0/targets/0/pid_target"), pid);
    write("0/state", "off");
    write("nr_kdamonds", "0");
    no_kdamond_is_left();
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn a_second_run_is_refused_during_the_first_one() {
    let workload = Workload::start(HOT_IN_COLD);
    let mut first = recording("damon-first.rec", workload.process.pid(), &["--duration", "3s"]);
    let pid = workload.process.pid().to_string();
    let who = format!("another isotherm (process {})", first.pid());
    refused(&["record", "--probe", "damon", "--pid", &pid, "-o", "/tmp/refused.rec"], &[&who]);
    assert_eq!(read("0/state"), "on");
    assert_eq!(first.wait(), 0);
    no_kdamond_is_left();
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn a_kdamond_turned_off_by_another_user_ends_the_run_with_an_error() {
    let workload = Workload::start(HOT_IN_COLD);
    let file = result_file("damon-off.rec");
    let pid = workload.process.pid().to_string();
    let command = format!("isotherm record --probe damon --pid {pid} -o {} 2>&1", file.display());
    let mut isotherm = Running::start(Command::new("sh").args(["-c", &command]));
    eventually("the kernel's DAMON is on", || read("0/state") == "on");
    has_recorded("damon-off.rec");
    write("0/state", "off");
    isotherm.wait_for_line("turned off by someone else");
    assert_eq!(isotherm.wait(), 1);
    assert!(!report("regions", &file).is_empty(), "what was recorded before is kept");
    no_kdamond_is_left();
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn lost_events_are_counted_and_reported() {
    let workload = Workload::start(HOT_IN_COLD);
    let file = result_file("damon-lost.rec");
    let pid = workload.process.pid().to_string();
    // The smallest ring has 64 KiB: about 40 aggregations of 16 regions. Nobody reads it for 5 s.
    let command = format!(
        "exec isotherm record --probe damon --pid {pid} --sample 2ms --aggr 20ms --regions 10:50 -o {} 2>&1",
        file.display()
    );
    let mut isotherm = Running::start(Command::new("sh").args(["-c", &command]));
    eventually("the kernel's DAMON is on", || read("0/state") == "on");
    has_recorded("damon-lost.rec");
    signal(isotherm.pid(), "-STOP");
    std::thread::sleep(Duration::from_secs(5));
    signal(isotherm.pid(), "-CONT");
    // The kernel reports losses when the ring has space again, together with the events after the gap.
    let longest_gap = || {
        let times = report("regions", &file).into_iter().map(|snapshot| snapshot["time_ns"].as_u64().unwrap());
        let times: Vec<u64> = times.collect();
        assert!(times.is_sorted());
        times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0)
    };
    eventually("something is recorded after a gap", || longest_gap() > 1_000_000_000);
    signal(isotherm.pid(), "-TERM");
    let line = isotherm.wait_for_line("missing from the recording");
    let lost: u64 = line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(lost > 10, "{line}");
    assert_eq!(isotherm.wait(), 0);
    no_kdamond_is_left();
    let summary = &report("summary", &file)[0];
    assert_eq!(summary["lost_aggregations"], lost, "the recording says so, too");
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn the_doctor_reports_the_features_of_damon() {
    let ran = run(&mut isotherm(&["doctor"]));
    assert!(ran.out.contains("damon works"), "{ran:?}");
    let newer = !fs::read_to_string("/proc/sys/kernel/osrelease").unwrap().starts_with("6.1.");
    let tried = if newer { "yes" } else { "no" };
    let features = format!("operations: vaddr, fvaddr, paddr; tracepoint: yes; tried_regions: {tried}");
    assert!(ran.out.contains(&features), "{ran:?}");
    no_kdamond_is_left();
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn without_tracefs_tried_regions_are_collected_where_the_kernel_has_them() {
    let workload = Workload::start(HOT_IN_COLD);
    let pid = workload.process.pid().to_string();
    let newer = !fs::read_to_string("/proc/sys/kernel/osrelease").unwrap().starts_with("6.1.");
    let mounts = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing", "/sys/kernel/debug"];
    for mount in mounts {
        run(Command::new("umount").arg(mount));
    }
    let file = result_file("damon-tried.rec");
    let call = ["record", "--probe", "damon", "--pid", &pid, "--duration", "4s", "-o", file.to_str().unwrap()];
    let ran = run(&mut isotherm(&call));
    for (kind, mount) in [("debugfs", mounts[2]), ("tracefs", mounts[0])] {
        assert_eq!(run(Command::new("mount").args(["-t", kind, kind, mount])).status, 0);
    }
    no_kdamond_is_left();
    if newer {
        assert_eq!(ran.status, 0, "{ran:?}");
        let snapshots = report("regions", &file);
        assert!(snapshots.len() >= 5, "{}", snapshots.len());
        let late = &snapshots[snapshots.len() / 2..];
        let (hot, cold) = (rate(late, workload.area("hot")), rate(late, workload.area("cold above")));
        assert!(hot > cold, "hot {hot:.3}, cold {cold:.3}");
    } else {
        assert!(ran.status == 1 && ran.err.contains("mount -t tracefs"), "{ran:?}");
    }
}
