//! Clears the shared pages of a target, and tells which pages that has cleared.

use std::path::Path;
use std::time::Instant;

use isotherm_core::survey::{BlockPages, ClearPages, PageBits};
use isotherm_kernel::clear_refs::{Refs, clear_refs};
use isotherm_kernel::monitor_cpu_time;
use isotherm_kernel::pages::PagemapEntry;
use rustix::io::Errno;

use super::folios::Zeros;
use super::masks::Masks;
use super::read::Reader;
use super::shared::{Decision, Plan, SharedPages, Took};
use crate::bpf::BpfError;
use crate::bpf::entries::PAGES;
use crate::bpf::program::{PageTables, Program};
use crate::bpf::shared_memory::{SharedMemory, SharedReason};
use crate::bpf::target::{State, Target};

/// The buffers of a clear of shared pages, kept between surveys.
#[derive(Debug, Default)]
pub(super) struct SharedClearer {
    blocks: Vec<BlockPages>,
    after: Vec<BlockPages>,
    /// The accessed pages that were cleared, by block.
    done: Vec<(u64, PageBits)>,
}

impl SharedClearer {
    /// Clears the shared pages of `target`, if that is allowed now. Removes from `blocks` the pages that are cleared,
    /// and adds those that cannot be cleared to the unobservable ones. Returns the number of accessed bits that were
    /// cleared. [`add_to`](Self::add_to) tells which.
    pub(super) fn clear(
        &mut self,
        (program, tables): (&mut Program, &PageTables),
        (reader, zeros): (&mut Reader, &Zeros),
        shared: &mut SharedPages,
        target: &mut Target,
        blocks: &mut [ClearPages],
    ) -> Result<u64, BpfError> {
        self.done.clear();
        check(shared, target);
        if !shared.has(target.id) || shared.is_early(target.id) {
            return Ok(0);
        }
        if shared.mode == SharedMemory::Never {
            shared.refused(target.id, SharedReason::Never);
            leave_out(shared, target, blocks);
            return Ok(0);
        }
        self.blocks.clear();
        reader.read(program, tables, target, zeros, &mut self.blocks)?;
        let plan = match shared.decide(target, &self.blocks) {
            Decision::Clear(plan) => plan,
            Decision::Wait => return Ok(0),
            Decision::LeaveOut => {
                leave_out(shared, target, blocks);
                return Ok(0);
            }
        };
        let (Some(space), Some(pid)) = (target.space(), target.id.pid()) else { return Ok(0) };
        let (began, cpu) = (Instant::now(), monitor_cpu_time());
        match clear_refs(Path::new("/"), pid, space.pidfd(), plan.refs) {
            Ok(()) => {}
            Err(Errno::SRCH) => {
                target.state = State::Gone;
                return Ok(0);
            }
            Err(_) => {
                shared.refused(target.id, SharedReason::Refused);
                leave_out(shared, target, blocks);
                return Ok(0);
            }
        }
        let took = Took { wall: began.elapsed(), cpu: monitor_cpu_time().saturating_sub(cpu) };
        let bits = self.list(target, plan);
        if self.blocks.iter().any(|block| block.huge) {
            // The kernel leaves pages of hugetlbfs. They are still accessed.
            self.after.clear();
            reader.read(program, tables, target, zeros, &mut self.after)?;
            for after in self.after.iter().filter(|after| after.huge) {
                if let Ok(index) = self.done.binary_search_by_key(&after.start, |(start, _)| *start) {
                    self.done[index].1 &= !after.accessed;
                }
            }
        }
        shared.cleared(target.id, plan, took, bits);
        for block in blocks {
            let done = self.at(block.start);
            // Pages that are shared since a fork, when only files are cleared.
            block.unobservable |= block.pages & shared.at(target.id, block.start) & self.accessed(block.start) & !done;
            block.pages &= !done;
        }
        Ok(bits)
    }

    /// Adds the pages that were cleared to `blocks`, and keeps them sorted.
    pub(super) fn add_to(&self, blocks: &mut Vec<ClearPages>) {
        let asked = blocks.len();
        for &(start, done) in self.done.iter().filter(|(_, done)| !done.is_empty()) {
            match blocks[..asked].binary_search_by_key(&start, |block| block.start) {
                Ok(index) => {
                    blocks[index].pages |= done;
                    blocks[index].unobservable &= !done;
                }
                Err(_) => blocks.push(ClearPages { start, pages: done, ..ClearPages::default() }),
            }
        }
        blocks.sort_unstable_by_key(|block| block.start);
    }

    /// Forgets what was cleared.
    pub(super) fn forget(&mut self) {
        self.done.clear();
    }

    /// Lists the accessed pages that the kernel has cleared. Returns the number of their accessed bits.
    fn list(&mut self, target: &Target, plan: Plan) -> u64 {
        let mut masks = Masks::new(target.mappings(), target.uncleared());
        let mut bits = 0;
        for block in &self.blocks {
            let walked = match plan.refs {
                Refs::All => PageBits::ALL,
                Refs::Mapped => masks.at(block.start).file,
            };
            let done = block.accessed & walked & !block.unobservable;
            let count = done.count() as u64;
            bits += if block.huge { count.min(1) } else { count };
            self.done.push((block.start, done));
        }
        bits
    }

    /// The pages that were accessed before the clear.
    fn accessed(&self, start: u64) -> PageBits {
        let index = self.blocks.binary_search_by_key(&start, |block| block.start);
        index.map_or(PageBits::NONE, |index| self.blocks[index].accessed)
    }

    /// The pages that were cleared.
    fn at(&self, start: u64) -> PageBits {
        let index = self.done.binary_search_by_key(&start, |(start, _)| *start);
        index.map_or(PageBits::NONE, |index| self.done[index].1)
    }
}

/// The shared pages of `blocks` cannot be observed.
fn leave_out(shared: &SharedPages, target: &Target, blocks: &mut [ClearPages]) {
    for block in blocks {
        block.unobservable |= block.pages & shared.at(target.id, block.start);
    }
}

/// Checks from time to time which pages are still shared.
fn check(shared: &mut SharedPages, target: &Target) {
    let Some(space) = target.space() else { return };
    let mut buffer = [0; PAGES * PagemapEntry::BYTES];
    shared.check(target.id, |start| {
        let mut exclusive = PageBits::ALL;
        let entries = space.pagemap().entries(start, &mut buffer).into_iter().flatten().take(PAGES);
        let is_shared = |entry: PagemapEntry| entry.frame().is_some() && !entry.is_exclusive();
        for page in entries.enumerate().filter(|(_, entry)| is_shared(*entry)).map(|(page, _)| page) {
            exclusive &= !PageBits::of(page..page + 1);
        }
        exclusive
    });
}
