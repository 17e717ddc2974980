//! `isotherm fleet`: a dataset as its users make it.

use serde_json::Value;

use crate::common::Place;

#[test]
fn a_made_fleet_is_whole_and_a_file_that_is_cut_short_is_named() {
    let place = Place::new();
    let made = place.run(&["fleet", "generate", "made", "--hosts", "2", "--services", "2", "--truth"]);
    assert_eq!(made.status, 0, "{made:?}");
    let truth: Value = serde_json::from_str(&made.out).unwrap();
    assert_eq!(truth["hosts"].as_object().unwrap().len(), 2);
    assert_eq!(place.run(&["fleet", "check", "made"]).status, 0);
    let again = place.run(&["fleet", "generate", "made"]);
    assert!(again.status == 1 && again.err.contains("made exists"), "{again:?}");
    let compacted = place.run(&["fleet", "compact", "made"]);
    assert_eq!((compacted.status, &*compacted.out), (0, "0 days of hosts, made of 0 files\n"));

    let folder = std::fs::read_dir(place.path("made")).unwrap().next().unwrap().unwrap().path();
    let file = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path().join("day.parquet");
    let whole = std::fs::read(&file).unwrap();
    let mut damaged = whole.clone();
    damaged[whole.len() / 3..whole.len() / 2].fill(0x5a);
    std::fs::write(&file, &damaged).unwrap();
    assert_eq!(place.run(&["fleet", "check", "made"]).status, 0);
    let checked = place.run(&["fleet", "check", "--whole", "made"]);
    assert!(checked.status == 1 && checked.err.contains("day.parquet is cut short, damaged"), "{checked:?}");
    std::fs::write(&file, &whole[..whole.len() - 1]).unwrap();
    let checked = place.run(&["fleet", "check", "made"]);
    assert!(checked.status == 1 && checked.err.contains("day.parquet is cut short"), "{checked:?}");
    let checked = place.run(&["fleet", "check", "none"]);
    assert!(checked.status == 1 && checked.err.contains("none cannot be used: No such file"), "{checked:?}");
}

#[test]
fn views_are_listed_and_printed() {
    let place = Place::new();
    let listed = place.run(&["fleet", "views"]);
    assert!(listed.status == 0 && listed.out.lines().count() == 7, "{listed:?}");
    assert!(listed.out.lines().all(|line| line.chars().count() <= 110), "{listed:?}");
    let idle = place.run(&["fleet", "views", "idle"]);
    assert!(idle.out.starts_with("-- Idle memory by service") && idle.out.contains("FROM fleet\n"), "{idle:?}");
    let none = place.run(&["fleet", "views", "nothing"]);
    assert!(none.status == 1 && none.err.contains("no view nothing (there are cost, fast_memory,"), "{none:?}");
}

#[test]
fn what_is_no_history_and_what_is_of_no_machine_is_refused() {
    let place = Place::new();
    place.make_recording("known.rec");
    let wrote = place.run(&["fleet", "write", "--to", "fleet", "known.rec"]);
    assert!(wrote.status == 1 && wrote.err.contains("known.rec does not say which machine it is of"), "{wrote:?}");
    std::fs::create_dir(place.path("history")).unwrap();
    let wrote = place.run(&["fleet", "write", "--to", "fleet", "history"]);
    assert!(wrote.status == 1 && wrote.err.contains("history has no history"), "{wrote:?}");
    let wrote = place.run(&["fleet", "write", "--to", "fleet", "none.rec"]);
    assert!(wrote.status == 1 && wrote.err.contains("none.rec"), "{wrote:?}");
    assert!(!place.path("fleet").exists());
}
