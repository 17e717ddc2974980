//! Import and export of recordings checked with damo itself, where it is installed: `ISOTHERM_PYTHON`, as `./dev test`
//! sets it.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

#[path = "../../isotherm-record/tests/recordings/common/mod.rs"]
mod common;

use std::path::Path;
use std::time::Duration;

use isotherm_core::{Figures, Snapshot};
use isotherm_damo::{Format, export, import};
use isotherm_record::{Contents, Recorder, Recording};
use isotherm_testing::installed_or_skip;
use serde_json::{Value, json};

/// Runs `with_damo.py` and returns what it prints. An error is the reason to skip the test: damo, or the tool `file`,
/// is missing.
fn with_damo(arguments: &[&str]) -> Result<String, String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/with_damo.py");
    common::run_python(std::iter::once(&script).chain(arguments), Path::new("."))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn damo_reads_an_exported_file() {
    let directory = tempfile::tempdir().unwrap();
    let recording = directory.path().join("a.rec");
    let rows = common::record(&recording, 20);
    for format in [Format::JsonCompressed, Format::Json] {
        let path = directory.path().join("damon.data");
        export(&Recording::open(&recording).unwrap(), &path, format).unwrap();
        let read = installed_or_skip!(with_damo(&["read", text(&path)]));
        let records: Vec<Value> = serde_json::from_str(&read).unwrap();

        let started = common::header().started_unix_ns;
        let record = |pid: u32| {
            let snapshots = rows.iter().filter(|row| row.target.id.pid() == Some(pid)).map(|row| {
                let end = started + row.time.as_nanos() as u64;
                let regions =
                    row.target.regions.iter().map(|region| {
                        json!([region.range.start(), region.range.end(), region.nr_accesses, region.age])
                    });
                json!({"start": end - 100_000_000, "end": end, "regions": regions.collect::<Vec<_>>()})
            });
            json!({"target": pid, "intervals": [5_000, 100_000, 1_000_000], "snapshots": snapshots.collect::<Vec<_>>()})
        };
        assert_eq!(records, [record(7), record(9)], "{format:?}");
    }
}

#[test]
fn damo_reports_on_an_exported_file() {
    let directory = tempfile::tempdir().unwrap();
    let (recording, path) = (directory.path().join("a.rec"), directory.path().join("a.damo"));
    common::record(&recording, 20);
    export(&Recording::open(&recording).unwrap(), &path, Format::JsonCompressed).unwrap();
    for (report, words) in [
        (&["record_info"][..], &["target_id: 7", "target_id: 9", "[400.000000 KiB, 404.000000 KiB)"][..]),
        (&["access", "--raw_form"], &["target_id: 9", "000000028000-000000032000 (  40.000 KiB)          20    20"]),
        (&["heatmap", "--output", "stdout", "--resol", "4", "8"], &["x-axis: space", "y-axis: time"]),
    ] {
        let arguments = [&["report"], report, &["--input", text(&path)]].concat();
        let out = installed_or_skip!(with_damo(&arguments));
        assert!(words.iter().all(|word| out.contains(word)), "{words:?} are not in what {report:?} says: {out}");
    }
}

#[test]
fn damo_reports_on_a_recording_with_surveys_and_tuned_intervals() {
    let directory = tempfile::tempdir().unwrap();
    let (recording, path) = (directory.path().join("a.rec"), directory.path().join("a.damo"));
    let contents = Contents { surveys: true, ..Contents::default() };
    let mut recorder = Recorder::create_with(&recording, &common::header(), contents).unwrap();
    // Intervals that become longer, and one aggregation that ends early. Half of the heap and the first pages of libc
    // are present.
    let mut time = Duration::ZERO;
    for i in 1..=30 {
        let (length, samples) = if i == 12 { (40, 8) } else { (100 << (i / 8), 20) };
        time += Duration::from_millis(length);
        let mut snapshot =
            Snapshot { time, aggregation: Duration::from_millis(length), samples, ..common::snapshot(7) };
        snapshot.targets.truncate(1);
        for region in &mut snapshot.targets[0].regions {
            (region.nr_accesses, region.nr_samples) = (samples, samples);
            region.pages = Some(Figures { present: region.range.size(), ..Figures::default() });
        }
        snapshot.targets[0].regions.remove(1);
        recorder.write(&common::record_of(&snapshot, common::cost(i))).unwrap();
    }
    recorder.finish().unwrap();
    assert!(export(&Recording::open(&recording).unwrap(), &path, Format::JsonCompressed).unwrap().is_empty());

    // 4 pages of the heap, 10 of the mapping, and one of libc were accessed all the time. damo lets the time axis begin
    // one aggregation of the last length before the end of the first snapshot: 10.94 s - 0.1 s + 0.8 s.
    for (report, words) in [
        (&["wss"][..], &["# avr:\t60.000 KiB"][..]),
        (&["nr_regions"], &["# target_id\t7", "# avr:\t5"]),
        (&["heatmap", "--output", "stdout", "--resol", "4", "8"], &["# y-axis: time", "(11.640 s)"]),
        (&["record_info"], &["(64.000 KiB)", "(44.000 KiB)", "(4.000 KiB)"]),
    ] {
        let arguments = [&["report"], report, &["--input", text(&path)]].concat();
        let out = installed_or_skip!(with_damo(&arguments));
        assert!(words.iter().all(|word| out.contains(word)), "{words:?} are not in what {report:?} says: {out}");
    }
}

#[test]
fn damo_validates_an_exported_file_of_a_busy_machine() {
    let directory = tempfile::tempdir().unwrap();
    let (recording, path) = (directory.path().join("a.rec"), directory.path().join("a.damo"));
    let mut recorder = Recorder::create(&recording, &common::header()).unwrap();
    // Each fifth aggregation is 30 to 170 ms late.
    let (mut time, mut ends) = (Duration::ZERO, Vec::new());
    for i in 1..=100 {
        let late = if i % 5 == 0 { 30 + u64::from(i) * 7 / 5 } else { 0 };
        time += Duration::from_millis(100 + late);
        ends.push(common::header().started_unix_ns + time.as_nanos() as u64);
        let snapshot = Snapshot { time, ..common::snapshot(i) };
        recorder.write(&common::record_of(&snapshot, common::cost(i))).unwrap();
    }
    recorder.finish().unwrap();
    export(&Recording::open(&recording).unwrap(), &path, Format::JsonCompressed).unwrap();

    let printed = installed_or_skip!(with_damo(&["validate", "--input", text(&path)]));
    assert_eq!(printed, "");
    let records: Vec<Value> = serde_json::from_str(&with_damo(&["read", text(&path)]).unwrap()).unwrap();
    for record in records {
        let snapshots = record["snapshots"].as_array().unwrap().iter();
        assert_eq!(snapshots.map(|snapshot| snapshot["end"].as_u64().unwrap()).collect::<Vec<_>>(), ends);
    }
}

#[test]
fn a_file_of_damo_is_imported_as_damo_reads_it() {
    let directory = tempfile::tempdir().unwrap();
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files/trace.txt");
    for format in ["json", "json_compressed"] {
        let (path, recording) = (directory.path().join(format), directory.path().join("a.rec"));
        installed_or_skip!(with_damo(&["write", text(&trace), format, text(&path)]));
        import(&path, &recording, &[], "0.1.0").unwrap();
        let read = installed_or_skip!(with_damo(&["read", text(&path)]));
        let records: Vec<Value> = serde_json::from_str(&read).unwrap();
        let rows = common::read(&recording).unwrap();

        // The first time is 82,877 s after the boot. The second target's is 12 us later, and is that of the snapshot.
        for (i, record) in records.iter().enumerate() {
            let ours = rows.iter().filter(|row| row.target.id.pid().unwrap() as usize == i + 1).map(|row| {
                let end = 82_877_000_000_000 + row.time.as_nanos() as u64 - if i == 0 { 12_000 } else { 0 };
                let regions =
                    row.target.regions.iter().map(|region| {
                        json!([region.range.start(), region.range.end(), region.nr_accesses, region.age])
                    });
                (json!(end), json!(regions.collect::<Vec<_>>()))
            });
            let damos = record["snapshots"].as_array().unwrap().iter();
            let damos = damos.map(|snapshot| (snapshot["end"].clone(), snapshot["regions"].clone()));
            assert_eq!(ours.collect::<Vec<_>>(), damos.collect::<Vec<_>>(), "{format}, target {i}");
        }
        assert_eq!((records.len(), rows.len()), (2, 6));
    }
}
