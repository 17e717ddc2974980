//! Physical memory as a target: all System RAM, or some ranges of it.

use std::path::Path;
use std::sync::Arc;

use isotherm_core::{AddrRange, AddressSpace, BoxError, Layout, Mapping, NodeId, Permissions, TargetId, TargetSpace};

use crate::pages::{FrameNodes, Ram, RamError, SystemRam};
use crate::part::{page_ranges, whole_pages};

/// Physical memory without the offline memory blocks.
///
/// An address is a page frame number times the page size.
#[derive(Debug)]
pub struct PhysicalMemory {
    ram: SystemRam,
    /// Only these addresses; all if empty.
    asked: Vec<AddrRange>,
    /// Only these nodes; all if empty.
    nodes: Vec<NodeId>,
    mappings: Arc<[Mapping]>,
}

impl PhysicalMemory {
    /// The memory in the ranges `asked` of physical addresses, or all memory if `asked` is empty. The ranges are
    /// widened to whole pages.
    ///
    /// # Errors
    /// Fails if the ranges of System RAM cannot be read, or if a range of `asked` contains no System RAM.
    pub fn new(asked: impl IntoIterator<Item = AddrRange>) -> Result<Self, RamError> {
        Self::at(Path::new("/"), asked)
    }

    /// Like [`new`](Self::new), with `root` in place of `/`.
    ///
    /// # Errors
    /// The same as those of [`new`](Self::new).
    pub fn at(root: &Path, asked: impl IntoIterator<Item = AddrRange>) -> Result<Self, RamError> {
        let mut ram = SystemRam::new(root);
        let all = ram.read()?;
        let asked: Vec<AddrRange> = asked.into_iter().collect();
        let is_ram = |range: AddrRange| {
            whole_pages(range).is_some_and(|range| all.iter().any(|ram| ram.range.intersection(range).is_some()))
        };
        if let Some(asked) = asked.iter().find(|range| !is_ram(**range)) {
            let ranges: Vec<String> = all.iter().map(|ram| in_hexadecimal(ram.range)).collect();
            return Err(RamError::NotThere { asked: in_hexadecimal(*asked), ram: ranges.join(", "), path: ram.path() });
        }
        let asked = page_ranges(asked);
        let mappings = mappings(&all, &asked, &[]);
        Ok(Self { ram, asked, nodes: Vec::new(), mappings })
    }

    /// Only the memory of these nodes; all memory if `nodes` is empty.
    ///
    /// # Errors
    /// Fails if one of the nodes has none of the memory.
    pub fn of_nodes(mut self, nodes: &[NodeId]) -> Result<Self, RamError> {
        if !nodes.is_empty() {
            let watched = self.mappings.iter().map(|mapping| Ram {
                range: mapping.range,
                name: Arc::clone(&mapping.name),
                node: mapping.node,
            });
            FrameNodes::new(&watched.collect::<Vec<_>>()).check(nodes)?;
            self.nodes = nodes.into();
            self.mappings = self.mappings.iter().filter(|mapping| is_of(mapping.node, nodes)).cloned().collect();
        }
        Ok(self)
    }

    /// The boot time of the machine, in nanoseconds since the Unix epoch; 0 if it is unknown.
    pub fn started_unix_ns() -> u64 {
        procfs::boot_time_secs().unwrap_or_default() * 1_000_000_000
    }
}

impl AddressSpace for PhysicalMemory {
    fn read_targets(&mut self) -> Result<Vec<TargetSpace>, BoxError> {
        // If the list cannot be read, the last one stays valid.
        if let Ok(all) = self.ram.read() {
            let now = mappings(&all, &self.asked, &self.nodes);
            if now != self.mappings {
                self.mappings = now;
            }
        }
        let space =
            TargetSpace { id: TargetId::PhysicalMemory, layout: Layout::Ranges, mappings: Arc::clone(&self.mappings) };
        Ok(if self.mappings.is_empty() { vec![] } else { vec![space] })
    }
}

/// The parts of `all` that lie in `asked` and on one of `nodes`. An empty list stands for everything.
fn mappings(all: &[Ram], asked: &[AddrRange], nodes: &[NodeId]) -> Arc<[Mapping]> {
    let everything = AddrRange::new(0, u64::MAX);
    let asked = if asked.is_empty() { everything.as_slice() } else { asked };
    let parts = all.iter().filter(|ram| nodes.is_empty() || is_of(ram.node, nodes)).flat_map(|ram| {
        let parts = asked.iter().filter_map(|asked| ram.range.intersection(*asked));
        parts.map(|range| Mapping {
            range,
            permissions: Permissions::NONE,
            name: Arc::clone(&ram.name),
            node: ram.node,
            file: None,
        })
    });
    parts.collect()
}

fn is_of(node: Option<NodeId>, nodes: &[NodeId]) -> bool {
    node.is_some_and(|node| nodes.contains(&node))
}

/// The range in the form that the option `--range` accepts.
fn in_hexadecimal(range: AddrRange) -> String {
    format!("{:#x}:{:#x}", range.start(), range.end())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn range(start: u64, end: u64) -> AddrRange {
        AddrRange::new(start, end).unwrap()
    }

    fn made(iomem: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("proc")).unwrap();
        fs::write(root.path().join("proc/iomem"), iomem).unwrap();
        root
    }

    fn ranges(memory: &mut PhysicalMemory) -> Vec<AddrRange> {
        memory.read_targets().unwrap().iter().flat_map(|space| space.mappings.iter().map(|m| m.range)).collect()
    }

    #[test]
    fn ranges_are_cut_to_system_ram_and_widened_to_pages() {
        let root = made("1000-4fff : System RAM\n8000-ffff : System RAM\n");
        let memory = |asked: &[AddrRange]| {
            PhysicalMemory::at(root.path(), asked.iter().copied()).map(|mut memory| ranges(&mut memory))
        };
        assert_eq!(memory(&[]).unwrap(), [range(0x1000, 0x5000), range(0x8000, 0x1_0000)]);
        assert_eq!(memory(&[range(0x2001, 0x9001)]).unwrap(), [range(0x2000, 0x5000), range(0x8000, 0xa000)]);
        let overlapping = [range(0xc000, 0xe000), range(0, 0x2000), range(0xa000, 0xd000), range(0xf000, u64::MAX)];
        assert_eq!(
            memory(&overlapping).unwrap(),
            [range(0x1000, 0x2000), range(0xa000, 0xe000), range(0xf000, 0x1_0000)]
        );
        let error = memory(&[range(0x1000, 0x2000), range(0x5000, 0x8000)]).unwrap_err().to_string();
        assert!(
            error.contains("0x5000:0x8000 is not in System RAM") && error.contains("0x1000:0x5000, 0x8000:0x10000"),
            "{error}"
        );
    }

    #[test]
    fn removed_memory_is_left_out_and_a_missing_list_changes_nothing() {
        let root = made("1000-4fff : System RAM\n8000-ffff : System RAM\n");
        let iomem = root.path().join("proc/iomem");
        let mut memory = PhysicalMemory::at(root.path(), []).unwrap();
        fs::write(&iomem, "1000-4fff : System RAM\n").unwrap();
        assert_eq!(ranges(&mut memory), [range(0x1000, 0x5000)]);
        fs::remove_file(&iomem).unwrap();
        assert_eq!(ranges(&mut memory), [range(0x1000, 0x5000)]);
    }
}
