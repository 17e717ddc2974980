//! What holds for every row of a recording: checked before it is written and after it is read.

use isotherm_core::{AddrRange, Mapping, RegionSnapshot};

/// Checks the regions of a row: sorted and disjoint, no count above `samples`.
pub(crate) fn regions(regions: &[RegionSnapshot], samples: u32) -> Result<(), &'static str> {
    if !sorted_and_disjoint(regions.iter().map(|region| region.range)) {
        return Err("regions are out of order or overlap");
    }
    if regions.iter().any(|region| region.nr_accesses > samples) {
        return Err("a region has more accesses than there are samples");
    }
    if regions.iter().any(|region| region.nr_samples > samples) {
        return Err("a region has more samples taken than there are samples");
    }
    if regions.iter().any(|region| region.nr_unobservable > samples) {
        return Err("a region has more unobservable samples than there are samples");
    }
    Ok(())
}

/// Checks the mappings of a row: sorted and disjoint.
pub(crate) fn mappings(mappings: &[Mapping]) -> Result<(), &'static str> {
    if !sorted_and_disjoint(mappings.iter().map(|mapping| mapping.range)) {
        return Err("mappings are out of order or overlap");
    }
    Ok(())
}

fn sorted_and_disjoint(ranges: impl Iterator<Item = AddrRange>) -> bool {
    ranges.is_sorted_by(|a, b| a.end() <= b.start())
}
