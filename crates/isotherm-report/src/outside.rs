//! Mapped memory that no region covers: nothing of it was in memory at the last survey.

use crate::bytes::Bytes;
use std::sync::Arc;

use isotherm_core::survey::{MappingSums, TargetSurvey};
use isotherm_core::{AddrRange, Mapping, PAGE_SIZE, TargetId, is_memory};
use schemars::JsonSchema;
use serde::Serialize;

use crate::extent::shown_name;
use crate::source::{Visit, pieces as pieces_of_row};
use crate::surveys::{Piece, part, pieces};

/// What of a target no region covers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Outside {
    /// Bytes in swap. `None` if the survey does not know.
    pub swapped_bytes: Bytes,
    /// Bytes that are neither in memory nor known to be in swap.
    pub absent_bytes: u64,
    /// The ranges that have bytes in swap, sorted.
    pub swapped: Vec<SwappedRange>,
}

/// A part of a mapping that no region covers and that has bytes in swap.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SwappedRange {
    /// The first address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// Bytes in swap. Surveys know them by mapping and by block of 2 MiB; within these, they are estimated.
    pub swapped_bytes: u64,
    /// The other bytes.
    pub absent_bytes: u64,
    /// The name of the mapping.
    pub name: Arc<str>,
}

/// What a survey found in swap.
struct Swapped<'a> {
    survey: &'a TargetSurvey,
    /// The pieces that have a part in swap.
    pieces: Vec<Piece<'a>>,
}

impl Swapped<'_> {
    /// The bytes in swap that the sums by mapping have in a range.
    fn bytes(&self, range: AddrRange) -> u64 {
        let TargetSurvey { by_mapping, mappings, .. } = self.survey;
        let range_of = |found: &MappingSums| found.mapping.of(mappings).range;
        let first = by_mapping.partition_point(|found| range_of(found).end() <= range.start());
        let inside = by_mapping[first..].iter().take_while(|found| range_of(found).start() < range.end());
        inside.map(|found| part(&found.sums, range_of(found), Some(range)).figures.swapped.least()).sum()
    }

    /// About how much of a range is in swap, by the blocks.
    fn weight(&self, range: AddrRange) -> f64 {
        let first = self.pieces.partition_point(|piece| piece.range.end() <= range.start());
        let inside = self.pieces[first..]
            .iter()
            .map_while(|piece| Some(piece.shares.swapped.least() * piece.range.intersection(range)?.size() as f64));
        inside.sum()
    }
}

impl Outside {
    /// What no region of a row covers, by the last survey before it. `None` for physical memory.
    pub(crate) fn of(visit: &Visit<'_>, survey: &TargetSurvey) -> Option<Self> {
        let row = &visit.row;
        if row.target.id == TargetId::PhysicalMemory {
            return None;
        }
        let swapped = survey.total().figures.swapped;
        let pieces = || pieces(survey, None).filter(|of| of.shares.swapped.least() > 0.0);
        let pieces = (swapped.least() > 0).then(pieces).into_iter().flatten().collect();
        let found = Swapped { survey, pieces };
        // What is known of all mappings is known of what no region covers.
        let mut outside = Self { swapped_bytes: Bytes(swapped.map(|_| 0)), ..Self::default() };
        let mut covered = pieces_of_row(row, None).peekable();
        let mappings = &row.target.mappings;
        let has_pages = |mapping: &Mapping| is_memory(mappings, mapping) || found.bytes(mapping.range) > 0;
        for mapping in mappings.iter().filter(|mapping| has_pages(mapping)) {
            let (mut rest, mut from, mut in_regions) = (vec![], mapping.range.start(), 0.0);
            while let Some(piece) = covered.next_if(|piece| piece.range.start() < mapping.range.end()) {
                let mapped = piece.whole.max(1);
                let swapped = piece.region.pages.map_or(0, |pages| pages.swapped.least());
                in_regions += swapped as f64 * piece.range.size() as f64 / mapped as f64;
                rest.extend(AddrRange::new(from, piece.range.start()));
                from = piece.range.end();
            }
            rest.extend(AddrRange::new(from, mapping.range.end()));
            let swapped = (found.bytes(mapping.range) as f64 - in_regions).max(0.0);
            outside.add(visit, mapping, &rest, &found, swapped);
        }
        Some(outside)
    }

    /// Adds the parts `rest` of a mapping with `swapped` bytes in swap.
    fn add(&mut self, visit: &Visit<'_>, mapping: &Mapping, rest: &[AddrRange], found: &Swapped<'_>, swapped: f64) {
        let mut weights: Vec<f64> = rest.iter().map(|range| found.weight(*range)).collect();
        if weights.iter().all(|weight| *weight == 0.0) {
            weights = rest.iter().map(|range| range.size() as f64).collect();
        }
        let all: f64 = weights.iter().sum();
        for (range, weight) in rest.iter().zip(weights) {
            let Some(selected) = visit.clip(*range) else { continue };
            let of_range = swapped * weight / all * selected.size() as f64 / range.size() as f64;
            let pages = (of_range / PAGE_SIZE as f64).round() as u64;
            let swapped_bytes = pages.saturating_mul(PAGE_SIZE).min(selected.size());
            let is_reserved = !is_memory(&visit.row.target.mappings, mapping);
            let absent_bytes = if is_reserved { 0 } else { selected.size() - swapped_bytes };
            self.absent_bytes += absent_bytes;
            if swapped_bytes > 0 {
                self.swapped_bytes = self.swapped_bytes + Bytes::exact(swapped_bytes);
                let (start, end, name) = (selected.start(), selected.end(), shown_name(&mapping.label()).into());
                self.swapped.push(SwappedRange { start, end, swapped_bytes, absent_bytes, name });
            }
        }
    }
}
