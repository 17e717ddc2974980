//! Reports on recordings with surveys.
#![allow(missing_docs, clippy::unwrap_used)]

mod made;

use std::time::Duration;

use isotherm_core::survey::{TargetSurvey, TotalSums};
use isotherm_core::{AddrRange, Permissions};
use isotherm_report::wss::{Basis, Wss};
use isotherm_report::{Format, Kind, Measure, Options, ReportError, Selection, Terminal, write};
use made::{MIB, Made, surveyed};
use serde_json::{Value, json};

fn report(kind: Kind, format: Format, source: &Made, options: &Options) -> String {
    let mut out = vec![];
    write(kind, format, source, &Selection::default(), options, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn text(kind: Kind, source: &Made) -> String {
    let terminal = Terminal { columns: 110, ..Terminal::default() };
    report(kind, Format::Text, source, &Options { terminal, ..Options::default() })
}

fn json_of(kind: Kind, source: &Made, options: &Options) -> Value {
    let out = report(kind, Format::Json, source, options);
    let value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    let path = format!("{}/schemas/{}.json", env!("CARGO_MANIFEST_DIR"), kind.name());
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let errors: Vec<String> = validator.iter_errors(&value).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert!(errors.is_empty(), "{kind:?}: {errors:#?}");
    value
}

fn within(source: &Made, seconds: u64) -> Wss {
    Wss::new(source, &Selection::default(), Some(Duration::from_secs(seconds))).unwrap()
}

#[test]
fn the_working_set_is_what_was_touched_within_the_window() {
    let source = surveyed(20);
    let interval = Wss::new(&source, &Selection::default(), None).unwrap();
    assert_eq!((interval.basis, interval.window), (Basis::Survey, Duration::from_secs(1)));
    // The first survey cannot tell what was touched, so it does not count.
    assert_eq!(interval.percentiles().0, [8, 8, 8, 8, 8, 16, 16].map(|mib| mib * MIB));
    let ten = within(&source, 10);
    assert_eq!(ten.settled().len(), 10);
    assert_eq!(ten.percentiles().0[0], 8 * MIB);
    assert_eq!(ten.percentiles().0[6], 16 * MIB);
    assert_eq!(ten.percentiles_of(|amount| amount.present_bytes).unwrap().median(), 64 * MIB);
    assert!(!ten.is_short() && within(&source, 60).is_short());
    assert_eq!(within(&source, 60).settled().len(), 20);
}

#[test]
fn the_json_of_the_working_set_says_what_it_rests_on() {
    let source = surveyed(6);
    let wss = json_of(Kind::Wss, &source, &Options::default());
    assert_eq!((&wss["source"], &wss["window_ns"]), (&json!("survey"), &json!(1_000_000_000)));
    assert_eq!(
        wss["over_time"][4],
        json!({
            "time_ns": 5_000_000_000_u64, "pid": 1234, "bytes": 16 * MIB, "present_bytes": 64 * MIB,
            "unobservable_bytes": 4 * MIB, "unknown_bytes": 4 * MIB, "low_bytes": null, "high_bytes": null
        })
    );
    assert_eq!(wss["total_over_time"][0]["warm_up"], json!(true));
    let sampled = json_of(Kind::Wss, &Made { surveys: vec![], ..surveyed(6) }, &Options::default());
    assert_eq!((&sampled["source"], &sampled["window_ns"]), (&json!("samples"), &json!(100_000_000)));
    let last = sampled["over_time"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["bytes"], &last["low_bytes"]), (&json!(0), &json!(0)));
    assert_eq!(last["present_bytes"], json!(64 * MIB));
    assert!(last["high_bytes"].as_u64() > Some(8 * MIB), "{last}");
}

/// Two targets, whose pages are all the same, and what is known of both together.
fn sharing(total: bool) -> Made {
    let mut source = surveyed(6);
    for record in &mut source.surveys {
        let survey = &mut record.survey;
        let second = TargetSurvey { id: made::process(77), ..survey.targets[0].clone() };
        survey.total = total.then(|| TotalSums { sums: second.total(), shared: 48 * MIB });
        survey.targets.push(second);
    }
    source
}

#[test]
fn what_several_targets_share_counts_once_in_the_total() {
    let wss = |source: &Made| json_of(Kind::Wss, source, &Options::default());
    let last = |wss: &Value, list: &str| wss[list].as_array().unwrap().last().unwrap().clone();
    let known = wss(&sharing(true));
    assert_eq!((&known["counted_once"], last(&known, "over_time")["pid"].clone()), (&json!(true), json!(77)));
    assert_eq!(last(&known, "total_over_time")["bytes"], last(&known, "over_time")["bytes"]);
    assert_eq!(last(&known, "total_over_time")["present_bytes"], json!(64 * MIB));
    let unknown = wss(&sharing(false));
    assert_eq!(unknown["counted_once"], json!(false));
    assert_eq!(last(&unknown, "total_over_time")["present_bytes"], json!(128 * MIB));
    // The total is of both targets. A part of them has no total.
    let address = AddrRange::new(0, 1 << 40);
    let part = Wss::new(&sharing(true), &Selection { address, ..Selection::default() }, None).unwrap();
    assert!(part.once.is_none());

    let summary = |source: &Made| json_of(Kind::Summary, source, &Options::default())["counted_once"].clone();
    let once = summary(&sharing(true));
    assert_eq!((&once["resident_bytes"], &once["shared_bytes"]), (&json!(64 * MIB), &json!(48 * MIB)));
    assert_eq!(summary(&sharing(false)), json!(null));
}

#[test]
fn a_window_needs_surveys() {
    let error = Wss::new(&made::phases(5), &Selection::default(), Some(Duration::from_secs(1))).unwrap_err();
    assert!(matches!(error, ReportError::NoSurveys { .. }) && error.to_string().contains("--survey auto"), "{error}");
}

#[test]
fn a_summary_is_of_present_memory() {
    let summary = json_of(Kind::Summary, &surveyed(40), &Options::default());
    let total = &summary["total"];
    for (name, mib) in [("resident_bytes", 64), ("idle_10s_bytes", 52), ("hot_bytes", 0)] {
        assert_eq!(total[name], json!(mib * MIB), "{name}");
    }
    assert_eq!((&total["idle_1m_bytes"], &total["swapped_bytes"]), (&Value::Null, &Value::Null));
    assert!(total["unobservable_bytes"].as_u64() > Some(3 * MIB) && total["unknown_bytes"].as_u64() > Some(3 * MIB));
    // The first second is without a survey: all that is mapped counts then, as in any recording without surveys.
    let size = total["size_bytes"].as_u64().unwrap();
    assert!((64 * MIB..66 * MIB).contains(&size), "{size}");
    assert!(total["warm_bytes"].as_u64() > Some(7 * MIB) && total["absent_bytes"].as_u64() > Some(31 * MIB));
}

#[test]
fn space_without_permission_is_no_memory() {
    let mut source = made::phases(5);
    for row in &mut source.rows {
        let mappings = row.target.mappings.iter().cloned().enumerate().map(|(nth, mut mapping)| {
            if nth == 2 {
                mapping.permissions = Permissions::NONE;
            }
            mapping
        });
        row.target.mappings = mappings.collect();
    }
    let size =
        |source: &Made| json_of(Kind::Summary, source, &Options::default())["total"]["size_bytes"].as_u64().unwrap();
    assert_eq!(size(&made::phases(5)) - size(&source), 256 * MIB);
}

#[test]
fn texts_of_a_surveyed_recording() {
    let source = surveyed(12);
    for kind in [Kind::Wss, Kind::Summary] {
        insta::assert_snapshot!(kind.name(), text(kind, &source));
    }
    let heatmap = |measure| {
        let terminal = Terminal { columns: 90, rows: 24, ..Terminal::default() };
        report(Kind::Heatmap, Format::Text, &source, &Options { terminal, measure, ..Options::default() })
    };
    insta::assert_snapshot!("idle-time", heatmap(Some(Measure::IdleTime)));
    assert_eq!(heatmap(None), heatmap(Some(Measure::Touched)));
    insta::assert_snapshot!("touched", heatmap(None));
    let regions = text(Kind::Regions, &source);
    insta::assert_snapshot!(
        "regions",
        regions.split("\n\n").last().unwrap_or(&regions).to_owned() + regions.split("\n\n").nth(100).unwrap()
    );
}

#[test]
fn a_heatmap_in_json_says_what_it_measures() {
    let source = surveyed(6);
    let map = |measure| json_of(Kind::Heatmap, &source, &Options { measure, ..Options::default() });
    let touched = map(None);
    assert_eq!((&touched["measure"], &touched["targets"][0]["touched"][0][0]), (&json!("touched"), &json!(1.0)));
    let idle = map(Some(Measure::IdleTime));
    assert_eq!(idle["targets"][0]["idle_s"].as_array().unwrap().last().unwrap()[4], json!(5.0));
    assert_eq!(map(Some(Measure::Rate))["measure"], json!("rate"));
    let error = write(
        Kind::Heatmap,
        Format::Json,
        &made::phases(5),
        &Selection::default(),
        &Options { measure: Some(Measure::Touched), ..Options::default() },
        &mut vec![],
    );
    assert!(matches!(error, Err(ReportError::NotSurveyed { .. })));
}

#[test]
fn little_evidence_is_said_first() {
    let blind = Made { surveys: vec![], ..surveyed(3) };
    for kind in [Kind::Wss, Kind::Summary, Kind::Heatmap, Kind::Regions] {
        let first = text(kind, &blind).lines().next().unwrap().to_owned();
        assert!(first.starts_with("! little evidence: none of the samples"), "{first}");
    }
    let mut once = surveyed(3);
    once.surveys.truncate(1);
    assert!(text(Kind::Wss, &once).starts_with("! little evidence: there was only one survey"));
    assert!(!text(Kind::Wss, &surveyed(3)).starts_with('!'));
    assert!(!text(Kind::Wss, &made::phases(10)).starts_with('!'));
}

#[test]
fn the_page_shows_the_working_set_by_window() {
    let page = report(Kind::Html, Format::Html, &surveyed(20), &Options::default());
    assert!(page.contains("touched within it, median") && page.contains("touched within 1 s, the survey interval"));
}
