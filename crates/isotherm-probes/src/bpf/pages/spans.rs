//! The ranges of addresses that are cleared together.

use std::ops::Range;

use isotherm_core::survey::PageBits;
use isotherm_core::{AddrRange, PAGE_SIZE};

/// Two ranges are joined over at most this many present pages. A range costs 4 to 6 µs, and a page in it 65 ns.
const MOST_PASSED: usize = 64;

/// Builds ranges from runs of pages. Runs are joined over absent pages and over some idle ones.
#[derive(Debug, Default)]
pub(super) struct Spans {
    /// Sorted and disjoint; each lies in one mapping.
    list: Vec<AddrRange>,
    /// The address up to which pages were added.
    at: u64,
    /// The mapping of these pages.
    mapping: usize,
    /// The number of present pages from the end of the last range to `at`. `None` if the range cannot be extended.
    passed: Option<usize>,
}

impl Spans {
    /// Removes all ranges.
    pub(super) fn clear(&mut self) {
        *self = Self { list: std::mem::take(&mut self.list), ..Self::default() };
        self.list.clear();
    }

    /// The ranges.
    pub(super) fn list(&self) -> &[AddrRange] {
        &self.list
    }

    /// Adds the `pages` in the part `within` of the block that begins at `start`. All of the part is in the mapping
    /// with this index. No range passes over the pages in `stop`.
    pub(super) fn add(
        &mut self,
        start: u64,
        mapping: usize,
        within: Range<usize>,
        pages: PageBits,
        present: PageBits,
        stop: PageBits,
    ) {
        let addr = |page: usize| start + page as u64 * PAGE_SIZE;
        if mapping != self.mapping || addr(within.start) != self.at {
            self.passed = None;
        }
        let pass = |passed: Option<usize>, gap: Range<usize>| {
            let gap = PageBits::of(gap);
            let passed = passed? + (gap & present).count();
            ((gap & stop).is_empty() && passed <= MOST_PASSED).then_some(passed)
        };
        let mut at = within.start;
        for run in (pages & PageBits::of(within.clone())).runs() {
            let joined = pass(self.passed, at..run.start)
                .and_then(|_| self.list.pop_if(|_| true))
                .and_then(|last| AddrRange::new(last.start(), addr(run.end)));
            self.list.extend(joined.or_else(|| AddrRange::new(addr(run.start), addr(run.end))));
            self.passed = Some(0);
            at = run.end;
        }
        self.passed = pass(self.passed, at..within.end);
        (self.at, self.mapping) = (addr(within.end), mapping);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 0x20_0000;

    fn bits(pages: &[usize]) -> PageBits {
        pages.iter().copied().collect()
    }

    fn ranges(spans: &Spans) -> Vec<(u64, u64)> {
        spans.list().iter().map(|range| (range.start() / PAGE_SIZE, range.end() / PAGE_SIZE)).collect()
    }

    #[test]
    fn runs_are_joined_over_absent_and_few_idle_pages_and_not_over_a_stop() {
        let mut spans = Spans::default();
        let none = PageBits::NONE;
        spans.add(0, 0, 0..512, bits(&[1, 2, 70, 400, 401, 410]), PageBits::of(0..128), bits(&[405]));
        // 67 idle pages are too many, and 330 pages of which 57 are present are not.
        assert_eq!(ranges(&spans), [(1, 3), (70, 402), (410, 411)]);
        spans.add(BLOCK, 0, 0..512, bits(&[5]), none, none);
        assert_eq!(ranges(&spans), [(1, 3), (70, 402), (410, 518)], "the next block");
        spans.add(2 * BLOCK, 1, 0..512, bits(&[5]), none, none);
        spans.add(4 * BLOCK, 1, 0..512, bits(&[5]), none, none);
        assert_eq!(ranges(&spans)[3..], [(1029, 1030), (2053, 2054)], "another mapping, and a gap");
        spans.clear();
        assert!(spans.list().is_empty());
    }
}
