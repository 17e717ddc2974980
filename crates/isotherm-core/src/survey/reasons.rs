//! Divides the unobservable bytes of each mapping by their reasons.

use super::kinds::{ByReason, Unseen};
use super::{PageHistory, TargetSurvey};
use crate::{AddrRange, PAGE_SIZE};

impl PageHistory {
    /// Tells why the unobservable memory of each mapping in `found` is so. `ranges` are those in which there is one
    /// reason, sorted and disjoint. Elsewhere, pages that the survey clears by itself are unobservable because several
    /// processes map them.
    pub(crate) fn tell_reasons(&self, found: &mut TargetSurvey, ranges: &[(AddrRange, Unseen)]) {
        for of in found.by_mapping.iter_mut().filter(|of| of.sums.figures.unobservable > 0) {
            let mapping = of.mapping.of(&found.mappings);
            // A part of the survey may have been counted before it was known what could not be cleared.
            let mut left = of.sums.figures.unobservable;
            let mut take = |pages: u64| {
                let bytes = left.min(pages * PAGE_SIZE);
                left -= bytes;
                bytes
            };
            let mut unseen = ByReason::default();
            let mut shared = self.unobservable_in(mapping.range).1;
            let first = ranges.partition_point(|(range, _)| range.end() <= mapping.range.start());
            let inside =
                ranges[first..].iter().map_while(|(range, why)| Some((range.intersection(mapping.range)?, why)));
            for (range, why) in inside {
                let (pages, of_shared) = self.unobservable_in(range);
                unseen[*why] += take(pages);
                shared -= of_shared;
            }
            unseen[Unseen::Shared] += take(shared);
            unseen[Unseen::Other] += left;
            of.sums.kinds.unseen = unseen;
        }
    }

    /// How many pages of a range are unobservable, and how many of these the survey clears by itself.
    fn unobservable_in(&self, range: AddrRange) -> (u64, u64) {
        let (to, from) = (self.counts_below(range.end()), self.counts_below(range.start()));
        (to.unobservable - from.unobservable, to.unobservable_shared - from.unobservable_shared)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::survey::{BLOCK_SIZE, BlockPages, Kinds, PageBits};
    use crate::{Mapping, TargetId};

    #[test]
    fn unobservable_memory_is_divided_by_reason_and_lazily_freed_memory_is_not_present() {
        let page = |page: u64| page * PAGE_SIZE;
        let range = |from, to| AddrRange::new(page(from), page(to)).unwrap();
        let mappings: Arc<[Mapping]> = [range(0, 300), range(300, 1024)].map(Mapping::anonymous).into();
        let pages = PageBits::of;
        let block = BlockPages {
            present: pages(0..400),
            accessed: pages(0..250),
            unobservable: pages(0..200),
            shared: pages(100..220),
            lazily_freed: pages(400..450),
            ..BlockPages::default()
        };
        let lazy = BlockPages { start: BLOCK_SIZE, lazily_freed: pages(0..10), ..BlockPages::default() };
        let mut history = PageHistory::default();
        history.take(&[block, lazy], Duration::ZERO);
        let history = Arc::new(history);
        let mut found = history.sums(TargetId::PhysicalMemory, &mappings);
        history.tell_reasons(&mut found, &[(range(20, 120), Unseen::Locked), (range(150, 160), Unseen::IoUring)]);
        let of = |nth: usize| found.by_mapping[nth].sums;
        assert_eq!((of(0).figures.present, of(1).figures.present), (page(300), page(100)));
        let expected = [(Unseen::Locked, 100), (Unseen::Shared, 70), (Unseen::IoUring, 10), (Unseen::Other, 20)];
        let unseen = expected.into_iter().map(|(why, pages)| (why, page(pages))).collect();
        assert_eq!(of(0).kinds, Kinds { lazily_freed: 0, unseen });
        assert_eq!(of(1).kinds, Kinds { lazily_freed: page(60), ..Kinds::default() });
        assert_eq!(found.total().kinds.unseen.sum(), found.total().figures.unobservable);
    }
}
