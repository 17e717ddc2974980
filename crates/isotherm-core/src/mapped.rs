//! Which parts of regions are mapped, and by which mappings.

use std::ops::Range;

use crate::{AddrRange, Mapping, RegionSnapshot, TargetSnapshot};

/// The part of one region that lies in one mapping.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MappedPart<'a> {
    /// Its addresses.
    pub range: AddrRange,
    /// The region.
    pub region: &'a RegionSnapshot,
    /// The mapping.
    pub mapping: &'a Mapping,
    /// The index of the mapping in [`TargetSnapshot::mappings`].
    pub mapping_index: usize,
}

impl TargetSnapshot {
    /// Each region, and the mappings that have a part of it. Takes time in proportion to regions and mappings together.
    pub fn regions_with_mappings(&self) -> impl Iterator<Item = (&RegionSnapshot, &[Mapping])> {
        self.mapped_regions().map(move |(region, places)| (region, &self.mappings[places]))
    }

    /// Each part of a region that lies in one mapping, in the order of addresses.
    pub fn mapped_parts(&self) -> impl Iterator<Item = MappedPart<'_>> {
        self.mapped_regions().flat_map(move |(region, places)| {
            places.filter_map(move |mapping_index| {
                let mapping = &self.mappings[mapping_index];
                let range = mapping.range.intersection(region.range)?;
                Some(MappedPart { range, region, mapping, mapping_index })
            })
        })
    }

    /// Each region, and the places among [`TargetSnapshot::mappings`] of those that have a part of it.
    pub fn mapped_regions(&self) -> impl Iterator<Item = (&RegionSnapshot, Range<usize>)> {
        let mut first = 0;
        self.regions.iter().map(move |region| {
            let rest = &self.mappings[first..];
            first += rest.iter().take_while(|mapping| mapping.range.end() <= region.range.start()).count();
            let rest = &self.mappings[first..];
            let count = rest.iter().take_while(|mapping| mapping.range.start() < region.range.end()).count();
            (region, first..first + count)
        })
    }
}

/// Whether all of a mapping is memory, the absent part of it too. Of space without access permission, such as guard
/// pages and what runtimes reserve, only what is resident is memory. If no mapping has a permission, as in physical
/// memory and imported recordings, permissions are not known.
pub fn is_memory(mappings: &[Mapping], mapping: &Mapping) -> bool {
    mapping.permissions.any() || !mappings.iter().any(|mapping| mapping.permissions.any())
}

/// The index of the mapping that `addr` lies in. `mappings` are sorted and disjoint.
pub fn mapping_at(mappings: &[Mapping], addr: u64) -> Option<usize> {
    let index = mappings.partition_point(|mapping| mapping.range.end() <= addr);
    mappings.get(index)?.range.contains(addr).then_some(index)
}
