//! Sums by memory node.

use std::collections::BTreeMap;

use super::{PageBits, PageSums};
use crate::{Figures, NodeId, Quantity};

/// The pages of one block that are in the memory of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodePages {
    /// The first address of the block: a multiple of [`BLOCK_SIZE`](super::BLOCK_SIZE).
    pub start: u64,
    /// The node.
    pub node: NodeId,
    /// The pages.
    pub pages: PageBits,
}

/// The sums of the memory on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeSums {
    /// The node.
    pub node: NodeId,
    /// Its bytes. Nothing of it is known to be in swap.
    pub sums: PageSums,
}

/// Sums that are added up by node.
#[derive(Debug, Default)]
pub(crate) struct ByNode(BTreeMap<NodeId, PageSums>);

impl ByNode {
    pub(crate) fn add(&mut self, node: NodeId, sums: &PageSums) {
        let figures = Figures { swapped: Quantity::unknown(), ..sums.figures };
        *self.0.entry(node).or_default() += PageSums { figures, ..*sums };
    }

    pub(crate) fn add_all(&mut self, found: &[NodeSums]) {
        found.iter().for_each(|found| self.add(found.node, &found.sums));
    }

    /// The sums, in the order of the nodes.
    pub(crate) fn into_sums(self) -> Vec<NodeSums> {
        self.0.into_iter().map(|(node, sums)| NodeSums { node, sums }).collect()
    }
}
