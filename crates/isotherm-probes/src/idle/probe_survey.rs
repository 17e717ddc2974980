//! The survey of the `idle` probe: it reads and marks all pages of a process, or of physical memory.
//!
//! - A page is present if the pagemap says so, and the process may access it. The zero page is absent, as it is in the
//!   resident set size. `[vdso]` and `[vvar]` are left out.
//! - A page was accessed if any process has accessed it, through any mapping or system call. A page that several
//!   targets map is touched in all of them.
//! - A page is in swap if the pagemap says so, which does not know of shared memory in swap.
//! - If a frame has no bit, or the kernel cannot check it now, the page is unobservable in this survey. Pages of
//!   hugetlbfs and of devices are unobservable, too, and so is memory that devices or io_uring access.
//! - A frame that was marked for one target is marked for all. Targets that are read later in the same survey learn of
//!   the accesses nevertheless.
//! - In physical memory, user memory is present: anonymous memory and page cache, whether a process maps it or not. All
//!   other memory is absent: free memory, and memory that the kernel uses for itself.
//! - A process with more than 16 GiB of accessible address space is not read whole: see `explore.rs`.

use isotherm_core::survey::{
    BlockFrames, BlockPages, ClearPages, NodePages, PageBits, Rest, Survey, SurveyPart, Unseen,
};
use isotherm_core::{AddrRange, BoxError, Mapping, TargetId, TargetSpace};
use isotherm_kernel::pages::PageBuffer;

use super::IdleError;
use super::frames::Frames;
use super::probe::IdleProbe;
use super::survey::{IdleSurvey, Suspects};
use super::target::IdleTarget;

impl Survey for IdleProbe {
    fn begin(&mut self) -> Result<(), BoxError> {
        let survey = self.survey.get_or_insert_default();
        self.accesses.lock().begin();
        survey.nodes.begin();
        survey.explored.retain(|id, _| self.targets.iter().any(|target| target.id == *id));
        survey.second_views.retain(|id, _| self.targets.iter().any(|target| target.id == *id));
        Ok(())
    }

    /// Opens the target again: exec gives a process another address space.
    fn read(&mut self, space: &TargetSpace, part: SurveyPart, blocks: &mut Vec<BlockPages>) -> Result<Rest, BoxError> {
        let (target, _) = IdleTarget::open(&self.root, &self.files, space)?;
        self.look_elsewhere(space);
        let elsewhere = self.elsewhere.get(&space.id);
        let survey = self.survey.get_or_insert_default();
        let mut buffer = std::mem::take(&mut survey.buffer);
        let mut frames = Frames { bitmap: &self.bitmap, flags: &self.flags, buffer: &mut buffer };
        let done = survey.read((&mut frames, &self.accesses), (&target, elsewhere), &space.mappings, part, blocks);
        survey.buffer = buffer;
        match self.targets.iter_mut().find(|known| known.id == space.id) {
            Some(known) => *known = target,
            None => self.targets.push(target),
        }
        Ok(done.map_err(IdleError::from)?)
    }

    fn look(
        &mut self,
        space: &TargetSpace,
        ranges: &[AddrRange],
        most: usize,
        blocks: &mut Vec<BlockPages>,
    ) -> Result<(), BoxError> {
        let Some(target) = self.targets.iter().find(|known| known.id == space.id) else { return Ok(()) };
        let within = |mapping: &Mapping| {
            let first = ranges.partition_point(|range| range.end() <= mapping.range.start());
            let parts = ranges[first..].iter().map_while(|range| range.intersection(mapping.range));
            parts.map(|range| Mapping { range, ..mapping.clone() }).collect::<Vec<_>>()
        };
        let mappings: Vec<Mapping> = space.mappings.iter().flat_map(within).collect();
        // What surveys keep is not for a look.
        let mut survey = IdleSurvey::default();
        let mut buffer = PageBuffer::default();
        let mut frames = Frames { bitmap: &self.bitmap, flags: &self.flags, buffer: &mut buffer };
        let part = SurveyPart { most, ..SurveyPart::ALL };
        let target = (target, self.elsewhere.get(&space.id));
        survey.read((&mut frames, &self.accesses), target, &mappings, part, blocks).map_err(IdleError::from)?;
        Ok(())
    }

    fn frames(&mut self, _: TargetId, found: &mut dyn FnMut(BlockFrames<'_>)) -> Result<bool, BoxError> {
        let suspects = self.survey.iter().flat_map(|survey| &survey.suspects);
        suspects.filter_map(Suspects::frames).for_each(found);
        Ok(true)
    }

    fn second_views(&self, target: TargetId, found: &mut dyn FnMut(u64, PageBits)) {
        let views = self.survey.as_ref().and_then(|survey| survey.second_views.get(&target));
        views.into_iter().flatten().for_each(|(start, pages)| found(*start, *pages));
    }

    fn nodes(&mut self, _: TargetId, found: &mut dyn FnMut(NodePages)) -> Result<(), BoxError> {
        self.survey.iter_mut().for_each(|survey| survey.nodes.found().for_each(&mut *found));
        Ok(())
    }

    fn knows_swap(&self) -> bool {
        true
    }

    fn unseen(&self, target: TargetId) -> Vec<(AddrRange, Unseen)> {
        self.elsewhere.get(&target).map_or_else(Vec::new, |elsewhere| elsewhere.ranges().to_vec())
    }

    fn clear(&mut self, target: TargetId, blocks: &mut Vec<ClearPages>) -> Result<u64, BoxError> {
        let Some(target) = self.targets.iter().find(|known| known.id == target) else { return Ok(0) };
        let survey = self.survey.get_or_insert_default();
        let mut buffer = std::mem::take(&mut survey.buffer);
        let mut frames = Frames { bitmap: &self.bitmap, flags: &self.flags, buffer: &mut buffer };
        let done = survey.clear((&mut frames, &self.accesses), target, blocks);
        survey.buffer = buffer;
        let marked = done.map_err(IdleError::from)?;
        self.clears += marked;
        Ok(marked)
    }
}
