//! Where the pages of a process are: their memory nodes, and which of them form huge pages.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use isotherm_core::scheme::HUGE_PAGE_SIZE;
use isotherm_core::{AddrRange, NodeId, PAGE_SIZE, push_joined};
use isotherm_kernel::RamError;
use isotherm_kernel::pages::{FrameNodes, SystemRam};
use rustix::io::Errno;
use thiserror::Error;

use crate::frames::{Frames, FramesError, HugePages, Owner, add_page};

/// Why the nodes of pages cannot be found, and how to fix it.
#[derive(Debug, Error)]
pub enum PlacesError {
    /// The page frames cannot be read.
    #[error("the memory nodes of pages cannot be found")]
    Frames(#[from] FramesError),
    /// The ranges of memory cannot be read.
    #[error("the memory nodes of pages cannot be found")]
    Ram(#[from] RamError),
    /// The machine has no such node, or the node has no memory.
    #[error("there is no memory on a node {node} (the nodes with memory: {known})")]
    NoNode {
        /// The node that was asked for.
        node: NodeId,
        /// The nodes with memory.
        known: String,
    },
}

/// Finds the nodes of pages.
#[derive(Debug)]
pub(crate) struct Places {
    frames: Frames,
    huge_pages: HugePages,
    nodes: Nodes,
}

/// The nodes of page frames.
#[derive(Debug)]
struct Nodes {
    root: PathBuf,
    known: FrameNodes,
    /// Whether the ranges of memory were read again since a walk began.
    is_fresh: bool,
}

/// A page in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    /// Its addresses: 4 KiB, or a whole huge page.
    pub page: AddrRange,
    /// Its node.
    pub node: NodeId,
}

impl Places {
    /// Opens the kernel's tables. `root` is the directory that stands for `/`.
    ///
    /// # Errors
    /// Fails if a table cannot be opened or read, or does not show page frame numbers.
    pub(crate) fn open(root: &Path) -> Result<Self, PlacesError> {
        let frames = Frames::open(root)?;
        let huge_pages = HugePages::open(root).map_err(FramesError::from)?;
        let nodes = Nodes { root: root.into(), known: read_nodes(root)?, is_fresh: true };
        Ok(Self { frames, huge_pages, nodes })
    }

    /// The nodes with memory.
    pub(crate) fn nodes(&self) -> BTreeSet<NodeId> {
        self.nodes.known.nodes()
    }

    /// Checks that the machine has this node, and memory on it.
    ///
    /// # Errors
    /// Fails if it has not.
    pub(crate) fn has_node(&self, node: NodeId) -> Result<(), PlacesError> {
        let nodes = self.nodes.known.nodes();
        if nodes.contains(&node) {
            return Ok(());
        }
        let known: Vec<String> = nodes.iter().map(NodeId::to_string).collect();
        let known = if known.is_empty() { "none is known".into() } else { known.join(", ") };
        Err(PlacesError::NoNode { node, known })
    }

    /// The small page at `addr` that has this frame. `None` if its node is not known.
    pub(crate) fn place(&mut self, addr: u64, frame: u64) -> Option<Placed> {
        self.nodes.is_fresh = false;
        let page = AddrRange::new(addr, addr + PAGE_SIZE)?;
        Some(Placed { page, node: self.nodes.of(frame)? })
    }

    /// Calls `each` with every page of process `pid` that is in memory, lies entirely in `ranges`, which are sorted and
    /// disjoint, and has a known node; in the order of addresses. No page is reported of a huge page that lies in the
    /// ranges only in part.
    ///
    /// # Errors
    /// Returns the error of open(2) or read(2) on a table.
    pub(crate) fn whole_pages(
        &mut self,
        pid: u32,
        ranges: &[AddrRange],
        mut each: impl FnMut(Placed),
    ) -> Result<(), Errno> {
        let mut joined = Vec::new();
        ranges.iter().for_each(|&range| push_joined(&mut joined, range));
        self.pages(pid, &joined, |placed, is_huge, within| {
            if !is_huge {
                each(placed);
            } else if let Some(page) = huge_page_at(placed.page.start())
                && within.intersection(page) == Some(page)
                && placed.page.start() == page.start()
            {
                each(Placed { page, node: placed.node });
            }
        })
    }

    /// Appends to `found` the parts of `ranges`, which are sorted and disjoint, in process `pid` that are in memory on
    /// `node`.
    ///
    /// # Errors
    /// Returns the error of open(2) or read(2) on a table.
    pub(crate) fn on_node(
        &mut self,
        owner: Owner<'_>,
        ranges: &[AddrRange],
        node: NodeId,
        found: &mut Vec<AddrRange>,
    ) -> Result<(), Errno> {
        let Self { frames, nodes, .. } = self;
        nodes.is_fresh = false;
        frames.each(owner, ranges, |addr, frame| {
            if nodes.of(frame) == Some(node) {
                add_page(found, addr);
            }
            Ok(())
        })
    }

    /// Calls `each` with every small page in memory of a known node, whether it is a part of a huge page, and the range
    /// that it lies in.
    fn pages(
        &mut self,
        pid: u32,
        ranges: &[AddrRange],
        mut each: impl FnMut(Placed, bool, AddrRange),
    ) -> Result<(), Errno> {
        let Self { frames, huge_pages, nodes } = self;
        nodes.is_fresh = false;
        huge_pages.forget();
        let mut later = ranges;
        frames.each(pid, ranges, |addr, frame| {
            later = &later[later.partition_point(|range| range.end() <= addr)..];
            if let Some(node) = nodes.of(frame)
                && let Some(page) = AddrRange::new(addr, addr + PAGE_SIZE)
                && let Some(&within) = later.first()
            {
                each(Placed { page, node }, huge_pages.hold(addr, frame)?, within);
            }
            Ok(())
        })
    }
}

impl Nodes {
    /// The node of a frame. The ranges of memory are read again if it is not known: memory may have been plugged in.
    fn of(&mut self, frame: u64) -> Option<NodeId> {
        if let Some(node) = self.known.node(frame) {
            return Some(node);
        }
        if !std::mem::replace(&mut self.is_fresh, true)
            && let Ok(nodes) = read_nodes(&self.root)
        {
            self.known = nodes;
        }
        self.known.node(frame)
    }
}

/// The aligned 2 MiB at `addr`.
fn huge_page_at(addr: u64) -> Option<AddrRange> {
    let start = addr - addr % HUGE_PAGE_SIZE;
    AddrRange::new(start, start + HUGE_PAGE_SIZE)
}

fn read_nodes(root: &Path) -> Result<FrameNodes, RamError> {
    Ok(FrameNodes::new(&SystemRam::new(root).read()?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::fs;

    use super::*;

    const PRESENT: u64 = 1 << 63;
    const HEAD: u64 = 1 << 15;
    const TAIL: u64 = 1 << 16;
    const IOMEM: &str = "00000000-003fffff : System RAM\n00400000-007fffff : System RAM\n";

    /// A machine of 8 MiB in which process 7 has 4 MiB of memory from address 0 on: a huge page in the frames from 512
    /// on, and then the small pages of the frames from 1024 on.
    fn places() -> (tempfile::TempDir, Places) {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, words: Vec<u64>| {
            let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        };
        write("proc/7/pagemap", (512..1536).map(|frame| PRESENT | frame).collect());
        let flags = |frame: u64| match frame {
            512 => HEAD,
            513..1024 => TAIL,
            _ => 0,
        };
        write("proc/kpageflags", (0..2048).map(flags).collect());
        let ram = |range: (u64, u64), node| isotherm_kernel::pages::Ram {
            range: AddrRange::new(range.0, range.1).unwrap(),
            name: "System RAM".into(),
            node: Some(NodeId(node)),
        };
        fs::write(root.path().join("proc/iomem"), IOMEM).unwrap();
        let nodes = FrameNodes::new(&[ram((0, 5 << 20), 0), ram((5 << 20, 8 << 20), 1)]);
        let made = Places {
            frames: Frames::unchecked(root.path()),
            huge_pages: HugePages::open(root.path()).unwrap(),
            nodes: Nodes { root: root.path().into(), known: nodes, is_fresh: false },
        };
        (root, made)
    }

    fn range(start: u64, end: u64) -> AddrRange {
        AddrRange::new(start * PAGE_SIZE, end * PAGE_SIZE).unwrap()
    }

    fn pages(places: &mut Places, ranges: &[AddrRange]) -> Vec<(u64, u64, u32)> {
        let mut found = Vec::new();
        let tell = |Placed { page, node }| found.push((page.start() / PAGE_SIZE, page.size() / PAGE_SIZE, node.0));
        places.whole_pages(7, ranges, tell).unwrap();
        found
    }

    #[test]
    fn a_huge_page_is_told_whole_and_only_if_all_of_it_lies_in_the_ranges() {
        let (_root, mut places) = places();
        assert_eq!(pages(&mut places, &[range(0, 514)]), [(0, 512, 0), (512, 1, 0), (513, 1, 0)]);
        assert_eq!(pages(&mut places, &[range(0, 100), range(100, 512)]), [(0, 512, 0)], "ranges that touch are one");
        assert_eq!(pages(&mut places, &[range(1, 513)]), [(512, 1, 0)]);
        assert_eq!(pages(&mut places, &[range(0, 511)]), []);
    }

    #[test]
    fn pages_are_found_by_their_node() {
        let (_root, mut places) = places();
        let mut on = |node| {
            let mut found = Vec::new();
            places.on_node(7.into(), &[range(0, 700), range(700, 1024)], NodeId(node), &mut found).unwrap();
            found
        };
        assert_eq!(on(0), [range(0, 768)]);
        assert_eq!(on(1), [range(768, 1024)]);
        assert_eq!(on(2), []);
        assert_eq!(places.on_node(8.into(), &[range(0, 1)], NodeId(0), &mut Vec::new()), Err(Errno::NOENT));
    }
}
