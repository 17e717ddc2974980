//! The pages whose accessed bits sampling has cleared since the last survey, so that the survey learns of the accesses.

use std::collections::HashMap;
use std::ops::Range;

use isotherm_core::AddrRange;
use isotherm_core::survey::{BLOCK_SIZE, PageBits};

/// Pages that were accessed before sampling cleared them. The key is the address of the block.
#[derive(Debug, Default)]
pub(super) struct Sampled(HashMap<u64, PageBits>);

impl Sampled {
    /// Adds all pages of `range`.
    pub(super) fn add(&mut self, range: AddrRange) {
        let mut start = range.start() - range.start() % BLOCK_SIZE;
        while start < range.end() {
            self.add_pages(start, PageBits::ALL, range);
            start += BLOCK_SIZE;
        }
    }

    /// Adds the `pages` of the block that begins at `start` and that lie in `range`.
    pub(super) fn add_pages(&mut self, start: u64, pages: PageBits, range: AddrRange) {
        *self.0.entry(start).or_default() |= pages & PageBits::within(start, range);
    }

    /// The pages of the block that begins at `start`.
    pub(super) fn at(&self, start: u64) -> PageBits {
        if self.0.is_empty() { PageBits::NONE } else { self.0.get(&start).copied().unwrap_or_default() }
    }

    /// Forgets the pages of the blocks that begin in `range`.
    pub(super) fn forget(&mut self, range: Range<u64>) {
        self.0.retain(|start, _| !range.contains(start));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_kept_by_block_until_they_are_forgotten() {
        let mut sampled = Sampled::default();
        let range = |start, end| AddrRange::new(start, end).unwrap();
        sampled.add(range(0x1f_f000, 0x20_1000));
        sampled.add_pages(0x20_0000, PageBits::ALL, range(0x20_3000, 0x20_5000));
        assert_eq!(sampled.at(0).iter().collect::<Vec<_>>(), [511]);
        assert_eq!(sampled.at(0x20_0000).iter().collect::<Vec<_>>(), [0, 3, 4]);
        assert!(sampled.at(0x40_0000).is_empty());
        sampled.forget(0x1000..0x20_1000);
        assert_eq!((sampled.at(0).count(), sampled.at(0x20_0000).count()), (1, 0));
    }
}
