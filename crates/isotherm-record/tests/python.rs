//! pyarrow, polars and DuckDB read a recording as it is.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use isotherm_record::Row;
use serde_json::{Value, json};

fn expected(rows: &[Row]) -> Vec<(&'static str, u64)> {
    let regions = || rows.iter().flat_map(|row| &row.target.regions);
    // Snapshots 1 to 20: mappings change with 7 and 14.
    vec![
        ("rows", rows.len() as u64),
        ("regions", regions().count() as u64),
        ("accesses", regions().map(|region| u64::from(region.nr_accesses)).sum()),
        ("mappings", 2 * 3 * 3),
        ("commands", 2),
        ("cpu_ns", rows.iter().filter_map(|row| row.cost).map(|cost| cost.cpu_ns).sum()),
    ]
}

fn read_with(library: &str) -> Option<Value> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let rows = common::record(&path, 20);
    let read = common::python(library, &path)?;
    for (name, value) in expected(&rows) {
        assert_eq!(read[name], json!(value), "{name}");
    }
    Some(read)
}

#[test]
fn polars_reads_a_recording() {
    read_with("polars");
}

#[test]
fn duckdb_reads_a_recording() {
    read_with("duckdb");
}

#[test]
fn pyarrow_reads_a_recording_and_finds_the_documented_schema() {
    let Some(read) = read_with("pyarrow") else { return };
    assert_eq!((&read["format"], &read["probe"], &read["torn"]), (&json!("1"), &json!("sim"), &json!(false)));
    let schema = [
        "time_ns: uint64 not null",
        "aggregation_ns: uint64 not null",
        "samples: uint32 not null",
        "pid: uint32 not null",
        "target: struct<command: string not null, started_unix_ns: uint64 not null>",
        "mappings: list<item: struct<start: uint64 not null, end: uint64 not null, permissions: string not null, \
         name: string not null> not null>",
        "regions: list<item: struct<start: uint64 not null, end: uint64 not null, nr_accesses: uint32 not null, \
         age: uint32 not null, nr_unobservable: uint32 not null> not null> not null",
        "cost: struct<rounds: uint32 not null, late_rounds: uint32 not null, reads: uint64 not null, \
         max_reads: uint32 not null, clears: uint64 not null, cpu_ns: uint64 not null, \
         unobservable_bytes: uint64 not null>",
    ];
    assert_eq!(read["schema"], json!(schema));
}
