//! Estimates unknown accesses of pages from pages whose accesses are known.

use super::block::LAGS;
use super::windows::{Begun, COUNT, Windows};
use super::{Kinds, PageSums};
use crate::{Figures, PAGE_SIZE};

/// With fewer pages that were accessed in an interval and have been followed since, nothing is estimated from them.
const LEAST_FOLLOWED: f64 = 64.0;

/// Pages by what is known of them. Pages are counted in fractions, since a part of a hot block stands for the rest.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pages {
    pub(super) present: f64,
    pub(super) unobservable: f64,
    pub(super) swapped: f64,
    pub(super) lazily_freed: u64,
    /// Pages for which it is known whether they were accessed in the last interval.
    pub(super) dated: Dated,
    /// Of `dated.last`, the pages accessed in the interval before, too.
    pub(super) again: f64,
    /// The known pages by the intervals in which windows begin.
    pub(super) begun: Begun,
    /// Uncertain pages for which it is known what share of the pages next to them was accessed again after the last
    /// clear, and the sum of these shares.
    pub(super) asked: (f64, f64),
    /// The known pages in the panel. They stand for the pages whose last access is not known.
    /// The last access of a page outside the panel is known until the page is accessed again, and not afterwards. So
    /// the known pages outside the panel are not a fair sample.
    pub(super) panel: Dated,
    /// Pages that were accessed one survey ago, two surveys ago, and so on.
    pub(super) followed: [Followed; LAGS],
    /// The other pages, by the shortest window in which they are known to be accessed. The last entry is for those that
    /// were accessed at some time.
    pub(super) uncertain: [f64; COUNT + 1],
}

/// Pages, and how many of them were accessed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Accessed {
    pub(super) pages: f64,
    /// Of these, the pages accessed in the last interval.
    pub(super) touched: f64,
    /// Of these, the pages accessed within each window.
    pub(super) within: [f64; COUNT],
}

impl Accessed {
    pub(crate) fn add(&mut self, other: &Self) {
        self.pages += other.pages;
        self.touched += other.touched;
        add_all(&mut self.within, other.within);
    }

    /// As many `pages`, of which the same part was accessed.
    fn scaled_to(self, pages: f64) -> Self {
        let part = pages / self.pages;
        Self { pages, touched: self.touched * part, within: self.within.map(|within| within * part) }
    }

    /// The number of pages that were accessed within the window with this index. [`COUNT`] stands for all pages.
    fn within(&self, window: usize) -> f64 {
        self.within.get(window).copied().unwrap_or(self.pages)
    }
}

fn add_all(sums: &mut [f64; COUNT], pages: [f64; COUNT]) {
    sums.iter_mut().zip(pages).for_each(|(sum, pages)| *sum += pages);
}

/// Pages whose last access is known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Dated {
    pub(super) all: Accessed,
    /// The pages accessed in the last interval that do not count in the windows yet.
    pub(super) last: f64,
    /// The pages accessed last in the interval in which each window begins. They do not count in it yet.
    pub(super) begun: [f64; COUNT],
}

impl Dated {
    fn add(&mut self, other: &Self) {
        self.all.add(&other.all);
        self.last += other.last;
        add_all(&mut self.begun, other.begun);
    }

    /// Adds to each window its part of the pages that were accessed in the last interval, and of those that were
    /// accessed in the interval in which it begins.
    fn spread(&mut self, of_last: [f64; COUNT], of_begun: [f64; COUNT]) {
        let (last, begun) = (std::mem::take(&mut self.last), std::mem::take(&mut self.begun));
        add_all(&mut self.all.within, std::array::from_fn(|nth| last * of_last[nth] + begun[nth] * of_begun[nth]));
    }
}

/// Pages that were accessed in the interval of an earlier survey. Which of them were cleared since does not depend on
/// what is accessed next, so that those whose last access is known stand for the others.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Followed {
    /// The pages that may have been accessed since then.
    pub(super) uncertain: f64,
    /// The pages whose last access is known.
    pub(super) dated: Accessed,
    /// The index of the shortest window that holds the earlier interval.
    pub(super) first: usize,
}

impl Followed {
    fn add(&mut self, other: &Self) {
        self.uncertain += other.uncertain;
        self.dated.add(&other.dated);
        self.first = other.first;
    }
}

impl Pages {
    /// The same pages, which stand for others.
    pub(super) fn as_panel(self) -> Self {
        Self { panel: self.dated, ..self }
    }

    /// Adds to each window its part of the pages that were accessed in the last interval, and of those that were
    /// accessed in the interval in which it begins: `of_begun`, as of all pages of the target.
    pub(super) fn spread(&mut self, windows: &Windows, of_begun: [f64; COUNT]) {
        let parts = windows.of_last(std::mem::take(&mut self.again) / self.dated.last.max(1.0));
        self.dated.spread(parts, of_begun);
        self.panel.spread(parts, of_begun);
        for pages in &mut self.followed {
            let touched = pages.dated.touched;
            add_all(&mut pages.dated.within, parts.map(|part| touched * part));
        }
    }

    /// The sums. What is not known is estimated from these pages, or else from `others`.
    pub(super) fn sums(&self, others: &Self) -> PageSums {
        let uncertain = self.uncertain(others);
        let bytes = |pages: f64| (pages.round() as u64) * PAGE_SIZE;
        let figures = Figures {
            present: self.present,
            touched: self.dated.all.touched + uncertain.touched,
            unobservable: self.unobservable,
            unknown: uncertain.pages,
            ..Figures::unknown()
        };
        let figures = figures.with_swapped(Some(self.swapped));
        PageSums {
            figures: figures.map(bytes),
            kinds: Kinds { lazily_freed: self.lazily_freed * PAGE_SIZE, ..Kinds::default() },
            mapped_again: 0,
            within: std::array::from_fn(|nth| bytes(self.dated.all.within[nth] + uncertain.within[nth])),
        }
    }

    /// What is estimated of pages whose last access is not known. Pages that were accessed in the interval of one of
    /// the last surveys are taken to be accessed since then as the known ones among them. Other pages that were
    /// accessed within one window are taken to be accessed within a shorter one as often as the known pages that were
    /// accessed within the first.
    pub(super) fn uncertain(&self, others: &Self) -> Accessed {
        let mut estimate = Accessed::default();
        let mut by_window = self.uncertain;
        for (pages, others) in self.followed.iter().zip(&others.followed) {
            match [pages, others].into_iter().find(|pages| pages.dated.pages >= LEAST_FOLLOWED) {
                Some(known) => estimate.add(&known.dated.scaled_to(pages.uncertain)),
                None => by_window[pages.first] += pages.uncertain,
            }
        }
        // The known pages that stand for those that were accessed within a window: here, or else anywhere.
        let known = [self.panel, others.panel, self.dated, others.dated].map(|dated| dated.all);
        // Memory that is cleared rarely and as a whole has no known pages in between. What was accessed again after the
        // last clear says more than a few pages of another kind.
        let asked = [self.asked, others.asked].into_iter().find(|(pages, _)| *pages >= LEAST_FOLLOWED);
        let share = |part: fn(&Accessed, usize) -> f64, nth: usize, window: usize| {
            let with = |least: f64| known.iter().find(|known| known.within(window) > least);
            match (with(LEAST_FOLLOWED), asked, with(0.0)) {
                (None, Some((pages, again)), _) => again / pages,
                (Some(known), ..) | (None, None, Some(known)) => (part(known, nth) / known.within(window)).min(1.0),
                (None, None, None) => 0.0,
            }
        };
        for (window, &pages) in by_window.iter().enumerate().filter(|(_, pages)| **pages > 0.0) {
            estimate.add(&Accessed {
                pages,
                // An access within a window can be older than the last interval, so no page is sure to be accessed in
                // it.
                touched: pages * share(|pages, _| pages.touched, 0, window),
                within: std::array::from_fn(|nth| {
                    pages * if window <= nth { 1.0 } else { share(|pages, nth| pages.within[nth], nth, window) }
                }),
            });
        }
        estimate
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.present += other.present;
        self.unobservable += other.unobservable;
        self.swapped += other.swapped;
        self.lazily_freed += other.lazily_freed;
        self.dated.add(&other.dated);
        self.again += other.again;
        self.begun.add(&other.begun);
        self.asked = (self.asked.0 + other.asked.0, self.asked.1 + other.asked.1);
        self.panel.add(&other.panel);
        self.followed.iter_mut().zip(&other.followed).for_each(|(sum, pages)| sum.add(pages));
        self.uncertain.iter_mut().zip(other.uncertain).for_each(|(sum, pages)| *sum += pages);
    }
}
