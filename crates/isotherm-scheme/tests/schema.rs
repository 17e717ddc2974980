//! The JSON Schema and the reader agree on every example in the documentation, and on wrong files.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use isotherm_scheme::{FreeSchemes, JSON_SCHEMA, parse};
use serde_json::{Value, json};

fn valid(document: &Value) -> bool {
    let schema: Value = serde_json::from_str(JSON_SCHEMA).unwrap();
    jsonschema::validator_for(&schema).unwrap().is_valid(document)
}

/// Expects that the schema and the reader both accept the document, or both refuse it.
#[track_caller]
fn both(document: &Value, right: bool) {
    assert_eq!(valid(document), right, "the schema: {document:#}");
    let read = parse("f", &document.to_string());
    assert_eq!(read.is_ok(), right, "the reader: {document:#}\n{read:?}");
}

fn json_of(yaml: &str) -> Value {
    serde_yaml_ng::from_str(yaml).unwrap()
}

/// The code blocks of a page in this language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    page.split(&fence).skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

const PAGE: &str = include_str!("../../../docs/schemes.md");

#[test]
fn every_example_of_the_page_is_read_and_matches_the_schema() {
    let yaml = blocks(PAGE, "yaml");
    assert!(yaml.len() >= 5, "{} examples", yaml.len());
    for block in yaml {
        assert!(parse("docs/schemes.md", block).is_ok(), "{block}\n{:?}", parse("docs/schemes.md", block));
        assert!(valid(&json_of(block)), "{block}");
    }
    let free = blocks(PAGE, "yaml free");
    assert!(!free.is_empty());
    for block in free {
        let schemes = FreeSchemes::parse("docs/schemes.md", block).unwrap();
        let tuned = schemes.text(&schemes.values(&vec![0.5; schemes.parameters.len()]));
        assert!(valid(&json_of(&tuned)), "{tuned}");
    }
    for block in blocks(PAGE, "text") {
        assert!(parse("docs/schemes.md", block).is_ok(), "{block}");
    }
}

#[test]
fn every_example_that_ships_is_read_and_matches_the_schema() {
    let mut seen = 0;
    for entry in std::fs::read_dir("../../schemes").unwrap() {
        let path = entry.unwrap().path();
        isotherm_scheme::read(&path).unwrap();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            assert!(valid(&json_of(&std::fs::read_to_string(&path).unwrap())), "{}", path.display());
            seen += 1;
        }
    }
    assert!(seen >= 3);
}

#[test]
fn what_is_right_is_right_for_both() {
    for scheme in [
        json!({"action": "stat"}),
        json!({"action": "mlock", "inside": true}),
        json!({"action": "cold", "name": null, "size": 4096, "age": ["min", "5s"], "access_rate": {"max": "5%"}}),
        json!({"action": "cold", "size": {"min": "1.5 GiB", "max": null}, "age": "1 m 30 s", "apply_interval": "2s"}),
        json!({"action": "cold", "access_rate": 0.05}),
        json!({"action": "cold", "access_rate": ["0.05", 1]}),
        json!({"action": "cold", "quota": {"time": "5ms", "weights": {"age": 1}}}),
        json!({"action": "cold", "quota": {"goals": [{"fed": {"from": "f", "value": 2.5}}, {"free_memory": "5%"}]}}),
        json!({"action": "cold", "quota": {"goals": [{"fed": {"metric": "p99.ms", "value": 2.5}}]}}),
        json!({"action": "cold", "watermarks": {"metric": "pressure", "high": "9%", "mid": 0.05, "low": 0}}),
        json!({"action": "cold", "filters": [{"reject": {"not": {"process": 7}}}, {"allow": "file"}]}),
        json!({"action": "cold", "filters": [{"allow": {"address": [0, "0x1000"]}}]}),
        json!({"action": "demote", "target_node": null, "filters": [{"reject": {"node": 1}}]}),
        json!({"action": "migrate_hot", "target_node": 0}),
        json!({"action": "reclaim", "first": "cold", "swappiness": 0, "unobserved": "deny"}),
        json!({"action": "reclaim", "first": null, "swappiness": "200", "quota": {"bytes": "100M"}}),
        json!({"action": "reclaim", "quota": {"goals": [{"pressure": "0.1%"}, {"refaults": "1%"}, {"returns": 0.1}]}}),
        json!({"action": "limit", "margin": "20%", "first": "cold", "swappiness": 0}),
        json!({"action": "limit", "margin": null, "quota": {"bytes": "100M", "goals": [{"returns": "0.2%"}]}}),
        json!({"action": "limit", "margin": 0.05, "unobserved": "allow"}),
        json!({"action": "limit", "keep": true}),
        json!({"action": "pageout", "quota": {"goals": [
            {"pressure": {"value": "0.1%", "tasks": "full", "over": "60s", "cgroup": "/a.slice"}}
        ]}}),
        json!({"action": "demote", "quota": {"goals": [{"node_mem_free": {"node": 0, "value": "0.5%"}}]}}),
        json!({"action": "stat", "quota": {"goals": [{"node_mem_used": {"node": 0, "value": 0.9, "cgroup": "/a"}}]}}),
        json!({"action": "migrate_cold", "target_node": "1"}),
        json!({"action": "migrate_cold", "target_node": [{"node": 0, "weight": 3}, {"node": "1", "weight": null}]}),
        json!({"action": "migrate_cold", "target_node": {"first_with_room": [1, "0"]}}),
        json!({"action": "promote", "looks": 1}),
        json!({"action": "demote", "age": {"min": "10s"}, "never_accessed": "3s"}),
        json!({"action": "demote", "makes_room_for": []}),
        json!({"action": "pageout", "unobserved": "allow", "makes_room_for": null}),
        json!({"action": "promote", "never_accessed": null}),
        json!({"action": "stat", "looks": null, "quota": {"shared_with": null, "bytes": 4096}}),
    ] {
        both(&json!({"schemes": [scheme]}), true);
        both(&json!([scheme]), true);
    }
    let owner = json!({"name": "a", "action": "stat", "quota": {"bytes": "1M"}});
    for quota in [
        json!({"shared_with": "a"}),
        json!({"shared_with": "a", "period": null, "goals": [{"free_memory": "5%"}], "weights": {"age": 1}}),
    ] {
        both(&json!([owner, {"action": "stat", "quota": quota}]), true);
    }
}

#[test]
fn what_is_wrong_is_wrong_for_both() {
    for scheme in [
        json!({}),
        json!("pageout"),
        json!({"action": "swap"}),
        json!({"action": "mlock"}),
        json!({"action": "munlock", "inside": false}),
        json!({"action": "migrate_hot"}),
        json!({"action": "promote", "quota": {"goals": [{"node_mem_used": {"node": 0}}]}}),
        json!({"action": "stat", "quota": {"goals": [{"node_mem_used": {"node": 0, "value": 0.9, "cgroup": "a"}}]}}),
        json!({"action": "migrate_hot", "target_node": null}),
        json!({"action": "migrate_hot", "target_node": -1}),
        json!({"action": "migrate_hot", "target_node": 1024}),
        json!({"action": "migrate_hot", "target_node": []}),
        json!({"action": "migrate_hot", "target_node": [{"weight": 2}]}),
        json!({"action": "migrate_hot", "target_node": {}}),
        json!({"action": "migrate_hot", "target_node": {"first_with_room": []}}),
        json!({"action": "demote", "target_node": {"first_with_room": [1]}}),
        json!({"action": "migrate_hot", "target_node": [{"node": 1, "weight": 0}]}),
        json!({"action": "migrate_hot", "target_node": [{"node": 1, "weight": 1001}]}),
        json!({"action": "promote", "target_node": 1}),
        json!({"action": "stat", "filters": [{"reject": {"node": "slow"}}]}),
        json!({"action": "stat", "colour": "red"}),
        json!({"action": "stat", "size": "4X"}),
        json!({"action": "stat", "size": [1, 2, 3]}),
        json!({"action": "stat", "size": {"mn": 1}}),
        json!({"action": "stat", "size": -1}),
        json!({"action": "stat", "age": 5}),
        json!({"action": "stat", "age": "5 fortnights"}),
        json!({"action": "stat", "access_rate": 5}),
        json!({"action": "stat", "inside": "maybe"}),
        json!({"action": "stat", "quota": {}}),
        json!({"action": "stat", "quota": {"shared_with": null}}),
        json!({"action": "stat", "looks": 2}),
        json!({"action": "promote", "looks": 0}),
        json!({"action": "promote", "never_accessed": "3s"}),
        json!({"action": "promote", "makes_room_for": ["a"]}),
        json!({"action": "demote", "makes_room_for": "a"}),
        json!({"action": "promote", "unobserved": "allow"}),
        json!({"action": "pageout", "unobserved": "sometimes"}),
        json!({"action": "demote", "never_accessed": "soon"}),
        json!({"action": "promote", "looks": 3}),
        json!({"action": "stat", "quota": {"bytes": "1M", "weights": {"size": 1001}}}),
        json!({"action": "stat", "quota": {"goals": [{"psi": "1ms"}]}}),
        json!({"action": "pageout", "first": "cold"}),
        json!({"action": "cold", "swappiness": 10}),
        json!({"action": "reclaim", "first": "willneed"}),
        json!({"action": "reclaim", "swappiness": 201}),
        json!({"action": "reclaim", "margin": "10%"}),
        json!({"action": "limit", "margin": 2}),
        json!({"action": "limit", "keep": "64M"}),
        json!({"action": "reclaim", "keep": true}),
        json!({"action": "limit", "margin": "4M"}),
        json!({"action": "reclaim", "quota": {"goals": [{"pressure": {"tasks": "some"}}]}}),
        json!({"action": "reclaim", "quota": {"goals": [{"pressure": {"value": "1%", "over": "5m"}}]}}),
        json!({"action": "reclaim", "quota": {"goals": [{"returns": "0.2"}, {"refaults": 5}]}}),
        json!({"action": "stat", "quota": {"goals": [{"psi_some": "1ms", "free_memory": "5%"}]}}),
        json!({"action": "stat", "quota": {"goals": [{"fed": {"value": 1}}]}}),
        json!({"action": "stat", "quota": {"goals": [{"fed": {"from": "f", "metric": "m", "value": 1}}]}}),
        json!({"action": "stat", "quota": {"goals": [{"fed": {"metric": "a b", "value": 1}}]}}),
        json!({"action": "stat", "watermarks": {"metric": "load", "high": "9%", "mid": "5%", "low": "0%"}}),
        json!({"action": "stat", "watermarks": {"metric": "pressure", "high": "9%", "mid": "5%"}}),
        json!({"action": "stat", "filters": [{"reject": "yung"}]}),
        json!({"action": "stat", "filters": [{"allow": "file", "reject": "young"}]}),
        json!({"action": "stat", "filters": [{"reject": {"cgroup": "system.slice"}}]}),
        json!({"action": "stat", "filters": [{"reject": {"process": "init"}}]}),
    ] {
        both(&json!({"schemes": [scheme]}), false);
    }
    let owner = json!({"name": "a", "action": "stat", "quota": {"bytes": "1M"}});
    for limit in [json!({"bytes": "1M"}), json!({"time": "1ms"}), json!({"period": "1s"})] {
        let mut quota = limit;
        quota["shared_with"] = json!("a");
        both(&json!([owner, {"action": "stat", "quota": quota}]), false);
    }
    both(&json!({"schemes": []}), false);
    both(&json!({"scheme": [{"action": "stat"}]}), false);
}
