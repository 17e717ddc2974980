//! The probe `idle` on a kernel with idle page tracking: processes, physical memory, errors.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use isotherm_core::AddrRange;
use isotherm_lab::{
    EMULATED, HOT_IN_COLD, Running, Workload, eventually, isotherm, precision_and_recall, report, result_file, run,
    succeed,
};
use serde_json::Value;

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;

/// Samples alone. An emulated machine surveys so slowly that nothing else would run on the processor that it shares.
const SAMPLES: [&str; 2] = ["--survey", "off"];

/// A monitor that surveys gives way to the workload that it shares the processor with, and would wait for seconds.
const SHARES: [&str; 2] = ["--nice", "0"];

/// Intervals that are long enough for an emulated machine to begin rounds in time.
const LONG_INTERVALS: [&str; 4] = ["--sample", "20ms", "--aggr", "400ms"];

/// Binds this thread, and the processes that it starts, to one processor. Each switch to another process
/// evicts the translations. The kernel does not flush them when it marks pages as idle, so without switches
/// an emulated processor, whose TLB evicts nothing, would never set an accessed bit again.
fn share_a_processor() {
    let thread = fs::read_link("/proc/thread-self").unwrap();
    let id = thread.file_name().unwrap().to_str().unwrap().to_owned();
    let ran = run(Command::new("taskset").args(["-p", "1", &id]));
    assert_eq!(ran.status, 0, "{ran:?}");
}

fn record(arguments: &[&str], recording: &Path) {
    let mut all = vec!["record", "--seed", "1", "-o", recording.to_str().unwrap()];
    all.extend(LONG_INTERVALS);
    all.extend(arguments);
    succeed(&all);
}

fn later_half(snapshots: &[Value]) -> &[Value] {
    assert!(snapshots.len() >= 6, "only {} snapshots", snapshots.len());
    &snapshots[snapshots.len() / 2..]
}

/// The hot ranges of a snapshot: accessed in at least half of the samples.
fn hot(snapshot: &Value) -> Vec<AddrRange> {
    let regions = snapshot["regions"].as_array().unwrap().iter();
    let hot = regions.filter(|region| region["access_rate"].as_f64().unwrap() >= 0.5);
    hot.filter_map(|r| AddrRange::new(r["start"].as_u64().unwrap(), r["end"].as_u64().unwrap())).collect()
}

/// Physical addresses of the pages of a process.
fn physical_addresses(pid: u32, range: AddrRange) -> Vec<u64> {
    let pagemap = File::open(format!("/proc/{pid}/pagemap")).unwrap();
    let entry = |page: u64| {
        let mut bytes = [0; 8];
        pagemap.read_exact_at(&mut bytes, page * 8).unwrap();
        u64::from_ne_bytes(bytes)
    };
    let entries = (range.start() / PAGE..range.end() / PAGE).map(entry).filter(|entry| entry >> 63 == 1);
    entries.map(|entry| (entry & ((1 << 55) - 1)) * PAGE).collect()
}

/// How many of the pages lie inside of the ranges, which are in order.
fn inside(pages: &[u64], ranges: &[AddrRange]) -> usize {
    let is_inside = |page: u64| {
        let next = ranges.partition_point(|range| range.end() <= page);
        ranges.get(next).is_some_and(|range| range.contains(page))
    };
    pages.iter().filter(|&&page| is_inside(page)).count()
}

/// The bytes of memory that are not free.
fn in_use() -> u64 {
    let memory = isotherm_kernel::system_memory(Path::new("/")).unwrap();
    memory.total - memory.free
}

fn summary(recording: &Path) -> Value {
    report("summary", recording).remove(0)
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn the_hot_part_of_a_process_is_found() {
    share_a_processor();
    let recording = result_file("idle-process.rec");
    let workload = Workload::start(HOT_IN_COLD);
    record(&[&SAMPLES[..], &["--pid", &workload.process.pid().to_string(), "--duration", "9s"]].concat(), &recording);
    assert_eq!(summary(&recording)["recording"]["probe"], "idle", "the best probe where there is idle tracking");
    let (precision, recall) = precision_and_recall(later_half(&report("regions", &recording)), workload.area("hot"));
    println!("precision {precision:.3}, recall {recall:.3}");
    assert!(precision >= 0.8 && recall >= 0.8, "precision {precision:.2}, recall {recall:.2}");
}

/// The bytes of the working set at each survey of the later half, within a window.
fn working_sets(recording: &Path, window: &str) -> Vec<u64> {
    let file = recording.to_str().unwrap();
    let report = succeed(&["report", "wss", "--window", window, "-f", "json", file]);
    let report: Value = serde_json::from_str(&report).unwrap();
    let over_time = report["over_time"].as_array().unwrap();
    assert!(over_time.len() >= 4, "only {} surveys", over_time.len());
    over_time[over_time.len() / 2..].iter().map(|at| at["bytes"].as_u64().unwrap()).collect()
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn the_survey_finds_the_working_set_of_a_process() {
    share_a_processor();
    let recording = result_file("idle-survey.rec");
    let workload = Workload::start(HOT_IN_COLD);
    let pid = workload.process.pid().to_string();
    // A slow host has time for a few surveys after the first 10 s, too.
    let options = ["--survey", "1s", "--probe", "idle", "--pid", &pid, "--duration", "20s"];
    record(&[&EMULATED[..], &SHARES[..], &options[..]].concat(), &recording);
    let hot = workload.area("hot").size();
    drop(workload);
    let summary = summary(&recording);
    let mappings = summary["mappings"].as_array().unwrap();
    let anonymous = mappings.iter().find(|mapping| mapping["name"] == "anonymous").unwrap();
    assert!(anonymous["cold_bytes"].as_u64().unwrap() >= 60 * MIB, "{anonymous}");
    for bytes in working_sets(&recording, "2s") {
        // Beside the hot area, the workload accesses its code, stack and libraries.
        assert!((hot * 9 / 10..=hot + 6 * MIB).contains(&bytes), "{bytes} of {hot}");
    }
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn the_panel_tells_how_much_is_in_use_before_surveys_know_it() {
    share_a_processor();
    let (recording, json) = (result_file("idle-panel.rec"), result_file("idle-panel.json"));
    let workload = Workload::start(HOT_IN_COLD);
    let pid = workload.process.pid().to_string();
    let options = ["--cpu-budget", "20%", "--probe", "idle", "--pid", &pid, "--duration", "8s"];
    record(&[&SHARES[..], &options[..]].concat(), &recording);
    let hot = workload.area("hot").size();
    drop(workload);
    succeed(&["convert", recording.to_str().unwrap(), json.to_str().unwrap()]);
    let recorded: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    let last = recorded["panel"].as_array().unwrap().last().unwrap();
    let second = last["windows_ns"].as_array().unwrap().iter().position(|window| window == 1_000_000_000_u64).unwrap();
    let bytes = |key: &str| last["total"][second][key].as_u64().unwrap();
    let (low, bytes, high) = (bytes("low_bytes"), bytes("bytes"), bytes("high_bytes"));
    assert!(low <= hot + 6 * MIB && high >= hot, "{low} to {high}, where {hot} bytes are hot");
    assert!((hot * 8 / 10..=hot * 12 / 10 + 6 * MIB).contains(&bytes), "{bytes} of {hot}");
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn the_hot_part_of_a_process_with_huge_pages_is_found() {
    const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
    share_a_processor();
    let recording = result_file("idle-huge.rec");
    fs::write(ENABLED, "always").unwrap();
    let workload = Workload::start(HOT_IN_COLD);
    fs::write(ENABLED, "madvise").unwrap();
    let smaps = fs::read_to_string(format!("/proc/{}/smaps_rollup", workload.process.pid())).unwrap();
    let huge = smaps.lines().find_map(|line| line.strip_prefix("AnonHugePages:")).unwrap().trim().to_owned();
    assert!(huge.trim_end_matches(" kB").parse::<u64>().unwrap() >= 64 << 10, "huge pages: {huge}");

    record(&[&SAMPLES[..], &["--pid", &workload.process.pid().to_string(), "--duration", "9s"]].concat(), &recording);
    let (precision, recall) = precision_and_recall(later_half(&report("regions", &recording)), workload.area("hot"));
    println!("precision {precision:.3}, recall {recall:.3}");
    // A huge page on the border is hot as a whole.
    assert!(precision >= 0.7 && recall >= 0.8, "precision {precision:.2}, recall {recall:.2}");
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn hot_pages_of_a_process_are_hot_in_physical_memory() {
    share_a_processor();
    let recording = result_file("idle-physical.rec");
    let workload = Workload::start(HOT_IN_COLD);
    // The hot pages lie scattered among those of 2 GiB, so that it takes a while to find them.
    record(&[&SAMPLES[..], &["--physical", "--duration", "20s"]].concat(), &recording);
    let hot_pages = physical_addresses(workload.process.pid(), workload.area("hot"));
    let cold_pages = physical_addresses(workload.process.pid(), workload.area("cold above"));
    assert!(hot_pages.len() >= 4000 && cold_pages.len() >= 16000);
    let snapshots = report("regions", &recording);
    assert!(snapshots.iter().all(|snapshot| snapshot["pid"] == 0));
    let (mut found, mut wrong) = (0, 0);
    let late = later_half(&snapshots);
    for snapshot in late {
        let hot = hot(snapshot);
        found += inside(&hot_pages, &hot);
        wrong += inside(&cold_pages, &hot);
    }
    let share = |count: usize, of: &[u64]| count as f64 / (of.len() * late.len()) as f64;
    let (found, wrong) = (share(found, &hot_pages), share(wrong, &cold_pages));
    println!("{found:.3} of the hot pages were found hot, {wrong:.3} of the cold");
    assert!(found >= 0.7 && wrong <= 0.1, "{found:.2} of the hot pages were found hot, {wrong:.2} of the cold");

    let summary = summary(&recording);
    let names: Vec<_> = summary["mappings"].as_array().unwrap().iter().map(|m| m["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"System RAM, node 0") && names.contains(&"System RAM, node 1"), "{names:?}");
    // Free memory is neither hot nor cold.
    let dark = summary["total"]["unobservable_bytes"].as_u64().unwrap();
    assert!(dark > 512 * MIB, "{dark}");
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn the_survey_of_physical_memory_finds_what_is_in_use_and_what_is_idle() {
    share_a_processor();
    let recording = result_file("idle-physical-survey.rec");
    fs::write("/tmp/idle-cache", vec![1; 32 * MIB as usize]).unwrap();
    let workload = Workload::start(HOT_IN_COLD);
    let options = ["--physical", "--survey", "4s", "--target-budget", "100%", "--duration", "26s"];
    record(&[&EMULATED[..], &SHARES[..], &options[..]].concat(), &recording);
    fs::remove_file("/tmp/idle-cache").unwrap();
    let hot_pages = physical_addresses(workload.process.pid(), workload.area("hot"));
    let cold_pages = physical_addresses(workload.process.pid(), workload.area("cold above"));
    let snapshots = report("regions", &recording);
    let last = snapshots.last().unwrap()["regions"].as_array().unwrap();
    let bytes = |region: &Value, key: &str| region[key].as_u64().unwrap();
    // Regions most of which was touched since the survey before.
    let is_touched = |region: &&Value| bytes(region, "touched_bytes") * 2 > bytes(region, "present_bytes");
    let ranges = last.iter().filter(is_touched);
    let ranges: Vec<_> = ranges.filter_map(|r| AddrRange::new(bytes(r, "start"), bytes(r, "end"))).collect();
    let touched = |pages: &[u64]| inside(pages, &ranges) as f64 / pages.len() as f64;
    let (hot, cold) = (touched(&hot_pages), touched(&cold_pages));
    println!("{hot:.3} of the hot pages were touched, {cold:.3} of the cold");
    assert!(hot >= 0.9 && cold <= 0.1, "{hot:.2} of the hot pages were touched, {cold:.2} of the cold");

    // Free memory and that of the kernel are not there. The page cache that nobody reads is idle.
    let summary = summary(&recording);
    let total = &summary["total"];
    let (resident, dark) = (bytes(total, "resident_bytes"), bytes(total, "unobservable_bytes"));
    println!("{} MiB resident, {} MiB unobservable", resident / MIB, dark / MIB);
    assert!((160 * MIB..=in_use() + 64 * MIB).contains(&resident) && dark < 64 * MIB, "{total}");
    let idle = workload.area("cold below").size() + workload.area("cold above").size() + 24 * MIB;
    assert!(bytes(total, "idle_10s_bytes") >= idle, "{total}");
    let surveys = working_sets(&recording, "5s");
    let hot = workload.area("hot").size();
    assert!(surveys.iter().all(|&bytes| (hot..hot + 96 * MIB).contains(&bytes)), "{surveys:?}");
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn page_cache_that_no_process_maps_is_seen() {
    share_a_processor();
    let hot_bytes = |name: &str| {
        let recording = result_file(name);
        record(&[&SAMPLES[..], &["--physical", "--", "sleep", "9"]].concat(), &recording);
        let snapshots = report("regions", &recording);
        let late = later_half(&snapshots);
        late.iter().flat_map(hot).map(AddrRange::size).sum::<u64>() / late.len() as u64
    };
    fs::write("/tmp/cached", vec![1; 48 * MIB as usize]).unwrap();
    let before = hot_bytes("idle-cache-before.rec");
    let reader = Running::start(Command::new("sh").args(["-c", "while :; do cat /tmp/cached > /dev/null 2>&1; done"]));
    let during = hot_bytes("idle-cache-during.rec");
    drop(reader);
    fs::remove_file("/tmp/cached").unwrap();
    println!("{before} bytes hot before, {during} during");
    assert!(during >= before + 24 * MIB, "{before} bytes hot before, {during} during");
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn only_the_given_range_of_physical_memory_is_watched() {
    let recording = result_file("idle-range.rec");
    let ranges = ["--physical", "--range", "256MiB:320MiB", "--range", "0x18000000:0x1a000000", "--duration", "3s"];
    record(&[&SAMPLES[..], &ranges].concat(), &recording);
    let snapshots = report("regions", &recording);
    let ranges = [(256 * MIB, 320 * MIB), (384 * MIB, 416 * MIB)];
    for region in snapshots.iter().flat_map(|snapshot| snapshot["regions"].as_array().unwrap()) {
        let (start, end) = (region["start"].as_u64().unwrap(), region["end"].as_u64().unwrap());
        assert!(ranges.iter().any(|range| range.0 <= start && end <= range.1), "{region}");
    }
    assert_eq!(summary(&recording)["total"]["size_bytes"], 96 * MIB);

    let ran = run(&mut isotherm(&["record", "--physical", "--range", "1TiB:2TiB", "--duration", "1s"]));
    assert!(ran.status == 1 && ran.err.contains("not in System RAM") && ran.err.contains("0x100000:"), "{ran:?}");
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn memory_that_goes_offline_leaves_the_recording() {
    let recording = result_file("idle-offline.rec");
    let mut arguments = vec!["record", "--physical", "--duration", "8s", "-o", recording.to_str().unwrap()];
    arguments.extend(LONG_INTERVALS);
    arguments.extend(SAMPLES);
    let mut monitor = Running::start(&mut isotherm(&arguments));
    thread::sleep(Duration::from_secs(2));
    let blocks = fs::read_dir("/sys/devices/system/node/node1").unwrap().flatten().map(|entry| entry.path());
    let mut blocks = blocks.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("memory"));
    let block = blocks.find(|path| path.is_dir() && fs::write(path.join("state"), "offline").is_ok()).unwrap();
    let status = monitor.wait();
    fs::write(block.join("state"), "online").unwrap();
    assert_eq!(status, 0);

    let size = fs::read_to_string("/sys/devices/system/memory/block_size_bytes").unwrap();
    let size = u64::from_str_radix(size.trim(), 16).unwrap();
    let number = block.file_name().unwrap().to_str().unwrap().strip_prefix("memory").unwrap().parse::<u64>().unwrap();
    let range = AddrRange::new(number * size, (number + 1) * size).unwrap();
    let watched = |snapshot: &Value| {
        let regions = snapshot["regions"].as_array().unwrap().iter();
        regions.filter_map(|r| AddrRange::new(r["start"].as_u64()?, r["end"].as_u64()?)?.intersection(range)).count()
            > 0
    };
    let snapshots = report("regions", &recording);
    assert!(watched(&snapshots[0]), "{range:?} was not watched before it went offline");
    assert!(!watched(snapshots.last().unwrap()), "{range:?} is watched although it is offline");
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn an_ordinary_user_gets_an_error_that_names_what_is_missing() {
    let nobody = |arguments: &[&str]| {
        let ran = run(isotherm(arguments).uid(65534).gid(65534).current_dir("/tmp"));
        assert!(ran.status == 1 && ran.err.contains("run isotherm as root"), "{ran:?}");
        ran.err
    };
    assert!(nobody(&["record", "--probe", "idle", "--", "sleep", "1"]).contains("page_idle/bitmap"));
    assert!(nobody(&["record", "--physical", "--duration", "1s"]).contains("page_idle/bitmap"));
    // A user who may open the bitmap, but not kpageflags.
    let bitmap = Path::new("/sys/kernel/mm/page_idle/bitmap");
    fs::set_permissions(bitmap, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(nobody(&["record", "--physical", "--duration", "1s"]).contains("kpageflags"));
    fs::set_permissions(bitmap, fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn the_end_of_the_target_ends_the_recording() {
    let recording = result_file("idle-end.rec");
    let file = recording.to_str().unwrap();
    let ran = run(&mut isotherm(&["record", "-o", file, "--", "isotherm", "workload", "--time", "2s"]));
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(summary(&recording)["cut_short"].is_null());
    // With --physical, the end of the command ends the recording.
    let ran = run(&mut isotherm(&["record", "--physical", "-o", file, "--", "sh", "-c", "sleep 2; exit 7"]));
    assert_eq!(ran.status, 7, "{ran:?}");
    assert!(summary(&recording)["cut_short"].is_null());
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn a_recording_is_readable_after_the_monitor_is_killed() {
    for (name, what) in [("idle-killed.rec", "--pid"), ("idle-killed-physical.rec", "--physical")] {
        let recording = result_file(name);
        let workload = Workload::start(HOT_IN_COLD);
        let pid = workload.process.pid().to_string();
        let mut arguments = vec!["record", "-o", recording.to_str().unwrap(), what];
        arguments.extend((what == "--pid").then_some(pid.as_str()));
        let monitor = Running::start(&mut isotherm(&arguments));
        eventually("some of the recording is written", || fs::metadata(&recording).is_ok_and(|file| file.len() > 8000));
        // Sends SIGKILL.
        drop(monitor);
        let snapshots = report("regions", &recording);
        assert!(!snapshots.is_empty());
        assert!(summary(&recording)["cut_short"].is_string());
        assert!(Path::new("/proc").join(&pid).join("exe").exists(), "the workload has ended");
    }
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn the_doctor_finds_that_the_probe_works() {
    let ran = run(&mut isotherm(&["doctor", "--format", "json"]));
    let found: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(found["auto"], "idle", "{found:#}");
    let idle = found["probes"].as_array().unwrap().iter().find(|probe| probe["probe"] == "idle").unwrap();
    assert_eq!(idle["works"], true, "{idle}");
}
