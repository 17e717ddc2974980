//! Surveys all pages of a target: reads every page table once, and clears accessed bits in ranges.

mod aging;
mod block_frames;
mod clear;
mod clear_shared;
mod done;
mod faults;
mod folios;
mod frames;
mod groups;
mod hold_rate;
mod lazy;
mod learn;
mod masks;
mod read;
mod shared;
mod shared_sums;
mod sharing;
mod spans;
mod views;

use std::collections::HashSet;

use isotherm_core::survey::{BLOCK_SIZE, BlockFrames, BlockPages, ClearPages, PageBits, Rest, SurveyPart};
use isotherm_core::{AddrRange, PAGE_SIZE, TargetId};

use super::BpfError;
use super::folio::Folios;
use super::program::{PageTables, Program};
use super::shared_memory::{SharedLeftOut, SharedLimits, SharedMemory};
use super::space::SpaceHandle;
use super::swap::SwapEntries;
use super::target::BpfTarget;
use aging::Aging;
pub(crate) use block_frames::FramesOf;
use clear::{Clearer, Tools};
use clear_shared::SharedClearer;
use folios::{LargeFolios, Zeros};
pub(super) use frames::{FrameTable, frames_of};
use lazy::LazilyFreed;
use learn::learn;
use read::Reader;
use shared::{CHECK, SharedPages};
pub(super) use views::SecondViews;

/// A target with shared pages is read at once if it has at most this many blocks: 1 GiB, which takes about 2 ms.
const WHOLE: usize = 512;

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
    aging: Aging,
    shared_clearer: SharedClearer,
    swap: SwapEntries,
    lazily_freed: LazilyFreed,
    views: SecondViews,
    /// Whether second views count as memory of their own.
    counts_all_views: bool,
    /// The targets that were read to their end, and of which nothing was cleared since.
    at_end: HashSet<TargetId>,
    /// The target of which the next part is read, if it has not run since the survey before.
    at_rest: Option<TargetId>,
    surveys: u32,
}

impl Pages {
    /// Forgets all targets but these, which are sorted by ID.
    pub(super) fn keep(&mut self, targets: &[BpfTarget]) {
        let is_target = |id: &TargetId| targets.binary_search_by_key(id, |target| target.id).is_ok();
        self.shared.keep(is_target);
        self.lazily_freed.keep(is_target);
        self.views.keep(is_target);
        self.at_end.retain(is_target);
    }

    /// Begins a survey of `targets`, which are sorted by ID.
    pub(super) fn begin(&mut self, targets: &mut [BpfTarget], (mode, limits): (SharedMemory, SharedLimits)) {
        (self.shared.mode, self.shared.limits) = (mode, limits);
        self.shared.begin(targets.iter().map(|target| target.id));
        self.aging.begin(targets, mode);
        self.large.begin();
        self.views.begin();
        self.at_end.clear();
        self.surveys = self.surveys.wrapping_add(1);
        if u64::from(self.surveys).is_multiple_of(CHECK) {
            targets.iter_mut().for_each(BpfTarget::check_locked);
            self.lazily_freed.check();
        }
        if self.surveys.is_multiple_of(ZERO_SURVEYS) {
            self.zeros.forget();
        }
    }

    /// The next part that is read is of this target, which has not run since the survey before: it is not found out
    /// which of its pages are shared, because none is to be cleared.
    pub(super) fn rests(&mut self, target: TargetId) {
        self.at_rest = Some(target);
    }

    /// Appends the blocks in a part of `target` that have present or swapped pages to `blocks`, in the order of
    /// addresses. Forgets which pages of the part sampling has cleared. A target with shared pages is read as a whole
    /// if it is not large, because they are cleared in all of it at once. Calls `seen` with each of the blocks, before
    /// it is known which of its pages are mapped elsewhere too, and with its page frames.
    pub(super) fn read(
        &mut self,
        (program, tables, folios): (&mut Program, &PageTables, &Folios),
        target: &mut BpfTarget,
        part: SurveyPart,
        blocks: &mut Vec<BlockPages>,
        seen: &mut dyn FnMut(&BlockPages, FramesOf<'_>),
    ) -> Result<Rest, BpfError> {
        let first = blocks.len();
        let at_rest = self.at_rest.take() == Some(target.id) && !target.is_refused();
        if part.from == 0 && !self.counts_all_views && !(at_rest && self.views.has_none(target.id)) {
            let (zeros, shared) = (&self.zeros, &mut self.shared);
            let left = self.views.read((&mut *program, tables), target, zeros, part.most, shared)?;
            if left > 0 {
                return Ok(Rest { from: Some(0), blocks: left });
            }
        }
        let most = if self.shared.has(target.id) { part.most.max(WHOLE) } else { part.most };
        let part = SurveyPart { most, ..part };
        let rest = self.reader.read_with_frames((program, tables), target, part, &self.zeros, blocks, seen)?;
        if rest.from.is_none() && !at_rest {
            self.at_end.insert(target.id);
        }
        let pagemap = target.space().map(SpaceHandle::pagemap);
        if !pagemap.is_none_or(|pagemap| self.swap.check(self.reader.swapped(), pagemap)) {
            forget_swapped(blocks, first);
        }
        let range = (part.from, rest.from.unwrap_or(u64::MAX));
        self.lazily_freed.mark(folios.table(), target, range, self.reader.clean(), &mut blocks[first..]);
        if at_rest {
            self.views.apply(target.id, blocks, first);
            target.sampled.forget(part.from..rest.from.unwrap_or(u64::MAX));
            return Ok(rest);
        }
        learn(&mut self.shared, target, self.reader.suspects());
        self.reader.locked().iter().for_each(|&(start, pages)| self.shared.note(target.id, start, pages));
        self.shared.estimate(target, part.from, &blocks[first..]);
        self.views.apply(target.id, blocks, first);
        for block in &mut blocks[first..] {
            block.shared = self.shared.at(target.id, block.start) & block.accessed & !block.unobservable;
        }
        self.shared_clearer.seen(target.id, part.from, &blocks[first..]);
        self.aging.seen(target.id, part.from, &blocks[first..]);
        target.sampled.forget(part.from..rest.from.unwrap_or(u64::MAX));
        if target.is_refused() {
            blocks[first..].iter_mut().for_each(|block| block.unobservable = block.present);
        }
        Ok(rest)
    }

    /// Appends at most so many of the blocks that have present pages in `ranges` to `blocks`. Nothing is learned, and
    /// nothing is forgotten.
    pub(super) fn look(
        &mut self,
        (program, tables): (&mut Program, &PageTables),
        target: &BpfTarget,
        (ranges, most): (&[AddrRange], usize),
        blocks: &mut Vec<BlockPages>,
    ) -> Result<(), BpfError> {
        let first = blocks.len();
        self.reader.look((program, tables), target, (ranges, most), &self.zeros, blocks)?;
        self.views.apply(target.id, blocks, first);
        Ok(())
    }

    /// Calls `found` with the page frames of the pages of `target` that other processes may map, and with the places of
    /// its pages in swap, in the part that was read last.
    pub(super) fn shared_frames(
        &mut self,
        program: &mut Program,
        tables: &PageTables,
        target: &BpfTarget,
        found: &mut dyn FnMut(BlockFrames<'_>),
    ) -> Result<(), BpfError> {
        self.reader.shared_frames(program, tables, target, found)
    }

    /// Calls `found` with the frames of each block of `target` that has page-table entries.
    pub(super) fn frames(
        &mut self,
        program: &mut Program,
        tables: &PageTables,
        target: &BpfTarget,
        found: impl FnMut(u64, &FrameTable),
    ) -> Result<(), BpfError> {
        self.reader.frames(program, tables, target, &self.zeros, found)
    }

    /// Clears the accessed bits of pages of the target with this index. Returns how many it has cleared, those of other
    /// targets of the same cgroup included.
    pub(super) fn clear(
        &mut self,
        program: &mut Program,
        tables: &PageTables,
        folios: &Folios,
        (targets, index): (&mut [BpfTarget], usize),
        blocks: &mut Vec<ClearPages>,
    ) -> Result<u64, BpfError> {
        // Shared pages first: `MADV_COLD` flushes the TLB after it, as aging and `clear_refs` do not.
        let mut cleared = 0;
        if self.at_end.remove(&targets[index].id) {
            let (reader, zeros, shared) = (&mut self.reader, &self.zeros, &mut self.shared);
            cleared +=
                self.aging.age((&mut *program, tables), (&mut *reader, zeros), &mut *shared, (&mut *targets, index))?;
            let target = &mut targets[index];
            let aged = self.aging.result(target.id);
            let views = &mut self.views;
            cleared +=
                self.shared_clearer.clear((&mut *program, tables), (reader, zeros, views), shared, target, aged)?;
            self.aging.leave_out(target.id, blocks);
        }
        let target = &mut targets[index];
        let (large, zeros, shared) = (&mut self.large, &mut self.zeros, &mut self.shared);
        let mut tools = Tools { program, tables, folios, large, zeros, shared };
        cleared += self.clearer.clear(&mut tools, target, blocks)?;
        self.shared_clearer.cleared_alone(blocks);
        self.aging.finish(target.id, blocks);
        self.shared_clearer.finish(blocks);
        Ok(cleared)
    }

    /// Sets whether all views of a frame that a target maps several times count as memory of their own.
    pub(super) fn set_all_views(&mut self, all: bool) {
        self.counts_all_views = all;
    }

    /// Whether the page of `target` at `addr` is known to be mapped elsewhere, too.
    pub(super) fn is_shared(&self, target: TargetId, addr: u64) -> bool {
        let start = addr - addr % BLOCK_SIZE;
        self.shared.at(target, start).contains(((addr - start) / PAGE_SIZE) as usize)
    }

    /// The frames that targets map several times.
    pub(super) fn views(&self) -> &SecondViews {
        &self.views
    }

    /// Whether the last survey could tell which pages are in swap.
    pub(super) fn knows_swap(&self) -> bool {
        self.swap.are_known()
    }

    /// How many times a cgroup was aged to clear shared pages.
    pub(super) fn agings(&self) -> u64 {
        self.aging.agings()
    }

    /// Shared memory that the last survey has left unobservable.
    pub(super) fn shared_left_out(&self) -> Option<SharedLeftOut> {
        self.shared.left_out()
    }
}

/// Takes the swapped pages out of `blocks` from the index `first` on.
fn forget_swapped(blocks: &mut Vec<BlockPages>, first: usize) {
    let kept = blocks.drain(first..).filter(|block| !block.present.is_empty());
    let kept: Vec<_> = kept.map(|block| BlockPages { swapped: PageBits::NONE, ..block }).collect();
    blocks.extend(kept);
}
