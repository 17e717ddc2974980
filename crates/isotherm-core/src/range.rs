//! Ranges of addresses: half-open and never empty.

use std::fmt;
use std::ops::Range;

/// The smallest size of a region, in bytes: a base page of x86-64.
pub const PAGE_SIZE: u64 = 4096;

/// A half-open range of addresses `start..end`, in bytes. It holds at least one byte.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddrRange {
    start: u64,
    end: u64,
}

impl AddrRange {
    /// The range `start..end`, or `None` if it is empty or reversed.
    pub const fn new(start: u64, end: u64) -> Option<Self> {
        if start < end { Some(Self { start, end }) } else { None }
    }

    /// The first address.
    pub const fn start(self) -> u64 {
        self.start
    }

    /// The address after the last one.
    pub const fn end(self) -> u64 {
        self.end
    }

    /// The size in bytes; never zero.
    pub const fn size(self) -> u64 {
        self.end - self.start
    }

    /// The size in whole pages, rounded down.
    pub const fn pages(self) -> u64 {
        self.size() / PAGE_SIZE
    }

    /// Whether `addr` lies in the range.
    pub const fn contains(self, addr: u64) -> bool {
        self.start <= addr && addr < self.end
    }

    /// The part that both ranges have in common, or `None` if they are disjoint.
    #[inline]
    pub fn intersection(self, other: Self) -> Option<Self> {
        Self::new(self.start.max(other.start), self.end.min(other.end))
    }

    /// The parts below and above `at`, or `None` if one of them is empty.
    pub fn split_at(self, at: u64) -> Option<(Self, Self)> {
        Some((Self::new(self.start, at)?, Self::new(at, self.end)?))
    }

    /// Whether `other` begins where this range ends.
    pub const fn touches(self, other: Self) -> bool {
        self.end == other.start
    }
}

/// Appends a range to others. If it begins where the last one ends, both become one.
///
/// ```
/// use isotherm_core::{AddrRange, push_joined};
///
/// let range = |start, end| AddrRange::new(start, end).unwrap();
/// let mut ranges = vec![];
/// for next in [range(0, 2), range(2, 3), range(5, 6)] {
///     push_joined(&mut ranges, next);
/// }
/// assert_eq!(ranges, [range(0, 3), range(5, 6)]);
/// ```
pub fn push_joined(ranges: &mut Vec<AddrRange>, next: AddrRange) {
    match ranges.last_mut() {
        Some(last) if last.touches(next) => last.end = next.end,
        _ => ranges.push(next),
    }
}

impl From<AddrRange> for Range<u64> {
    fn from(range: AddrRange) -> Self {
        range.start..range.end
    }
}

impl fmt::Debug for AddrRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}..{:#x}", self.start, self.end)
    }
}

impl fmt::Display for AddrRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}", self.start, self.end)
    }
}
