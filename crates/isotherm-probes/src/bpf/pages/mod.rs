//! Surveys all pages of a target: reads every page table once, and clears accessed bits in ranges.

mod clear;
mod clear_shared;
mod find;
mod folios;
mod frames;
mod learn;
mod masks;
mod read;
mod shared;
mod spans;

use isotherm_core::survey::{BlockFrames, BlockPages, ClearPages};

use super::BpfError;
use super::folio::Folios;
use super::program::{PageTables, Program};
use super::shared_memory::{SharedLeftOut, SharedLimits, SharedMemory};
use super::target::Target;
use clear::{Clearer, Tools};
use clear_shared::SharedClearer;
use folios::{LargeFolios, Zeros};
pub(super) use frames::FrameTable;
use learn::learn;
use read::Reader;
use shared::SharedPages;

/// How many surveys the frames of huge zero pages are remembered for.
const ZERO_SURVEYS: u32 = 16;

/// What surveys keep.
#[derive(Debug, Default)]
pub(super) struct Pages {
    reader: Reader,
    clearer: Clearer,
    large: LargeFolios,
    zeros: Zeros,
    shared: SharedPages,
    shared_clearer: SharedClearer,
    surveys: u32,
}

impl Pages {
    /// Begins a survey of `targets`, which are sorted by ID.
    pub(super) fn begin(&mut self, targets: &[Target], (mode, limits): (SharedMemory, SharedLimits)) {
        (self.shared.mode, self.shared.limits) = (mode, limits);
        self.shared.begin(targets);
        self.large.begin();
        self.surveys = self.surveys.wrapping_add(1);
        if self.surveys.is_multiple_of(ZERO_SURVEYS) {
            self.zeros.forget();
        }
    }

    /// Appends the blocks of `target` that have present pages to `blocks`, in the order of addresses. Forgets which
    /// pages sampling has cleared.
    pub(super) fn read(
        &mut self,
        program: &mut Program,
        tables: &PageTables,
        target: &mut Target,
        blocks: &mut Vec<BlockPages>,
    ) -> Result<(), BpfError> {
        let first = blocks.len();
        self.reader.read(program, tables, target, &self.zeros, blocks)?;
        learn(&mut self.shared, target, self.reader.suspects());
        for block in &mut blocks[first..] {
            block.shared = self.shared.at(target.id, block.start) & block.accessed & !block.unobservable;
        }
        target.sampled.clear();
        if target.is_refused() {
            blocks[first..].iter_mut().for_each(|block| block.unobservable = block.present);
        }
        Ok(())
    }

    /// Calls `found` with the page frames of the pages of `target` that other processes may map. The target was read
    /// last.
    pub(super) fn shared_frames(
        &mut self,
        program: &mut Program,
        tables: &PageTables,
        target: &Target,
        found: &mut dyn FnMut(BlockFrames<'_>),
    ) -> Result<(), BpfError> {
        self.reader.shared_frames(program, tables, target, found)
    }

    /// Calls `found` with the frames of each block of `target` that has page-table entries.
    pub(super) fn frames(
        &mut self,
        program: &mut Program,
        tables: &PageTables,
        target: &Target,
        found: impl FnMut(u64, &FrameTable),
    ) -> Result<(), BpfError> {
        self.reader.frames(program, tables, target, &self.zeros, found)
    }

    /// Clears the accessed bits of pages. Returns how many it has cleared.
    pub(super) fn clear(
        &mut self,
        program: &mut Program,
        tables: &PageTables,
        folios: &Folios,
        target: &mut Target,
        blocks: &mut Vec<ClearPages>,
    ) -> Result<u64, BpfError> {
        // Shared pages first: `MADV_COLD` flushes the TLB after it, as `clear_refs` does not.
        let mut cleared =
            self.shared_clearer.clear((program, tables), (&mut self.reader, &self.zeros), &mut self.shared, target)?;
        let (large, zeros, shared) = (&mut self.large, &mut self.zeros, &mut self.shared);
        let mut tools = Tools { program, tables, folios, large, zeros, shared };
        cleared += self.clearer.clear(&mut tools, target, blocks)?;
        self.shared_clearer.finish(blocks);
        Ok(cleared)
    }

    /// Shared memory that the last survey has left unobservable.
    pub(super) fn shared_left_out(&self) -> Option<SharedLeftOut> {
        self.shared.left_out()
    }
}
