//! The kernel's side of migration: the call that moves pages, and the order of the nodes.

#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use isotherm_core::scheme::{Action, Moves};
use isotherm_core::{NodeId, PAGE_SIZE};
use isotherm_kernel::{NoScratch, Scratch, ZoneError};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use thiserror::Error;

use super::batches::Status;
use super::places::PlacesError;
use super::plan::Order;

/// Why memory cannot be moved between nodes, and how to fix it.
#[derive(Debug, Error)]
pub enum MigrationError {
    /// The call fails on memory of this process.
    #[error("move_pages failed in a test ({fix})")]
    Call {
        /// The error of move_pages(2).
        source: io::Error,
        /// How to fix it.
        fix: &'static str,
    },
    /// The nodes of pages cannot be found.
    #[error(transparent)]
    Places(#[from] PlacesError),
    /// The watermarks cannot be read.
    #[error(transparent)]
    Zones(#[from] ZoneError),
    /// There is only one tier of memory.
    #[error(
        "all memory of this machine is of one tier: {0} (name the node to move memory to with migrate_hot and \
         migrate_cold)"
    )]
    OneTier(String),
    /// There is only one node.
    #[error(
        "this machine has one memory node, and memory has nowhere to go (a second node is needed, such as CXL memory)"
    )]
    OneNode,
    /// The memory for the test is not available.
    #[error(transparent)]
    Scratch(#[from] NoScratch),
}

/// Tries on memory of this process whether it may move pages as `action` does: a page stays on its node.
///
/// # Errors
/// If it may not.
pub(super) fn try_on_own_memory(action: Action) -> Result<(), MigrationError> {
    let failed = |errno: Errno| {
        let fix = match errno {
            Errno::NOSYS => {
                "use a kernel with CONFIG_MIGRATION and CONFIG_NUMA; a seccomp filter must allow move_pages"
            }
            Errno::PERM => {
                "run isotherm as root, or with CAP_SYS_NICE; the seccomp filter of a container must allow move_pages"
            }
            _ => "no kernel is expected to do this: report it",
        };
        MigrationError::Call { source: errno.into(), fix }
    };
    let scratch = Scratch::new(PAGE_SIZE)?;
    scratch.touch(0);
    let own = Pages { pid: std::process::id(), shared: true };
    let page = [scratch.start()];
    let node = own.locate(&page).and_then(|found| found.first().copied().unwrap_or(Err(Errno::NOENT)));
    own.migrate(&page, &[node.map_err(failed)?]).map_err(failed)?;
    // Memory of other processes needs more than that of this one. An action on cold memory does not move shared pages.
    let allowed =
        rustix::thread::capabilities(None).map_or(true, |sets| sets.effective.contains(CapabilitySet::SYS_NICE));
    if allowed || action.kind().moves().is_none() { Ok(()) } else { Err(failed(Errno::PERM)) }
}

/// The pages of a process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pages {
    pid: u32,
    /// Whether pages that other processes map too are moved.
    shared: bool,
}

impl Pages {
    /// The pages of process `pid`. Hot pages that others share are hot for them, too. Cold ones may be hot there, which
    /// the accessed bits of this process do not tell: they are left alone.
    pub(super) fn of(pid: u32, action: Action) -> Self {
        Self { pid, shared: action.kind().moves() == Some(Moves::Hot) }
    }

    /// Moves pages, as [`Mover::migrate`](super::Mover::migrate).
    pub(super) fn migrate(&self, pages: &[u64], to: &[NodeId]) -> Result<Vec<Status>, Errno> {
        let nodes: Vec<libc::c_int> = to.iter().map(|node| node.0 as libc::c_int).collect();
        if nodes.len() != pages.len() {
            return Err(Errno::INVAL);
        }
        self.call(pages, Some(&nodes))
    }

    /// Finds pages, as [`Mover::locate`](super::Mover::locate).
    pub(super) fn locate(&self, pages: &[u64]) -> Result<Vec<Status>, Errno> {
        self.call(pages, None)
    }

    fn call(&self, pages: &[u64], nodes: Option<&[libc::c_int]>) -> Result<Vec<Status>, Errno> {
        const MOVE: libc::c_int = 1 << 1;
        const MOVE_ALL: libc::c_int = 1 << 2;
        /// What the kernel has not written: no node, and the error that stands for a missing status.
        const MISSING: libc::c_int = -libc::EAGAIN;
        let mut statuses = vec![MISSING; pages.len()];
        // SAFETY: the three arrays have `pages.len()` entries: `migrate` has checked `nodes`, and without nodes the
        // kernel takes a null pointer. The kernel writes only `statuses`. The addresses in `pages` belong to the
        // process `pid`; moving a page changes no content and no address, so this is sound for this process, too.
        let result = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                self.pid as libc::pid_t,
                pages.len(),
                pages.as_ptr(),
                nodes.map_or(std::ptr::null(), <[libc::c_int]>::as_ptr),
                statuses.as_mut_ptr(),
                if self.shared { MOVE_ALL } else { MOVE },
            )
        };
        // A positive result is a number of pages that were not moved.
        if result < 0 {
            return Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL));
        }
        let status = |status: &libc::c_int| match u32::try_from(*status) {
            Ok(node) => Ok(NodeId(node)),
            Err(_) => Err(Errno::from_raw_os_error(-status)),
        };
        Ok(statuses.iter().map(status).collect())
    }
}

const NODES: &str = "sys/devices/system/node";
const TIERS: &str = "sys/devices/virtual/memory_tiering";

/// The nodes with memory by tier, the fastest first, and their distances.
#[derive(Debug, Default)]
pub(super) struct TierOrder {
    tiers: Vec<Vec<NodeId>>,
    /// From each node to each other one: larger is farther.
    distances: BTreeMap<(NodeId, NodeId), u32>,
}

impl TierOrder {
    /// Reads the order of the nodes. The tiers are the kernel's (`memory_tiering`, Linux 6.1); without them, the nodes
    /// with processors are the fast tier, and those without are the slow one. `root` stands for `/`.
    ///
    /// # Errors
    /// If the nodes cannot be read.
    pub(super) fn read(root: &Path) -> Result<Self, MigrationError> {
        let text = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
        let with_memory = list(&text(&format!("{NODES}/has_memory")));
        let all = list(&text(&format!("{NODES}/online")));
        let mut distances = BTreeMap::new();
        for &from in &with_memory {
            let line = text(&format!("{NODES}/node{from}/distance"));
            let numbers = line.split_whitespace().filter_map(|word| word.parse::<u32>().ok());
            distances.extend(all.iter().zip(numbers).map(|(&to, distance)| ((from, to), distance)));
        }
        let mut numbered: Vec<(u32, Vec<NodeId>)> = Vec::new();
        for entry in std::fs::read_dir(root.join(TIERS)).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("memory_tier")?.parse().ok());
            if let Some(number) = number {
                let nodes = std::fs::read_to_string(entry.path().join("nodelist")).unwrap_or_default();
                numbered.push((number, list(&nodes).into_iter().filter(|node| with_memory.contains(node)).collect()));
            }
        }
        // A smaller number is a faster tier.
        numbered.sort_unstable();
        let mut tiers: Vec<Vec<NodeId>> = numbered.into_iter().map(|(_, nodes)| nodes).collect();
        tiers.retain(|nodes| !nodes.is_empty());
        if tiers.len() < 2 {
            let has_processors = |node: &NodeId| !text(&format!("{NODES}/node{node}/cpulist")).trim().is_empty();
            let (fast, slow) = with_memory.iter().copied().partition(has_processors);
            tiers = [fast, slow].into_iter().filter(|nodes: &Vec<NodeId>| !nodes.is_empty()).collect();
        }
        Ok(Self { tiers, distances })
    }

    /// Checks that there is more than one tier.
    ///
    /// # Errors
    /// If there is not.
    pub(super) fn check(&self) -> Result<(), MigrationError> {
        let nodes: Vec<String> = self.tiers.iter().flatten().map(|node| format!("node {node}")).collect();
        match (self.tiers.len(), nodes.len()) {
            (2.., _) => Ok(()),
            (_, 2..) => Err(MigrationError::OneTier(nodes.join(", "))),
            _ => Err(MigrationError::OneNode),
        }
    }

    /// The nodes of the tier that is this many tiers below that of `node`, the nearest first.
    fn beside(&self, node: NodeId, below: isize) -> Vec<NodeId> {
        let tier = self.tiers.iter().position(|tier| tier.contains(&node));
        let next = tier.and_then(|tier| self.tiers.get(tier.checked_add_signed(below)?));
        let mut nodes = next.cloned().unwrap_or_default();
        nodes.sort_by_key(|to| self.distances.get(&(node, *to)).copied().unwrap_or(u32::MAX));
        nodes
    }
}

impl Order for TierOrder {
    fn faster(&self, node: NodeId) -> Vec<NodeId> {
        self.beside(node, -1)
    }

    fn slower(&self, node: NodeId) -> Vec<NodeId> {
        self.beside(node, 1)
    }
}

/// The nodes of a list such as `0,2-3`.
fn list(text: &str) -> Vec<NodeId> {
    let part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<u32>().ok()?..=last.trim().parse::<u32>().ok()?)
    };
    text.trim().split(',').filter_map(part).flatten().map(NodeId).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::fs;

    use super::*;

    fn machine(files: &[(&str, &str)]) -> TierOrder {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join("sys/devices").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        TierOrder::read(root.path()).unwrap()
    }

    const FOUR: [(&str, &str); 6] = [
        ("system/node/has_memory", "0-3\n"),
        ("system/node/online", "0-3\n"),
        ("system/node/node0/distance", "10 20 20 30\n"),
        ("system/node/node1/distance", "20 10 30 20\n"),
        ("system/node/node0/cpulist", "0-3\n"),
        ("system/node/node1/cpulist", "4-7\n"),
    ];

    fn nodes(numbers: &[u32]) -> Vec<NodeId> {
        numbers.iter().copied().map(NodeId).collect()
    }

    #[test]
    fn nodes_without_processors_are_the_slow_tier_and_the_nearest_comes_first() {
        let order = machine(&FOUR);
        order.check().unwrap();
        assert_eq!((order.slower(NodeId(0)), order.slower(NodeId(1))), (nodes(&[2, 3]), nodes(&[3, 2])));
        assert_eq!((order.faster(NodeId(3)).len(), order.slower(NodeId(3)).len()), (2, 0));
        assert_eq!(order.faster(NodeId(0)), []);
    }

    #[test]
    fn the_tiers_of_the_kernel_come_first() {
        let tiers = [
            ("virtual/memory_tiering/memory_tier22/nodelist", "3\n"),
            ("virtual/memory_tiering/memory_tier4/nodelist", "0-1\n"),
            ("virtual/memory_tiering/memory_tier10/nodelist", "2\n"),
        ];
        let order = machine(&[FOUR.as_slice(), &tiers].concat());
        assert_eq!(order.slower(NodeId(0)), nodes(&[2]));
        assert_eq!(order.slower(NodeId(2)), nodes(&[3]));
        assert_eq!(order.faster(NodeId(2)), nodes(&[0, 1]));
    }

    #[test]
    fn one_node_and_one_tier_are_told() {
        let one = machine(&[("system/node/has_memory", "0\n"), ("system/node/node0/cpulist", "0-3\n")]);
        assert!(matches!(one.check(), Err(MigrationError::OneNode)));
        let two = [("system/node/has_memory", "0-1\n"), FOUR[4], FOUR[5]];
        assert!(matches!(machine(&two).check(), Err(MigrationError::OneTier(nodes)) if nodes == "node 0, node 1"));
        assert!(matches!(machine(&[]).check(), Err(MigrationError::OneNode)));
    }

    #[test]
    fn a_page_of_this_process_is_found_and_stays_as_it_is() {
        let scratch = Scratch::new(2 * PAGE_SIZE).unwrap();
        scratch.touch(0);
        let pages = [scratch.start(), scratch.start() + PAGE_SIZE];
        let own = Pages { pid: std::process::id(), shared: false };
        let found = isotherm_testing::or_skip!(own.locate(&pages));
        let node = found[0].unwrap();
        assert_eq!(found[1], Err(Errno::NOENT), "it was never touched");
        assert_eq!(own.migrate(&pages[..1], &[node]).unwrap(), [Ok(node)]);
        assert_eq!(own.migrate(&pages[..1], &[NodeId(1023)]), Err(Errno::NODEV));
    }
}
