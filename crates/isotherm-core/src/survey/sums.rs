//! Sums of bytes by what a survey says of them.

use super::{Kinds, WINDOWS};

/// Bytes of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageSums {
    /// Bytes in memory.
    pub present: u64,
    /// Bytes accessed since the survey before.
    pub touched: u64,
    /// Bytes that cannot be observed.
    pub unobservable: u64,
    /// Bytes for which it is not known whether they were accessed since the survey before. The other figures count them
    /// as accessed in the same share as the known memory; [`touched`](Self::touched) does so if there is known memory.
    pub unknown: u64,
    /// Bytes that are in swap, and so not in memory. `None` if the survey does not know.
    pub swapped: Option<u64>,
    /// Bytes by kind.
    pub kinds: Kinds,
    /// Bytes in memory that the target maps at a lower address too. They are counted there, and in no other sum here.
    pub mapped_again: u64,
    /// Bytes that were accessed within each of [`WINDOWS`] before the survey. A window that is shorter than the survey
    /// interval is estimated from how much was accessed in both of the last two intervals. If a window begins within an
    /// interval, the memory accessed in that interval counts by the part of the interval that lies in the window. A
    /// window that begins before the first survey counts what was accessed since that survey.
    pub within: [u64; WINDOWS.len()],
}

/// The sums of one mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MappingSums {
    /// The index of the mapping in [`TargetSurvey::mappings`](super::TargetSurvey::mappings).
    pub mapping: u32,
    /// Its bytes.
    pub sums: PageSums,
}

/// The sums over all targets, in which each page frame and each page in swap counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TotalSums {
    /// The sums. [`PageSums::unknown`] is that of the targets, in which shared pages may count several times.
    pub sums: PageSums,
    /// Bytes that more than one target maps, counted once.
    pub shared: u64,
}

impl PageSums {
    /// Adds other sums to these.
    pub fn add(&mut self, other: &Self) {
        self.present += other.present;
        self.touched += other.touched;
        self.unobservable += other.unobservable;
        self.unknown += other.unknown;
        self.mapped_again += other.mapped_again;
        self.swapped = match (self.swapped, other.swapped) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        };
        self.kinds += other.kinds;
        for (sum, bytes) in self.within.iter_mut().zip(other.within) {
            *sum += bytes;
        }
    }
}
