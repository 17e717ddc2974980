//! Ranges cut into pieces, laid end to end, and met with mappings.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use isotherm_core::{
    AddrRange, Mapping, PAGE_SIZE, PackedRanges, RegionSnapshot, TargetId, TargetSnapshot, mapping_at,
};
use proptest::prelude::*;

fn range(start: u64, end: u64) -> AddrRange {
    AddrRange::new(start, end).unwrap()
}

/// Disjoint ranges in ascending order, in whole pages; some touch.
fn ranges() -> impl Strategy<Value = Vec<AddrRange>> {
    prop::collection::vec((0_u64..4, 1_u64..6), 0..12).prop_map(|layout| {
        let mut at = 1;
        let mut ranges = Vec::new();
        for (gap, pages) in layout {
            ranges.push(range((at + gap) * PAGE_SIZE, (at + gap + pages) * PAGE_SIZE));
            at += gap + pages;
        }
        ranges
    })
}

fn target(regions: &[AddrRange], mappings: &[AddrRange]) -> TargetSnapshot {
    let region = |&range| RegionSnapshot::new(range);
    TargetSnapshot {
        id: TargetId::PhysicalMemory,
        regions: regions.iter().map(region).collect(),
        mappings: mappings.iter().copied().map(Mapping::anonymous).collect(),
    }
}

proptest! {
    #[test]
    fn pieces_cover_a_range_and_meet_at_multiples(start in 0_u64..1000, length in 1_u64..5000, size in 1_u64..600) {
        let whole = range(start, start + length);
        let pieces: Vec<_> = whole.pieces(size).collect();
        prop_assert_eq!((pieces[0].start(), pieces[pieces.len() - 1].end()), (whole.start(), whole.end()));
        prop_assert!(pieces.windows(2).all(|pair| pair[0].touches(pair[1]) && pair[1].start() % size == 0));
        prop_assert!(pieces.iter().all(|piece| piece.size() <= size));
    }

    #[test]
    fn what_is_aligned_inside_leaves_less_than_a_multiple_on_each_side(
        start in 0_u64..1000, length in 1_u64..5000, size in 1_u64..600,
    ) {
        let whole = range(start, start + length);
        match whole.aligned_inside(size) {
            Some(inside) => {
                prop_assert!(inside.start().is_multiple_of(size) && inside.end().is_multiple_of(size));
                prop_assert!(inside.start() - whole.start() < size && whole.end() - inside.end() < size);
            }
            None => prop_assert!(whole.pieces(size).all(|piece| piece.size() < size)),
        }
    }

    #[test]
    fn every_page_has_an_offset_and_every_offset_its_page(ranges in ranges()) {
        let packed: PackedRanges = ranges.iter().copied().collect();
        let pages: Vec<u64> = ranges.iter().flat_map(|range| range.page_addresses()).collect();
        prop_assert_eq!(packed.bytes(), pages.len() as u64 * PAGE_SIZE);
        for (index, &page) in pages.iter().enumerate() {
            prop_assert_eq!(packed.offset_of(page), index as u64 * PAGE_SIZE);
            prop_assert_eq!(packed.address_at(index as u64 * PAGE_SIZE), page);
        }
        prop_assert_eq!(packed.address_at(packed.bytes()), ranges.last().map_or(0, |last| last.end()));
        prop_assert_eq!(packed.offset_of(u64::MAX), packed.bytes());
    }

    #[test]
    fn what_lies_between_two_offsets_has_their_distance(ranges in ranges(), from in 0_u64..30, count in 0_u64..30) {
        let packed: PackedRanges = ranges.iter().copied().collect();
        let (from, to) = (from * PAGE_SIZE, (from + count) * PAGE_SIZE);
        let parts: Vec<_> = packed.between(from, to).collect();
        let bytes = to.min(packed.bytes()).saturating_sub(from.min(packed.bytes()));
        prop_assert_eq!(parts.iter().map(|(_, part)| part.size()).sum::<u64>(), bytes);
        for (index, part) in parts {
            prop_assert_eq!(part.intersection(ranges[index]), Some(part));
            prop_assert!(packed.offset_of(part.start()) >= from && packed.offset_of(part.end() - 1) < to);
        }
    }

    #[test]
    fn the_mapped_parts_are_all_pages_of_a_region_that_are_mapped(regions in ranges(), mappings in ranges()) {
        let target = target(&regions, &mappings);
        let mut found = Vec::new();
        for part in target.mapped_parts() {
            prop_assert_eq!(&target.mappings[part.mapping_index], part.mapping);
            prop_assert_eq!(part.mapping.range.intersection(part.region.range), Some(part.range));
            found.extend(part.range.page_addresses());
        }
        let pages = regions.iter().flat_map(|region| region.page_addresses());
        let expected: Vec<u64> = pages.filter(|&page| mappings.iter().any(|mapping| mapping.contains(page))).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn each_region_comes_with_the_mappings_that_have_a_part_of_it(regions in ranges(), mappings in ranges()) {
        let target = target(&regions, &mappings);
        let found: Vec<_> = target.regions_with_mappings().collect();
        prop_assert_eq!(found.len(), regions.len());
        for ((region, with), expected) in found.into_iter().zip(&regions) {
            prop_assert_eq!(region.range, *expected);
            let overlap = mappings.iter().filter(|mapping| mapping.intersection(*expected).is_some());
            prop_assert!(with.iter().map(|mapping| &mapping.range).eq(overlap));
        }
    }

    #[test]
    fn an_address_is_in_the_mapping_that_contains_it(mappings in ranges(), page in 0_u64..60) {
        let mappings: Vec<_> = mappings.into_iter().map(Mapping::anonymous).collect();
        let addr = page * PAGE_SIZE + 5;
        prop_assert_eq!(mapping_at(&mappings, addr), mappings.iter().position(|mapping| mapping.range.contains(addr)));
    }
}

#[test]
fn a_range_at_the_end_of_the_address_space_is_cut_without_overflow() {
    let last = range(u64::MAX - 10, u64::MAX);
    assert_eq!(last.pieces(u64::MAX).collect::<Vec<_>>(), [last]);
    assert_eq!(last.pieces(7).map(AddrRange::size).sum::<u64>(), 10);
    assert_eq!(last.aligned_inside(1 << 20), None);
}
