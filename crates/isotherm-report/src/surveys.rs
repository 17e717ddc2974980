//! What surveys say of a selection.

use std::collections::HashMap;
use std::time::Duration;

use isotherm_core::survey::{BLOCK_PAGES, BLOCK_SIZE, BlockSums, PageSums, SurveySnapshot, TargetSurvey, WINDOWS};
use isotherm_core::{AddrRange, Figures, Mapping, TargetId, is_memory};
use isotherm_record::{Row, SurveyDetail};

use crate::source::{Seen, Visit};

/// How far the surveys go back, as they are taken in in their order.
///
/// A recording that was merged has several first surveys: one for each recorder.
#[derive(Debug, Default)]
pub(crate) struct Reach(Option<Duration>);

impl Reach {
    /// The time from the first survey to this one.
    pub(crate) fn of(&mut self, survey: &SurveySnapshot) -> Duration {
        let first = match self.0 {
            Some(first) if !survey.interval.is_zero() => first,
            _ => survey.time,
        };
        self.0 = Some(first);
        survey.time.saturating_sub(first)
    }
}

/// The last survey before each row of a walk, which has it first.
#[derive(Debug, Default)]
pub(crate) struct LastSurveys(HashMap<TargetId, TargetSurvey>);

impl LastSurveys {
    /// Takes in an event. Returns the row of a selected target, if it is one.
    pub(crate) fn chosen<'e>(&mut self, event: &Seen<'e>) -> Option<&'e Visit<'e>> {
        if let Seen::Survey(record) = event {
            let found = record.survey.targets.iter();
            match record.detail {
                SurveyDetail::Whole => self.0 = found.map(|found| (found.id, found.clone())).collect(),
                SurveyDetail::Bare => {
                    let mut before = std::mem::take(&mut self.0);
                    let mut blocks = |id| before.remove(&id).map(|found| found.by_block).unwrap_or_default();
                    let with_blocks =
                        |found: &TargetSurvey| TargetSurvey { by_block: blocks(found.id), ..found.clone() };
                    self.0 = found.map(with_blocks).map(|found| (found.id, found)).collect();
                }
                SurveyDetail::Merged => found.for_each(|found| {
                    self.0.entry(found.id).and_modify(|last| last.by_block = found.by_block.clone());
                }),
            }
        }
        let Seen::Row(visit) = event else { return None };
        visit.chosen.then_some(*visit)
    }

    /// What the last survey before a row found in its target. A survey at the time of the row came after it. `None` if
    /// there is no survey before.
    pub(crate) fn before(&self, row: &Row<'_>) -> Option<&TargetSurvey> {
        self.0.get(&row.target.id)
    }
}

/// The sums over the selected mappings of a target, and their mapped bytes. A mapping that lies in the selected
/// addresses with a part of its own counts in that proportion.
pub(crate) fn selected(target: &TargetSurvey, address: Option<AddrRange>) -> (PageSums, u64) {
    let (mut total, mut mapped) = (PageSums::default(), 0);
    for (mapping, sums) in target.surveyed() {
        let found = part(sums, mapping.range, address);
        total += found;
        mapped += if is_memory(&target.mappings, mapping) { 0 } else { found.figures.kept() };
    }
    let memory = target.mappings.iter().filter(|mapping| is_memory(&target.mappings, mapping));
    let size = |range: AddrRange| address.map_or(Some(range), |wanted| wanted.intersection(range));
    let mapped = mapped + memory.filter_map(|mapping| size(mapping.range)).map(AddrRange::size).sum::<u64>();
    // What is mapped again is neither in memory a second time nor absent.
    (total, mapped.saturating_sub(total.mapped_again))
}

/// Whether the survey has found a part of a mapping in memory or in swap.
fn has_pages(target: &TargetSurvey, mapping: usize) -> bool {
    target.by_mapping.binary_search_by_key(&mapping, |found| found.mapping.get() as usize).is_ok()
}

/// Memory that a survey describes as a whole: a part of a block, or a mapping if the survey does not know blocks.
pub(crate) struct Piece<'a> {
    pub(crate) range: AddrRange,
    pub(crate) mapping: &'a Mapping,
    /// The shares of its bytes, 0 to 1.
    pub(crate) shares: Figures<f64>,
    /// For how long its pages have been idle on the mean; in older recordings, and of a mapping, for how long the page
    /// that was accessed last has been idle, at least.
    pub(crate) idle: Duration,
}

/// The mapped and selected memory of a target that has a part in memory or in swap, in pieces.
pub(crate) fn pieces(target: &TargetSurvey, address: Option<AddrRange>) -> impl Iterator<Item = Piece<'_>> {
    let of_blocks = target.by_block.iter().flat_map(|block| pieces_of_block(block, target));
    let has_blocks = !target.by_block.is_empty();
    let of_mappings = target.surveyed().filter(move |_| !has_blocks).map(|(mapping, sums)| {
        let PageSums { figures, within, .. } = *sums;
        let idle = WINDOWS.iter().zip(within).take_while(|(_, bytes)| *bytes == 0).last().map(|(window, _)| *window);
        let idle = idle.filter(|_| figures.touched == 0).unwrap_or_default();
        let shares = figures.map(|bytes| bytes as f64 / mapping.range.size() as f64);
        Piece { range: mapping.range, mapping, shares, idle }
    });
    of_blocks.chain(of_mappings).filter_map(move |piece| {
        let range = address.map_or(Some(piece.range), |wanted| wanted.intersection(piece.range))?;
        Some(Piece { range, ..piece })
    })
}

/// The pieces, where those that touch in one mapping are one if they are the `same` in other respects.
pub(crate) fn runs<'a>(
    pieces: impl Iterator<Item = Piece<'a>>,
    same: impl Fn(&Piece<'_>, &Piece<'_>) -> bool,
) -> impl Iterator<Item = Piece<'a>> {
    let mut pieces = pieces.peekable();
    std::iter::from_fn(move || {
        let mut run = pieces.next()?;
        let goes_on = |run: &Piece<'_>, next: &Piece<'_>| {
            run.range.touches(next.range) && std::ptr::eq(run.mapping, next.mapping) && same(run, next)
        };
        while let Some(next) = pieces.next_if(|next| goes_on(&run, next)) {
            run.range = AddrRange::new(run.range.start(), next.range.end()).unwrap_or(run.range);
        }
        Some(run)
    })
}

fn pieces_of_block(block: BlockSums, target: &TargetSurvey) -> impl Iterator<Item = Piece<'_>> {
    let mappings = &*target.mappings;
    let BlockSums { start, pages: found, idle, mean_idle } = block;
    let idle = mean_idle.unwrap_or(idle);
    let range = AddrRange::new(start, start.saturating_add(BLOCK_SIZE));
    let first = mappings.partition_point(|mapping| mapping.range.end() <= start);
    let inside = (first..).zip(&mappings[first..]);
    let inside = inside.map_while(move |(nth, mapping)| Some((nth, range?.intersection(mapping.range)?, mapping)));
    let memory = inside.filter(move |(nth, _, mapping)| is_memory(mappings, mapping) || has_pages(target, *nth));
    let memory = memory.map(|(_, range, mapping)| (range, mapping));
    // Most blocks lie in one mapping, which is memory or has what the block has.
    let is_in_one = range
        .zip(mappings.get(first))
        .is_some_and(|(block, mapping)| mapping.range.start() <= block.start() && block.end() <= mapping.range.end());
    let pages: u64 = if is_in_one { BLOCK_PAGES as u64 } else { memory.clone().map(|(range, _)| range.pages()).sum() };
    let pages = pages.max(found.present.into()).max(1) as f64;
    let shares = found.map(|part| (f64::from(part) / pages).min(1.0));
    memory.map(move |(range, mapping)| Piece { range, mapping, shares, idle })
}

/// The part of the sums of a mapping that lies in the selected addresses.
pub(crate) fn part(sums: &PageSums, range: AddrRange, address: Option<AddrRange>) -> PageSums {
    let Some(wanted) = address else { return *sums };
    let inside = wanted.intersection(range).map_or(0, AddrRange::size);
    let of = |bytes: u64| (u128::from(bytes) * u128::from(inside) / u128::from(range.size().max(1))) as u64;
    sums.map(of)
}
