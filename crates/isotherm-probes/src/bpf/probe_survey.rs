//! The survey of the `bpf` probe: it reads and clears all pages of a target.
//!
//! Reading costs about 1 µs for each page table, which maps 2 MiB. Address space without page tables costs nothing.
//! `MADV_COLD` clears ranges. It also moves all pages of such a range to the inactive list, including those that were
//! already idle.
//!
//! - A page is present if a page of memory that the kernel manages is mapped there. The zero page is absent, as it is
//!   in the resident set size. Memory of devices is present and unobservable.
//! - `[vdso]` and `[vvar]` are left out.
//! - Pages that several processes map, and locked pages, are cleared by the multi-generational LRU or with
//!   `/proc/PID/clear_refs`, within limits: see [`SharedMemory`](super::SharedMemory).
//! - A page of hugetlbfs is unobservable once the kernel has refused to clear it.

use isotherm_core::survey::{
    BlockFrames, BlockPages, ClearPages, NodePages, PageBits, Rest, Survey, SurveyPart, Unseen,
};
use isotherm_core::{AddrRange, BoxError, TargetId, TargetSpace};

use super::BpfError;
use super::direct_map::memory_end;
use super::pages::{FramesOf, frames_of};
use super::probe::BpfProbe;
use super::space::SpaceHandle;
use super::target::BpfTarget;

impl Survey for BpfProbe {
    /// Turns sweeps off: see [`BpfProbe::set_sweeps`].
    fn begin(&mut self) -> Result<(), BoxError> {
        self.set_sweeps(false);
        self.tables.memory_end = memory_end()?;
        for target in &mut self.targets {
            let space = target.space().map(SpaceHandle::identity);
            let rest = space.and_then(|space| self.tasks.as_ref()?.mark(space));
            target.look_elsewhere(rest);
        }
        self.pages.get_or_insert_default().begin(&mut self.targets, self.shared);
        self.nodes.begin();
        Ok(())
    }

    fn read(&mut self, target: &TargetSpace, part: SurveyPart, blocks: &mut Vec<BlockPages>) -> Result<Rest, BoxError> {
        let mut nodes = std::mem::take(&mut self.nodes);
        nodes.begin_part();
        let done = match nodes.are_several() {
            false => self.read_with_frames(target, part, blocks, &mut |_, _| {}),
            true => self.read_with_frames(target, part, blocks, &mut |block, frames| {
                nodes.add(block.start, block.present, |page| frames.frame(page));
            }),
        };
        self.nodes = nodes;
        Ok(done?)
    }

    fn rests(&mut self, target: TargetId) {
        self.pages.get_or_insert_default().rests(target);
    }

    fn look(
        &mut self,
        target: &TargetSpace,
        ranges: &[AddrRange],
        most: usize,
        blocks: &mut Vec<BlockPages>,
    ) -> Result<(), BoxError> {
        if let Ok(index) = self.targets.binary_search_by_key(&target.id, |known| known.id) {
            let known = &mut self.targets[index];
            known.set_mappings(&target.mappings);
            let pages = self.pages.get_or_insert_default();
            pages.look((&mut self.program, &self.tables), known, (ranges, most), blocks)?;
        }
        Ok(())
    }

    fn frames(&mut self, target: TargetId, found: &mut dyn FnMut(BlockFrames<'_>)) -> Result<bool, BoxError> {
        if let Ok(index) = self.targets.binary_search_by_key(&target, |known| known.id) {
            let pages = self.pages.get_or_insert_default();
            pages.shared_frames(&mut self.program, &self.tables, &self.targets[index], found)?;
        }
        Ok(true)
    }

    fn nodes(&mut self, _: TargetId, found: &mut dyn FnMut(NodePages)) -> Result<(), BoxError> {
        self.nodes.found().for_each(found);
        Ok(())
    }

    fn second_views(&self, target: TargetId, found: &mut dyn FnMut(u64, PageBits)) {
        self.pages.iter().for_each(|pages| pages.views().second(target, found));
    }

    fn knows_swap(&self) -> bool {
        self.pages.as_ref().is_some_and(|pages| pages.knows_swap())
    }

    fn unseen(&self, target: TargetId) -> Vec<(AddrRange, Unseen)> {
        self.held(target).map_or_else(Vec::new, BpfTarget::unseen)
    }

    fn left_out(&self) -> Option<String> {
        self.shared_left_out().filter(|left_out| left_out.is_much()).and_then(|left_out| left_out.remark())
    }

    fn clear(&mut self, target: TargetId, blocks: &mut Vec<ClearPages>) -> Result<u64, BoxError> {
        let Ok(index) = self.targets.binary_search_by_key(&target, |known| known.id) else { return Ok(0) };
        let pages = self.pages.get_or_insert_default();
        let target = (&mut self.targets[..], index);
        let cleared = pages.clear(&mut self.program, &self.tables, &self.folios, target, blocks)?;
        self.clears += cleared;
        Ok(cleared)
    }
}

impl BpfProbe {
    /// Calls `found` with the frames of the pages of these blocks that the target has freed lazily.
    pub(crate) fn lazily_freed_frames(
        &mut self,
        target: TargetId,
        blocks: &[BlockPages],
        found: &mut dyn FnMut(BlockFrames<'_>),
    ) -> Result<(), BpfError> {
        let freed = blocks.iter().filter(|block| !block.lazily_freed.is_empty());
        let freed: Vec<_> = freed.map(|block| (block.start, block.lazily_freed)).collect();
        match self.targets.binary_search_by_key(&target, |known| known.id) {
            Ok(index) if !freed.is_empty() => {
                frames_of(&mut self.program, &self.tables, &self.targets[index], &freed, found)
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Like [`Survey::read`]. It also calls `seen` with each of these blocks, before it is known which of its pages
    /// other processes map, and with its page frames, in no particular order.
    pub(crate) fn read_with_frames(
        &mut self,
        target: &TargetSpace,
        part: SurveyPart,
        blocks: &mut Vec<BlockPages>,
        seen: &mut dyn FnMut(&BlockPages, FramesOf<'_>),
    ) -> Result<Rest, BpfError> {
        let index = match self.targets.binary_search_by_key(&target.id, |known| known.id) {
            Ok(index) => index,
            Err(index) => {
                let (new, _) = self.renew(target, None)?;
                self.targets.insert(index, new);
                index
            }
        };
        let known = &mut self.targets[index];
        known.set_mappings(&target.mappings);
        let pages = self.pages.get_or_insert_default();
        pages.read((&mut self.program, &self.tables, &self.folios), known, part, blocks, seen)
    }
}
