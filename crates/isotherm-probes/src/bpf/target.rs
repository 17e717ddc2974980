//! A target of the `bpf` probe.

use std::path::Path;
use std::sync::Arc;

use isotherm_core::survey::Unseen;
use isotherm_core::{AddrRange, Mapping, PAGE_SIZE, TargetId, mapping_at};
use isotherm_kernel::madvise::{Advice, advise};
use isotherm_kernel::pages::Flags;
use isotherm_kernel::scheduling::UrgentTurns;
use rustix::io::Errno;

use super::sampled::Sampled;
use super::space::SpaceHandle;
use super::swept::Swept;
use crate::elsewhere::AccessedElsewhere;

/// A target, and whether it can be watched.
#[derive(Debug)]
pub(super) struct BpfTarget {
    pub(super) id: TargetId,
    pub(super) state: State,
    /// The memory that has been swept.
    pub(super) swept: Swept,
    /// The pages that sampling has cleared since the last survey.
    pub(super) sampled: Sampled,
    /// Sorted and disjoint.
    mappings: Arc<[Mapping]>,
    /// For each mapping, whether `MADV_COLD` clears it. Another attempt would cost as much as a clear.
    clearing: Vec<Clearing>,
    /// What others access without the page tables of the process.
    elsewhere: AccessedElsewhere,
    /// The mark of the threads of the process just before that was found out, if it was at rest.
    rest: Option<u64>,
}

/// Whether `MADV_COLD` clears the pages of a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Clearing {
    /// It does, as far as is known.
    #[default]
    Single,
    /// The kernel refuses it because the memory is locked. `/proc/PID/clear_refs` clears it.
    Locked,
    /// Nothing clears it: memory of hugetlbfs, or of a device.
    Never(Unseen),
}

impl Clearing {
    /// Why the kernel refuses, with EINVAL, to clear a mapping that has a page with these flags.
    pub(super) fn of_refused(flags: Option<Flags>) -> Self {
        // Only the head of a folio says whether it is on a list.
        match flags {
            Some(flags) if flags.is_hugetlb() => Self::Never(Unseen::Hugetlb),
            Some(flags) if flags.is_of_a_user() || flags.is_tail() => Self::Locked,
            Some(_) | None => Self::Never(Unseen::Other),
        }
    }
}

/// Whether a target can be watched.
#[derive(Debug)]
pub(super) enum State {
    /// Its page tables can be read.
    Held(SpaceHandle),
    /// The target has ended. All its memory is idle.
    Gone,
    /// Access to its memory is not permitted, or not possible at the moment. All its memory is unobservable.
    Refused,
}

impl BpfTarget {
    /// A target with its current mappings.
    pub(super) fn new(id: TargetId, state: State, mappings: &Arc<[Mapping]>, swept: Swept) -> Self {
        let (mappings, clearing) = (Arc::clone(mappings), vec![Clearing::default(); mappings.len()]);
        Self {
            id,
            state,
            mappings,
            swept,
            sampled: Sampled::default(),
            clearing,
            elsewhere: AccessedElsewhere::default(),
            rest: None,
        }
    }

    /// The mappings, sorted and disjoint.
    pub(super) fn mappings(&self) -> &Arc<[Mapping]> {
        &self.mappings
    }

    /// Replaces the mappings, if they are not the same.
    pub(super) fn set_mappings(&mut self, mappings: &Arc<[Mapping]>) {
        if !Arc::ptr_eq(&self.mappings, mappings) {
            self.clearing = locked_as_before(self, mappings);
            self.mappings = Arc::clone(mappings);
        }
        self.elsewhere.update(Path::new("/"), self.id, &self.mappings, false);
    }

    /// Finds out what others access without the page tables of the process, if that was not done a short time ago, and
    /// if the process has run since: `rest` is the mark of its threads now, if it is at rest.
    pub(super) fn look_elsewhere(&mut self, rest: Option<u64>) {
        let has_run = rest.is_none() || rest != self.rest;
        if self.elsewhere.update(Path::new("/"), self.id, &self.mappings, has_run) {
            self.rest = rest;
        }
    }

    /// What others access without the page tables of the process.
    pub(super) fn elsewhere(&self) -> &AccessedElsewhere {
        &self.elsewhere
    }

    /// The address space, if its page tables can be read.
    pub(super) fn space(&self) -> Option<&SpaceHandle> {
        match &self.state {
            State::Held(space) => Some(space),
            State::Gone | State::Refused => None,
        }
    }

    /// Takes in that the kernel refused to advise the process, with ESRCH or EPERM. If the process has not ended, its
    /// main thread may have called `pthread_exit`. Then it cannot be cleared, and so not be observed.
    pub(super) fn refuse(&mut self) {
        let ended = self.space().is_some_and(SpaceHandle::has_ended);
        self.state = if ended { State::Gone } else { State::Refused };
    }

    /// Whether access to its memory is not permitted.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self.state, State::Refused)
    }

    /// Whether one mapping contains the whole `range`.
    pub(super) fn maps_as_one(&self, range: AddrRange) -> bool {
        let mapping = mapping_at(&self.mappings, range.start()).map(|index| self.mappings[index].range);
        mapping.is_some_and(|mapping| range.end() <= mapping.end())
    }

    /// Whether the page at `addr` is of a file or of shared memory, and is also mapped elsewhere. To find that out, the
    /// thread has become `urgent`.
    pub(super) fn is_shared(&self, addr: u64, urgent: &mut Option<UrgentTurns>) -> bool {
        let of_a_file = |mapping: &Mapping| mapping.permissions.shared || mapping.name.starts_with('/');
        self.mapping(addr).is_some_and(of_a_file) && {
            urgent.get_or_insert_with(UrgentTurns::begin).give_way();
            self.space().and_then(|space| space.is_exclusive(addr)) == Some(false)
        }
    }

    /// Whether `MADV_COLD` clears the mapping that contains `addr`.
    pub(super) fn clearing_at(&self, addr: u64) -> Clearing {
        mapping_at(&self.mappings, addr).map_or_else(Clearing::default, |index| self.clearing[index])
    }

    /// Whether `MADV_COLD` clears each mapping, by index.
    pub(super) fn clearing(&self) -> &[Clearing] {
        &self.clearing
    }

    /// Records whether `MADV_COLD` clears the mapping that contains `addr`: of a locked mapping until it is gone, of
    /// another one until the next update. Returns false if there is no such mapping.
    pub(super) fn set_clearing(&mut self, addr: u64, clearing: Clearing) -> bool {
        let index = mapping_at(&self.mappings, addr);
        if let Some(index) = index {
            self.clearing[index] = clearing;
        }
        index.is_some()
    }

    /// The ranges whose unobservable pages are so for one reason, sorted and disjoint.
    pub(super) fn unseen(&self) -> Vec<(AddrRange, Unseen)> {
        let mut all = Vec::new();
        for (mapping, clearing) in self.mappings.iter().zip(&self.clearing) {
            let why = match clearing {
                Clearing::Single => None,
                Clearing::Locked => Some(Unseen::Locked),
                Clearing::Never(why) => Some(*why),
            };
            let between = |from, to| AddrRange::new(from, to).zip(why);
            let mut from = mapping.range.start();
            for (range, who) in self.elsewhere.within(mapping.range) {
                all.extend(between(from, range.start()));
                all.push((range, who));
                from = range.end();
            }
            all.extend(between(from, mapping.range.end()));
        }
        all
    }

    /// Finds out which of the locked mappings have been unlocked since.
    pub(super) fn check_locked(&mut self) {
        let State::Held(space) = &self.state else { return };
        let locked = self.clearing.iter_mut().zip(self.mappings.iter());
        for (clearing, mapping) in locked.filter(|(clearing, _)| **clearing == Clearing::Locked) {
            let start = mapping.range.start();
            let page = AddrRange::new(start, start.saturating_add(PAGE_SIZE));
            if advise(space.pidfd(), page, Advice::Cold) != Err(Errno::INVAL) {
                *clearing = Clearing::Single;
            }
        }
    }

    /// The mapping that contains `addr`.
    pub(super) fn mapping(&self, addr: u64) -> Option<&Mapping> {
        mapping_at(&self.mappings, addr).map(|index| &self.mappings[index])
    }
}

/// Which of `mappings` are locked: those that overlap a locked mapping of before.
fn locked_as_before(before: &BpfTarget, mappings: &[Mapping]) -> Vec<Clearing> {
    let known = before.mappings.iter().zip(&before.clearing);
    let mut locked = known.filter(|(_, clearing)| **clearing == Clearing::Locked).peekable();
    let of = |mapping: &Mapping| {
        while locked.next_if(|(known, _)| known.range.end() <= mapping.range.start()).is_some() {}
        let overlaps = locked.peek().is_some_and(|(known, _)| known.range.start() < mapping.range.end());
        if overlaps { Clearing::Locked } else { Clearing::Single }
    };
    mappings.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> AddrRange {
        AddrRange::new(start, end).unwrap()
    }

    fn target(ranges: &[(u64, u64)]) -> BpfTarget {
        let mapping = |&(start, end): &_| Mapping::anonymous(range(start, end));
        BpfTarget::new(TargetId::PhysicalMemory, State::Gone, &ranges.iter().map(mapping).collect(), Swept::default())
    }

    #[test]
    fn a_range_across_two_mappings_is_not_mapped_as_one() {
        let target = target(&[(0x1000, 0x5000), (0x5000, 0x9000), (0xb000, 0xc000)]);
        assert!(target.maps_as_one(range(0x1000, 0x5000)) && target.maps_as_one(range(0x6000, 0x9000)));
        for (start, end) in [(0x4000, 0x6000), (0x8000, 0xa000), (0x9000, 0xa000), (0xb000, 0xd000), (0, 0x2000)] {
            assert!(!target.maps_as_one(range(start, end)));
        }
    }

    #[test]
    fn a_refusal_applies_to_its_mapping_only() {
        let mut target = target(&[(0x1000, 0x5000), (0x5000, 0x9000)]);
        assert!(target.set_clearing(0x6000, Clearing::Never(Unseen::Other)));
        assert!(!target.set_clearing(0xf000, Clearing::Never(Unseen::Other)));
        assert_eq!([0x5000, 0x8000].map(|addr| target.clearing_at(addr)), [Clearing::Never(Unseen::Other); 2]);
        assert_eq!([0x4000, 0x9000].map(|addr| target.clearing_at(addr)), [Clearing::Single; 2]);
    }

    #[test]
    fn a_locked_mapping_stays_locked_when_it_grows_and_others_are_tried_again() {
        let mut before = target(&[(0x1000, 0x5000), (0x5000, 0x9000), (0xa000, 0xb000)]);
        before.set_clearing(0x1000, Clearing::Never(Unseen::Other));
        before.set_clearing(0x5000, Clearing::Locked);
        let after = target(&[(0x1000, 0x5000), (0x5000, 0x9800), (0x9800, 0xb000)]);
        before.set_mappings(after.mappings());
        assert_eq!(before.clearing(), [Clearing::Single, Clearing::Locked, Clearing::Single]);
    }
}
