//! The pages of a recorded target, reconstructed from what its surveys found in regions and blocks.
//!
//! A recording has no single pages. For each region and each block of 2 MiB, it has the numbers of present and of
//! touched pages. The borders of regions are those of the surveys, so most regions are touched as a whole or not at
//! all. If a region was touched in part, its first pages in each block count as the touched ones. So sizes are right,
//! but the addresses within such a region are guessed, and ages are too high if its accessed pages change.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::survey::{BLOCK_SIZE, BlockList, BlockPages, ClearPages, PageBits, PageHistory, TargetSurvey};
use isotherm_core::{AddrRange, Figures, PAGE_SIZE, Snapshot, TargetId, TargetSnapshot};

/// The histories of the pages of all targets.
#[derive(Debug, Default)]
pub(crate) struct RecordedPages {
    histories: Vec<(TargetId, Arc<PageHistory>)>,
}

impl RecordedPages {
    /// Takes in a survey at `time`, and the first snapshot that follows it.
    pub(crate) fn take(&mut self, time: Duration, survey: &[TargetSurvey], snapshot: &Snapshot) {
        let mut histories = Vec::new();
        for target in &snapshot.targets {
            let Some(found) = survey.iter().find(|found| found.id == target.id) else { continue };
            let known = self.histories.iter_mut().find(|(id, _)| *id == target.id);
            let mut history = known.map(|(_, history)| std::mem::take(history)).unwrap_or_default();
            let (blocks, clears) = blocks(target, &found.by_block);
            let pages = Arc::make_mut(&mut history);
            pages.take(&blocks, time);
            pages.cleared(&clears);
            histories.push((target.id, history));
        }
        self.histories = histories;
    }

    /// The histories, for snapshots until the next survey.
    pub(crate) fn histories(&self) -> Vec<(TargetId, Arc<PageHistory>)> {
        self.histories.clone()
    }
}

/// The blocks of a target as a survey would have read them, and the pages of which it knows the state afterwards.
fn blocks(target: &TargetSnapshot, sums: &BlockList) -> (Vec<BlockPages>, Vec<ClearPages>) {
    // How many pages are left to be placed: in each block, and in a region.
    let mut in_block: HashMap<u64, Figures> = sums.iter().map(|sums| (sums.start, sums.pages.map(u64::from))).collect();
    let (mut blocks, mut clears): (Vec<BlockPages>, Vec<ClearPages>) = (Vec::new(), Vec::new());
    let mut region: Option<(AddrRange, Figures)> = None;
    for part in target.mapped_parts() {
        if region.is_none_or(|(range, _)| range != part.region.range) {
            // Touched bytes that are estimated from unknown ones are unknown here.
            let pages = part.region.pages.map(|pages| pages.map(|bytes| bytes / PAGE_SIZE));
            region = pages.map(|left| (part.region.range, left));
        }
        let Some((_, left)) = &mut region else { continue };
        for piece in part.range.pieces(BLOCK_SIZE) {
            let start = piece.start() / BLOCK_SIZE * BLOCK_SIZE;
            let Some(in_block) = in_block.get_mut(&start) else { continue };
            let take = |most: u64, left: &mut u64| {
                let taken = most.min(*left);
                *left -= taken;
                taken as usize
            };
            let present = take(piece.pages().min(in_block.present), &mut left.present);
            in_block.present -= present as u64;
            let touched = take((present as u64).min(in_block.touched), &mut left.touched);
            in_block.touched -= touched as u64;
            let unobservable = take((present - touched) as u64, &mut left.unobservable);
            let unknown = take((present - touched - unobservable) as u64, &mut left.unknown);
            if blocks.last().is_none_or(|last| last.start != start) {
                blocks.push(BlockPages { start, ..BlockPages::default() });
                clears.push(ClearPages { start, ..ClearPages::default() });
            }
            let (Some(block), Some(clear)) = (blocks.last_mut(), clears.last_mut()) else { continue };
            let first = ((piece.start() - start) / PAGE_SIZE) as usize;
            let pages = |from: usize, count: usize| PageBits::of(first + from..first + from + count);
            block.present |= pages(0, present);
            block.accessed |= pages(0, touched) | pages(touched + unobservable, unknown);
            block.unobservable |= pages(touched, unobservable);
            clear.pages |=
                pages(0, touched) | pages(touched + unobservable + unknown, present - touched - unobservable - unknown);
        }
    }
    blocks.retain(|block| !block.present.is_empty());
    (blocks, clears)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use isotherm_core::survey::BlockSums;
    use isotherm_core::{Mapping, RegionSnapshot};

    use super::*;

    const ID: TargetId = TargetId::process(7, Duration::ZERO);

    fn pages(start: u64, end: u64) -> AddrRange {
        AddrRange::new(start * PAGE_SIZE, end * PAGE_SIZE).unwrap()
    }

    /// A snapshot of 4 MiB with regions of these pages, and pages that are present and touched; and its survey.
    fn recorded(regions: &[(u64, u64, u64, u64)]) -> (Snapshot, TargetSurvey) {
        let mappings: Arc<[Mapping]> = Arc::new([Mapping::anonymous(pages(0, 1024))]);
        let mut blocks = [0, BLOCK_SIZE].map(|start| BlockSums { start, ..BlockSums::default() });
        let region = |&(start, end, present, touched): &(u64, u64, u64, u64)| {
            let block = &mut blocks[(start / 512) as usize];
            block.pages += Figures { present: present as u16, touched: touched as u16, ..Figures::default() };
            let found = Figures { present, touched, ..Figures::unknown() };
            let found = found.map(|pages| pages * PAGE_SIZE);
            RegionSnapshot { nr_samples: 20, pages: Some(found), ..RegionSnapshot::new(pages(start, end)) }
        };
        let regions = regions.iter().map(region).collect();
        let target = TargetSnapshot { id: ID, regions, mappings: Arc::clone(&mappings) };
        let by_block = blocks.to_vec().into();
        let survey = TargetSurvey { id: ID, mappings, by_mapping: Vec::new(), by_block, by_node: Vec::new() };
        (Snapshot { targets: vec![target], ..Snapshot::default() }, survey)
    }

    /// What is idle for `age` after a survey each second of this.
    fn idle(surveys: &[(Snapshot, TargetSurvey)], age: u64) -> Vec<AddrRange> {
        let mut recorded = RecordedPages::default();
        for (second, (snapshot, survey)) in (1..).zip(surveys) {
            recorded.take(Duration::from_secs(second), std::slice::from_ref(survey), snapshot);
        }
        let idle = recorded.histories()[0].1.idle_ranges(pages(0, 1024), Duration::from_secs(age));
        idle.into_iter().map(|(range, _)| range).collect()
    }

    #[test]
    fn memory_that_was_touched_is_not_idle() {
        let same = vec![recorded(&[(0, 100, 100, 100), (100, 512, 412, 0), (600, 700, 100, 0)]); 5];
        assert_eq!(idle(&same, 3), [pages(100, 512), pages(600, 700)]);
        let mut touched_once = same.clone();
        touched_once[3] = recorded(&[(0, 100, 100, 100), (100, 512, 412, 412), (600, 700, 100, 0)]);
        assert_eq!(idle(&touched_once, 3), [pages(600, 700)]);
    }

    #[test]
    fn what_is_absent_does_not_count() {
        assert_eq!(idle(&vec![recorded(&[(0, 512, 30, 10)]); 5], 3), [pages(10, 30)]);
    }

    #[test]
    fn sizes_are_those_of_the_recording() {
        for seed in 0..200_u64 {
            let of = |nth: u64| ((nth * 37 + seed * 11) % 65, (nth * 23 + seed * 5) % 65);
            let regions: Vec<_> =
                (0..16).map(|nth| (nth * 64, (nth + 1) * 64, of(nth).0, of(nth).1.min(of(nth).0))).collect();
            let (snapshot, survey) = recorded(&regions);
            let mut made = RecordedPages::default();
            (1..3).for_each(|second| made.take(Duration::from_secs(second), std::slice::from_ref(&survey), &snapshot));
            let histories = made.histories();
            for region in &snapshot.targets[0].regions {
                assert_eq!(Some(histories[0].1.pages_in(region.range)), region.pages, "{seed}");
            }
        }
    }
}
