//! Decides when and how pages that several processes map, and locked pages, are cleared, within limits. `MADV_COLD`
//! leaves both. Both are called shared here.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use isotherm_core::survey::{BlockPages, PageBits};
use isotherm_core::{PAGE_SIZE, TargetId};
use isotherm_kernel::clear_refs::Refs;

use super::faults::Faults;
use super::hold_rate::HoldRate;
use super::shared_sums::Sums;
use super::sharing::Sharing;
use crate::bpf::shared_memory::{SharedLeftOut, SharedLimits, SharedMemory, SharedReason};
use crate::bpf::target::BpfTarget;

/// Private memory of a process is cleared only if at least this part of its memory is shared after a fork, or locked.
const LEAST_PRIVATE: u64 = 50;

/// In one survey of this many, it is found out again which pages are shared that were not.
pub(super) const CHECK: u64 = 8;

/// In one survey of this many, and when a target has ended, it is found out again which pages are still shared. A page
/// that no longer is costs no more than before until then.
const CHECK_SHARED: u64 = 4 * CHECK;

/// What is known about the pages of a target.
#[derive(Debug, Default)]
struct TargetSharing {
    /// Whether a survey has begun since the target joined.
    surveyed: bool,
    blocks: BTreeMap<u64, Sharing>,
    /// The name of the mapping with most of them. Targets with the same name take turns.
    name: Arc<str>,
    /// How long its page faults wait for a clear, as it was estimated last.
    hold: Duration,
    /// Its page faults, if they would wait for longer than most may.
    faults: Faults,
    /// The number of the last survey that cleared the target.
    cleared: u64,
    /// When the target may be cleared again.
    next: Option<Instant>,
    /// The number of the last survey in which the cgroup of the target was aged.
    aged: u64,
    /// What the survey has read of the target so far, or what the last one has read of it.
    sums: Sums,
    /// What clearing the target would cost it, by that.
    costs: Costs,
}

/// What it would cost a process to have its shared pages cleared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Costs {
    /// How long its page faults would wait for `/proc/PID/clear_refs`.
    pub(super) hold: Duration,
    /// The time for the accessed bits that it would have to set again after `/proc/PID/clear_refs`.
    pub(super) bits: Duration,
    /// The same after aging, which clears its private pages too.
    pub(super) all_bits: Duration,
}

/// How the shared pages of a target can be cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) refs: Refs,
    /// The page-table entries that are walked, in bytes of small pages.
    walked: u64,
    mappings: usize,
    hold: Duration,
    /// The accessed bits that are cleared.
    bits: u64,
    /// The shared bytes that are not cleared, because it would take too long.
    left: u64,
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

/// Shared bytes that are left out.
#[derive(Clone, Copy, Debug, Default)]
struct LeftOut {
    bytes: u64,
    /// Of these, those that are locked.
    locked: u64,
}

impl LeftOut {
    /// All shared bytes of a target.
    fn of(sums: &Sums) -> Self {
        Self { bytes: sums.file_shared + sums.private_shared, locked: sums.locked }
    }
}

/// Decides when shared pages are cleared.
#[derive(Debug, Default)]
pub(super) struct SharedPages {
    pub(super) mode: SharedMemory,
    pub(super) limits: SharedLimits,
    targets: HashMap<TargetId, TargetSharing>,
    survey: u64,
    /// Whether a target has ended since the last survey began, so that others may share less than before.
    has_ended: bool,
    /// For how long targets have waited in this survey, by name.
    waited: HashMap<Arc<str>, Duration>,
    hold_rate: HoldRate,
    /// Whether this survey has left out a target because its page faults would wait for too long.
    too_long: bool,
    left_out: Option<SharedLeftOut>,
    most_left_out: u64,
}

impl SharedPages {
    /// Begins a survey of the targets with these IDs.
    pub(super) fn begin(&mut self, targets: impl Iterator<Item = TargetId>) {
        self.survey += 1;
        self.waited.clear();
        if std::mem::take(&mut self.too_long) {
            self.hold_rate.forget();
        }
        (self.left_out, self.most_left_out) = (None, 0);
        if std::mem::take(&mut self.has_ended) || self.survey.is_multiple_of(CHECK_SHARED) {
            self.targets.values_mut().for_each(|known| known.blocks.clear());
        } else if self.survey.is_multiple_of(CHECK) {
            self.targets.values_mut().for_each(TargetSharing::doubt);
            // Second views are found again as well.
            let blocks = self.targets.values_mut().flat_map(|known| known.blocks.values_mut());
            blocks.for_each(|sharing| sharing.set_second(PageBits::NONE));
        }
        let mut has_joined = false;
        for target in targets {
            let known = self.targets.entry(target).or_default();
            has_joined |= !std::mem::replace(&mut known.surveyed, true);
        }
        if has_joined {
            // The new process may map what was exclusive.
            self.targets.values_mut().for_each(TargetSharing::doubt);
        }
    }

    /// Forgets all other targets.
    pub(super) fn keep(&mut self, is_target: impl Fn(&TargetId) -> bool) {
        let before = self.targets.len();
        self.targets.retain(|id, _| is_target(id));
        self.has_ended |= self.targets.len() < before;
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

    /// Notes which pages of a block the target maps at a lower address, too.
    pub(super) fn note_second(&mut self, target: TargetId, start: u64, pages: PageBits) {
        self.targets.entry(target).or_default().blocks.entry(start).or_default().set_second(pages);
    }

    /// Notes which pages of a block other processes map, and which they do not.
    pub(super) fn learn(&mut self, target: TargetId, start: u64, shared: PageBits, exclusive: PageBits) {
        self.targets.entry(target).or_default().blocks.entry(start).or_default().learn(shared, exclusive);
    }

    /// The pages of a block that are known to be shared with other processes, or known not to be.
    pub(super) fn known(&self, target: TargetId, start: u64) -> PageBits {
        let sharing = self.targets.get(&target).and_then(|known| known.blocks.get(&start));
        sharing.map_or(PageBits::NONE, |sharing| sharing.shared() | sharing.exclusive())
    }

    /// The pages of a block that are known to be shared.
    pub(super) fn at(&self, target: TargetId, start: u64) -> PageBits {
        let sharing = self.targets.get(&target).and_then(|known| known.blocks.get(&start));
        sharing.map_or(PageBits::NONE, Sharing::shared)
    }

    /// The shared pages of a block that have not been cleared by aging in this survey.
    pub(super) fn rest_at(&self, target: TargetId, start: u64) -> PageBits {
        let Some(known) = self.targets.get(&target) else { return PageBits::NONE };
        known.blocks.get(&start).map_or(PageBits::NONE, |sharing| sharing.rest(known.aged == self.survey))
    }

    /// The shared pages that have not been cleared by aging in this survey, by block, in the order of addresses.
    pub(super) fn rest(&self, target: TargetId) -> impl Iterator<Item = (u64, PageBits)> {
        let known = self.targets.get(&target).into_iter();
        let blocks = known.flat_map(|known| known.blocks.iter().map(|entry| (known.aged == self.survey, entry)));
        blocks.map(|(aged, (&start, sharing))| (start, sharing.rest(aged))).filter(|(_, rest)| !rest.is_empty())
    }

    /// When targets may be cleared again that have to set at most this number of accessed bits now.
    pub(super) fn next_after(&self, bits: u64) -> Instant {
        Instant::now() + self.limits.rest_after(self.set_again(bits))
    }

    /// Notes that the cgroup of the target was aged, and when it may be cleared again.
    pub(super) fn was_aged(&mut self, target: TargetId, next: Instant) {
        let Some(known) = self.targets.get_mut(&target) else { return };
        known.blocks.values_mut().for_each(Sharing::forget_left);
        (known.aged, known.cleared, known.next) = (self.survey, self.survey, Some(next));
    }

    /// Notes which accessed pages of a block the last aging has cleared, and which are still accessed. Returns the
    /// shared ones among the latter that no aging was seen to clear. The others were accessed again.
    pub(super) fn aged(&mut self, target: TargetId, start: u64, cleared: PageBits, still: PageBits) -> PageBits {
        let known = self.targets.get_mut(&target).and_then(|known| known.blocks.get_mut(&start));
        known.map_or(PageBits::NONE, |sharing| sharing.age(cleared, still))
    }

    /// Whether the target has pages that are known to be shared.
    pub(super) fn has(&self, target: TargetId) -> bool {
        self.targets.get(&target).is_some_and(TargetSharing::has_shared)
    }

    /// Takes in what clearing `target` would cost, of which the survey has read `blocks`, from the address `from` on.
    pub(super) fn estimate(&mut self, target: &BpfTarget, from: u64, blocks: &[BlockPages]) {
        let Some(known) = self.targets.get_mut(&target.id) else { return };
        if from == 0 {
            known.sums = Sums::default();
        }
        if !known.has_shared() {
            return;
        }
        known.sums.add(Sums::of(target, &known.blocks, Sharing::shared, blocks));
        let longest_hold = self.limits.longest_hold;
        let (sums, longest) = (known.sums.clone(), known.longest_hold(longest_hold));
        let costs = match self.way(&sums, longest) {
            Some(Plan { hold, bits, .. }) => {
                Costs { hold, bits: self.set_again(bits), all_bits: self.set_again(sums.accessed) }
            }
            None => Costs { all_bits: self.set_again(sums.accessed), ..Costs::default() },
        };
        let known = self.targets.entry(target.id).or_default();
        known.costs = costs;
        if costs.hold > longest_hold {
            known.faults.count(target.id);
        }
    }

    /// What clearing the target would cost, as it was read last. `None` if it has no shared pages that are worth it.
    pub(super) fn costs(&self, target: TargetId) -> Option<Costs> {
        let known = self.targets.get(&target).filter(|known| known.has_shared())?;
        (known.costs.hold > Duration::ZERO).then_some(known.costs)
    }

    /// Whether no accessed bit is set that `/proc/PID/clear_refs` would have to clear. The target then gives its turn
    /// to another one.
    pub(super) fn rests(&mut self, target: TargetId) -> bool {
        let rests = self.costs(target).is_some_and(|costs| costs.bits.is_zero());
        if let Some(known) = self.targets.get_mut(&target).filter(|_| rests) {
            known.cleared = self.survey;
        }
        rests
    }

    /// Which pages `/proc/PID/clear_refs` has to clear to clear the shared ones. If all of them take too long, those of
    /// one kind. `None` if it is not worth it.
    fn way(&self, sums: &Sums, longest_hold: Duration) -> Option<Plan> {
        let plan = |refs, entries: u64, bits, left| {
            let walked = entries * PAGE_SIZE;
            let (mappings, hold) = (sums.mappings, self.hold_rate.seconds(walked, sums.mappings));
            Plan { refs, walked, mappings, hold: Duration::from_secs_f64(hold), bits, left }
        };
        let (private, files) = (sums.entries - sums.file_entries, sums.file_entries);
        let private = || plan(Refs::Anonymous, private, sums.accessed - sums.file_accessed, sums.file_shared);
        let files = || plan(Refs::Mapped, files, sums.file_accessed, sums.private_shared);
        let is_much = self.mode == SharedMemory::Always || sums.private_shared * LEAST_PRIVATE >= sums.present;
        match (sums.private_shared > 0 && is_much, sums.file_shared > 0) {
            (true, true) => {
                let all = plan(Refs::All, sums.entries, sums.accessed, 0);
                let fits = |plan: &Plan| self.mode != SharedMemory::Auto || plan.hold <= longest_hold;
                let mut plans = [all, private(), files()];
                plans.sort_by_key(|plan| plan.left);
                Some(plans.into_iter().find(fits).unwrap_or(all))
            }
            (true, false) => Some(private()),
            (false, true) => Some(Plan { left: 0, ..files() }),
            (false, false) => None,
        }
    }

    /// Leaves the target out of this survey if its page faults would wait for too long, by what the survey has read of
    /// it. Returns whether it does.
    pub(super) fn waits_too_long(&mut self, target: TargetId) -> bool {
        let Some(known) = self.targets.get(&target).filter(|_| self.mode == SharedMemory::Auto) else { return false };
        let (hold, left) = (known.costs.hold, LeftOut::of(&known.sums));
        if known.aged == self.survey || hold <= known.longest_hold(self.limits.longest_hold) {
            return false;
        }
        self.leave_out_for(target, left, hold);
        true
    }

    /// Whether `/proc/PID/clear_refs` only has to walk the files and the shared memory of the target, by what the
    /// survey has read of it.
    pub(super) fn walks_files_only(&self, target: TargetId) -> bool {
        let known = self.targets.get(&target);
        let longest = |known: &TargetSharing| known.longest_hold(self.limits.longest_hold);
        known.and_then(|known| self.way(&known.sums, longest(known))).is_some_and(|plan| plan.refs == Refs::Mapped)
    }

    /// Leaves these bytes out because page faults would wait for so long.
    fn leave_out_for(&mut self, target: TargetId, left: LeftOut, hold: Duration) -> Decision {
        let reason = self.too_long(hold);
        self.leave_out(target, left, reason)
    }

    fn too_long(&mut self, hold: Duration) -> SharedReason {
        self.too_long = true;
        SharedReason::LongHold { estimate: hold, longest: self.limits.longest_hold }
    }

    /// Decides about the shared pages of `target`, whose pages are `blocks`. If its cgroup was aged in this survey,
    /// only the pages that this has left count.
    pub(super) fn decide(&mut self, target: &BpfTarget, blocks: &[BlockPages]) -> Decision {
        let Some(known) = self.targets.get(&target.id) else { return Decision::Wait };
        let was_aged = known.aged == self.survey;
        let sums = Sums::of(target, &known.blocks, |sharing| sharing.rest(was_aged), blocks);
        let (left, longest_hold) = (LeftOut::of(&sums), known.longest_hold(self.limits.longest_hold));
        let Some(plan) = self.way(&sums, longest_hold) else {
            return self.leave_out(target.id, left, SharedReason::SmallPart);
        };
        let hold = plan.hold;
        let Some(known) = self.targets.get_mut(&target.id) else { return Decision::Wait };
        (known.name, known.hold) = (sums.name, hold);
        match self.mode {
            SharedMemory::Always => return Decision::Clear(plan),
            SharedMemory::Never => return self.leave_out(target.id, left, SharedReason::Never),
            SharedMemory::Auto => {}
        }
        if hold > longest_hold {
            return self.leave_out_for(target.id, left, hold);
        }
        if plan.left > 0 {
            let hold = self.hold_rate.seconds(sums.entries * PAGE_SIZE, sums.mappings);
            let reason = self.too_long(Duration::from_secs_f64(hold));
            let locked = if plan.refs == Refs::Mapped { left.locked.min(plan.left) } else { 0 };
            self.note_left_out(LeftOut { bytes: plan.left, locked }, reason);
        }
        if self.has_turn(target.id) { Decision::Clear(plan) } else { Decision::Wait }
    }

    /// Whether the target can be cleared in this survey, after those with the same name that have not been cleared for
    /// longer.
    fn has_turn(&self, target: TargetId) -> bool {
        let Some(of) = self.targets.get(&target) else { return false };
        let earlier =
            |known: &&TargetSharing| known.name == of.name && known.cleared < of.cleared && known.has_shared();
        let first: Duration = self.targets.values().filter(earlier).map(|known| known.hold).sum();
        let waited = self.waited.get(&of.name).copied().unwrap_or_default();
        waited + first + of.hold <= self.limits.together
    }

    fn leave_out(&mut self, target: TargetId, left: LeftOut, reason: SharedReason) -> Decision {
        // No other target waits for its turn.
        if let Some(known) = self.targets.get_mut(&target) {
            known.cleared = self.survey;
        }
        self.note_left_out(left, reason);
        Decision::LeaveOut
    }

    fn note_left_out(&mut self, LeftOut { bytes, locked }: LeftOut, reason: SharedReason) {
        let before = self.left_out.unwrap_or(SharedLeftOut { bytes: 0, locked: 0, reason });
        let reason = if bytes <= self.most_left_out { before.reason } else { reason };
        self.most_left_out = self.most_left_out.max(bytes);
        self.left_out = Some(SharedLeftOut { bytes: before.bytes + bytes, locked: before.locked + locked, reason });
    }

    /// Notes that nothing of the target can be cleared.
    pub(super) fn refused(&mut self, target: TargetId, reason: SharedReason) {
        let left = self.targets.get(&target).map_or(LeftOut::default(), |known| LeftOut::of(&known.sums));
        self.leave_out(target, left, reason);
    }

    /// Whether the target may not be cleared yet, because it was cleared a short time ago.
    pub(super) fn is_early(&self, target: TargetId) -> bool {
        let next = self.targets.get(&target).and_then(|known| known.next);
        self.mode == SharedMemory::Auto && next.is_some_and(|next| Instant::now() < next)
    }

    /// Notes that the target was cleared in `took`, and that `bits` accessed bits were set.
    pub(super) fn cleared(&mut self, target: TargetId, plan: Plan, took: Took, bits: u64) {
        self.hold_rate.measured(plan.walked, plan.mappings, took.cpu.as_secs_f64());
        let next = Instant::now() + self.limits.rest_after(took.wall + self.set_again(bits));
        let Some(known) = self.targets.get_mut(&target) else { return };
        known.next = known.next.max(Some(next));
        known.cleared = self.survey;
        *self.waited.entry(Arc::clone(&known.name)).or_default() += plan.hold;
    }

    /// The time that a process takes to set this number of accessed bits again.
    fn set_again(&self, bits: u64) -> Duration {
        self.limits.set_again * u32::try_from(bits).unwrap_or(u32::MAX)
    }
}

impl TargetSharing {
    fn has_shared(&self) -> bool {
        self.blocks.values().any(|block| !block.shared().is_empty())
    }

    /// The longest time for which its page faults may wait, if it is `usual` for those of others.
    fn longest_hold(&self, usual: Duration) -> Duration {
        let twice = usual * 2;
        if self.faults.are_rare(twice) { twice } else { usual }
    }

    /// Forgets which pages no other process maps.
    fn doubt(&mut self) {
        self.blocks.values_mut().for_each(Sharing::doubt);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_joins_may_share_what_was_exclusive() {
        let [old, new] = [1, 2].map(|pid| TargetId::process(pid, Duration::ZERO));
        let mut shared = SharedPages::default();
        shared.begin([old].into_iter());
        shared.learn(old, 0, PageBits::NONE, PageBits::ALL);
        shared.begin([old].into_iter());
        assert_eq!(shared.known(old, 0), PageBits::ALL);
        // The new process is looked at when it joins, before the next survey begins.
        shared.learn(new, 0, PageBits::ALL, PageBits::NONE);
        shared.begin([old, new].into_iter());
        assert_eq!((shared.known(old, 0), shared.known(new, 0)), (PageBits::NONE, PageBits::ALL));
    }

    #[test]
    fn what_a_process_that_has_ended_shared_may_be_exclusive() {
        let [old, child] = [1, 2].map(|pid| TargetId::process(pid, Duration::ZERO));
        let mut shared = SharedPages::default();
        shared.begin([old, child].into_iter());
        shared.learn(old, 0, PageBits::ALL, PageBits::NONE);
        for survey in 0..2 * CHECK {
            shared.begin([old, child].into_iter());
            assert_eq!(shared.at(old, 0), PageBits::ALL, "{survey}");
        }
        shared.keep(|id| *id == old);
        shared.begin([old].into_iter());
        assert_eq!(shared.known(old, 0), PageBits::NONE);
    }

    #[test]
    fn a_process_with_hardly_any_page_faults_may_wait_for_twice_as_long() {
        let target = TargetId::process(1, Duration::ZERO);
        let mut shared = SharedPages { survey: 1, ..SharedPages::default() };
        let (twice, began) = (shared.limits.longest_hold * 2, Instant::now());
        let mut waits_too_long = |faults, hold| {
            let mut known = TargetSharing::default();
            (known.costs.hold, known.hold) = (hold, hold);
            known.faults.counted(began, 0);
            known.faults.counted(began + Duration::from_secs(2), faults);
            shared.targets.insert(target, known);
            shared.waits_too_long(target)
        };
        assert!(!waits_too_long(2, twice));
        assert!(waits_too_long(2, twice + Duration::from_nanos(1)));
        assert!(waits_too_long(1000, twice) && !waits_too_long(1000, twice / 2));
    }

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
        let plan = Plan { refs: Refs::Mapped, walked: 0, mappings: 1, hold, bits: 0, left: 0 };
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
