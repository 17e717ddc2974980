//! What a survey says in sums: by mapping and by block.

use std::sync::Arc;
use std::time::Duration;

use super::{BLOCK_SIZE, PageHistory};
use crate::{AddrRange, Mapping, PAGE_SIZE, TargetId};

/// The windows by which bytes are counted.
pub const WINDOWS: [Duration; 10] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_secs(60),
    Duration::from_secs(120),
    Duration::from_secs(300),
    Duration::from_secs(600),
    Duration::from_secs(1800),
];

/// Bytes of present memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageSums {
    /// Bytes in memory.
    pub present: u64,
    /// Bytes accessed since the survey before.
    pub touched: u64,
    /// Bytes that cannot be observed.
    pub unobservable: u64,
    /// Bytes of which it is not known whether they were accessed since the survey before. The other figures count them
    /// as accessed in the same share as the rest of the memory; [`touched`](Self::touched) does so where there is a
    /// rest.
    pub unknown: u64,
    /// Bytes that were accessed within each of [`WINDOWS`] before the survey. A window that is shorter than the survey
    /// interval counts what was accessed in the interval. Of what was accessed in an interval in which a window begins,
    /// the part of the interval that lies in the window counts. Windows that go back to before the first survey count
    /// what was accessed since then.
    pub within: [u64; WINDOWS.len()],
}

/// The sums of one mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MappingSums {
    /// The index of the mapping in [`TargetSurvey::mappings`].
    pub mapping: u32,
    /// Its bytes.
    pub sums: PageSums,
}

/// The sums of one block of 2 MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockSums {
    /// The first address of the block.
    pub start: u64,
    /// The number of present pages.
    pub present: u16,
    /// The number of pages accessed since the survey before.
    pub touched: u16,
    /// For how long the page that was accessed last has been idle.
    pub idle: Duration,
}

/// What a survey found in one target.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetSurvey {
    /// Which target.
    pub id: TargetId,
    /// Its mappings as they were read last.
    pub mappings: Arc<[Mapping]>,
    /// The sums of all mappings that have a present page, in their order.
    pub by_mapping: Vec<MappingSums>,
    /// The sums of all blocks that have a present page, in the order of addresses.
    pub by_block: Vec<BlockSums>,
}

/// What a survey cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SurveyCost {
    /// Present pages that were read.
    pub reads: u64,
    /// Accessed bits that were cleared.
    pub clears: u64,
}

/// The sums over all targets, in which each page frame counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TotalSums {
    /// The sums. [`PageSums::unknown`] is that of the targets, in which shared pages may count several times.
    pub sums: PageSums,
    /// Bytes that more than one target maps, counted once.
    pub shared: u64,
}

/// What a survey found in all targets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SurveySnapshot {
    /// When the survey was, since the start of the run.
    pub time: Duration,
    /// The time since the survey before; zero for the first.
    pub interval: Duration,
    /// What it cost.
    pub cost: SurveyCost,
    /// The targets.
    pub targets: Vec<TargetSurvey>,
    /// All targets together. `None` if it is not known which memory they share.
    pub total: Option<TotalSums>,
}

impl TargetSurvey {
    /// The sums over all mappings.
    pub fn total(&self) -> PageSums {
        let mut total = PageSums::default();
        self.by_mapping.iter().for_each(|mapping| total.add(&mapping.sums));
        total
    }
}

impl PageSums {
    /// Adds other sums to these.
    pub fn add(&mut self, other: &Self) {
        self.present += other.present;
        self.touched += other.touched;
        self.unobservable += other.unobservable;
        self.unknown += other.unknown;
        for (sum, bytes) in self.within.iter_mut().zip(other.within) {
            *sum += bytes;
        }
    }
}

/// The number of windows.
const COUNT: usize = WINDOWS.len();

/// Pages by what is known of them. Pages are counted in fractions, since a part of a hot block stands for the rest.
#[derive(Clone, Copy, Debug, Default)]
struct Pages {
    present: f64,
    unobservable: f64,
    /// Pages of which it is known whether they were accessed in the last interval.
    known: f64,
    /// Of these, the pages accessed in the last interval.
    touched: f64,
    /// Of these, the pages accessed within each window.
    within: [f64; COUNT],
    /// The other pages, by the shortest window in which they are known to be accessed. The last entry is for those that
    /// were accessed at some time.
    uncertain: [f64; COUNT + 1],
}

impl Pages {
    /// The sums. Pages that were accessed within one window are taken to be accessed within a shorter one as often as
    /// the known pages that were accessed within the first.
    fn sums(&self, others: &Self) -> PageSums {
        // The share of `part` in the known pages that were accessed within a window, here or else anywhere.
        let share = |part: fn(&Self, usize) -> f64, nth: usize, window: usize| {
            let of = |pages: &Self| {
                let all = pages.within.get(window).copied().unwrap_or(pages.known);
                (all > 0.0).then(|| (part(pages, nth) / all).min(1.0))
            };
            of(self).or_else(|| of(others)).unwrap_or(0.0)
        };
        let estimate = |part: fn(&Self, usize) -> f64, nth: usize, sure: usize| -> f64 {
            let of =
                |(window, &pages): (usize, &f64)| pages * if window <= sure { 1.0 } else { share(part, nth, window) };
            self.uncertain.iter().enumerate().filter(|(_, pages)| **pages > 0.0).map(of).sum()
        };
        let within = |pages: &Self, nth: usize| pages.within[nth];
        // A window is never shorter than the last interval, so no page is sure to be accessed in the interval.
        let touched: f64 = (self.uncertain.iter().enumerate().filter(|(_, pages)| **pages > 0.0))
            .map(|(window, pages)| pages * share(|pages, _| pages.touched, 0, window))
            .sum();
        let bytes = |pages: f64| (pages.round() as u64) * PAGE_SIZE;
        PageSums {
            present: bytes(self.present),
            touched: bytes(self.touched + touched),
            unobservable: bytes(self.unobservable),
            unknown: bytes(self.uncertain.iter().sum()),
            within: std::array::from_fn(|nth| bytes(self.within[nth] + estimate(within, nth, nth))),
        }
    }

    fn add(&mut self, other: &Self) {
        self.present += other.present;
        self.unobservable += other.unobservable;
        self.known += other.known;
        self.touched += other.touched;
        self.within.iter_mut().zip(other.within).for_each(|(sum, pages)| *sum += pages);
        self.uncertain.iter_mut().zip(other.uncertain).for_each(|(sum, pages)| *sum += pages);
    }
}

impl PageHistory {
    /// What the last survey says about a target with these `mappings`.
    pub fn sums(&self, id: TargetId, mappings: &Arc<[Mapping]>) -> TargetSurvey {
        let windows = Windows::new(self);
        let mut total = Pages::default();
        let mut by_mapping: Vec<(u32, Pages)> = Vec::new();
        for (index, mapping) in mappings.iter().enumerate() {
            let pages = self.known_in(mapping.range, &windows);
            if pages.present > 0.0 {
                total.add(&pages);
                by_mapping.push((index as u32, pages));
            }
        }
        let by_mapping =
            by_mapping.iter().map(|(mapping, pages)| MappingSums { mapping: *mapping, sums: pages.sums(&total) });
        let by_block = self.blocks().iter().map(|block| {
            let range = AddrRange::new(block.start, block.start.saturating_add(BLOCK_SIZE));
            let touched = range.map_or(0.0, |range| {
                let pages = self.known_in(range, &windows);
                pages.sums(&total).touched as f64 / PAGE_SIZE as f64
            });
            let last = (block.present & !block.unobservable).iter().map(|page| block.idle[page]).min();
            BlockSums {
                start: block.start,
                present: block.present.count() as u16,
                touched: touched as u16,
                idle: self.idle_time(last.unwrap_or(0)),
            }
        });
        TargetSurvey {
            id,
            mappings: Arc::clone(mappings),
            by_mapping: by_mapping.collect(),
            by_block: by_block.collect(),
        }
    }

    fn known_in(&self, range: AddrRange, windows: &Windows) -> Pages {
        let mut pages = Pages::default();
        // Known pages by the class of their last access. The last entry is for those in no window.
        let mut exact = [0_u64; Windows::MAX_CLASSES + 1];
        let mut estimated = [0.0; COUNT];
        for block in self.blocks_in(range) {
            let within = block.within(range);
            let present = block.present & within;
            pages.present += present.count() as f64;
            pages.unobservable += (present & block.unobservable).count() as f64;
            let observable = present & !block.unobservable;
            for page in (observable & block.exact).iter() {
                exact[windows.class(block.idle[page])] += 1;
            }
            pages.touched += (observable & block.touched).count() as f64;
            let uncertain = observable & block.uncertain();
            let Some(share) = block.hot_share() else {
                uncertain.iter().for_each(|page| pages.uncertain[windows.first_with(block.idle[page])] += 1.0);
                continue;
            };
            // The part of a hot block that was cleared stands for the rest.
            pages.known += uncertain.count() as f64;
            pages.touched += share * uncertain.count() as f64;
            for page in uncertain.iter() {
                let first = windows.first_with(block.idle[page]);
                (0..first).for_each(|shorter| estimated[shorter] += share);
                (first..COUNT).for_each(|longer| estimated[longer] += 1.0);
            }
        }
        pages.known += exact.iter().sum::<u64>() as f64;
        pages.within = estimated;
        for (&count, parts) in exact.iter().zip(windows.parts()).filter(|(count, _)| **count > 0) {
            pages.within.iter_mut().zip(parts).for_each(|(within, part)| *within += count as f64 * part);
        }
        pages
    }
}

/// How much of what was accessed some surveys ago each window holds.
///
/// A page that was accessed between two surveys was so at any time between them, with the same probability. A window
/// that ends between both surveys therefore holds a part of such pages. Numbers of surveys with the same parts are one
/// *class*; the classes are in the order of time, the most recent first.
pub(crate) struct Windows {
    /// The class of each number of surveys since the last access. Longer times are in no window.
    classes: Vec<u8>,
    /// For each class, the part of its pages that each window holds, 0 to 1.
    parts: Vec<[f64; COUNT]>,
}

impl Windows {
    /// The most classes: each window ends within one of them, and there is one before each of these.
    pub(crate) const MAX_CLASSES: usize = 2 * COUNT + 1;

    pub(crate) fn new(history: &PageHistory) -> Self {
        let (mut classes, mut parts) = (Vec::new(), Vec::new());
        for surveys in 0..history.surveys() as u16 {
            let (to, from) = (history.idle_time(surveys), history.idle_time(surveys.saturating_add(1)));
            let part = |window: Duration| match (surveys, from.saturating_sub(to)) {
                // A window covers the last survey interval at least.
                (0, _) => 1.0,
                (_, Duration::ZERO) => f64::from(to < window),
                (_, length) => (window.saturating_sub(to).as_secs_f64() / length.as_secs_f64()).min(1.0),
            };
            let of = WINDOWS.map(part);
            if of.iter().all(|&part| part == 0.0) {
                break;
            }
            if parts.last() != Some(&of) {
                parts.push(of);
            }
            classes.push(parts.len() as u8 - 1);
        }
        Self { classes, parts }
    }

    /// The class of an access this many surveys ago; [`MAX_CLASSES`](Self::MAX_CLASSES) if no window holds it.
    pub(crate) fn class(&self, surveys: u16) -> usize {
        self.classes.get(usize::from(surveys)).map_or(Self::MAX_CLASSES, |&class| class.into())
    }

    /// For each class, the part of its pages that each window holds.
    pub(crate) fn parts(&self) -> &[[f64; COUNT]] {
        &self.parts
    }

    /// The index of the shortest window that holds at least half of what was accessed this many surveys ago; the number
    /// of windows if none does.
    fn first_with(&self, surveys: u16) -> usize {
        let parts = self.parts.get(self.class(surveys));
        parts.map_or(COUNT, |parts| parts.partition_point(|&part| part < 0.5))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;
    use crate::survey::{BlockPages, ClearPages, PageBits};

    #[test]
    fn a_window_that_begins_between_two_surveys_holds_that_part_of_the_interval() {
        let mut history = PageHistory::default();
        let clear = BlockPages { present: PageBits::ALL, ..BlockPages::default() };
        let accessed = [PageBits::NONE, PageBits::of(0..300), PageBits::of(300..400)];
        for (nth, accessed) in (0..).zip(accessed) {
            history.take(&[BlockPages { accessed, ..clear }], Duration::from_secs(3 * nth));
            history.cleared(&[ClearPages { pages: accessed, ..ClearPages::default() }]);
        }
        let mapping = Mapping::anonymous(AddrRange::new(0, BLOCK_SIZE).unwrap());
        let total = history.sums(TargetId::PhysicalMemory, &Arc::from([mapping])).total();
        let pages = total.within.map(|bytes| bytes / PAGE_SIZE);
        // The 300 pages were accessed between 6 s and 3 s ago. 5 s hold two thirds of that time.
        assert_eq!(pages[..4], [100, 100, 300, 400], "1, 2, 5 and 10 s");
    }
}
