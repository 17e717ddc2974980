//! `isotherm scheme`.

use serde_json::Value;

use crate::common::{self, HOT_IN_COLD, ISOTHERM, Place};

const PRCL: &str = "schemes:\n  - name: prcl\n    access_rate: 0%\n    age: {min: 1s}\n    action: pageout\n";

fn place(schemes: &str) -> Place {
    let place = Place::new();
    std::fs::write(place.path("mine.yaml"), schemes).unwrap();
    place
}

#[test]
fn the_schemes_of_a_correct_file_are_described() {
    let ran = place(PRCL).run(&["scheme", "check", "mine.yaml"]);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    assert!(ran.out.starts_with("prcl: reclaims memory at once"), "{}", ran.out);
    assert!(ran.out.contains("not accessed") && ran.out.contains("at least 1 s"), "{}", ran.out);
}

#[test]
fn every_error_of_a_file_is_printed_with_its_position() {
    let place = place(&PRCL.replace("age: {min: 1s}", "age: {mn: 1s}").replace("pageout", "swap"));
    for call in [["scheme", "check", "mine.yaml"], ["scheme", "try", "mine.yaml"]] {
        let ran = place.run(&call);
        assert_eq!((ran.status, ran.out.as_str()), (1, ""));
        let lines: Vec<&str> = ran.err.lines().collect();
        assert!(lines[0].starts_with("mine.yaml:4:11: ") && lines[0].ends_with("did you mean min?"), "{}", ran.err);
        assert!(lines[1].starts_with("mine.yaml:5:13: there is no action \"swap\""), "{}", ran.err);
    }
    let ran = place.run(&["scheme", "check", "other.yaml"]);
    assert_eq!(ran.status, 1);
    assert!(ran.err.contains("other.yaml: cannot be read: No such file"), "{}", ran.err);
}

#[test]
fn a_trial_shows_what_schemes_would_have_acted_on_and_what_their_quotas_held_back() {
    let place = place(&format!(
        "{PRCL}    quota: {{bytes: 1M, period: 100s}}\n  - name: all\n    age: {{min: 1s}}\n    action: stat\n"
    ));
    std::fs::write(place.path("pattern.toml"), HOT_IN_COLD).unwrap();
    // A debug build surveys too rarely within the default budget.
    let options = ["record", "--duration", "10s", "--cpu-budget", "20%", "--"];
    let recorded = place.run(&[&options[..], &[ISOTHERM, "workload", "pattern.toml"]].concat());
    assert!(place.path("isotherm.rec").exists(), "{recorded:?}");

    let free = PRCL.replace("1s", "1s..2s..8s");
    std::fs::write(place.path("free.yaml"), free).unwrap();
    let ran = place.run(&["scheme", "tune", "free.yaml", "-r", "isotherm.rec", "-o", "tuned", "--format", "json"]);
    assert_eq!(ran.status, 0, "{}", ran.err);
    let tuned: Value = serde_json::from_str(&ran.out).unwrap();
    // Most memory of the pattern is cold, and stays so.
    assert!(tuned["best"]["changed"]["rss"].as_f64().unwrap() < -20.0, "{tuned:#}");
    assert!(tuned["best"]["values"][0].as_f64().unwrap() < 4.0 && tuned["runs"] == Value::Array(vec![]), "{tuned:#}");
    let ran = place.run(&["scheme", "check", "tuned/tuned.yaml"]);
    assert_eq!(ran.status, 0, "{}", ran.err);

    let ran = place.run(&["scheme", "try", "mine.yaml", "--format", "json"]);
    assert_eq!(ran.status, 0, "{}", ran.err);
    let found: Value = serde_json::from_str(&ran.out).unwrap();
    let [prcl, all] = found["schemes"].as_array().unwrap().as_slice() else { panic!("{found:#}") };
    assert_eq!(prcl["bytes"], 1 << 20, "the quota, once");
    assert_eq!(found["sizes"], "present", "the recording has surveys");
    assert!(prcl["most_held_back_bytes"].as_u64().unwrap() > 50 << 20, "{prcl:#}");
    assert_eq!(prcl["quota_exceeded"], 1);
    assert!(all["distinct_bytes"].as_u64().unwrap() >= 100 << 20, "{all:#}");
    let steps = all["over_time"].as_array().unwrap();
    assert!(steps.iter().all(|step| step["time_ns"].as_u64().unwrap() >= 1_000_000_000), "nothing is old before");
    let sum: u64 = steps.iter().map(|step| step["bytes"].as_u64().unwrap()).sum();
    assert_eq!(all["bytes"], sum);

    let ran = place.run(&["scheme", "try", "mine.yaml", "isotherm.rec"]);
    assert_eq!(ran.status, 0, "{}", ran.err);
    for words in
        ["prcl (pageout)", "would have acted on  1 MiB in total", "quota held back", "largest of", "all (stat)"]
    {
        assert!(ran.out.contains(words), "{words:?} is not in {}", ran.out);
    }
}

#[test]
fn a_trial_notes_what_a_recording_does_not_contain() {
    let more = "    watermarks: {metric: pressure, high: 9%, mid: 5%, low: 0%}\n    filters: [{reject: young}]\n    \
                quota: {time: 1ms, goals: [{psi_some: 1ms}]}\n";
    let place = place(&format!("{PRCL}{more}"));
    assert_eq!(place.run(&["record", "--survey", "off", "--", "sleep", "1"]).status, 0);
    let ran = place.run(&["scheme", "try", "mine.yaml"]);
    assert_eq!(ran.status, 0, "{}", ran.err);
    assert!(ran.out.contains("\nnote: the recording has no survey: sizes are those of mapped memory"), "{}", ran.out);
    for words in ["young", "watermarks", "goals", "quota of time"] {
        assert!(
            ran.out.lines().any(|line| line.starts_with("note: prcl: ") && line.contains(words)),
            "{words}: {}",
            ran.out
        );
    }
}

#[test]
fn a_scheme_is_tuned_by_runs_of_a_program_and_goes_on_where_it_was_cut() {
    if !common::has_baseline() {
        return isotherm_testing::skip("transparent huge pages are set to always, so that there is no baseline");
    }
    let place = place("- {name: mine, action: stat, age: {min: 1s..2s..4s}}\n");
    let tune = |file: &str, runs: &str, more: &[&str]| {
        let with = "--with=--probe refs --sample 50ms --aggr 200ms";
        let options = ["scheme", "tune", file, "-n", runs, "-o", "out", "--score=-runtime - rss", with];
        place.run(&[&options[..], more, &["--", ISOTHERM, "workload", "zipfian", "--time", "1s"]].concat())
    };
    let ran = tune("mine.yaml", "2", &[]);
    assert_eq!(ran.status, 0, "{ran:?}");
    for part in ["best: the highest -runtime - rss", "usual", "age.min", "by 2 runs"] {
        assert!(ran.out.contains(part), "{part}: {}", ran.out);
    }
    let runs = || std::fs::read_to_string(place.path("out/runs.jsonl")).unwrap();
    let values: Vec<Value> =
        runs().lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["values"].take()).collect();
    assert_eq!((values.len(), &values[0], &values[2][0]), (4, &Value::Null, &Value::from(2.0)), "{values:?}");
    assert!(std::fs::read_to_string(place.path("out/tuning.svg")).unwrap().contains("age.min"));

    let again = tune("mine.yaml", "3", &[]);
    assert!(again.status == 1 && again.err.contains("--resume"), "{again:?}");
    let more = tune("mine.yaml", "3", &["--resume"]);
    assert!(more.status == 0 && runs().lines().count() == 5, "{more:?}");
    std::fs::write(place.path("mine.yaml"), "- {name: mine, action: stat, age: {min: 1s..3s}}\n").unwrap();
    let other = tune("mine.yaml", "3", &["--resume"]);
    assert!(other.status == 1 && other.err.contains("other schemes"), "{other:?}");
    std::fs::write(place.path("mine.yaml"), "- {name: mine, action: stat, age: {min: 3s..1s}}\n").unwrap();
    let wrong = tune("mine.yaml", "3", &["--resume"]);
    assert!(wrong.status == 1 && wrong.err.starts_with("mine.yaml:1:41: the range 3s..1s"), "{wrong:?}");
}
