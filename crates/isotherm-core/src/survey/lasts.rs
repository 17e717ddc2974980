//! For each page of a block, the survey in whose interval it was last known to be accessed.

use super::number::SurveyNumber;
use super::{BLOCK_PAGES, PageBits};

/// The number of a survey for each page of a block.
///
/// Most blocks have one number or a few runs of the same one, so that they take little memory.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Lasts {
    /// All pages have the same number.
    Same(SurveyNumber),
    /// Runs of pages with the same number, in the order of pages: where each ends, and its number. Neighbouring runs
    /// have different numbers.
    Runs(Box<[(u16, SurveyNumber)]>),
    /// More runs than [`MOST_RUNS`].
    Each(Box<[SurveyNumber; BLOCK_PAGES]>),
}

/// With more runs than this, a number for each page takes less memory.
const MOST_RUNS: usize = BLOCK_PAGES / 4;

impl Lasts {
    /// The number of the page with this index, which is below [`BLOCK_PAGES`].
    #[inline]
    pub(super) fn of(&self, page: usize) -> SurveyNumber {
        match self {
            Self::Same(number) => *number,
            Self::Runs(runs) => runs[runs.partition_point(|(end, _)| usize::from(*end) <= page)].1,
            Self::Each(numbers) => numbers[page],
        }
    }

    /// The numbers of all pages.
    pub(super) fn all(&self) -> [SurveyNumber; BLOCK_PAGES] {
        match self {
            Self::Same(number) => [*number; BLOCK_PAGES],
            Self::Runs(runs) => {
                let mut all = [SurveyNumber::UNKNOWN; BLOCK_PAGES];
                let mut from = 0;
                for &(end, number) in runs {
                    all[from..usize::from(end)].fill(number);
                    from = usize::from(end);
                }
                all
            }
            Self::Each(numbers) => **numbers,
        }
    }

    /// Calls `tell` with the numbers of the pages in `within`, and with how many of them have each. A number may come
    /// several times.
    #[inline]
    pub(super) fn count(&self, within: PageBits, mut tell: impl FnMut(SurveyNumber, u32)) {
        if within.is_empty() {
            return;
        }
        match self {
            Self::Same(number) => tell(*number, within.count() as u32),
            Self::Runs(runs) => {
                let mut below = 0;
                for &(end, number) in runs {
                    let count = within.count_below(usize::from(end)) as u32;
                    if count > below {
                        tell(number, count - below);
                    }
                    below = count;
                }
            }
            Self::Each(numbers) => within.iter().for_each(|page| tell(numbers[page], 1)),
        }
    }

    /// The pages in `within` that have this number.
    pub(super) fn having(&self, number: SurveyNumber, within: PageBits) -> PageBits {
        match self {
            Self::Same(all) => {
                if *all == number {
                    within
                } else {
                    PageBits::NONE
                }
            }
            Self::Runs(runs) => {
                let starts = std::iter::once(0).chain(runs.iter().map(|(end, _)| usize::from(*end)));
                let these = starts.zip(runs).filter(|(_, (_, of))| *of == number);
                let pages = these
                    .fold(PageBits::NONE, |pages, (start, (end, _))| pages | PageBits::of(start..usize::from(*end)));
                pages & within
            }
            Self::Each(numbers) => within.iter().filter(|page| numbers[*page] == number).collect(),
        }
    }

    /// The size of what is kept outside of this value, in bytes.
    pub(super) const fn own_bytes(&self) -> usize {
        match self {
            Self::Same(_) => 0,
            Self::Runs(runs) => size_of_val::<[_]>(runs),
            Self::Each(_) => size_of::<[SurveyNumber; BLOCK_PAGES]>(),
        }
    }
}

impl From<&[SurveyNumber; BLOCK_PAGES]> for Lasts {
    fn from(all: &[SurveyNumber; BLOCK_PAGES]) -> Self {
        let borders = all.windows(2).map(|pair| usize::from(pair[0] != pair[1])).sum::<usize>();
        match borders {
            0 => Self::Same(all[0]),
            MOST_RUNS.. => Self::Each(Box::new(*all)),
            _ => {
                let mut runs = Vec::with_capacity(borders + 1);
                let mut from = 0;
                for run in all.chunk_by(|a, b| a == b) {
                    from += run.len();
                    runs.push((from as u16, run[0]));
                }
                Self::Runs(runs.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn packed_numbers_are_those_that_were_packed(
            ends in prop::collection::btree_map(1..=BLOCK_PAGES, 0..9_u16, 0..400),
            rest in 0..9_u16,
        ) {
            let number = |page: usize| ends.range(page + 1..).next().map_or(rest, |(_, number)| *number);
            let number = |page| SurveyNumber::of(number(page));
            let all: [SurveyNumber; BLOCK_PAGES] = std::array::from_fn(number);
            let packed = Lasts::from(&all);
            prop_assert_eq!(packed.all(), all);
            prop_assert!((0..BLOCK_PAGES).all(|page| packed.of(page) == all[page]));
            let within = PageBits::of(100..300);
            let mut counts = std::collections::BTreeMap::new();
            packed.count(within, |number, pages| *counts.entry(number).or_insert(0) += pages);
            prop_assert_eq!(counts.values().sum::<u32>(), 200);
            for (number, pages) in counts {
                let these: Vec<usize> = (100..300).filter(|page| all[*page] == number).collect();
                prop_assert_eq!(packed.having(number, within).iter().collect::<Vec<_>>(), these.clone());
                prop_assert_eq!(these.len(), pages as usize);
            }
            prop_assert!(packed.own_bytes() <= size_of_val(&all));
        }
    }
}
