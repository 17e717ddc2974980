//! Finds the memory nodes of the pages that a survey reads.

use std::ops::Range;
use std::path::{Path, PathBuf};

use isotherm_core::NodeId;
use isotherm_core::survey::{NodePages, PageBits};
use isotherm_kernel::nodes_with_memory;
use isotherm_kernel::pages::{FrameNodes, SystemRam};

/// The memory nodes of pages, part by part of a survey. On a machine with one node, nothing is found, and nothing is
/// looked for.
#[derive(Debug)]
pub(crate) struct PageNodes {
    root: PathBuf,
    ram: SystemRam,
    /// The nodes with memory when `frames` were read.
    known: Vec<NodeId>,
    frames: FrameNodes,
    /// Whether a page had a frame of no node: memory may have been plugged in.
    is_stale: bool,
    /// The pages of the part under way, in the order in which they were added.
    found: Vec<NodePages>,
}

impl Default for PageNodes {
    fn default() -> Self {
        Self::new(Path::new("/"))
    }
}

impl PageNodes {
    /// Those of the machine whose files lie below `root`.
    pub(crate) fn new(root: &Path) -> Self {
        Self {
            root: root.into(),
            ram: SystemRam::new(root),
            known: Vec::new(),
            frames: FrameNodes::default(),
            is_stale: false,
            found: Vec::new(),
        }
    }

    /// Begins a survey. Finds out which nodes there are.
    pub(crate) fn begin(&mut self) {
        self.found.clear();
        let nodes = nodes_with_memory(&self.root).unwrap_or_default();
        if nodes.len() < 2 {
            self.frames = FrameNodes::default();
        } else if nodes != self.known || self.is_stale {
            self.frames = self.ram.read().map(|ram| FrameNodes::new(&ram)).unwrap_or_default();
        }
        (self.known, self.is_stale) = (nodes, false);
    }

    /// Whether memory lies on more than one node, so that pages are to be added.
    pub(crate) fn are_several(&self) -> bool {
        self.frames.are_several()
    }

    /// Begins a part of a survey.
    pub(crate) fn begin_part(&mut self) {
        self.found.clear();
    }

    /// Adds pages of the block at `start`. `frame` returns the page frame of each, if it has one.
    pub(crate) fn add(&mut self, start: u64, pages: PageBits, frame: impl Fn(usize) -> Option<u64>) {
        let first = self.found.len();
        let mut around: (Range<u64>, Option<NodeId>) = (0..0, None);
        for page in pages.iter() {
            let Some(frame) = frame(page) else { continue };
            if !around.0.contains(&frame) {
                let Some(found) = self.frames.around(frame) else {
                    self.is_stale = true;
                    continue;
                };
                around = found;
            }
            let Some(node) = around.1 else { continue };
            match self.found[first..].iter_mut().find(|found| found.node == node) {
                Some(found) => found.pages.insert(page),
                None => self.found.push(NodePages { start, node, pages: PageBits::of(page..page + 1) }),
            }
        }
    }

    /// The pages of the part, in the order of addresses.
    pub(crate) fn found(&mut self) -> impl Iterator<Item = NodePages> + '_ {
        self.found.sort_by_key(|found| found.start);
        self.found.iter().copied()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::fs;

    use super::*;

    /// A machine with 128 MiB on node 0 and, if `is_plugged`, as much on node 2.
    fn machine(root: &Path, is_plugged: bool) {
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let (end, total, nodes) = if is_plugged { ("0fffffff", 256, "0,2\n") } else { ("07ffffff", 128, "0\n") };
        write("proc/iomem", &format!("00000000-{end} : System RAM\n"));
        write("proc/meminfo", &format!("MemTotal: {} kB\n", total << 10));
        write("sys/devices/system/node/has_memory", nodes);
        write("sys/devices/system/memory/block_size_bytes", "8000000\n");
        for (block, node) in [(0, 0), (1, 2)].into_iter().take(1 + usize::from(is_plugged)) {
            write(&format!("sys/devices/system/memory/memory{block}/state"), "online\n");
            fs::create_dir_all(root.join(format!("sys/devices/system/memory/memory{block}/node{node}"))).unwrap();
        }
    }

    #[test]
    fn pages_are_found_on_the_nodes_of_their_frames() {
        let root = tempfile::tempdir().unwrap();
        machine(root.path(), true);
        let mut nodes = PageNodes::new(root.path());
        nodes.begin();
        assert!(nodes.are_several());
        let border = (128 << 20) / isotherm_core::PAGE_SIZE;
        nodes.begin_part();
        // The pages of the second block lie on both sides of the border, and one has no frame.
        nodes.add(2 << 20, PageBits::of(0..4), |page| (page != 1).then_some(border - 2 + page as u64));
        nodes.add(0, PageBits::of(7..9), |page| Some(page as u64));
        nodes.add(4 << 20, PageBits::ALL, |page| Some(border - 100 + page as u64));
        let found: Vec<_> = nodes.found().map(|on| (on.start >> 20, on.node.0, on.pages)).collect();
        let expected = [
            (0, 0, PageBits::of(7..9)),
            (2, 0, PageBits::of(0..1)),
            (2, 2, PageBits::of(2..4)),
            (4, 0, PageBits::of(0..100)),
            (4, 2, PageBits::of(100..512)),
        ];
        assert_eq!(found, expected);
        nodes.begin_part();
        assert_eq!(nodes.found().count(), 0);
    }

    #[test]
    fn a_node_that_is_plugged_in_is_found_by_the_next_survey() {
        let root = tempfile::tempdir().unwrap();
        machine(root.path(), false);
        let mut nodes = PageNodes::new(root.path());
        nodes.begin();
        assert!(!nodes.are_several());
        machine(root.path(), true);
        nodes.begin();
        assert!(nodes.are_several());
    }
}
