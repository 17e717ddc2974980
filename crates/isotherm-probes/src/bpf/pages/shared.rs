//! Clears pages that several processes map, with `/proc/PID/clear_refs`, within limits.

use std::collections::{BTreeMap, HashMap};
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

/// All memory of a process is cleared only if at least this part of it is anonymous memory that is shared after a fork.
const LEAST_FORKED: u64 = 50;

/// In one survey of this many, it is found out again which pages are shared.
const CHECK: u64 = 8;

/// What is known about the pages of a block.
#[derive(Clone, Copy, Debug, Default)]
struct Sharing {
    /// Other processes map them.
    shared: PageBits,
    /// No other process maps them.
    exclusive: PageBits,
}

/// What is known about the pages of a target.
#[derive(Debug, Default)]
struct Known {
    blocks: BTreeMap<u64, Sharing>,
    /// The name of the mapping with most of them. Targets with the same name take turns.
    name: Arc<str>,
    /// How long its page faults wait for a clear, as it was estimated last.
    hold: Duration,
    /// The number of the last survey that cleared the target.
    cleared: u64,
    /// When the target may be cleared again.
    next: Option<Instant>,
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
    /// For how long targets have waited in this survey, by name.
    waited: HashMap<Arc<str>, Duration>,
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
            waited: HashMap::new(),
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
        self.waited.clear();
        (self.left_out, self.most_left_out) = (None, 0);
        self.targets.retain(|id, _| targets.binary_search_by_key(id, |target| target.id).is_ok());
        if self.survey.is_multiple_of(CHECK) {
            self.targets.values_mut().for_each(|known| known.blocks.clear());
        }
        if targets.iter().any(|target| !self.targets.contains_key(&target.id)) {
            // The new process may map what was exclusive.
            self.targets.values_mut().for_each(Known::doubt);
            targets.iter().for_each(|target| _ = self.targets.entry(target.id).or_default());
        }
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
            self.learn(target, start, pages, PageBits::NONE);
        }
    }

    /// Notes which pages of a block other processes map, and which they do not.
    pub(super) fn learn(&mut self, target: TargetId, start: u64, shared: PageBits, exclusive: PageBits) {
        let known = self.targets.entry(target).or_default().blocks.entry(start).or_default();
        known.shared = (known.shared | shared) & !exclusive;
        known.exclusive = (known.exclusive | exclusive) & !shared;
    }

    /// The pages of a block of which it is known whether other processes map them.
    pub(super) fn known(&self, target: TargetId, start: u64) -> PageBits {
        let sharing = self.targets.get(&target).and_then(|known| known.blocks.get(&start));
        sharing.map_or(PageBits::NONE, |sharing| sharing.shared | sharing.exclusive)
    }

    /// The pages of a block that are known to be shared.
    pub(super) fn at(&self, target: TargetId, start: u64) -> PageBits {
        let sharing = self.targets.get(&target).and_then(|known| known.blocks.get(&start));
        sharing.map_or(PageBits::NONE, |sharing| sharing.shared)
    }

    /// The pages that are known to be shared, by block, in the order of addresses.
    pub(super) fn pages(&self, target: TargetId) -> impl Iterator<Item = (u64, PageBits)> {
        let blocks = self.targets.get(&target).into_iter().flat_map(|known| &known.blocks);
        blocks.map(|(&start, sharing)| (start, sharing.shared)).filter(|(_, shared)| !shared.is_empty())
    }

    /// Whether the target has pages that are known to be shared.
    pub(super) fn has(&self, target: TargetId) -> bool {
        self.targets.get(&target).is_some_and(Known::has_shared)
    }

    /// Decides about the shared pages of `target`, whose pages are `blocks`.
    pub(super) fn decide(&mut self, target: &Target, blocks: &[BlockPages]) -> Decision {
        let Some(known) = self.targets.get(&target.id) else { return Decision::Wait };
        let sums = Sums::of(target, &known.blocks, blocks);
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
        if self.has_turn(target.id) { Decision::Clear(plan) } else { Decision::Wait }
    }

    /// Whether the target can be cleared in this survey, after those with the same name that have not been cleared for
    /// longer.
    fn has_turn(&self, target: TargetId) -> bool {
        let Some(of) = self.targets.get(&target) else { return false };
        let earlier = |known: &&Known| known.name == of.name && known.cleared < of.cleared && known.has_shared();
        let first: Duration = self.targets.values().filter(earlier).map(|known| known.hold).sum();
        let waited = self.waited.get(&of.name).copied().unwrap_or_default();
        waited + first + of.hold <= self.limits.together
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
        let pages: usize =
            self.targets.get(&target).map_or(0, |known| known.blocks.values().map(|block| block.shared.count()).sum());
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
        *self.waited.entry(Arc::clone(&known.name)).or_default() += plan.hold;
    }
}

impl Known {
    fn has_shared(&self) -> bool {
        self.blocks.values().any(|block| !block.shared.is_empty())
    }

    /// Forgets which pages no other process maps.
    fn doubt(&mut self) {
        self.blocks.values_mut().for_each(|block| block.exclusive = PageBits::NONE);
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
    fn of(target: &Target, known: &BTreeMap<u64, Sharing>, blocks: &[BlockPages]) -> Self {
        let mut sums = Self::default();
        let mut masks = Masks::new(target.mappings(), target.uncleared());
        let mut names: HashMap<Arc<str>, usize> = HashMap::new();
        let bytes = |pages: PageBits| pages.count() as u64 * PAGE_SIZE;
        for block in blocks {
            let mask = masks.at(block.start);
            sums.present += bytes(block.present);
            sums.file += bytes(block.present & mask.file);
            let Some(known) = known.get(&block.start) else { continue };
            let shared = known.shared & block.present;
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
    fn processes_take_turns_if_all_of_them_would_wait_for_too_long() {
        let all: [TargetId; 3] = [1, 2, 3].map(|pid| TargetId::process(pid, Duration::ZERO));
        let mut shared = SharedPages::default();
        // Two of them fit.
        let hold = shared.limits.together * 2 / 5;
        for target in all {
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
            shared.waited.clear();
            turns.push(all.map(|target| {
                let turn = shared.has_turn(target);
                if turn {
                    shared.cleared(target, plan, took, 0);
                }
                turn
            }));
        }
        let [odd, even] = [[true, true, false], [true, false, true]];
        assert_eq!(turns, [odd, even, odd, even]);

        shared.targets.values_mut().for_each(|known| known.hold = hold / 2);
        shared.waited.clear();
        assert!(all.iter().all(|&target| shared.has_turn(target)));
    }
}
