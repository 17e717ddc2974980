//! Estimates unknown accesses of pages from pages whose accesses are known.

use super::block::LAGS;
use super::windows::{Begun, COUNT, Windows};
use super::{Kinds, PageSums};
use crate::PAGE_SIZE;

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
    pub(super) known: Known,
    /// Of `known.last`, the pages accessed in the interval before, too.
    pub(super) again: f64,
    /// The known pages by the intervals in which windows begin.
    pub(super) begun: Begun,
    /// Uncertain pages for which it is known what share of the pages next to them was accessed again after the last
    /// clear, and the sum of these shares.
    pub(super) asked: (f64, f64),
    /// The known pages in the panel. They stand for the pages whose last access is not known.
    /// The last access of a page outside the panel is known until the page is accessed again, and not afterwards. So
    /// the known pages outside the panel are not a fair sample.
    pub(super) panel: Known,
    /// Pages that were accessed one survey ago, two surveys ago, and so on.
    pub(super) followed: [Followed; LAGS],
    /// The other pages, by the shortest window in which they are known to be accessed. The last entry is for those that
    /// were accessed at some time.
    pub(super) uncertain: [f64; COUNT + 1],
}

/// Pages whose last access is known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    pub(super) pages: f64,
    /// Of these, the pages accessed in the last interval.
    pub(super) touched: f64,
    /// Of these, the pages accessed within each window.
    pub(super) within: [f64; COUNT],
    /// The pages accessed in the last interval that do not count in `within` yet.
    pub(super) last: f64,
    /// The pages accessed last in the interval in which each window begins. They do not count in it yet.
    pub(super) begun: [f64; COUNT],
}

impl Known {
    fn add(&mut self, other: &Self) {
        self.pages += other.pages;
        self.touched += other.touched;
        self.last += other.last;
        self.within.iter_mut().zip(other.within).for_each(|(sum, pages)| *sum += pages);
        self.begun.iter_mut().zip(other.begun).for_each(|(sum, pages)| *sum += pages);
    }

    /// Adds to each window its part of the pages that were accessed in the last interval, and of those that were
    /// accessed in the interval in which it begins.
    fn spread(&mut self, of_last: [f64; COUNT], of_begun: [f64; COUNT]) {
        let (last, begun) = (std::mem::take(&mut self.last), std::mem::take(&mut self.begun));
        for (nth, within) in self.within.iter_mut().enumerate() {
            *within += last * of_last[nth] + begun[nth] * of_begun[nth];
        }
    }

    /// The number of pages that were accessed within the window with this index. [`COUNT`] stands for all pages.
    fn within(&self, window: usize) -> f64 {
        self.within.get(window).copied().unwrap_or(self.pages)
    }
}

/// What is estimated of pages whose last access is not known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Uncertain {
    pub(super) pages: f64,
    /// Of these, the pages accessed in the last interval.
    pub(super) touched: f64,
    /// Of these, the pages accessed within each window.
    pub(super) within: [f64; COUNT],
}

impl Uncertain {
    pub(crate) fn add(&mut self, other: &Self) {
        self.pages += other.pages;
        self.touched += other.touched;
        self.within.iter_mut().zip(other.within).for_each(|(sum, pages)| *sum += pages);
    }
}

/// Pages that were accessed in the interval of an earlier survey. Which of them were cleared since does not depend on
/// what is accessed next, so that those whose last access is known stand for the others.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Followed {
    /// The pages that may have been accessed since then.
    pub(super) uncertain: f64,
    /// The pages whose last access is known.
    pub(super) known: f64,
    /// Of these, the pages accessed in the last interval.
    pub(super) touched: f64,
    /// Of these, the pages accessed within each window.
    pub(super) within: [f64; COUNT],
    /// The index of the shortest window that holds the earlier interval.
    pub(super) first: usize,
}

impl Followed {
    fn add(&mut self, other: &Self) {
        self.uncertain += other.uncertain;
        self.known += other.known;
        self.touched += other.touched;
        self.within.iter_mut().zip(other.within).for_each(|(sum, pages)| *sum += pages);
        self.first = other.first;
    }
}

impl Pages {
    /// The same pages, which stand for others.
    pub(super) fn as_panel(self) -> Self {
        Self { panel: self.known, ..self }
    }

    /// Adds to each window its part of the pages that were accessed in the last interval, and of those that were
    /// accessed in the interval in which it begins: `of_begun`, as of all pages of the target.
    pub(super) fn spread(&mut self, windows: &Windows, of_begun: [f64; COUNT]) {
        let parts = windows.of_last(std::mem::take(&mut self.again) / self.known.last.max(1.0));
        self.known.spread(parts, of_begun);
        self.panel.spread(parts, of_begun);
        for pages in &mut self.followed {
            let touched = pages.touched;
            pages.within.iter_mut().zip(parts).for_each(|(within, part)| *within += touched * part);
        }
    }

    /// The sums. What is not known is estimated from these pages, or else from `others`.
    pub(super) fn sums(&self, others: &Self) -> PageSums {
        let uncertain = self.uncertain(others);
        let bytes = |pages: f64| (pages.round() as u64) * PAGE_SIZE;
        PageSums {
            present: bytes(self.present),
            touched: bytes(self.known.touched + uncertain.touched),
            unobservable: bytes(self.unobservable),
            unknown: bytes(uncertain.pages),
            swapped: Some(bytes(self.swapped)),
            kinds: Kinds { lazily_freed: self.lazily_freed * PAGE_SIZE, ..Kinds::default() },
            mapped_again: 0,
            within: std::array::from_fn(|nth| bytes(self.known.within[nth] + uncertain.within[nth])),
        }
    }

    /// What is estimated of pages whose last access is not known. Pages that were accessed in the interval of one of
    /// the last surveys are taken to be accessed since then as the known ones among them. Other pages that were
    /// accessed within one window are taken to be accessed within a shorter one as often as the known pages that were
    /// accessed within the first.
    pub(super) fn uncertain(&self, others: &Self) -> Uncertain {
        let mut estimate = Uncertain::default();
        let mut by_window = self.uncertain;
        for (pages, others) in self.followed.iter().zip(&others.followed) {
            match [pages, others].into_iter().find(|pages| pages.known >= LEAST_FOLLOWED) {
                Some(known) => {
                    let part = pages.uncertain / known.known;
                    estimate.add(&Uncertain {
                        pages: pages.uncertain,
                        touched: known.touched * part,
                        within: known.within.map(|within| within * part),
                    });
                }
                None => by_window[pages.first] += pages.uncertain,
            }
        }
        // The known pages that stand for those that were accessed within a window: here, or else anywhere.
        let known = [self.panel, others.panel, self.known, others.known];
        // Memory that is cleared rarely and as a whole has no known pages in between. What was accessed again after the
        // last clear says more than a few pages of another kind.
        let asked = [self.asked, others.asked].into_iter().find(|(pages, _)| *pages >= LEAST_FOLLOWED);
        let share = |part: fn(&Known, usize) -> f64, nth: usize, window: usize| {
            let with = |least: f64| known.iter().find(|known| known.within(window) > least);
            match (with(LEAST_FOLLOWED), asked, with(0.0)) {
                (None, Some((pages, again)), _) => again / pages,
                (Some(known), ..) | (None, None, Some(known)) => (part(known, nth) / known.within(window)).min(1.0),
                (None, None, None) => 0.0,
            }
        };
        for (window, &pages) in by_window.iter().enumerate().filter(|(_, pages)| **pages > 0.0) {
            estimate.add(&Uncertain {
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
        self.known.add(&other.known);
        self.again += other.again;
        self.begun.add(&other.begun);
        self.asked = (self.asked.0 + other.asked.0, self.asked.1 + other.asked.1);
        self.panel.add(&other.panel);
        self.followed.iter_mut().zip(&other.followed).for_each(|(sum, pages)| sum.add(pages));
        self.uncertain.iter_mut().zip(other.uncertain).for_each(|(sum, pages)| *sum += pages);
    }
}
