//! Where the pages of a process are: their memory nodes, and which of them form huge pages.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use isotherm_core::scheme::HUGE_PAGE_SIZE;
use isotherm_core::{AddrRange, NodeId, PAGE_SIZE};
use isotherm_kernel::pages::{FlagTable, FrameNodes, PageBuffer, Pagemap, SystemRam};
use rustix::io::Errno;
use thiserror::Error;

use isotherm_kernel::{RamError, TableError};

/// The number of frames in a huge page.
const HUGE: u64 = HUGE_PAGE_SIZE / PAGE_SIZE;

/// The most bytes of which the pages are read in one step.
const BYTES_AT_ONCE: u64 = HUGE_PAGE_SIZE;

/// Why the nodes of pages cannot be found, and how to fix it.
#[derive(Debug, Error)]
pub enum PlacesError {
    /// A table of the kernel cannot be opened.
    #[error("the memory nodes of pages cannot be found (run isotherm as root)")]
    Table(#[from] TableError),
    /// The kernel does not show page frame numbers.
    #[error(
        "the memory nodes of pages cannot be found: /proc/self/pagemap does not show page frame numbers (run isotherm \
         as root, or with CAP_SYS_ADMIN)"
    )]
    HiddenFrames,
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
    root: PathBuf,
    flags: FlagTable,
    nodes: FrameNodes,
    buffer: PageBuffer,
    frames: Vec<Option<u64>>,
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
        let flags = FlagTable::open(root)?;
        let own = Pagemap::open(root, "self")?;
        // The page of this variable is present, so its frame number is 0 only if the kernel hides it.
        let here = &raw const flags as u64;
        let mut own_frame = None;
        own.frames(std::iter::once(here), &mut PageBuffer::default(), |frame| own_frame = frame)?;
        if own_frame.is_none_or(|frame| frame == 0) {
            return Err(PlacesError::HiddenFrames);
        }
        let nodes = read_nodes(root)?;
        Ok(Self { root: root.into(), flags, nodes, buffer: PageBuffer::default(), frames: Vec::new() })
    }

    /// The nodes with memory.
    pub(crate) fn nodes(&self) -> BTreeSet<NodeId> {
        self.nodes.nodes()
    }

    /// Checks that the machine has this node, and memory on it.
    ///
    /// # Errors
    /// Fails if it has not.
    pub(crate) fn has_node(&self, node: NodeId) -> Result<(), PlacesError> {
        let nodes = self.nodes.nodes();
        if nodes.contains(&node) {
            return Ok(());
        }
        let known: Vec<String> = nodes.iter().map(NodeId::to_string).collect();
        let known = if known.is_empty() { "none is known".into() } else { known.join(", ") };
        Err(PlacesError::NoNode { node, known })
    }

    /// The node of a frame. The ranges of memory are read again if it is not known: memory may have been plugged in.
    fn node(&mut self, frame: u64, is_fresh: &mut bool) -> Option<NodeId> {
        if let Some(node) = self.nodes.node(frame) {
            return Some(node);
        }
        if !std::mem::replace(is_fresh, true)
            && let Ok(nodes) = read_nodes(&self.root)
        {
            self.nodes = nodes;
        }
        self.nodes.node(frame)
    }

    /// Calls `each` with every page of process `pid` that is in memory, lies entirely in `ranges`, which are sorted and
    /// disjoint, and has a known node; in the order of addresses. Of a huge page of which only a part lies in the
    /// ranges, no page is told.
    ///
    /// # Errors
    /// Returns the error of open(2) or read(2) on a table.
    pub(crate) fn whole_pages(
        &mut self,
        pid: u32,
        ranges: &[AddrRange],
        mut each: impl FnMut(Placed),
    ) -> Result<(), Errno> {
        let joined = joined(ranges);
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

    /// Appends to `found` the parts of `range` in process `pid` that are in memory on `node`.
    ///
    /// # Errors
    /// Returns the error of open(2) or read(2) on a table.
    pub(crate) fn on_node(
        &mut self,
        pid: u32,
        range: AddrRange,
        node: NodeId,
        found: &mut Vec<AddrRange>,
    ) -> Result<(), Errno> {
        let pagemap = Pagemap::open(&self.root, &pid.to_string()).map_err(|error| error.errno())?;
        let mut is_fresh = false;
        for part in range.pieces(BYTES_AT_ONCE) {
            self.read_frames(&pagemap, part)?;
            let frames = std::mem::take(&mut self.frames);
            for (addr, frame) in part.page_addresses().zip(&frames) {
                if frame.is_some_and(|frame| self.node(frame, &mut is_fresh) == Some(node)) {
                    add_page(found, addr);
                }
            }
            self.frames = frames;
        }
        Ok(())
    }

    /// Calls `each` with every small page in memory of a known node, whether it is a part of a huge page, and the range
    /// that it lies in.
    fn pages(
        &mut self,
        pid: u32,
        ranges: &[AddrRange],
        mut each: impl FnMut(Placed, bool, AddrRange),
    ) -> Result<(), Errno> {
        let pagemap = Pagemap::open(&self.root, &pid.to_string()).map_err(|error| error.errno())?;
        let mut is_fresh = false;
        // The last first frame whose flags were read, and whether it is a huge page.
        let mut last = (u64::MAX, false);
        for &range in ranges {
            for part in range.pieces(BYTES_AT_ONCE) {
                self.read_frames(&pagemap, part)?;
                let frames = std::mem::take(&mut self.frames);
                for (addr, frame) in part.page_addresses().zip(&frames) {
                    let Some(frame) = *frame else { continue };
                    let Some(node) = self.node(frame, &mut is_fresh) else { continue };
                    let first = frame - frame % HUGE;
                    // A huge page is aligned both in memory and in the address space.
                    let is_aligned = frame % HUGE == addr / PAGE_SIZE % HUGE;
                    if is_aligned && last.0 != first {
                        last = (first, self.flags.is_huge_page(first).map_err(|error| error.errno())?);
                    }
                    if let Some(page) = AddrRange::new(addr, addr + PAGE_SIZE) {
                        each(Placed { page, node }, is_aligned && last.1, range);
                    }
                }
                self.frames = frames;
            }
        }
        Ok(())
    }

    fn read_frames(&mut self, pagemap: &Pagemap, range: AddrRange) -> Result<(), Errno> {
        self.frames.clear();
        pagemap
            .frames(range.page_addresses(), &mut self.buffer, |frame| self.frames.push(frame))
            .map_err(|error| error.errno())
    }
}

/// The aligned 2 MiB at `addr`.
fn huge_page_at(addr: u64) -> Option<AddrRange> {
    let start = addr - addr % HUGE_PAGE_SIZE;
    AddrRange::new(start, start + HUGE_PAGE_SIZE)
}

/// The same ranges, with those that touch joined.
fn joined(ranges: &[AddrRange]) -> Vec<AddrRange> {
    let mut joined: Vec<AddrRange> = Vec::new();
    for &range in ranges {
        match joined.pop_if(|last| last.touches(range)) {
            Some(last) => joined.extend(AddrRange::new(last.start(), range.end())),
            None => joined.push(range),
        }
    }
    joined
}

/// Appends a page to sorted ranges. It is merged with the last range if they touch.
pub(crate) fn add_page(found: &mut Vec<AddrRange>, addr: u64) {
    let Some(page) = AddrRange::new(addr, addr + PAGE_SIZE) else {
        return;
    };
    match found.pop_if(|last| last.touches(page)) {
        Some(last) => found.extend(AddrRange::new(last.start(), page.end())),
        None => found.push(page),
    }
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
        let flags = FlagTable::open(root.path()).unwrap();
        let made = Places { root: root.path().into(), flags, nodes, buffer: PageBuffer::default(), frames: Vec::new() };
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
            places.on_node(7, range(0, 1024), NodeId(node), &mut found).unwrap();
            found
        };
        assert_eq!(on(0), [range(0, 768)]);
        assert_eq!(on(1), [range(768, 1024)]);
        assert_eq!(on(2), []);
        assert_eq!(places.on_node(8, range(0, 1), NodeId(0), &mut Vec::new()), Err(Errno::NOENT));
    }
}
