//! Which code maps memory: recorded, and reported.

use isotherm_probes::stacks::StackTracer;
use isotherm_testing::or_skip;
use serde_json::Value;

use crate::common::{HOT_IN_COLD, ISOTHERM, Place};

#[test]
fn the_functions_of_a_command_that_hold_memory_are_told_with_how_much() {
    or_skip!(StackTracer::open().map_err(|error| isotherm_core::chain(&error)));
    let place = Place::new();
    std::fs::write(place.path("work.toml"), HOT_IN_COLD.replace("1000s", "3s")).unwrap();
    let ran = place.run(&["record", "--stacks", "--", ISOTHERM, "workload", "work.toml"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    let ran = place.run(&["report", "summary", "--by", "stack", "--format", "json"]);
    let summary: Value = serde_json::from_str(&ran.out).unwrap();
    let groups = summary["groups"].as_array().unwrap();
    let largest = groups.iter().max_by_key(|group| group["size_bytes"].as_u64()).unwrap();
    let mut functions = largest["frames"].as_array().unwrap().iter().filter_map(|frame| frame["function"].as_str());
    assert!(functions.clone().any(|function| function.contains("workload")), "{largest}");
    assert_eq!(functions.next_back(), Some("_start"), "the stack is whole");
    assert_eq!(place.run(&["check"]).status, 0);
}

#[test]
fn stacks_are_those_of_processes_and_of_the_summary() {
    let place = Place::new();
    place.make_recording("a.rec");
    let ran = place.run(&["record", "--stacks", "--physical"]);
    assert_eq!(ran.status, 2, "{ran:?}");
    let ran = place.run(&["report", "wss", "--by", "stack", "a.rec"]);
    assert!(ran.status == 2 && ran.err.contains("[possible values: process,"), "{ran:?}");
    let ran = place.run(&["report", "summary", "--by", "stack", "a.rec"]);
    assert!(ran.status == 1 && ran.err.contains("record with --stacks"), "{ran:?}");
}
