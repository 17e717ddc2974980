//! Acting from outside: advice on many ranges of a process, call by call, with an account of what the kernel refused.

use std::collections::VecDeque;

use isotherm_core::AddrRange;
use isotherm_core::scheme::{HUGE_PAGE_SIZE, Outcome, Refusal};
use rustix::io::Errno;

use super::refusal::{NOT_MAPPED, refusal};
use isotherm_kernel::madvise::{Advice, RANGES_A_CALL};

/// So much is advised by one call at most: for as long the kernel holds the target's map, and so late is a stop
/// noticed.
/// It is a multiple of a huge page, so that none is cut.
const BYTES_A_CALL: u64 = 4 << 20;

/// The memory of a process, and the kernel that is asked.
pub(super) trait Memory {
    /// Gives the advice on the ranges in their order, and tells on how many it was taken; an error is that of the
    /// first.
    fn advise(&mut self, ranges: &[AddrRange], advice: Advice) -> Result<usize, Errno>;

    /// What is mapped now: sorted and disjoint, a range a mapping.
    fn mapped(&mut self) -> Result<Vec<AddrRange>, Errno>;
}

/// A part of one of the ranges.
#[derive(Clone, Copy, Debug)]
struct Piece {
    range: AddrRange,
    /// The index of that range.
    of: usize,
    /// Whether a refusal holds for all of it: it lies in one mapping, or cannot be cut.
    whole: bool,
}

/// Gives the advice on all of `ranges`, and accounts in `outcomes` for each.
///
/// What is outside the target's mappings is refused with `ENOMEM`. Where huge pages are made, what is less than one
/// is left out. A target that has gone, or that may not be acted on, refuses all that is left.
pub(super) fn advise_ranges(memory: &mut impl Memory, advice: Advice, ranges: &[AddrRange], outcomes: &mut [Outcome]) {
    let mut rest = ranges.iter().enumerate().flat_map(|(of, &range)| {
        pieces(range, advice).map(move |range| Piece { range, of, whole: advice == Advice::Collapse })
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
                for piece in waiting.drain(..done.min(call.len())) {
                    outcomes[piece.of].applied += piece.range.size();
                }
                continue;
            }
            Ok(_) => Errno::INVAL,
            Err(errno) => errno,
        };
        match errno {
            Errno::SRCH | Errno::PERM | Errno::NOSYS | Errno::BADF => {
                waiting
                    .drain(..)
                    .chain(rest)
                    .for_each(|piece| outcomes[piece.of].refuse(piece.range.size(), refusal(errno)));
                return;
            }
            errno if first.whole => {
                waiting.pop_front();
                outcomes[first.of].refuse(first.range.size(), refusal_of_mapping(advice, errno));
            }
            // Some of it may have been done and some not: it is done again, a mapping at a time.
            _ => {
                waiting.pop_front();
                let mapped = mapped.get_or_insert_with(|| memory.mapped().unwrap_or_default());
                let hole = |range: AddrRange| outcomes[first.of].refuse(range.size(), NOT_MAPPED);
                let parts = cut_at_mappings(first.range, mapped, hole);
                parts.into_iter().rev().for_each(|range| waiting.push_front(Piece { range, whole: true, ..first }));
            }
        }
    }
}

/// Why advice on a part of one mapping was refused. Only the making of huge pages needs memory; to other advice
/// `ENOMEM` says that
/// the mapping has gone in the meantime.
fn refusal_of_mapping(advice: Advice, errno: Errno) -> Refusal {
    match errno {
        Errno::NOMEM if advice != Advice::Collapse => NOT_MAPPED,
        errno => refusal(errno),
    }
}

/// `range` in pieces of a call's size, that end at multiples of it; for huge pages, those that lie in it whole.
fn pieces(range: AddrRange, advice: Advice) -> impl Iterator<Item = AddrRange> {
    let (range, size) = match advice {
        Advice::Collapse => (range.aligned_inside(HUGE_PAGE_SIZE), HUGE_PAGE_SIZE),
        _ => (Some(range), BYTES_A_CALL),
    };
    range.into_iter().flat_map(move |range| range.pieces(size))
}

/// The parts of `range` that lie in mappings, a mapping each; tells what lies in none.
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

    /// A process and its kernel: mappings in pages, some of which refuse, and what was advised.
    #[derive(Default)]
    struct Made {
        mappings: Vec<(u64, u64, Option<Errno>)>,
        advised: BTreeSet<u64>,
        /// The process goes after so many calls.
        calls_left: usize,
    }

    impl Made {
        fn one(&mut self, range: AddrRange) -> Result<(), Errno> {
            let (start, end) = (range.start() / PAGE_SIZE, range.end() / PAGE_SIZE);
            let mut at = start;
            let mut hole = false;
            for &(from, to, refuses) in &self.mappings {
                let (from_here, to_here) = (from.max(start), to.min(end));
                if from_here >= to_here {
                    continue;
                }
                hole |= from_here > at;
                if let Some(errno) = refuses {
                    return Err(errno);
                }
                self.advised.extend(from_here..to_here);
                at = to_here;
            }
            if hole || at < end { Err(Errno::NOMEM) } else { Ok(()) }
        }
    }

    impl Memory for Made {
        fn advise(&mut self, ranges: &[AddrRange], _: Advice) -> Result<usize, Errno> {
            assert!((1..=RANGES_A_CALL).contains(&ranges.len()));
            assert!(ranges.iter().map(|range| range.size()).sum::<u64>() <= BYTES_A_CALL);
            self.calls_left = self.calls_left.checked_sub(1).ok_or(Errno::SRCH)?;
            for (done, range) in ranges.iter().enumerate() {
                match self.one(*range) {
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

    fn made(layout: Vec<(u64, u64, u8)>) -> Made {
        let mut at = 0;
        let mut made = Made { calls_left: usize::MAX, ..Made::default() };
        for (gap, pages, kind) in layout {
            let refuses = [Some(Errno::INVAL), Some(Errno::BUSY), None, None][usize::from(kind) % 4];
            made.mappings.push((at + gap, at + gap + pages, refuses));
            at += gap + pages;
        }
        made
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
        fn all_that_the_kernel_takes_is_advised_and_every_byte_is_accounted_for(
            layout in prop::collection::vec((0..300_u64, 1..3000_u64, any::<u8>()), 0..12),
            wanted in prop::collection::vec((0..200_u64, 1..2500_u64), 1..40),
        ) {
            let mut made = made(layout);
            let ranges = ranges(&wanted);
            let mut outcomes = vec![Outcome::default(); ranges.len()];
            advise_ranges(&mut made, Advice::Cold, &ranges, &mut outcomes);
            for (range, outcome) in ranges.iter().zip(outcomes) {
                let pages = range.start() / PAGE_SIZE..range.end() / PAGE_SIZE;
                let willing = |page: &u64| {
                    made.mappings.iter().any(|(start, end, refuses)| {
                        (start..end).contains(&page) && refuses.is_none()
                    })
                };
                let expected = pages.clone().filter(willing).count() as u64 * PAGE_SIZE;
                prop_assert_eq!(outcome.applied, expected);
                prop_assert_eq!(outcome.applied + outcome.refused, range.size());
                prop_assert_eq!(outcome.refused > 0, outcome.refusal.is_some());
                prop_assert!(pages.filter(willing).all(|page| made.advised.contains(&page)));
            }
        }

        #[test]
        fn a_target_that_goes_refuses_the_rest(
            wanted in prop::collection::vec((0..200_u64, 1..2500_u64), 1..20),
            calls in 0..10_usize,
        ) {
            let mut made = made(vec![(0, 1 << 20, 2)]);
            made.calls_left = calls;
            let ranges = ranges(&wanted);
            let mut outcomes = vec![Outcome::default(); ranges.len()];
            advise_ranges(&mut made, Advice::PageOut, &ranges, &mut outcomes);
            let advised = made.advised.len() as u64 * PAGE_SIZE;
            prop_assert_eq!(outcomes.iter().map(|outcome| outcome.applied).sum::<u64>(), advised);
            for (range, outcome) in ranges.iter().zip(outcomes) {
                prop_assert_eq!(outcome.applied + outcome.refused, range.size());
                prop_assert!(outcome.refusal.is_none_or(|why| why == refusal(Errno::SRCH)));
            }
        }
    }

    #[test]
    fn huge_pages_are_made_of_whole_ones_only() {
        let mut made = made(vec![(0, 2048, 2)]);
        // From the middle of the first to the middle of the third.
        let ranges = [AddrRange::new(256 * PAGE_SIZE, 1280 * PAGE_SIZE).unwrap()];
        let mut outcomes = [Outcome::default()];
        advise_ranges(&mut made, Advice::Collapse, &ranges, &mut outcomes);
        assert_eq!(outcomes[0], Outcome { applied: HUGE_PAGE_SIZE, refused: 0, refusal: None });
        assert_eq!(made.advised, (512..1024).collect());
    }

    #[test]
    fn a_huge_page_that_cannot_be_made_is_refused_alone() {
        let mut made = Made { calls_left: usize::MAX, ..Made::default() };
        made.mappings = vec![(0, 512, None), (512, 1024, Some(Errno::AGAIN)), (1024, 1536, None)];
        let ranges = [AddrRange::new(0, 1536 * PAGE_SIZE).unwrap()];
        let mut outcomes = [Outcome::default()];
        advise_ranges(&mut made, Advice::Collapse, &ranges, &mut outcomes);
        let busy = Some(refusal(Errno::AGAIN));
        let expected = Outcome { applied: 2 * HUGE_PAGE_SIZE, refused: HUGE_PAGE_SIZE, refusal: busy };
        assert_eq!(outcomes[0], expected);
    }
}
