//! Clears the shared pages of a target with `/proc/PID/clear_refs`, and tells which pages that has cleared.

use std::path::Path;
use std::time::Instant;

use isotherm_core::survey::{BlockPages, ClearPages, PageBits, SurveyPart};
use isotherm_kernel::clear_refs::{Refs, clear_refs};
use isotherm_kernel::monitor_cpu_time;
use rustix::io::Errno;

use super::aging::Aged;
use super::done::{Done, merge};
use super::folios::Zeros;
use super::masks::Masks;
use super::read::Reader;
use super::shared::{Decision, Plan, SharedPages, Took};
use crate::bpf::BpfError;
use crate::bpf::program::{PageTables, Program};
use crate::bpf::shared_memory::{SharedMemory, SharedReason};
use crate::bpf::target::Target;

/// The buffers of a clear of shared pages, kept between surveys.
#[derive(Debug, Default)]
pub(super) struct SharedClearer {
    blocks: Vec<BlockPages>,
    after: Vec<BlockPages>,
    /// The accessed pages, by block: those that were cleared, and those that cannot be cleared.
    done: Vec<Done>,
}

impl SharedClearer {
    /// Clears the shared pages of `target`, but for those that aging has cleared, if that is allowed now. Returns the
    /// number of accessed bits that were cleared. [`finish`](Self::finish) tells which.
    pub(super) fn clear(
        &mut self,
        (program, tables): (&mut Program, &PageTables),
        (reader, zeros): (&mut Reader, &Zeros),
        shared: &mut SharedPages,
        target: &mut Target,
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
        self.blocks.clear();
        reader.read((program, tables), target, SurveyPart::ALL, zeros, &mut self.blocks)?;
        let plan = match shared.decide(target, &self.blocks) {
            Decision::Clear(plan) => plan,
            Decision::Wait => return Ok(0),
            Decision::LeaveOut => {
                self.leave_all(shared, target);
                return Ok(0);
            }
        };
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
        shared.cleared(target.id, plan, took, bits);
        Ok(bits)
    }

    /// Adds the pages that were cleared, and those that cannot be cleared, to `blocks`, and forgets them. `blocks` stay
    /// sorted.
    pub(super) fn finish(&mut self, blocks: &mut Vec<ClearPages>) {
        merge(&mut self.done, blocks);
    }

    /// Lists the accessed pages that the kernel has cleared, and the shared ones that it has left. Returns the number
    /// of accessed bits that were cleared.
    fn list(&mut self, shared: &SharedPages, target: &Target, plan: Plan) -> u64 {
        let mut masks = Masks::new(target.mappings(), target.uncleared());
        let mut bits = 0;
        for block in &self.blocks {
            let walked = match plan.refs {
                Refs::All => PageBits::ALL,
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
    fn refused(&mut self, shared: &mut SharedPages, target: &Target, reason: SharedReason) {
        shared.refused(target.id, reason);
        self.leave_all(shared, target);
    }

    /// The shared pages of the target cannot be observed.
    fn leave_all(&mut self, shared: &SharedPages, target: &Target) {
        let left = |(start, left)| Done { start, cleared: PageBits::NONE, left };
        self.done.extend(shared.rest(target.id).map(left));
    }
}
