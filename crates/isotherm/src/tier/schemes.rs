//! The schemes that keep hot memory in the fast tier, as text in the language of schemes.
//!
//! For each node with a faster tier above, one scheme promotes what is in use; for each node with a slower tier below,
//! one demotes what is idle. The goals of both overlap, so that both directions settle: memory is promoted until the
//! fast node is almost full, and demoted only while less than a little of it is free.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use isotherm_act::MIGRATION_MARGIN;
use isotherm_core::{NodeId, Tiers};

/// The share of a node that is to be free, at least: memory is demoted below it. The kernel's documentation of DAMON
/// and the patches for two tiers use the same (`node_mem_free_bp` of 50).
const FREE: f64 = 0.005;

/// Memory is promoted while more than [`FREE`] less this share is free. In a period, no more than the overlap can go
/// up and make way.
const OVERLAP: f64 = 0.002;

/// What is to be free on a small node above the watermarks of the kernel: more than what migration leaves free, or
/// nothing would be demoted to make room.
const KEPT: u64 = 2 * MIGRATION_MARGIN;

/// The largest share of a node that is to be free, whatever its watermarks are.
const MOST_FREE: f64 = 0.2;

/// For how long memory was idle that is demoted.
const IDLE: &str = "10s";

/// The schemes for these tiers. `room` is how much each node can take before the kernel reclaims there, and `rate` how
/// many bytes are moved in a second at most. With `dry_run`, they move nothing.
pub fn text(tiers: &Tiers, room: &BTreeMap<NodeId, u64>, rate: u64, dry_run: bool) -> String {
    let nodes = || tiers.tiers().iter().flatten().copied();
    let up: Vec<_> = nodes().filter_map(|from| Some((from, *tiers.faster(from).first()?))).collect();
    let down: Vec<_> = nodes().filter_map(|from| Some((from, *tiers.slower(from).first()?))).collect();
    let each = |schemes: usize| rate / 2 / schemes.max(1) as u64;
    let mut text = format!("# Made by `isotherm tier config`; docs/tiers.md explains it. The tiers are {tiers}.\n");
    text.push_str("schemes:\n");
    for (from, to) in &up {
        let used = 1.0 - free(tiers, room, *to) + overlap(tiers, room, *to);
        let action =
            if dry_run { "action: stat".into() } else { format!("action: migrate_hot\n    target_node: {to}") };
        let _ = write!(
            text,
            "  # What is in use on node {from} goes to node {to}, the hottest first, until that is full.
  - name: promote-{from}
    {action}
    filters:
      - reject: {{not: {{node: {from}}}}}
      - reject: {{not: young}}
    quota:
      bytes: {}
      goals: [{{node_mem_used: {{node: {to}, value: {}}}}}]
",
            each(up.len()),
            percent(used),
        );
    }
    for (from, to) in &down {
        let action =
            if dry_run { "action: stat".into() } else { format!("action: migrate_cold\n    target_node: {to}") };
        let _ = write!(
            text,
            "  # While little of node {from} is free, what is idle on it goes to node {to}, the coldest first.
  - name: demote-{from}
    {action}
    access_rate: 0%
    age: {{min: {IDLE}}}
    filters:
      - reject: {{not: {{node: {from}}}}}
      - reject: young
    quota:
      bytes: {}
      goals: [{{node_mem_free: {{node: {from}, value: {}}}}}]
",
            each(down.len()),
            percent(free(tiers, room, *from)),
        );
    }
    text
}

/// The share of a node that is to be free, 0 to 1.
fn free(tiers: &Tiers, room: &BTreeMap<NodeId, u64>, node: NodeId) -> f64 {
    let Some(known) = tiers.node(node).filter(|node| node.size > 0) else { return FREE };
    let watermarks = room.get(&node).map_or(0, |room| known.free.saturating_sub(*room));
    ((watermarks + KEPT) as f64 / known.size as f64).clamp(FREE, MOST_FREE)
}

/// By which share of a node the goals of both directions overlap. On a small node, memory is promoted until migration
/// leaves no more free.
fn overlap(tiers: &Tiers, room: &BTreeMap<NodeId, u64>, node: NodeId) -> f64 {
    let size = tiers.node(node).map_or(0, |node| node.size).max(1);
    ((KEPT - MIGRATION_MARGIN) as f64 / size as f64).max(OVERLAP).min(free(tiers, room, node) / 2.0)
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
        let schemes = isotherm_scheme::parse("config", &text(&tiers, &room, 200_000_000, false)).unwrap();
        let found: Vec<_> = schemes.iter().map(|scheme| (&*scheme.name, scheme.action)).collect();
        let to = |node| Destinations::one(NodeId(node));
        assert_eq!(
            found,
            [
                ("promote-2", Action::MigrateHot(to(0))),
                ("promote-3", Action::MigrateHot(to(1))),
                ("demote-0", Action::MigrateCold(to(2))),
                ("demote-1", Action::MigrateCold(to(3))),
            ]
        );
        assert!(schemes.iter().all(|scheme| scheme.quota.bytes() == Some(50_000_000)), "{schemes:?}");
        let text = text(&tiers, &room, 200_000_000, false);
        assert!(text.contains("node_mem_used: {node: 0, value: 99.7%}"), "{text}");
        assert!(text.contains("node_mem_free: {node: 0, value: 0.5%}"), "{text}");
    }

    #[test]
    fn on_a_small_node_more_is_to_be_free_than_migration_keeps_free() {
        let (tiers, room) = machine();
        let small = Tiers::new((0..4).map(|id| Node { size: 1 << 30, ..tiers.node(NodeId(id)).unwrap().clone() }), &[]);
        let share = free(&small, &room, NodeId(0));
        assert!((share - 264.0 / 1024.0).abs() < 1e-6 || share == MOST_FREE, "{share}");
        assert_eq!(free(&tiers, &room, NodeId(0)), FREE);
        assert!((overlap(&small, &room, NodeId(0)) - 32.0 / 1024.0).abs() < 1e-6);
        let tiny = Tiers::new((0..4).map(|id| Node { size: 1 << 26, ..tiers.node(NodeId(id)).unwrap().clone() }), &[]);
        assert_eq!(overlap(&tiny, &room, NodeId(0)), MOST_FREE / 2.0, "less than what is to be free");
    }

    #[test]
    fn a_dry_run_moves_nothing() {
        let (tiers, room) = machine();
        let schemes = isotherm_scheme::parse("config", &text(&tiers, &room, 1 << 20, true)).unwrap();
        assert!(schemes.len() == 4 && schemes.iter().all(|scheme| scheme.action == Action::Stat), "{schemes:?}");
    }
}
