//! What surveys say of a selection.

use std::collections::HashMap;
use std::time::Duration;

use isotherm_core::survey::{BLOCK_PAGES, BLOCK_SIZE, BlockSums, PageSums, SurveySnapshot, TargetSurvey, WINDOWS};
use isotherm_core::{AddrRange, Mapping, TargetId, is_memory};
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
    pub(crate) fn before(&self, row: &Row) -> Option<&TargetSurvey> {
        self.0.get(&row.target.id)
    }
}

/// The sums over the selected mappings of a target, and their mapped bytes. A mapping that lies in the selected
/// addresses with a part of its own counts in that proportion.
pub(crate) fn selected(target: &TargetSurvey, address: Option<AddrRange>) -> (PageSums, u64) {
    let (mut total, mut mapped) = (PageSums::default(), 0);
    for found in &target.by_mapping {
        let Some(mapping) = target.mappings.get(found.mapping as usize) else { continue };
        let found = part(&found.sums, mapping.range, address);
        total.add(&found);
        mapped += if is_memory(&target.mappings, mapping) { 0 } else { kept(&found) };
    }
    let memory = target.mappings.iter().filter(|mapping| is_memory(&target.mappings, mapping));
    let size = |range: AddrRange| address.map_or(Some(range), |wanted| wanted.intersection(range));
    let mapped = mapped + memory.filter_map(|mapping| size(mapping.range)).map(AddrRange::size).sum::<u64>();
    // What is mapped again is neither in memory a second time nor absent.
    (total, mapped.saturating_sub(total.mapped_again))
}

/// What is in memory or in swap: all that counts of space without access permission.
pub(crate) fn kept(sums: &PageSums) -> u64 {
    sums.present.saturating_add(sums.swapped.unwrap_or(0))
}

/// Whether the survey has found a part of a mapping in memory or in swap.
fn has_pages(target: &TargetSurvey, mapping: usize) -> bool {
    target.by_mapping.binary_search_by_key(&mapping, |found| found.mapping as usize).is_ok()
}

/// Memory that a survey describes as a whole: a part of a block, or a mapping if the survey does not know blocks.
pub(crate) struct Piece<'a> {
    pub(crate) range: AddrRange,
    pub(crate) mapping: &'a Mapping,
    /// The share of its bytes that are in memory, 0 to 1.
    pub(crate) present: f64,
    /// The share of its bytes that are in swap, 0 to 1. `None` if the survey does not know.
    pub(crate) swapped: Option<f64>,
    /// The share of the bytes in memory that were accessed since the survey before, 0 to 1.
    pub(crate) touched: f64,
    /// For how long its pages have been idle on the mean; in older recordings, and of a mapping, for how long the page
    /// that was accessed last has been idle, at least.
    pub(crate) idle: Duration,
    /// The share of the bytes in memory that could not be observed, 0 to 1. 0 also if the survey does not tell.
    pub(crate) unobservable: f64,
    /// The share of the bytes in memory whose accesses since the survey before are not known, 0
    /// to 1. 0 also if the survey does not tell.
    pub(crate) unknown: f64,
}

/// The mapped and selected memory of a target that has a part in memory or in swap, in pieces.
pub(crate) fn pieces(target: &TargetSurvey, address: Option<AddrRange>) -> impl Iterator<Item = Piece<'_>> {
    let of_blocks = target.by_block.iter().flat_map(|block| pieces_of_block(block, target));
    let has_blocks = !target.by_block.is_empty();
    let of_mappings = target.by_mapping.iter().filter(move |_| !has_blocks);
    let of_mappings = of_mappings.filter_map(|found| {
        let mapping = target.mappings.get(found.mapping as usize)?;
        let PageSums { present, touched, within, swapped, unobservable, unknown, .. } = found.sums;
        let share = |bytes: u64| bytes as f64 / mapping.range.size() as f64;
        let of_present = |bytes: u64| bytes as f64 / present.max(1) as f64;
        let [touched_share, unobservable, unknown] = [touched, unobservable, unknown].map(of_present);
        let idle = WINDOWS.iter().zip(within).take_while(|(_, bytes)| *bytes == 0).last().map(|(window, _)| *window);
        let idle = idle.filter(|_| touched == 0).unwrap_or_default();
        let (range, present, swapped, touched) = (mapping.range, share(present), swapped.map(share), touched_share);
        Some(Piece { range, mapping, present, swapped, touched, idle, unobservable, unknown })
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
    let BlockSums { start, present, touched, idle, mean_idle, swapped, unobservable, unknown } = block;
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
    let share = move |part: u16| (f64::from(part) / pages.max(1) as f64).min(1.0);
    let of_present = move |part: u16| f64::from(part) / f64::from(present.max(1));
    let [touched, unobservable, unknown] = [touched, unobservable.unwrap_or(0), unknown.unwrap_or(0)].map(of_present);
    memory.map(move |(range, mapping)| {
        let (present, swapped) = (share(present), swapped.map(share));
        Piece { range, mapping, present, swapped, touched, idle, unobservable, unknown }
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
        mapped_again: of(sums.mapped_again),
        swapped: sums.swapped.map(of),
        kinds: sums.kinds.map(of),
        within: sums.within.map(of),
    }
}
