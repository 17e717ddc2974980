//! Where memory is: System RAM of `/proc/iomem`, less the blocks that are offline, and the node of each.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use isotherm_core::{AddrRange, NodeId, PAGE_SIZE};
use thiserror::Error;

const IOMEM: &str = "proc/iomem";
const BLOCKS: &str = "sys/devices/system/memory";

/// Why it cannot be told where memory is.
#[derive(Debug, Error)]
pub enum RamError {
    /// A file is not to be read.
    #[error("{path} cannot be read: {source}; is /proc mounted, and is this root?")]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's word.
        source: io::Error,
    },
    /// The kernel shows zeros in the place of addresses.
    #[error(
        "{path} hides where memory is; run isotherm as root, or with CAP_SYS_ADMIN, which physical addresses are shown to"
    )]
    Hidden {
        /// The file.
        path: PathBuf,
    },
    /// No System RAM is listed.
    #[error("{path} lists no System RAM; is this /proc that of a container or of another kind of machine?")]
    None {
        /// The file.
        path: PathBuf,
    },
    /// Nothing that was asked for is memory.
    #[error("{asked} is not in System RAM; this machine's lies at {ram} (see {path})")]
    NotThere {
        /// What was asked for.
        asked: String,
        /// Where memory lies.
        ram: String,
        /// The file.
        path: PathBuf,
    },
}

/// A piece of memory that is in use as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ram {
    /// Where it lies: whole pages.
    pub range: AddrRange,
    /// What it is called, such as `System RAM`.
    pub name: Arc<str>,
    /// The node that it belongs to, if it is one only.
    pub node: Option<NodeId>,
}

/// Reads where memory is, again and again.
#[derive(Debug)]
pub struct SystemRam {
    root: PathBuf,
    blocks: Blocks,
    /// As it was when the blocks were read: reading them all takes a while on a large machine.
    seen: Option<Seen>,
}

/// What tells that blocks may have changed: when one goes offline or online, the machine has another amount of memory.
#[derive(Debug, PartialEq)]
struct Seen {
    ranges: Vec<(AddrRange, String)>,
    total: Option<String>,
}

impl SystemRam {
    /// A reader that has not read yet.
    pub fn new(root: &Path) -> Self {
        Self { root: root.into(), blocks: Blocks::default(), seen: None }
    }

    /// The file that tells most of it.
    pub fn path(&self) -> PathBuf {
        self.root.join(IOMEM)
    }

    /// Memory as it is now, sorted and disjoint.
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

/// The ranges of System RAM and their names: whole pages, sorted and disjoint.
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
        // Pages that are memory only in part are not used.
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

/// How much memory the machine has, as the kernel writes it.
fn total(root: &Path) -> Option<String> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    text.lines().find(|line| line.starts_with("MemTotal:")).map(str::to_owned)
}

/// The blocks in which memory goes offline and online, by number; none where the kernel has no such blocks.
#[derive(Debug, Default)]
struct Blocks {
    /// Bytes of a block, or 0 if there are none.
    size: u64,
    blocks: BTreeMap<u64, Block>,
}

#[derive(Debug)]
struct Block {
    online: bool,
    /// The node that it belongs to, if it is one only.
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
            // What is in no block cannot go offline.
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
            // It has been taken away.
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

    /// A made `/` with this text as its list of memory, and blocks of 128 MiB: number, state, nodes.
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

    fn told(ram: &mut SystemRam) -> Vec<(u64, u64, String, Option<u32>)> {
        let all = ram.read().unwrap();
        let tell = |ram: &Ram| (ram.range.start(), ram.range.end(), ram.name.to_string(), ram.node.map(|node| node.0));
        all.iter().map(tell).collect()
    }

    #[test]
    fn memory_is_whole_pages_of_system_ram_wherever_that_is_listed() {
        let (_root, mut ram) = made(IOMEM_TEXT, &[]);
        let plain = |start, end| (start, end, "System RAM".to_owned(), None);
        assert_eq!(
            told(&mut ram),
            [
                plain(0x1000, 0x9f000),
                plain(0x10_0000, 0x800_0000),
                plain(0x1_0000_0000, 0x1_2000_0000),
                (0x1_4000_0000, 0x1_4800_0000, "System RAM (kmem)".into(), None),
            ]
        );
    }

    #[test]
    fn blocks_that_are_offline_are_left_out_and_the_rest_has_its_node() {
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
        assert_eq!(told(&mut ram), before);

        // A block goes offline: the machine has less memory.
        let state = root.path().join("sys/devices/system/memory/memory35/state");
        fs::write(state, "offline\n").unwrap();
        fs::write(root.path().join("proc/meminfo"), "MemTotal:  896 kB\n").unwrap();
        assert_eq!(told(&mut ram), before[..4]);
    }

    #[test]
    fn hidden_and_missing_memory_are_told_apart() {
        let error = |iomem| made(iomem, &[]).1.read().unwrap_err().to_string();
        let hidden = error("00000000-00000000 : System RAM\n  00000000-00000000 : Kernel code\n");
        assert!(hidden.contains("hides") && hidden.contains("as root"), "{hidden}");
        let none = error("08000000-0fffffff : PCI Bus 0000:00\nnonsense\n");
        assert!(none.contains("no System RAM"), "{none}");
        let (root, mut ram) = made("", &[]);
        fs::remove_file(root.path().join("proc/iomem")).unwrap();
        let gone = ram.read().unwrap_err().to_string();
        assert!(gone.contains("proc/iomem") && gone.contains("No such file"), "{gone}");
    }
}
