//! Where each page goes: the nodes that an action moves it to, as far as they have room.

use std::collections::BTreeMap;

use isotherm_core::scheme::Action;
use isotherm_core::{NodeId, Tiers};

use super::batches::Move;
use super::places::Placed;

/// What each node can take less than its free memory above the high watermarks: one batch, since others take memory too
/// while a batch is moved.
pub const MARGIN: u64 = 32 << 20;

/// What is to happen to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// It is where the action would move it to.
    Stay,
    /// It is moved.
    Go(Move),
    /// No node that it could go to has room.
    Full,
}

/// The plan of one call: how much room is left on each node.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    action: Action,
    tiers: &'a Tiers,
    /// The nodes to go to from each node, as they were found.
    targets: BTreeMap<NodeId, Vec<NodeId>>,
    /// The bytes that each node can still take.
    room: BTreeMap<NodeId, u64>,
}

impl<'a> Plan<'a> {
    /// A plan for `action`. `room` is what each node can take before the kernel reclaims there.
    pub(super) fn new(action: Action, tiers: &'a Tiers, mut room: BTreeMap<NodeId, u64>) -> Self {
        room.values_mut().for_each(|bytes| *bytes = bytes.saturating_sub(MARGIN));
        Self { action, tiers, targets: BTreeMap::new(), room }
    }

    /// Decides on a page, and takes its room on the node that it goes to.
    pub(super) fn decide(&mut self, placed: Placed) -> Decision {
        let Placed { page, node } = placed;
        let named: Vec<NodeId>;
        let targets = match (self.action.destinations(), self.action) {
            (Some(to), _) => {
                named = to.of_page(page).iter().map(|(node, _)| *node).collect();
                &named
            }
            (None, action) => self.targets.entry(node).or_insert_with(|| match action {
                Action::Promote => self.tiers.faster(node),
                Action::Demote => self.tiers.slower(node),
                _ => Vec::new(),
            }),
        };
        if targets.is_empty() || targets.contains(&node) {
            return Decision::Stay;
        }
        for &to in targets {
            // What is not known of a node, the kernel tells.
            let room = self.room.entry(to).or_insert(u64::MAX);
            if *room >= page.size() {
                *room -= page.size();
                return Decision::Go(Move { page, to });
            }
        }
        Decision::Full
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use isotherm_core::scheme::Destinations;
    use isotherm_core::{AddrRange, Node, PAGE_SIZE};

    use super::*;

    /// Three tiers: the nodes 0 and 1, the nodes 2 and 3, and the node 4.
    fn three() -> Tiers {
        let distances =
            [[10, 20, 20, 30, 40], [20, 10, 30, 20, 40], [20, 30, 10, 20, 40], [30, 20, 20, 10, 40], [40; 5]];
        let node = |(id, distances): (u32, [u32; 5])| Node {
            id: NodeId(id),
            size: 1 << 30,
            free: 1 << 29,
            has_processors: id < 2,
            distances: (0..).map(NodeId).zip(distances).collect(),
        };
        Tiers::new((0..).zip(distances).map(node), &[])
    }

    fn page(nth: u64, node: u32) -> Placed {
        Placed { page: AddrRange::new(nth * PAGE_SIZE, (nth + 1) * PAGE_SIZE).unwrap(), node: NodeId(node) }
    }

    /// Where pages of these nodes go, if each node has room for `room` pages.
    fn decisions(action: Action, room: u64, nodes: &[u32]) -> Vec<Option<u32>> {
        let room = (0..5).map(|node| (NodeId(node), MARGIN + room * PAGE_SIZE)).collect();
        let tiers = three();
        let mut plan = Plan::new(action, &tiers, room);
        let decide = |(nth, node): (usize, &u32)| match plan.decide(page(nth as u64, *node)) {
            Decision::Go(Move { to, .. }) => Some(to.0),
            Decision::Stay => None,
            Decision::Full => Some(99),
        };
        nodes.iter().enumerate().map(decide).collect()
    }

    #[test]
    fn promotion_and_demotion_go_one_tier_to_the_nearest_node_with_room() {
        assert_eq!(decisions(Action::Demote, 9, &[0, 1, 2, 4]), [Some(2), Some(3), Some(4), None]);
        assert_eq!(decisions(Action::Promote, 9, &[0, 3, 4]), [None, Some(1), Some(2)]);
        assert_eq!(decisions(Action::Demote, 1, &[0, 0, 0]), [Some(2), Some(3), Some(99)], "then there is no room");
    }

    #[test]
    fn of_nodes_in_order_the_first_that_has_room_gets_a_page() {
        let order = Destinations::first_with_room(&[NodeId(3), NodeId(2)]).unwrap();
        let pages = [1, 0, 0, 2, 3];
        let expected = [Some(3), Some(2), Some(99), None, None];
        assert_eq!(decisions(Action::MigrateCold(order), 1, &pages), expected);
    }

    #[test]
    fn a_node_is_not_filled_up_to_the_mark_at_which_the_kernel_reclaims() {
        let room = BTreeMap::from([(NodeId(1), MARGIN + PAGE_SIZE / 2)]);
        let tiers = three();
        let mut plan = Plan::new(Action::MigrateCold(Destinations::one(NodeId(1))), &tiers, room);
        assert_eq!(plan.decide(page(0, 0)), Decision::Full);
    }

    #[test]
    fn memory_that_is_on_the_node_of_its_address_stays() {
        let both = Destinations::new(&[(NodeId(0), 1), (NodeId(1), 1)]).unwrap();
        assert_eq!(decisions(Action::MigrateHot(both), 9, &[0, 0, 2]), [None, Some(1), Some(0)]);
    }
}
