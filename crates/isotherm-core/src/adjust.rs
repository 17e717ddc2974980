//! Adaptive adjustment: regions of one temperature are merged, and all are split again to find new borders.

use rand::{Rng, RngExt};

use crate::{AddrRange, PAGE_SIZE, Region};

/// When neighbours become one region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Merging {
    /// By how much their counts may differ.
    pub threshold: u32,
    /// How large they may be together, in bytes.
    pub size_limit: u64,
    /// Up to which size, in bytes, being observable or not makes no region of its own: in shared libraries it changes from
    /// page to page, and would eat the budget of regions.
    pub resolution: u64,
}

/// Merges neighbours that touch, as `merging` says. The regions are one target's, sorted.
pub(crate) fn merge(regions: &mut Vec<Region>, merging: Merging) {
    regions.dedup_by(|next, kept| {
        if !kept.continues_in(next, merging.threshold, merging.resolution) {
            return false;
        }
        let Some(both) = AddrRange::new(kept.range().start(), next.range().end()) else {
            return false;
        };
        if both.size() > merging.size_limit {
            return false;
        }
        kept.absorb(next, both);
        true
    });
}

/// Splits each region of two pages and more at random page-aligned points into as many as `pieces`.
/// `spare` lends its memory.
pub(crate) fn split(regions: &mut Vec<Region>, pieces: u32, rng: &mut impl Rng, spare: &mut Vec<Region>) {
    spare.clear();
    for region in regions.iter() {
        let mut rest = *region;
        for _ in 1..pieces {
            let Some((piece, after)) = split_randomly(rest.range(), rng) else {
                break;
            };
            spare.push(rest.with_range(piece));
            rest = rest.with_range(after);
        }
        spare.push(rest);
    }
    std::mem::swap(regions, spare);
}

fn split_randomly(range: AddrRange, rng: &mut impl Rng) -> Option<(AddrRange, AddrRange)> {
    if range.pages() < 2 {
        return None;
    }
    range.split_at(range.start() + PAGE_SIZE * rng.random_range(1..range.pages()))
}

/// Splits `range` into pieces of equal size, of about `piece` bytes, at page borders.
pub(crate) fn split_evenly(range: AddrRange, piece: u64) -> impl Iterator<Item = AddrRange> {
    let pages = range.pages().max(1);
    let count = ((range.size() + piece / 2) / piece.max(1)).clamp(1, pages);
    let border = move |i: u64| {
        if i == count {
            return range.end();
        }
        let page = u128::from(i) * u128::from(pages) / u128::from(count);
        range.start() + page as u64 * PAGE_SIZE
    };
    (0..count).filter_map(move |i| AddrRange::new(border(i), border(i + 1)))
}

/// The regions of `areas`: what `old` says of them is kept, space that no old region covers gets new ones.
///
/// `fill` cuts new space into the ranges of its regions.
pub(crate) fn carry_over<I: Iterator<Item = AddrRange>>(
    old: &[Region],
    areas: &[AddrRange],
    mut fill: impl FnMut(AddrRange) -> I,
) -> Vec<Region> {
    let mut regions = Vec::with_capacity(old.len());
    let mut rest = old;
    for &area in areas {
        let passed = rest.partition_point(|region| region.range().end() <= area.start());
        rest = &rest[passed..];

        let mut covered = area.start();
        for region in rest {
            let Some(kept) = region.range().intersection(area) else {
                break;
            };
            if let Some(new) = AddrRange::new(covered, kept.start()) {
                regions.extend(fill(new).map(Region::new));
            }
            regions.push(region.with_range(kept));
            covered = kept.end();
        }
        if let Some(new) = AddrRange::new(covered, area.end()) {
            regions.extend(fill(new).map(Region::new));
        }
    }
    regions
}

/// One region for each of `ranges`, with the statistics of the first old region that it shares a page with.
pub(crate) fn one_for_each(old: &[Region], ranges: &[AddrRange]) -> Vec<Region> {
    let mut rest = old;
    let regions = ranges.iter().map(|&range| {
        let passed = rest.partition_point(|region| region.range().end() <= range.start());
        rest = &rest[passed..];
        match rest.first() {
            Some(known) if known.range().intersection(range).is_some() => known.with_range(range),
            _ => Region::new(range),
        }
    });
    regions.collect()
}
