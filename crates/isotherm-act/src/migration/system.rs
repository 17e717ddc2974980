//! The kernel's side of migration: the call that moves pages, and the tiers of the nodes.

#![allow(unsafe_code)]

use std::io;
use std::path::Path;

use isotherm_core::scheme::{Action, Moves};
use isotherm_core::{NodeId, PAGE_SIZE, Tiers};
use isotherm_kernel::scheduling::Urgent;
use isotherm_kernel::{NoScratch, NodesError, Scratch, ZoneError, memory_nodes};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use thiserror::Error;

use super::batches::Status;
use super::places::PlacesError;

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
    /// The nodes of the machine cannot be read.
    #[error(transparent)]
    Nodes(#[from] NodesError),
    /// The watermarks cannot be read.
    #[error(transparent)]
    Zones(#[from] ZoneError),
    /// There is only one tier of memory.
    #[error(
        "all memory of this machine is of one tier: {0} (name the node to move memory to with migrate_hot and \
         migrate_cold; `isotherm tier config --tiers` writes such schemes for tiers of your own)"
    )]
    OneTier(String),
    /// There is only one node.
    #[error(
        "this machine has only one memory node, so memory cannot move (a second node is needed, such as CXL memory)"
    )]
    OneNode,
    /// The memory for the test is not available.
    #[error(transparent)]
    Scratch(#[from] NoScratch),
}

/// Tries on memory of this process whether it may move pages as `action` does: a page goes to another node and back, or
/// stays on its node if there is no other.
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
    let own = Pages::all_of(std::process::id());
    let page = [scratch.start()];
    let node = own.locate(&page).and_then(|found| found.first().copied().unwrap_or(Err(Errno::NOENT)));
    let node = node.map_err(failed)?;
    own.migrate(&page, &[node]).map_err(failed)?;
    let nodes = memory_nodes(Path::new("/")).unwrap_or_default();
    if let Some(other) = nodes.iter().find(|other| other.id != node && other.size > 0) {
        match own.migrate(&page, &[other.id]).map(|status| status.first().copied()) {
            // The cpuset of this process says nothing about targets. A node can be full, or a page busy, for a moment.
            Err(Errno::ACCESS) | Ok(Some(Err(Errno::NOMEM | Errno::BUSY | Errno::AGAIN))) => {}
            Ok(Some(Ok(there))) if there == other.id => drop(own.migrate(&page, &[node]).map_err(failed)?),
            // The kernel has left the page where it was, and gives no reason.
            Ok(Some(Ok(_)) | None) => {}
            Err(errno) | Ok(Some(Err(errno))) => return Err(failed(errno)),
        }
    }
    // Memory of other processes needs more than that of this one.
    let allowed =
        rustix::thread::capabilities(None).map_or(true, |sets| sets.effective.contains(CapabilitySet::SYS_NICE));
    if allowed || action.moves().is_none() { Ok(()) } else { Err(failed(Errno::PERM)) }
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
        Self { pid, shared: action.moves() == Some(Moves::Hot) }
    }

    /// The pages of process `pid`, those that others share too.
    pub(super) const fn all_of(pid: u32) -> Self {
        Self { pid, shared: true }
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
        // The kernel holds the memory map of the process for each page.
        let urgent = Urgent::begin();
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
        drop(urgent);
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

/// The tiers of the machine whose `/` is `root`.
///
/// # Errors
/// If the nodes cannot be read. A kernel without NUMA has one node.
pub(super) fn tiers(root: &Path) -> Result<Tiers, MigrationError> {
    match isotherm_kernel::tiers(root, None) {
        Err(NodesError::NoNuma(_)) => Err(MigrationError::OneNode),
        tiers => Ok(tiers?),
    }
}

/// Checks that there is more than one tier.
///
/// # Errors
/// If there is not.
pub(super) fn check(tiers: &Tiers) -> Result<(), MigrationError> {
    match tiers.tiers() {
        [_, _, ..] => Ok(()),
        [one] if one.len() > 1 => {
            let nodes: Vec<String> = one.iter().map(|node| format!("node {node}")).collect();
            Err(MigrationError::OneTier(nodes.join(", ")))
        }
        _ => Err(MigrationError::OneNode),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use isotherm_core::Node;

    use super::*;

    /// A machine with nodes at equal distance, some of them with processors.
    fn machine(nodes: &[(u32, bool)]) -> Tiers {
        let all = || nodes.iter().map(|(node, _)| NodeId(*node));
        let node = |&(id, has_processors): &(u32, bool)| Node {
            id: NodeId(id),
            size: 1 << 30,
            free: 1 << 29,
            has_processors,
            distances: all().map(|to| (to, if to == NodeId(id) { 10 } else { 20 })).collect(),
        };
        Tiers::new(nodes.iter().map(node), &[])
    }

    #[test]
    fn one_node_and_one_tier_are_told() {
        assert!(matches!(check(&machine(&[(0, true)])), Err(MigrationError::OneNode)));
        let one_tier = check(&machine(&[(0, true), (1, true)]));
        assert!(matches!(one_tier, Err(MigrationError::OneTier(nodes)) if nodes == "node 0, node 1"));
        assert!(check(&machine(&[(0, true), (1, false)])).is_ok());
        let empty = tempfile::tempdir().unwrap();
        assert!(matches!(tiers(empty.path()), Err(MigrationError::OneNode)));
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
