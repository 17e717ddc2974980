use std::path::PathBuf;
use std::time::Duration;

use isotherm_core::Budget;
use isotherm_run::{Source, Targets, WatchedFiles};

use super::*;

fn parse(text: &str) -> Result<Config, Diagnostics> {
    Config::parse("a.yaml", text, Rights::Act)
}

fn error(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

#[test]
fn the_default_watches_all_and_acts_on_nothing() {
    let config = Config::parse("default.yaml", DEFAULT, Rights::Act).unwrap();
    let [group] = &config.groups[..] else { panic!("{config:?}") };
    assert!(group.settings.select.all && !group.settings.act && group.schemes().is_empty());
    assert_eq!((config.settings.budget(), group.settings.cgroups_above), (Budget::default().shares(), Size(64 << 20)));
    assert_eq!(group.settings.each_cgroup_above, Some(Size(64 << 20)));
    assert_eq!(config.settings.history, HistorySettings::default());
}

#[test]
fn a_configuration_without_groups_watches_what_the_embedded_one_does() {
    for text in ["# nothing\n", "cpu_budget: 2%\n", "groups: null\n"] {
        let config = parse(text).unwrap();
        let names: Vec<_> = config.groups.iter().map(|group| &*group.settings.name).collect();
        assert_eq!(names, ["machine"], "{text}");
    }
    assert!(parse("groups: []\n").unwrap().groups.is_empty());
}

#[test]
fn errors_have_their_places() {
    for (text, expected) in [
        ("cpu_budget: 0", "1:13: a share of 0"),
        ("groups:\n  - name: a\n    selekt: {all: true}", "3:5: there is no field \"selekt\"; did you mean select?"),
        ("groups:\n  - name: a/b\n    select: {all: true}", "2:11: \"a/b\" is no name"),
        ("groups:\n  - name: a\n    select: {}", "3:13: the group selects nothing"),
        ("groups:\n  - name: a\n    select: {name: [\"(\"]}", "3:13: (: "),
        ("groups:\n- {name: a, select: {all: true}}\n- {name: a, select: {all: true}}", "3:3: two groups"),
        ("groups:\n- {name: a, select: {all: true}, survey: 1ms}", "2:3: "),
        ("metrics: {listen: \"0.0.0.0:9753\"}", "1:19: \"0.0.0.0:9753\" is no loopback address"),
        ("page: {listen: \"0.0.0.0:9754\"}", "1:16: \"0.0.0.0:9754\" is no loopback address; that needs a token_file"),
        ("page: {listen: here, token_file: /t}", "1:16: \"here\" is no address with a port"),
        ("fleet: {to: data}", "1:13: \"data\" is neither an absolute path nor a URL"),
        ("history: {directory: null}\nfleet: {to: /data}", "2:13: fleet needs a history; set history.directory"),
        ("may_change: [no-one-here]", "1:14: there is no user"),
        ("a b c", "1:1: "),
    ] {
        let error = error(text);
        assert!(error.starts_with(&format!("a.yaml:{expected}")), "{text}: {error}");
    }
}

const RECLAIM: &str = "\
groups:
  - name: a
    select: {name: [redis]}
    act: true
    limits: {bytes_per_second: 8M, most_out: 1G}
    schemes:
      - {name: one, access_rate: 0%, age: 2m.., action: pageout, quota: {bytes: 1G, period: 2s}}
      - {name: two, access_rate: 0%, age: 2m.., action: cold}
      - {name: three, action: stat}
";

#[test]
fn a_daemon_that_only_watches_refuses_groups_that_act() {
    let watch = |text: &str| Config::parse("a.yaml", text, Rights::Watch);
    let refused = watch(RECLAIM).unwrap_err().to_string();
    let line = RECLAIM.lines().position(|line| line.contains("act: true")).unwrap() + 1;
    assert!(refused.starts_with(&format!("a.yaml:{line}:")) && refused.contains("--watch-only"), "{refused}");
    assert!(watch("groups: [{name: a, select: {all: true}}]").is_ok());
}

#[test]
fn schemes_that_change_memory_need_a_word_and_their_group_may_limit_them() {
    let config = parse(RECLAIM).unwrap_or_else(|error| panic!("{error}"));
    let limits = Limits { bytes_per_second: Some(Size(8 << 20)), most_out: Some(Size(1 << 30)) };
    assert_eq!(config.groups[0].settings.limits, limits);
    let other = Limits { bytes_per_second: Some(Size(4 << 20)), most_out: None };
    let both = Limits { bytes_per_second: Some(Size(4 << 20)), most_out: Some(Size(1 << 30)) };
    assert_eq!((limits.and(other), other.and(limits)), (both, both));
    let file = "groups: [{name: a, select: {all: true}, act: true, limits: {most_out: 1G}, scheme_file: /a.yaml}]";
    assert_eq!(parse(file).unwrap().groups[0].settings.limits.most_out, Some(Size(1 << 30)));
    let error = error(&RECLAIM.replace("    act: true\n", ""));
    assert!(error.contains("the scheme one changes memory; add act: true"), "{error}");
    let error = parse(&RECLAIM.replace("cold}", "colt}")).unwrap_err().to_string();
    assert!(error.starts_with("a.yaml:8:57") && error.contains("did you mean cold?"), "{error}");
}

#[test]
fn a_right_size_needs_a_word_cgroups_and_a_history_and_brings_its_scheme() {
    let of = |more: &str| format!("groups:\n  - {{name: a, right_size: true, {more}}}\n");
    let right = of("act: true, select: {unit: [redis]}, limits: {bytes_per_second: 8M}");
    let config = parse(&right).unwrap_or_else(|error| panic!("{error}"));
    let group = &config.groups[0];
    let names = |group: &Group| group.schemes().iter().map(|of| of.name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(group), ["right-size"]);
    assert!(group.scheme_options().unwrap().least_limits.unwrap().is_empty(), "no cgroup is limited without sizes");
    assert_eq!(group.schemes()[0].condition.age.min(), Duration::from_secs(600));
    let own = "- {name: own, action: limit, access_rate: 0%, age: 5m..}";
    let with = |scheme: &str| group.with_schemes(isotherm_scheme::parse("s", scheme).unwrap(), serde_json::Value::Null);
    assert_eq!(names(&with(own).unwrap()), ["own"], "it has another that limits");
    assert_eq!(names(&with("- {name: count, action: stat}").unwrap()), ["count", "right-size"]);
    for (text, expected) in [
        (of("select: {unit: [redis]}"), "2:27: right_size sets limits of cgroups; add act: true"),
        (of("act: true, select: {name: [redis]}"), "2:27: the action acts on whole cgroups"),
        (of("act: true, select: {unit: [x]}, scheme_file: /a.yaml"), "right_size and a scheme file exclude each other"),
        (of("act: true, select: {unit: [x]}, min_rss: 16M"), "right_size needs all processes of the cgroups"),
        (format!("history: {{directory: null}}\n{right}"), "3:27: right_size needs a history; set history.directory"),
    ] {
        let error = error(&text);
        assert!(error.contains(expected), "{text}: {error}");
    }
    assert!(!group.of_cgroup("x", "/a").unwrap().settings.right_size);
}

#[test]
fn a_group_watches_physical_memory_or_files_instead_of_processes_in_a_run_of_its_own() {
    let of = |more: &str| format!("groups:\n  - {{name: a, {more}}}\n");
    let targets = |more: &str| {
        let config = parse(&of(more)).unwrap_or_else(|error| panic!("{error}"));
        assert!(config.groups[0].manner().is_none());
        let Source::Live { targets, .. } = config.groups[0].run(None).source else { panic!("it is no live run") };
        targets
    };
    assert!(matches!(targets("physical: true"), Targets::Physical { during: None, .. }));
    let Targets::Files(WatchedFiles::At(paths)) = targets("files: [/srv/a, /srv/b]") else { panic!() };
    assert_eq!(paths, [PathBuf::from("/srv/a"), PathBuf::from("/srv/b")]);
    for (more, expected) in [
        ("physical: false", "the group selects nothing"),
        ("physical: true, files: [/srv]", "make two groups"),
        (
            "physical: true, select: {all: true}",
            "the group watches physical memory, and no processes; leave out select",
        ),
        ("files: [/srv], min_rss: 16M", "leave out min_rss"),
        ("physical: true, act: true, right_size: true", "leave out right_size"),
        ("files: [/srv], survey: off", "watched by surveys only"),
    ] {
        let error = error(&of(more));
        assert!(error.contains(expected), "{more}: {error}");
    }
}

#[test]
fn a_group_is_the_same_in_json_and_comes_back_as_it_was_written() {
    let text = r#"{"name": "x", "select": {"cgroup": ["/a"]}, "attributes": {"sample": "5ms", "regions": "10:500"}}"#;
    let group = Group::parse("request", text).unwrap();
    let attributes = group.attributes(isotherm_core::Granularity::Page).unwrap();
    assert_eq!((attributes.sampling(), attributes.max_regions()), (Duration::from_millis(5), 500));
    let again = Group::parse("request", &serde_json::to_string(&group.settings).unwrap()).unwrap();
    assert_eq!(again.settings, group.settings);
    assert!(again.watches_as(&group));
}

#[test]
fn the_group_of_a_cgroup_is_watched_as_the_group_that_it_is_of_and_acts_on_nothing() {
    let config = parse(RECLAIM).unwrap();
    let group = config.groups[0].of_cgroup("x", r"/machine.slice/machine-a\x2db.scope").unwrap();
    assert!(!group.settings.act && group.schemes().is_empty() && group.scheme_options().is_none());
    assert_eq!(group.manner(), config.groups[0].manner());
    let again = Group::parse("request", &serde_json::to_string(&group.settings).unwrap()).unwrap();
    assert_eq!(again.selection(), group.selection());
}

#[test]
fn the_schema_has_all_fields_with_what_they_are() {
    let schema = schema();
    for field in ["cpu_budget", "target_budget", "socket", "may_change", "metrics", "history", "fleet", "groups"] {
        assert!(schema["properties"][field]["description"].is_string(), "{field}");
    }
}
