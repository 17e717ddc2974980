//! What schemes did comes back as it was recorded, and harms nothing else in a recording.

use std::time::Duration;

use isotherm_core::scheme::Report;
use isotherm_record::{Activity, Ending, Format, RecordError, Recorder, Recording, convert};
use isotherm_testing::installed_or_skip;
use serde_json::{Value, json};

use crate::common;

#[test]
fn what_schemes_did_is_read_as_it_was_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let (rows, activities) = common::record_with_activities(&path, 40);
    assert_eq!(activities.len(), 20);
    assert_eq!(common::read_activities(&path).unwrap(), activities);
    assert_eq!(common::read(&path).unwrap(), rows);
}

#[test]
fn a_recording_without_schemes_has_no_activities_and_no_column_for_them() {
    let directory = tempfile::tempdir().unwrap();
    let (plain, with) = (directory.path().join("a.rec"), directory.path().join("b.rec"));
    let rows = common::record(&plain, 12);
    assert_eq!(common::read_activities(&plain).unwrap(), []);
    assert_eq!(common::read(&plain).unwrap(), rows);
    assert!(!std::fs::read(&plain).unwrap().windows(8).any(|bytes| bytes == b"activity"));

    // A column for them that is not used changes nothing of what is read.
    let mut recorder = Recorder::create_with_activities(&with, &common::header()).unwrap();
    (1..=12).for_each(|i| recorder.write(&common::snapshot_record(i)).unwrap());
    recorder.finish().unwrap();
    assert_eq!(common::read_activities(&with).unwrap(), []);
    assert_eq!(common::read(&with).unwrap(), rows);
}

#[test]
fn an_activity_that_is_known_late_or_early_leaves_the_order_of_rows_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let mut recorder = Recorder::create_with_activities(&path, &common::header()).unwrap();
    let at = |ms| Activity { time: Duration::from_millis(ms), ..common::activity(1) };
    recorder.write_activity(&at(5)).unwrap();
    recorder.write(&common::snapshot_record(1)).unwrap();
    recorder.write(&common::snapshot_record(5)).unwrap();
    recorder.write_activity(&at(90)).unwrap();
    recorder.write_activity(&at(90)).unwrap();
    recorder.write_activity(&at(9000)).unwrap();
    recorder.write(&common::snapshot_record(6)).unwrap();
    recorder.finish().unwrap();

    let snapshots = [1, 5, 6].map(|i| (common::snapshot(i), common::cost(i)));
    assert_eq!(common::read(&path).unwrap(), common::rows_of(&snapshots));
    assert_eq!(common::read_activities(&path).unwrap(), [at(5), at(90), at(90), at(9000)]);
    let read = installed_or_skip!(common::python("pyarrow", &path));
    assert_eq!(read["times"], json!([0, 100, 100, 500, 500, 500, 500, 500, 600, 600].map(|ms| ms * 1_000_000_u64)));
    assert_eq!((&read["rows"], &read["activities"]), (&json!(10), &json!(4)));
    // Of the two schemes in each of the four.
    let applied = 4 * 2 * common::activity(1).schemes[0].total.applied_bytes;
    assert_eq!(read["applied_bytes"], json!(applied));
}

#[test]
fn an_activity_that_is_older_than_the_one_before_is_not_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let mut recorder = Recorder::create_with_activities(&path, &common::header()).unwrap();
    recorder.write_activity(&common::activity(4)).unwrap();
    let error = recorder.write_activity(&common::activity(3)).unwrap_err();
    assert!(matches!(error, RecordError::Encode { .. }), "{error}");
    recorder.write_activity(&common::activity(5)).unwrap();
    recorder.finish().unwrap();
    assert_eq!(common::read_activities(&path).unwrap(), [4, 5].map(common::activity));
}

#[test]
fn a_recording_without_a_column_for_activities_refuses_them_and_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let mut recorder = Recorder::create(&path, &common::header()).unwrap();
    let error = recorder.write_activity(&common::activity(1)).unwrap_err();
    assert!(matches!(error, RecordError::Encode { .. }), "{error}");
    recorder.write(&common::snapshot_record(1)).unwrap();
    recorder.finish().unwrap();
    assert_eq!(common::read(&path).unwrap().len(), 2);
}

#[test]
fn while_all_schemes_sleep_activities_are_handed_over_all_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let mut recorder = Recorder::create_with_activities(&path, &common::header()).unwrap();
    (1..=30).for_each(|i| recorder.write_activity(&common::activity(i)).unwrap());
    // As if it were killed here.
    let recording = Recording::open(&path).unwrap();
    assert_eq!(recording.ending(), Ending::Unfinished);
    let read: Vec<_> = recording.activities().collect::<Result<_, _>>().unwrap();
    assert!(read.len() >= 25, "{}", read.len());
    assert_eq!(read, (1..=read.len() as u32).map(common::activity).collect::<Vec<_>>());
}

#[test]
fn a_score_that_is_not_a_number_is_unknown() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let mut recorder = Recorder::create_with_activities(&path, &common::header()).unwrap();
    let scored = |i, goal_score| {
        let activity = common::activity(i);
        let schemes = activity.schemes.iter().map(|report| Report { goal_score, ..report.clone() }).collect();
        Activity { schemes, ..activity }
    };
    recorder.write_activity(&scored(1, Some(f64::INFINITY))).unwrap();
    recorder.write_activity(&scored(2, Some(f64::NAN))).unwrap();
    recorder.finish().unwrap();
    assert_eq!(common::read_activities(&path).unwrap(), [scored(1, None), scored(2, None)]);
}

#[test]
fn other_formats_have_the_same_rows_whether_there_are_activities_or_not() {
    let directory = tempfile::tempdir().unwrap();
    let (plain, with) = (directory.path().join("a.rec"), directory.path().join("b.rec"));
    common::record(&plain, 8);
    common::record_with_activities(&with, 8);
    let converted = |recording, format| {
        let output = directory.path().join("out");
        convert(&Recording::open(recording).unwrap(), &output, format).unwrap();
        std::fs::read(output).unwrap()
    };
    assert!(converted(&plain, Format::Csv) == converted(&with, Format::Csv));
    let json = |recording| serde_json::from_slice::<Value>(&converted(recording, Format::Json)).unwrap();
    let (plain, with) = (json(&plain), json(&with));
    assert_eq!((&plain["format"], &with["format"]), (&json!(4), &json!(4)));
    assert_eq!(plain["snapshots"], with["snapshots"]);
    assert_eq!((&plain["activities"], with["activities"].as_array().unwrap().len()), (&json!([]), 4));
}

#[test]
fn json_has_all_of_an_activity() {
    let directory = tempfile::tempdir().unwrap();
    let (path, output) = (directory.path().join("a.rec"), directory.path().join("a.json"));
    common::record_with_activities(&path, 2);
    convert(&Recording::open(&path).unwrap(), &output, Format::Json).unwrap();
    let document: Value = serde_json::from_slice(&std::fs::read(output).unwrap()).unwrap();
    let activity = &document["activities"][0];
    assert_eq!(activity["time_ns"], json!(170_000_000));
    assert_eq!(
        activity["schemes"][1],
        json!({
            "name": "hot \"ones\"", "action": {"name": "hugepage", "target_node": null},
            "awake": true, "quota_bytes": 2_097_152, "goal_score": 0.5, "quota_share": 0.5,
            "total": {
                "applications": 2, "tried_regions": 4, "tried_bytes": 245_760, "passed_bytes": 163_840,
                "applied_regions": 3, "applied_bytes": 81_920, "rejected_bytes": 40_960,
                "quota_exceeded": 1, "spent_ns": 14_000,
                "watched_bytes": 73_728, "returned_bytes": 65_536, "unmapped_bytes": 90_112,
                "refusals": [
                    {"code": 11, "reason": "busy", "regions": 2, "bytes": 8192},
                    {"code": 12, "reason": "other", "regions": 2, "bytes": 8192}
                ]
            },
            "last": {
                "time_ns": 160_000_000, "held_back_bytes": 6, "unobservable_bytes": 8,
                "regions": [
                    {"id": common::id_json(7), "start": 65_536, "end": 69_632, "applied_bytes": 0},
                    {"id": common::id_json(7), "start": 69_632, "end": 73_728, "applied_bytes": 4096}
                ]
            }
        })
    );
    assert_eq!((&activity["major_faults"], &activity["compressed_growth_bytes"]), (&json!(12), &json!(18)));
    let used = |pid| {
        json!({
            "id": common::id_json(pid),
            "resident_bytes": 1_048_578, "proportional_bytes": 1_048_577, "swapped_bytes": 2
        })
    };
    assert_eq!(activity["memory"], json!([used(7), used(9)]));
    assert_eq!(
        activity["system"],
        json!({
            "total_bytes": 8_589_934_592_u64, "free_bytes": 2_097_152, "available_bytes": 4_194_304,
            "swap_total_bytes": 1_073_741_824, "swap_free_bytes": 2, "stalled_ns": 2_000_000
        })
    );
}
