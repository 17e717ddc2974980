//! Large folios of files, which advice must not split.
//!
//! Given a part of a large folio, `MADV_COLD` and `MADV_PAGEOUT` split it. To split a folio of a file, the kernel
//! unmaps it, and neither maps nor frees its pages afterwards. So all of its pages, also those outside of the range,
//! cost a page fault at their next access, and nothing is gained. (Linux 6.18, ext4: of 446 MiB that were advised by
//! 400 KiB at a time, 24 MiB left memory, and 446 MiB by 2 MiB. docs/acting.md)
//!
//! Therefore advice is given on whole folios of files only, and on ranges that touch at once. Folios of anonymous
//! memory stay mapped when they are split.

use isotherm_core::scheme::{HUGE_PAGE_SIZE, Outcome, Refusal, RefusalReason};
use isotherm_core::{AddrRange, PAGE_SIZE, push_joined};
use isotherm_kernel::madvise::Advice;
use isotherm_kernel::pages::{FlagTable, Flags, PageBuffer, TableError};

use super::outside::{Memory, advise_each, cut_at_mappings};

/// Large folios of files in some ranges.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LargeFolios {
    /// Folios that advice can leave whole, and those that it would split: both sorted and disjoint.
    whole: Vec<AddrRange>,
    parts: Vec<AddrRange>,
    /// Both together.
    all: Vec<AddrRange>,
}

impl LargeFolios {
    /// Those of `pages`, which has the addresses and the page frames of pages of files, sorted by address. Advice would
    /// split folios that are not mapped as a whole by these pages, and those that cross a border of the 2 MiB that one
    /// page table maps, at which the kernel looks at a part of them.
    ///
    /// # Errors
    /// If the flags cannot be read.
    pub(super) fn find(table: &FlagTable, pages: &[(u64, u64)], buffer: &mut PageBuffer) -> Result<Self, TableError> {
        let flags = flags_of(table, pages, buffer)?;
        let mut found = Self::default();
        let mut at = 0;
        while at < pages.len() {
            let (addr, frame) = pages[at];
            if !flags[at].is_compound() {
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
                push_joined(if is_whole { &mut found.whole } else { &mut found.parts }, range);
                push_joined(&mut found.all, range);
            }
            at += count;
        }
        Ok(found)
    }
}

/// Gives the advice on `ranges`, which are sorted and disjoint, as [`advise_ranges`](super::outside::advise_ranges)
/// does, but for what is `left`. Folios that it would split are refused.
pub(super) fn advise_whole(
    memory: &mut impl Memory,
    advice: Advice,
    ranges: &[AddrRange],
    (folios, left): (&LargeFolios, &[AddrRange]),
    outcomes: &mut [Outcome],
) {
    let mut joined = Vec::with_capacity(ranges.len());
    ranges.iter().for_each(|range| push_joined(&mut joined, *range));
    let (mut others, mut small) = (Vec::with_capacity(joined.len()), Vec::with_capacity(joined.len()));
    joined.into_iter().for_each(|range| _ = cut_at_mappings(range, left, |rest| others.push(rest)));
    others.into_iter().for_each(|range| _ = cut_at_mappings(range, &folios.all, |rest| small.push(rest)));
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
    folios.parts.iter().for_each(|part| tell(*part, Some(RefusalReason::Busy.into())));
    let of_whole = if advice == Advice::PageOut { Advice::PageOutWhole } else { advice };
    for (advice, ranges) in [(advice, &small), (of_whole, &folios.whole)] {
        advise_each(memory, advice, ranges, |_, piece, refusal| tell(piece, refusal));
    }
}

/// The flags of the page frame of each page.
pub(super) fn flags_of(
    table: &FlagTable,
    pages: &[(u64, u64)],
    buffer: &mut PageBuffer,
) -> Result<Vec<Flags>, TableError> {
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

    fn range(from: u64, to: u64) -> AddrRange {
        AddrRange::new(from * PAGE_SIZE, to * PAGE_SIZE).unwrap()
    }

    /// A table in which frames 16 to 19 and 20 to 23 are folios, and all others are pages.
    fn table() -> (tempfile::TempDir, FlagTable) {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        let flags = (0..64_u64).map(|frame| match frame {
            16 | 20 => HEAD,
            17..24 => TAIL,
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
        let LargeFolios { whole, parts, .. } =
            LargeFolios::find(&table().1, &pages, &mut PageBuffer::default()).unwrap();
        [whole, parts]
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
        let folios = LargeFolios {
            whole: vec![range(2, 6)],
            parts: vec![range(6, 9), range(21, 22)],
            all: vec![range(2, 9), range(21, 22)],
        };
        let (mut memory, mut outcomes) = (Mapped::default(), [Outcome::default(); 4]);
        let left = [range(1, 2)];
        advise_whole(&mut memory, Advice::PageOut, &ranges, (&folios, &left), &mut outcomes);
        let small = [range(9, 10), range(20, 21)].map(|range| (Advice::PageOut, range));
        assert_eq!(memory.0, [&small[..], &[(Advice::PageOutWhole, range(2, 6))]].concat());
        let of = |outcome: &Outcome| (outcome.applied / PAGE_SIZE, outcome.refused / PAGE_SIZE);
        assert_eq!(outcomes.each_ref().map(of), [(2, 0), (2, 2), (1, 1), (1, 1)]);
        assert_eq!(outcomes[1].refusal, Some(RefusalReason::Busy.into()));
    }
}
