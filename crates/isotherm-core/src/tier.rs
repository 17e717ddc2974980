//! Memory nodes and tiers as data: which memory is fast, which is slow, and where memory moves to.
//!
//! A *node* is a NUMA node. A *tier* is a set of nodes whose memory is equally fast. Promotion moves memory to the next
//! faster tier, demotion to the next slower one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use thiserror::Error;

use crate::NodeId;

/// A memory node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its number.
    pub id: NodeId,
    /// The size of its memory, in bytes.
    pub size: u64,
    /// How much of it is free, in bytes.
    pub free: u64,
    /// Whether it has processors.
    pub has_processors: bool,
    /// How far each node is from it, by the firmware: 10 for itself, and more for others.
    pub distances: BTreeMap<NodeId, u32>,
}

/// Where it is known from which nodes are equally fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TierOrigin {
    /// The kernel says so.
    Kernel,
    /// Nodes with processors are the fast tier. Others are the slower, the farther they are from processors.
    Distances,
    /// The user says so.
    User,
}

impl fmt::Display for TierOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kernel => "by the kernel's memory tiers",
            Self::Distances => "by processors and distances",
            Self::User => "as given",
        })
    }
}

/// Why a description of tiers is invalid.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TierError {
    /// It has another form.
    #[error("{0:?} is no list of tiers; separate tiers by / and the nodes of a tier by commas, fastest first: 0,1/2")]
    Form(String),
    /// A node is given twice.
    #[error("node {0} is given twice")]
    Twice(NodeId),
    /// A node does not exist, or it has no memory.
    #[error("there is no node {0} with memory (nodes with memory: {1})")]
    NoNode(NodeId, String),
    /// A node is missing.
    #[error("node {0} is in no tier; give each node that has memory")]
    Missing(NodeId),
}

/// The memory tiers of a machine, the fastest first. Each node with memory is in one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tiers {
    tiers: Vec<Vec<NodeId>>,
    nodes: BTreeMap<NodeId, Node>,
    origin: TierOrigin,
}

impl Tiers {
    /// The tiers of `nodes` as the kernel knows them, the fastest first. Nodes that the kernel does not name are left
    /// out of its tiers.
    ///
    /// Some kernels put all nodes into one tier, because they do not know how fast memory is (Linux 6.1). If they have
    /// one tier for nodes with and without processors, distances say more.
    pub fn new(nodes: impl IntoIterator<Item = Node>, of_kernel: &[Vec<NodeId>]) -> Self {
        let nodes = by_id(nodes);
        let known = |tier: &Vec<NodeId>| -> Vec<NodeId> {
            tier.iter().copied().filter(|node| nodes.contains_key(node)).collect()
        };
        let tiers: Vec<Vec<NodeId>> = of_kernel.iter().map(known).filter(|tier| !tier.is_empty()).collect();
        let names_all = tiers.iter().map(Vec::len).sum::<usize>() == nodes.len();
        let all_alike = nodes.values().all(|node| node.has_processors);
        if names_all && (tiers.len() > 1 || all_alike) {
            return Self { tiers, nodes, origin: TierOrigin::Kernel };
        }
        let mut by_distance: BTreeMap<u32, Vec<NodeId>> = BTreeMap::new();
        for node in nodes.values() {
            by_distance.entry(from_processors(node, &nodes)).or_default().push(node.id);
        }
        Self { tiers: by_distance.into_values().collect(), nodes, origin: TierOrigin::Distances }
    }

    /// The tiers that a user describes, such as `0,1/2`: the fastest first, with `/` between two tiers, and commas
    /// between the nodes of a tier.
    ///
    /// # Errors
    /// If the description has another form, or does not name each node of `nodes` once.
    pub fn described(nodes: impl IntoIterator<Item = Node>, description: &str) -> Result<Self, TierError> {
        let nodes = by_id(nodes);
        let number = |text: &str| text.trim().parse().map(NodeId);
        let tier = |text: &str| text.split(',').map(number).collect::<Result<Vec<_>, _>>();
        let tiers: Result<Vec<_>, _> = description.split('/').map(tier).collect();
        let tiers = tiers.map_err(|_| TierError::Form(description.into()))?;
        let mut seen = BTreeSet::new();
        for &node in tiers.iter().flatten() {
            if !nodes.contains_key(&node) {
                let all: Vec<String> = nodes.keys().map(ToString::to_string).collect();
                return Err(TierError::NoNode(node, all.join(", ")));
            }
            if !seen.insert(node) {
                return Err(TierError::Twice(node));
            }
        }
        if let Some(missing) = nodes.keys().find(|node| !seen.contains(node)) {
            return Err(TierError::Missing(*missing));
        }
        Ok(Self { tiers, nodes, origin: TierOrigin::User })
    }

    /// The tiers, the fastest first. The nodes of a tier are in the order of the description, or of their numbers.
    pub fn tiers(&self) -> &[Vec<NodeId>] {
        &self.tiers
    }

    /// Where the tiers are known from.
    pub const fn origin(&self) -> TierOrigin {
        self.origin
    }

    /// A node.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(&id)
    }

    /// The place of the tier that a node belongs to: 0 is the fastest.
    pub fn tier_of(&self, node: NodeId) -> Option<usize> {
        self.tiers.iter().position(|tier| tier.contains(&node))
    }

    /// Where memory of `node` can be promoted to: the nodes of the next faster tier, the nearest first. Empty for a
    /// node of the fastest tier, and for one that is in no tier.
    pub fn faster(&self, node: NodeId) -> Vec<NodeId> {
        let next = self.tier_of(node).and_then(|tier| tier.checked_sub(1));
        self.by_distance(node, next)
    }

    /// Where memory of `node` can be demoted to: the nodes of the next slower tier, the nearest first. Empty for a node
    /// of the slowest tier, and for one that is in no tier.
    pub fn slower(&self, node: NodeId) -> Vec<NodeId> {
        self.by_distance(node, self.tier_of(node).map(|tier| tier + 1))
    }

    /// The nodes of a tier, those nearest to `from` first.
    fn by_distance(&self, from: NodeId, tier: Option<usize>) -> Vec<NodeId> {
        let mut nodes = tier.and_then(|tier| self.tiers.get(tier)).cloned().unwrap_or_default();
        let distance = |to: &NodeId| self.nodes.get(&from)?.distances.get(to).copied();
        nodes.sort_by_key(|to| (distance(to).unwrap_or(u32::MAX), *to));
        nodes
    }
}

/// As [`Tiers::described`] takes it: `0,1/2` for a fast tier of two nodes and a slow one.
impl fmt::Display for Tiers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (rank, tier) in self.tiers.iter().enumerate() {
            f.write_str(if rank > 0 { "/" } else { "" })?;
            for (nth, node) in tier.iter().enumerate() {
                write!(f, "{}{node}", if nth > 0 { "," } else { "" })?;
            }
        }
        Ok(())
    }
}

fn by_id(nodes: impl IntoIterator<Item = Node>) -> BTreeMap<NodeId, Node> {
    nodes.into_iter().map(|node| (node.id, node)).collect()
}

/// How far a node is from the nearest processors: 0 if it has some itself.
fn from_processors(node: &Node, nodes: &BTreeMap<NodeId, Node>) -> u32 {
    if node.has_processors {
        return 0;
    }
    let near = nodes.values().filter(|other| other.has_processors);
    near.filter_map(|other| other.distances.get(&node.id).copied()).min().unwrap_or(u32::MAX)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    /// A node with its distances to nodes 0, 1, ….
    fn node(id: u32, has_processors: bool, distances: &[u32]) -> Node {
        let distances = (0..).map(NodeId).zip(distances.iter().copied()).collect();
        Node { id: NodeId(id), size: 1 << 30, free: 1 << 29, has_processors, distances }
    }

    /// Two sockets, each with slow memory of its own, and far memory beyond.
    fn five() -> Vec<Node> {
        vec![
            node(0, true, &[10, 21, 17, 28, 40]),
            node(1, true, &[21, 10, 28, 17, 40]),
            node(2, false, &[17, 28, 10, 28, 40]),
            node(3, false, &[28, 17, 28, 10, 40]),
            node(4, false, &[40, 40, 40, 40, 10]),
        ]
    }

    fn ids(tiers: &Tiers) -> Vec<Vec<u32>> {
        tiers.tiers().iter().map(|tier| tier.iter().map(|node| node.0).collect()).collect()
    }

    #[test]
    fn nodes_without_processors_are_the_slower_the_farther_they_are() {
        let tiers = Tiers::new(five(), &[]);
        assert_eq!((ids(&tiers), tiers.origin()), (vec![vec![0, 1], vec![2, 3], vec![4]], TierOrigin::Distances));
        // One tier for all says only that the kernel does not know.
        let one: Vec<NodeId> = (0..5).map(NodeId).collect();
        assert_eq!(Tiers::new(five(), &[one]), tiers);
        let alike = vec![node(0, true, &[10, 21]), node(1, true, &[21, 10])];
        assert_eq!(ids(&Tiers::new(alike, &[])), [[0, 1]]);
    }

    #[test]
    fn the_tiers_of_the_kernel_hold_where_it_has_several() {
        let of_kernel =
            [vec![NodeId(2)], vec![NodeId(0), NodeId(1), NodeId(9)], vec![NodeId(9)], vec![NodeId(3), NodeId(4)]];
        let tiers = Tiers::new(five(), &of_kernel);
        assert_eq!((ids(&tiers), tiers.origin()), (vec![vec![2], vec![0, 1], vec![3, 4]], TierOrigin::Kernel));
        // A node that the kernel has not placed.
        assert_eq!(Tiers::new(five(), &of_kernel[..2]).origin(), TierOrigin::Distances);
    }

    #[test]
    fn memory_moves_one_tier_to_the_nearest_node_first() {
        let tiers = Tiers::new(five(), &[]);
        let numbers = |nodes: Vec<NodeId>| nodes.iter().map(|node| node.0).collect::<Vec<_>>();
        let slower = |node| numbers(tiers.slower(NodeId(node)));
        let faster = |node| numbers(tiers.faster(NodeId(node)));
        assert_eq!((slower(0), slower(1), slower(2), slower(4)), (vec![2, 3], vec![3, 2], vec![4], vec![]));
        assert_eq!((faster(0), faster(2), faster(3), faster(4)), (vec![], vec![0, 1], vec![1, 0], vec![2, 3]));
        assert_eq!((slower(7), faster(7)), (vec![], vec![]));
    }

    #[test]
    fn a_user_describes_each_node_once() {
        let tiers = |text| Tiers::described(five(), text);
        assert_eq!(ids(&tiers("4 / 1,0/2,3").unwrap()), [vec![4], vec![1, 0], vec![2, 3]]);
        let plain = tiers("0,1/2,3/4").unwrap();
        assert_eq!((plain.origin(), plain.to_string().as_str()), (TierOrigin::User, "0,1/2,3/4"));
        for wrong in ["", "0,/1", "a/b", "0//1", "-1"] {
            assert_eq!(tiers(wrong), Err(TierError::Form(wrong.into())));
        }
        assert_eq!(tiers("0,1/2,3,1/4"), Err(TierError::Twice(NodeId(1))));
        assert_eq!(tiers("0,1/2,3"), Err(TierError::Missing(NodeId(4))));
        assert_eq!(tiers("0/7"), Err(TierError::NoNode(NodeId(7), "0, 1, 2, 3, 4".into())));
    }
}
