//! What the forms mean, and that both mean the same.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::time::Duration;

use isotherm_core::scheme::{
    Action, CgroupLimit, CgroupPressure, ClosedInterval, Condition, Feed, Filter, FilterKind, First, Goal, Metric,
    PageKind, Pattern, PressureWindow, Quota, Reclaim, Scheme, Waiting, Watermarks, Weights,
};
use isotherm_core::{AddrRange, NodeId};
use isotherm_scheme::{describe, parse};

const PRCL: &str = include_str!("../../../schemes/prcl.yaml");
const GENTLE: &str = include_str!("../../../schemes/gentle.yaml");
const ETHP: &str = include_str!("../../../schemes/ethp.yaml");
/// Efficient huge pages as in the papers.
const PAPERS: &str = "
- access_rate: {min: 5%}
  action: hugepage
- size: {min: 2M}
  access_rate: 0%
  age: {min: 7s}
  action: nohugepage
  inside: true
";
const LINES: &str = include_str!("../../../schemes/daos.txt");

const SECOND: Duration = Duration::from_secs(1);

fn one(text: &str) -> Scheme {
    let mut schemes = parse("f", text).unwrap();
    assert_eq!(schemes.len(), 1);
    schemes.remove(0)
}

#[test]
fn the_same_scheme_in_all_forms() {
    let prcl = one(PRCL);
    assert_eq!(prcl.action, Action::PageOut);
    assert_eq!(
        prcl.condition,
        Condition {
            size: ClosedInterval::new(4096, u64::MAX).unwrap(),
            rate: ClosedInterval::new(0.0, 0.0).unwrap(),
            age: ClosedInterval::new(SECOND * 5, Duration::MAX).unwrap(),
            hz: Condition::ANY.hz
        }
    );
    for other in ["4K max 0 0 5s max pageout", "4K/null min/0% 5s/null pageout # reclaim"] {
        let other = one(other);
        assert_eq!(Scheme { name: prcl.name.clone(), ..other }, prcl);
    }
    let lines = parse("f", LINES).unwrap();
    let meaning = |schemes: &[Scheme]| schemes.iter().map(|s| (s.condition, s.action, s.inside)).collect::<Vec<_>>();
    let papers = parse("f", PAPERS).unwrap();
    assert_eq!(meaning(&lines), meaning(&[&[prcl], &papers[..]].concat()));
    // The shipped form of efficient huge pages asks for another frequency, and has one more scheme.
    let shipped = parse("f", ETHP).unwrap();
    assert_eq!(meaning(&shipped[2..]), meaning(&papers[1..]));
    assert_eq!(shipped.iter().map(|scheme| scheme.action).nth(1), Some(papers[0].action));
}

/// A scheme with every field, and every kind of goal and filter.
const EVERY_FIELD: &str = "
- name: every field
  size: [4K, 1G]
  access_rate: {min: 5%, max: max}
  age: {max: 1h}
  action: willneed
  inside: true
  apply_interval: 2s
  quota:
    bytes: 10M
    time: 5ms
    period: 500ms
    weights: {size: 1, access_rate: 2, age: 3}
    goals:
      - psi_some: 10ms
      - free_memory: 20%
      - working_set_resident: 95%
      - fed: {from: /run/latency, value: 2.5}
      - fed: {metric: requests.late, value: 3}
  watermarks: {metric: pressure, interval: 1s, high: 20%, mid: 10%, low: 0%}
  filters:
    - allow: anonymous
    - reject: file
    - reject: {not: {mapping: \"[heap]\"}}
    - reject: {address: [0x1000, 8192]}
    - allow: {process: 12}
    - allow: {command: \"redis-*\"}
    - allow: {cgroup: /system.slice}
    - reject: huge_page
    - reject: {not: compressible}
    - reject: active
    - reject: {not: unmapped}
    - allow: {huge_page_size: [64KiB, 1MiB]}
    - reject: {not: young}
";

#[test]
fn every_field_means_what_it_says() {
    let filter = |allow, matching, kind| Filter { kind, matching, allow };
    let goals = vec![
        Goal::new(Metric::StallTime, 0.01).unwrap(),
        Goal::new(Metric::FreeMemory, 0.2).unwrap(),
        Goal::new(Metric::WorkingSetResident, 0.95).unwrap(),
        Goal::new(Metric::Fed(Feed::File("/run/latency".into())), 2.5).unwrap(),
        Goal::new(Metric::Fed(Feed::Named("requests.late".into())), 3.0).unwrap(),
    ];
    let millis = Duration::from_millis;
    let weights = Weights::new(1, 2, 3).unwrap();
    let expected = Scheme {
        name: "every field".into(),
        condition: Condition {
            size: ClosedInterval::new(4096, 1 << 30).unwrap(),
            rate: ClosedInterval::new(0.05, 1.0).unwrap(),
            age: ClosedInterval::new(Duration::ZERO, SECOND * 3600).unwrap(),
            hz: Condition::ANY.hz,
        },
        action: Action::WillNeed,
        looks: 2,
        never_accessed: None,
        makes_room_for: Vec::new(),
        unobserved: false,
        inside: true,
        apply_interval: Some(SECOND * 2),
        quota: Quota::new(Some(10 << 20), Some(millis(5)), millis(500), weights, goals).unwrap(),
        watermarks: Some(Watermarks::new(Metric::Pressure, SECOND, 0.2, 0.1, 0.0).unwrap()),
        filters: vec![
            filter(true, true, FilterKind::Anonymous),
            filter(false, true, FilterKind::File),
            filter(false, false, FilterKind::Mapping(Pattern::new("[heap]"))),
            filter(false, true, FilterKind::Address(AddrRange::new(4096, 8192).unwrap())),
            filter(true, true, FilterKind::Process(12)),
            filter(true, true, FilterKind::Command(Pattern::new("redis-*"))),
            filter(true, true, FilterKind::Cgroup("/system.slice".into())),
            filter(false, true, FilterKind::Pages(PageKind::Huge)),
            filter(false, false, FilterKind::Pages(PageKind::Compressible)),
            filter(false, true, FilterKind::Pages(PageKind::Active)),
            filter(false, false, FilterKind::Pages(PageKind::Unmapped)),
            filter(true, true, FilterKind::Pages(PageKind::Folio(64 << 10, 1 << 20))),
            filter(false, false, FilterKind::Pages(PageKind::Young)),
        ],
    };
    assert_eq!(one(EVERY_FIELD), expected);
}

#[test]
fn memory_of_cgroups_is_reclaimed_within_bounds_that_a_scheme_may_set() {
    let action = |first, swappiness| Action::Reclaim(Reclaim { first, swappiness });
    let plain = one("- {action: reclaim, access_rate: 0%, age: 2m..}");
    assert_eq!((plain.action, &plain.quota), (action(First::PageOut, None), &Quota::default_of(plain.action)));
    let other = one("- {action: reclaim, first: nothing, swappiness: 0, quota: {bytes: 100M}}");
    assert_eq!(other.action, action(First::Nothing, Some(0)));
    assert_eq!((other.quota.bytes(), other.quota.goals()), (Some(100 << 20), plain.quota.goals()));
    let goals = "[{pressure: {value: 1%, tasks: full, over: 60s, cgroup: /a}}, {pressure: 2%}, {returns: 0.3%}]";
    let own = one(&format!("- {{action: reclaim, quota: {{goals: {goals}}}}}"));
    let pressure = |cgroup: Option<&str>, waiting, window| {
        Metric::CgroupPressure(CgroupPressure { cgroup: cgroup.map(Into::into), waiting, window })
    };
    let expected = [
        (pressure(Some("/a"), Waiting::Full, PressureWindow::Minute), 0.01),
        (pressure(None, Waiting::Some, PressureWindow::TenSeconds), 0.02),
        (Metric::Returns, 0.003),
    ];
    assert_eq!(own.quota.goals(), expected.map(|(metric, target)| Goal::new(metric, target).unwrap()));
    assert_eq!(one("4K max 0% 0% 2m max reclaim").quota, plain.quota);
}

#[test]
fn limits_of_cgroups_have_a_margin_and_a_goal_that_raises_them() {
    let plain = one("- {action: limit, access_rate: 0%, age: 2m..}");
    assert_eq!((plain.action, &plain.quota), (Action::Limit(CgroupLimit::DEFAULT), &Quota::default_of(plain.action)));
    let other = one("- {action: limit, margin: 25%, first: nothing, swappiness: 0, quota: {goals: [{returns: 1%}]}}");
    let reclaim = Reclaim { first: First::Nothing, swappiness: Some(0) };
    assert_eq!(other.action, Action::Limit(CgroupLimit { reclaim, margin: 250, keep: false }));
    let kept = one("- {action: limit, keep: true}").action;
    assert_eq!(kept, Action::Limit(CgroupLimit { keep: true, ..CgroupLimit::DEFAULT }));
    assert_eq!(one("4K max 0% 0% 2m max limit").quota, plain.quota);
    let refused = |text: &str| parse("f", text).unwrap_err().to_string();
    let without = refused("- {action: limit, quota: {goals: [{free_memory: 20%}]}}");
    assert!(without.contains("1:26: limit needs a goal") && without.contains("refaults"), "{without}");
    assert!(refused("- {action: reclaim, margin: 5%}").contains("only limit has a margin"));
    assert!(refused("- {action: reclaim, keep: true}").contains("only limit has keep"));
}

#[test]
fn a_share_is_written_in_percent_or_as_a_part_of_one() {
    let rate = |text: &str| {
        let bounds = one(text).condition.rate;
        (bounds.min(), bounds.max())
    };
    for text in [
        "- {action: stat, access_rate: [5%, 50%]}",
        "- {action: stat, access_rate: [0.05, 0.5]}",
        "- {action: stat, access_rate: {min: 5 %, max: 0.5}}",
        "min max 5% 50% min max stat",
        "min max 5 50 min max stat",
        "min max 0.05 0.5 min max stat",
        "min max 5/0.5 min max stat",
    ] {
        assert_eq!(rate(text), (0.05, 0.5), "{text}");
    }
    assert_eq!(rate("- {action: stat, access_rate: 1}"), (1.0, 1.0));
    assert_eq!(rate("min max 1 1.0 min max stat"), (0.01, 1.0));

    let [percent, part] = ["50%", "0.5"].map(|share| {
        one(&format!(
            "- {{action: stat, watermarks: {{metric: pressure, high: {share}, mid: {share}, low: 0}}, \
             quota: {{goals: [{{free_memory: {share}}}]}}}}"
        ))
    });
    assert_eq!(percent, part);
}

#[test]
fn units_of_sizes_are_powers_of_1024() {
    for (text, bytes) in
        [("4K", 4096), ("4kB", 4096), ("4 KiB", 4096), ("2M", 2 << 20), ("1.5G", 3 << 29), ("1TiB", 1 << 40)]
    {
        let expected = ClosedInterval::new(bytes, bytes).unwrap();
        assert_eq!(one(&format!("- {{action: stat, size: {text}}}")).condition.size, expected, "{text}");
        let text = text.replace(' ', "");
        assert_eq!(one(&format!("{text} {text} 0 0 min max stat")).condition.size, expected, "{text}");
    }
}

#[test]
fn what_is_left_out_or_null_is_the_default() {
    let plain = Scheme::new("scheme-1", Condition::ANY, Action::Stat);
    assert_eq!(one("schemes:\n  - action: stat\n"), plain);
    let nulls =
        "schemes:\n  - {action: stat, name: null, size: ~, age: {min: null}, quota: , filters: null, inside: null}\n";
    assert_eq!(one(nulls), plain);
    assert_eq!(one("min max null null min null stat"), plain);
}

const BETWEEN_NODES: &str = "
- {name: down, access_rate: 0%, age: {min: 30s}, action: demote, quota: {bytes: 200M}}
- {name: up, access_rate: {min: 5%}, action: promote, filters: [{reject: {node: 0}}]}
- name: goals
  action: promote
  quota:
    goals:
      - node_mem_used: {node: 0, value: 99.7%}
      - node_mem_free: {node: 1, value: 0.5%}
      - node_mem_used: {node: 0, cgroup: /redis, value: 50%}
      - node_mem_free: {node: 0, cgroup: /redis, value: 50%}
- {name: to one, action: migrate_hot, target_node: 0}
- name: to fill both
  action: promote
  quota: {goals: [{node_mem_used: {node: 0, value: 99%}}, {node_mem_used: {node: 1, value: 98%}}]}
- name: to several
  action: migrate_cold
  target_node: [{node: 1, weight: 3}, {node: 2}]
  never_accessed: 3s
  makes_room_for: [goals, to fill both]
  unobserved: allow
- {name: to the first, action: migrate_cold, target_node: {first_with_room: [3, 2]}}
- name: what is left
  action: promote
  looks: 1
  quota: {shared_with: down, goals: [{node_mem_used: {node: 0, value: 95%}}]}
";

#[test]
fn a_shared_quota_has_the_limits_of_an_earlier_scheme_and_goals_of_its_own() {
    let schemes = parse("f", BETWEEN_NODES).unwrap();
    let (owner, last) = (&schemes[0], schemes.last().unwrap());
    assert_eq!((last.quota.owner(), last.quota.bytes()), (Some(&*owner.name), owner.quota.bytes()));
    assert_eq!((last.quota.goals().len(), last.looks), (1, 1));
}

#[test]
fn nodes_to_move_memory_to_are_read_in_yaml_and_in_one_line() {
    let of = |text: &str| parse("f", text).unwrap()[0].action;
    let one = "{action: migrate_cold, target_node: 1}";
    let both = "{action: migrate_cold, target_node: [{node: 0, weight: 3}, {node: 1}]}";
    assert_eq!(of(&format!("[{one}]")), of("min max min max min max migrate_cold node=1"));
    assert_eq!(of(&format!("[{both}]")), of("min max min max min max migrate_cold node=0:3,1"));
    let weights = of(&format!("[{both}]")).destinations().unwrap().nodes().to_vec();
    assert_eq!(weights, [(NodeId(0), 3), (NodeId(1), 1)]);
    let first = "{action: migrate_cold, target_node: {first_with_room: [3, 2]}}";
    assert_eq!(of(&format!("[{first}]")), of("min max min max min max migrate_cold node=3|2"));
    assert!(of(&format!("[{first}]")).destinations().unwrap().are_in_order());
    assert_eq!(of("min max min max min max demote"), Action::Demote);
}

#[test]
fn a_scheme_in_plain_words() {
    let reclaim = "- {name: cgroups, action: reclaim, access_rate: 0%, age: 2m.., first: cold, swappiness: 10}";
    let limit = "- {name: limits, action: limit, access_rate: 0%, age: 2m.., margin: 25%}";
    let words: String = [PRCL, ETHP, GENTLE, EVERY_FIELD, BETWEEN_NODES, "- action: stat", reclaim, limit]
        .iter()
        .flat_map(|text| parse("f", text).unwrap())
        .map(|s| describe(&s))
        .collect();
    insta::assert_snapshot!(words);
}
