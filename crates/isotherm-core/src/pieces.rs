//! Ranges cut into pieces and pages.

use crate::{AddrRange, PAGE_SIZE};

impl AddrRange {
    /// The range in pieces that end at multiples of `size`, so that each but the first and the last has `size` bytes.
    /// `size` is
    /// not 0.
    pub fn pieces(self, size: u64) -> impl Iterator<Item = Self> {
        let mut start = self.start();
        std::iter::from_fn(move || {
            let border = (start / size + 1).saturating_mul(size);
            let piece = Self::new(start, border.min(self.end()))?;
            start = piece.end();
            Some(piece)
        })
    }

    /// The largest range inside of this one that begins and ends at multiples of `size`, which is not 0.
    pub fn aligned_inside(self, size: u64) -> Option<Self> {
        Self::new(self.start().checked_next_multiple_of(size)?, self.end() - self.end() % size)
    }

    /// The address of each page that begins in the range, if the range begins at a page.
    pub fn page_addresses(self) -> impl Iterator<Item = u64> + Clone {
        (self.start()..self.end()).step_by(PAGE_SIZE as usize)
    }
}

/// The parts of `ranges` that lie in none of the ranges of `known`. Both are sorted and disjoint.
pub(crate) fn uncovered<T>(
    ranges: impl IntoIterator<Item = AddrRange>,
    known: &[T],
    range_of: impl Fn(&T) -> AddrRange,
) -> Vec<AddrRange> {
    let mut parts = Vec::new();
    let mut rest = known;
    for range in ranges {
        rest = &rest[rest.partition_point(|known| range_of(known).end() <= range.start())..];
        let mut from = range.start();
        for known in rest.iter().map(&range_of).take_while(|known| known.start() < range.end()) {
            parts.extend(AddrRange::new(from, known.start()));
            from = known.end();
        }
        parts.extend(AddrRange::new(from, range.end()));
    }
    parts
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_covered_lies_before_between_and_after_what_is() {
        let range = |(start, end)| AddrRange::new(start, end).unwrap();
        let uncovered = |ranges: &[(u64, u64)], known: &[(u64, u64)]| {
            let parts = uncovered(ranges.iter().copied().map(range), known, |known| range(*known));
            parts.into_iter().map(|part| (part.start(), part.end())).collect::<Vec<_>>()
        };
        assert_eq!(uncovered(&[(0, 10), (20, 30)], &[]), [(0, 10), (20, 30)]);
        assert_eq!(uncovered(&[(0, 10), (20, 30)], &[(5, 25)]), [(0, 5), (25, 30)]);
        assert_eq!(uncovered(&[(10, 40)], &[(0, 12), (15, 20), (20, 22), (39, 50)]), [(12, 15), (22, 39)]);
        assert_eq!(uncovered(&[(10, 40), (40, 50)], &[(10, 50)]), []);
    }
}
