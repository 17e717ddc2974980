//! `isotherm tune` on real processes.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use isotherm_testing::or_skip;
use rustix::process::Signal;
use serde_json::Value;

use crate::common::{HOT_IN_COLD, ISOTHERM, Kept, Place, bpf_works, eventually, signal};

const MIB: u64 = 1 << 20;

/// Starts a workload of 16 MiB hot and 112 MiB cold memory, and waits until it has its memory.
fn workload(place: &Place) -> Kept {
    std::fs::write(place.path("hot.toml"), HOT_IN_COLD).unwrap();
    let mut command = place.isotherm(&["workload", "hot.toml", "--announce"]);
    let mut child = Kept(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("areas"));
    child
}

fn advice<'a>(report: &'a Value, topic: &str) -> Option<&'a Value> {
    report["advice"].as_array().unwrap().iter().find(|advice| advice["topic"] == topic)
}

#[test]
fn a_workload_with_idle_memory_gets_figures_that_are_true_and_schemes_that_are_right() {
    or_skip!(bpf_works());
    let place = Place::new();
    let workload = workload(&place);
    let pid = workload.0.id().to_string();
    // Windows of 10 s need surveys over more than 10 s.
    let how = ["--probe", "bpf", "--survey", "500ms", "--duration", "14s", "--record", "tune.rec", "-q"];
    let ran = place.run(&[&["tune", "--pid", &pid, "--format", "json"], &how[..]].concat());
    assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{ran:?}");
    let report: Value = serde_json::from_str(&ran.out).unwrap();

    let bytes = |value: &Value| value.as_u64().unwrap();
    let found = &report["working_set"];
    assert_eq!(found["source"], "survey");
    let windows = found["windows"].as_array().unwrap();
    let ten = windows.iter().find(|window| window["window_ns"] == 10_000_000_000_u64).unwrap();
    assert!((14 * MIB..40 * MIB).contains(&bytes(&ten["median_bytes"])), "{ten}");
    assert!((100 * MIB..118 * MIB).contains(&bytes(&ten["idle"]["anonymous_bytes"])), "{ten}");
    assert!(bytes(&ten["peak_needed_bytes"]) >= bytes(&ten["peak_bytes"]), "{ten}");
    let options = report["attributes"]["options"].as_array().unwrap();
    assert!(options.iter().any(|option| option == "--survey"), "{options:?}");
    assert!(report["surroundings"]["anonymous"]["bytes"].as_u64() > Some(120 * MIB), "{}", report["surroundings"]);
    assert_eq!(report["surroundings"]["target_options"], format!("--pid {pid}"));

    // Without swap, the anonymous memory of the workload cannot be reclaimed.
    let has_swap = report["surroundings"]["swap"]["free_bytes"].as_u64().unwrap() > 200 * MIB;
    match advice(&report, "reclaim").map(|advice| &advice["figures"]) {
        Some(figures) if has_swap => assert!(bytes(&figures["reclaimable_bytes"]) > 100 * MIB, "{figures}"),
        Some(figures) => assert_eq!(figures["reclaimable_bytes"], figures["idle_file_bytes"]),
        None => assert!(!has_swap, "{report:#}"),
    }
    assert_eq!(advice(&report, "memory_limit").is_some(), has_swap, "{report:#}");
    let topics = report["advice"].as_array().unwrap().iter().chain(report["withheld"].as_array().unwrap());
    assert_eq!(topics.count(), 3);

    // The options are right: they can be copied.
    let options: Vec<&str> = options.iter().map(|option| option.as_str().unwrap()).collect();
    let again = [&["record", "-q", "-o", "again.rec", "--pid", &pid, "--duration", "4s"], &options[..]].concat();
    assert_eq!(place.run(&again).status, 0, "{options:?}");

    // The same from the recording, but for the options that name the target.
    let ran = place.run(&["report", "tune", "tune.rec", "--format", "json"]);
    let mut recorded: Value = serde_json::from_str(&ran.out).unwrap();
    assert!(recorded["surroundings"]["swap"].is_object() && recorded["surroundings"]["anonymous"].is_object());
    recorded["surroundings"]["target_options"] = report["surroundings"]["target_options"].clone();
    assert_eq!(recorded, report);
    for advice in recorded["advice"].as_array().unwrap() {
        let Some(scheme) = advice["scheme"].as_str() else { continue };
        std::fs::write(place.path("scheme.yaml"), scheme).unwrap();
        for call in [&["scheme", "check", "scheme.yaml"][..], &["scheme", "try", "scheme.yaml", "tune.rec"]] {
            let ran = place.run(call);
            assert_eq!(ran.status, 0, "{scheme}: {ran:?}");
        }
    }
}

#[test]
fn an_interrupt_ends_early_with_what_is_known_and_leaves_no_recording() {
    or_skip!(bpf_works());
    let place = Place::new();
    let workload = workload(&place);
    let pid = workload.0.id().to_string();
    let temporary = place.path("temporary");
    std::fs::create_dir(&temporary).unwrap();
    let mut command = place.isotherm(&["tune", "--pid", &pid, "--probe", "bpf", "--survey", "200ms", "-o", "tune.txt"]);
    let mut isotherm = Kept(command.env("TMPDIR", &temporary).stderr(Stdio::null()).spawn().unwrap());
    // The recording has no name. Of the files that isotherm has open, it is the one that can be read as a recording.
    let open = format!("/proc/{}/fd", isotherm.0.id());
    let surveys = |path: std::path::PathBuf| {
        let found = isotherm_record::Recording::open(&path).ok()?;
        Some(found.surveys().filter(Result::is_ok).count())
    };
    eventually("there are surveys in the recording", || {
        let paths = std::fs::read_dir(&open).unwrap().filter_map(|entry| Some(entry.ok()?.path()));
        paths.filter_map(surveys).any(|surveys| surveys >= 3)
    });
    let names = || std::fs::read_dir(&temporary).unwrap().count();
    assert_eq!(names(), 0, "the recording would be left if isotherm were killed");
    signal(&isotherm.0, Signal::INT);
    assert!(isotherm.0.wait().unwrap().success());
    let text = std::fs::read_to_string(place.path("tune.txt")).unwrap();
    // A busy machine gives one more warning.
    assert!(text.starts_with('!') && text.contains("! little evidence: the surveys cover "), "{text}");
    assert!(text.contains("\nno advice\n") && text.contains(&format!("--pid {pid}")), "{text}");
    assert_eq!(names(), 0);
    let mode = std::fs::metadata(place.path("tune.txt")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_command_is_watched_to_its_end_and_gives_the_exit_status() {
    or_skip!(bpf_works());
    let place = Place::new();
    let script = format!("{ISOTHERM} workload stairs --time 2s; exit 7");
    let ran = place.run(&["tune", "-q", "--probe", "bpf", "--children", "--", "sh", "-c", &script]);
    assert_eq!(ran.status, 7, "{ran:?}");
    assert!(ran.out.contains("working set") && ran.out.contains("--children"), "{ran:?}");
}

#[test]
fn wrong_calls_are_refused() {
    let place = Place::new();
    let refused = |arguments: &[&str], words: &str| {
        let ran = place.run(arguments);
        assert!(ran.status == 2 && ran.err.contains(words), "{ran:?}");
    };
    refused(&["tune"], "name processes with --pid");
    refused(&["tune", "--pid", "1", "-o", "tune.png"], "use --format text or json");
    refused(&["report", "tune", "--format", "svg"], "[possible values: text, json]");
    refused(&["tune", "--pid", "1", "--dry-run"], "--apply");
    refused(&["tune", "--pid", "1", "--apply"], "select them by --cgroup, --unit or --container");
    refused(&["tune", "--apply", "--", "true"], "name them with --cgroup, --unit or --container");
    refused(&["tune", "--cgroup", "/a", "--apply", "--duration", "30s"], "needs a --duration of 80 s or more");
}

#[test]
fn where_cgroups_cannot_be_limited_nothing_is_watched_for_that() {
    let is_v1 = std::fs::read_to_string("/proc/self/cgroup").is_ok_and(|text| text.contains(":memory:"));
    or_skip!(is_v1.then_some(()).ok_or("memory is not accounted by cgroups of version 1"));
    let ran = Place::new().run(&["tune", "--cgroup", "/a", "--apply"]);
    assert!(ran.status == 1 && ran.out.is_empty() && ran.err.contains("version 1"), "{ran:?}");
    assert!(ran.err.contains("without --apply says what it would be"), "{ran:?}");
}
