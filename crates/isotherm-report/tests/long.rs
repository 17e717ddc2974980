//! Reports of a long recording, of which snapshots are merged, say what those of each snapshot say.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod made;

use std::time::Duration;

use isotherm_core::{BoxError, Snapshot};
use isotherm_record::{Header, Needs, Recorder, Recording, SnapshotRecord};
use isotherm_report::axis::AxisResolution;
use isotherm_report::heatmap::{Heatmap, Plan};
use isotherm_report::temperature::Temperatures;
use isotherm_report::{Events, Format, Kind, Options, Selection, Source, write};
use made::{ANON, MIB, Made, made, mapping, region, row};

/// A recording that tells when it ends, as a file does.
struct Recorded(Made);

impl Source for Recorded {
    fn header(&self) -> &Header {
        self.0.header()
    }

    fn events(&self, needs: Needs) -> Result<Events<'_>, BoxError> {
        self.0.events(needs)
    }

    fn end(&self) -> Option<Duration> {
        self.0.rows.last().map(|row| row.time)
    }
}

/// A mapping of which a quarter is always hot, one is half hot every other 100 s, and the rest is idle.
fn long(snapshots: u32) -> Made {
    let mappings = [mapping(ANON, ANON + 64 * MIB, "")].into();
    let regions = |i: u32| {
        let (turn, half) = (i % 1000, if (i / 1000).is_multiple_of(2) { 10 } else { 0 });
        vec![
            region(ANON, ANON + 16 * MIB, 20, i),
            region(ANON + 16 * MIB, ANON + 32 * MIB, half, turn),
            region(ANON + 32 * MIB, ANON + 64 * MIB, 0, i),
        ]
    };
    made((1..=snapshots).map(|i| row(i, 7, &mappings, regions(i))).collect())
}

#[test]
fn merged_snapshots_have_the_rates_and_the_temperatures_of_each() {
    let each = long(70_000);
    let merged = Recorded(each.clone());
    let axis = AxisResolution { rows: 40, rows_of_area: 2, areas: 3, group: 1 };
    let map = |source: &dyn Source| {
        Heatmap::new(source, &Selection::default(), |extent| Plan::all(extent, 50, axis)).unwrap()
    };
    let (one, other) = (map(&each), map(&merged));
    let (mut cells, mut differ) = (0, 0);
    for (row, column) in (0..40).flat_map(|row| (0..50).map(move |column| (row, column))) {
        let [one, other] = [&one, &other].map(|map| map.targets[0].cell(row, column).map(|cell| cell.rate));
        assert_eq!(one.is_some(), other.is_some(), "row {row}, column {column}");
        cells += i32::from(one.is_some());
        differ += i32::from((one.unwrap_or(0.0) - other.unwrap_or(0.0)).abs() > 0.02);
    }
    assert!(cells > 1000 && differ * 100 <= cells, "{differ} of {cells} cells");

    let temperatures = |source: &dyn Source| Temperatures::new(source, &Selection::default(), None).unwrap();
    let (one, other) = (temperatures(&each), temperatures(&merged));
    assert_eq!((one.from_ns, one.to_ns), (other.from_ns, other.to_ns));
    let all: u64 = one.total.bytes.iter().sum();
    // Where the rate changes within a merged snapshot, other bands have a little.
    for (nth, band) in one.bands.iter().enumerate() {
        let same = other.bands.iter().position(|of| (of.kind, of.from_hz) == (band.kind, band.from_hz));
        let (before, after) = (one.total.bytes[nth], same.map_or(0, |nth| other.total.bytes[nth]));
        assert!(before.abs_diff(after) * 50 <= all, "{before} and {after} of {all} in {band:?}");
    }
    assert!(other.over_time.len() <= 8192 + 1 && other.over_time.len() > 4096, "{}", other.over_time.len());
}

#[test]
fn a_file_has_merged_snapshots_that_say_what_each_of_its_snapshots_says() {
    let mut each = long(70_000);
    each.header.aggregation_ns *= 10;
    each.rows.iter_mut().for_each(|row| (row.time, row.aggregation) = (row.time * 10, row.aggregation * 10));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("long.rec");
    let mut recorder = Recorder::create(&path, &each.header).unwrap();
    for row in &each.rows {
        let snapshot = Snapshot {
            time: row.time,
            aggregation: row.aggregation,
            samples: row.samples,
            targets: vec![row.target.clone()],
            ..Snapshot::default()
        };
        let infos = [(row.target.id, row.info.clone())].into();
        recorder.write(&SnapshotRecord { snapshot, cost: row.cost, infos, ..SnapshotRecord::default() }).unwrap();
    }
    recorder.finish().unwrap();
    let file = Recording::open(&path).unwrap();
    let summary = |source: &dyn Source| -> serde_json::Value {
        let mut out = vec![];
        let (selection, options) = (Selection::default(), Options::default());
        write(Kind::Summary, Format::Json, source, &selection, &options, &mut out).unwrap();
        serde_json::from_slice(&out).unwrap()
    };
    let (one, other) = (summary(&each), summary(&file));
    for name in ["from_ns", "to_ns", "snapshots", "rounds", "hot_hz"] {
        assert_eq!(one[name], other[name], "{name}");
    }
    for name in ["size_bytes", "hot_bytes", "warm_bytes", "cold_bytes"] {
        let [one, other] = [&one, &other].map(|summary| summary["total"][name].as_f64().unwrap());
        assert!((one - other).abs() <= 0.02 * 64.0 * MIB as f64, "{name}: {one} and {other}");
    }
    let regions = |source: &dyn Source| {
        let mut out = vec![];
        let (selection, options) = (Selection::default(), Options::default());
        write(Kind::Regions, Format::Json, source, &selection, &options, &mut out).unwrap();
        String::from_utf8(out).unwrap().lines().count()
    };
    let count = regions(&file);
    assert!((1000..9000).contains(&count), "{count}");
}
