//! Recordings in other formats.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use isotherm_output::{OutputError, Refusal};
use isotherm_record::{ConvertError, Format, Recording, convert};
use isotherm_testing::installed_or_skip;
use serde_json::{Value, json};

use crate::common;

fn converted(directory: &Path, format: Format, snapshots: u32) -> PathBuf {
    let recording = directory.join("a.rec");
    common::record(&recording, snapshots);
    let output = directory.join("out");
    convert(&Recording::open(&recording).unwrap(), &output, format).unwrap();
    assert_eq!(std::fs::metadata(&output).unwrap().permissions().mode() & 0o777, 0o600);
    output
}

const HEADING: &str = "time_ns,pid,start,end,nr_accesses,samples,access_rate,age_ns,nr_unobservable,mapping,\
    nr_samples,target_type,start_ns,cgroup,present_bytes,touched_bytes,unobservable_bytes,unknown_bytes,\
    swapped_bytes,absent_bytes,aggregation_ns,access_hz\n";

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn csv_has_a_line_for_each_region() {
    let directory = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(converted(directory.path(), Format::Csv, 2)).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines[..5],
        [
            HEADING.trim_end(),
            "100000000,7,65536,81920,1,20,0.05,100000000,1,[heap],19,process,12340000000,,,,,,,,100000000,10.0",
            "100000000,7,81920,131072,0,20,0.0,100000000,1,[heap],19,process,12340000000,,,,,,,,100000000,0.0",
            "100000000,7,163840,204800,20,20,1.0,100000000,1,,19,process,12340000000,,,,,,,,100000000,200.0",
            "100000000,7,409600,413696,7,20,0.35,100000000,1,/usr/lib/libc.so.6,19,process,12340000000,,,,,,,,\
             100000000,70.0",
        ]
    );
    assert_eq!(lines.len(), 1 + 2 * 2 * 4);
}

#[test]
fn a_csv_of_nothing_has_its_heading() {
    let directory = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(converted(directory.path(), Format::Csv, 0)).unwrap();
    assert_eq!(text, HEADING);
}

#[test]
fn json_is_one_document_with_all_that_was_recorded() {
    let directory = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(converted(directory.path(), Format::Json, 8)).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&document["format"], &document["ending"]), (&json!(4), &json!("whole")));
    assert_eq!(document["header"], serde_json::to_value(common::header()).unwrap());

    let snapshots = document["snapshots"].as_array().unwrap();
    assert_eq!(snapshots.len(), 8);
    let first = &snapshots[0];
    assert_eq!((&first["time_ns"], &first["samples"]), (&json!(100_000_000), &json!(20)));
    assert_eq!(first["cost"]["cpu_ns"], json!(1001));
    let target = &first["targets"][0];
    assert_eq!((&target["pid"], &target["id"]), (&json!(7), &common::id_json(7)));
    assert_eq!(target["target"]["command"], json!("server, \"7\" --port 80"));
    assert_eq!(
        target["mappings"][0],
        json!({"start": 65536, "end": 131_072, "permissions": "rw-p", "name": "[heap]", "node": null})
    );
    assert_eq!(
        target["regions"][0],
        json!({
            "start": 65536, "end": 81920, "nr_accesses": 1, "access_rate": 0.05, "access_hz": 10.0,
            "age_ns": 100_000_000, "nr_unobservable": 1, "nr_samples": 19
        })
    );
    // What does not change is not said again.
    let with = |key: &str| (0..8).filter(|&i| snapshots[i]["targets"][1].get(key).is_some()).collect::<Vec<_>>();
    assert_eq!((with("target"), with("mappings")), (vec![0], vec![0, 6]));
}

#[test]
fn a_json_of_nothing_is_a_document() {
    let directory = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(converted(directory.path(), Format::Json, 0)).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["snapshots"], json!([]));
}

#[test]
fn pyarrow_reads_the_parquet_with_its_header() {
    let directory = tempfile::tempdir().unwrap();
    let output = converted(directory.path(), Format::Parquet, 20);
    let rows = common::read(&directory.path().join("a.rec")).unwrap();
    let accesses: u64 =
        rows.iter().flat_map(|row| &row.target.regions).map(|region| u64::from(region.nr_accesses)).sum();
    let read = installed_or_skip!(common::python("parquet", &output));
    assert_eq!((&read["rows"], &read["accesses"]), (&json!(160), &json!(accesses)));
    assert_eq!((&read["format"], &read["probe"]), (&json!("4"), &json!("sim")));
    assert_eq!(read["compression"], json!("ZSTD"));
    assert_eq!(
        read["first"],
        json!({
            "time_ns": 100_000_000, "pid": 7, "start": 65536, "end": 81920, "nr_accesses": 1, "samples": 20,
            "access_rate": 0.05, "age_ns": 100_000_000, "nr_unobservable": 1, "mapping": "[heap]",
            "nr_samples": 19, "target_type": "process", "start_ns": 12_340_000_000_u64, "cgroup": null,
            "present_bytes": null, "touched_bytes": null, "unobservable_bytes": null, "unknown_bytes": null,
            "swapped_bytes": null, "absent_bytes": null, "aggregation_ns": 100_000_000, "access_hz": 10.0
        })
    );
}

#[test]
fn a_recording_cut_short_is_converted_as_far_as_it_goes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    common::record(&path, 20);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 100]).unwrap();
    let output = directory.path().join("a.json");
    convert(&Recording::open(&path).unwrap(), &output, Format::Json).unwrap();
    let document: Value = serde_json::from_slice(&std::fs::read(&output).unwrap()).unwrap();
    assert_eq!(document["ending"], json!("cut_short"));
}

#[test]
fn a_failed_conversion_leaves_nothing_and_harms_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    common::record(&path, 20);
    let mut bytes = std::fs::read(&path).unwrap();
    let near_the_end = bytes.len() - 30;
    bytes[near_the_end] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let recording = Recording::open(&path).unwrap();
    for (name, format) in [("a.csv", Format::Csv), ("a.json", Format::Json), ("a.parquet", Format::Parquet)] {
        std::fs::write(directory.path().join(name), "precious").unwrap();
        let error = convert(&recording, &directory.path().join(name), format).unwrap_err();
        assert!(matches!(error, ConvertError::Record(_)), "{error}");
        assert_eq!(std::fs::read_to_string(directory.path().join(name)).unwrap(), "precious");
    }
    std::fs::write(directory.path().join("b.rec"), "precious").unwrap();
    let error = convert(&recording, &directory.path().join("b.rec"), Format::Recording).unwrap_err();
    assert!(matches!(error, ConvertError::Record(_)), "{error}");
    assert_eq!(std::fs::read_to_string(directory.path().join("b.rec")).unwrap(), "precious");
    assert_eq!(names(directory.path()), ["a.csv", "a.json", "a.parquet", "a.rec", "b.rec"]);
}

#[test]
fn an_output_that_cannot_be_written_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    common::record(&path, 1);
    let output = directory.path().join("missing/a.csv");
    let error = convert(&Recording::open(&path).unwrap(), &output, Format::Csv).unwrap_err();
    assert_eq!(
        isotherm_core::chain(&error),
        format!(
            "cannot write {} (create its directory first, or name another file): \
             No such file or directory (os error 2)",
            output.display()
        )
    );
}

#[test]
fn a_recording_is_not_converted_to_itself() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.csv");
    let rows = common::record(&path, 1);
    let error = convert(&Recording::open(&path).unwrap(), &directory.path().join("./a.csv"), Format::Csv).unwrap_err();
    assert!(matches!(error, ConvertError::Output(OutputError { refusal: Refusal::Input, .. })));
    assert_eq!(common::read(&path).unwrap(), rows);
}
