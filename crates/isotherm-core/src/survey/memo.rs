//! Remembers the new states of blocks, so that blocks with the same old state and the same changes share one, and so do
//! blocks whose states become the same in another way.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::block::BlockState;
use super::change::Numbers;
use super::{BlockPages, ClearPages, PageBits};
use crate::order::GOLDEN;

/// The number of changes that are remembered. Blocks often change alike: neighbours, and those of processes that run
/// the same program.
const SLOTS: usize = 256;

/// What the blocks of a survey have become by their changes, for the targets that are read one after the other.
#[derive(Debug)]
pub(crate) struct Memos {
    /// The changes are those between these surveys.
    numbers: Option<Numbers>,
    /// The state of all blocks that were not known before.
    pub(super) unknown: Arc<BlockState>,
    pub(super) taken: Memo<BlockPages>,
    pub(super) taken_at_rest: Memo<(BlockPages, PageBits)>,
    pub(super) cleared: Memo<ClearPages>,
    /// States of blocks that were read, by a hash.
    read: HashMap<u64, Arc<BlockState>>,
}

impl Default for Memos {
    fn default() -> Self {
        Self {
            numbers: None,
            unknown: Arc::new(BlockState::NEW),
            taken: Memo::default(),
            taken_at_rest: Memo::default(),
            cleared: Memo::default(),
            read: HashMap::new(),
        }
    }
}

impl Memos {
    /// The same for a target that is surveyed with these numbers.
    pub(super) fn of(self, numbers: Numbers) -> Self {
        if self.numbers == Some(numbers) { self } else { Self { numbers: Some(numbers), ..Self::default() } }
    }

    /// Lets a block of a part that has ended share its new state with an equal one before.
    pub(super) fn share(&mut self, state: &mut Arc<BlockState>) {
        match self.read.entry(state.mixed()) {
            Entry::Vacant(vacant) => {
                vacant.insert(Arc::clone(state));
            }
            Entry::Occupied(known) if known.get() == state => *state = Arc::clone(known.get()),
            Entry::Occupied(_) => {}
        }
    }
}

/// Changes of block states.
#[derive(Debug)]
pub(super) struct Memo<C> {
    slots: Vec<Option<Change<C>>>,
}

#[derive(Clone, Debug)]
struct Change<C> {
    before: Arc<BlockState>,
    by: C,
    after: Arc<BlockState>,
}

impl<C> Default for Memo<C> {
    fn default() -> Self {
        Self { slots: Vec::new() }
    }
}

impl<C: Clone + PartialEq> Memo<C> {
    /// The state that `old` becomes by `change`, which `make` makes if it is not remembered. Equal changes have the
    /// same `hash`.
    pub(super) fn after(
        &mut self,
        old: &Arc<BlockState>,
        change: &C,
        hash: u64,
        make: impl FnOnce() -> BlockState,
    ) -> Arc<BlockState> {
        // The odd factor spreads addresses and bits of pages over the upper bits.
        let mixed = (Arc::as_ptr(old) as u64 ^ hash).wrapping_mul(GOLDEN);
        let index = (mixed >> 56) as usize % SLOTS;
        if self.slots.is_empty() {
            self.slots.resize(SLOTS, None);
        }
        if let Some(Change { before, by, after }) = &self.slots[index]
            && Arc::ptr_eq(before, old)
            && by == change
        {
            return Arc::clone(after);
        }
        let new = Arc::new(make());
        self.slots[index] = Some(Change { before: Arc::clone(old), by: change.clone(), after: Arc::clone(&new) });
        new
    }
}
