//! Which pages belong to a panel.
//!
//! The place of page *n* is the fractional part of *n* times the golden ratio, from a random start
//! ([`kin`](super::kin)). A page belongs to the panel if its place lies below the rate of the panel. So each page
//! belongs to it with the same probability, whatever else is in memory; a panel that grows keeps its pages; and the
//! panel has its share of any run of pages, to within two or three pages (Kuipers and Niederreiter, Uniform
//! Distribution of Sequences, 1974, chapter 2.3).

use std::ops::Range;

use crate::order::GOLDEN;

/// The number 1 in units of 2⁻⁶⁴.
const ONE: f64 = 18_446_744_073_709_551_616.0;

/// The part of all places that belongs to a panel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// Pages whose place is below this belong to the panel. `None` if all pages do.
    below: Option<u64>,
}

impl Part {
    /// The part of a panel with this share of all pages, which is above 0.
    pub(super) fn new(rate: f64) -> Self {
        Self { below: (rate < 1.0).then_some(((rate * ONE) as u64).max(1 << 20)) }
    }

    /// Whether a page with this place belongs to the panel.
    pub(super) fn contains(&self, place: u64) -> bool {
        self.below.is_none_or(|below| place < below)
    }
}

/// The part of a panel, and the way from one of its pages to the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    part: Part,
    /// The place of page 0.
    first: u64,
    /// The shortest distance between two pages of the panel where the later one has the higher place, and how much
    /// higher it is.
    up: (u64, u64),
    /// The same where the later one has the lower place.
    down: (u64, u64),
}

impl Places {
    /// The places in a panel with this share of all pages. It takes about as many steps as one page of the panel stands
    /// for.
    pub(super) fn new(rate: f64) -> Self {
        let part = Part::new(rate);
        let (mut up, mut down) = (None, None);
        let mut distance = 1_u64;
        while let Some(below) = part.below.filter(|_| up.is_none() || down.is_none()) {
            let higher = distance.wrapping_mul(GOLDEN);
            let lower = higher.wrapping_neg();
            up = up.or((higher < below).then_some((distance, higher)));
            down = down.or((lower < below).then_some((distance, lower)));
            distance += 1;
        }
        Self { part, first: 0, up: up.unwrap_or_default(), down: down.unwrap_or_default() }
    }

    /// The same if the place of page 0 is `first`.
    pub(super) fn from(self, first: u64) -> Self {
        Self { first, ..self }
    }

    /// The place of a page.
    pub(super) fn place(&self, page: u64) -> u64 {
        self.first.wrapping_add(page.wrapping_mul(GOLDEN))
    }

    fn contains(&self, page: u64) -> bool {
        self.part.contains(self.place(page))
    }

    /// The pages of a range that belong to the panel.
    pub(super) fn pages_in(self, range: Range<u64>) -> impl Iterator<Item = u64> {
        let first = range.clone().find(|&page| self.contains(page));
        std::iter::successors(first, move |&page| Some(self.next(page))).take_while(move |&page| page < range.end)
    }

    /// The page of the panel that follows one of its pages. There are three distances: two, and their sum.
    fn next(&self, page: u64) -> u64 {
        let Some(below) = self.part.below else { return page + 1 };
        let place = self.place(page);
        let ((up, higher), (down, lower)) = (self.up, self.down);
        let is_up = place.checked_add(higher).is_some_and(|place| place < below);
        let distance = match (is_up, place >= lower) {
            (true, true) => up.min(down),
            (true, false) => up,
            (false, true) => down,
            (false, false) => up + down,
        };
        page + distance
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_pages_of_a_range_are_those_that_belong_to_the_panel(
            start in any::<u64>(), rate in 0.0005..1.1_f64, first in 0..1_u64 << 36, count in 0..20_000_u64,
        ) {
            let places = Places::new(rate).from(start);
            let range = first..first + count;
            let expected: Vec<u64> = range.clone().filter(|&page| places.contains(page)).collect();
            prop_assert_eq!(places.pages_in(range).collect::<Vec<_>>(), expected);
        }

        #[test]
        fn a_panel_has_its_share_of_any_run_of_pages_and_keeps_its_pages_as_it_grows(
            start in any::<u64>(), rate in 0.001..0.5_f64, first in 0..1_u64 << 36, count in 0..50_000_u64,
        ) {
            let (places, more) = (Places::new(rate).from(start), Places::new(rate * 1.7).from(start));
            let found: Vec<u64> = places.pages_in(first..first + count).collect();
            prop_assert!((found.len() as f64 - rate * count as f64).abs() <= 4.0, "{} of {count}", found.len());
            prop_assert!(found.iter().all(|&page| more.contains(page)));
        }
    }
}
