//! The JSON of every report matches its schema, and has the documented fields.

use isotherm_report::{Format, Kind, Options, Selection, write};
use serde_json::Value;

use crate::made;
use crate::made::valid::assert_valid;

fn json(kind: Kind) -> Vec<Value> {
    json_of(kind, &made::schemed(4))
}

fn json_of(kind: Kind, source: &made::Made) -> Vec<Value> {
    let mut out = vec![];
    write(kind, Format::Json, source, &Selection::default(), &Options::default(), &mut out).unwrap();
    String::from_utf8(out).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn every_json_report_matches_its_schema() {
    let kinds = Kind::ALL.into_iter().filter(|kind| ![Kind::Tune, Kind::Html].contains(kind));
    for kind in kinds {
        let lines = json(kind);
        assert_eq!(lines.len(), if kind == Kind::Regions { 40 } else { 1 });
        let imported = json_of(kind, &made::imported(made::schemed(4)));
        let surveyed = if kind == Kind::Schemes { vec![] } else { json_of(kind, &made::surveyed(12)) };
        let on_nodes = if kind == Kind::Summary { json_of(kind, &made::on_two_nodes(12)) } else { vec![] };
        for line in lines.iter().chain(&imported).chain(&surveyed).chain(&on_nodes) {
            assert_valid(kind.name(), line);
        }
    }
}

/// The names of an object's fields, in the order in which they are written.
fn fields(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn the_documented_fields_exist() {
    let wss = &json(Kind::Wss)[0];
    let names = ["counted_once", "group_by", "groups", "high_percentiles", "interval_max_ns", "interval_min_ns"];
    let more = ["low_percentiles", "lower_bound", "marks", "over_time", "pace", "percentiles"];
    let others = ["source", "total_over_time", "warnings", "window_ns"];
    assert_eq!(fields(wss), [&names[..], &more, &others].concat());
    let mut percentiles = fields(&wss["percentiles"]);
    percentiles.sort_by_key(|p| p.parse::<u32>().unwrap());
    assert_eq!(percentiles, ["0", "25", "50", "75", "90", "99", "100"]);
    assert_eq!(wss["over_time"][0]["pid"], 1234);
    assert_eq!(wss["over_time"][1]["time_ns"], 200_000_000);
    let regions = &json(Kind::Regions)[0];
    for name in ["time_ns", "aggregation_ns", "samples", "pid", "regions"] {
        assert!(regions.get(name).is_some(), "{name}");
    }
    let region = &regions["regions"][1];
    assert_eq!(region["age_ns"], 100_000_000);
    assert!((region["access_rate"].as_f64().unwrap() - region["nr_accesses"].as_f64().unwrap() / 20.0).abs() < 1e-9);
    let overhead = &json(Kind::Overhead)[0];
    for name in ["probe", "cpu_percent", "max_regions", "late_rounds", "rounds", "unobservable_bytes"] {
        assert!(overhead.get(name).is_some(), "{name}");
    }
    let schemes = &json(Kind::Schemes)[0];
    let prcl = &schemes["schemes"][0];
    assert_eq!((&prcl["name"], &prcl["action"]), (&"prcl".into(), &"pageout".into()));
    for name in [
        "tried_bytes",
        "tried_regions",
        "applied_bytes",
        "applied_regions",
        "rejected_bytes",
        "quota_exceeded",
        "spent_ns",
    ] {
        assert!(prcl[name].is_u64(), "{name}");
    }
    assert_eq!(schemes["schemes"][1]["refusals"][0]["name"], "EAGAIN");
    assert_eq!(schemes["over_time"].as_array().unwrap().len(), 4);
    assert_eq!(schemes["over_time"][3]["memory"][0]["pid"], 1234);
    for load in ["regions", "reads_per_sampling"] {
        assert!(overhead[load]["mean"].is_number() && overhead[load]["max"].is_u64());
    }
}

#[test]
fn the_matrices_of_a_heatmap_have_the_shape_of_its_axes() {
    let heatmap = &json(Kind::Heatmap)[0];
    let columns = heatmap["time_edges_ns"].as_array().unwrap().len() - 1;
    let target = &heatmap["targets"][0];
    let rows = target["rows"].as_array().unwrap();
    for matrix in ["rates_hz", "unobservable"] {
        let matrix = target[matrix].as_array().unwrap();
        assert_eq!(matrix.len(), rows.len());
        assert!(matrix.iter().all(|row| row.as_array().unwrap().len() == columns));
    }
    let areas: u64 = target["areas"].as_array().unwrap().iter().map(|area| area["bytes"].as_u64().unwrap()).sum();
    assert_eq!(rows.iter().map(|row| row["bytes"].as_u64().unwrap()).sum::<u64>(), areas);
    let dark = rows
        .iter()
        .position(|row| row["name"] == "[heap]" && row["start"].as_u64() > Some(made::HEAP + 22 * made::MIB));
    assert!(target["rates_hz"][dark.unwrap()][3].is_null());
}

#[test]
fn figures_that_an_imported_recording_lacks_are_null_and_not_zero() {
    let overhead = &json_of(Kind::Overhead, &made::imported(made::phases(40)))[0];
    let unknown = [
        "cpu_percent",
        "reads_per_sampling",
        "late_rounds",
        "lost_aggregations",
        "rounds",
        "reads",
        "clears",
        "cpu_ns",
    ];
    for name in unknown.into_iter().chain(["unobservable_bytes", "unobservable_bytes_max"]) {
        assert!(overhead[name].is_null(), "{name}: {}", overhead[name]);
    }
    let moment = &overhead["over_time"][0];
    for name in ["reads_per_sampling", "max_reads", "cpu_percent", "late_rounds", "unobservable_bytes"] {
        assert!(moment[name].is_null(), "{name}: {}", moment[name]);
    }
    assert!(moment["regions"].as_u64().unwrap() > 0 && overhead["regions"]["mean"].as_f64().unwrap() > 0.0);
}
