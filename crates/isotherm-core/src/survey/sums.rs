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
    /// interval counts what was accessed in the interval. Windows that go back to before the first survey count what
    /// was accessed since then.
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
        // Known pages by the shortest window that holds their last access. The last entry is for those in no window.
        let mut exact = [0_u64; COUNT + 1];
        let mut estimated = [0.0; COUNT];
        for block in self.blocks_in(range) {
            let within = block.within(range);
            let present = block.present & within;
            pages.present += present.count() as f64;
            pages.unobservable += (present & block.unobservable).count() as f64;
            let observable = present & !block.unobservable;
            for page in (observable & block.exact).iter() {
                exact[windows.first_with(block.idle[page])] += 1;
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
        let mut sum = 0;
        for window in 0..COUNT {
            sum += exact[window];
            pages.within[window] = sum as f64 + estimated[window];
        }
        pages
    }
}

/// For each number of surveys since the last access, the index of the shortest window that holds it.
pub(crate) struct Windows(Vec<u8>);

impl Windows {
    pub(crate) fn new(history: &PageHistory) -> Self {
        let half = history.interval() / 2;
        let mut first = Vec::new();
        for (index, window) in WINDOWS.iter().enumerate() {
            // A window covers the last survey interval at least.
            let covered = |surveys: usize| surveys == 0 || history.idle_time(surveys as u16) + half < *window;
            while first.len() < history.surveys() && covered(first.len()) {
                first.push(index as u8);
            }
        }
        Self(first)
    }

    /// The index of the shortest window that holds an access this many surveys ago; the number of windows if none does.
    pub(crate) fn first_with(&self, surveys: u16) -> usize {
        self.0.get(usize::from(surveys)).map_or(WINDOWS.len(), |&window| window.into())
    }
}
