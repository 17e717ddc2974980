//! Sets of pages of one block.

use std::ops::{BitAnd, BitAndAssign, BitOr, BitOrAssign, Not, Range};

use crate::order::GOLDEN;
use crate::{AddrRange, PAGE_SIZE};

/// The number of pages in a block: those that one page of page-table entries maps on x86-64.
pub const BLOCK_PAGES: usize = 512;

const WORDS: usize = BLOCK_PAGES / 64;

/// A set of pages of one block, one bit for each page.
#[derive(Clone, Copy, Debug, Default, Eq, Hash)]
#[allow(clippy::derived_hash_with_manual_eq, reason = "the same words are equal, and have the same hash")]
pub struct PageBits([u64; WORDS]);

impl PageBits {
    /// No page.
    pub const NONE: Self = Self([0; WORDS]);

    /// Every page of the block.
    pub const ALL: Self = Self([u64::MAX; WORDS]);

    /// The pages with an index in `pages`, which ends at [`BLOCK_PAGES`] at most.
    pub fn of(pages: Range<usize>) -> Self {
        let below = |end: usize, word: usize| match end.saturating_sub(word * 64) {
            bits @ 0..64 => (1 << bits) - 1,
            _ => u64::MAX,
        };
        Self(std::array::from_fn(|word| below(pages.end, word) & !below(pages.start, word)))
    }

    /// The pages of the block that begins at `start` and that lie in `range`.
    pub fn within(start: u64, range: AddrRange) -> Self {
        let index = |addr: u64| (addr.saturating_sub(start) / PAGE_SIZE).min(BLOCK_PAGES as u64) as usize;
        Self::of(index(range.start())..index(range.end()))
    }

    /// The pages for whose index `holds` is true.
    pub fn from_fn(holds: impl Fn(usize) -> bool) -> Self {
        Self(std::array::from_fn(|word| (0..64).fold(0, |bits, bit| bits | u64::from(holds(word * 64 + bit)) << bit)))
    }

    /// The pages whose bits are set in `words`: page `n` is bit `n % 64` of word `n / 64`.
    pub const fn from_words(words: [u64; BLOCK_PAGES / 64]) -> Self {
        Self(words)
    }

    /// Whether the set holds the page with this index, which is below [`BLOCK_PAGES`].
    #[inline]
    pub const fn contains(&self, page: usize) -> bool {
        self.0[page / 64] >> (page % 64) & 1 == 1
    }

    /// Adds the page with this index, which is below [`BLOCK_PAGES`].
    #[inline]
    pub const fn insert(&mut self, page: usize) {
        self.0[page / 64] |= 1 << (page % 64);
    }

    /// The pages that differ from the page before: one of the two is in the set, and the other is not. The first page
    /// is one of them if it is in the set.
    pub(super) fn changes(&self) -> Self {
        let mut before = 0;
        Self(self.0.map(|word| {
            let shifted = word << 1 | before;
            before = word >> 63;
            word ^ shifted
        }))
    }

    /// How many pages the set holds.
    #[inline]
    pub fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// How many of the pages with an index below `end` the set holds.
    #[inline]
    pub fn count_below(&self, end: usize) -> usize {
        (*self & Self::of(0..end)).count()
    }

    /// Whether the set holds no page.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.iter().fold(0, |all, word| all | word) == 0
    }

    /// The indices of the pages, in rising order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + use<> {
        self.0.into_iter().enumerate().flat_map(|(index, mut word)| {
            std::iter::from_fn(move || {
                let bit = word.trailing_zeros() as usize;
                (bit < 64).then(|| {
                    word &= word - 1;
                    index * 64 + bit
                })
            })
        })
    }

    /// The lowest index of a page. `None` if the set is empty.
    #[inline]
    pub fn first(&self) -> Option<usize> {
        self.next(0)
    }

    /// The highest index of a page. `None` if the set is empty.
    pub fn last(&self) -> Option<usize> {
        let (index, word) = self.0.iter().enumerate().rfind(|(_, word)| **word != 0)?;
        Some(index * 64 + 63 - word.leading_zeros() as usize)
    }

    /// The runs of consecutive pages, in rising order.
    pub fn runs(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let bits = *self;
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = bits.next(at)?;
            at = (!bits).next(start).unwrap_or(BLOCK_PAGES);
            Some(start..at)
        })
    }

    /// The index of the `nth` page of the set, counted from 0. `None` if the set holds no more than `nth` pages.
    pub fn nth(&self, nth: usize) -> Option<usize> {
        let mut left = nth;
        for (index, &word) in self.0.iter().enumerate() {
            let here = word.count_ones() as usize;
            if left < here {
                let mut word = word;
                (0..left).for_each(|_| word &= word - 1);
                return Some(index * 64 + word.trailing_zeros() as usize);
            }
            left -= here;
        }
        None
    }

    /// A hash of the set.
    pub(super) fn mixed(&self) -> u64 {
        self.0.iter().fold(0, |mixed: u64, word| (mixed.rotate_left(7) ^ word).wrapping_mul(GOLDEN))
    }

    /// The first page of the set from index `from` on.
    #[inline]
    pub(super) fn next(&self, from: usize) -> Option<usize> {
        let mut index = from / 64;
        let mut word = self.0.get(index)? & (u64::MAX << (from % 64));
        while word == 0 {
            index += 1;
            word = *self.0.get(index)?;
        }
        Some(index * 64 + word.trailing_zeros() as usize)
    }
}

impl FromIterator<usize> for PageBits {
    fn from_iter<T: IntoIterator<Item = usize>>(pages: T) -> Self {
        let mut bits = Self::NONE;
        pages.into_iter().for_each(|page| bits.insert(page));
        bits
    }
}

impl PartialEq for PageBits {
    /// Compares all words, which takes less time than the call of a function that ends at the first difference.
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).fold(0, |all, (one, other)| all | (one ^ other)) == 0
    }
}

impl BitAnd for PageBits {
    type Output = Self;
    #[inline]
    fn bitand(self, other: Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] & other.0[word]))
    }
}

impl BitOr for PageBits {
    type Output = Self;
    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] | other.0[word]))
    }
}

impl Not for PageBits {
    type Output = Self;
    #[inline]
    fn not(self) -> Self {
        Self(self.0.map(|word| !word))
    }
}

impl BitAndAssign for PageBits {
    #[inline]
    fn bitand_assign(&mut self, other: Self) {
        *self = *self & other;
    }
}

impl BitOrAssign for PageBits {
    #[inline]
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_set_of_bits_is_a_set(
            pages in prop::collection::btree_set(0..BLOCK_PAGES, 0..BLOCK_PAGES),
            from in 0..BLOCK_PAGES,
            size in 0..BLOCK_PAGES,
        ) {
            let bits: PageBits = pages.iter().copied().collect();
            let range = from..(from + size).min(BLOCK_PAGES);
            prop_assert_eq!(bits.iter().collect::<BTreeSet<_>>(), pages.clone());
            prop_assert_eq!(bits.count(), pages.len());
            prop_assert_eq!(bits.count_below(from), pages.range(..from).count());
            prop_assert_eq!(bits.nth(from), pages.iter().nth(from).copied());
            prop_assert_eq!((bits & PageBits::of(range.clone())).count(), pages.range(range).count());
            prop_assert_eq!((!bits).count(), BLOCK_PAGES - pages.len());
            let ends = |run: Range<usize>| [run.start, run.end].into_iter().filter(|end| *end < BLOCK_PAGES);
            let changes: Vec<usize> = bits.runs().flat_map(ends).collect();
            prop_assert_eq!(bits.changes().iter().collect::<Vec<_>>(), changes);
            let of_runs: Vec<usize> = bits.runs().flatten().collect();
            prop_assert_eq!(of_runs, pages.into_iter().collect::<Vec<_>>());
            let runs: Vec<_> = bits.runs().collect();
            prop_assert!(runs.windows(2).all(|pair| pair[0].end < pair[1].start));
        }
    }
}
