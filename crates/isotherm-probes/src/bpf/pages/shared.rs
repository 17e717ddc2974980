//! Clears pages that several processes map, with `/proc/PID/clear_refs`, within limits.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use isotherm_core::survey::{BlockPages, PageBits};
use isotherm_core::{PAGE_SIZE, TargetId};
use isotherm_kernel::clear_refs::Refs;

use super::masks::Masks;
use crate::bpf::shared_memory::{SharedLeftOut, SharedLimits, SharedMemory, SharedReason};
use crate::bpf::target::Target;

/// How long page faults wait at first, for each byte of the mappings that are walked: 8 ms for 1 GiB.
const FIRST_RATE: f64 = 8e-3 / (1 << 30) as f64;

/// Walks of less memory than this, in bytes, do not change the estimate.
const LEAST_MEASURED: u64 = 16 << 20;

/// What it costs a process to set an accessed bit again (see `isotherm_core::survey::SurveyLimits`).
const SET_AGAIN: Duration = Duration::from_nanos(400);

/// Processes that share memory take turns, unless this is the longest time that one of them waits, or all of them
/// together wait for no longer than the limit.
const SHORT: Duration = Duration::from_micros(500);

/// All memory of a process is cleared only if at least this part of it is anonymous memory that is shared after a fork.
const LEAST_FORKED: u64 = 50;

/// How many surveys pass before it is checked again which pages are shared.
const CHECK: u32 = 8;

/// The shared pages of a target.
#[derive(Debug, Default)]
struct Known {
    /// The pages that `MADV_COLD` has left because other processes map them.
    pages: BTreeMap<u64, PageBits>,
    /// The name of the mapping with most of them. Targets with the same name take turns.
    name: Arc<str>,
    /// How long its page faults wait for a clear, as it was estimated last.
    hold: Duration,
    /// The number of the last survey that cleared the target.
    cleared: u64,
    /// When the target may be cleared again.
    next: Option<Instant>,
    /// How many surveys ago it was checked which pages are shared.
    checked: u32,
}

/// How the shared pages of a target can be cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) refs: Refs,
    hold: Duration,
}

/// How long a clear took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Took {
    pub(super) wall: Duration,
    /// The CPU time. It says how long the next clear will take, whatever else the machine is doing.
    pub(super) cpu: Duration,
}

/// What is done about the shared pages of a target in a survey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// They are cleared.
    Clear(Plan),
    /// They stay as they are until a later survey. Their accessed bits tell about the time since an earlier one.
    Wait,
    /// They are unobservable.
    LeaveOut,
}

/// Decides when shared pages are cleared.
#[derive(Debug)]
pub(super) struct SharedPages {
    pub(super) mode: SharedMemory,
    pub(super) limits: SharedLimits,
    targets: HashMap<TargetId, Known>,
    survey: u64,
    /// The names whose turn was taken in this survey.
    taken: HashSet<Arc<str>>,
    /// The seconds for which page faults wait, for each byte that is walked.
    rate: f64,
    left_out: Option<SharedLeftOut>,
    most_left_out: u64,
}

impl Default for SharedPages {
    fn default() -> Self {
        Self {
            mode: SharedMemory::default(),
            limits: SharedLimits::default(),
            targets: HashMap::new(),
            survey: 0,
            taken: HashSet::new(),
            rate: FIRST_RATE,
            left_out: None,
            most_left_out: 0,
        }
    }
}

impl SharedPages {
    /// Begins a survey of the targets with these IDs.
    pub(super) fn begin(&mut self, targets: &[Target]) {
        self.survey += 1;
        self.taken.clear();
        (self.left_out, self.most_left_out) = (None, 0);
        self.targets.retain(|id, _| targets.binary_search_by_key(id, |target| target.id).is_ok());
        // A long time that was measured once, on a busy machine, is forgotten.
        self.rate += (FIRST_RATE - self.rate) / 64.0;
    }

    /// Shared memory that this survey has left out.
    pub(super) fn left_out(&self) -> Option<SharedLeftOut> {
        self.left_out
    }

    /// Notes that `MADV_COLD` has left `pages` of a block because other processes map them.
    pub(super) fn note(&mut self, target: TargetId, start: u64, pages: PageBits) {
        if !pages.is_empty() {
            *self.targets.entry(target).or_default().pages.entry(start).or_default() |= pages;
        }
    }

    /// The pages of a block that are known to be shared.
    pub(super) fn at(&self, target: TargetId, start: u64) -> PageBits {
        self.targets.get(&target).and_then(|known| known.pages.get(&start)).copied().unwrap_or_default()
    }

    /// Whether the target has pages that are known to be shared.
    pub(super) fn has(&self, target: TargetId) -> bool {
        self.targets.get(&target).is_some_and(|known| !known.pages.is_empty())
    }

    /// Checks from time to time which pages are still shared. `exclusive` returns the pages of a block that are not.
    pub(super) fn check(&mut self, target: TargetId, mut exclusive: impl FnMut(u64) -> PageBits) {
        let Some(known) = self.targets.get_mut(&target) else { return };
        known.checked += 1;
        if known.checked >= CHECK {
            known.checked = 0;
            known.pages.retain(|&start, pages| {
                *pages &= !exclusive(start);
                !pages.is_empty()
            });
        }
    }

    /// Decides about the shared pages of `target`, whose pages are `blocks`.
    pub(super) fn decide(&mut self, target: &Target, blocks: &[BlockPages]) -> Decision {
        let Some(known) = self.targets.get(&target.id) else { return Decision::Wait };
        let sums = Sums::of(target, &known.pages, blocks);
        let all = sums.forked_shared * LEAST_FORKED >= sums.present && sums.forked_shared > 0;
        let (refs, walked) =
            match (all || self.mode == SharedMemory::Always && sums.forked_shared > 0, sums.file_shared) {
                (true, _) => (Refs::All, sums.present),
                (false, 1..) => (Refs::Mapped, sums.file),
                (false, 0) => return self.leave_out(target.id, sums.forked_shared, SharedReason::SmallPart),
            };
        let hold = Duration::from_secs_f64(walked as f64 * self.rate);
        let bytes = sums.file_shared + sums.forked_shared;
        let plan = Plan { refs, hold };
        let Some(known) = self.targets.get_mut(&target.id) else { return Decision::Wait };
        (known.name, known.hold) = (sums.name, hold);
        match self.mode {
            SharedMemory::Always => return Decision::Clear(plan),
            SharedMemory::Never => return self.leave_out(target.id, bytes, SharedReason::Never),
            SharedMemory::Auto => {}
        }
        if hold > self.limits.longest_hold {
            let reason = SharedReason::LongHold { estimate: hold, longest: self.limits.longest_hold };
            return self.leave_out(target.id, bytes, reason);
        }
        if hold > SHORT && !self.has_turn(target.id) { Decision::Wait } else { Decision::Clear(plan) }
    }

    /// Whether all targets with the same name can be cleared within the time for all of them. If not, whether no other of them
    /// has waited for longer, or was cleared in this survey.
    fn has_turn(&self, target: TargetId) -> bool {
        let Some(of) = self.targets.get(&target) else { return false };
        let holds = self.targets.values().filter(|known| known.name == of.name).map(|known| known.hold);
        if holds.sum::<Duration>() <= self.limits.together {
            return true;
        }
        let earlier = |known: &Known| known.name == of.name && known.cleared < of.cleared;
        !self.taken.contains(&of.name) && !self.targets.values().any(|known| !known.pages.is_empty() && earlier(known))
    }

    fn leave_out(&mut self, target: TargetId, bytes: u64, reason: SharedReason) -> Decision {
        // No other target waits for its turn.
        if let Some(known) = self.targets.get_mut(&target) {
            known.cleared = self.survey;
        }
        let before = self.left_out.map_or(0, |left_out| left_out.bytes);
        let reason =
            self.left_out.map(|left_out| left_out.reason).filter(|_| bytes <= self.most_left_out).unwrap_or(reason);
        self.most_left_out = self.most_left_out.max(bytes);
        self.left_out = Some(SharedLeftOut { bytes: before + bytes, reason });
        Decision::LeaveOut
    }

    /// Notes that nothing of the target can be cleared.
    pub(super) fn refused(&mut self, target: TargetId, reason: SharedReason) {
        let pages: usize = self.targets.get(&target).map_or(0, |known| known.pages.values().map(PageBits::count).sum());
        self.leave_out(target, pages as u64 * PAGE_SIZE, reason);
    }

    /// Whether the target may not be cleared yet, because it was cleared a short time ago.
    pub(super) fn is_early(&self, target: TargetId) -> bool {
        let next = self.targets.get(&target).and_then(|known| known.next);
        self.mode == SharedMemory::Auto && next.is_some_and(|next| Instant::now() < next)
    }

    /// Notes that the target was cleared in `took`, and that `bits` accessed bits were set.
    pub(super) fn cleared(&mut self, target: TargetId, plan: Plan, took: Took, bits: u64) {
        let walked = plan.hold.as_secs_f64() / self.rate;
        if walked >= LEAST_MEASURED as f64 {
            let measured = (took.cpu.as_secs_f64() / walked).clamp(self.rate / 4.0, self.rate * 4.0);
            self.rate += (measured - self.rate) * 0.3;
        }
        let Some(known) = self.targets.get_mut(&target) else { return };
        let cost = took.wall + SET_AGAIN * u32::try_from(bits).unwrap_or(u32::MAX);
        known.next = Some(Instant::now() + cost.div_f64(self.limits.time_share.max(1e-4)));
        known.cleared = self.survey;
        if plan.hold > SHORT {
            self.taken.insert(Arc::clone(&known.name));
        }
    }
}

/// The present and shared bytes of a target.
#[derive(Debug, Default)]
struct Sums {
    present: u64,
    /// Of files and shared memory.
    file: u64,
    file_shared: u64,
    /// Of private anonymous memory, shared since a fork.
    forked_shared: u64,
    /// The name of the mapping with the most shared pages.
    name: Arc<str>,
}

impl Sums {
    fn of(target: &Target, shared: &BTreeMap<u64, PageBits>, blocks: &[BlockPages]) -> Self {
        let mut sums = Self::default();
        let mut masks = Masks::new(target.mappings(), target.uncleared());
        let mut names: HashMap<Arc<str>, usize> = HashMap::new();
        let bytes = |pages: PageBits| pages.count() as u64 * PAGE_SIZE;
        for block in blocks {
            let mask = masks.at(block.start);
            sums.present += bytes(block.present);
            sums.file += bytes(block.present & mask.file);
            let Some(&shared) = shared.get(&block.start) else { continue };
            let shared = shared & block.present;
            sums.file_shared += bytes(shared & mask.file);
            sums.forked_shared += bytes(shared & !mask.file);
            for index in masks.mappings_at(block.start) {
                *names.entry(Arc::clone(&target.mappings()[index].name)).or_default() += shared.count();
            }
        }
        sums.name = names.into_iter().max_by_key(|(_, pages)| *pages).map(|(name, _)| name).unwrap_or_default();
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_take_turns_if_all_of_them_would_wait_for_longer_than_the_limit() {
        let [a, b] = [1, 2].map(|pid| TargetId::process(pid, Duration::ZERO));
        let mut shared = SharedPages::default();
        let hold = shared.limits.longest_hold * 2 / 3;
        for target in [a, b] {
            shared.note(target, 0, PageBits::ALL);
            if let Some(known) = shared.targets.get_mut(&target) {
                known.hold = hold;
            }
        }
        let plan = Plan { refs: Refs::Mapped, hold };
        let took = Took { wall: hold, cpu: hold };
        let mut turns = Vec::new();
        for _ in 0..4 {
            shared.survey += 1;
            shared.taken.clear();
            turns.push([a, b].map(|target| {
                let turn = shared.has_turn(target);
                if turn {
                    shared.cleared(target, plan, took, 0);
                }
                turn
            }));
        }
        assert_eq!(turns, [[true, false], [false, true], [true, false], [false, true]]);

        let short = shared.limits.longest_hold / 2;
        shared.targets.values_mut().for_each(|known| known.hold = short);
        shared.taken.clear();
        assert!(shared.has_turn(a) && shared.has_turn(b));
    }
}
