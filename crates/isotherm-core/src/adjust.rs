//! Adaptive regions adjustment: merges neighbouring regions of equal frequency, splits regions to find new borders,
//! and carries statistics over to other ranges. All functions work on the sorted regions of one target.

use std::time::Duration;

use rand::{Rng, RngExt};

use crate::region::{MergeLimits, is_alike};
use crate::survey::{PageHistory, Stretch};
use crate::{AddrRange, PAGE_SIZE, Region};

/// Merges neighbours that touch, within `limits`.
pub(crate) fn merge(regions: &mut Vec<Region>, limits: MergeLimits) {
    regions.dedup_by(|next, kept| {
        if !kept.continues_in(next, limits) {
            return false;
        }
        let Some(both) = AddrRange::new(kept.range().start(), next.range().end()) else {
            return false;
        };
        if kept.bytes().saturating_add(next.bytes()) > limits.size {
            return false;
        }
        kept.absorb(next, both);
        true
    });
}

/// Splits each region at random page-aligned addresses into `pieces` regions, or fewer if it has fewer pages.
/// `spare` is a buffer whose memory is used again.
pub(crate) fn split(regions: &mut Vec<Region>, pieces: u32, rng: &mut impl Rng, spare: &mut Vec<Region>) {
    spare.clear();
    for region in regions.iter() {
        let mut rest = *region;
        for _ in 1..pieces {
            let Some((piece, after)) = split_randomly(rest.range(), rng) else {
                break;
            };
            spare.push(rest.piece(piece));
            rest = rest.piece(after);
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

/// Which of the regions that are not idle are split.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Splits {
    /// Each of them is split into this many.
    pieces: u32,
    /// The probability that one is split.
    share: f64,
    /// How many more regions there may be.
    room: usize,
}

impl Splits {
    /// Splits all of `count` regions, or a random part of them if there is no room for so many.
    pub(crate) fn new(pieces: u32, count: usize, room: usize) -> Self {
        let wanted = count.max(1) as f64 * f64::from(pieces - 1);
        Self { pieces, share: (room as f64 / wanted).min(1.0), room }
    }

    /// Into how many the next region is split.
    fn next(&mut self, rng: &mut impl Rng) -> u32 {
        let more = self.pieces as usize - 1;
        if more > self.room || !rng.random_bool(self.share) {
            return 1;
        }
        self.room -= more;
        self.pieces
    }
}

/// Splits regions at random present pages, as `splits` says, or into fewer if they have fewer present pages. Idle ones
/// stay whole: their pages were idle in the last survey, and samples have found no access since. `spare` is a buffer
/// whose memory is used again.
pub(crate) fn split_surveyed(
    regions: &mut Vec<Region>,
    history: &PageHistory,
    splits: &mut Splits,
    rng: &mut impl Rng,
    spare: &mut Vec<Region>,
) {
    spare.clear();
    for region in regions.iter() {
        let mut rest = *region;
        let pieces = if region.is_idle() { 1 } else { splits.next(rng) };
        for _ in 1..pieces {
            let present = rest.bytes() / PAGE_SIZE;
            if present < 2 {
                break;
            }
            let cut = history.nth_present(rest.range().start(), rng.random_range(1..present));
            let Some((piece, after)) = cut.and_then(|cut| rest.range().split_at(cut)) else {
                break;
            };
            spare.push(rest.piece(piece).with_pages(history.pages_in(piece)));
            rest = rest.piece(after).with_pages(history.pages_in(after));
        }
        spare.push(rest);
    }
    std::mem::swap(regions, spare);
}

/// The region with another range, and with what the last survey found there.
fn surveyed(region: Region, range: AddrRange, history: &PageHistory) -> Region {
    region.with_range(range).with_pages(history.pages_in(range))
}

/// The regions of `stretches`, which a survey has found. Where memory is in use, parts of `old` regions keep their
/// borders and their statistics, which weigh the less the smaller the part is. In an idle stretch, neighbours become
/// one region, with the means of the old ones, unless samples have found an access since: the survey has read the pages
/// before that.
///
/// A region that was idle and is in use now begins a new age. One that is idle is as old as its pages have been idle.
/// If only a part of an old region is in use, all accesses that samples have found in it were in that part. Idle
/// regions whose ages differ by more than about `ages` stay apart.
pub(crate) fn follow(old: &[Region], stretches: &[Stretch], history: &PageHistory, ages: Duration) -> Vec<Region> {
    let mut regions = Vec::with_capacity(old.len());
    let mut rest = old;
    for stretch in stretches {
        let passed = rest.partition_point(|region| region.range().end() <= stretch.range.start());
        rest = &rest[passed..];
        let mut parts = carry_over(rest, &[stretch.range], std::iter::once);
        for part in &mut parts {
            let whole = part.bytes();
            if !stretch.is_touched() && was_in_use(rest, stretches, part.range()) {
                part.forget_accesses();
            }
            let (pages, idle) = history.pages_and_idle(part.range());
            part.survey(pages, idle.filter(|_| pages.touched == 0), history.interval());
            *part = part.carved_from(whole);
        }
        let mut parts = without_empty(parts, history);
        if !stretch.is_touched() {
            parts.dedup_by(|next, kept| {
                let both = AddrRange::new(kept.range().start(), next.range().end());
                let both = both.filter(|_| kept.is_idle() && next.is_idle() && is_alike(kept.age(), next.age(), ages));
                both.inspect(|both| kept.absorb(next, *both)).is_some()
            });
        }
        regions.extend(parts);
    }
    regions
}

/// Whether a stretch that was accessed has a part of the region among `old` that `part` is a part of.
fn was_in_use(old: &[Region], stretches: &[Stretch], part: AddrRange) -> bool {
    let nth = old.partition_point(|region| region.range().end() <= part.start());
    let Some(whole) = old.get(nth).map(Region::range).filter(|whole| whole.intersection(part).is_some()) else {
        return false;
    };
    let first = stretches.partition_point(|stretch| stretch.range.end() <= whole.start());
    let inside = stretches[first..].iter().take_while(|stretch| stretch.range.start() < whole.end());
    inside.into_iter().any(Stretch::is_touched)
}

/// The same parts of one range, in which each without a present page belongs to the one before, or to the first that
/// has one. So parts that touch still touch, and can be merged.
fn without_empty(parts: Vec<Region>, history: &PageHistory) -> Vec<Region> {
    let mut kept: Vec<Region> = Vec::with_capacity(parts.len());
    for part in parts {
        let before = kept.last_mut().filter(|last| part.bytes() == 0 || last.bytes() == 0);
        let both = before.as_ref().and_then(|last| AddrRange::new(last.range().start(), part.range().end()));
        match (before, both) {
            (Some(last), Some(both)) => {
                let of = if last.bytes() == 0 { part } else { *last };
                *last = surveyed(of, both, history);
            }
            _ => kept.push(part),
        }
    }
    kept.retain(|part| part.bytes() > 0);
    kept
}

/// Splits `range` at page borders into pieces of equal size, of about `piece` bytes each.
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

/// The regions of `areas`. Parts of `old` regions that lie in an area keep their statistics. Space that no old
/// region covers gets new regions; `fill` cuts it into their ranges.
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

/// One region for each of `ranges`. It has the statistics of the first old region that overlaps the range.
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
