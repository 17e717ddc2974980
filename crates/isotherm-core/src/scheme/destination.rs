//! Destinations: the memory nodes that an action moves memory to.

use std::fmt;

use thiserror::Error;

use crate::{AddrRange, NodeId, PAGE_SIZE};

/// The size of a huge page of x86-64, in bytes: the unit of the actions on huge pages.
pub const HUGE_PAGE_SIZE: u64 = 512 * PAGE_SIZE;

/// The most nodes that one action moves memory to.
pub const MOST_DESTINATIONS: usize = 8;

/// The entries that are not used are all equal, so that equal destinations are.
const UNUSED: [(NodeId, u32); MOST_DESTINATIONS] = [(NodeId(0), 0); MOST_DESTINATIONS];

/// One or several nodes. Of several, either each gets a share of the memory that is in proportion to its weight, or the
/// first that has room gets all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Destinations {
    /// Nodes and weights; those after the first `count` are not used.
    nodes: [(NodeId, u32); MOST_DESTINATIONS],
    count: u8,
    /// Whether a page goes to the first node that has room. The weights are 1 then.
    in_order: bool,
}

/// Why nodes cannot be destinations.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum DestinationError {
    /// There is no node.
    #[error("there is no target node; give at least one")]
    None,
    /// There are more than [`MOST_DESTINATIONS`].
    #[error("there are {0} target nodes; give at most {MOST_DESTINATIONS}")]
    TooMany(usize),
    /// A node is given twice.
    #[error("the target node {0} is given twice; give each once, with the sum of the weights")]
    Twice(NodeId),
    /// A weight is zero.
    #[error("the weight of the target node {0} is zero; leave the node out, or give a weight from 1 to 1000")]
    ZeroWeight(NodeId),
}

impl Destinations {
    /// One node.
    pub const fn one(node: NodeId) -> Self {
        let mut nodes = UNUSED;
        nodes[0] = (node, 1);
        Self { nodes, count: 1, in_order: false }
    }

    /// These nodes, each with its weight.
    ///
    /// # Errors
    /// If there is no node or there are too many, a node is given twice, or a weight is zero.
    pub fn new(nodes: &[(NodeId, u32)]) -> Result<Self, DestinationError> {
        if nodes.is_empty() {
            return Err(DestinationError::None);
        }
        if nodes.len() > MOST_DESTINATIONS {
            return Err(DestinationError::TooMany(nodes.len()));
        }
        let mut made = Self { nodes: UNUSED, count: nodes.len() as u8, in_order: false };
        for (index, &(node, weight)) in nodes.iter().enumerate() {
            if nodes[..index].iter().any(|(earlier, _)| *earlier == node) {
                return Err(DestinationError::Twice(node));
            }
            if weight == 0 {
                return Err(DestinationError::ZeroWeight(node));
            }
            made.nodes[index] = (node, weight);
        }
        Ok(made)
    }

    /// The first of these nodes that has room.
    ///
    /// # Errors
    /// If there is no node or there are too many, or a node is given twice.
    pub fn first_with_room(nodes: &[NodeId]) -> Result<Self, DestinationError> {
        let nodes: Vec<(NodeId, u32)> = nodes.iter().map(|&node| (node, 1)).collect();
        Ok(Self { in_order: nodes.len() > 1, ..Self::new(&nodes)? })
    }

    /// The nodes and their weights, in the order in which they were given.
    pub fn nodes(&self) -> &[(NodeId, u32)] {
        &self.nodes[..usize::from(self.count)]
    }

    /// The node, if there is only one.
    pub fn single(&self) -> Option<NodeId> {
        match self.nodes() {
            [(node, _)] => Some(*node),
            _ => None,
        }
    }

    /// Whether a page goes to the first of several nodes that has room.
    pub const fn are_in_order(&self) -> bool {
        self.in_order
    }

    /// The nodes on which memory stays, wherever it is there. With weights, memory stays on no node of several.
    pub fn all_keep(&self) -> impl Iterator<Item = NodeId> + '_ {
        let nodes = if self.in_order || self.count == 1 { self.nodes() } else { &[] };
        nodes.iter().map(|(node, _)| *node)
    }

    /// The nodes for a page, which is a small or a huge one: the first of them that has room. A page on one of them
    /// stays.
    /// For nodes with weights, it is one node. It depends on the address and the weights only, so that moved memory
    /// stays where it is. Neighbouring pages go to the nodes in turn: the weight of a node is the number of pages in a
    /// row that go to it. This is the weighted interleave of the kernel's DAMON (Linux
    /// `Documentation/admin-guide/mm/damon/usage.rst`, `schemes/N/dests`).
    pub fn of_page(&self, page: AddrRange) -> &[(NodeId, u32)] {
        if self.in_order {
            return self.nodes();
        }
        let size = if page.size() >= HUGE_PAGE_SIZE { HUGE_PAGE_SIZE } else { PAGE_SIZE };
        let all: u64 = self.nodes().iter().map(|(_, weight)| u64::from(*weight)).sum();
        let mut turn = page.start() / size % all.max(1);
        for (index, (_, weight)) in self.nodes().iter().enumerate() {
            match turn.checked_sub(u64::from(*weight)) {
                Some(rest) => turn = rest,
                None => return &self.nodes[index..=index],
            }
        }
        &self.nodes[..1]
    }
}

impl fmt::Display for Destinations {
    /// A node such as `1`, nodes with weights such as `0:3, 1:1`, or nodes in order such as `0, 1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(node) = self.single() {
            return node.fmt(f);
        }
        for (index, (node, weight)) in self.nodes().iter().enumerate() {
            write!(f, "{}{node}", if index == 0 { "" } else { ", " })?;
            if !self.in_order {
                write!(f, ":{weight}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    const FAST: NodeId = NodeId(0);
    const SLOW: NodeId = NodeId(1);

    #[test]
    fn each_node_gets_as_many_pages_as_its_weight_says() {
        let both = Destinations::new(&[(FAST, 3), (SLOW, 1)]).unwrap();
        for size in [PAGE_SIZE, HUGE_PAGE_SIZE] {
            let page = |nth: u64| AddrRange::new(nth * size, (nth + 1) * size).unwrap();
            let nodes: Vec<u32> = (4..12).map(|nth| both.of_page(page(nth))[0].0.0).collect();
            assert_eq!(nodes, [0, 0, 0, 1, 0, 0, 0, 1]);
        }
        let one = Destinations::one(SLOW);
        assert_eq!((one.single(), both.single()), (Some(SLOW), None));
        assert_eq!((one.to_string(), both.to_string()), ("1".into(), "0:3, 1:1".into()));
        assert_eq!((one.all_keep().count(), both.all_keep().count()), (1, 0));
    }

    #[test]
    fn nodes_in_order_are_all_tried_and_memory_on_each_stays() {
        let first = Destinations::first_with_room(&[SLOW, FAST]).unwrap();
        let page = AddrRange::new(0, PAGE_SIZE).unwrap();
        assert_eq!(first.of_page(page), [(SLOW, 1), (FAST, 1)]);
        assert_eq!(first.all_keep().collect::<Vec<_>>(), [SLOW, FAST]);
        assert_eq!((first.to_string(), first.single()), ("1, 0".into(), None));
        assert_eq!(Destinations::first_with_room(&[SLOW]), Ok(Destinations::one(SLOW)));
        assert_eq!(Destinations::first_with_room(&[SLOW, SLOW]), Err(DestinationError::Twice(SLOW)));
    }

    #[test]
    fn no_node_a_node_given_twice_and_a_weight_of_zero_are_refused() {
        assert_eq!(Destinations::new(&[]), Err(DestinationError::None));
        assert_eq!(Destinations::new(&[(FAST, 1), (FAST, 2)]), Err(DestinationError::Twice(FAST)));
        assert_eq!(Destinations::new(&[(FAST, 1), (SLOW, 0)]), Err(DestinationError::ZeroWeight(SLOW)));
        let many: Vec<_> = (0..9).map(|node| (NodeId(node), 1)).collect();
        assert_eq!(Destinations::new(&many), Err(DestinationError::TooMany(9)));
    }
}
