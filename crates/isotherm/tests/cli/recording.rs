//! Recording real processes from their start to their end, however that comes about.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use isotherm_core::{AddrRange, TargetId, TargetSnapshot};
use isotherm_record::{Ending, Recording, SnapshotRecord};
use isotherm_testing::{installed_or_skip, or_skip};
use rustix::process::Signal;
use serde_json::Value;

use crate::common::{
    self, HOT_IN_COLD, ISOTHERM, Kept, Place, Ran, bpf_works, eventually, record_by, record_until, signal,
};

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
    let call = ["record", "-q", "--probe", "bpf", "--pid", &workload.pid(), "--duration", "4s", "--seed", "1"];
    // A debug build samples too rarely with 1 %.
    let ran = place.run(&[&call[..], &["--cpu-budget", "20%"]].concat());
    assert_eq!((ran.status, ran.out.as_str(), ran.err.as_str()), (0, "", ""), "silent with --quiet");

    let snapshots = place.regions("isotherm.rec");
    let (precision, recall) = precision_and_recall(&snapshots[snapshots.len() / 2..], workload.area("hot"));
    assert!(precision >= 0.8 && recall >= 0.8, "precision {precision}, recall {recall}");
    assert!(snapshots.iter().all(|s| s["regions"].as_array().unwrap().len() <= 1000));

    let recording = Recording::open(&place.path("isotherm.rec")).unwrap();
    assert_eq!(recording.ending(), Ending::Whole);
    assert_eq!((recording.header().probe.as_str(), recording.header().seed), ("bpf", 1));
    let last = recording.snapshots().last().unwrap().unwrap();
    let last = last.rows().last().unwrap();
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
    assert_eq!(document["auto_physical"].as_str(), best.filter(|&name| name != "refs"));
    assert_eq!(place.run(&["record", "--", "sleep", "2"]).status, 0);
    let recording = Recording::open(&place.path("isotherm.rec")).unwrap();
    assert_eq!(Some(recording.header().probe.as_str()), best);
}

#[test]
fn physical_memory_is_surveyed_through_the_page_tables_of_all_processes() {
    or_skip!(bpf_works());
    let place = Place::new();
    std::fs::write(place.path("hot.toml"), HOT_IN_COLD.replace("1000s", "5s")).unwrap();
    // The shared memory of the machine's other processes is left in peace.
    let how = ["record", "--physical", "--probe", "bpf", "--shared", "never", "--survey", "200ms", "--aggr", "500ms"];
    let ran = place.run(&[&how[..], &["--", ISOTHERM, "workload", "hot.toml"]].concat());
    assert_eq!(ran.status, 0, "{ran:?}");
    let said = ["physical memory", "page tables of processes", "left out", "page cache", "memory of the kernel"];
    assert!(said.iter().all(|said| ran.err.contains(said)), "{}", ran.err);

    let recording = Recording::open(&place.path("isotherm.rec")).unwrap();
    assert_eq!(recording.header().probe, "bpf");
    let (mut resident, mut touched, mut idle) = (0, 0, 0);
    for record in recording.surveys() {
        let survey = record.unwrap().survey;
        let [target] = &survey.targets[..] else { panic!("{survey:?}") };
        assert_eq!(target.id, TargetId::PhysicalMemory);
        let total = target.total();
        assert!(total.figures.present <= isotherm_kernel::Host::read().memory_bytes);
        (resident, touched) = (resident.max(total.figures.present), touched.max(total.figures.touched));
        idle = idle.max(total.figures.present.saturating_sub(total.within[0] + total.figures.unobservable));
    }
    // The workload has 16 MiB hot and 112 MiB cold. What else the machine does is not known.
    assert!(resident >= 128 << 20 && touched >= 15 << 20 && idle >= 100 << 20, "{resident} {touched} {idle}");

    let summary = place.run(&["report", "summary"]).out;
    assert!(summary.contains("physical memory that processes map") && summary.contains("System RAM"), "{summary}");
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
fn the_working_set_of_an_ordinary_user_is_exact_within_a_mapping() {
    // All areas are one mapping.
    let place = Place::new();
    std::fs::write(place.path("hot.toml"), HOT_IN_COLD).unwrap();
    let workload = Kept(or_skip!(place.as_nobody(&["workload", "hot.toml"])).spawn().unwrap());
    let pid = workload.0.id().to_string();
    let call = ["record", "-q", "-o", "isotherm.rec", "--cpu-budget", "50%", "--pid", &pid];
    let command = or_skip!(place.as_nobody(&call));
    // Beside the hot area, the workload accesses its code, stack and libraries. The median is of the whole recording.
    record_by(command, &place.path("isotherm.rec"), "the working set is the hot area", |_| {
        let wss: Value = serde_json::from_str(&place.run(&["report", "wss", "-f", "json"]).out).unwrap_or_default();
        wss["percentiles"]["50"].as_u64().is_some_and(|median| (16 << 20..32 << 20).contains(&median))
    });
    let heatmap = place.run(&["report", "heatmap"]).out;
    assert!(heatmap.contains("pid ") && heatmap.contains(" in memory, "), "{heatmap}");
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
fn a_command_that_ends_at_once_has_a_recording_and_its_status() {
    let place = Place::new();
    let record = |script: &str| {
        let how = ["record", "--probe", "refs", "--sample", "500ms", "--aggr", "100s", "--", "sh", "-c", script];
        let ran = place.run(&how);
        let recording = Recording::open(&place.path("isotherm.rec")).unwrap();
        assert_eq!(recording.ending(), Ending::Whole, "{ran:?}");
        (ran, recording.snapshots().map(Result::unwrap).collect::<Vec<_>>())
    };
    let (ran, snapshots) = record("exit 3");
    assert!(ran.status == 3 && snapshots.len() <= 1, "{ran:?}");
    // The command has ended before or after the first mappings were read.
    let none = ran.err.contains("no snapshot was recorded") && ran.err.contains("--sample");
    assert_eq!(none, snapshots.is_empty(), "{ran:?}");
    let report = place.run(&["report", "summary"]);
    assert_eq!(report.err.contains("nothing was recorded"), none, "{report:?}");
    assert_eq!(place.run(&["record", "-q", "--", "/bin/true"]).status, 0);
    assert_eq!(place.run(&["record", "-q", "--physical", "--", "/bin/false"]).status, 1);

    // What there was is a snapshot of the time so far.
    let (ran, snapshots) = record("sleep 1.5; kill -9 $$");
    assert_eq!((ran.status, snapshots.len()), (137, 1), "{ran:?}");
    let snapshot = &snapshots[0].snapshot;
    assert!(snapshot.aggregation.as_millis() >= 100 && snapshot.aggregation.as_secs() < 100, "{snapshot:?}");
    assert!(snapshot.time >= snapshot.aggregation && snapshot.regions().count() > 0, "{snapshot:?}");
    let report = place.run(&["report", "summary"]);
    assert_eq!(report.status, 0, "{report:?}");
}

#[test]
fn a_command_runs_as_the_user_who_called_sudo_or_whom_an_option_names() {
    let place = Place::new();
    if !common::is_root() {
        let ran = place.run(&["record", "--user", "root", "--", "true"]);
        assert!(ran.status == 1 && ran.err.contains("only root"), "{ran:?}");
        return isotherm_testing::skip("starting a command as another user takes root");
    }
    let script = r#"id -u; id -g; id -G; echo "$HOME $USER $LOGNAME $SHELL ${SUDO_UID-none} ${KEPT-none}""#;
    let record = |options: &[&str], sudo: Option<&str>| {
        let mut command = place.isotherm(&["record", "--probe", "refs"]);
        command.args(options).args(["--", "sh", "-c", script]).env("KEPT", "kept");
        command.envs(sudo.map(|uid| ("SUDO_UID", uid)));
        Ran::new(command.output().unwrap())
    };
    // Who is in several groups, too.
    let output = |words: &[&str]| String::from_utf8(Command::new(words[0]).args(&words[1..]).output().unwrap().stdout);
    let users = output(&["getent", "passwd"]).unwrap();
    for line in users.lines() {
        let [name, _, uid, gid, _, home, shell] = line.split(':').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let groups = output(&["id", "-G", name]).unwrap();
        let environment = format!("{home} {name} {name} {shell} none kept");
        let expected = [uid, gid, groups.trim(), &environment].join("\n") + "\n";
        if uid == "0" || !["nobody", "daemon", "mail"].contains(&name) && groups.split(' ').count() < 2 {
            continue;
        }
        for (options, sudo) in [(&["--user", name][..], None), (&["--user", uid], Some("1")), (&[], Some(uid))] {
            let ran = record(options, sudo);
            assert_eq!((ran.status, &ran.out), (0, &expected), "{options:?} {sudo:?}: {}", ran.err);
            let said = ran.err.contains(&format!("the command runs as {name}, who called sudo"));
            assert_eq!(said, options.is_empty(), "{}", ran.err);
        }
        assert!(!record(&["-q"], Some(uid)).err.contains("sudo"));
    }
    for (options, sudo) in [(&["--user", "root"][..], Some("65534")), (&[], Some("0")), (&[], None)] {
        let ran = record(options, sudo);
        assert!(ran.status == 0 && ran.out.starts_with("0\n0\n"), "{options:?} {sudo:?}: {ran:?}");
    }
    for (options, sudo, words) in [
        (&["--user", "no-such-user"][..], None, "there is no user no-such-user (check the name)"),
        (&[], Some("4294967294"), "there is no user 4294967294 (name one with --user"),
        (&[], Some("me"), "there is no user me"),
    ] {
        let ran = record(options, sudo);
        assert!(ran.status == 1 && ran.err.contains(words) && ran.out.is_empty(), "{ran:?}");
    }
    let ran = or_skip!(place.run_as_nobody(&["record", "--user", "root", "--", "true"]));
    assert!(ran.status == 1 && ran.err.contains("only root can start a command as root"), "{ran:?}");
}

#[test]
fn signals_are_passed_to_the_command() {
    let place = Place::new();
    let script = "trap 'exit 3' TERM; trap 'echo usr1' USR1; echo ready; while :; do sleep 0.05; done";
    let mut isotherm = place.isotherm(&["record", "--", "sh", "-c", script]);
    let mut isotherm = Kept(isotherm.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(isotherm.0.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
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
    Recording::open(&place.path("isotherm.rec")).is_ok_and(|recording| recording.snapshots().next().is_some())
}

#[test]
fn a_file_that_may_not_grow_ends_the_recording_but_not_the_command() {
    let place = Place::new();
    let script = "ulimit -f 128; exec \"$0\" record --intervals fixed -o full.rec -- sh -c 'sleep 6; echo done > done'";
    let output = Command::new("sh").args(["-c", script, ISOTHERM]).current_dir(place.dir.path()).output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("full.rec") && err.contains("too large"), "{err}");
    assert!(place.path("done").exists(), "the command came to its own end");
    assert!(!place.regions("full.rec").is_empty(), "what was recorded before is there");
}

#[test]
fn more_processes_are_watched_than_the_soft_limit_of_open_files_allows() {
    or_skip!(bpf_works());
    let place = Place::new();
    let command = "for i in $(seq 60); do sleep 8 & done; sleep 7";
    let script = format!("ulimit -S -n 64; exec \"$0\" record --probe bpf --children -- sh -c '{command}'");
    let output = Command::new("sh").args(["-c", &script, ISOTHERM]).current_dir(place.dir.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let recording = Recording::open(&place.path("isotherm.rec")).unwrap();
    let most = recording.snapshots().map(|record| record.unwrap().snapshot.targets.len()).max();
    assert!(most >= Some(60), "{most:?} targets");
}

#[test]
fn a_recording_ends_with_three_lines_unless_it_is_quiet() {
    let place = Place::new();
    let record = |options: &[&str]| {
        let arguments =
            [&["record", "--probe", "refs", "--duration", "3s"], options, &["--", "sleep", "1000"]].concat();
        let output = place.isotherm(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    let err = record(&[]);
    let lines: Vec<&str> = err.lines().collect();
    let [.., time, working_set, cost] = &lines[..] else { panic!("{err}") };
    assert!(time.starts_with("isotherm: ") && time.contains("snapshots, ") && time.contains("isotherm.rec"), "{err}");
    assert!(working_set.starts_with("  working set ") && working_set.contains("within"), "{err}");
    assert!(cost.contains("of a CPU, budget 1 %") && cost.contains("; not seen: "), "{err}");
    assert!(!record(&["--quiet"]).contains("working set"));
}

#[test]
fn a_time_limit_ends_the_command_that_isotherm_started() {
    let place = Place::new();
    let ran = place.run(&["record", "--duration", "1s", "--", "sleep", "1000"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    let snapshots = place.regions("isotherm.rec");
    let end = snapshots.last().expect("a snapshot")["time_ns"].as_u64().unwrap();
    assert!(end < 10_000_000_000, "{end} ns");
}

#[test]
fn children_join_and_leave() {
    let place = Place::new();
    // The process is alone for two seconds, and then has a child for three seconds.
    let script = "sleep 2; sh -c 'sleep 3; :'; sleep 2; :";
    // With tuned intervals, there may be no snapshot in two seconds.
    let intervals = ["--sample", "20ms", "--aggr", "200ms", "--update", "200ms", "--cpu-budget", "100%"];
    let ran = place.run(&[&["record", "--children"][..], &intervals, &["--", "sh", "-c", script]].concat());
    assert_eq!(ran.status, 0, "{ran:?}");
    let recording = Recording::open(&place.path("isotherm.rec")).unwrap();
    let records: Vec<_> = recording.snapshots().map(Result::unwrap).collect();
    let rows: Vec<_> = records.iter().flat_map(SnapshotRecord::rows).collect();
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
    let call = ["--aggr", "50ms", "--pid", &pid, "--pid", &pid];
    record_until(&place, &call, "there are two snapshots", |recording| recording.snapshots().count() >= 2);
    let snapshots = place.regions("a.rec");
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
    let targets = |recording: &Recording| -> Vec<TargetSnapshot> {
        recording.snapshots().flat_map(|record| record.unwrap().snapshot.targets).collect()
    };
    let mapped = |target: &TargetSnapshot| -> u64 { target.mappings.iter().map(|m| m.range.size()).sum() };
    // On a busy machine, a build without optimisation reads the mappings once in two seconds within 1 %.
    let how = ["--pid", &pid, "--update", "50ms", "--cpu-budget", "100%"];
    let recording = record_until(&place, &how, "updates see other mappings", |recording| {
        targets(recording).iter().map(mapped).collect::<HashSet<_>>().len() >= 2
    });
    assert!(python.0.try_wait().unwrap().is_none(), "the target continues");

    assert_eq!(recording.ending(), Ending::Whole);
    let targets = targets(&recording);
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
    let last = recording.snapshots().last().unwrap().unwrap();
    let last = last.rows().last().unwrap();
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
fn the_doctor_names_the_user_namespace_that_capabilities_are_of() {
    let place = Place::new();
    let mut command = std::process::Command::new("unshare");
    command.args(["--user", "--map-root-user", common::ISOTHERM, "doctor", "--format", "json"]);
    let ran = Ran::new(command.current_dir(place.dir.path()).output().unwrap());
    if ran.err.contains("unshare") {
        return isotherm_testing::skip(&ran.err);
    }
    let document = doctor(&ran);
    let why = probe(&document, "bpf")["why_not"].as_str().unwrap();
    // A kernel may lack what the probe needs before it comes to capabilities.
    assert!(!why.contains("seccomp"), "{why}");
    assert!(why.contains("user namespace of its own") || !why.contains("not permitted"), "{why}");
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
