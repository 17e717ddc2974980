//! pyarrow, polars and DuckDB read a recording as it is.

use isotherm_testing::installed_or_skip;
use serde_json::{Value, json};

use crate::common::{self, Row};

fn expected(rows: &[Row], activities: usize) -> Vec<(&'static str, u64)> {
    let regions = || rows.iter().flat_map(|row| &row.target.regions);
    // Snapshots 1 to 20: mappings change with 7 and 14.
    vec![
        ("rows", (rows.len() + activities) as u64),
        ("regions", regions().count() as u64),
        ("accesses", regions().map(|region| u64::from(region.nr_accesses)).sum()),
        ("mappings", 2 * 3 * 3),
        ("commands", 2),
        ("cpu_ns", rows.iter().filter_map(|row| row.cost).map(|cost| cost.cpu_ns).sum()),
    ]
}

/// Reads two recordings with a library and holds the sums against what was recorded: one without schemes, one with what
/// schemes did. An error is the reason to skip the test.
fn read_with(library: &str) -> Result<[Value; 2], String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let rows = common::record(&path, 20);
    let read = common::python(library, &path)?;
    for (name, value) in expected(&rows, 0) {
        assert_eq!(read[name], json!(value), "{name}");
    }
    let (rows, activities) = common::record_with_activities(&path, 20);
    let with_activities = common::python(library, &path)?;
    for (name, value) in expected(&rows, activities.len()) {
        assert_eq!(with_activities[name], json!(value), "{name}");
    }
    let applied: u64 = activities.iter().flat_map(|a| &a.schemes).map(|scheme| scheme.total.applied_bytes).sum();
    assert_eq!(with_activities["applied_bytes"], json!(applied));
    Ok([read, with_activities])
}

#[test]
fn polars_reads_a_recording() {
    installed_or_skip!(read_with("polars"));
}

#[test]
fn duckdb_reads_a_recording() {
    installed_or_skip!(read_with("duckdb"));
}

#[test]
fn pyarrow_reads_a_recording_and_finds_the_documented_schema() {
    let [read, with_activities] = installed_or_skip!(read_with("pyarrow"));
    for read in [&read, &with_activities] {
        assert_eq!((&read["format"], &read["probe"], &read["torn"]), (&json!("4"), &json!("sim"), &json!(false)));
    }
    let id = "struct<type: string not null, pid: uint32, start_ns: uint64, cgroup: uint64>";
    let regions = "list<item: struct<gap_bytes: uint64 not null, absent_bytes: uint64 not null, \
        nr_accesses: uint32 not null, nr_samples: uint32 not null, since: uint32 not null, \
        nr_unobservable: uint32 not null, hz: float, hz_factor_tenths: uint16> not null>";
    let schema = [
        "kind: string not null".to_owned(),
        "time_ns: uint64 not null".to_owned(),
        "aggregation_ns: uint64".to_owned(),
        "samples: uint32".to_owned(),
        "snapshot: uint32".to_owned(),
        format!("id: {id}"),
        "target: struct<command: string not null, started_unix_ns: uint64 not null, cgroup: string, inner_pid: uint32>"
            .to_owned(),
        "mappings: list<item: struct<start: uint64 not null, end: uint64 not null, permissions: string not null, \
         name: string not null, node: uint32> not null>"
            .to_owned(),
        format!("regions: {regions}"),
        "cost: struct<rounds: uint32 not null, late_rounds: uint32 not null, sampled_rounds: uint32, \
         reads: uint64 not null, max_reads: uint32 not null, clears: uint64 not null, cpu_ns: uint64 not null, \
         other_cpu_ns: uint64, limited: bool, not_afforded: struct<surveys: bool not null, samples: bool not null, \
         mappings: bool not null, clears: bool not null>, unobservable_bytes: uint64 not null>"
            .to_owned(),
        format!("merged: struct<time_ns: uint64 not null, regions: {regions} not null>"),
    ];
    assert_eq!(read["schema"], json!(schema));

    let activity = format!(
        "activity: struct<time_ns: uint64 not null, \
        schemes: list<item: struct<name: string not null, \
        action: struct<name: string not null, target_node: uint32> not null, awake: bool not null, \
        quota_bytes: uint64, goal_score: double, quota_share: double, \
        total: struct<applications: uint64 not null, tried_regions: uint64 not null, tried_bytes: uint64 not null, \
        passed_bytes: uint64 not null, applied_regions: uint64 not null, applied_bytes: uint64 not null, \
        rejected_bytes: uint64 not null, refusals: list<item: struct<reason: string not null, code: int32, \
        regions: uint64 not null, bytes: uint64 not null> not null> not null, \
        quota_exceeded: uint64 not null, spent_ns: uint64 not null, watched_bytes: uint64 not null, \
        returned_bytes: uint64 not null, unmapped_bytes: uint64 not null> not null, \
        last: struct<time_ns: uint64 not null, held_back_bytes: uint64 not null, \
        unobservable_bytes: uint64 not null, regions: list<item: struct<id: {id} not null, start: uint64 not null, \
        end: uint64 not null, applied_bytes: uint64 not null> not null> not null> not null> not null> not null, \
        memory: list<item: struct<id: {id} not null, resident_bytes: uint64 not null, \
        proportional_bytes: uint64, swapped_bytes: uint64 not null> not null> not null, \
        system: struct<total_bytes: uint64 not null, free_bytes: uint64 not null, available_bytes: uint64 not null, \
        swap_total_bytes: uint64 not null, swap_free_bytes: uint64 not null, stalled_ns: uint64> not null, \
        major_faults: uint64, compressed_growth_bytes: uint64, \
        surroundings: string>"
    );
    let mut schema = schema.to_vec();
    schema.insert(schema.len() - 1, activity);
    assert_eq!(with_activities["schema"], json!(schema));
}

/// The examples in the documentation, each as it stands there.
fn examples() -> Vec<String> {
    let documentation = include_str!("../../../../docs/recording.md");
    let blocks = documentation.split("```python\n").skip(1);
    blocks.map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn the_documented_examples_tell_what_was_recorded() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("isotherm.rec");
    let run = |example: &str| common::run_python(["-c", example], directory.path());
    let examples = examples();
    assert_eq!(examples.len(), 4);
    // Three tell the same of surveys.
    common::record_with_surveys(&path, 20);
    for example in &examples[..3] {
        let printed = installed_or_skip!(run(example));
        assert!(printed.contains("16384") && printed.contains("9"), "{printed}");
    }
    common::record_with_activities(&path, 6);
    let activities = installed_or_skip!(run(&examples[3]));
    assert_eq!(activities.lines().count(), 3 * 2, "{activities}");
    assert!(activities.contains("0.57 prcl 245760"), "{activities}");
}
