//! Clears the pages of all targets of a cgroup by the multi-generational LRU, where that is better than
//! `/proc/PID/clear_refs`.
//!
//! Aging clears the accessed bits of all pages of all processes of the cgroup, private ones too. So all targets of the
//! cgroup are read directly before it and again after it. A page that was accessed before and is clear afterwards was
//! cleared. A page that was accessed after the survey has read the target counts as accessed in the next survey. An
//! access between the first of these reads and the walk of the kernel is lost, unless the page was accessed already.
//! This time is a part of the time of the survey, which is a small share of the interval between surveys.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::survey::{BLOCK_SIZE, BlockPages, ClearPages, PageBits, SurveyPart};
use isotherm_core::{AddrRange, TargetId};

use super::done::{Done, merge};
use super::folios::Zeros;
use super::groups::Groups;
use super::read::Reader;
use super::shared::{CHECK, SharedPages};
use crate::bpf::BpfError;
use crate::bpf::program::{PageTables, Program};
use crate::bpf::shared_memory::SharedMemory;
use crate::bpf::target::BpfTarget;

/// Aging is not tried again for so many surveys if it has left most of the shared pages.
const FRUITLESS: u64 = 64;

/// Shared pages that aging has left are not cleared in another way if they are at most one of so many. Some of them are
/// in use all the time, and were accessed again directly after the aging.
const LITTLE_LEFT: u64 = 64;

/// Whether the cgroup of a target was aged in this survey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aged {
    /// It is not to be aged.
    No,
    /// It is to be aged, but was aged a short time ago.
    Early,
    /// It was aged.
    Yes {
        /// Whether more than a small part of the shared pages of the target that were accessed has been left.
        much_left: bool,
    },
}

/// What aging has done with a target in this survey.
#[derive(Debug, Default)]
struct OfTarget {
    /// The accessed pages that the survey has read.
    seen: Vec<(u64, PageBits)>,
    done: Vec<Done>,
    much_left: bool,
}

/// Ages the cgroups of targets, each at most once in a survey.
#[derive(Debug, Default)]
pub(super) struct Aging {
    groups: Groups,
    survey: u64,
    /// For each cgroup, whether it was aged in this survey.
    results: HashMap<Arc<str>, Aged>,
    /// For each cgroup in which aging has left most of the shared pages, the survey in which it is tried again.
    fruitless: HashMap<Arc<str>, u64>,
    targets: HashMap<TargetId, OfTarget>,
    agings: u64,
}

/// What aging has done with one or several targets.
#[derive(Debug, Default)]
struct Sums {
    /// The number of shared pages that were accessed.
    shared: u64,
    /// The number of those that are still accessed, and that no aging was seen to clear.
    left: u64,
    /// The number of accessed bits that were cleared.
    bits: u64,
}

impl Aging {
    /// Begins a survey of `targets`, which are sorted by ID.
    pub(super) fn begin(&mut self, targets: &[BpfTarget], mode: SharedMemory) {
        self.survey += 1;
        self.results.clear();
        let known = self.targets.len();
        self.targets.retain(|id, _| targets.binary_search_by_key(id, |target| target.id).is_ok());
        let changed = self.targets.len() != known || targets.iter().any(|of| !self.targets.contains_key(&of.id));
        for target in targets {
            let of = self.targets.entry(target.id).or_default();
            of.seen.clear();
            of.done.clear();
        }
        if mode == SharedMemory::Never {
            self.groups = Groups::default();
        } else if changed || self.survey % CHECK == 1 {
            self.groups = Groups::find(Path::new("/"), targets.iter().map(|target| target.id));
        }
    }

    /// Takes in what the survey has read, from the address `from` on.
    pub(super) fn seen(&mut self, target: TargetId, from: u64, blocks: &[BlockPages]) {
        if self.groups.of(target).is_some()
            && let Some(of) = self.targets.get_mut(&target)
        {
            of.seen.retain(|(start, _)| *start < from);
            of.seen.extend(blocks.iter().map(|block| (block.start, block.accessed)));
        }
    }

    /// Ages the cgroup of the target with this index, unless that was done in this survey, if this is better than
    /// `/proc/PID/clear_refs`. Returns the number of accessed bits of all targets of the cgroup that were cleared.
    pub(super) fn age(
        &mut self,
        (program, tables): (&mut Program, &PageTables),
        (reader, zeros): (&mut Reader, &Zeros),
        shared: &mut SharedPages,
        (targets, index): (&mut [BpfTarget], usize),
    ) -> Result<u64, BpfError> {
        let Some(path) = self.groups.of(targets[index].id).cloned() else { return Ok(0) };
        if self.results.contains_key(&path) {
            return Ok(0);
        }
        let mut members: Vec<usize> = self.groups.members(&path).filter_map(|id| position(targets, id)).collect();
        members.sort_unstable();
        let ids = || members.iter().map(|&index| targets[index].id);
        let tried = self.fruitless.get(&path).is_none_or(|&again| again <= self.survey);
        let allowed = shared.mode == SharedMemory::Always || self.groups.are_mostly_targets(&path);
        let result = match () {
            () if !(tried && allowed && is_better(shared, ids())) => Aged::No,
            () if ids().any(|id| shared.is_early(id)) => Aged::Early,
            () => Aged::Yes { much_left: false },
        };
        self.results.insert(Arc::clone(&path), result);
        if !matches!(result, Aged::Yes { .. }) {
            return Ok(0);
        }
        let mut read = |targets: &mut [BpfTarget]| -> Result<Vec<Vec<BlockPages>>, BpfError> {
            let mut all = Vec::with_capacity(members.len());
            for &index in &members {
                // What sampling has cleared says nothing about the accessed bits now.
                let sampled = std::mem::take(&mut targets[index].sampled);
                let mut blocks = Vec::new();
                let done = reader.read((program, tables), &targets[index], SurveyPart::ALL, zeros, &mut blocks);
                targets[index].sampled = sampled;
                done?;
                all.push(blocks);
            }
            Ok(all)
        };
        let before = read(targets)?;
        if !self.groups.age(&path) {
            self.results.insert(path, Aged::No);
            return Ok(0);
        }
        let after = read(targets)?;
        self.agings += 1;

        // All targets of the cgroup are aged together, when the one with the most work may be.
        let most = before.iter().map(|blocks| blocks.iter().map(|block| bits(block, block.accessed)).sum()).max();
        let next = shared.next_after(most.unwrap_or(0));
        let mut sums = Sums::default();
        for ((&index, before), after) in members.iter().zip(&before).zip(&after) {
            shared.was_aged(targets[index].id, next);
            let of_target = self.take(shared, &mut targets[index], before, after);
            sums.shared += of_target.shared;
            sums.left += of_target.left;
            sums.bits += of_target.bits;
        }
        if sums.left * 2 > sums.shared {
            self.fruitless.insert(path, self.survey + FRUITLESS);
        }
        Ok(sums.bits)
    }

    /// Whether the cgroup of a target was aged in this survey.
    pub(super) fn result(&self, target: TargetId) -> Aged {
        match self.groups.of(target).and_then(|path| self.results.get(path)) {
            Some(Aged::Yes { .. }) => {
                let much_left = self.targets.get(&target).is_some_and(|of| of.much_left);
                Aged::Yes { much_left }
            }
            Some(&result) => result,
            None => Aged::No,
        }
    }

    /// Removes from `blocks` the pages of a target that aging has cleared in this survey. They need not be cleared
    /// again if they were accessed since.
    pub(super) fn leave_out(&self, target: TargetId, blocks: &mut Vec<ClearPages>) {
        let Some(of) = self.targets.get(&target).filter(|of| !of.done.is_empty()) else { return };
        for block in blocks.iter_mut() {
            if let Ok(index) = of.done.binary_search_by_key(&block.start, |done| done.start) {
                block.pages &= !of.done[index].cleared;
            }
        }
        blocks.retain(|block| !(block.pages | block.unobservable).is_empty());
    }

    /// Adds the pages of a target that aging has cleared in this survey to `blocks`, which stay sorted.
    pub(super) fn finish(&mut self, target: TargetId, blocks: &mut Vec<ClearPages>) {
        if let Some(of) = self.targets.get_mut(&target) {
            merge(&mut of.done, blocks);
        }
    }

    /// How many times a cgroup was aged.
    pub(super) fn agings(&self) -> u64 {
        self.agings
    }

    /// Takes in what aging has cleared of a target.
    fn take(
        &mut self,
        shared: &mut SharedPages,
        target: &mut BpfTarget,
        before: &[BlockPages],
        after: &[BlockPages],
    ) -> Sums {
        let of = self.targets.entry(target.id).or_default();
        let mut sums = Sums::default();
        for block in before {
            let now = after.binary_search_by_key(&block.start, |block| block.start).map(|index| after[index]);
            let Ok(now) = now else { continue };
            let accessed = block.accessed & now.present & !block.unobservable;
            let of_others = shared.at(target.id, block.start) & accessed;
            let left = shared.aged(target.id, block.start, accessed & !now.accessed, accessed & now.accessed);
            // A shared page that aging clears was accessed again if it is accessed now. A private one may be of those
            // that aging leaves.
            let cleared = accessed & !now.accessed | of_others & !left;
            sums.shared += of_others.count() as u64;
            sums.left += left.count() as u64;
            sums.bits += bits(block, cleared);
            let seen = of.seen.binary_search_by_key(&block.start, |seen| seen.0);
            let seen = seen.map_or(PageBits::NONE, |index| of.seen[index].1);
            if let Some(range) = AddrRange::new(block.start, block.start.saturating_add(BLOCK_SIZE)) {
                target.sampled.add_pages(block.start, cleared & !seen, range);
            }
            of.done.push(Done { start: block.start, cleared, left: PageBits::NONE });
        }
        of.much_left = sums.left * LITTLE_LEFT > sums.shared;
        sums
    }
}

/// The number of accessed bits of these pages of a block.
fn bits(block: &BlockPages, pages: PageBits) -> u64 {
    let count = pages.count() as u64;
    if block.huge { count.min(1) } else { count }
}

fn position(targets: &[BpfTarget], id: TargetId) -> Option<usize> {
    targets.binary_search_by_key(&id, |target| target.id).ok()
}

/// Whether aging a cgroup with these targets is better for them than `/proc/PID/clear_refs`, which may not be allowed:
/// whether the process that loses the most time loses less.
fn is_better(shared: &SharedPages, targets: impl Iterator<Item = TargetId>) -> bool {
    let (mut longest, mut together, mut refs, mut aging) = (Duration::ZERO, Duration::ZERO, Duration::ZERO, None);
    for costs in targets.filter_map(|target| shared.costs(target)) {
        longest = longest.max(costs.hold);
        together += costs.hold;
        refs = refs.max(costs.hold + costs.bits);
        aging = aging.max(Some(costs.all_bits));
    }
    let limits = shared.limits;
    let within = longest <= limits.longest_hold && together <= limits.together;
    aging.is_some_and(|aging| aging <= refs || !(within || shared.mode == SharedMemory::Always))
}
