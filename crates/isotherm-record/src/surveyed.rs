//! The surveys in the time of a merged snapshot, merged: what they found in blocks on the mean.

use std::collections::HashMap;
use std::time::Duration;

use isotherm_core::survey::{BLOCK_PAGES, TargetSurvey};
use isotherm_core::{AddrRange, Figures, Mapping, Quantity, TargetId};

use crate::blocks::{self, pages, starts};
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

/// The sums of a block.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    start: u64,
    /// Pages × milliseconds.
    pages: Figures<u64>,
    /// When it was accessed last, by the last survey that has it.
    used_cs: i32,
    mean_before_cs: Option<i32>,
}

impl Sums {
    fn of(start: u64, block: &columns::Block, ms: u64) -> Self {
        let pages = pages(block).map(|pages| u64::from(pages) * ms);
        Self { start, pages, used_cs: block.used_cs, mean_before_cs: block.mean_before_cs }
    }

    /// Adds what a later survey found in the same block.
    fn add(&mut self, later: &Self) {
        let mean_before_cs = later.mean_before_cs.or(self.mean_before_cs);
        *self = Self { pages: self.pages + later.pages, mean_before_cs, ..*later };
    }
}

impl Surveyed {
    /// Takes in a survey of a target. The first one of a run does not tell when memory was accessed.
    pub(crate) fn add(&mut self, target: &TargetSurvey, survey: &columns::Survey) {
        if survey.interval_ns == 0 {
            return;
        }
        let of = self.0.entry(target.id).or_default();
        of.mappings.clear();
        of.mappings.extend(target.surveyed().map(|(mapping, _)| mapping.range));
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
        // Of means in whole pages, those of all blocks together are right: what rounding leaves out of a block, the
        // next one has more.
        let mut rest = Figures::<f64>::default();
        let column = |block: &Sums| {
            let exact = block.pages.map(|sum| sum as f64 / ms as f64).with(rest, |mean, rest| mean + rest);
            let whole = block.pages.with(exact, |sum, exact| if sum == 0 { 0.0 } else { exact.round().max(0.0) });
            let whole = whole.limited_to(BLOCK_PAGES as f64);
            rest = exact.with(whole, |exact, whole| exact - whole);
            rest.swapped = Quantity::exact(rest.swapped.least());
            let pages = whole.map(|pages| pages as u16);
            (pages.kept() > 0)
                .then(|| blocks::column(blocks::gap(block.start, &mut end), pages, block.used_cs, block.mean_before_cs))
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
