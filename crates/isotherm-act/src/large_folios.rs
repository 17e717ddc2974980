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

use super::frames::add_page;
use super::outside::{Memory, advise_each, cut_at_mappings};

/// Gives the advice on `ranges`, which are sorted and disjoint, as [`advise_ranges`](super::outside::advise_ranges)
/// does, without the parts of folios in `parts`. They are refused.
pub(super) fn advise_whole(
    memory: &mut impl Memory,
    advice: Advice,
    ranges: &[AddrRange],
    parts: &[AddrRange],
    outcomes: &mut [Outcome],
) {
    let mut joined = Vec::with_capacity(ranges.len());
    ranges.iter().for_each(|range| push_joined(&mut joined, *range));
    let mut asked = Vec::with_capacity(joined.len());
    for range in joined {
        cut_at_mappings(range, parts, |rest| asked.push(rest));
    }
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
    parts.iter().for_each(|part| tell(*part, Some(RefusalReason::Busy.into())));
    advise_each(memory, advice, &asked, |_, piece, refusal| tell(piece, refusal));
}

/// The pages among `pages` in large folios that advice would split: folios that are not mapped as a whole by these
/// pages, and those that cross a border of the 2 MiB that one page table maps, at which the kernel looks at a part of
/// them. `pages` has the addresses and the page frames of pages of files, sorted by address.
///
/// # Errors
/// If the flags cannot be read.
pub(super) fn parts_of_folios(
    table: &FlagTable,
    pages: &[(u64, u64)],
    buffer: &mut PageBuffer,
) -> Result<Vec<AddrRange>, TableError> {
    let flags = flags_of(table, pages, buffer)?;
    let mut parts = Vec::new();
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
        let end = (at + 1..pages.len()).find(|nth| !follows(*nth)).unwrap_or(pages.len());
        let size = (end - at) as u64 * PAGE_SIZE;
        let is_in_one_table = addr / HUGE_PAGE_SIZE == (addr + size - PAGE_SIZE) / HUGE_PAGE_SIZE;
        let next = frame + (end - at) as u64;
        let is_whole =
            flags[at].is_head() && is_in_one_table && !table.flags(next)?.is_some_and(|flags| flags.is_tail());
        if !is_whole {
            pages[at..end].iter().for_each(|(addr, _)| add_page(&mut parts, *addr));
        }
        at = end;
    }
    Ok(parts)
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

    /// The parts of folios among pages with these numbers and frames.
    fn parts(pages: impl IntoIterator<Item = (u64, u64)>) -> Vec<AddrRange> {
        let pages: Vec<(u64, u64)> = pages.into_iter().map(|(page, frame)| (page * PAGE_SIZE, frame)).collect();
        parts_of_folios(&table().1, &pages, &mut PageBuffer::default()).unwrap()
    }

    #[test]
    fn folios_of_which_only_a_part_is_there_are_parts() {
        let of = |frames: std::ops::Range<u64>| parts(frames.map(|frame| (frame + 100, frame)));
        assert_eq!(of(10..30), []);
        assert_eq!(of(18..30), [range(118, 120)]);
        assert_eq!(of(10..21), [range(120, 121)]);
        assert_eq!(of(17..23), [range(117, 123)]);
        // One page of a folio is not mapped.
        let holed = (10..30).filter(|frame| *frame != 18).map(|frame| (frame + 100, frame));
        assert_eq!(parts(holed), [range(116, 118), range(119, 120)]);
    }

    #[test]
    fn folios_that_are_mapped_in_another_order_or_in_two_page_tables_are_parts() {
        assert_eq!(parts([(1, 17), (2, 16), (3, 18), (4, 19)]), [range(1, 5)]);
        assert_eq!(parts((0..4).map(|nth| (508 + nth, 16 + nth))), []);
        assert_eq!(parts((0..4).map(|nth| (510 + nth, 16 + nth))), [range(510, 514)]);
    }

    #[test]
    fn parts_of_folios_are_refused_and_ranges_that_touch_are_advised_at_once() {
        /// A process all of whose memory is mapped, and the ranges of its calls.
        #[derive(Default)]
        struct Mapped(Vec<AddrRange>);

        impl Memory for Mapped {
            fn advise(&mut self, ranges: &[AddrRange], _: Advice) -> Result<usize, rustix::io::Errno> {
                self.0.extend(ranges);
                Ok(ranges.len())
            }

            fn mapped(&mut self) -> Result<Vec<AddrRange>, rustix::io::Errno> {
                Ok(vec![range(0, 1 << 30)])
            }
        }

        let ranges = [range(1, 4), range(4, 8), range(8, 10), range(20, 22)];
        let parts = [range(6, 9), range(21, 22)];
        let (mut memory, mut outcomes) = (Mapped::default(), [Outcome::default(); 4]);
        advise_whole(&mut memory, Advice::PageOut, &ranges, &parts, &mut outcomes);
        assert_eq!(memory.0, [range(1, 6), range(9, 10), range(20, 21)]);
        let of = |outcome: &Outcome| (outcome.applied / PAGE_SIZE, outcome.refused / PAGE_SIZE);
        assert_eq!(outcomes.each_ref().map(of), [(3, 0), (2, 2), (1, 1), (1, 1)]);
        assert_eq!(outcomes[1].refusal, Some(RefusalReason::Busy.into()));
    }
}
