//! Recording real processes from their start to their end, however that comes about.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod common;

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use common::{HOT_IN_COLD, ISOTHERM, Kept, Place, Ran, bpf_works, eventually, signal};
use isotherm_core::AddrRange;
use isotherm_record::{Ending, Recording};
use isotherm_testing::{installed_or_skip, or_skip};
use rustix::process::Signal;
use serde_json::Value;

/// A workload with the pattern [`HOT_IN_COLD`], and the addresses of its areas.
struct Workload {
    child: Kept,
    areas: Vec<(String, AddrRange)>,
}

impl Workload {
    fn start(place: &Place) -> Self {
        std::fs::write(place.path("hot.toml"), HOT_IN_COLD).unwrap();
        let mut command = place.isotherm(&["workload", "hot.toml", "--announce"]);
        let mut child = Kept(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(child.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let announced: Value = serde_json::from_str(&line).unwrap();
        let area = |area: &Value| {
            let addr = |key: &str| area[key].as_u64().unwrap();
            (area["name"].as_str().unwrap().into(), AddrRange::new(addr("start"), addr("end")).unwrap())
        };
        Self { child, areas: announced["areas"].as_array().unwrap().iter().map(area).collect() }
    }

    fn pid(&self) -> String {
        self.child.0.id().to_string()
    }

    fn area(&self, name: &str) -> AddrRange {
        self.areas.iter().find(|(known, _)| known == name).unwrap().1
    }
}

/// Precision and recall of the area `hot` in these snapshots, 0 to 1 each. A region counts as hot if it was accessed in
/// at least half of the samples.
fn precision_and_recall(snapshots: &[Value], hot: AddrRange) -> (f64, f64) {
    let (mut found, mut right, mut truth) = (0, 0, 0);
    for snapshot in snapshots {
        truth += hot.size();
        for region in snapshot["regions"].as_array().unwrap() {
            if region["access_rate"].as_f64().unwrap() >= 0.5 {
                let range = AddrRange::new(region["start"].as_u64().unwrap(), region["end"].as_u64().unwrap()).unwrap();
                found += range.size();
                right += range.intersection(hot).map_or(0, AddrRange::size);
            }
        }
    }
    (right as f64 / found as f64, right as f64 / truth as f64)
}

#[test]
fn the_hot_part_of_a_running_process_is_found() {
    or_skip!(bpf_works());
    let place = Place::new();
    let workload = Workload::start(&place);
    let call = ["record", "--probe", "bpf", "--pid", &workload.pid(), "--duration", "4s", "--seed", "1"];
    let ran = place.run(&call);
    assert_eq!((ran.status, ran.out.as_str(), ran.err.as_str()), (0, "", ""), "silent where there is no terminal");

    let snapshots = place.regions("isotherm.rec");
    let (precision, recall) = precision_and_recall(&snapshots[20..], workload.area("hot"));
    assert!(precision >= 0.8 && recall >= 0.8, "precision {precision}, recall {recall}");
    assert!(snapshots.iter().all(|s| s["regions"].as_array().unwrap().len() <= 1000));

    let recording = Recording::open(&place.path("isotherm.rec")).unwrap();
    assert_eq!(recording.ending(), Ending::Whole);
    assert_eq!((recording.header().probe.as_str(), recording.header().seed), ("bpf", 1));
    let last = recording.snapshots().unwrap().last().unwrap().unwrap().into_rows().last().unwrap();
    assert!(last.info.command.ends_with("workload hot.toml --announce"), "{:?}", last.info);
    assert!(last.target.mappings.iter().any(|m| &*m.name == "[stack]"));
}

/// The output of `isotherm doctor`.
fn doctor(ran: &Ran) -> Value {
    assert_eq!(ran.status, 0, "{ran:?}");
    serde_json::from_str(&ran.out).unwrap()
}

/// The findings of the doctor on this probe.
fn probe<'a>(document: &'a Value, name: &str) -> &'a Value {
    document["probes"].as_array().unwrap().iter().find(|probe| probe["probe"] == name).unwrap()
}

#[test]
fn the_best_probe_that_works_is_chosen_and_the_doctor_names_it() {
    let place = Place::new();
    let document = doctor(&place.run(&["doctor", "--format", "json"]));
    let best = ["idle", "bpf", "refs"].into_iter().find(|name| probe(&document, name)["works"] == true);
    assert_eq!(document["auto"].as_str(), best);
    assert_eq!(place.run(&["record", "--", "sleep", "2"]).status, 0);
    let recording = Recording::open(&place.path("isotherm.rec")).unwrap();
    assert_eq!(Some(recording.header().probe.as_str()), best);
}

#[test]
fn an_ordinary_user_sees_the_hot_mapping_of_their_own_process() {
    // The hot area is a separate mapping, because one of its neighbours is not mapped.
    let place = Place::new();
    std::fs::write(place.path("hot.toml"), HOT_IN_COLD.replace("1000s", "5s") + "unmapped = [\"cold below\"]").unwrap();
    let command = ["--", ISOTHERM, "workload", "hot.toml"];
    let call = [&["record", "--sample", "50ms", "--aggr", "500ms"], &command[..]].concat();
    let ran = or_skip!(place.run_as_nobody(&call));
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(
        ran.err.contains("refs") && ran.err.contains("whole mappings only"),
        "the message names the probe: {}",
        ran.err
    );
    let recording = Recording::open(&place.path("isotherm.rec")).unwrap();
    assert_eq!((recording.header().probe.as_str(), recording.header().granularity.as_str()), ("refs", "mapping"));
    let snapshots = place.regions("isotherm.rec");
    let regions = snapshots.last().unwrap()["regions"].as_array().unwrap();
    let hot = regions.iter().filter(|region| region["access_rate"].as_f64().unwrap() >= 0.5);
    let largest = hot.map(|r| r["end"].as_u64().unwrap() - r["start"].as_u64().unwrap()).max();
    assert!(largest.is_some_and(|bytes| bytes >= 16 << 20), "{regions:?}");
}

#[test]
fn a_duration_is_compared_with_the_aggregation_interval_of_the_probe() {
    // A sampling interval of 200 ms makes an aggregation interval of 2 s with refs, and of 4 s with other probes.
    let record = |probe| {
        let place = Place::new();
        let options = ["record", "--probe", probe, "--sample", "200ms", "--duration", "3s", "--", "sleep", "1000"];
        (place.run(&options), place)
    };
    let (ran, place) = record("refs");
    assert_eq!(ran.status, 0, "{ran:?}");
    let recording = Recording::open(&place.path("isotherm.rec")).unwrap();
    assert_eq!((recording.header().probe.as_str(), recording.ending()), ("refs", Ending::Whole));
    assert!(!place.regions("isotherm.rec").is_empty());

    let (ran, place) = record("bpf");
    assert_eq!(ran.status, 2, "{ran:?}");
    assert!(ran.err.contains("the duration (3 s) is shorter than the aggregation interval (4 s)"), "{}", ran.err);
    assert!(!place.path("isotherm.rec").exists());
}

#[test]
fn the_exit_status_of_a_command_is_passed_through() {
    let place = Place::new();
    let status = |script: &str| place.run(&["record", "--aggr", "50ms", "--", "sh", "-c", script]).status;
    assert_eq!(status("sleep 0.5"), 0);
    assert_eq!(status("sleep 0.5; exit 7"), 7);
    assert_eq!(status("sleep 0.5; kill -9 $$"), 137);
}

#[test]
fn signals_are_passed_to_the_command() {
    let place = Place::new();
    let script = "trap 'exit 3' TERM; trap 'echo usr1' USR1; echo ready; while :; do sleep 0.05; done";
    let mut isotherm = place.isotherm(&["record", "--", "sh", "-c", script]);
    let mut isotherm = Kept(isotherm.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(isotherm.0.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    // An end before the first snapshot would be a failure.
    eventually("snapshots are written", || has_snapshots(&place));
    signal(&isotherm.0, Signal::USR1);
    assert_eq!(lines.next().unwrap().unwrap(), "usr1");
    signal(&isotherm.0, Signal::TERM);
    assert_eq!(isotherm.0.wait().unwrap().code(), Some(3));
    assert_eq!(Recording::open(&place.path("isotherm.rec")).unwrap().ending(), Ending::Whole);
}

#[test]
fn an_interrupt_ends_the_recording_of_a_process_and_leaves_the_process_alone() {
    let place = Place::new();
    let mut workload = Workload::start(&place);
    let mut isotherm = Kept(place.isotherm(&["record", "--pid", &workload.pid()]).spawn().unwrap());
    eventually("snapshots are written", || has_snapshots(&place));
    signal(&isotherm.0, Signal::INT);
    assert!(isotherm.0.wait().unwrap().success());
    assert_eq!(Recording::open(&place.path("isotherm.rec")).unwrap().ending(), Ending::Whole);
    assert!(workload.child.0.try_wait().unwrap().is_none(), "the target continues");
}

#[test]
fn the_recording_and_the_target_survive_the_death_of_isotherm() {
    let place = Place::new();
    let mut workload = Workload::start(&place);
    let mut isotherm = Kept(place.isotherm(&["record", "--pid", &workload.pid()]).spawn().unwrap());
    eventually("snapshots are written", || has_snapshots(&place));
    signal(&isotherm.0, Signal::KILL);
    isotherm.0.wait().unwrap();
    assert!(!place.regions("isotherm.rec").is_empty());
    assert_ne!(Recording::open(&place.path("isotherm.rec")).unwrap().ending(), Ending::Whole);
    assert!(workload.child.0.try_wait().unwrap().is_none(), "the target continues");
}

fn has_snapshots(place: &Place) -> bool {
    Recording::open(&place.path("isotherm.rec"))
        .is_ok_and(|recording| recording.snapshots().is_ok_and(|mut snapshots| snapshots.next().is_some()))
}

#[test]
fn a_file_that_may_not_grow_ends_the_recording_but_not_the_command() {
    let place = Place::new();
    let script = "ulimit -f 24; exec \"$0\" record -o full.rec -- sh -c 'sleep 6; echo done > done'";
    let output = Command::new("sh").args(["-c", script, ISOTHERM]).current_dir(place.dir.path()).output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("full.rec") && err.contains("too large"), "{err}");
    assert!(place.path("done").exists(), "the command came to its own end");
    assert!(!place.regions("full.rec").is_empty(), "what was recorded before is there");
}

#[test]
fn a_time_limit_ends_the_command_that_isotherm_started() {
    let place = Place::new();
    let ran = place.run(&["record", "--duration", "1s", "--", "sleep", "1000"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    let snapshots = place.regions("isotherm.rec").len();
    assert!((1..=10).contains(&snapshots), "{snapshots}");
}

#[test]
fn children_join_and_leave() {
    let place = Place::new();
    // The process is alone for two seconds, and then has a child for three seconds.
    let script = "sleep 2; sh -c 'sleep 3; :'; sleep 2; :";
    let arguments = ["record", "--children", "--update", "200ms", "--", "sh", "-c", script];
    let ran = place.run(&arguments);
    assert_eq!(ran.status, 0, "{ran:?}");
    let recording = Recording::open(&place.path("isotherm.rec")).unwrap();
    let rows: Vec<_> = recording.snapshots().unwrap().flat_map(|record| record.unwrap().into_rows()).collect();
    let at = |time| rows.iter().filter(move |row| row.time == time).map(|row| row.info.command.as_str());
    let first: Vec<&str> = at(rows[0].time).collect();
    let last: Vec<&str> = at(rows.last().unwrap().time).collect();
    assert!(first.iter().any(|command| command.ends_with(script)), "{first:?}");
    assert!(last.iter().any(|command| command.ends_with(script)), "the first process is watched to the end: {last:?}");
    assert!(!first.contains(&"sleep 3") && !last.contains(&"sleep 3"), "{first:?} {last:?}");
    assert!(rows.iter().any(|row| row.info.command == "sleep 3"));
}

#[test]
fn several_processes_share_one_budget_of_regions() {
    let place = Place::new();
    let workloads = [Workload::start(&place), Workload::start(&place)];
    let [a, b] = workloads.each_ref().map(Workload::pid);
    let arguments = ["record", "--pid", &a, "--pid", &b, "--duration", "1s", "--regions", "10:40"];
    assert_eq!(place.run(&arguments).status, 0);
    let snapshots = place.regions("isotherm.rec");
    for at in snapshots.chunk_by(|x, y| x["time_ns"] == y["time_ns"]) {
        let regions: usize = at.iter().map(|snapshot| snapshot["regions"].as_array().unwrap().len()).sum();
        assert!(at.len() == 2 && regions <= 40, "{} targets, {regions} regions", at.len());
    }
}

#[test]
fn a_process_that_is_named_twice_is_watched_once() {
    let place = Place::new();
    let workload = Workload::start(&place);
    let pid = workload.pid();
    let call = ["record", "--aggr", "50ms", "--pid", &pid, "--pid", &pid, "--duration", "1s"];
    assert_eq!(place.run(&call).status, 0);
    let snapshots = place.regions("isotherm.rec");
    assert!(snapshots.len() >= 2, "{} snapshots", snapshots.len());
    assert!(snapshots.windows(2).all(|pair| pair[0]["time_ns"] != pair[1]["time_ns"]));
}

#[test]
fn a_process_that_maps_and_unmaps_all_the_time_is_recorded() {
    let place = Place::new();
    let script = "
import itertools, mmap
print('ready', flush=True)
for size in itertools.cycle((4 << 20, 8 << 20, 16 << 20)):
    memory = mmap.mmap(-1, size)
    for at in range(0, size, 4096): memory[at] = 1
    memory.close()
";
    let python = Command::new("python3").args(["-c", script]).stdout(Stdio::piped()).spawn();
    let mut python = Kept(installed_or_skip!(python.map_err(|e| format!("python3 cannot be run: {e}"))));
    let mut ready = String::new();
    BufReader::new(python.0.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let pid = python.0.id().to_string();
    let ran = place.run(&["record", "--pid", &pid, "--duration", "2s", "--update", "50ms"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(python.0.try_wait().unwrap().is_none(), "the target continues");

    let recording = Recording::open(&place.path("isotherm.rec")).unwrap();
    assert_eq!(recording.ending(), Ending::Whole);
    let targets: Vec<_> = recording.snapshots().unwrap().flat_map(|record| record.unwrap().snapshot.targets).collect();
    let mapped: HashSet<u64> = targets.iter().map(|t| t.mappings.iter().map(|m| m.range.size()).sum()).collect();
    assert!(mapped.len() >= 2, "updates see other mappings: {mapped:?} in {} snapshots", targets.len());
    for target in &targets {
        assert!((1..=1000).contains(&target.regions.len()), "{} regions", target.regions.len());
        assert!(target.regions.windows(2).all(|pair| pair[0].range.end() <= pair[1].range.start()));
    }
}

#[test]
fn a_program_that_becomes_another_is_followed() {
    let place = Place::new();
    let ran = place.run(&["record", "--update", "200ms", "--", "sh", "-c", "sleep 1; exec sleep 2"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    let recording = Recording::open(&place.path("isotherm.rec")).unwrap();
    let last = recording.snapshots().unwrap().last().unwrap().unwrap().into_rows().last().unwrap();
    assert_eq!(last.info.command, "sleep 2");
    assert!(last.target.mappings.iter().any(|m| m.name.ends_with("/sleep")));
}

#[test]
fn the_recording_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    assert_eq!(place.run(&["record", "--", "sleep", "0.5"]).status, 0);
    assert_eq!(place.run(&["report", "html", "-o", "report.html"]).status, 0);
    assert_eq!(place.run(&["convert", "isotherm.rec", "out.csv"]).status, 0);
    for name in ["isotherm.rec", "report.html", "out.csv"] {
        let mode = std::fs::metadata(place.path(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[test]
fn the_doctor_tells_an_ordinary_user_how_to_fix_what_does_not_work() {
    let place = Place::new();
    let document = doctor(&or_skip!(place.run_as_nobody(&["doctor", "--format", "json"])));
    assert_eq!(probe(&document, "refs")["works"], true, "{document}");
    assert_eq!(document["auto"], "refs");
    assert!(probe(&document, "bpf")["why_not"].as_str().unwrap().contains("root"), "{document}");
}

#[test]
fn the_doctor_finds_that_bpf_works_where_it_does() {
    or_skip!(bpf_works());
    let document = doctor(&Place::new().run(&["doctor", "--format", "json"]));
    assert_eq!(probe(&document, "bpf")["works"], true, "{document}");
}

#[test]
fn a_reader_that_closes_the_output_is_no_error() {
    let place = Place::new();
    assert_eq!(place.run(&["record", "--", "sleep", "1"]).status, 0);
    let mut report = place.isotherm(&["report", "regions"]);
    let mut report = report.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(report.stdout.take());
    let output = report.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}
