//! What advice leaves alone, because it would do harm and no good.
//!
//! *Parts of large folios of files.* Given a part of a large folio, `MADV_COLD` and `MADV_PAGEOUT` split it. To split a
//! folio of a file, the kernel unmaps it, and neither maps nor frees its pages afterwards. So all of its pages, also
//! those outside of the range, cost a page fault at their next access, and nothing is gained. (Linux 6.18, ext4: of 446
//! MiB that were advised by 400 KiB at a time, 24 MiB left memory, and 446 MiB by 2 MiB. docs/acting.md) Therefore
//! advice is given on whole folios of files only, and on ranges that touch at once. Folios of anonymous memory stay
//! mapped when they are split.
//!
//! *Memory that needs swap*, if there is no swap. `MADV_PAGEOUT` splits its huge pages, unmaps shared memory, and frees
//! nothing.

use isotherm_core::scheme::{HUGE_PAGE_SIZE, Outcome, Refusal, RefusalReason};
use isotherm_core::{AddrRange, PAGE_SIZE, push_joined};
use isotherm_kernel::madvise::Advice;
use isotherm_kernel::pages::{FlagTable, Flags, PageBuffer, TableError};

use super::frames::add_page;
use super::outside::{Memory, advise_each, cut_at_mappings};

/// How advice is given on some memory. All of it is sorted and disjoint.
#[derive(Debug, Default)]
pub(super) struct AdvicePlan {
    /// Large folios of files that advice can leave whole, and those that it would split.
    whole: Vec<AddrRange>,
    parts: Vec<AddrRange>,
    /// Both together.
    folios: Vec<AddrRange>,
    /// Memory that needs swap that there is not.
    no_swap: Vec<AddrRange>,
}

impl AdvicePlan {
    /// No advice on pages at these sorted addresses, which need swap that there is not.
    pub(super) fn without(addresses: impl Iterator<Item = u64>) -> Self {
        let mut plan = Self::default();
        addresses.for_each(|addr| add_page(&mut plan.no_swap, addr));
        plan
    }

    /// The plan for `pages`, which has addresses and page frames, sorted by address: pages of files, and anonymous ones
    /// unless there is swap for them. Advice would split folios of files that are not mapped as a whole by these pages,
    /// and those that cross a border of the 2 MiB that one page table maps, at which the kernel looks at a part of
    /// them.
    ///
    /// # Errors
    /// If the flags cannot be read.
    pub(super) fn of(
        table: &FlagTable,
        pages: &[(u64, u64)],
        has_swap: bool,
        buffer: &mut PageBuffer,
    ) -> Result<Self, TableError> {
        let flags = flags_of(table, pages, buffer)?;
        let heads = heads_of(table, pages, &flags)?;
        let mut plan = Self::default();
        let mut at = 0;
        while at < pages.len() {
            let ((addr, frame), head) = (pages[at], heads[at]);
            let needs_swap = !has_swap && head.needs_swap();
            if needs_swap {
                add_page(&mut plan.no_swap, addr);
            }
            if needs_swap || head.is_freed_lazily() || !flags[at].is_compound() {
                at += 1;
                continue;
            }
            let follows = |nth: usize| {
                let distance = (nth - at) as u64;
                pages[nth] == (addr + distance * PAGE_SIZE, frame + distance) && flags[nth].is_tail()
            };
            let count = (at + 1..pages.len()).take_while(|nth| follows(*nth)).count() + 1;
            let (end, next) = (addr + count as u64 * PAGE_SIZE, frame + count as u64);
            let is_in_one_table = addr / HUGE_PAGE_SIZE == (end - 1) / HUGE_PAGE_SIZE;
            let is_whole =
                flags[at].is_head() && is_in_one_table && !table.flags(next)?.is_some_and(|flags| flags.is_tail());
            if let Some(range) = AddrRange::new(addr, end) {
                push_joined(if is_whole { &mut plan.whole } else { &mut plan.parts }, range);
                push_joined(&mut plan.folios, range);
            }
            at += count;
        }
        Ok(plan)
    }
}

/// Gives the advice on `ranges`, which are sorted and disjoint, as [`advise_ranges`](super::outside::advise_ranges)
/// does, but by a plan for these ranges. What gets no advice is refused.
pub(super) fn advise_by_plan(
    memory: &mut impl Memory,
    advice: Advice,
    ranges: &[AddrRange],
    plan: &AdvicePlan,
    outcomes: &mut [Outcome],
) {
    let mut joined = Vec::with_capacity(ranges.len());
    ranges.iter().for_each(|range| push_joined(&mut joined, *range));
    let small = without(without(joined, &plan.no_swap), &plan.folios);
    let mut tell = |piece: AddrRange, refusal: Option<Refusal>| {
        let first = ranges.partition_point(|range| range.end() <= piece.start());
        for (range, outcome) in ranges.iter().zip(&mut *outcomes).skip(first) {
            let Some(part) = range.intersection(piece) else { break };
            match refusal {
                None => outcome.applied += part.size(),
                Some(refusal) => outcome.refuse(part.size(), refusal),
            }
        }
    };
    for (refused, why) in [(&plan.parts, RefusalReason::Busy), (&plan.no_swap, RefusalReason::NoSwap)] {
        refused.iter().for_each(|part| tell(*part, Some(why.into())));
    }
    let of_whole = if advice == Advice::PageOut { Advice::PageOutWhole } else { advice };
    for (advice, ranges) in [(advice, &small), (of_whole, &plan.whole)] {
        advise_each(memory, advice, ranges, |_, piece, refusal| tell(piece, refusal));
    }
}

/// What of `ranges` lies in none of `others`. Both are sorted and disjoint.
fn without(ranges: Vec<AddrRange>, others: &[AddrRange]) -> Vec<AddrRange> {
    let mut rest = Vec::with_capacity(ranges.len());
    ranges.into_iter().for_each(|range| _ = cut_at_mappings(range, others, |part| rest.push(part)));
    rest
}

/// The flags of the first frame of the folio of each page, which hold for all of it. `flags` has those of the pages.
fn heads_of(table: &FlagTable, pages: &[(u64, u64)], flags: &[Flags]) -> Result<Vec<Flags>, TableError> {
    let mut heads: Vec<Flags> = Vec::with_capacity(pages.len());
    for (nth, (&(_, frame), flags)) in pages.iter().zip(flags).enumerate() {
        let of_last = heads.last().copied().filter(|_| pages[nth - 1].1 + 1 == frame);
        heads.push(match (flags.is_tail(), of_last) {
            (false, _) => *flags,
            (true, Some(head)) => head,
            (true, None) => table.head(frame)?.unwrap_or_default().1,
        });
    }
    Ok(heads)
}

/// The flags of the page frame of each page.
fn flags_of(table: &FlagTable, pages: &[(u64, u64)], buffer: &mut PageBuffer) -> Result<Vec<Flags>, TableError> {
    let mut order: Vec<usize> = (0..pages.len()).collect();
    order.sort_unstable_by_key(|nth| pages[*nth].1);
    let mut flags = vec![Flags::default(); pages.len()];
    let mut next = order.iter();
    table.each(order.iter().map(|nth| pages[*nth].1), buffer, |found| {
        if let Some(nth) = next.next() {
            flags[*nth] = found;
        }
    })?;
    Ok(flags)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    const HEAD: u64 = 1 << 15;
    const TAIL: u64 = 1 << 16;
    const ANON: u64 = 1 << 12;
    const SWAP_BACKED: u64 = 1 << 14;

    fn range(from: u64, to: u64) -> AddrRange {
        AddrRange::new(from * PAGE_SIZE, to * PAGE_SIZE).unwrap()
    }

    /// A table in which frames 16 to 19 and 20 to 23 are folios of files, 32 to 35 is one of shared memory, and all
    /// others are pages: 40 and 41 of anonymous memory, of which the second was freed lazily.
    fn table() -> (tempfile::TempDir, FlagTable) {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        let flags = (0..64_u64).map(|frame| match frame {
            16 | 20 => HEAD,
            17..24 | 33..36 => TAIL,
            32 => HEAD | SWAP_BACKED,
            40 => ANON | SWAP_BACKED,
            41 => ANON,
            _ => 0,
        });
        let bytes: Vec<u8> = flags.flat_map(u64::to_ne_bytes).collect();
        std::fs::write(root.path().join("proc/kpageflags"), bytes).unwrap();
        let table = FlagTable::open(root.path()).unwrap();
        (root, table)
    }

    /// The whole folios and the parts of folios among pages with these numbers and frames.
    fn folios(pages: impl IntoIterator<Item = (u64, u64)>) -> [Vec<AddrRange>; 2] {
        let pages: Vec<(u64, u64)> = pages.into_iter().map(|(page, frame)| (page * PAGE_SIZE, frame)).collect();
        let plan = AdvicePlan::of(&table().1, &pages, true, &mut PageBuffer::default()).unwrap();
        [plan.whole, plan.parts]
    }

    #[test]
    fn folios_of_which_only_a_part_is_there_are_parts() {
        let of = |frames: std::ops::Range<u64>| folios(frames.map(|frame| (frame + 100, frame)));
        assert_eq!(of(10..30), [vec![range(116, 124)], vec![]]);
        assert_eq!(of(18..30), [vec![range(120, 124)], vec![range(118, 120)]]);
        assert_eq!(of(10..21), [vec![range(116, 120)], vec![range(120, 121)]]);
        assert_eq!(of(17..23), [vec![], vec![range(117, 123)]]);
        // One page of a folio is not mapped.
        let holed = (10..30).filter(|frame| *frame != 18).map(|frame| (frame + 100, frame));
        assert_eq!(folios(holed), [vec![range(120, 124)], vec![range(116, 118), range(119, 120)]]);
    }

    #[test]
    fn folios_that_are_mapped_in_another_order_or_in_two_page_tables_are_parts() {
        assert_eq!(folios([(1, 17), (2, 16), (3, 18), (4, 19)]), [vec![], vec![range(1, 5)]]);
        assert_eq!(folios((0..4).map(|nth| (508 + nth, 16 + nth))), [vec![range(508, 512)], vec![]]);
        assert_eq!(folios((0..4).map(|nth| (510 + nth, 16 + nth))), [vec![], vec![range(510, 514)]]);
    }

    #[test]
    fn without_swap_shared_and_anonymous_memory_is_left_but_not_what_was_freed_lazily() {
        let pages: Vec<(u64, u64)> = (16..48).map(|frame| ((frame + 100) * PAGE_SIZE, frame)).collect();
        let plan = AdvicePlan::of(&table().1, &pages, false, &mut PageBuffer::default()).unwrap();
        assert_eq!(plan.no_swap, [range(132, 136), range(140, 141)]);
        assert_eq!((plan.whole, plan.parts), (vec![range(116, 124)], vec![]));
    }

    #[test]
    fn parts_of_folios_are_refused_and_ranges_that_touch_are_advised_at_once() {
        /// A process all of whose memory is mapped, and the ranges of its calls.
        #[derive(Default)]
        struct Mapped(Vec<(Advice, AddrRange)>);

        impl Memory for Mapped {
            fn advise(&mut self, ranges: &[AddrRange], advice: Advice) -> Result<usize, rustix::io::Errno> {
                self.0.extend(ranges.iter().map(|range| (advice, *range)));
                Ok(ranges.len())
            }

            fn mapped(&mut self) -> Result<Vec<AddrRange>, rustix::io::Errno> {
                Ok(vec![range(0, 1 << 30)])
            }
        }

        let ranges = [range(1, 4), range(4, 8), range(8, 10), range(20, 22)];
        let plan = AdvicePlan {
            whole: vec![range(2, 6)],
            parts: vec![range(6, 9), range(21, 22)],
            folios: vec![range(2, 9), range(21, 22)],
            no_swap: vec![range(1, 2)],
        };
        let (mut memory, mut outcomes) = (Mapped::default(), [Outcome::default(); 4]);
        advise_by_plan(&mut memory, Advice::PageOut, &ranges, &plan, &mut outcomes);
        let small = [range(9, 10), range(20, 21)].map(|range| (Advice::PageOut, range));
        assert_eq!(memory.0, [&small[..], &[(Advice::PageOutWhole, range(2, 6))]].concat());
        let of = |outcome: &Outcome| (outcome.applied / PAGE_SIZE, outcome.refused / PAGE_SIZE);
        assert_eq!(outcomes.each_ref().map(of), [(2, 1), (2, 2), (1, 1), (1, 1)]);
        let why = [RefusalReason::NoSwap, RefusalReason::Busy, RefusalReason::Busy, RefusalReason::Busy];
        assert_eq!(outcomes.map(|outcome| outcome.refusal), why.map(|why| Some(why.into())));
    }
}
