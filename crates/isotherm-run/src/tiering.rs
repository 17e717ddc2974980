//! The schemes that keep hot memory in the fast tier, as text in the language of schemes.
//!
//! For each node with a faster tier above it, one scheme promotes memory in use. For each node with a slower tier below
//! it, one scheme demotes idle memory. The goals of both overlap, so that both directions settle: memory is promoted
//! until the fast node is almost full, and demoted only while less than a little of it is free. Where hot memory waits,
//! colder memory makes room for it, whatever the goals.
//!
//! Two more schemes do the same for memory that is accessed once in a while, with what the first two leave of their
//! quotas. They keep a little more free, so that they never fill a node with memory for which other memory has to go.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

pub use isotherm_act::MIGRATION_MARGIN;
use isotherm_core::scheme::MOST_DESTINATIONS;
use isotherm_core::tiering::{Fill, IDLE, LONG_IDLE, NEVER_ACCESSED};
use isotherm_core::{NodeId, Tiers};

/// The least time of a scheme in a second. In less, nothing can be moved.
const LEAST_TIME: Duration = Duration::from_micros(100);

/// The limits of the schemes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How many bytes are moved in a second at most.
    pub rate: u64,
    /// For how long pages are inspected and moved in a second at most.
    pub time: Duration,
    /// Whether nothing is moved.
    pub dry_run: bool,
}

/// One scheme, as text.
struct Part<'a> {
    about: String,
    name: String,
    action: &'a str,
    /// More fields, a line each.
    fields: Vec<String>,
    /// The memory that the filters reject.
    rejects: Vec<String>,
    /// The limits of the quota, a line each.
    limits: Vec<String>,
    goals: String,
}

impl fmt::Display for Part<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { about, name, action, .. } = self;
        writeln!(f, "  # {about}\n  - name: {name}\n    {action}")?;
        self.fields.iter().try_for_each(|field| writeln!(f, "    {field}"))?;
        writeln!(f, "    filters:")?;
        self.rejects.iter().try_for_each(|memory| writeln!(f, "      - reject: {memory}"))?;
        writeln!(f, "    quota:")?;
        self.limits.iter().try_for_each(|limit| writeln!(f, "      {limit}"))?;
        writeln!(f, "      goals: [{}]", self.goals)
    }
}

/// The schemes for these tiers. `room` is how much each node can take before the kernel reclaims there.
pub fn text(tiers: &Tiers, room: &BTreeMap<NodeId, u64>, limits: Limits) -> String {
    let Limits { rate, time, dry_run } = limits;
    let nodes = || tiers.tiers().iter().flatten().copied();
    let up = || nodes().map(|from| (from, nearest(tiers.faster(from)))).filter(|(_, to)| !to.is_empty());
    let down = || nodes().map(|from| (from, nearest(tiers.slower(from)))).filter(|(_, to)| !to.is_empty());
    // Each direction has half, in equal parts for its nodes.
    let each = |nodes: usize| {
        let nodes = nodes.max(1) as u32;
        let time = (time / 2 / nodes).clamp(LEAST_TIME, Duration::from_secs(1));
        vec![format!("bytes: {}", rate / 2 / u64::from(nodes)), format!("time: {}us", time.as_micros())]
    };
    let shared_with = |name: &str| vec![format!("shared_with: {name}")];
    let goal =
        |metric: &str, node: NodeId, value: f64| format!("{{{metric}: {{node: {node}, value: {}}}}}", percent(value));
    let fill = |node: NodeId| fill(tiers, room, node, rate);
    let elsewhere = |node: NodeId| format!("{{not: {{node: {node}}}}}");
    let mut text = format!("# Made by `isotherm tier config`; docs/tiers.md explains it. The tiers are {tiers}.\n");
    text.push_str("schemes:\n");
    let mut add = |part: Part<'_>| text.push_str(&part.to_string());
    for (from, to) in up() {
        let goals = |used: fn(Fill) -> f64| {
            let goals: Vec<String> = to.iter().map(|&to| goal("node_mem_used", to, used(fill(to)))).collect();
            goals.join(", ")
        };
        let full = if to.len() == 1 { "that is" } else { "all are" };
        let (action, name) = (action("migrate_hot", &to, dry_run), format!("promote-{from}"));
        // A scheme that only counts does not know from surveys which pages are in use.
        let not_young = dry_run.then(|| "{not: young}".to_owned());
        add(Part {
            about: format!(
                "What is in use on node {from} goes to {}, the hottest first, until {full} full.",
                words(&to)
            ),
            name: name.clone(),
            action: &action,
            fields: vec![],
            rejects: std::iter::once(elsewhere(from)).chain(not_young).collect(),
            limits: each(up().count()),
            goals: goals(|fill| fill.used),
        });
        if !dry_run {
            add(Part {
                about: "What was accessed once follows, with what is left of the quota. It leaves room for the above."
                    .into(),
                name: format!("promote-once-{from}"),
                action: &action,
                fields: vec!["looks: 1".into()],
                rejects: vec![elsewhere(from)],
                limits: shared_with(&name),
                goals: goals(|fill| fill.before_it().used),
            });
        }
    }
    for (from, to) in down() {
        let (action, name) = (action("migrate_cold", &to, dry_run), format!("demote-{from}"));
        let idle = |least: Duration| vec!["access_rate: 0%".into(), format!("age: {{min: {}s}}", least.as_secs())];
        let never_accessed = (!dry_run).then(|| format!("never_accessed: {}s", NEVER_ACCESSED.as_secs()));
        let rejects = || vec![elsewhere(from), "young".into()];
        let promoting = up().filter(|(_, to)| to.contains(&from)).map(|(node, _)| format!("promote-{node}"));
        let names: Vec<String> = promoting.collect();
        let makes_room_for = (!dry_run && !names.is_empty()).then(|| format!("makes_room_for: [{}]", names.join(", ")));
        add(Part {
            about: format!(
                "While little of node {from} is free, what is idle goes to {}, the coldest first.",
                words(&to)
            ),
            name: name.clone(),
            action: &action,
            fields: idle(IDLE).into_iter().chain(never_accessed).chain(makes_room_for).collect(),
            rejects: rejects(),
            limits: each(down().count()),
            goals: goal("node_mem_free", from, fill(from).free),
        });
        if !dry_run {
            add(Part {
                about: "What was idle for long makes room for what is accessed once in a while.".into(),
                name: format!("demote-unused-{from}"),
                action: &action,
                fields: idle(LONG_IDLE),
                rejects: rejects(),
                limits: shared_with(&name),
                goals: goal("node_mem_free", from, fill(from).before_it().free),
            });
        }
    }
    text
}

/// As many of the nearest nodes as an action can name.
fn nearest(mut nodes: Vec<NodeId>) -> Vec<NodeId> {
    nodes.truncate(MOST_DESTINATIONS);
    nodes
}

/// The lines that say what is done, as fields of a scheme.
fn action(name: &str, to: &[NodeId], dry_run: bool) -> String {
    match to {
        _ if dry_run => "action: stat".into(),
        [to] => format!("action: {name}\n    target_node: {to}"),
        several => {
            let nodes: Vec<String> = several.iter().map(NodeId::to_string).collect();
            format!("action: {name}\n    target_node: {{first_with_room: [{}]}}", nodes.join(", "))
        }
    }
}

/// The nodes in words, such as `node 1, or node 2 if that is full`.
fn words(to: &[NodeId]) -> String {
    let nodes: Vec<String> = to.iter().map(|node| format!("node {node}")).collect();
    let full = match to.len() {
        1 => "",
        2 => " if that is full",
        _ => " if those are full",
    };
    nodes.join(", or ") + full
}

/// How full a node is kept. At least as much as migration leaves free may be promoted in a second, or else nothing
/// could be.
fn fill(tiers: &Tiers, room: &BTreeMap<NodeId, u64>, node: NodeId, rate: u64) -> Fill {
    let (size, free) = tiers.node(node).map_or((0, 0), |node| (node.size, node.free));
    let watermarks = room.get(&node).map_or(0, |room| free.saturating_sub(*room));
    Fill::of(size, watermarks + MIGRATION_MARGIN, (rate / 2).max(MIGRATION_MARGIN))
}

/// A share as the language of schemes has it, in tenths of a per cent.
fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use isotherm_core::Node;
    use isotherm_core::scheme::{Action, Destinations};

    /// What the schemes are to keep to, unless a test says otherwise.
    const LIMITS: Limits = Limits { rate: 200_000_000, time: Duration::from_millis(100), dry_run: false };

    use super::*;

    /// Two nodes with processors and two without, of 100 GiB each; 200 MiB of each are below the watermarks.
    fn machine() -> (Tiers, BTreeMap<NodeId, u64>) {
        let node = |id: u32| Node {
            id: NodeId(id),
            size: 100 << 30,
            free: 10 << 30,
            has_processors: id < 2,
            distances: (0..4).map(|to| (NodeId(to), if to % 2 == id % 2 { 10 } else { 20 })).collect(),
        };
        let room = (0..4).map(|id| (NodeId(id), (10 << 30) - (200 << 20))).collect();
        (Tiers::new((0..4).map(node), &[]), room)
    }

    #[test]
    fn each_node_has_a_scheme_to_the_tier_above_and_to_that_below() {
        let (tiers, room) = machine();
        let schemes = isotherm_scheme::parse("config", &text(&tiers, &room, LIMITS)).unwrap();
        let found: Vec<_> = schemes.iter().map(|scheme| (&*scheme.name, scheme.action)).collect();
        let to = |nodes: [u32; 2]| Destinations::first_with_room(&nodes.map(NodeId)).unwrap();
        assert_eq!(
            found,
            [
                ("promote-2", Action::MigrateHot(to([0, 1]))),
                ("promote-once-2", Action::MigrateHot(to([0, 1]))),
                ("promote-3", Action::MigrateHot(to([1, 0]))),
                ("promote-once-3", Action::MigrateHot(to([1, 0]))),
                ("demote-0", Action::MigrateCold(to([2, 3]))),
                ("demote-unused-0", Action::MigrateCold(to([2, 3]))),
                ("demote-1", Action::MigrateCold(to([3, 2]))),
                ("demote-unused-1", Action::MigrateCold(to([3, 2]))),
            ]
        );
        assert!(schemes.iter().all(|scheme| scheme.quota.bytes() == Some(50_000_000)), "{schemes:?}");
        let owners: Vec<_> = schemes.iter().filter_map(|scheme| scheme.quota.owner()).collect();
        assert_eq!(owners, ["promote-2", "promote-3", "demote-0", "demote-1"], "together, they keep to the rate");
        let text = text(&tiers, &room, LIMITS);
        // Half of the time is for each direction, and half of that for each of its schemes.
        assert!(schemes.iter().all(|scheme| scheme.quota.time() == Some(LIMITS.time / 4)), "{schemes:?}");
        let goals = "[{node_mem_used: {node: 0, value: 99.7%}}, {node_mem_used: {node: 1, value: 99.7%}}]";
        assert!(text.contains(goals), "{text}");
        assert!(text.contains("goes to node 0, or node 1 if that is full, the hottest first, until all are"), "{text}");
        assert!(text.contains("node_mem_free: {node: 0, value: 0.5%}"), "{text}");
        assert!(text.contains("node_mem_used: {node: 0, value: 99.3%}"), "{text}");
        let makes_room: Vec<_> = schemes.iter().map(|scheme| scheme.makes_room_for.join(" ")).collect();
        let hot = "promote-2 promote-3";
        assert_eq!(makes_room, ["", "", "", "", hot, "", hot, ""], "each may go to both");
        assert!(text.contains("node_mem_free: {node: 0, value: 0.9%}"), "{text}");
    }

    #[test]
    fn on_a_small_node_there_is_room_beyond_what_migration_keeps_free() {
        let (tiers, room) = machine();
        let small = Tiers::new((0..4).map(|id| Node { size: 1 << 30, ..tiers.node(NodeId(id)).unwrap().clone() }), &[]);
        // With the watermarks, more than a fifth is to be free.
        let (large, small) = (fill(&tiers, &room, NodeId(0), LIMITS.rate), fill(&small, &room, NodeId(0), LIMITS.rate));
        assert!((large.free, small.free) == (0.005, 0.2), "{large:?} {small:?}");
        let overlap = small.used - (1.0 - small.free);
        assert!((overlap - 0.01).abs() < 1e-6, "{overlap}");
    }

    #[test]
    fn a_dry_run_moves_nothing() {
        let (tiers, room) = machine();
        let schemes =
            isotherm_scheme::parse("config", &text(&tiers, &room, Limits { dry_run: true, ..LIMITS })).unwrap();
        assert!(schemes.len() == 4 && schemes.iter().all(|scheme| scheme.action == Action::Stat), "{schemes:?}");
    }
}
