//! Ranges laid end to end, without the gaps between them.

use crate::AddrRange;

/// Sorted and disjoint ranges, in which an address has an offset: how many bytes of the ranges lie below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackedRanges {
    ranges: Vec<AddrRange>,
    /// The offset of the start of each range.
    offsets: Vec<u64>,
    bytes: u64,
}

impl FromIterator<AddrRange> for PackedRanges {
    /// Takes ranges that are sorted and disjoint.
    fn from_iter<T: IntoIterator<Item = AddrRange>>(ranges: T) -> Self {
        let mut packed = Self::default();
        for range in ranges {
            packed.ranges.push(range);
            packed.offsets.push(packed.bytes);
            packed.bytes += range.size();
        }
        packed
    }
}

impl PackedRanges {
    /// The size of all ranges together, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many bytes of the ranges lie below `addr`.
    #[inline]
    pub fn offset_of(&self, addr: u64) -> u64 {
        let index = self.ranges.partition_point(|range| range.end() <= addr);
        match self.ranges.get(index) {
            Some(range) => self.offsets[index] + addr.saturating_sub(range.start()),
            None => self.bytes,
        }
    }

    /// The address that has `offset` bytes of the ranges below it. From the last byte on, the end of the last range; 0
    /// if there
    /// is no range.
    pub fn address_at(&self, offset: u64) -> u64 {
        let index = self.index_at(offset);
        self.ranges.get(index).map_or(0, |range| range.start() + (offset - self.offsets[index]).min(range.size()))
    }

    /// The parts of ranges between two offsets, each with the index of its range.
    pub fn between(&self, from: u64, to: u64) -> impl Iterator<Item = (usize, AddrRange)> {
        let indices = self.index_at(from)..self.ranges.len();
        indices.take_while(move |&index| self.offsets[index] < to).filter_map(move |index| {
            let (range, offset) = (self.ranges[index], self.offsets[index]);
            let start = range.start() + from.saturating_sub(offset);
            let end = range.start() + (to - offset).min(range.size());
            Some((index, AddrRange::new(start, end)?))
        })
    }

    /// The index of the range that has the byte at `offset`; of the last one beyond the end.
    fn index_at(&self, offset: u64) -> usize {
        self.offsets.partition_point(|&start| start <= offset).saturating_sub(1)
    }
}
