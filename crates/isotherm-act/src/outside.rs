//! Acting from outside: gives advice on many ranges of a process in several calls, and counts what the kernel refused.

use std::collections::VecDeque;

use isotherm_core::AddrRange;
use isotherm_core::scheme::{HUGE_PAGE_SIZE, Outcome, Refusal};
use rustix::io::Errno;

use super::refusal::{NOT_MAPPED, refusal};
use isotherm_kernel::madvise::{Advice, RANGES_A_CALL};

/// The maximum number of bytes in one call. The kernel holds the lock of the target's memory map during a call, and a
/// request to stop waits for the end of the call. It is a multiple of the size of a huge page, so that none is cut.
const BYTES_A_CALL: u64 = 4 << 20;

/// The memory of a process, and the kernel's calls on it.
pub(super) trait Memory {
    /// Gives the advice on the ranges in their order. Returns how many ranges the kernel processed completely.
    ///
    /// # Errors
    /// Returns the kernel's error if the first range fails.
    fn advise(&mut self, ranges: &[AddrRange], advice: Advice) -> Result<usize, Errno>;

    /// The current mappings, one range each: sorted and disjoint.
    ///
    /// # Errors
    /// Fails if the process has ended, or its mappings cannot be read.
    fn mapped(&mut self) -> Result<Vec<AddrRange>, Errno>;
}

/// A part of one of the ranges.
#[derive(Clone, Copy, Debug)]
struct Piece {
    range: AddrRange,
    /// The index of the range that the piece is a part of.
    index: usize,
    /// Whether a refusal holds for the whole piece, because it lies in one mapping or cannot be cut.
    whole: bool,
}

/// Gives the advice on all of `ranges`, and counts in `outcomes` what was applied and refused of each.
///
/// Unmapped memory is refused with `ENOMEM`. [`Advice::Collapse`] leaves out what is smaller than a huge page. If the
/// target has ended, or access to it is not permitted, all remaining memory is refused.
pub(super) fn advise_ranges(memory: &mut impl Memory, advice: Advice, ranges: &[AddrRange], outcomes: &mut [Outcome]) {
    advise_each(memory, advice, ranges, |index, piece, refusal| match refusal {
        None => outcomes[index].applied += piece.size(),
        Some(refusal) => outcomes[index].refuse(piece.size(), refusal),
    });
}

/// The same, piece by piece: calls `tell` with the index of a range, a piece of it, and why the piece was refused, if
/// it was.
pub(super) fn advise_each(
    memory: &mut impl Memory,
    advice: Advice,
    ranges: &[AddrRange],
    mut tell: impl FnMut(usize, AddrRange, Option<Refusal>),
) {
    let mut rest = ranges.iter().enumerate().flat_map(|(index, &range)| {
        pieces(range, advice).map(move |range| Piece { range, index, whole: advice == Advice::Collapse })
    });
    let mut waiting: VecDeque<Piece> = VecDeque::new();
    let mut mapped = None;
    let mut call = Vec::with_capacity(RANGES_A_CALL);
    loop {
        waiting.extend(rest.by_ref().take(RANGES_A_CALL.saturating_sub(waiting.len())));
        let mut bytes = 0;
        call.clear();
        call.extend(waiting.iter().map(|piece| piece.range).take(RANGES_A_CALL).take_while(|range| {
            bytes += range.size();
            bytes <= BYTES_A_CALL
        }));
        let Some(first) = waiting.front().copied() else {
            return;
        };
        let errno = match memory.advise(&call, advice) {
            Ok(done) if done > 0 => {
                waiting.drain(..done.min(call.len())).for_each(|piece| tell(piece.index, piece.range, None));
                continue;
            }
            Ok(_) => Errno::INVAL,
            Err(errno) => errno,
        };
        match errno {
            Errno::SRCH | Errno::PERM | Errno::NOSYS | Errno::BADF => {
                let left = waiting.drain(..).chain(rest);
                left.for_each(|piece| tell(piece.index, piece.range, Some(refusal(errno))));
                return;
            }
            errno if first.whole => {
                waiting.pop_front();
                tell(first.index, first.range, Some(refusal_of_mapping(advice, errno)));
            }
            // The kernel may have processed a part of the piece. The advice is repeated, one mapping at a time.
            _ => {
                waiting.pop_front();
                let mapped = mapped.get_or_insert_with(|| memory.mapped().unwrap_or_default());
                let hole = |range: AddrRange| tell(first.index, range, Some(NOT_MAPPED));
                let parts = cut_at_mappings(first.range, mapped, hole);
                parts.into_iter().rev().for_each(|range| waiting.push_front(Piece { range, whole: true, ..first }));
            }
        }
    }
}

/// Why advice on a part of one mapping was refused. Only [`Advice::Collapse`] needs memory. `ENOMEM` on other advice
/// means that the range has been unmapped meanwhile.
fn refusal_of_mapping(advice: Advice, errno: Errno) -> Refusal {
    match errno {
        Errno::NOMEM if advice != Advice::Collapse => NOT_MAPPED,
        errno => refusal(errno),
    }
}

/// Cuts `range` at multiples of [`BYTES_A_CALL`]. For [`Advice::Collapse`], the pieces are the aligned huge pages that
/// lie entirely in `range`.
fn pieces(range: AddrRange, advice: Advice) -> impl Iterator<Item = AddrRange> {
    let (range, size) = match advice {
        Advice::Collapse => (range.aligned_inside(HUGE_PAGE_SIZE), HUGE_PAGE_SIZE),
        _ => (Some(range), BYTES_A_CALL),
    };
    range.into_iter().flat_map(move |range| range.pieces(size))
}

/// The parts of `range` that are mapped, one for each mapping. Calls `hole` for each part that is not mapped.
pub(super) fn cut_at_mappings(
    range: AddrRange,
    mapped: &[AddrRange],
    mut hole: impl FnMut(AddrRange),
) -> Vec<AddrRange> {
    let first = mapped.partition_point(|mapping| mapping.end() <= range.start());
    let mut parts = Vec::new();
    let mut at = range.start();
    for part in mapped[first..].iter().map_while(|mapping| mapping.intersection(range)) {
        AddrRange::new(at, part.start()).into_iter().for_each(&mut hole);
        parts.push(part);
        at = part.end();
    }
    AddrRange::new(at, range.end()).into_iter().for_each(hole);
    parts
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use isotherm_core::PAGE_SIZE;
    use proptest::prelude::*;

    use super::*;

    /// A simulated process.
    #[derive(Default)]
    struct Simulated {
        /// The first page of each mapping, the page after its last one, and the error of advice on it.
        mappings: Vec<(u64, u64, Option<Errno>)>,
        /// The pages on which advice succeeded.
        advised: BTreeSet<u64>,
        /// The number of calls after which the process ends.
        calls_left: usize,
    }

    impl Simulated {
        fn advise_one(&mut self, range: AddrRange) -> Result<(), Errno> {
            let (start, end) = (range.start() / PAGE_SIZE, range.end() / PAGE_SIZE);
            let mut at = start;
            let mut hole = false;
            for &(first, last, error) in &self.mappings {
                let (first, last) = (first.max(start), last.min(end));
                if first >= last {
                    continue;
                }
                hole |= first > at;
                if let Some(errno) = error {
                    return Err(errno);
                }
                self.advised.extend(first..last);
                at = last;
            }
            if hole || at < end { Err(Errno::NOMEM) } else { Ok(()) }
        }
    }

    impl Memory for Simulated {
        fn advise(&mut self, ranges: &[AddrRange], _: Advice) -> Result<usize, Errno> {
            assert!((1..=RANGES_A_CALL).contains(&ranges.len()));
            assert!(ranges.iter().map(|range| range.size()).sum::<u64>() <= BYTES_A_CALL);
            self.calls_left = self.calls_left.checked_sub(1).ok_or(Errno::SRCH)?;
            for (done, range) in ranges.iter().enumerate() {
                match self.advise_one(*range) {
                    Err(errno) if done == 0 => return Err(errno),
                    Err(_) => return Ok(done),
                    Ok(()) => {}
                }
            }
            Ok(ranges.len())
        }

        fn mapped(&mut self) -> Result<Vec<AddrRange>, Errno> {
            let range = |&(start, end, _): &(u64, u64, _)| AddrRange::new(start * PAGE_SIZE, end * PAGE_SIZE);
            Ok(self.mappings.iter().filter_map(range).collect())
        }
    }

    /// A process with one mapping for each gap, size in pages, and number that chooses the error.
    fn simulated(layout: Vec<(u64, u64, u8)>) -> Simulated {
        let mut at = 0;
        let mut memory = Simulated { calls_left: usize::MAX, ..Simulated::default() };
        for (gap, pages, kind) in layout {
            let error = [Some(Errno::INVAL), Some(Errno::BUSY), None, None][usize::from(kind) % 4];
            memory.mappings.push((at + gap, at + gap + pages, error));
            at += gap + pages;
        }
        memory
    }

    fn ranges(layout: &[(u64, u64)]) -> Vec<AddrRange> {
        let mut at = 0;
        let mut ranges = Vec::new();
        for (gap, pages) in layout {
            ranges.extend(AddrRange::new((at + gap) * PAGE_SIZE, (at + gap + pages) * PAGE_SIZE));
            at += gap + pages;
        }
        ranges
    }

    proptest! {
        #[test]
        fn all_memory_that_allows_the_advice_is_advised_and_every_byte_is_counted(
            layout in prop::collection::vec((0..300_u64, 1..3000_u64, any::<u8>()), 0..12),
            wanted in prop::collection::vec((0..200_u64, 1..2500_u64), 1..40),
        ) {
            let mut memory = simulated(layout);
            let ranges = ranges(&wanted);
            let mut outcomes = vec![Outcome::default(); ranges.len()];
            advise_ranges(&mut memory, Advice::Cold, &ranges, &mut outcomes);
            for (range, outcome) in ranges.iter().zip(outcomes) {
                let pages = range.start() / PAGE_SIZE..range.end() / PAGE_SIZE;
                let allows = |page: &u64| {
                    memory.mappings.iter().any(|(first, end, error)| (first..end).contains(&page) && error.is_none())
                };
                let expected = pages.clone().filter(allows).count() as u64 * PAGE_SIZE;
                prop_assert_eq!(outcome.applied, expected);
                prop_assert_eq!(outcome.applied + outcome.refused, range.size());
                prop_assert_eq!(outcome.refused > 0, outcome.refusal.is_some());
                prop_assert!(pages.filter(allows).all(|page| memory.advised.contains(&page)));
            }
        }

        #[test]
        fn a_target_that_ends_refuses_the_rest(
            wanted in prop::collection::vec((0..200_u64, 1..2500_u64), 1..20),
            calls in 0..10_usize,
        ) {
            let mut memory = simulated(vec![(0, 1 << 20, 2)]);
            memory.calls_left = calls;
            let ranges = ranges(&wanted);
            let mut outcomes = vec![Outcome::default(); ranges.len()];
            advise_ranges(&mut memory, Advice::PageOut, &ranges, &mut outcomes);
            let advised = memory.advised.len() as u64 * PAGE_SIZE;
            prop_assert_eq!(outcomes.iter().map(|outcome| outcome.applied).sum::<u64>(), advised);
            for (range, outcome) in ranges.iter().zip(outcomes) {
                prop_assert_eq!(outcome.applied + outcome.refused, range.size());
                prop_assert!(outcome.refusal.is_none_or(|why| why == refusal(Errno::SRCH)));
            }
        }
    }

    #[test]
    fn only_whole_huge_pages_are_collapsed() {
        let mut memory = simulated(vec![(0, 2048, 2)]);
        // From the middle of the first huge page to the middle of the third.
        let ranges = [AddrRange::new(256 * PAGE_SIZE, 1280 * PAGE_SIZE).unwrap()];
        let mut outcomes = [Outcome::default()];
        advise_ranges(&mut memory, Advice::Collapse, &ranges, &mut outcomes);
        assert_eq!(outcomes[0], Outcome { applied: HUGE_PAGE_SIZE, ..Outcome::default() });
        assert_eq!(memory.advised, (512..1024).collect());
    }

    #[test]
    fn a_huge_page_that_cannot_be_made_is_refused_alone() {
        let mut memory = Simulated { calls_left: usize::MAX, ..Simulated::default() };
        memory.mappings = vec![(0, 512, None), (512, 1024, Some(Errno::AGAIN)), (1024, 1536, None)];
        let ranges = [AddrRange::new(0, 1536 * PAGE_SIZE).unwrap()];
        let mut outcomes = [Outcome::default()];
        advise_ranges(&mut memory, Advice::Collapse, &ranges, &mut outcomes);
        let busy = Some(refusal(Errno::AGAIN));
        let expected =
            Outcome { applied: 2 * HUGE_PAGE_SIZE, refused: HUGE_PAGE_SIZE, refusal: busy, ..Outcome::default() };
        assert_eq!(outcomes[0], expected);
    }
}
