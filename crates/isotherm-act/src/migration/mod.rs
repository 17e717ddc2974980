//! Migration: moves pages of processes between memory nodes.
//!
//! - A huge page is moved as a whole, or stays: a range with only a part of it does not move it.
//! - Pages that are not in memory, or are already on their node, are neither applied nor refused.
//! - A node is never filled so far that the kernel reclaims there.
//! - Refusals by the kernel are counted page by page, and end no run.

mod batches;
mod places;
mod plan;
mod system;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use isotherm_core::scheme::{Action, Destinations, Outcome, RefusalReason};
use isotherm_core::{AddrRange, NodeId, Tiers};
use isotherm_kernel::room_by_node;
use rustix::io::Errno;

use batches::{Move, Mover, Status, count, move_all};
pub(crate) use places::Places;
pub use places::PlacesError;
pub use plan::MARGIN as MIGRATION_MARGIN;
use plan::{Decision, Plan};
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

    /// Moves what `action` would move of `ranges`, which are sorted and disjoint, and counts in `outcomes` what was
    /// moved and refused of each. A call in progress when `interrupt` is set is finished, and no other begins.
    pub(crate) fn run(
        &mut self,
        held: &Held,
        action: Action,
        ranges: &[AddrRange],
        outcomes: &mut [Outcome],
        interrupt: &AtomicBool,
    ) {
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
        // One destination after the other makes the fewest calls.
        moves.sort_unstable_by_key(|one: &Move| (one.to, one.page.start()));
        move_all(&mut Target { held, pages: Pages::of(held.pid, action), interrupt }, &moves, ranges, outcomes);
    }

    fn opened(&mut self) -> Result<&mut Open, MigrationError> {
        match &mut self.open {
            Some(open) => Ok(open),
            none => {
                let places = Places::open(&self.root)?;
                let tiers = tiers(&self.root)?;
                Ok(none.insert(Open { places, tiers }))
            }
        }
    }
}

/// The pages of a process that is held.
struct Target<'a> {
    held: &'a Held,
    pages: Pages,
    interrupt: &'a AtomicBool,
}

impl Target<'_> {
    /// The answer of a call by process ID, unless the process has ended meanwhile.
    fn unless_ended<T>(&self, answer: Result<T, Errno>) -> Result<T, Errno> {
        if self.held.has_ended() { Err(Errno::SRCH) } else { answer }
    }
}

impl Mover for Target<'_> {
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
