//! Reads the ranges of System RAM from `/proc/iomem`, without offline memory blocks, and the NUMA node of each range.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use isotherm_core::{AddrRange, NodeId, PAGE_SIZE};
use thiserror::Error;

const IOMEM: &str = "proc/iomem";
const BLOCKS: &str = "sys/devices/system/memory";

/// Why the ranges of System RAM cannot be read.
#[derive(Debug, Error)]
pub enum RamError {
    /// The file cannot be read.
    #[error("{path} cannot be read (run isotherm as root; is /proc mounted?)")]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The kernel shows zeros instead of addresses.
    #[error("{path} hides physical addresses from this user (run isotherm as root or with CAP_SYS_ADMIN)")]
    Hidden {
        /// The path of the file.
        path: PathBuf,
    },
    /// The file lists no System RAM.
    #[error("{path} lists no System RAM (run isotherm outside the container; some virtual machines list none)")]
    None {
        /// The path of the file.
        path: PathBuf,
    },
    /// A requested range contains no System RAM.
    #[error("{asked} is not in System RAM (the System RAM of this machine is at {ram}, see {path})")]
    NotThere {
        /// The requested range.
        asked: String,
        /// The ranges of System RAM.
        ram: String,
        /// The path of the file.
        path: PathBuf,
    },
    /// A node has none of the memory.
    #[error(
        "node {node} has none of the memory that is watched ({})",
        if nodes.is_empty() { "it is not known which node memory belongs to".into() } else { format!("nodes: {nodes}") }
    )]
    NotOfNode {
        /// The node.
        node: u32,
        /// The nodes that have some.
        nodes: String,
    },
}

/// A range of System RAM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ram {
    /// The physical addresses. They cover whole pages.
    pub range: AddrRange,
    /// The name in `/proc/iomem`, such as `System RAM`.
    pub name: Arc<str>,
    /// The NUMA node, or `None` if it is unknown or there are several.
    pub node: Option<NodeId>,
}

/// Reads the ranges of System RAM, and the memory blocks only if they may have changed.
#[derive(Debug)]
pub struct SystemRam {
    root: PathBuf,
    blocks: Blocks,
    /// The state at the last reading of the blocks. Reading all blocks takes long on a large machine.
    seen: Option<Seen>,
}

/// The values that show whether blocks may have changed. The total changes when a block goes offline or online.
#[derive(Debug, PartialEq)]
struct Seen {
    ranges: Vec<(AddrRange, String)>,
    total: Option<String>,
}

impl SystemRam {
    /// A reader of the files below `root`, which stands for `/`. It does not read yet.
    pub fn new(root: &Path) -> Self {
        Self { root: root.into(), blocks: Blocks::default(), seen: None }
    }

    /// The path of `iomem`.
    pub fn path(&self) -> PathBuf {
        self.root.join(IOMEM)
    }

    /// The current ranges, sorted and disjoint.
    ///
    /// # Errors
    /// Fails if `iomem` cannot be read, hides its addresses, or lists no System RAM.
    pub fn read(&mut self) -> Result<Vec<Ram>, RamError> {
        let path = self.path();
        let text = fs::read_to_string(&path).map_err(|source| RamError::File { path: path.clone(), source })?;
        let ranges = match parse(&text) {
            Parsed::Ranges(ranges) => ranges,
            Parsed::Hidden => return Err(RamError::Hidden { path }),
            Parsed::None => return Err(RamError::None { path }),
        };
        let now = Some(Seen { ranges, total: total(&self.root) });
        if self.seen != now {
            self.blocks = Blocks::read(&self.root);
            self.seen = now;
        }
        let ranges = self.seen.iter().flat_map(|seen| &seen.ranges);
        Ok(ranges.flat_map(|(range, name)| self.blocks.online(*range, name)).collect())
    }
}

enum Parsed {
    Ranges(Vec<(AddrRange, String)>),
    Hidden,
    None,
}

/// Parses the ranges of System RAM and their names. The ranges cover whole pages and are sorted and disjoint.
fn parse(iomem: &str) -> Parsed {
    let mut ranges: Vec<(AddrRange, String)> = Vec::new();
    let mut hidden = false;
    for line in iomem.lines() {
        let Some((addresses, name)) = line.trim().split_once(" : ") else { continue };
        let hex = |text| u64::from_str_radix(text, 16).ok();
        let Some((first, last)) = addresses.split_once('-').and_then(|(a, b)| Some((hex(a)?, hex(b)?))) else {
            continue;
        };
        if !name.starts_with("System RAM") {
            continue;
        }
        hidden |= last == 0;
        // The kernel does not use a page that is only partly memory.
        let end = last.saturating_add(1) / PAGE_SIZE * PAGE_SIZE;
        let start = first.checked_next_multiple_of(PAGE_SIZE);
        ranges.extend(start.and_then(|start| AddrRange::new(start, end)).map(|range| (range, name.to_owned())));
    }
    ranges.sort();
    ranges.dedup_by(|later, earlier| later.0.start() < earlier.0.end());
    match (ranges.is_empty(), hidden) {
        (false, _) => Parsed::Ranges(ranges),
        (true, true) => Parsed::Hidden,
        (true, false) => Parsed::None,
    }
}

/// The line of `/proc/meminfo` with the size of the memory.
fn total(root: &Path) -> Option<String> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    text.lines().find(|line| line.starts_with("MemTotal:")).map(str::to_owned)
}

/// The memory blocks by number. A block goes offline and online as a whole. The map is empty if the kernel has no
/// memory hotplug.
#[derive(Debug, Default)]
struct Blocks {
    /// The size of a block in bytes, or 0 if there are no blocks.
    size: u64,
    blocks: BTreeMap<u64, Block>,
}

#[derive(Debug)]
struct Block {
    online: bool,
    /// The NUMA node, or `None` if it is unknown or there are several.
    node: Option<NodeId>,
}

impl Blocks {
    fn read(root: &Path) -> Self {
        let directory = root.join(BLOCKS);
        let size = fs::read_to_string(directory.join("block_size_bytes")).ok();
        let size = size.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()).unwrap_or(0);
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let blocks = entries.filter_map(|entry| {
            let number = entry.file_name().to_str()?.strip_prefix("memory")?.parse().ok()?;
            Some((number, Block::read(&entry.path())))
        });
        Self { size, blocks: if size == 0 { BTreeMap::new() } else { blocks.collect() } }
    }

    /// The parts of `range` that are online, cut where the node changes.
    fn online(&self, range: AddrRange, name: &str) -> Vec<Ram> {
        let mut parts: Vec<Ram> = Vec::new();
        let mut start = range.start();
        while start < range.end() {
            let number = start.checked_div(self.size);
            let end =
                number.and_then(|number| (number + 1).checked_mul(self.size)).unwrap_or(u64::MAX).min(range.end());
            // Memory outside all blocks cannot go offline.
            let block = number.and_then(|number| self.blocks.get(&number));
            if block.is_none_or(|block| block.online)
                && let Some(part) = AddrRange::new(start, end)
            {
                let node = block.and_then(|block| block.node);
                match parts.last_mut() {
                    Some(last) if last.range.touches(part) && last.node == node => {
                        last.range = AddrRange::new(last.range.start(), end).unwrap_or(part);
                    }
                    _ => parts.push(Ram { range: part, name: name.into(), node }),
                }
            }
            start = end;
        }
        parts
    }
}

impl Block {
    fn read(path: &Path) -> Self {
        let state = fs::read_to_string(path.join("state"));
        let online = match &state {
            Ok(state) => state.trim() == "online",
            // The block has been removed.
            Err(e) => e.kind() != ErrorKind::NotFound,
        };
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        let mut nodes =
            entries.filter_map(|entry| entry.file_name().to_str()?.strip_prefix("node")?.parse().ok().map(NodeId));
        let node = nodes.next().filter(|_| nodes.next().is_none());
        Self { online, node }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IOMEM_TEXT: &str = "\
00000000-00000fff : Reserved
00001000-0009fbff : System RAM
00100000-07ffffff : System RAM
  01000000-01e00dd0 : Kernel code
08000000-0fffffff : PCI Bus 0000:00
100000000-11fffffff : System RAM
140000000-147ffffff : dax0.0
  140000000-147ffffff : System RAM (kmem)
";

    /// A directory that stands for `/`, with this `iomem` and these blocks of 128 MiB: number, state, nodes.
    fn made(iomem: &str, blocks: &[(u64, &str, &[u32])]) -> (tempfile::TempDir, SystemRam) {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/iomem", iomem);
        write("proc/meminfo", "MemTotal:  1024 kB\nMemFree: 1 kB\n");
        if !blocks.is_empty() {
            write("sys/devices/system/memory/block_size_bytes", "8000000\n");
        }
        for (number, state, nodes) in blocks {
            write(&format!("sys/devices/system/memory/memory{number}/state"), &format!("{state}\n"));
            for node in *nodes {
                write(&format!("sys/devices/system/memory/memory{number}/node{node}/cpulist"), "0\n");
            }
        }
        let ram = SystemRam::new(root.path());
        (root, ram)
    }

    fn read(ram: &mut SystemRam) -> Vec<(u64, u64, String, Option<u32>)> {
        let all = ram.read().unwrap();
        let row = |ram: &Ram| (ram.range.start(), ram.range.end(), ram.name.to_string(), ram.node.map(|node| node.0));
        all.iter().map(row).collect()
    }

    #[test]
    fn all_system_ram_is_found_in_whole_pages() {
        let (_root, mut ram) = made(IOMEM_TEXT, &[]);
        let plain = |start, end| (start, end, "System RAM".to_owned(), None);
        assert_eq!(
            read(&mut ram),
            [
                plain(0x1000, 0x9f000),
                plain(0x10_0000, 0x800_0000),
                plain(0x1_0000_0000, 0x1_2000_0000),
                (0x1_4000_0000, 0x1_4800_0000, "System RAM (kmem)".into(), None),
            ]
        );
    }

    #[test]
    fn offline_blocks_are_left_out_and_the_others_have_their_node() {
        let blocks: [(u64, &str, &[u32]); 6] = [
            (0, "online", &[0]),
            (32, "online", &[0]),
            (33, "offline", &[0]),
            (34, "online", &[0, 1]),
            (35, "online", &[1]),
            (40, "going-offline", &[1]),
        ];
        let (root, mut ram) = made(IOMEM_TEXT, &blocks);
        let on = |start, end, node| (start, end, "System RAM".to_owned(), node);
        let before = [
            on(0x1000, 0x9f000, Some(0)),
            on(0x10_0000, 0x800_0000, Some(0)),
            on(0x1_0000_0000, 0x1_0800_0000, Some(0)),
            on(0x1_1000_0000, 0x1_1800_0000, None),
            on(0x1_1800_0000, 0x1_2000_0000, Some(1)),
        ];
        assert_eq!(read(&mut ram), before);

        // A block goes offline, so the machine has less memory.
        let state = root.path().join("sys/devices/system/memory/memory35/state");
        fs::write(state, "offline\n").unwrap();
        fs::write(root.path().join("proc/meminfo"), "MemTotal:  896 kB\n").unwrap();
        assert_eq!(read(&mut ram), before[..4]);
    }

    #[test]
    fn hidden_addresses_and_missing_memory_are_different_errors() {
        let error = |iomem| made(iomem, &[]).1.read().unwrap_err().to_string();
        let hidden = error("00000000-00000000 : System RAM\n  00000000-00000000 : Kernel code\n");
        assert!(hidden.contains("hides") && hidden.contains("as root"), "{hidden}");
        let none = error("08000000-0fffffff : PCI Bus 0000:00\nnonsense\n");
        assert!(none.contains("no System RAM"), "{none}");
        let (root, mut ram) = made("", &[]);
        fs::remove_file(root.path().join("proc/iomem")).unwrap();
        let gone = isotherm_core::chain(&ram.read().unwrap_err());
        assert!(gone.contains("proc/iomem") && gone.contains("No such file"), "{gone}");
    }
}
