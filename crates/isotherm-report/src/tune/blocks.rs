//! How densely the blocks of 2 MiB of anonymous memory are accessed.

use std::time::Duration;

use isotherm_core::survey::{BLOCK_PAGES, BLOCK_SIZE};
use isotherm_core::{Mapping, PAGE_SIZE};
use schemars::JsonSchema;
use serde::Serialize;

use crate::ReportError;
use crate::source::{self, Selection, Source};
use crate::surveys::pieces;

/// A block is accessed densely if at least this many of its 512 pages are accessed within a survey interval: half. A
/// huge page then holds at least as much memory that is used as memory that is not. The action `hugepage` chooses
/// blocks in the same way, by the pages that are present.
pub(super) const DENSE_PAGES: u16 = BLOCK_PAGES as u16 / 2;

/// Bytes of private anonymous memory in whole blocks of 2 MiB, which huge pages could back: means over the surveys of
/// the second half of the time, weighted with their intervals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Blocks {
    /// Present bytes in all such blocks.
    pub present_bytes: u64,
    /// Present bytes in blocks with at least half of their pages accessed within a survey interval.
    pub dense_bytes: u64,
    /// Bytes that huge pages would add to these blocks: their pages that are absent.
    pub dense_absent_bytes: u64,
    /// Present bytes in blocks with fewer accessed pages.
    pub sparse_bytes: u64,
    /// The accessed part of these.
    pub sparse_touched_bytes: u64,
    /// Bytes that huge pages would add to these blocks.
    pub sparse_absent_bytes: u64,
    /// Present bytes in blocks that are not accessed within a survey interval.
    pub idle_bytes: u64,
}

/// The blocks of a selection. `None` if it has no survey that tells what was accessed since the one before.
pub(super) fn find(source: &dyn Source, selection: &Selection) -> Result<Option<Blocks>, ReportError> {
    let mut found: Vec<(Duration, Duration, Blocks)> = vec![];
    for record in source::surveys(source, true)? {
        let survey = record?.survey;
        if !selection.holds_time(survey.time) || survey.interval.is_zero() {
            continue;
        }
        let mut sums = Blocks::default();
        let mut present = false;
        let chosen = survey.targets.iter().filter(|target| selection.holds_target(target.id));
        for target in chosen.filter(|target| !target.by_block.is_empty()) {
            present = true;
            // A huge page lies in one mapping.
            let whole = pieces(target, selection.address)
                .filter(|piece| piece.range.size() == BLOCK_SIZE && may_be_huge(piece.mapping));
            for piece in whole {
                let pages = piece.shares.map(|share| (share * BLOCK_PAGES as f64).round() as u16);
                sums.add(pages.present, pages.touched);
            }
        }
        if present {
            found.push((survey.time, survey.interval, sums));
        }
    }
    let (Some(&(first, ..)), Some(&(last, ..))) = (found.first(), found.last()) else { return Ok(None) };
    // At first much is unknown.
    let middle = first + last.saturating_sub(first) / 2;
    found.retain(|(time, ..)| *time >= middle);
    let all: u128 = found.iter().map(|(_, interval, _)| interval.as_nanos()).sum();
    let mean = |of: fn(&Blocks) -> u64| {
        let sum: u128 = found.iter().map(|(_, interval, sums)| u128::from(of(sums)) * interval.as_nanos()).sum();
        (sum / all.max(1)) as u64 / PAGE_SIZE * PAGE_SIZE
    };
    Ok(Some(Blocks {
        present_bytes: mean(|sums| sums.present_bytes),
        dense_bytes: mean(|sums| sums.dense_bytes),
        dense_absent_bytes: mean(|sums| sums.dense_absent_bytes),
        sparse_bytes: mean(|sums| sums.sparse_bytes),
        sparse_touched_bytes: mean(|sums| sums.sparse_touched_bytes),
        sparse_absent_bytes: mean(|sums| sums.sparse_absent_bytes),
        idle_bytes: mean(|sums| sums.idle_bytes),
    }))
}

impl Blocks {
    /// Adds a block with these numbers of present and touched pages.
    fn add(&mut self, present: u16, touched: u16) {
        let bytes = u64::from(present) * PAGE_SIZE;
        let absent = BLOCK_SIZE.saturating_sub(bytes);
        self.present_bytes += bytes;
        match touched {
            0 => self.idle_bytes += bytes,
            DENSE_PAGES.. => {
                self.dense_bytes += bytes;
                self.dense_absent_bytes += absent;
            }
            _ => {
                self.sparse_bytes += bytes;
                self.sparse_touched_bytes += u64::from(touched) * PAGE_SIZE;
                self.sparse_absent_bytes += absent;
            }
        }
    }
}

/// Whether huge pages of anonymous memory can back a mapping.
fn may_be_huge(mapping: &Mapping) -> bool {
    let named = ["[heap]", "[anon"].iter().any(|start| mapping.name.starts_with(start));
    (mapping.name.is_empty() || named) && !mapping.permissions.shared
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_dense_from_half_of_its_pages_on() {
        let mut blocks = Blocks::default();
        [(512, 0), (512, 255), (300, 256), (512, 512)].into_iter().for_each(|(p, t)| blocks.add(p, t));
        let pages = |bytes: u64| bytes / PAGE_SIZE;
        assert_eq!((pages(blocks.dense_bytes), pages(blocks.dense_absent_bytes)), (812, 212));
        assert_eq!((pages(blocks.sparse_bytes), pages(blocks.sparse_touched_bytes)), (512, 255));
        assert_eq!((pages(blocks.idle_bytes), pages(blocks.present_bytes)), (512, 1836));
    }
}
