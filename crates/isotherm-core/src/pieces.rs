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
