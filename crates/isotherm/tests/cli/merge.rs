//! `isotherm merge`, with recordings that were made by two recorders at once.

use std::process::Child;

use serde_json::Value;

use crate::common::{self, Place};

/// A process that accesses memory until it is dropped.
struct Watched(Child);

impl Watched {
    fn new(place: &Place, name: &str) -> Self {
        std::fs::write(place.path(name), common::HOT_IN_COLD).unwrap();
        let mut command = place.isotherm(&["workload", name]);
        Self(command.stdout(std::process::Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn json(place: &Place, call: &[&str]) -> Value {
    let ran = place.run(&[call, &["--format", "json"]].concat());
    assert!(ran.status == 0, "{ran:?}");
    serde_json::from_str(&ran.out).unwrap()
}

#[test]
fn two_recorders_at_once_make_one_recording() {
    let place = Place::new();
    let watched = [Watched::new(&place, "a.toml"), Watched::new(&place, "b.toml")];
    let mut recorders: Vec<Child> = watched
        .iter()
        .zip(["a.rec", "b.rec"])
        .map(|(watched, name)| {
            let pid = watched.pid();
            let intervals = ["--sample", "20ms", "--aggr", "200ms", "--duration", "2s"];
            let call = [&["record", "-q", "--probe", "refs", "-o", name, "--pid", &pid][..], &intervals].concat();
            place.isotherm(&call).spawn().unwrap()
        })
        .collect();
    assert!(recorders.iter_mut().all(|recorder| recorder.wait().unwrap().success()));

    let ran = place.run(&["merge", "b.rec", "a.rec", "-o", "all.rec"]);
    assert!(ran.status == 0 && ran.err.contains("of 2 targets in all.rec"), "{ran:?}");
    assert_eq!(place.run(&["check", "all.rec"]).status, 0);
    let summary = json(&place, &["report", "summary", "all.rec"]);
    let mut pids: Vec<u64> =
        summary["targets"].as_array().unwrap().iter().map(|target| target["pid"].as_u64().unwrap()).collect();
    pids.sort_unstable();
    let mut expected = [&watched[0], &watched[1]].map(|watched| u64::from(watched.0.id()));
    expected.sort_unstable();
    assert_eq!(pids, expected);
    let rounds = |name: &str| json(&place, &["report", "overhead", name])["rounds"].as_u64().unwrap();
    assert_eq!(rounds("all.rec"), rounds("a.rec") + rounds("b.rec"));

    // The same process at the same time would count twice.
    let ran = place.run(&["merge", "all.rec", "a.rec", "-o", "twice.rec"]);
    assert_eq!(ran.status, 1, "{ran:?}");
    for part in ["all.rec", "a.rec", &format!("process {}", watched[0].pid()), "count twice"] {
        assert!(ran.err.contains(part), "{ran:?}");
    }
    assert!(!place.path("twice.rec").exists());
}

#[test]
fn at_least_two_recordings_are_merged_into_another_file() {
    let place = Place::new();
    place.make_recording("known.rec");
    let ran = place.run(&["merge", "known.rec", "-o", "all.rec"]);
    assert!(ran.status == 2 && ran.err.contains("REC"), "{ran:?}");
    let ran = place.run(&["merge", "known.rec", "none.rec", "-o", "all.rec"]);
    assert!(ran.status == 1 && ran.err.contains("none.rec"), "{ran:?}");
    let ran = place.run(&["merge", "known.rec", "known.rec", "-o", "known.rec"]);
    assert!(ran.status == 1 && ran.err.contains("an input of the same command"), "{ran:?}");
    assert_eq!(place.names(), ["known.damo", "known.rec"]);
}
