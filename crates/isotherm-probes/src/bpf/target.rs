//! A target of the `bpf` probe.

use std::sync::Arc;

use isotherm_core::{AddrRange, Mapping, TargetId, mapping_at};

use super::sampled::Sampled;
use super::space::SpaceHandle;
use super::swept::Swept;

/// A target, and whether it can be watched.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) id: TargetId,
    pub(super) state: State,
    /// The memory that has been swept.
    pub(super) swept: Swept,
    /// The pages that sampling has cleared since the last survey.
    pub(super) sampled: Sampled,
    /// Sorted and disjoint.
    mappings: Arc<[Mapping]>,
    /// For each mapping, whether the kernel refused to clear a page of it, because it is locked or of a device. Another
    /// attempt would cost as much as a clear.
    uncleared: Vec<bool>,
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

impl Target {
    /// A target with its current mappings.
    pub(super) fn new(id: TargetId, state: State, mappings: &Arc<[Mapping]>, swept: Swept) -> Self {
        let (mappings, uncleared) = (Arc::clone(mappings), vec![false; mappings.len()]);
        Self { id, state, mappings, swept, sampled: Sampled::default(), uncleared }
    }

    /// The mappings, sorted and disjoint.
    pub(super) fn mappings(&self) -> &Arc<[Mapping]> {
        &self.mappings
    }

    /// Replaces the mappings, if they are not the same.
    pub(super) fn set_mappings(&mut self, mappings: &Arc<[Mapping]>) {
        if !Arc::ptr_eq(&self.mappings, mappings) {
            self.uncleared = vec![false; mappings.len()];
            self.mappings = Arc::clone(mappings);
        }
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

    /// Whether the page at `addr` is of a file or of shared memory, and is also mapped elsewhere.
    pub(super) fn is_shared(&self, addr: u64) -> bool {
        let of_a_file = |mapping: &Mapping| mapping.permissions.shared || mapping.name.starts_with('/');
        self.mapping(addr).is_some_and(of_a_file)
            && self.space().and_then(|space| space.is_exclusive(addr)) == Some(false)
    }

    /// Whether the kernel refused to clear a page of the mapping that contains `addr`.
    pub(super) fn is_uncleared(&self, addr: u64) -> bool {
        mapping_at(&self.mappings, addr).is_some_and(|index| self.uncleared[index])
    }

    /// The mappings of which the kernel refused to clear a page, by index.
    pub(super) fn uncleared(&self) -> &[bool] {
        &self.uncleared
    }

    /// Records, until the next update, that the kernel refuses to clear the mapping that contains `addr`. Returns false
    /// if there is no such mapping.
    pub(super) fn set_uncleared(&mut self, addr: u64) -> bool {
        let index = mapping_at(&self.mappings, addr);
        if let Some(index) = index {
            self.uncleared[index] = true;
        }
        index.is_some()
    }

    /// The mapping that contains `addr`.
    pub(super) fn mapping(&self, addr: u64) -> Option<&Mapping> {
        mapping_at(&self.mappings, addr).map(|index| &self.mappings[index])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> AddrRange {
        AddrRange::new(start, end).unwrap()
    }

    fn target(ranges: &[(u64, u64)]) -> Target {
        let mapping = |&(start, end): &_| Mapping::anonymous(range(start, end));
        Target::new(TargetId::PhysicalMemory, State::Gone, &ranges.iter().map(mapping).collect(), Swept::default())
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
        assert!(target.set_uncleared(0x6000));
        assert!(!target.set_uncleared(0xf000));
        assert!(target.is_uncleared(0x5000) && target.is_uncleared(0x8000));
        assert!(!target.is_uncleared(0x4000) && !target.is_uncleared(0x9000));
    }
}
