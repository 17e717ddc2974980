//! The sums of a survey: what is known of some bytes, and within which windows they were accessed.

use std::iter::Sum;
use std::ops::{Add, AddAssign};

use super::{Kinds, WINDOWS};
use crate::{Count, Figures, Mapping};

/// Sums of bytes, or of bytes multiplied by a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageSums<N = u64> {
    /// What is known of them.
    pub figures: Figures<N>,
    /// Bytes by kind.
    pub kinds: Kinds<N>,
    /// Bytes in memory that the target maps at a lower address too. They are counted there, and in no other sum here.
    pub mapped_again: N,
    /// Bytes that were accessed within each of [`WINDOWS`] before the survey. A window that is shorter than the survey
    /// interval is estimated from how much was accessed in both of the last two intervals. If a window begins within an
    /// interval, the memory accessed in that interval counts by the part of the interval that lies in the window. A
    /// window that begins before the first survey counts what was accessed since that survey.
    pub within: [N; WINDOWS.len()],
}

/// The place of a mapping among those of its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MappingIndex(u32);

impl MappingIndex {
    /// The place `index` among `mappings`. `None` if there are not so many.
    pub fn new(index: usize, mappings: &[Mapping]) -> Option<Self> {
        (index < mappings.len()).then(|| u32::try_from(index).ok().map(Self)).flatten()
    }

    /// Counted from 0.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The mapping, which is one of those that the index was made for.
    pub fn of(self, mappings: &[Mapping]) -> &Mapping {
        &mappings[self.0 as usize]
    }
}

/// The sums of one mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappingSums {
    /// Its place in [`TargetSurvey::mappings`](super::TargetSurvey::mappings).
    pub mapping: MappingIndex,
    /// Its bytes.
    pub sums: PageSums,
}

/// The sums over all targets, in which each page frame and each page in swap counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TotalSums {
    /// The sums. [`Figures::unknown`] is that of the targets, in which shared pages may count several times.
    pub sums: PageSums,
    /// Bytes that more than one target maps, counted once.
    pub shared: u64,
}

impl MappingSums {
    /// The sums of the mapping at place `index` among `mappings`. `None` if there are not so many.
    pub fn new(index: usize, mappings: &[Mapping], sums: PageSums) -> Option<Self> {
        Some(Self { mapping: MappingIndex::new(index, mappings)?, sums })
    }
}

impl<N: Count> PageSums<N> {
    /// The sums of memory of which no more than these figures is known.
    pub fn of(figures: Figures<N>) -> Self {
        Self { figures, ..Self::default() }
    }

    /// Each sum in another unit, or a part of it.
    #[must_use]
    pub fn map<M: Count>(self, mut change: impl FnMut(N) -> M) -> PageSums<M> {
        PageSums {
            figures: self.figures.map(&mut change),
            kinds: self.kinds.map(&mut change),
            mapped_again: change(self.mapped_again),
            within: self.within.map(change),
        }
    }
}

impl<N: Count> Add for PageSums<N> {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            figures: self.figures + other.figures,
            kinds: self.kinds + other.kinds,
            mapped_again: self.mapped_again.plus(other.mapped_again),
            within: std::array::from_fn(|nth| self.within[nth].plus(other.within[nth])),
        }
    }
}

impl<N: Count> AddAssign for PageSums<N> {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl<N: Count> Sum for PageSums<N> {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Add::add)
    }
}
