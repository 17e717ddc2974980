//! What the probe knows of one target.

use std::sync::Arc;

use isotherm_core::{AddrRange, Mapping, TargetId, mapping_at};

use super::space::Space;
use super::swept::Swept;

/// A target and how it can be watched.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) id: TargetId,
    pub(super) state: State,
    /// What has been swept of its memory.
    pub(super) swept: Swept,
    /// Sorted and disjoint.
    mappings: Arc<[Mapping]>,
    /// Of each mapping, whether the kernel has refused to clear a page of it: because it is locked, or of a device.
    /// Asking again would be as dear as clearing.
    uncleared: Vec<bool>,
}

/// How a target can be watched.
#[derive(Debug)]
pub(super) enum State {
    /// Its page tables can be read.
    Held(Space),
    /// It has ended: nothing of it is accessed.
    Gone,
    /// Its memory may not be looked at: nothing of it can be observed.
    Refused,
}

impl Target {
    /// A target with the mappings that it has now.
    pub(super) fn new(id: TargetId, state: State, mappings: &Arc<[Mapping]>, swept: Swept) -> Self {
        Self { id, state, mappings: Arc::clone(mappings), swept, uncleared: vec![false; mappings.len()] }
    }

    /// Its address space, if that can be read.
    pub(super) fn space(&self) -> Option<&Space> {
        match &self.state {
            State::Held(space) => Some(space),
            State::Gone | State::Refused => None,
        }
    }

    /// Whether its memory may not be looked at.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self.state, State::Refused)
    }

    /// Whether the whole `range` lies in one mapping.
    pub(super) fn maps_as_one(&self, range: AddrRange) -> bool {
        let mapping = mapping_at(&self.mappings, range.start()).map(|index| self.mappings[index].range);
        mapping.is_some_and(|mapping| range.end() <= mapping.end())
    }

    /// Whether the page at `addr` is of a file or of shared memory, and mapped elsewhere, too.
    pub(super) fn is_shared(&self, addr: u64) -> bool {
        let of_a_file = |mapping: &Mapping| mapping.permissions.shared || mapping.name.starts_with('/');
        self.mapping(addr).is_some_and(of_a_file)
            && self.space().and_then(|space| space.is_exclusive(addr)) == Some(false)
    }

    /// Whether the kernel has refused to clear a page of the mapping that `addr` lies in.
    pub(super) fn is_uncleared(&self, addr: u64) -> bool {
        mapping_at(&self.mappings, addr).is_some_and(|index| self.uncleared[index])
    }

    /// Remembers, until the mappings are read again, that the kernel refuses to clear the mapping that `addr` lies in.
    /// False if no mapping is known there.
    pub(super) fn set_uncleared(&mut self, addr: u64) -> bool {
        let index = mapping_at(&self.mappings, addr);
        if let Some(index) = index {
            self.uncleared[index] = true;
        }
        index.is_some()
    }

    /// The mapping that `addr` lies in.
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
    fn a_refusal_holds_for_its_mapping_only() {
        let mut target = target(&[(0x1000, 0x5000), (0x5000, 0x9000)]);
        assert!(target.set_uncleared(0x6000));
        assert!(!target.set_uncleared(0xf000));
        assert!(target.is_uncleared(0x5000) && target.is_uncleared(0x8000));
        assert!(!target.is_uncleared(0x4000) && !target.is_uncleared(0x9000));
    }
}
