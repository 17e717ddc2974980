//! The surveys in the time of a merged snapshot, merged: what they found in blocks on the mean.

use std::collections::HashMap;
use std::time::Duration;

use isotherm_core::survey::{BLOCK_PAGES, TargetSurvey};
use isotherm_core::{AddrRange, Mapping, TargetId};

use crate::blocks::{gap, starts};
use crate::columns;

/// The surveys of several targets.
#[derive(Debug, Default)]
pub(crate) struct Surveyed(HashMap<TargetId, OfTarget>);

/// The surveys of a target.
#[derive(Debug, Default)]
struct OfTarget {
    /// The time of the last one.
    time_ns: u64,
    /// The time that they cover.
    covered_ns: u64,
    /// The mappings of which the last one found something.
    mappings: Vec<AddrRange>,
    /// Sorted by address.
    blocks: Vec<Sums>,
}

/// The sums of a block: pages × milliseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    start: u64,
    present: u64,
    touched: u64,
    swapped: Option<u64>,
    unobservable: Option<u64>,
    unknown: Option<u64>,
    /// When it was accessed last, by the last survey that has it.
    used_cs: i32,
    mean_before_cs: Option<i32>,
}

impl Sums {
    fn of(start: u64, block: &columns::Block, ms: u64) -> Self {
        let of = |pages: u16| u64::from(pages) * ms;
        Self {
            start,
            present: of(block.present_pages),
            touched: of(block.touched_pages),
            swapped: block.swapped_pages.map(of),
            unobservable: block.unobservable_pages.map(of),
            unknown: block.unknown_pages.map(of),
            used_cs: block.used_cs,
            mean_before_cs: block.mean_before_cs,
        }
    }

    /// Adds what a later survey found in the same block.
    fn add(&mut self, later: &Self) {
        let both = |one: Option<u64>, other: Option<u64>| one.zip(other).map(|(one, other)| one + other);
        *self = Self {
            present: self.present + later.present,
            touched: self.touched + later.touched,
            swapped: both(self.swapped, later.swapped),
            unobservable: both(self.unobservable, later.unobservable),
            unknown: both(self.unknown, later.unknown),
            mean_before_cs: later.mean_before_cs.or(self.mean_before_cs),
            ..*later
        };
    }
}

/// Means in whole pages, of which those of all blocks together are right: what rounding leaves out of a block, the next
/// one has more.
#[derive(Default)]
struct Rounded(f64);

impl Rounded {
    /// At most `most`.
    fn pages(&mut self, sum: u64, ms: u64, most: u16) -> u16 {
        if sum == 0 {
            return 0;
        }
        let exact = sum as f64 / ms as f64 + self.0;
        let pages = exact.round().clamp(0.0, most.into());
        self.0 = exact - pages;
        pages as u16
    }
}

impl Surveyed {
    /// Takes in a survey of a target. The first one of a run does not tell when memory was accessed.
    pub(crate) fn add(&mut self, target: &TargetSurvey, survey: &columns::Survey) {
        if survey.interval_ns == 0 {
            return;
        }
        let of = self.0.entry(target.id).or_default();
        let ranges = target.by_mapping.iter().filter_map(|found| target.mappings.get(found.mapping as usize));
        of.mappings.clear();
        of.mappings.extend(ranges.map(|mapping| mapping.range));
        of.time_ns = survey.time_ns;
        of.covered_ns = of.covered_ns.saturating_add(survey.interval_ns);
        let ms = milliseconds(survey.interval_ns);
        let blocks = starts(&survey.blocks).zip(&survey.blocks);
        of.add(blocks.filter_map(|(start, block)| Some(Sums::of(start?, block, ms))));
    }

    /// What they found in a target, as columns of the row of the target, which has these mappings. `None` if there were
    /// none.
    pub(crate) fn column(&self, target: TargetId, mappings: &[Mapping]) -> Option<columns::MergedSurveys> {
        self.0.get(&target).map(|of| of.column(mappings))
    }
}

/// At least one, so that no survey is without weight.
fn milliseconds(ns: u64) -> u64 {
    (Duration::from_nanos(ns).as_millis() as u64).max(1)
}

impl OfTarget {
    /// Adds blocks, sorted by address.
    fn add(&mut self, blocks: impl Iterator<Item = Sums>) {
        let mut place = 0;
        let mut new = Vec::new();
        for block in blocks {
            // Most surveys find the blocks that the ones before found.
            while self.blocks.get(place).is_some_and(|known| known.start < block.start) {
                place += 1;
            }
            match self.blocks.get_mut(place).filter(|known| known.start == block.start) {
                Some(known) => known.add(&block),
                None => new.push(block),
            }
        }
        if !new.is_empty() {
            self.blocks.append(&mut new);
            self.blocks.sort_by_key(|block| block.start);
        }
    }

    fn column(&self, mappings: &[Mapping]) -> columns::MergedSurveys {
        let ms = milliseconds(self.covered_ns);
        let mut end = 0;
        let [mut present, mut swapped, mut touched, mut unobservable, mut unknown] =
            std::array::from_fn(|_| Rounded::default());
        let column = |block: &Sums| {
            let present_pages = present.pages(block.present, ms, BLOCK_PAGES as u16);
            let absent = BLOCK_PAGES as u16 - present_pages;
            let swapped_pages = block.swapped.map(|sum| swapped.pages(sum, ms, absent));
            if present_pages == 0 && swapped_pages.unwrap_or(0) == 0 {
                return None;
            }
            Some(columns::Block {
                gap_blocks: gap(block.start, &mut end),
                present_pages,
                touched_pages: touched.pages(block.touched, ms, present_pages),
                used_cs: block.used_cs,
                mean_before_cs: block.mean_before_cs,
                swapped_pages,
                unobservable_pages: block.unobservable.map(|sum| unobservable.pages(sum, ms, present_pages)),
                unknown_pages: block.unknown.map(|sum| unknown.pages(sum, ms, present_pages)),
            })
        };
        let blocks = self.blocks.iter().filter_map(column).collect();
        let place = |range: &AddrRange| mappings.binary_search_by_key(&range.start(), |of| of.range.start()).ok();
        columns::MergedSurveys {
            time_ns: self.time_ns,
            interval_ns: self.covered_ns,
            mappings: self.mappings.iter().filter_map(|range| Some(place(range)? as u32)).collect(),
            blocks,
        }
    }
}
