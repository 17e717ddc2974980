//! The survey of all pages.

use isotherm_core::survey::{BLOCK_SIZE, BlockPages, ClearPages, PageBits, SurveyPart, Unseen};
use isotherm_core::{AccessProbe, AddrRange, TargetSpace};
use isotherm_probes::bpf::{BpfProbe, SharedLimits, SharedMemory};

use crate::target::Target;
use crate::watch::*;

/// A probe that clears nothing of the libraries that the target shares with other processes.
pub fn open_private() -> Result<BpfProbe, &'static str> {
    let mut probe = open()?;
    probe.set_shared_memory(SharedMemory::Never, SharedLimits::default());
    Ok(probe)
}

/// Reads all pages of the target, which must have been given to the probe.
pub fn survey(probe: &mut BpfProbe, target: &Target) -> Vec<BlockPages> {
    survey_of(probe, &space(target))
}

/// Reads all pages of a process, which must have been given to the probe.
pub fn survey_of(probe: &mut BpfProbe, space: &TargetSpace) -> Vec<BlockPages> {
    let survey = probe.survey().unwrap();
    survey.begin().unwrap();
    let mut blocks = Vec::new();
    survey.read(space, SurveyPart::ALL, &mut blocks).unwrap();
    assert!(blocks.windows(2).all(|pair| pair[0].start < pair[1].start), "sorted and merged");
    let some = |block: &BlockPages| !(block.present | block.lazily_freed).is_empty();
    assert!(blocks.iter().all(|block| block.start % BLOCK_SIZE == 0 && some(block)));
    blocks
}

/// Clears all pages of `range` that `blocks` say are accessed. Returns how many accessed bits were cleared, and what
/// the survey made of the request.
pub fn clear(
    probe: &mut BpfProbe,
    target: &Target,
    blocks: &[BlockPages],
    range: std::ops::Range<u64>,
) -> (u64, Vec<ClearPages>) {
    let mut chosen: Vec<_> = blocks
        .iter()
        .map(|block| ClearPages {
            start: block.start,
            pages: within(block, block.accessed & !block.unobservable, &range),
            unobservable: PageBits::NONE,
        })
        .filter(|pages| !pages.pages.is_empty())
        .collect();
    let cleared = probe.survey().unwrap().clear(space(target).id, &mut chosen).unwrap();
    (cleared, chosen)
}

/// The blocks of `done` that have a part of `range`.
fn blocks_in(mut done: Vec<ClearPages>, range: std::ops::Range<u64>) -> Vec<ClearPages> {
    done.retain(|block| block.start < range.end && range.start < block.start + BLOCK_SIZE);
    done
}

/// The `pages` of the block that lie in `range`.
fn within(block: &BlockPages, pages: PageBits, range: &std::ops::Range<u64>) -> PageBits {
    pages.iter().filter(|&page| range.contains(&(block.start + page as u64 * PAGE))).collect()
}

/// The number of pages in `range` for which `of` is set.
fn pages_in(blocks: &[BlockPages], range: &std::ops::Range<u64>, of: impl Fn(&BlockPages) -> PageBits) -> usize {
    blocks.iter().map(|block| within(block, of(block), range).count()).sum()
}

pub fn counts(blocks: &[BlockPages], range: std::ops::Range<u64>) -> (usize, usize, usize) {
    (
        pages_in(blocks, &range, |block| block.present),
        pages_in(blocks, &range, |block| block.accessed),
        pages_in(blocks, &range, |block| block.unobservable),
    )
}

/// Whether `found` is `expected`, but for a fiftieth: the kernel's DAMON clears accessed bits if it runs.
pub fn nearly(found: u64, expected: u64) -> bool {
    found.abs_diff(expected) * 50 <= expected
}

/// Reads and clears until all pages of the range are clear. New pages may wait on a processor before they can be
/// cleared.
pub fn settle(probe: &mut BpfProbe, target: &Target, range: &std::ops::Range<u64>) {
    for _ in 0..20 {
        let blocks = survey(probe, target);
        if counts(&blocks, range.clone()).1 == 0 {
            return;
        }
        clear(probe, target, &blocks, range.clone());
    }
    panic!("pages stay accessed: {:?}", counts(&survey(probe, target), range.clone()));
}

/// Makes the waiting new pages of all processors join the reclaim lists.
pub fn flush(target: &mut Target) {
    let start = target.map("small", 4 * MIB);
    target.write(start, 4 * MIB);
}

#[test]
fn every_page_that_was_accessed_is_found_and_no_other() {
    let mut probe = or_skip!(open_private());
    let mut target = Target::start();
    let start = target.map("small", 64 * MIB);
    // Only the first 40 MiB are present.
    let range = start..start + 64 * MIB;
    target.write(start, 40 * MIB);
    flush(&mut target);
    update(&mut probe, &[&target]);
    let first = survey(&mut probe, &target);
    assert_eq!(counts(&first, range.clone()).0 as u64, 40 * MIB / PAGE);
    settle(&mut probe, &target, &range);

    for round in 0..3 {
        let offset = MIB * (1 + 2 * round);
        let hot = start + offset + 5 * PAGE..start + offset + 5 * PAGE + 3 * MIB;
        target.read(hot.start, 3 * MIB);
        target.write(start + 30 * MIB, PAGE);
        let blocks = survey(&mut probe, &target);
        let found = counts(&blocks, hot.clone()).1 as u64;
        let single = counts(&blocks, start + 30 * MIB..start + 30 * MIB + PAGE).1 as u64;
        assert!(nearly(found, 3 * MIB / PAGE), "{found}");
        assert_eq!(counts(&blocks, range.clone()).1 as u64, found + single);
        let (cleared, done) = clear(&mut probe, &target, &blocks, range.clone());
        assert!(nearly(cleared, found + single), "{cleared} of {found}");
        let pages = done.iter().map(|block| block.pages.count() as u64).sum::<u64>();
        assert_eq!(pages, found + single);
        assert_eq!(counts(&survey(&mut probe, &target), range.clone()), (10_240, 0, 0));
    }
}

#[test]
fn only_the_chosen_pages_are_cleared() {
    let mut probe = or_skip!(open_private());
    let mut target = Target::start();
    let start = target.map("small", 8 * MIB);
    target.write(start, 8 * MIB);
    flush(&mut target);
    update(&mut probe, &[&target]);
    settle(&mut probe, &target, &(start..start + 8 * MIB));
    target.write(start, 8 * MIB);
    let blocks = survey(&mut probe, &target);
    let part = start + 3 * MIB + 7 * PAGE..start + 5 * MIB;
    let (cleared, _) = clear(&mut probe, &target, &blocks, part.clone());
    assert!(nearly(cleared, (2 * MIB - 7 * PAGE) / PAGE), "{cleared}");
    let after = survey(&mut probe, &target);
    assert_eq!(counts(&after, part).1, 0);
    assert!(nearly(counts(&after, start..start + 8 * MIB).1 as u64, 8 * MIB / PAGE - cleared));
}

#[test]
fn reserved_memory_counts_nothing() {
    let mut probe = or_skip!(open_private());
    let mut target = Target::start();
    let reserved = target.request(&format!("reserve none {}", 1u64 << 40));
    let open_ended = target.request(&format!("reserve read {}", 1u64 << 40));
    assert!(reserved > 4096 && open_ended > 4096);
    target.read(open_ended + (1 << 39), PAGE);
    update(&mut probe, &[&target]);
    let blocks = survey(&mut probe, &target);
    assert_eq!(counts(&blocks, reserved..reserved + (1 << 40)), (0, 0, 0));
    // The page was only read: it is the zero page, or the huge zero page, which is known once it was to be cleared.
    clear(&mut probe, &target, &blocks, open_ended..open_ended + (1 << 40));
    let blocks = survey(&mut probe, &target);
    assert_eq!(counts(&blocks, open_ended..open_ended + (1 << 40)), (0, 0, 0));
}

#[test]
fn pages_without_permission_are_memory_that_can_be_cleared_and_stays_idle() {
    for (kind, size) in [("small", MIB), ("huge", 4 * MIB)] {
        let mut probe = or_skip!(open_private()).with_sweeps(false);
        let mut target = Target::start();
        let start = target.map(kind, size);
        target.write(start, size);
        target.request(&format!("forbid {start} {size}"));
        update(&mut probe, &[&target]);
        let pages = (size / PAGE) as usize;
        assert_eq!(counts(&survey(&mut probe, &target), start..start + size), (pages, pages, 0), "{kind}");
        let blocks = survey(&mut probe, &target);
        clear(&mut probe, &target, &blocks, start..start + size);
        // The kernel does not clear the last pages that were faulted in: they are on no reclaim list yet.
        let (present, accessed, _) = counts(&survey(&mut probe, &target), start..start + size);
        assert!(present == pages && accessed < 32, "{kind}: {present}, {accessed}");
    }
}

#[test]
fn a_huge_page_is_one_and_is_never_split() {
    const SIZE: u64 = 8 * MIB;
    let mut probe = or_skip!(open_private());
    let mut target = Target::start();
    let start = target.map("huge", SIZE);
    target.write(start, SIZE);
    if smaps_kib(target.pid(), start, "AnonHugePages") * 1024 != SIZE {
        return isotherm_testing::skip("huge pages are not available");
    }
    update(&mut probe, &[&target]);
    for _ in 0..3 {
        target.write(start + 2 * MIB + 9 * PAGE, PAGE);
        let blocks = survey(&mut probe, &target);
        assert!(blocks.iter().filter(|block| (start..start + SIZE).contains(&block.start)).all(|block| block.huge));
        clear(&mut probe, &target, &blocks, start..start + SIZE);
        assert_eq!(counts(&survey(&mut probe, &target), start..start + SIZE), (2048, 0, 0));
        assert_eq!(smaps_kib(target.pid(), start, "AnonHugePages") * 1024, SIZE);
    }
    // The kernel's DAMON often clears the accessed bit of a huge page if it runs.
    let seen = (0..20).any(|_| {
        target.write(start + 2 * MIB + 9 * PAGE, PAGE);
        let blocks = survey(&mut probe, &target);
        let found = counts(&blocks, start..start + SIZE);
        // One page of the huge page stands for all of it.
        let (cleared, done) = clear(&mut probe, &target, &blocks, start + 2 * MIB..start + 2 * MIB + PAGE);
        let done = blocks_in(done, start + 2 * MIB..start + 4 * MIB);
        found == (2048, 512, 0) && cleared == 1 && done[0].pages == PageBits::ALL
    });
    assert!(seen);
}

#[test]
fn a_huge_page_that_is_mapped_by_small_entries_is_not_split() {
    const SIZE: u64 = 8 * MIB;
    let mut probe = or_skip!(open_private());
    let mut target = Target::start();
    let start = target.map("huge", SIZE);
    target.write(start, SIZE);
    if smaps_kib(target.pid(), start, "AnonHugePages") * 1024 != SIZE {
        return isotherm_testing::skip("huge pages are not available");
    }
    (0..SIZE).step_by(2 << 20).for_each(|page| {
        target.request(&format!("protect {} {PAGE}", start + page + PAGE));
        target.request(&format!("unprotect {} {PAGE}", start + page + PAGE));
    });
    update(&mut probe, &[&target]);
    // The kernel's DAMON may clear the accessed bits of the huge page between the write and the clear if it runs.
    let mut once = || {
        target.write(start, SIZE);
        let blocks = survey(&mut probe, &target);
        let (cleared, done) = clear(&mut probe, &target, &blocks, start + 7 * PAGE..start + 9 * PAGE);
        let done = blocks_in(done, start..start + SIZE);
        let is_accessed = nearly(counts(&blocks, start..start + (2 << 20)).1 as u64, 512);
        let tells = is_accessed && (cleared > 1 || done.iter().any(|pages| !pages.unobservable.is_empty()));
        tells.then_some((cleared, done))
    };
    let (cleared, done) = (0..20).find_map(|_| once()).expect("the pages are found accessed");
    let whole = done[0].start == start && nearly(done[0].pages.count() as u64, 512) && nearly(cleared, 512);
    let left = done[0].unobservable.count() == 2 && cleared == 0;
    assert!(if probe.clears_large_folios() { whole } else { left }, "{cleared} {done:?}");
    let compound = kernel_flags(target.pid(), start, SIZE).iter().filter(|&flags| flags & COMPOUND != 0).count();
    assert_eq!(compound as u64, SIZE / PAGE);
}

#[test]
fn locked_pages_are_unobservable_if_shared_memory_is_not_to_be_cleared() {
    let mut probe = or_skip!(open_private());
    let mut target = Target::start();
    let start = target.map("locked", MIB);
    target.write(start, MIB);
    update(&mut probe, &[&target]);
    let blocks = survey(&mut probe, &target);
    let (cleared, done) = clear(&mut probe, &target, &blocks, start..start + MIB);
    assert_eq!(cleared, 0);
    let done = blocks_in(done, start..start + MIB);
    assert!(nearly(done.iter().map(|block| block.unobservable.count() as u64).sum(), 256));
}

#[test]
fn buffers_that_are_registered_with_io_uring_are_unobservable() {
    let mut target = Target::start();
    let start = target.map("small", 8 * MIB);
    target.write(start, 8 * MIB);
    target.request(&format!("register {} {}", start + 2 * MIB, MIB + 100));
    let mut probe = or_skip!(open_private());
    update(&mut probe, &[&target]);
    let buffer = start + 2 * MIB..start + 3 * MIB + PAGE;
    for _ in 0..3 {
        let blocks = survey(&mut probe, &target);
        assert_eq!(counts(&blocks, buffer.clone()).2, 257);
        assert_eq!(counts(&blocks, start..start + 2 * MIB).2, 0);
        assert_eq!(counts(&blocks, buffer.end..start + 8 * MIB).2, 0);
        clear(&mut probe, &target, &blocks, start..start + 8 * MIB);
    }
    let unseen = probe.survey().unwrap().unseen(space(&target).id);
    let range = AddrRange::new(buffer.start, buffer.end).unwrap();
    assert!(unseen.contains(&(range, Unseen::IoUring)), "{unseen:?}");
    let samples = pages(&target, buffer.start, MIB);
    probe.clear(&samples).unwrap();
    assert_eq!(count(&read(&mut probe, &samples), Unobservable), 256);
    // A scheme may act on it nevertheless.
    let mut look = or_skip!(open_private()).with_sweeps(false).with_elsewhere(false);
    update(&mut look, &[&target]);
    assert_eq!(count(&read(&mut look, &samples), Unobservable), 0);
}

/// The lazily freed pages of a survey in a range, and those that it says are present.
fn freed_and_present(blocks: &[BlockPages], range: &std::ops::Range<u64>) -> (usize, usize) {
    (pages_in(blocks, range, |block| block.lazily_freed), pages_in(blocks, range, |block| block.present))
}

#[test]
fn lazily_freed_memory_is_not_present_until_it_is_written_and_clearing_changes_nothing_of_that() {
    let mut probe = or_skip!(open_private());
    for kind in ["small", "huge"] {
        let mut target = Target::start();
        let start = target.map(kind, 8 * MIB);
        target.write(start, 8 * MIB);
        update(&mut probe, &[&target]);
        let range = start..start + 8 * MIB;
        assert_eq!(freed_and_present(&survey(&mut probe, &target), &range), (0, 2048), "{kind}");
        target.request(&format!("free {} {}", start, 6 * MIB));
        for round in 0..10 {
            let blocks = survey(&mut probe, &target);
            let (freed, present) = freed_and_present(&blocks, &range);
            // Some wait on a processor until the kernel marks them.
            assert!(nearly(freed as u64, 1536) && freed + present == 2048, "{kind}, round {round}: {freed} {present}");
            clear(&mut probe, &target, &blocks, range.clone());
            assert!(smaps_kib(target.pid(), start, "LazyFree") >= 6 * 1024 - 128, "{kind}, round {round}");
        }
        target.write(start, 2 * MIB);
        let (freed, present) = freed_and_present(&survey(&mut probe, &target), &range);
        assert!(nearly(freed as u64, 1024) && freed + present == 2048, "{kind}: {freed} {present}");
    }
}

#[test]
fn thousands_of_mappings_are_read_by_block() {
    let mut probe = or_skip!(open_private());
    let mut target = Target::start();
    let start = target.map("small", 64 * MIB);
    target.write(start, 64 * MIB);
    flush(&mut target);
    target.request(&format!("stripe {start} {}", 64 * MIB));
    update(&mut probe, &[&target]);
    let range = start..start + 64 * MIB;
    assert!(space(&target).mappings.len() > 16_000);
    let blocks = survey(&mut probe, &target);
    assert_eq!(counts(&blocks, range.clone()).0, 16_384);
    settle(&mut probe, &target, &range);
    target.read(start + MIB, MIB);
    let blocks = survey(&mut probe, &target);
    let inside = counts(&blocks, start + MIB..start + 2 * MIB).1;
    assert!(nearly(inside as u64, 256), "{inside}");
    assert_eq!(counts(&blocks, range).1, inside);
}

#[test]
fn the_survey_learns_what_sampling_clears() {
    let mut probe = or_skip!(open_private());
    let mut target = Target::start();
    let start = target.map("small", 4 * MIB);
    target.write(start, 4 * MIB);
    flush(&mut target);
    update(&mut probe, &[&target]);
    let range = start..start + 4 * MIB;
    settle(&mut probe, &target, &range);
    target.write(start + MIB, MIB);
    let samples = pages(&target, start + MIB, MIB);
    for _ in 0..3 {
        probe.clear(&samples).unwrap();
        assert_eq!(count(&read(&mut probe, &samples), Accessed), 0);
    }
    let blocks = survey(&mut probe, &target);
    let inside = counts(&blocks, start + MIB..start + 2 * MIB).1;
    assert!(nearly(inside as u64, 256), "{inside}");
    assert_eq!(counts(&blocks, range.clone()).1, inside);
    // It says so once.
    assert_eq!(counts(&survey(&mut probe, &target), range).1, 0);
}

#[test]
fn a_look_finds_new_pages_and_changes_nothing_for_the_survey() {
    let mut probe = or_skip!(open_private());
    let mut target = Target::start();
    let start = target.map("small", 4 * MIB);
    target.write(start, 2 * MIB);
    flush(&mut target);
    update(&mut probe, &[&target]);
    settle(&mut probe, &target, &(start..start + 4 * MIB));

    target.write(start, 3 * MIB);
    let samples = pages(&target, start, MIB);
    probe.clear(&samples).unwrap();
    let new = target.map("small", 8 * MIB);
    target.write(new, 5 * MIB);
    let ranges = [AddrRange::new(new, new + 8 * MIB).unwrap()];
    let mut look = |most| {
        let mut blocks = Vec::new();
        probe.survey().unwrap().look(&space(&target), &ranges, most, &mut blocks).unwrap();
        blocks
    };
    let (present, accessed, unobservable) = counts(&look(usize::MAX), new..new + 8 * MIB);
    assert_eq!((present, unobservable), (1280, 0));
    assert!(nearly(accessed as u64, 1280), "{accessed}");
    assert_eq!(look(1).len(), 1);
    // The survey still knows what sampling has cleared.
    let blocks = survey(&mut probe, &target);
    let (present, accessed, unobservable) = counts(&blocks, start..start + 4 * MIB);
    assert_eq!((present, unobservable), (768, 0));
    assert!(nearly(accessed as u64, 768), "{accessed}");
}

#[test]
fn a_target_that_ends_has_no_pages() {
    let mut probe = or_skip!(open_private());
    let mut target = Target::start();
    let start = target.map("small", MIB);
    target.write(start, MIB);
    update(&mut probe, &[&target]);
    let before = space(&target);
    let blocks = survey(&mut probe, &target);
    let mut chosen = vec![ClearPages { start, pages: PageBits::ALL, ..ClearPages::default() }];
    target.kill();
    assert_eq!(probe.survey().unwrap().clear(before.id, &mut chosen).unwrap(), 0);
    let of = chosen.iter().find(|block| block.start == start).unwrap();
    assert!(of.unobservable.is_empty() && of.pages.is_empty());
    let mut after = Vec::new();
    probe.survey().unwrap().read(&before, SurveyPart::ALL, &mut after).unwrap();
    assert!(after.is_empty() && !blocks.is_empty());
}
