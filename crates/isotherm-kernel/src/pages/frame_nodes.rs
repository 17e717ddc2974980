//! The memory node of each page frame.

use std::collections::BTreeSet;
use std::ops::Range;

use isotherm_core::{NodeId, PAGE_SIZE};

use super::{Ram, RamError};

/// Which page frames lie on which NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrameNodes {
    /// Ranges of frames, sorted and disjoint: the first frame, one past the last, and the node.
    ranges: Vec<(u64, u64, Option<NodeId>)>,
}

impl FrameNodes {
    /// The nodes of the ranges of memory, which are sorted and disjoint.
    pub fn new(ram: &[Ram]) -> Self {
        let mut ranges: Vec<(u64, u64, Option<NodeId>)> = Vec::new();
        for ram in ram {
            let (first, end) = (ram.range.start() / PAGE_SIZE, ram.range.end() / PAGE_SIZE);
            match ranges.last_mut() {
                Some(last) if last.1 == first && last.2 == ram.node => last.1 = end,
                _ => ranges.push((first, end, ram.node)),
            }
        }
        Self { ranges }
    }

    /// Whether memory lies on more than one node.
    pub fn are_several(&self) -> bool {
        let mut nodes = self.ranges.iter().filter_map(|range| range.2);
        nodes.next().is_some_and(|first| nodes.any(|node| node != first))
    }

    /// The nodes with memory, in ascending order.
    pub fn nodes(&self) -> BTreeSet<NodeId> {
        self.ranges.iter().filter_map(|range| range.2).collect()
    }

    /// Checks that each node of `asked` has memory.
    ///
    /// # Errors
    /// Names the first one that has none.
    pub fn check(&self, asked: &[NodeId]) -> Result<(), RamError> {
        let known = self.nodes();
        let Some(node) = asked.iter().find(|node| !known.contains(node)) else { return Ok(()) };
        let known: Vec<String> = known.iter().map(|node| node.0.to_string()).collect();
        Err(RamError::NotOfNode { node: node.0, nodes: known.join(", ") })
    }

    /// The node of `frame`. `None` if it is unknown, or if the frame is not memory.
    pub fn node(&self, frame: u64) -> Option<NodeId> {
        self.around(frame)?.1
    }

    /// The range of frames around `frame` that are on the same node, and the node, if that is known. `None` if the
    /// frame is not memory.
    pub fn around(&self, frame: u64) -> Option<(Range<u64>, Option<NodeId>)> {
        let index = self.ranges.partition_point(|range| range.1 <= frame);
        let &(first, end, node) = self.ranges.get(index).filter(|range| range.0 <= frame)?;
        Some((first..end, node))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::fs;

    use super::*;
    use crate::pages::SystemRam;

    #[test]
    fn a_frame_lies_on_the_node_of_its_memory_block() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/iomem", "00000000-17ffffff : System RAM\n20000000-27ffffff : System RAM\n");
        write("proc/meminfo", "MemTotal: 1024 kB\n");
        write("sys/devices/system/memory/block_size_bytes", "8000000\n");
        for (block, node) in [(0, 0), (1, 0), (2, 1), (4, 0)] {
            write(&format!("sys/devices/system/memory/memory{block}/state"), "online\n");
            let link = root.path().join(format!("sys/devices/system/memory/memory{block}/node{node}"));
            fs::create_dir(link).unwrap();
        }
        let mut ram = SystemRam::new(root.path());
        let nodes = FrameNodes::new(&ram.read().unwrap());
        assert!(nodes.are_several());
        assert!(nodes.check(&[NodeId(1), NodeId(0)]).is_ok());
        let error = nodes.check(&[NodeId(1), NodeId(2)]).unwrap_err().to_string();
        assert!(error.contains("node 2 has none") && error.contains("nodes: 0, 1"), "{error}");
        let block = 0x800_0000 / PAGE_SIZE;
        for (frame, node) in [
            (0, Some(0)),
            (2 * block - 1, Some(0)),
            (2 * block, Some(1)),
            (3 * block - 1, Some(1)),
            (3 * block, None),
            (4 * block, Some(0)),
            (5 * block, None),
        ] {
            assert_eq!(nodes.node(frame), node.map(NodeId), "{frame}");
        }
        assert!(!FrameNodes::new(&ram.read().unwrap()[..1]).are_several());
        assert!(!FrameNodes::default().are_several());
    }
}
