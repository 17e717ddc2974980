//! Remembers the new state of a block, so that blocks with the same old state and the same changes share it.

use std::sync::Arc;

use super::block::BlockState;

/// The number of changes that are remembered. Neighbouring blocks often change alike.
const SLOTS: usize = 64;

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
        let mixed = (Arc::as_ptr(old) as u64 ^ hash).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let index = (mixed >> 58) as usize % SLOTS;
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
