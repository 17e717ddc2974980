//! What surveys say of a selection.

use isotherm_core::survey::{BLOCK_SIZE, BlockSums, PageSums, TargetSurvey};
use isotherm_core::{AddrRange, Mapping};

use crate::source::is_memory;

/// The sums over the selected mappings of a target, and their mapped bytes. A mapping that lies in the selected
/// addresses with a part of its own counts in that proportion.
pub(crate) fn selected(target: &TargetSurvey, address: Option<AddrRange>) -> (PageSums, u64) {
    let mut total = PageSums::default();
    for found in &target.by_mapping {
        let Some(mapping) = target.mappings.get(found.mapping as usize) else { continue };
        total.add(&part(&found.sums, mapping.range, address));
    }
    let mapped = target.mappings.iter().filter(|mapping| is_memory(&target.mappings, mapping));
    let size = |range: AddrRange| address.map_or(Some(range), |wanted| wanted.intersection(range));
    (total, mapped.filter_map(|mapping| size(mapping.range)).map(AddrRange::size).sum())
}

/// The mapped and selected parts of the blocks of a target, each with its mapping.
pub(crate) fn mapped_blocks(
    target: &TargetSurvey,
    address: Option<AddrRange>,
) -> impl Iterator<Item = (AddrRange, &Mapping, &BlockSums)> {
    let mappings = &target.mappings;
    target.by_block.iter().flat_map(move |block| {
        let range = AddrRange::new(block.start, block.start.saturating_add(BLOCK_SIZE));
        let first = mappings.partition_point(|mapping| mapping.range.end() <= block.start);
        let of_block = mappings[first..].iter().map_while(move |mapping| {
            let part = range?.intersection(mapping.range)?;
            Some((part, mapping))
        });
        of_block.filter(|(_, mapping)| is_memory(mappings, mapping)).filter_map(move |(part, mapping)| {
            let part = address.map_or(Some(part), |wanted| wanted.intersection(part))?;
            Some((part, mapping, block))
        })
    })
}

/// The part of the sums of a mapping that lies in the selected addresses.
pub(crate) fn part(sums: &PageSums, range: AddrRange, address: Option<AddrRange>) -> PageSums {
    let Some(wanted) = address else { return *sums };
    let inside = wanted.intersection(range).map_or(0, AddrRange::size);
    let of = |bytes: u64| (u128::from(bytes) * u128::from(inside) / u128::from(range.size().max(1))) as u64;
    PageSums {
        present: of(sums.present),
        touched: of(sums.touched),
        unobservable: of(sums.unobservable),
        unknown: of(sums.unknown),
        within: sums.within.map(of),
    }
}
