//! Idle memory by NUMA node.

use std::collections::BTreeMap;

use isotherm_core::{IdleTally, NodeId, PageState};

use super::findings::NodeIdle;

/// The memory of each node.
#[derive(Debug, Default)]
pub(super) struct NodeSums(BTreeMap<Option<NodeId>, IdleTally>);

impl NodeSums {
    pub(super) fn add(&mut self, node: Option<NodeId>, state: PageState, bytes: u64) {
        self.0.entry(node).or_default().add(state, bytes);
    }

    /// The nodes, sorted by number. Memory whose node is not known comes last.
    pub(super) fn list(self) -> Vec<NodeIdle> {
        let mut nodes: Vec<_> = self.0.into_iter().map(|(node, tally)| NodeIdle { node, tally }).collect();
        nodes.sort_by_key(|node| (node.node.is_none(), node.node));
        nodes
    }
}
