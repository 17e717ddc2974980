//! Schemes in damo's JSON: what they mean, and the errors in them.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::time::Duration;

use isotherm_core::scheme::{
    Action, ClosedInterval, Destinations, Filter, FilterKind, Goal, Metric, NodePart, PageKind, Quota, Scheme, Weights,
};
use isotherm_core::{AddrRange, NodeId};
use isotherm_damo::{parse_schemes, read_schemes};
use isotherm_scheme::Diagnostics;
use proptest::prelude::*;
use serde_json::Value;

const DAMO: &str = include_str!("files/schemes.json");
const SECOND: Duration = Duration::from_secs(1);

fn diagnostics(text: &str) -> Diagnostics {
    parse_schemes("f", text).unwrap_err()
}

#[test]
fn isotherms_own_forms_are_read_too() {
    let damo = r#"[{"action": "pageout", "access_pattern": {"sz_bytes": {"min": 4096, "max": "max"},
        "nr_accesses": {"min": "0 %", "max": "0 %"}, "age": {"min": "5 s", "max": "max"}}}]"#;
    let yaml = include_str!("../../../schemes/prcl.yaml");
    let [damo, yaml, line] = [damo, yaml, "4K max 0 0 5s max pageout"].map(|text| {
        let [scheme] = <[Scheme; 1]>::try_from(parse_schemes("f", text).unwrap()).unwrap();
        Scheme { name: "one".into(), ..scheme }
    });
    assert_eq!(damo, yaml);
    assert_eq!(damo, line);
}

#[test]
fn the_form_of_a_file_is_recognised() {
    let schemes = |path: &str| read_schemes(path.as_ref()).unwrap().len();
    assert_eq!(schemes("tests/files/schemes.json"), 2);
    assert_eq!(schemes("../../schemes/ethp.yaml"), 3);
    assert_eq!(schemes("../../schemes/daos.txt"), 3);
    assert!(read_schemes("no/such/file".as_ref()).unwrap_err().to_string().starts_with("no/such/file: cannot be read"));
}

#[test]
fn a_configuration_of_damo_is_read() {
    let schemes = parse_schemes("f", DAMO).unwrap();
    let [first, second] = schemes.as_slice() else { panic!("two schemes") };
    assert_eq!(first.condition.age.min(), SECOND * 90);
    assert_eq!(first.apply_interval, Some(SECOND));
    assert_eq!((first.quota.bytes(), first.quota.time()), (Some(100 << 20), Some(Duration::from_millis(10))));
    assert_eq!(first.quota.weights(), Weights::new(50, 40, 30).unwrap());
    assert_eq!(first.quota.goals(), [Goal::new(Metric::StallTime, 0.01).unwrap()]);
    assert_eq!(first.watermarks.as_ref().map(|marks| (marks.high(), marks.low())), Some((0.5, 0.2)));
    let kinds: Vec<_> = first.filters.iter().map(|f| (f.kind.clone(), f.matching, f.allow)).collect();
    assert_eq!(
        kinds,
        [
            (FilterKind::Anonymous, true, true),
            (FilterKind::Cgroup("/work".into()), false, false),
            (FilterKind::Address(AddrRange::new(4096, 8192).unwrap()), true, false),
        ]
    );
    assert_eq!(second.condition.rate.max(), 1.0);
    assert_eq!(second.condition.size, ClosedInterval::new(2 << 20, 3 << 29).unwrap());
    assert_eq!((second.quota.clone(), second.watermarks.clone()), (Quota::UNLIMITED, None));
}

#[test]
fn errors_have_positions_and_say_what_isotherm_has() {
    let scheme = |more: &str| {
        format!(
            r#"[{{"action": "pageout", "access_pattern": {{"sz_bytes": {{"min": "4 KiB", "max": "max"}}}}, {more}}}]"#
        )
    };
    for (more, words) in [
        (r#""filters": [{"filter_type": "target", "matching": true}]"#, "no filter \"target\""),
        (r#""filters": [{"filter_type": "hugepage_size", "hugepage_size": ["1M", "64K"]}]"#, "reversed"),
        (r#""max_nr_snapshots": "5""#, "--duration"),
        (r#""quotas": {"sz_bytes": "1 MiB", "reset_interval_ms": "0 ns"}"#, "need reset_interval_ms"),
        (r#""quotas": {"goal_tuner": "temporal"}"#, "consist"),
        (r#""quotas": {"fail_charge_num": "1"}"#, "counts refused memory"),
        (r#""quotas": {"goals": [{"metric": "user_input", "target_value": "5 %"}]}"#, "free_memory"),
        (r#""quotas": {"goals": [{"metric": "node_mem_free_bp", "target_value": "5 %"}]}"#, "needs the field nid"),
        (
            r#""quotas": {"goals": [{"metric": "node_memcg_used_bp", "target_value": "5 %", "nid": 0}]}"#,
            "the field path",
        ),
        (r#""target_nid": "fast""#, "the number of a memory node"),
        (r#""dests": [{"id": 0, "weight": 0}]"#, "from 1 to 1000"),
        (r#""watermarks": {"metric": "load"}"#, "free_mem_rate"),
        (r#""colour": "red""#, "no field \"colour\""),
    ] {
        let diagnostics = diagnostics(&scheme(more));
        assert!(diagnostics.to_string().contains(words), "{words}: {diagnostics}");
        assert!(diagnostics.iter().all(|diagnostic| diagnostic.position.is_some()));
    }
    for (pattern, words) in [
        (r#"{"nr_accesses": {"min": "3 samples", "max": "max"}}"#, "in percent"),
        (r#"{"age": {"min": "3 aggr_intervals", "max": "max"}}"#, "write a time"),
        (r#"{"age": {"min": "5000000000", "max": "18446744073709551615000"}}"#, "without --raw"),
        (r#"{"sz_bytes": {"min": "max", "max": "min"}}"#, "swap them"),
    ] {
        let text = format!(r#"[{{"action": "pageout", "access_pattern": {pattern}}}]"#);
        assert!(diagnostics(&text).to_string().contains(words), "{words}: {}", diagnostics(&text));
    }
}

#[test]
fn filters_of_pages_are_read() {
    let read = |kind: &str| {
        let text = format!(
            r#"[{{"action": "stat", "access_pattern": {{"age": {{"min": "5 s", "max": "max"}}}},
            "filters": [{{"filter_type": "{kind}", "matching": true, "allow": false}}]}}]"#
        );
        parse_schemes("f", &text).unwrap()[0].filters.clone()
    };
    for (kind, pages) in [("young", PageKind::Young), ("active", PageKind::Active), ("unmapped", PageKind::Unmapped)] {
        assert_eq!(read(kind), [Filter { kind: FilterKind::Pages(pages), matching: true, allow: false }], "{kind}");
    }
}

#[test]
fn actions_and_goals_of_nodes_are_read() {
    let scheme = |action: &str, more: &str| {
        format!(
            r#"[{{"action": "{action}", {more}, "access_pattern": {{"age": {{"min": "5 s", "max": "max"}}}}, "quotas":
            {{"reset_interval_ms": "1 s", "goals": [
            {{"metric": "node_mem_used_bp", "target_value": "99.7 %", "nid": 0}},
            {{"metric": "node_memcg_free_bp", "target_value": "50", "nid": 0, "path": "/redis"}}]}}}}]"#
        )
    };
    let read = |text: &str| parse_schemes("f", text).unwrap()[0].clone();
    let hot = read(&scheme("migrate_hot", r#""target_nid": 0, "dests": []"#));
    assert_eq!(hot.action, Action::MigrateHot(Destinations::one(NodeId(0))));
    let part = |cgroup: Option<&str>| NodePart { node: NodeId(0), cgroup: cgroup.map(Into::into) };
    let goals = [(Metric::NodeUsed(part(None)), 0.997), (Metric::NodeFree(part(Some("/redis"))), 0.005)];
    assert_eq!(hot.quota.goals(), goals.map(|(metric, value)| Goal::new(metric, value).unwrap()));
    let both = r#""target_nid": -1, "dests": [{"id": 0, "weight": 3}, {"id": 1, "weight": 1}]"#;
    let to = Destinations::new(&[(NodeId(0), 3), (NodeId(1), 1)]).unwrap();
    assert_eq!(read(&scheme("migrate_cold", both)).action, Action::MigrateCold(to));
    // damo writes the field for all actions.
    assert_eq!(read(&scheme("pageout", r#""target_nid": 0"#)).action, Action::PageOut);
    let none = diagnostics(&scheme("migrate_cold", r#""target_nid": null"#)).to_string();
    assert!(none.contains("add \"target_nid\""), "{none}");
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

/// Values of all kinds, in JSON.
const VALUES: [&str; 9] = ["null", "[]", "{}", "-1", "\"max\"", "[[]]", "\"5 %\"", "true", "18446744073709551616"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_file_with_another_value_is_read_or_its_errors_have_positions(
        at in any::<prop::sample::Index>(),
        value in prop::sample::select(VALUES.to_vec()),
    ) {
        let mut file: Value = serde_json::from_str(DAMO).unwrap();
        let mut all = Vec::new();
        places(&file, String::new(), &mut all);
        *file.pointer_mut(&all[at.index(all.len())]).unwrap() = serde_json::from_str(value).unwrap();
        if let Err(diagnostics) = parse_schemes("f", &file.to_string()) {
            prop_assert!(diagnostics.iter().count() > 0);
            prop_assert!(diagnostics.iter().all(|diagnostic| diagnostic.position.is_some()));
        }
    }
}
