//! Clears the shared pages of a target with `/proc/PID/clear_refs`, and reports which pages were cleared.

use std::path::Path;
use std::time::Instant;

use isotherm_core::survey::{BLOCK_SIZE, BlockPages, ClearPages, PageBits, SurveyPart};
use isotherm_core::{AddrRange, TargetId};
use isotherm_kernel::clear_refs::{Refs, clear_refs};
use isotherm_kernel::monitor_cpu_time;
use rustix::io::Errno;

use super::WHOLE;
use super::aging::Aged;
use super::done::{Done, merge};
use super::folios::Zeros;
use super::masks::Masks;
use super::read::Reader;
use super::shared::{Decision, Plan, SharedPages, Took};
use super::views::SecondViews;
use crate::bpf::BpfError;
use crate::bpf::program::{PageTables, Program};
use crate::bpf::shared_memory::{SharedMemory, SharedReason};
use crate::bpf::target::BpfTarget;
use crate::mapping::{is_memory, is_of_a_file};

/// The buffers of a clear of shared pages, kept between surveys.
#[derive(Debug, Default)]
pub(super) struct SharedClearer {
    /// The accessed pages of the target that is being read, by block, as the survey has read them and has not cleared
    /// them since.
    seen: Vec<(u64, PageBits)>,
    /// The target that `seen` is about.
    seen_of: Option<TargetId>,
    blocks: Vec<BlockPages>,
    after: Vec<BlockPages>,
    /// The accessed pages, by block: those that were cleared, and those that cannot be cleared.
    done: Vec<Done>,
}

impl SharedClearer {
    /// Takes in what the survey has read of a target, from the address `from` on. Its shared pages are cleared after
    /// the last part. What was accessed in between counts as accessed in the next survey.
    pub(super) fn seen(&mut self, target: TargetId, from: u64, blocks: &[BlockPages]) {
        if from == 0 || self.seen_of != Some(target) {
            self.seen.clear();
        }
        self.seen_of = Some(target);
        self.seen.extend(blocks.iter().map(|block| (block.start, block.accessed)));
    }

    /// Takes in which pages of the target that is being read were cleared one by one.
    pub(super) fn cleared_alone(&mut self, blocks: &[ClearPages]) {
        for block in blocks {
            if let Ok(index) = self.seen.binary_search_by_key(&block.start, |seen| seen.0) {
                self.seen[index].1 &= !block.pages;
            }
        }
    }

    /// Clears the shared pages of `target`, but for those that aging has cleared, if that is allowed now. Returns the
    /// number of accessed bits that were cleared. [`finish`](Self::finish) returns which.
    pub(super) fn clear(
        &mut self,
        (program, tables): (&mut Program, &PageTables),
        (reader, zeros, views): (&mut Reader, &Zeros, &mut SecondViews),
        shared: &mut SharedPages,
        target: &mut BpfTarget,
        aged: Aged,
    ) -> Result<u64, BpfError> {
        self.done.clear();
        if !shared.has(target.id) {
            return Ok(0);
        }
        match aged {
            Aged::No if shared.is_early(target.id) => return Ok(0),
            Aged::Early => return Ok(0),
            Aged::Yes { much_left: false } => {
                self.leave_all(shared, target);
                return Ok(0);
            }
            Aged::No | Aged::Yes { much_left: true } => {}
        }
        if shared.mode == SharedMemory::Never {
            self.refused(shared, target, SharedReason::Never);
            return Ok(0);
        }
        if shared.rests(target.id) {
            return Ok(0);
        }
        // It is not read again if it is large, for the time that this would take.
        if shared.waits_too_long(target.id) {
            self.leave_all(shared, target);
            return Ok(0);
        }
        self.blocks.clear();
        if aged == Aged::No && self.seen.len() > WHOLE && shared.walks_files_only(target.id) {
            let files = target.mappings().iter().filter(|mapping| is_memory(mapping) && is_of_a_file(mapping));
            let files: Vec<_> = files.map(|mapping| mapping.range).collect();
            reader.look((&mut *program, tables), target, (&files, usize::MAX), zeros, &mut self.blocks)?;
            self.leave_elsewhere(shared, target);
        } else {
            reader.read((&mut *program, tables), target, SurveyPart::ALL, zeros, &mut self.blocks)?;
        }
        let plan = match shared.decide(target, &self.blocks) {
            Decision::Clear(plan) => plan,
            Decision::Wait => {
                self.done.clear();
                return Ok(0);
            }
            Decision::LeaveOut => {
                self.leave_all(shared, target);
                return Ok(0);
            }
        };
        if views.has(target.id) {
            // What was accessed through other views since they were read is cleared, too.
            views.read((&mut *program, tables), target, zeros, usize::MAX, shared)?;
            views.apply(target.id, &mut self.blocks, 0);
        }
        let (Some(space), Some(pid)) = (target.space(), target.id.pid()) else { return Ok(0) };
        let (began, cpu) = (Instant::now(), monitor_cpu_time());
        match clear_refs(Path::new("/"), pid, space.pidfd(), plan.refs) {
            Ok(()) => {}
            Err(Errno::SRCH) => {
                target.refuse();
                return Ok(0);
            }
            Err(_) => {
                self.refused(shared, target, SharedReason::Refused);
                return Ok(0);
            }
        }
        let took = Took { wall: began.elapsed(), cpu: monitor_cpu_time().saturating_sub(cpu) };
        let bits = self.list(shared, target, plan);
        self.done.sort_unstable_by_key(|done| done.start);
        if self.blocks.iter().any(|block| block.huge) {
            // The kernel leaves pages of hugetlbfs. They are still accessed.
            self.after.clear();
            reader.read((program, tables), target, SurveyPart::ALL, zeros, &mut self.after)?;
            for after in self.after.iter().filter(|after| after.huge) {
                if let Ok(index) = self.done.binary_search_by_key(&after.start, |done| done.start) {
                    self.done[index].cleared &= !after.accessed;
                }
            }
        }
        self.note_late(target);
        shared.cleared(target.id, plan, took, bits);
        Ok(bits)
    }

    /// Notes for the next survey which of the pages that were cleared were accessed since this survey has read them.
    fn note_late(&self, target: &mut BpfTarget) {
        for done in &self.done {
            let seen = self.seen.binary_search_by_key(&done.start, |seen| seen.0);
            let late = done.cleared & !seen.map_or(PageBits::NONE, |index| self.seen[index].1);
            let block = AddrRange::new(done.start, done.start.saturating_add(BLOCK_SIZE)).filter(|_| !late.is_empty());
            if let Some(block) = block {
                target.sampled.add_pages(done.start, late, block);
            }
        }
    }

    /// The shared pages of the target outside of the blocks that were read cannot be observed.
    fn leave_elsewhere(&mut self, shared: &SharedPages, target: &BpfTarget) {
        let blocks = &self.blocks;
        let is_elsewhere = |start: u64| blocks.binary_search_by_key(&start, |block| block.start).is_err();
        let elsewhere = shared.rest(target.id).filter(|(start, _)| is_elsewhere(*start));
        let seen = (self.seen_of == Some(target.id)).then_some(&self.seen[..]);
        self.done.extend(left(seen, elsewhere));
    }

    /// Adds the pages that were cleared, and those that cannot be cleared, to `blocks`, and forgets them. `blocks` stay
    /// sorted.
    pub(super) fn finish(&mut self, blocks: &mut Vec<ClearPages>) {
        merge(&mut self.done, blocks);
    }

    /// Lists the accessed pages that the kernel has cleared, and the shared ones that it has left. Returns the number
    /// of accessed bits that were cleared.
    fn list(&mut self, shared: &SharedPages, target: &BpfTarget, plan: Plan) -> u64 {
        let mut masks = Masks::new(target.mappings(), target.clearing());
        let mut bits = 0;
        for block in &self.blocks {
            let walked = match plan.refs {
                Refs::All => PageBits::ALL,
                Refs::Anonymous => !masks.at(block.start).file,
                Refs::Mapped => masks.at(block.start).file,
            };
            let accessed = block.accessed & !block.unobservable;
            let cleared = accessed & walked;
            let count = cleared.count() as u64;
            bits += if block.huge { count.min(1) } else { count };
            let left = accessed & !walked & shared.rest_at(target.id, block.start);
            self.done.push(Done { start: block.start, cleared, left });
        }
        bits
    }

    /// Nothing of the target can be cleared.
    fn refused(&mut self, shared: &mut SharedPages, target: &BpfTarget, reason: SharedReason) {
        shared.refused(target.id, reason);
        self.leave_all(shared, target);
    }

    /// The shared pages of the target cannot be observed.
    fn leave_all(&mut self, shared: &SharedPages, target: &BpfTarget) {
        self.done.clear();
        let seen = (self.seen_of == Some(target.id)).then_some(&self.seen[..]);
        self.done.extend(left(seen, shared.rest(target.id)));
    }
}

/// Which of the pages that are not cleared cannot be observed: those that were accessed. The accessed bits of the
/// others are clear, so that they are known to be idle until they are accessed. If it is not known which were accessed,
/// all of them.
fn left(seen: Option<&[(u64, PageBits)]>, pages: impl Iterator<Item = (u64, PageBits)>) -> impl Iterator<Item = Done> {
    pages.filter_map(move |(start, pages)| {
        let seen = match seen {
            Some(seen) => seen.binary_search_by_key(&start, |seen| seen.0).ok().map(|index| seen[index].1)?,
            None => PageBits::ALL,
        };
        Some(Done { start, cleared: PageBits::NONE, left: pages & seen })
    })
}
