//! Reports of a long recording, of which snapshots are merged, say what those of each snapshot say.

use std::path::Path;
use std::time::Duration;

use isotherm_core::BoxError;
use isotherm_record::{Contents, Event, Header, Joined, Needs, Recorder, Recording, SurveyDetail};
use isotherm_report::axis::AxisResolution;
use isotherm_report::heatmap::{Heatmap, Plan};
use isotherm_report::temperature::Temperatures;
use isotherm_report::{Events, Format, Kind, Measure, Options, Selection, Source, write};

use crate::made::{ANON, MIB, Made, made, mapping, region, row, surveyed};

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
    let file = recorded(&each, directory.path());
    let summary = |source: &dyn Source| json(Kind::Summary, source, &Options::default());
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

/// The recording of all that is in `made`.
fn recorded(made: &Made, directory: &Path) -> Recording {
    let path = directory.join("long.rec");
    let contents = Contents { surveys: !made.surveys.is_empty(), ..Contents::default() };
    let mut recorder = Recorder::create_with(&path, &made.header, contents).unwrap();
    for event in made.events(Needs::ALL).unwrap() {
        recorder.write_event(&event.unwrap()).unwrap();
    }
    recorder.finish().unwrap();
    Recording::open(&path).unwrap()
}

fn json(kind: Kind, source: &dyn Source, options: &Options) -> serde_json::Value {
    let mut out = vec![];
    write(kind, Format::Json, source, &Selection::default(), options, &mut out).unwrap();
    serde_json::from_slice(&out).unwrap()
}

/// The time from a survey to the next.
const EACH: Duration = Duration::from_secs(4);

/// 28,000 s with a survey each 4 s, in which a part is hot in the first half.
fn long_surveyed() -> Made {
    let mut made = surveyed(60);
    let (rows, surveys) = (made.rows.clone(), made.surveys.clone());
    made.header.aggregation_ns *= 4;
    made.rows = (1..=70_000_u32)
        .map(|nth| {
            let mut row = rows[rows.len() - 1].clone();
            (row.time, row.aggregation) = (row.aggregation * 4 * nth, row.aggregation * 4);
            row
        })
        .collect();
    made.surveys = (1..=7_000_u32)
        .map(|nth| {
            // The fifth one finds more touched.
            let of = if nth == 1 { 0 } else { 4 + usize::from(nth >= 3_500) };
            let mut record = surveys[of].clone();
            record.survey.time = EACH * nth;
            record.survey.interval *= EACH.as_secs() as u32;
            record
        })
        .collect();
    made
}

#[test]
fn a_file_has_merged_surveys_that_say_what_each_of_its_surveys_says() {
    let each = long_surveyed();
    let directory = tempfile::tempdir().unwrap();
    let file = recorded(&each, directory.path());
    let surveys = |needs: Needs, detail| {
        let events = file.events(needs).map(Result::unwrap);
        let surveys = events.filter_map(|event| if let Event::Survey(record) = event { Some(record) } else { None });
        surveys.filter(|record| record.detail == detail).count()
    };
    let needs = Needs { snapshots: true, ..Needs::SURVEYS };
    assert_eq!(surveys(needs, SurveyDetail::Whole), 7_000);
    let merged = Needs { merged: true, ..needs };
    let counts = [SurveyDetail::Whole, SurveyDetail::Bare, SurveyDetail::Merged].map(|detail| surveys(merged, detail));
    assert_eq!(counts[0] + counts[1], 7_000);
    assert!(counts[0] < 500 && (300..1000).contains(&counts[2]), "{counts:?}");

    assert_same_heatmaps(&each, &file, &[(Measure::Rate, "absent"), (Measure::Touched, "touched")]);
}

#[test]
fn files_one_after_another_have_merged_snapshots_and_surveys_as_one_file_has() {
    let each = long_surveyed();
    let directory = tempfile::tempdir().unwrap();
    let half = Duration::from_secs(14_000);
    let (mut first, mut second) = (each.clone(), each.clone());
    first.rows.retain(|row| row.time <= half);
    first.surveys.retain(|record| record.survey.time <= half);
    second.rows.retain(|row| row.time > half);
    second.surveys.retain(|record| record.survey.time > half);
    second.header.started_unix_ns += half.as_nanos() as u64;
    second.rows.iter_mut().for_each(|row| row.time -= half);
    second.surveys.iter_mut().for_each(|record| record.survey.time -= half);
    second.surveys[0].survey.interval = Duration::ZERO;
    let files = ["first", "second"].map(|name| directory.path().join(name));
    let recordings = [(&second, &files[1]), (&first, &files[0])].map(|(made, directory)| {
        std::fs::create_dir(directory).unwrap();
        recorded(made, directory)
    });
    let joined = Joined::new(recordings.into()).unwrap();
    assert!(joined.is_sequence());
    let needs = Needs { merged: true, snapshots: true, regions: true, ..Needs::SURVEYS };
    let (mut bare, mut merged) = ((0, 0), (0, 0));
    for event in joined.events(needs).map(Result::unwrap) {
        match event {
            Event::Snapshot(record) if record.is_merged => merged.0 += 1,
            Event::Snapshot(record) => bare.0 += usize::from(record.snapshot.regions().next().is_none()),
            Event::Survey(record) => match record.detail {
                SurveyDetail::Merged => merged.1 += 1,
                SurveyDetail::Bare => bare.1 += 1,
                SurveyDetail::Whole => {}
            },
            other => panic!("{other:?}"),
        }
    }
    assert!(bare.0 > 69_000 && bare.1 > 6_900, "{bare:?}");
    assert!((300..1000).contains(&merged.0) && (300..1000).contains(&merged.1), "{merged:?}");
    assert_same_heatmaps(&each, &joined, &[(Measure::Touched, "touched")]);
}

/// Asserts that nearly all cells say the same.
fn assert_same_heatmaps(each: &dyn Source, merged: &dyn Source, matrices: &[(Measure, &str)]) {
    for &(measure, matrix) in matrices {
        let options = Options { measure: Some(measure), cells: Some((50, 40)), ..Options::default() };
        let [one, other] = [each, merged].map(|source| json(Kind::Heatmap, source, &options));
        assert_eq!(one["interval_max_ns"], other["interval_max_ns"]);
        let (mut cells, mut differ) = (0, 0);
        let rows = |map: &serde_json::Value| map["targets"][0][matrix].as_array().unwrap().clone();
        for (one, other) in rows(&one).iter().zip(rows(&other)) {
            for (one, other) in one.as_array().unwrap().iter().zip(other.as_array().unwrap()) {
                cells += 1;
                let [one, other] = [one, other].map(|value| value.as_f64());
                let is_near = (one.unwrap_or(0.0) - other.unwrap_or(0.0)).abs() <= 0.02;
                differ += i32::from(one.is_some() != other.is_some() || !is_near);
            }
        }
        // The part that becomes hot does so within a merged survey.
        assert!(cells >= 1000 && differ * 20 <= cells, "{matrix}: {differ} of {cells} cells");
    }
}
