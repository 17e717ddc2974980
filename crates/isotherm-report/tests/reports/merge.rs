//! Reports on a recording that was merged say of each target what those on its own recording say.

use std::path::{Path, PathBuf};
use std::time::Duration;

use isotherm_core::Snapshot;
use isotherm_record::{Contents, Joined, Recorder, Recording, SnapshotRecord, merge};
use isotherm_report::{Format, Kind, Options, SelectedTarget, Selection, Source, write};
use serde_json::Value;

use crate::made::{self, Made};

const PID: u32 = 4242;
const OTHER: u32 = 4343;

/// Writes `made` to a file, with its process as `pid` and its start this much later.
fn recorded(made: &Made, path: &Path, pid: u32, later: Duration) {
    let contents =
        Contents { activities: !made.activities.is_empty(), surveys: !made.surveys.is_empty(), ..Contents::default() };
    let mut header = made.header.clone();
    header.started_unix_ns += later.as_nanos() as u64;
    let mut recorder = Recorder::create_with(path, &header, contents).unwrap();
    let id = made::process(pid);
    for survey in &made.surveys {
        let mut survey = survey.clone();
        survey.survey.targets.truncate(1);
        survey.survey.targets[0].id = id;
        survey.infos = vec![(id, survey.infos[0].1.clone())].into();
        recorder.write_survey(&survey).unwrap();
    }
    for row in &made.rows {
        let target = isotherm_core::TargetSnapshot { id, ..row.target.clone() };
        let snapshot = Snapshot {
            time: row.time,
            aggregation: row.aggregation,
            samples: row.samples,
            targets: vec![target],
            ..Snapshot::default()
        };
        recorder
            .write(&SnapshotRecord {
                snapshot,
                cost: row.cost,
                infos: vec![(id, row.info.clone())].into(),
                ..SnapshotRecord::default()
            })
            .unwrap();
    }
    recorder.finish().unwrap();
}

fn report(kind: Kind, path: &Path, pid: Option<u32>, options: &Options) -> Value {
    let target = pid.map(SelectedTarget::Process);
    report_of(kind, path, &Selection { target, ..Selection::default() }, options)
}

fn report_of(kind: Kind, path: &Path, selection: &Selection, options: &Options) -> Value {
    report_on(kind, &Recording::open(path).unwrap(), selection, options)
}

fn report_on(kind: Kind, source: &dyn Source, selection: &Selection, options: &Options) -> Value {
    let mut out = vec![];
    write(kind, Format::Json, source, selection, options, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    // Regions are one value a line.
    serde_json::from_str(&text)
        .unwrap_or_else(|_| text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect())
}

/// Two recordings of one process each, of which the second began this much later, and what they are together.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new(made: &Made, pids: [u32; 2], later: Duration) -> Self {
        let place = Self { dir: tempfile::tempdir().unwrap() };
        recorded(made, &place.path("a.rec"), pids[0], Duration::ZERO);
        recorded(made, &place.path("b.rec"), pids[1], later);
        merge(&place.joined(), &place.path("all.rec")).unwrap();
        place
    }

    /// Both, read as one.
    fn joined(&self) -> Joined {
        Joined::new(["a.rec", "b.rec"].map(|name| Recording::open(&self.path(name)).unwrap()).into()).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

const KINDS: [Kind; 6] = [Kind::Heatmap, Kind::Wss, Kind::Regions, Kind::Summary, Kind::IdleTime, Kind::Temperature];

/// Leaves out the header, what the monitoring of both cost, and what surveys know of all targets together.
fn without_header(mut report: Value) -> Value {
    if let Value::Array(values) = &mut report {
        return std::mem::take(values).into_iter().map(without_header).collect();
    }
    if let Some(map) = report.as_object_mut() {
        let of_all = ["recording", "rounds", "late_rounds", "cpu_percent", "budget_percent", "pace", "counted_once"];
        of_all.iter().for_each(|name| drop(map.remove(*name)));
        map.values_mut().for_each(|value| *value = without_header(value.take()));
    }
    report
}

#[test]
fn reports_on_several_recordings_are_those_on_what_they_are_merged_to() {
    let (selection, options) = (Selection::default(), Options::default());
    // At the same time, and one after another.
    for (pids, later) in [([PID, OTHER], Duration::from_millis(30)), ([PID, PID], Duration::from_secs(3600))] {
        let place = Place::new(&made::surveyed(40), pids, later);
        let joined = place.joined();
        for kind in KINDS.into_iter().chain([Kind::Overhead]) {
            let found = report_on(kind, &joined, &selection, &options);
            assert!(found == report_of(kind, &place.path("all.rec"), &selection, &options), "{kind:?}");
        }
    }
}

#[test]
fn figures_of_each_target_are_those_of_its_own_recording() {
    for made in [made::surveyed(20), made::phases(60)] {
        let place = Place::new(&made, [PID, OTHER], Duration::ZERO);
        for (name, pid) in [("a.rec", PID), ("b.rec", OTHER)] {
            for kind in KINDS {
                let own = without_header(report(kind, &place.path(name), Some(pid), &Options::default()));
                let merged = without_header(report(kind, &place.path("all.rec"), Some(pid), &Options::default()));
                assert_eq!(merged, own, "{kind:?} of {name}");
            }
        }
    }
}

#[test]
fn totals_are_the_sums_of_the_targets() {
    for made in [made::surveyed(20), made::phases(60)] {
        // The second recorder began within an aggregation of the first.
        for later in [Duration::ZERO, Duration::from_millis(40)] {
            let place = Place::new(&made, [PID, OTHER], later);
            let of = |kind, name: &str| report(kind, &place.path(name), None, &Options::default());
            let wss = |name: &str| of(Kind::Wss, name)["percentiles"]["50"].as_u64().unwrap() as f64;
            let total = |name: &str| of(Kind::Summary, name)["total"]["size_bytes"].as_u64().unwrap() as f64;
            let idle = |name: &str| {
                of(Kind::IdleTime, name)["total"]["bytes"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|bytes| bytes.as_u64().unwrap() as f64)
                    .sum::<f64>()
            };
            for figure in [&wss as &dyn Fn(&str) -> f64, &total, &idle] {
                let (one, both) = (figure("a.rec"), figure("all.rec"));
                assert!((both - 2.0 * one).abs() <= 0.03 * one, "{both} of both, {one} of one, {later:?}");
            }
        }
    }
}

#[test]
fn the_time_between_recordings_counts_for_nothing() {
    for made in [made::surveyed(40), made::phases(60)] {
        let place = Place::new(&made, [PID, PID], Duration::from_secs(600));
        let of = |kind, name: &str| report(kind, &place.path(name), Some(PID), &Options::default());
        let (one, both) = (of(Kind::Overhead, "a.rec"), of(Kind::Overhead, "all.rec"));
        for figure in ["wall_ns", "rounds", "reads", "cpu_ns"] {
            assert_eq!(both[figure].as_u64(), one[figure].as_u64().map(|one| 2 * one), "{figure}");
        }
        let close = |a: &Value, b: &Value, what: &str| {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            assert!((a - b).abs() <= 0.03 * b.abs(), "{what}: {a} and {b}");
        };
        assert_eq!(both["over_time"].as_array().unwrap().len(), 2 * one["over_time"].as_array().unwrap().len());
        let most = |report: &Value| {
            let moments = report["over_time"].as_array().unwrap().iter();
            moments.map(|moment| moment["cpu_percent"].as_f64().unwrap()).fold(0.0, f64::max).into()
        };
        close(&most(&both), &most(&one), "the highest CPU time");
        let (one, both) = (of(Kind::Summary, "a.rec"), of(Kind::Summary, "all.rec"));
        for figure in ["size_bytes", "hot_bytes", "cold_bytes"] {
            close(&both["total"][figure], &one["total"][figure], figure);
            close(&both["targets"][0][figure], &one["targets"][0][figure], figure);
        }
        close(&both["targets"][0]["lived_ns"], &(2 * one["targets"][0]["lived_ns"].as_u64().unwrap()).into(), "life");
        let wss = |name: &str| of(Kind::Wss, name)["percentiles"].clone();
        for percentile in ["0", "50", "100"] {
            close(&wss("all.rec")[percentile], &wss("a.rec")[percentile], percentile);
        }
    }
}

#[test]
fn the_first_surveys_of_each_recording_are_its_warm_up() {
    let made = made::surveyed(40);
    let place = Place::new(&made, [PID, PID], Duration::from_secs(600));
    let options = Options { window: Some(Duration::from_secs(2)), ..Options::default() };
    let points = |name: &str| {
        let report = report(Kind::Wss, &place.path(name), None, &options);
        let points = report["over_time"].as_array().unwrap().clone();
        points.iter().map(|point| point["warm_up"].as_bool().unwrap()).collect::<Vec<_>>()
    };
    let one = points("a.rec");
    assert!(one.contains(&true) && one.contains(&false), "{one:?}");
    assert_eq!(points("all.rec"), [one.clone(), one].concat());
}

#[test]
fn two_recorders_at_once_cost_the_sum_of_both_in_the_time_of_one() {
    let place = Place::new(&made::phases(60), [PID, OTHER], Duration::ZERO);
    let of = |name: &str| report(Kind::Overhead, &place.path(name), None, &Options::default());
    let (one, both) = (of("a.rec"), of("all.rec"));
    assert_eq!(both["wall_ns"], one["wall_ns"]);
    assert_eq!(both["lost_aggregations"], 0);
    let percent = |report: &Value| report["cpu_percent"].as_f64().unwrap();
    assert!((percent(&both) - 2.0 * percent(&one)).abs() < 0.001 * percent(&one), "{both} {one}");
    let moment = |report: &Value, figure: &str| report["over_time"][9][figure].as_f64().unwrap();
    for figure in ["cpu_percent", "regions", "reads_per_sampling"] {
        assert_eq!(moment(&both, figure), 2.0 * moment(&one, figure), "{figure}");
    }
    assert_eq!(both["over_time"].as_array().unwrap().len(), one["over_time"].as_array().unwrap().len());
    assert_eq!(both["budget_percent"].as_f64().unwrap(), 2.0 * one["budget_percent"].as_f64().unwrap());
}
