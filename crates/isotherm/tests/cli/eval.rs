//! `isotherm eval`, with programs that take a moment. The probe refs needs no privileges.

use std::fs;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{Kept, Place, eventually, has_baseline, signal};

/// Two programs that take a moment, and one that is not there.
const SUITE: &str = r#"
name: mine
about: tests
install: get it
workloads:
  - name: count
    prepare: echo $SCALE >scale
    command: sleep 2; cat scale; echo "took 1500 ms"
    runtime: {after: took, unit: ms}
  - name: splash2x/fft
    command: '"$ISOTHERM" workload zipfian --time 1500ms'
    files: true
  - name: gone
    needs: [no-such-program]
    command: no-such-program
"#;

const PROBE: &str = "--with=--probe refs --sample 50ms --aggr 200ms";

fn place() -> Place {
    let place = Place::new();
    fs::write(place.path("mine.yaml"), SUITE).unwrap();
    place
}

/// The runs of a directory of results.
fn runs(place: &Place, directory: &str) -> Vec<Value> {
    let text = fs::read_to_string(place.path(directory).join("runs.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The reason to skip a test.
const NO_BASELINE: &str = "transparent huge pages are set to always, so that there is no baseline";

#[test]
fn programs_run_under_each_configuration_and_the_report_has_their_figures() {
    if !has_baseline() {
        return isotherm_testing::skip(NO_BASELINE);
    }
    let place = place();
    let run = ["eval", "run", "-s", "mine.yaml", "--configs", "rec", "-n", "2", "-o", "out", PROBE];
    let ran = place.run(&run);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(ran.err.contains("gone is not run: no-such-program is not in $PATH; get it"), "{}", ran.err);
    assert!(ran.err.contains("8/8") && ran.err.contains(" left"), "{}", ran.err);

    let found = runs(&place, "out");
    assert_eq!(found.len(), 8);
    let of = |workload: &str, configuration: &str| {
        let is_it = |run: &&Value| run["workload"] == workload && run["configuration"] == configuration;
        found.iter().filter(is_it).collect::<Vec<_>>()
    };
    assert_eq!(of("count", "orig")[1]["seconds"], 1.5);
    let recorded = of("splash2x/fft", "rec")[0];
    assert!(recorded["isotherm"]["cpu_seconds"].as_f64().unwrap() > 0.0, "{recorded}");
    // It touches 256 MiB.
    assert!(recorded["rss"].as_f64().unwrap() > 1e8, "{recorded}");
    assert!(of("splash2x/fft", "orig")[0]["isotherm"].is_null());
    // The second round begins with another configuration.
    let order: Vec<_> = found.iter().take(4).map(|run| run["configuration"].as_str().unwrap()).collect();
    assert_eq!(order, ["orig", "rec", "rec", "orig"]);

    let again = place.run(&run);
    assert!(again.status == 1 && again.err.contains("--resume"), "{again:?}");
    let more = place.run(&[
        "eval",
        "run",
        "-s",
        "mine.yaml",
        "--only",
        "count",
        "-n",
        "3",
        "-o",
        "out",
        "--resume",
        "--configs",
        "rec",
        PROBE,
    ]);
    assert_eq!(more.status, 0, "{more:?}");
    assert_eq!(runs(&place, "out").len(), 10);

    let text = place.run(&["eval", "report", "out"]);
    assert_eq!(text.status, 0, "{text:?}");
    for part in ["splash2x/fft", "rec, %", "gone: no-such-program", "total", "isotherm CPU, %"] {
        assert!(text.out.contains(part), "{part}: {}", text.out);
    }
    let page = place.run(&["eval", "report", "out", "-o", "page.html"]);
    assert_eq!(page.status, 0, "{page:?}");
    assert!(fs::read_to_string(place.path("page.html")).unwrap().contains("data:image/svg+xml;base64,"));
    let json = place.run(&["eval", "report", "out", "-f", "json"]);
    let report: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(report["tables"][0]["rows"][1]["cells"][1]["configuration"], "rec");
    let wrong = place.run(&["eval", "report", "out", "-o", "page.doc"]);
    assert!(wrong.status == 2 && wrong.err.contains(".doc"), "{wrong:?}");
}

#[test]
fn a_program_that_fails_is_a_result_and_is_run_again() {
    if !has_baseline() {
        return isotherm_testing::skip(NO_BASELINE);
    }
    let place = place();
    let suite = "name: bad\nworkloads:\n  - {name: a, command: echo it is broken; test -e ../../../mended}\n";
    fs::write(place.path("bad.yaml"), suite).unwrap();
    let run = ["eval", "run", "-s", "bad.yaml", "--configs", "orig", "-n", "1", "-o", "out"];
    let ran = place.run(&run);
    assert!(ran.status == 1 && ran.err.contains("it is broken") && ran.err.contains("--resume"), "{ran:?}");
    assert_eq!(place.run(&["eval", "report", "out"]).status, 1);
    fs::write(place.path("mended"), "").unwrap();
    let ran = place.run(&[&run[..], &["--resume"]].concat());
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(place.run(&["eval", "report", "out"]).status, 0);
}

#[test]
fn an_interrupted_evaluation_ends_its_programs_and_keeps_what_it_has() {
    if !has_baseline() {
        return isotherm_testing::skip(NO_BASELINE);
    }
    let place = place();
    let suite = "name: long\nworkloads:\n  - {name: a, command: echo $$ >pid; exec sleep 1000}\n";
    fs::write(place.path("long.yaml"), suite).unwrap();
    let run = ["eval", "run", "-s", "long.yaml", "--configs", "orig", "-o", "out"];
    let mut running = Kept(place.isotherm(&run).stderr(Stdio::null()).spawn().unwrap());
    let pid = place.path("out/work/long-a/pid");
    eventually("the program runs", || fs::read_to_string(&pid).is_ok_and(|pid| pid.ends_with('\n')));
    signal(&running.0, Signal::INT);
    assert_eq!(running.0.wait().unwrap().code(), Some(1));
    let program = fs::read_to_string(&pid).unwrap();
    let stat = format!("/proc/{}/stat", program.trim());
    let runs_still = || fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z"));
    eventually("the program has ended", || !runs_still());
    assert_eq!(runs(&place, "out"), Vec::<Value>::new());
}

#[test]
fn what_cannot_be_run_is_refused_with_what_would_allow_it() {
    let place = place();
    let run = |more: &[&str]| place.run(&[&["eval", "run", "-s", "mine.yaml", "-o", "out"], more].concat());
    let ran = run(&["--only", "nothing"]);
    assert!(ran.status == 1 && ran.err.contains("count, splash2x/fft, gone"), "{ran:?}");
    let ran = run(&["--only", "gone"]);
    assert!(ran.status == 1 && ran.err.contains("no-such-program is not in $PATH; get it"), "{ran:?}");
    let ran = place.run(&["eval", "run", "-s", "parsec-splash2x", "-o", "out"]);
    assert!(ran.status == 2 && ran.err.contains("--parsec DIR"), "{ran:?}");
    if !fs::read_to_string("/proc/swaps").unwrap().contains('/') {
        let ran = run(&["--only", "count", "--configs", "prcl"]);
        assert!(ran.status == 1 && ran.err.contains("--may-change swap"), "{ran:?}");
    }
    fs::write(place.path("mine.yaml"), "name: x\nworkloads:\n  - {name: a, comand: b}\n").unwrap();
    let ran = run(&[]);
    assert!(ran.status == 1 && ran.err.starts_with("mine.yaml:3:15: "), "{ran:?}");
    assert!(!place.path("out/runs.jsonl").exists());
}

#[test]
fn pressure_is_refused_with_what_would_allow_it_before_anything_is_made() {
    let place = place();
    let run = |more: &[&str]| place.run(&[&["eval", "pressure", "-s", "mine.yaml", "-o", "out", PROBE], more].concat());
    let ran = run(&["--only", "gone"]);
    assert!(ran.status == 1 && ran.err.contains("no-such-program is not in $PATH; get it"), "{ran:?}");
    let ran = run(&["--only", "fft", "--configs", "none", "--cgroup", "/no/such/cgroup"]);
    assert!(ran.status == 1 && ran.err.contains("memory cannot be limited: "), "{ran:?}");
    assert!(ran.err.contains("no cgroup"), "{ran:?}");
    fs::write(place.path("wrong.yaml"), "- {action: lock}\n").unwrap();
    let ran = run(&["--only", "fft", "--scheme", "mlock=wrong.yaml"]);
    assert!(ran.status == 1 && ran.err.contains("wrong.yaml:1:"), "{ran:?}");
    for wrong in [["--scheme", "none=wrong.yaml"], ["--limits", "101"], ["--configs", "thp"]] {
        assert_eq!(run(&wrong).status, 2, "{wrong:?}");
    }
    if !fs::read_to_string("/proc/swaps").unwrap().contains('/') {
        let ran = run(&["--only", "count", "--configs", "none"]);
        assert!(ran.status == 1 && ran.err.contains("--may-change swap"), "{ran:?}");
    }
    assert!(!place.path("out").exists());
}
