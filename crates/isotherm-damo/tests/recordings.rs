//! Import and export of recordings without damo: files that damo wrote, and files that it would never write.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

#[path = "../../isotherm-record/tests/recordings/common/mod.rs"]
mod common;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use isotherm_core::{RegionSnapshot, Snapshot, TargetId};
use isotherm_damo::{Format, ImportError, Imported, export, import};
use isotherm_record::{Ending, Recorder, Recording, convert, pid_column};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

use common::Row;

const VERSION: &str = "0.1.0";

/// A file of which version of damo made, of `trace.txt`.
fn made(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files").join(name)
}

/// The snapshots of a recording, target by target.
fn rows(recording: &Recording) -> Vec<Row> {
    recording.snapshots().flat_map(|record| common::rows(&record.unwrap()).collect::<Vec<_>>()).collect()
}

/// Imports a file, and reads what became of it.
fn imported_with(path: &Path, pids: &[u32]) -> Result<(Imported, Vec<Row>), ImportError> {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("a.rec");
    let imported = import(path, &output, pids, VERSION)?;
    let recording = Recording::open(&output).unwrap();
    assert_eq!(recording.ending(), Ending::Whole);
    Ok((imported, rows(&recording)))
}

fn imported(path: &Path) -> Result<(Imported, Vec<Row>), ImportError> {
    imported_with(path, &[])
}

fn imported_bytes(bytes: &[u8]) -> Result<(Imported, Vec<Row>), ImportError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    imported(file.path())
}

fn imported_json(json: &Value) -> Result<(Imported, Vec<Row>), ImportError> {
    imported_bytes(&serde_json::to_vec_pretty(json).unwrap())
}

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    flate2::read::ZlibEncoder::new(bytes, flate2::Compression::default()).read_to_end(&mut out).unwrap();
    out
}

/// The target with this process ID. Files of damo do not have the start of the process.
fn process(pid: u32) -> TargetId {
    if pid == 0 { TargetId::PhysicalMemory } else { TargetId::process(pid, Duration::ZERO) }
}

/// The time, the target, and start, accesses and age of each region.
type Contents = (u64, u32, Vec<(u64, u32, u32)>);

fn contents(rows: &[Row]) -> Vec<Contents> {
    let region = |region: &RegionSnapshot| (region.range.start(), region.nr_accesses, region.age);
    rows.iter()
        .map(|row| {
            (
                row.time.as_nanos() as u64,
                pid_column(row.target.id),
                row.target.regions.iter().map(region).collect::<Vec<_>>(),
            )
        })
        .collect()
}

/// The contents of `trace.txt`.
fn trace() -> Vec<Contents> {
    let row = |i: u32, target: u32| {
        let low = [0x55d0_c000_0000, 0x5610_0000_0000][target as usize];
        let regions = vec![
            (low, 0, i),
            (low + 0x40_0000, 20 - 5 * i, 0),
            (0x7f00_0000_0000, target, 40 + i),
            (0x7ffd_1000_0000, 11, i / 2),
        ];
        (u64::from(i) * 100_300_000 + 12_000, target + 1, regions)
    };
    (1..=3).flat_map(|i| [row(i, 0), row(i, 1)]).collect()
}

#[test]
fn files_of_all_versions_and_both_formats_have_the_same_contents() {
    for name in ["1.9.0.json", "2.3.0.json_compressed", "3.4.3.json", "3.4.3.json_compressed"] {
        let (imported, rows) = imported(&made(name)).unwrap();
        assert_eq!(contents(&rows), trace(), "{name}");
        assert_eq!((imported.snapshots, imported.notes), (3, vec![]), "{name}");
        assert!(rows.iter().all(|row| row.samples == 20 && row.aggregation == Duration::from_millis(100)), "{name}");
    }
}

#[test]
fn what_the_file_does_not_have_is_empty_in_the_recording() {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("a.rec");
    import(&made("3.4.3.json"), &output, &[], VERSION).unwrap();
    let recording = Recording::open(&output).unwrap();
    let header = recording.header();
    assert_eq!((header.probe.as_str(), header.isotherm_version.as_str()), ("damo", VERSION));
    assert_eq!((header.sampling_ns, header.aggregation_ns, header.update_ns), (5_000_000, 100_000_000, 1_000_000_000));
    assert_eq!((header.min_regions, header.max_regions, header.host.cpus, header.started_unix_ns), (0, 0, 0, 0));
    for row in rows(&recording) {
        assert_eq!((row.cost, row.info.started_unix_ns), (None, 0));
        // The regions are in three runs.
        let monitored: u64 = row.target.regions.iter().map(|region| region.range.size()).sum();
        let mapped: u64 = row.target.mappings.iter().map(|mapping| mapping.range.size()).sum();
        assert_eq!((row.target.mappings.len(), mapped), (3, monitored));
        assert!(row.target.mappings.iter().all(|mapping| &*mapping.name == "(mapping unknown)"));
    }
}

#[test]
fn the_parameters_next_to_the_file_have_the_processes_and_the_bounds() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("damon.data");
    std::fs::copy(made("3.4.3.json_compressed"), &path).unwrap();
    let parameters = directory.path().join("damon.data.kdamonds");
    let context = json!({"ops": "vaddr", "targets": [{"pid": "4711", "regions": []}, {"pid": 815, "regions": []}],
        "nr_regions": {"min": "10", "max": "1,000"}});
    std::fs::write(&parameters, json!([{"state": "on", "pid": "99", "contexts": [context]}]).to_string()).unwrap();

    let output = directory.path().join("damon.rec");
    let imported = import(&path, &output, &[], VERSION).unwrap();
    assert_eq!(imported.targets, [(process(4711), String::new()), (process(815), String::new())]);
    let header = Recording::open(&output).unwrap().header().clone();
    assert_eq!((header.min_regions, header.max_regions), (10, 1000));

    std::fs::write(&parameters, "[{\"contexts\": 7").unwrap();
    let imported = import(&path, &output, &[42], VERSION).unwrap();
    assert_eq!(imported.targets, [(process(42), String::new()), (process(2), "damo's target 1".into())]);
    assert!(imported.notes[0].contains("damon.data.kdamonds is ignored"), "{:?}", imported.notes);
}

/// Snapshots of two targets with any regions and counts.
fn snapshots() -> impl Strategy<Value = Vec<Snapshot>> {
    let region = (1_u64..50, 1_u64..1000, 0_u32..=20, 0..u32::MAX);
    let regions = proptest::collection::vec(region, 0..12);
    let step = (1_u64..199_000_000, regions.clone(), regions, any::<bool>());
    proptest::collection::vec(step, 1..20).prop_map(|steps| {
        let mut time = 0;
        let snapshot = |(after, first, second, both): (u64, Vec<_>, Vec<_>, bool)| {
            time += after;
            let target = |id: u32, regions: Vec<(u64, u64, u32, u32)>| {
                let mut page = u64::from(id) << 20;
                let place = |(gap, pages, nr_accesses, age): (u64, u64, u32, u32)| {
                    let range = common::range(page + gap - 1..page + gap - 1 + pages);
                    page += gap - 1 + pages;
                    RegionSnapshot { nr_accesses, nr_samples: 20, age, ..RegionSnapshot::new(range) }
                };
                let regions = regions.into_iter().map(place).collect();
                isotherm_core::TargetSnapshot { id: process(id), regions, mappings: [].into() }
            };
            let mut targets = vec![target(0, first)];
            if both {
                targets.push(target(4_194_303, second));
            }
            Snapshot {
                time: Duration::from_nanos(time),
                aggregation: Duration::from_millis(100),
                samples: 20,
                targets,
                ..Snapshot::default()
            }
        };
        steps.into_iter().map(snapshot).collect()
    })
}

proptest! {
    #![proptest_config(common::cases(200))]

    #[test]
    fn a_recording_that_is_exported_and_imported_is_the_same(snapshots in snapshots(), plain in any::<bool>()) {
        // Snapshots of different targets less than half an aggregation apart become one.
        let apart = |pair: &[Snapshot]| pair[1].time - pair[0].time > Duration::from_millis(50);
        prop_assume!(snapshots.windows(2).all(apart));
        // A target without a region is left out.
        let targets = || snapshots.iter().flat_map(|snapshot| &snapshot.targets);
        let has_regions = |id| targets().any(|target| target.id == id && !target.regions.is_empty());
        prop_assume!(targets().all(|target| has_regions(target.id)));
        let directory = tempfile::tempdir().unwrap();
        let (ours, damos, back) = (
            directory.path().join("a.rec"),
            directory.path().join("damo"),
            directory.path().join("b.rec"),
        );
        let mut recorder = Recorder::create(&ours, &common::header()).unwrap();
        for snapshot in &snapshots {
            recorder.write(&common::record_of(snapshot, common::cost(1))).unwrap();
        }
        recorder.finish().unwrap();
        let format = if plain { Format::Json } else { Format::JsonCompressed };
        export(&Recording::open(&ours).unwrap(), &damos, format).unwrap();
        let imported = import(&damos, &back, &[], VERSION).unwrap();

        prop_assert_eq!(imported.notes.len(), 0);
        prop_assert_eq!(contents(&common::read(&back).unwrap()), contents(&common::read(&ours).unwrap()));
        let (ours, back) = (Recording::open(&ours).unwrap(), Recording::open(&back).unwrap());
        prop_assert_eq!(back.header().started_unix_ns, ours.header().started_unix_ns);
        prop_assert_eq!(back.header().sampling_ns, ours.header().sampling_ns);
        prop_assert_eq!(back.header().update_ns, ours.header().update_ns);
    }
}

#[test]
fn snapshots_of_changing_intervals_are_one_record_with_the_same_rates_and_are_imported_again() {
    let directory = tempfile::tempdir().unwrap();
    let [ours, damos, back] = ["a.rec", "a.damo.json", "b.rec"].map(|name| directory.path().join(name));
    let mut recorder = Recorder::create(&ours, &common::header()).unwrap();
    for (i, (aggregation, samples)) in [(100, 20), (100, 20), (200, 14), (200, 14), (100, 33)].into_iter().enumerate() {
        let mut snapshot = Snapshot {
            aggregation: Duration::from_millis(aggregation),
            samples,
            time: Duration::from_millis(200) * (i as u32 + 1),
            ..common::snapshot(7)
        };
        for region in snapshot.targets.iter_mut().flat_map(|target| &mut target.regions) {
            region.nr_accesses = region.nr_accesses.min(samples);
            region.nr_samples = region.nr_samples.min(samples);
        }
        recorder.write(&common::record_of(&snapshot, common::cost(1))).unwrap();
    }
    recorder.finish().unwrap();
    export(&Recording::open(&ours).unwrap(), &damos, Format::Json).unwrap();
    let json: Vec<Value> = serde_json::from_slice(&std::fs::read(&damos).unwrap()).unwrap();
    assert_eq!(json.len(), 2, "damo reports on one record of a target");
    import(&damos, &back, &[], VERSION).unwrap();
    let intervals = |path: &Path| -> Vec<_> {
        common::read(path)
            .unwrap()
            .iter()
            .map(|row| (row.time, pid_column(row.target.id), row.aggregation.as_millis()))
            .collect()
    };
    assert_eq!(intervals(&back), intervals(&ours));
    let rates = |path: &Path| -> Vec<_> {
        let rate = |row: &Row, i: usize| f64::from(row.target.regions[i].nr_accesses) / f64::from(row.samples);
        common::read(path).unwrap().iter().flat_map(|row| [rate(row, 0), rate(row, 1), rate(row, 2)]).collect()
    };
    for (back, ours) in rates(&back).iter().zip(rates(&ours)) {
        // A count is rounded, and one access stays one.
        assert!((back - ours).abs() <= 0.5 / 33.0 + 1e-9, "{back} for {ours}");
    }
}

#[test]
fn a_target_without_a_region_is_left_out_and_one_with_few_snapshots_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let (ours, damos) = (directory.path().join("a.rec"), directory.path().join("a.damo.json"));
    let mut recorder = Recorder::create(&ours, &common::header()).unwrap();
    for nth in 1..=21 {
        let mut snapshot = Snapshot { time: Duration::from_millis(100) * nth, ..common::snapshot(7) };
        let first = isotherm_core::TargetSnapshot { regions: Vec::new(), ..snapshot.targets[0].clone() };
        snapshot.targets.truncate(if nth == 1 { 2 } else { 1 });
        snapshot.targets.insert(0, isotherm_core::TargetSnapshot { id: process(1), ..first });
        recorder.write(&common::record_of(&snapshot, common::cost(1))).unwrap();
    }
    recorder.finish().unwrap();
    let notes = export(&Recording::open(&ours).unwrap(), &damos, Format::Json).unwrap();
    let json: Vec<Value> = serde_json::from_slice(&std::fs::read(&damos).unwrap()).unwrap();
    let lengths: Vec<usize> = json.iter().map(|record| record["snapshots"].as_array().unwrap().len()).collect();
    assert_eq!(lengths, [21, 1]);
    let told = "damo's report nr_regions fails, because 1 of 2 targets have no more than 20 snapshots";
    assert_eq!(notes, [told]);
}

#[test]
fn a_recording_without_snapshots_is_exported_as_an_empty_list() {
    let directory = tempfile::tempdir().unwrap();
    let (ours, damos) = (directory.path().join("a.rec"), directory.path().join("a.damo.json"));
    common::record(&ours, 0);
    export(&Recording::open(&ours).unwrap(), &damos, Format::Json).unwrap();
    assert_eq!(std::fs::read_to_string(&damos).unwrap(), "[]\n");
    let error = import(&damos, &ours, &[], VERSION).unwrap_err().to_string();
    assert!(error.contains("no snapshots"), "{error}");
    // The recording is still there.
    assert!(Recording::open(&ours).is_ok());
}

#[test]
fn what_schemes_did_is_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let [plain, with] = ["a.rec", "b.rec"].map(|name| directory.path().join(name));
    common::record(&plain, 8);
    common::record_with_activities(&with, 8);
    let exported = |recording: &Path| {
        let output = directory.path().join("damo");
        export(&Recording::open(recording).unwrap(), &output, Format::Json).unwrap();
        std::fs::read(output).unwrap()
    };
    assert!(exported(&plain) == exported(&with));
}

/// A record with a snapshot for each list of regions, each of which is start, end, accesses and age.
fn record(target: Value, snapshots: &[&[(u64, u64, i64, i64)]]) -> Value {
    let region = |&(start, end, accesses, age): &(u64, u64, i64, i64)| {
        json!({"start": start, "end": end.to_string(), "nr_accesses": {"samples": accesses, "percent": null},
            "age": {"usec": null, "aggr_intervals": age}})
    };
    let snapshot = |(i, regions): (usize, &&[(u64, u64, i64, i64)])| {
        let (start, end) = (i * 100_000_000, (i + 1) * 100_000_000);
        json!({"start_time": start, "end_time": end, "regions": regions.iter().map(region).collect::<Vec<_>>()})
    };
    json!({"target_id": target, "intervals": {"sample_us": "5 ms", "aggr_us": "100 ms", "ops_update_us": "1 s"},
        "snapshots": snapshots.iter().enumerate().map(snapshot).collect::<Vec<_>>()})
}

#[test]
fn physical_memory_is_target_0() {
    let gib = 1 << 30;
    let file = json!([record(json!(0), &[&[(4 * gib, 8 * gib, 3, 1), (gib, 4 * gib, 0, 9)]])]);
    let (imported, rows) = imported_json(&file).unwrap();
    assert_eq!(imported.targets, [(TargetId::PhysicalMemory, String::new())]);
    // The regions are sorted.
    assert_eq!(contents(&rows), [(100_000_000, 0, vec![(gib, 0, 9), (4 * gib, 3, 1)])]);
    assert_eq!(&*rows[0].target.mappings[0].name, "(physical memory)");
}

#[test]
fn records_of_the_same_target_are_one() {
    // `damo record --snapshot` writes a record for each snapshot.
    let mut second = record(Value::Null, &[&[(0, 4096, 1, 1)], &[(0, 4096, 2, 2)]]);
    second["snapshots"].as_array_mut().unwrap().remove(0);
    let (imported, rows) = imported_json(&json!([record(Value::Null, &[&[(0, 4096, 1, 1)]]), second])).unwrap();
    assert_eq!(imported.snapshots, 2);
    assert_eq!(contents(&rows), [(100_000_000, 0, vec![(0, 1, 1)]), (200_000_000, 0, vec![(0, 2, 2)])]);
}

#[test]
fn notes_say_what_was_assumed_or_changed() {
    let mut file = json!([record(json!(0), &[&[(0, 4096, 1, 1)], &[(0, 4096, 22, 2)]])]);
    let (imported, rows) = imported_json(&file).unwrap();
    assert_eq!(rows[1].target.regions[0].nr_accesses, 20);
    assert!(imported.notes[0].starts_with("1 of 2 regions have more accesses than samples"), "{:?}", imported.notes);

    file[0]["intervals"] = Value::Null;
    file[0]["snapshots"][0]["regions"][0]["age"] = json!({"usec": null, "aggr_intervals": null});
    let (imported, rows) = imported_json(&file).unwrap();
    assert_eq!((rows[1].samples, rows[1].target.regions[0].nr_accesses), (22, 22));
    assert!(imported.notes[0].contains("aggregations of 100 ms are assumed, with 22 samples"), "{:?}", imported.notes);
    assert!(imported.notes[1].starts_with("1 of 2 regions have no age"), "{:?}", imported.notes);
}

#[test]
fn the_mark_for_the_end_of_a_period_is_not_a_snapshot() {
    let file = json!([record(json!(0), &[&[(0, 4096, 1, 1)], &[(0, 0, -1, -1)]])]);
    assert_eq!(imported_json(&file).unwrap().0.snapshots, 1);
}

#[test]
fn an_error_has_its_place_in_the_file() {
    let good = record(json!(0), &[&[(0, 4096, 1, 1)], &[(4096, 8192, 1, 1), (8192, 12288, 0, 7)]]);
    let with = |pointer: &str, value: Value| {
        let mut file = json!([good]);
        *file.pointer_mut(pointer).unwrap() = value;
        file
    };
    let region = "/0/snapshots/1/regions/1";
    for (file, words) in [
        (with(&format!("{region}/start"), Value::Null), ["[0].snapshots[1].regions[1].start (line ", "null"]),
        (with(&format!("{region}/start"), json!("here")), ["[0].snapshots[1].regions[1].start (line ", "here"]),
        (
            with(&format!("{region}/start"), json!(6000)),
            ["[0].snapshots[1].regions has two regions that overlap", "1000-2000"],
        ),
        (with(&format!("{region}/end"), json!("5")), ["[0].snapshots[1].regions[1] (line ", "before its start"]),
        (with(&format!("{region}/end"), json!(1e30)), ["[0].snapshots[1].regions[1].end", "bytes"]),
        (with(&format!("{region}/nr_accesses"), json!({})), ["regions[1]", "neither samples nor percent"]),
        (
            with(&format!("{region}/nr_accesses/samples"), json!(-1)),
            ["regions[1]", "-1 is out of range for a number of accesses"],
        ),
        (with(&format!("{region}/age/aggr_intervals"), json!(1_u64 << 40)), ["regions[1]", "out of range for an age"]),
        (with("/0/snapshots/1/end_time", json!(100_000_000)), ["[0].snapshots[0] and [0].snapshots[1]", "same time"]),
        (with("/0/snapshots/1/end_time", Value::Null), ["[0].snapshots[1].end_time", "null"]),
        (with("/0/snapshots", json!({})), ["[0].snapshots", "expected a sequence"]),
        (with("/0/intervals/sample_us", json!("0")), ["[0].intervals", "zero"]),
        (with("/0/intervals/aggr_us", json!("5 fortnights")), ["[0].intervals.aggr_us", "5 fortnights"]),
        (json!([good, 7]), ["[1] (line ", "a record of damo"]),
        (json!([]), ["no snapshots", "longer"]),
    ] {
        let error = imported_json(&file).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{words:?} are not in: {error}");
    }
}

#[test]
fn a_file_in_another_format_is_refused_with_the_name_of_the_format() {
    let directory = tempfile::tempdir().unwrap();
    let recording = directory.path().join("a.rec");
    common::record(&recording, 2);
    let json = directory.path().join("a.json");
    convert(&Recording::open(&recording).unwrap(), &json, isotherm_record::Format::Json).unwrap();
    let trace = made("trace.txt");
    for (path, words) in [
        (&recording, ["recording of isotherm", "no import"]),
        (&json, ["isotherm converted", "that damo wrote"]),
        (&trace, ["text of perf script", "convert_record_format"]),
        (&directory.path().to_owned(), ["is a directory", "give a file"]),
        (&directory.path().join("none"), ["cannot open", "check the name"]),
    ] {
        let error = isotherm_core::chain(&imported(path).unwrap_err());
        assert!(words.iter().all(|word| error.contains(word)), "{words:?} are not in: {error}");
    }
    for (bytes, word) in [
        (&b""[..], "is empty"),
        (b"PERFILE2....", "it is a recording of perf"),
        (b"damon_recfmt_ver\x02\0\0\0", "an old format"),
        (b"\x1f\x8b\x08\0", "decompress it first"),
        (b"{\"a\": 1}", "this is an object"),
        (b"hello", "does not begin with a list in JSON"),
        (b"[] []", "trailing characters"),
    ] {
        let error = isotherm_core::chain(&imported_bytes(bytes).unwrap_err());
        assert!(error.contains(word), "{word:?} is not in: {error}");
    }
}

#[test]
fn a_file_cut_at_any_byte_is_refused_as_cut_short() {
    let whole = std::fs::read(made("1.9.0.json")).unwrap();
    for at in (1..whole.len()).step_by(97) {
        let error = imported_bytes(&whole[..at]).unwrap_err();
        assert!(matches!(error, ImportError::CutShort { .. }), "{at}: {error}");
    }
    let whole = compressed(&whole);
    for at in 2..whole.len() - 8 {
        let error = imported_bytes(&whole[..at]).unwrap_err();
        assert!(matches!(error, ImportError::CutShort { .. }), "{at}: {error}");
    }
}

#[test]
fn a_failed_import_leaves_an_existing_output_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("a.rec");
    std::fs::write(&output, "precious").unwrap();
    let bad = directory.path().join("bad");
    std::fs::write(&bad, "[{").unwrap();
    import(&bad, &output, &[], VERSION).unwrap_err();
    assert_eq!(std::fs::read_to_string(&output).unwrap(), "precious");
    let error = import(&bad, &bad, &[], VERSION).unwrap_err();
    assert!(isotherm_core::chain(&error).ends_with("it is an input of the same command"), "{error}");
    assert_eq!(std::fs::read_to_string(&bad).unwrap(), "[{");
    std::fs::hard_link(&bad, directory.path().join("damon.data.kdamonds")).unwrap();
    let sidecar = directory.path().join("damon.data");
    std::fs::write(&sidecar, "[]").unwrap();
    let error = import(&sidecar, &bad, &[], VERSION).unwrap_err();
    assert!(isotherm_core::chain(&error).ends_with("it is an input of the same command"), "{error}");
}

/// A value that may replace another in a file of damo.
fn odd() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(json!([])),
        Just(json!({})),
        Just(json!("max")),
        Just(json!(-1)),
        Just(json!(f64::MAX)),
        Just(json!(i64::MAX)),
        Just(json!(i64::MIN)),
        Just(json!(u64::MAX)),
        any::<u64>().prop_map(|number| json!(number)),
        any::<u64>().prop_map(|number| json!(number.to_string())),
        any::<f64>().prop_map(|number| json!(number)),
        ".{0,12}".prop_map(|text| json!(text)),
    ]
}

/// The pointers to all values of a document.
fn places(value: &Value, at: String, found: &mut Vec<String>) {
    match value {
        Value::Array(items) => items.iter().enumerate().for_each(|(i, item)| places(item, format!("{at}/{i}"), found)),
        Value::Object(items) => items.iter().for_each(|(key, item)| places(item, format!("{at}/{key}"), found)),
        _ => {}
    }
    found.push(at);
}

proptest! {
    #![proptest_config(common::cases(600))]

    #[test]
    fn no_value_in_a_file_makes_the_import_panic(changes in proptest::collection::vec((any::<Index>(), odd()), 1..4)) {
        let mut file: Value = serde_json::from_slice(&std::fs::read(made("3.4.3.json")).unwrap()).unwrap();
        for (place, value) in changes {
            let mut all = Vec::new();
            places(&file, String::new(), &mut all);
            *file.pointer_mut(&all[place.index(all.len())]).unwrap() = value;
        }
        // What is imported can be read again.
        let _ = imported_json(&file);
    }
}

#[test]
fn memory_that_surveys_found_absent_is_exported_as_regions_without_accesses() {
    let directory = tempfile::tempdir().unwrap();
    let [ours, damos] = ["a.rec", "a.damo.json"].map(|name| directory.path().join(name));
    let mut snapshot = common::snapshot(7);
    snapshot.targets.truncate(1);
    // The heap is at 16 to 32, a mapping at 40 to 51, libc at 100 to 101: areas of a process begin at the two gaps.
    let pages = isotherm_core::Figures::default();
    snapshot.targets[0].regions.retain(|region| region.range.start() != 16 * 4096);
    snapshot.targets[0].regions.iter_mut().for_each(|region| region.pages = Some(pages));
    let contents = isotherm_record::Contents { surveys: true, ..Default::default() };
    let mut recorder = Recorder::create_with(&ours, &common::header(), contents).unwrap();
    recorder.write(&common::record_of(&snapshot, common::cost(1))).unwrap();
    recorder.finish().unwrap();
    let notes = export(&Recording::open(&ours).unwrap(), &damos, Format::Json).unwrap();
    assert!(notes[0].contains("no target has more than 1:"), "{notes:?}");

    let json: Value = serde_json::from_slice(&std::fs::read(&damos).unwrap()).unwrap();
    let page = |value: &Value| value.as_str().unwrap().parse::<u64>().unwrap() / 4096;
    let regions = json[0]["snapshots"][0]["regions"].as_array().unwrap().iter();
    let regions: Vec<_> = regions
        .map(|region| {
            (page(&region["start"]), page(&region["end"]), region["nr_accesses"]["samples"].as_u64().unwrap())
        })
        .collect();
    assert_eq!(regions, [(16, 20, 0), (20, 32, 0), (40, 50, 20), (50, 51, 0), (100, 101, 7)]);
}

#[test]
fn a_layout_with_a_version_is_refused_by_its_version() {
    for name in ["damo_record_ver", "damo_reocrd_ver"] {
        let file = json!({name: 1, "damo_records": {"damon_records": {"kdamonds": [], "record_list": []}}}).to_string();
        for bytes in [file.clone().into_bytes(), compressed(file.as_bytes())] {
            let error = imported_bytes(&bytes).unwrap_err().to_string();
            assert!(error.contains("it has damo_record_ver 1, a layout that isotherm does not read"), "{error}");
        }
    }
}

#[test]
fn after_a_gap_a_rate_is_of_one_aggregation_only() {
    // 20 of 20 samples in 100 ms, then nothing for 10 s, then one more aggregation. damo lets a snapshot begin at the
    // end of the one before it.
    let mut file = json!([record(json!(7), &[&[(0, 4096, 20, 3)], &[(0, 4096, 20, 4)]])]);
    for start in [100_000_000_u64, 10_000_000_000] {
        file[0]["snapshots"][1]["start_time"] = json!(start);
        file[0]["snapshots"][1]["end_time"] = json!(10_100_000_000_u64);
        for without_intervals in [false, true] {
            let mut file = file.clone();
            if without_intervals {
                file[0]["intervals"] = Value::Null;
            }
            let (_, rows) = imported_json(&file).unwrap();
            let ms = |time: Duration| time.as_millis();
            let times: Vec<_> = rows.iter().map(|row| (ms(row.time), ms(row.aggregation), row.samples)).collect();
            assert_eq!(times, [(100, 100, 20), (10_100, 100, 20)], "{start} {without_intervals}");
        }
    }
}
