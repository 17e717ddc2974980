//! Counts pages that several targets map once.

use std::collections::HashMap;

use super::sums::Windows;
use super::{BLOCK_PAGES, BlockFrames, PageHistory, PageSums, TotalSums, WINDOWS};
use crate::PAGE_SIZE;

/// The number of page frames whose classes are allocated together: those of 128 MiB.
const CHUNK: usize = 1 << 15;

/// The class of pages that were accessed since the survey before. The classes after it are those of [`Windows`].
const TOUCHED: u8 = 0;

/// The class of pages that were not accessed in any window.
const OLDER: u8 = Windows::MAX_CLASSES as u8 + 1;

/// The class of pages that could not be observed.
const UNOBSERVABLE: u8 = OLDER + 1;

const CLASSES: usize = UNOBSERVABLE as usize + 1;

/// The frame has not been seen.
const UNSEEN: u8 = u8::MAX;

/// Set in addition to the class if more than one page has this frame.
const SHARED: u8 = 0x80;

/// The page frames that were seen, each with the class of the most recent access through any page.
#[derive(Debug)]
pub(crate) struct CountedOnce {
    chunks: HashMap<u64, Box<[u8; CHUNK]>>,
    /// Pages with a frame that was seen before, by the less recent of the two classes.
    again: [u64; CLASSES],
    /// Frames that were seen more than once.
    shared: u64,
    /// For each class of [`Windows`], the part of its pages that each window holds.
    parts: Vec<[f64; WINDOWS.len()]>,
}

impl Default for CountedOnce {
    fn default() -> Self {
        Self { chunks: HashMap::new(), again: [0; CLASSES], shared: 0, parts: Vec::new() }
    }
}

impl CountedOnce {
    /// Adds the pages of a block of a target with this `history`.
    pub(crate) fn add(&mut self, history: &PageHistory, windows: &Windows, found: &BlockFrames<'_>) {
        // A target that began later has the same classes as the others, without the oldest.
        if windows.parts().len() > self.parts.len() {
            self.parts = windows.parts().to_vec();
        }
        let Some(block) = history.block(found.start) else { return };
        let mut last: Option<(u64, &mut [u8; CHUNK])> = None;
        for page in (found.pages & block.present).iter() {
            let class = if block.unobservable.contains(page) {
                UNOBSERVABLE
            } else if block.touched.contains(page) {
                TOUCHED
            } else {
                windows.class(block.idle[page]) as u8 + 1
            };
            let frame = found.frames[page];
            let (chunk, index) = (frame / CHUNK as u64, (frame % CHUNK as u64) as usize);
            let classes = match last.take() {
                Some((of, classes)) if of == chunk => classes,
                _ => self.chunks.entry(chunk).or_insert_with(|| Box::new([UNSEEN; CHUNK])),
            };
            let seen = &mut classes[index];
            if *seen == UNSEEN {
                *seen = class;
            } else {
                self.shared += u64::from(*seen & SHARED == 0);
                let before = *seen & !SHARED;
                self.again[usize::from(before.max(class))] += 1;
                *seen = before.min(class) | SHARED;
            }
            last = Some((chunk, classes));
        }
    }

    /// What is left of `sums`, which count each page of each target, if each page frame counts once.
    pub(crate) fn total(&self, sums: PageSums) -> TotalSums {
        // A page was counted twice as accessed within a window if the window holds both accesses.
        let again = |classes: usize| self.again[..classes].iter().sum::<u64>() * PAGE_SIZE;
        let within = |window: usize| {
            let parts = self.parts.iter().zip(&self.again[1..]).map(|(parts, &again)| again as f64 * parts[window]);
            again(1) + (parts.sum::<f64>() * PAGE_SIZE as f64).round() as u64
        };
        let present = sums.present.saturating_sub(again(CLASSES));
        // What is estimated of unknown pages counts for each target, so that the rest may be more than there is.
        let rest = |bytes: u64, again: u64| bytes.saturating_sub(again).min(present);
        let once = PageSums {
            present,
            touched: rest(sums.touched, again(1)),
            unobservable: rest(sums.unobservable, self.again[usize::from(UNOBSERVABLE)] * PAGE_SIZE),
            unknown: rest(sums.unknown, 0),
            within: std::array::from_fn(|window| rest(sums.within[window], within(window))),
        };
        TotalSums { sums: once, shared: self.shared * PAGE_SIZE }
    }
}

const _: () = assert!(CHUNK.is_multiple_of(BLOCK_PAGES));

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use crate::survey::{BlockPages, PageBits};
    use crate::{AddrRange, Mapping, TargetId};

    use super::*;

    /// The sums of a target, and what it adds to `once`. In each survey, a second apart, it has accessed `accessed`.
    fn survey(once: &mut CountedOnce, first_frame: u64, surveys: &[PageBits]) -> PageSums {
        let mut history = PageHistory::default();
        let clear = BlockPages { present: PageBits::ALL, ..BlockPages::default() };
        history.take(&[clear], Duration::ZERO);
        for (second, &accessed) in (1..).zip(surveys) {
            history.cleared(&[]);
            // All is cleared in between, so that what is read is what was accessed.
            history.take(&[BlockPages { accessed, ..clear }], Duration::from_secs(second));
            let cleared = super::super::ClearPages { pages: accessed, ..Default::default() };
            history.cleared(&[cleared]);
        }
        let frames = std::array::from_fn(|page| first_frame + page as u64);
        let windows = Windows::new(&history);
        once.add(&history, &windows, &BlockFrames { start: 0, pages: PageBits::ALL, frames: &frames });
        let mappings = Arc::new([Mapping::anonymous(AddrRange::new(0, 2 << 20).unwrap())]);
        history.sums(TargetId::PhysicalMemory, &(mappings as Arc<[Mapping]>)).total()
    }

    #[test]
    fn a_page_of_two_targets_counts_once_with_its_last_access() {
        let mut once = CountedOnce::default();
        // Each page of the first target is accessed in the first survey only, half of those of the second in the last.
        let all = [PageBits::ALL, PageBits::NONE, PageBits::NONE, PageBits::NONE, PageBits::NONE, PageBits::NONE];
        let half = PageBits::of(0..256);
        let last = [PageBits::NONE, PageBits::NONE, PageBits::NONE, PageBits::NONE, PageBits::NONE, half];
        let mut sums = survey(&mut once, 0x1000, &all);
        sums.add(&survey(&mut once, 0x1000, &last));
        let TotalSums { sums: total, shared } = once.total(sums);
        let mib = 1 << 20;
        assert_eq!((sums.present, total.present, shared), (4 * mib, 2 * mib, 2 * mib));
        assert_eq!((sums.touched, total.touched), (mib, mib));
        // Within 10 s, both have accessed the first half.
        assert_eq!((sums.within[3], total.within[3]), (3 * mib, 2 * mib));
        assert_eq!(total.within[0], mib);
    }

    #[test]
    fn no_part_is_more_than_the_whole() {
        let mut once = CountedOnce::default();
        // Both targets have accessed the same pages at an unknown time.
        let mut history = PageHistory::default();
        let found = BlockPages { present: PageBits::ALL, accessed: PageBits::ALL, ..BlockPages::default() };
        history.take(&[found], Duration::ZERO);
        history.take(&[found], Duration::from_secs(1));
        let frames = std::array::from_fn(|page| page as u64);
        for _ in 0..2 {
            let frames = BlockFrames { start: 0, pages: PageBits::ALL, frames: &frames };
            once.add(&history, &Windows::new(&history), &frames);
        }
        let bytes = 2 << 20;
        let sums = PageSums { present: bytes * 2, touched: bytes * 2, unknown: bytes * 2, ..PageSums::default() };
        let TotalSums { sums: total, shared } = once.total(PageSums { within: [bytes * 2; 10], ..sums });
        assert_eq!((total.present, shared), (bytes, bytes));
        assert!([total.touched, total.unknown].iter().chain(&total.within).all(|&part| part <= bytes), "{total:?}");
    }

    #[test]
    fn frames_of_one_target_only_count_as_they_are() {
        let mut once = CountedOnce::default();
        let mut sums = survey(&mut once, 0, &[PageBits::ALL]);
        // The frames of the second target begin where half of those of the first end.
        sums.add(&survey(&mut once, 256, &[PageBits::ALL]));
        let TotalSums { sums: total, shared } = once.total(sums);
        assert_eq!((total.present, shared), (3 << 20, 1 << 20));
        assert_eq!(total.touched, 3 << 20);
    }
}
