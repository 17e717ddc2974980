//! Migration: moves pages of processes, and page cache, between memory nodes.
//!
//! - A huge page is moved as a whole, or stays: a range with only a part of it does not move it.
//! - Pages that are not in memory, or are already on their node, are neither applied nor refused.
//! - A node is never filled so far that the kernel reclaims there.
//! - A cold page that several processes map is moved only if it is known to be idle in all of them.
//! - Refusals by the kernel are counted page by page, and end no run.

mod batches;
mod places;
mod plan;
mod shared;
mod system;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use isotherm_core::scheme::{Action, Destinations, Moves, Outcome, RefusalReason, Work};
use isotherm_core::{AddrRange, NodeId, PAGE_SIZE, Tiers};
use isotherm_kernel::page_cache::OpenFile;
use isotherm_kernel::room_by_node;
use rustix::io::Errno;

use batches::{Move, Mover, Status, count, move_all};
pub(crate) use places::Places;
pub use places::PlacesError;
pub use plan::MARGIN as MIGRATION_MARGIN;
use plan::{Decision, Plan};
use shared::SharedPages;
pub use system::MigrationError;
use system::{Pages, tiers};

use crate::held::Held;
use crate::refusal::refusal;

/// Carries out the actions that move memory between nodes.
#[derive(Debug)]
pub(crate) struct Migration {
    root: PathBuf,
    open: Option<Open>,
}

/// What migration needs, once it has been opened.
#[derive(Debug)]
struct Open {
    places: Places,
    tiers: Tiers,
    /// `None` if the user may not read how often pages are mapped.
    shared: Option<SharedPages>,
}

impl Migration {
    /// Migration on the machine whose `/` is `root`. Nothing is opened before it is needed.
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.into(), open: None }
    }

    /// Checks that `action` can be carried out here: that there are the nodes that it needs, and the permissions.
    ///
    /// # Errors
    /// Says why not, and how to fix that.
    pub(crate) fn check(&mut self, action: Action) -> Result<(), MigrationError> {
        system::try_on_own_memory(action)?;
        let root = self.root.clone();
        let open = self.opened()?;
        if open.places.nodes().len() < 2 {
            return Err(MigrationError::OneNode);
        }
        match action.destinations() {
            Some(to) => to.nodes().iter().try_for_each(|(node, _)| Ok(open.places.has_node(*node)?)),
            None => system::check(&open.tiers),
        }?;
        room_by_node(&root)?;
        Ok(())
    }

    /// The nodes on which the action leaves all memory.
    pub(crate) fn left_nodes(&mut self, action: Action) -> Vec<NodeId> {
        let Ok(open) = self.opened() else { return Vec::new() };
        let nodes = || open.places.nodes();
        match action {
            Action::Promote => nodes().into_iter().filter(|node| open.tiers.faster(*node).is_empty()).collect(),
            Action::Demote => nodes().into_iter().filter(|node| open.tiers.slower(*node).is_empty()).collect(),
            _ => action.destinations().into_iter().flat_map(Destinations::all_keep).collect(),
        }
    }

    /// Moves what the action of `work` would move of its ranges, and counts in `outcomes` what was moved and refused of
    /// each. A call in progress when `interrupt` is set is finished, and no other begins.
    pub(crate) fn run(&mut self, held: &Held, work: &Work<'_>, outcomes: &mut [Outcome], interrupt: &AtomicBool) {
        let Work { action, ranges, .. } = *work;
        let refuse_all = |errno, outcomes: &mut [Outcome]| {
            for (range, outcome) in ranges.iter().zip(outcomes) {
                *outcome = Outcome::refused(*range, refusal(errno));
            }
        };
        let root = self.root.clone();
        let Ok(open) = self.opened() else { return refuse_all(Errno::PERM, outcomes) };
        // Without the watermarks, nothing tells how full a node may become.
        let Ok(room) = room_by_node(&root) else { return refuse_all(Errno::IO, outcomes) };
        let mut plan = Plan::new(action, &open.tiers, room);
        let mut moves = Vec::new();
        let found = open.places.whole_pages(held.pid, ranges, |placed| match plan.decide(placed) {
            Decision::Stay => {}
            Decision::Go(one) => moves.push(one),
            Decision::Full => count(placed.page, ranges, |range, bytes| {
                outcomes[range].refuse(bytes, RefusalReason::NoMemory.into());
            }),
        });
        // If the process has ended, another process may have had its ID while the pages were read.
        if found.is_err() || held.has_ended() {
            return refuse_all(found.err().unwrap_or(Errno::SRCH), outcomes);
        }
        let idle = open.idle_everywhere(held, work, &moves);
        // One destination after the other makes the fewest calls.
        moves.sort_unstable_by_key(|one: &Move| (one.to, one.page.start()));
        let is_idle = |one: &Move| idle.binary_search(&one.page.start()).is_ok();
        let (idle, others): (Vec<Move>, Vec<Move>) = moves.into_iter().partition(is_idle);
        for (moves, pages) in [(idle, Pages::all_of(held.pid)), (others, Pages::of(held.pid, action))] {
            move_all(&mut HeldTarget { held, pages, interrupt }, &moves, ranges, outcomes);
        }
    }

    /// Begins to move page cache as `action` says. A call in progress when `interrupt` is set is finished, and no other
    /// begins.
    ///
    /// # Errors
    /// If the nodes cannot be read.
    pub(crate) fn of_files<'a>(
        &'a mut self,
        action: Action,
        interrupt: &'a AtomicBool,
    ) -> Result<FileMoves<'a>, Errno> {
        let room = room_by_node(&self.root).map_err(|_| Errno::IO)?;
        let Open { places, tiers, .. } = self.opened().map_err(|_| Errno::PERM)?;
        let pages = Pages::of(std::process::id(), action);
        Ok(FileMoves { plan: Plan::new(action, tiers, room), places, pages, interrupt })
    }

    fn opened(&mut self) -> Result<&mut Open, MigrationError> {
        match &mut self.open {
            Some(open) => Ok(open),
            none => {
                let places = Places::open(&self.root)?;
                let tiers = tiers(&self.root)?;
                let shared = SharedPages::open(&self.root).ok();
                Ok(none.insert(Open { places, tiers, shared }))
            }
        }
    }
}

impl Open {
    /// The addresses of small, cold pages among `moves` that several processes map, and that are idle in all of them.
    fn idle_everywhere(&mut self, held: &Held, work: &Work<'_>, moves: &[Move]) -> Vec<u64> {
        let is_cold = work.action.moves() == Some(Moves::Cold);
        let (Some(shared), Some(elsewhere)) = (&mut self.shared, work.elsewhere.filter(|_| is_cold)) else {
            return Vec::new();
        };
        let small = moves.iter().map(|one| one.page).filter(|page| page.size() == PAGE_SIZE);
        let addresses: Vec<u64> = small.map(|page| page.start()).collect();
        // What cannot be read is not known to be idle, and the kernel refuses to move it.
        shared.idle_everywhere((held.pid, held.target()), &addresses, &elsewhere).unwrap_or_default()
    }
}

/// Moves page cache.
pub(crate) struct FileMoves<'a> {
    plan: Plan<'a>,
    places: &'a mut Places,
    /// Those of this process, which maps what is moved.
    pages: Pages,
    interrupt: &'a AtomicBool,
}

impl FileMoves<'_> {
    /// Moves what the action would move of `bytes` of a file, at most a block, and counts in `outcome` what was moved
    /// and refused. The kernel refuses cold pages that processes map.
    ///
    /// # Errors
    /// Returns the error of the call that failed. Nothing was moved then.
    pub(crate) fn run(&mut self, file: &OpenFile, bytes: AddrRange, outcome: &mut Outcome) -> Result<(), Errno> {
        let window = file.window(bytes)?;
        let here = window.range().ok_or(Errno::INVAL)?;
        let mut moves = Vec::new();
        for (page, frame) in window.frames()? {
            // The place in the file decides on the node. That of the window is another one each time.
            let offset = page as u64 * PAGE_SIZE;
            let Some(placed) = self.places.place(bytes.start() + offset, frame) else { continue };
            match self.plan.decide(placed) {
                Decision::Stay => {}
                Decision::Go(Move { to, .. }) => {
                    let at = here.start() + offset;
                    moves.extend(AddrRange::new(at, at + PAGE_SIZE).map(|page| Move { page, to }));
                }
                Decision::Full => outcome.refuse(PAGE_SIZE, RefusalReason::NoMemory.into()),
            }
        }
        moves.sort_unstable_by_key(|one| (one.to, one.page.start()));
        move_all(self, &moves, &[here], std::slice::from_mut(outcome));
        Ok(())
    }
}

impl Mover for FileMoves<'_> {
    fn migrate(&mut self, pages: &[u64], to: &[NodeId]) -> Result<Vec<Status>, Errno> {
        self.pages.migrate(pages, to)
    }

    fn locate(&mut self, pages: &[u64]) -> Result<Vec<Status>, Errno> {
        self.pages.locate(pages)
    }

    fn is_interrupted(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed)
    }
}

/// The pages of a process that is held.
struct HeldTarget<'a> {
    held: &'a Held,
    pages: Pages,
    interrupt: &'a AtomicBool,
}

impl HeldTarget<'_> {
    /// The answer of a call by process ID, unless the process has ended meanwhile.
    fn unless_ended<T>(&self, answer: Result<T, Errno>) -> Result<T, Errno> {
        if self.held.has_ended() { Err(Errno::SRCH) } else { answer }
    }
}

impl Mover for HeldTarget<'_> {
    fn migrate(&mut self, pages: &[u64], to: &[NodeId]) -> Result<Vec<Status>, Errno> {
        self.unless_ended(Ok(()))?;
        self.unless_ended(self.pages.migrate(pages, to))
    }

    fn locate(&mut self, pages: &[u64]) -> Result<Vec<Status>, Errno> {
        self.unless_ended(self.pages.locate(pages))
    }

    fn is_interrupted(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed)
    }
}
