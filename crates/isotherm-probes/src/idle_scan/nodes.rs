//! The NUMA nodes of a scan: which are scanned, where each page lies, and the idle memory of each.

use std::collections::BTreeMap;
use std::path::Path;

use isotherm_core::{IdleTally, NodeId, PageState};
use isotherm_kernel::pages::{FrameNodes, Ram, RamError, SystemRam};

use super::findings::NodeIdle;

/// The memory of the machine by node, and the nodes that are scanned.
#[derive(Debug)]
pub(super) struct Nodes {
    ram: SystemRam,
    frames: FrameNodes,
    /// Only these; all if empty.
    only: Vec<NodeId>,
}

impl Nodes {
    /// All nodes of the machine below `root`. Nothing is read yet.
    pub(super) fn new(root: &Path) -> Self {
        Self { ram: SystemRam::new(root), frames: FrameNodes::default(), only: Vec::new() }
    }

    /// Only these nodes; all if `nodes` is empty.
    ///
    /// # Errors
    /// If the ranges of System RAM cannot be read, or one of the nodes has none.
    pub(super) fn narrow_to(&mut self, nodes: &[NodeId]) -> Result<(), RamError> {
        if !nodes.is_empty() {
            FrameNodes::new(&self.ram.read()?).check(nodes)?;
        }
        self.only = nodes.into();
        Ok(())
    }

    /// Reads which memory there is now. Returns that of the nodes that are scanned.
    ///
    /// # Errors
    /// If the ranges of System RAM cannot be read.
    pub(super) fn read(&mut self) -> Result<Vec<Ram>, RamError> {
        let mut ram = self.ram.read()?;
        self.frames = FrameNodes::new(&ram);
        ram.retain(|ram| self.is_scanned(ram.node));
        Ok(ram)
    }

    /// Whether only some nodes are scanned.
    pub(super) fn are_narrowed(&self) -> bool {
        !self.only.is_empty()
    }

    /// Whether the findings list nodes: memory lies on several, or some were named.
    pub(super) fn are_listed(&self) -> bool {
        self.are_narrowed() || self.frames.are_several()
    }

    /// The node of a frame. `None` if it is not known, or if the frame is not memory.
    pub(super) fn of(&self, frame: u64) -> Option<NodeId> {
        self.frames.node(frame)
    }

    /// Whether the memory of this node is scanned.
    pub(super) fn is_scanned(&self, node: Option<NodeId>) -> bool {
        !self.are_narrowed() || node.is_some_and(|node| self.only.contains(&node))
    }
}

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
