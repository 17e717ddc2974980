//! The survey of memory that several processes map.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use isotherm_core::survey::{BLOCK_SIZE, BlockFrames, ClearPages, PageBits, SurveyPart};
use isotherm_core::{AccessProbe, Observation, Sample};
use isotherm_probes::bpf::{BpfProbe, SharedLimits, SharedMemory, SharedReason};

use crate::survey::{clear, counts, survey};
use crate::target::Target;
use crate::watch::*;

const SIZE: u64 = 64 * MIB;
const HOT: u64 = 16 * MIB;

/// Opens the probe, which observes shared memory in every survey.
fn open_always() -> Result<BpfProbe, &'static str> {
    let mut probe = open()?;
    probe.set_shared_memory(SharedMemory::Always, SharedLimits::default());
    Ok(probe)
}

/// A file in memory that is deleted when the value is dropped.
struct SharedFile(PathBuf);

impl SharedFile {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(format!("/dev/shm/isotherm-{name}-{}", std::process::id()));
        fs::write(&path, vec![1; SIZE as usize]).unwrap();
        Self(path)
    }

    fn map(&self, target: &mut Target) -> u64 {
        target.map(&format!("file:{}", self.0.display()), SIZE)
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Clears all accessed pages of the target. Returns the pages that the survey says were cleared in `range`, and those
/// that it says are unobservable.
fn clear_all(probe: &mut BpfProbe, target: &Target, range: &std::ops::Range<u64>) -> (usize, usize) {
    let blocks = survey(probe, target);
    let (_, done) = clear(probe, target, &blocks, range.clone());
    let inside = |block: &ClearPages, pages: PageBits| {
        pages.iter().filter(|&page| range.contains(&(block.start + page as u64 * PAGE))).count()
    };
    assert!(done.windows(2).all(|pair| pair[0].start < pair[1].start));
    let cleared = done.iter().map(|block| inside(block, block.pages)).sum();
    (cleared, done.iter().map(|block| inside(block, block.unobservable & !block.pages)).sum())
}

/// Whether both numbers are as expected, but for a fiftieth of the sum: the kernel's DAMON clears accessed bits if it
/// runs, and pages whose bits are clear count as cleared.
fn nearly(found: (usize, usize), expected: (usize, usize)) -> bool {
    let sum = expected.0 + expected.1;
    found.0.abs_diff(expected.0) * 50 <= sum && found.1.abs_diff(expected.1) * 50 <= sum
}

#[test]
fn of_memory_shared_by_two_processes_each_has_accessed_its_own_part() {
    let mut probe = or_skip!(open_always());
    let file = SharedFile::new("two");
    let mut targets = [Target::start(), Target::start()];
    let starts = targets.each_mut().map(|target| file.map(target));
    for (target, start) in targets.iter_mut().zip(starts) {
        target.read(start, SIZE);
    }
    update(&mut probe, &[&targets[0], &targets[1]]);
    for (target, start) in targets.iter().zip(starts) {
        // `MADV_COLD` leaves the pages, and then they are known to be shared.
        assert!(nearly(clear_all(&mut probe, target, &(start..start + SIZE)), (16_384, 0)));
    }
    for round in 0..3 {
        let offset = round * HOT;
        targets[0].read(starts[0] + offset, HOT);
        let found = targets.each_ref().map(|target| survey(&mut probe, target));
        let hot = starts[0] + offset..starts[0] + offset + HOT;
        let inside = counts(&found[0], hot).1;
        assert!(nearly((inside, 0), (4096, 0)), "{inside}");
        assert_eq!(counts(&found[0], starts[0]..starts[0] + SIZE), (16_384, inside, 0));
        assert_eq!(counts(&found[1], starts[1]..starts[1] + SIZE), (16_384, 0, 0));
        assert!(nearly(clear_all(&mut probe, &targets[0], &(starts[0]..starts[0] + SIZE)), (4096, 0)));
    }
    assert_eq!(probe.shared_left_out(), None);
}

#[test]
fn shared_memory_that_is_not_cleared_is_idle_until_it_is_accessed() {
    let mut probe = or_skip!(open_always());
    let file = SharedFile::new("idle");
    let mut targets = [Target::start(), Target::start()];
    let starts = targets.each_mut().map(|target| file.map(target));
    for (target, start) in targets.iter_mut().zip(starts) {
        target.read(start, SIZE);
    }
    update(&mut probe, &[&targets[0], &targets[1]]);
    let all = starts[0]..starts[0] + SIZE;
    assert!(nearly(clear_all(&mut probe, &targets[0], &all), (16_384, 0)));
    probe.set_shared_memory(SharedMemory::Never, SharedLimits::default());
    assert_eq!(clear_all(&mut probe, &targets[0], &all), (0, 0));
    targets[0].read(starts[0], HOT);
    let (cleared, unobservable) = clear_all(&mut probe, &targets[0], &all);
    assert!(nearly((unobservable, cleared), (4096, 0)), "{cleared} cleared, {unobservable} unobservable");
}

#[test]
fn memory_that_a_process_maps_three_times_counts_once_and_is_as_hot_as_its_hottest_view() {
    let mut probe = or_skip!(open_always());
    let mut target = Target::start();
    let start = target.map("shared", SIZE);
    target.write(start, SIZE);
    // The third view has a part of the pages only.
    let again = [SIZE, SIZE].map(|size| target.request(&format!("again {start} {size}")));
    target.read(again[0], SIZE);
    target.read(again[1], SIZE / 4);
    let mut views = [(start, SIZE), (again[0], SIZE), (again[1], SIZE / 4)];
    views.sort_unstable();
    update(&mut probe, &[&target]);
    let pages = |bytes: u64| (bytes / PAGE) as usize;
    let present = |blocks: &[_]| views.map(|(start, size)| counts(blocks, start..start + size).0);
    let accessed =
        |blocks: &[_]| views.map(|(start, size)| counts(blocks, start..start + size).1).iter().sum::<usize>();
    for round in 0..4 {
        let blocks = survey(&mut probe, &target);
        assert_eq!(present(&blocks).iter().sum::<usize>(), pages(SIZE), "{round}: {:?}", present(&blocks));
        assert_eq!(present(&blocks)[0], pages(views[0].1), "the lowest address counts");
        let mut second = 0;
        // A program file may have a page that is mapped twice, too.
        let is_shared =
            |block: u64| views.iter().any(|(start, size)| block < start + size && *start < block + BLOCK_SIZE);
        let count = &mut |block, pages: PageBits| second += if is_shared(block) { pages.count() } else { 0 };
        probe.survey().unwrap().second_views(space(&target).id, count);
        assert_eq!(second, pages(SIZE + SIZE / 4));
        let expected = if round == 0 { SIZE } else { HOT };
        assert!(nearly((accessed(&blocks), 0), (pages(expected), 0)), "{round}: {}", accessed(&blocks));
        let mut chosen = Vec::new();
        probe.survey().unwrap().clear(space(&target).id, &mut chosen).unwrap();
        let cleared: usize = chosen.iter().map(|block: &ClearPages| block.pages.count()).sum();
        assert!(cleared >= pages(expected), "{round}: {cleared}");
        let blocks = survey(&mut probe, &target);
        assert!(nearly((accessed(&blocks), pages(SIZE)), (0, pages(SIZE))), "{}", accessed(&blocks));
        // Whichever view it is used through.
        target.write(views[round % 3].0, HOT);
    }
    // A sample of one view cannot say whether another one is used.
    let sample = Sample { target: space(&target).id, addr: views[0].0 + SIZE / 4 - PAGE };
    let mut answer = [Observation::Idle];
    probe.clear(&[sample]).unwrap();
    probe.read(&[sample], &mut answer).unwrap();
    assert_eq!(answer, [Observation::Unobservable]);
}

#[test]
fn pages_shared_after_a_fork_are_observed() {
    after_a_fork("small");
}

#[test]
fn a_shared_mapping_of_dev_zero_is_observed_after_a_fork() {
    after_a_fork("zero");
}

/// Pages of memory of this kind that two processes map since a fork.
fn after_a_fork(kind: &str) {
    let mut probe = or_skip!(open_always());
    let mut target = Target::start();
    let start = target.map(kind, SIZE);
    let range = start..start + SIZE;
    target.write(start, SIZE);
    target.request(&format!("fork-and-read {start} {SIZE}"));
    target.read(start, SIZE);
    update(&mut probe, &[&target]);
    assert!(nearly(clear_all(&mut probe, &target, &range), (16_384, 0)));
    for round in 0..3 {
        target.read(start + round * HOT, HOT);
        let found = survey(&mut probe, &target);
        let inside = counts(&found, start + round * HOT..start + (round + 1) * HOT).1;
        assert!(nearly((inside, 0), (4096, 0)), "{inside}");
        assert_eq!(counts(&found, range.clone()), (16_384, inside, 0));
        assert!(nearly(clear_all(&mut probe, &target, &range), (4096, 0)));
    }
}

#[test]
fn locked_memory_is_observed_and_so_is_what_was_unlocked() {
    let mut probe = or_skip!(open_always());
    let mut target = Target::start();
    let start = target.map("locked", SIZE);
    let range = start..start + SIZE;
    let other = target.map("small", 10 * MIB);
    target.write(other, 10 * MIB);
    update(&mut probe, &[&target]);
    // The first clear finds out that the memory is locked. A kernel's DAMON may clear some pages meanwhile.
    let first = clear_all(&mut probe, &target, &range);
    assert!(first.0 < 100 && first.1 == 0, "{first:?}");
    assert!(nearly(clear_all(&mut probe, &target, &range), (16_384, 0)));
    // More than the surveys after which it is found out again.
    for round in 0..10 {
        if round == 5 {
            target.request(&format!("unlock {start} {SIZE}"));
        }
        // clear_refs does not flush the TLB, which may still have some pages of four rounds ago. This does.
        target.request(&format!("forbid {} {MIB}", other + round * MIB));
        let hot = start + round % 4 * HOT;
        target.read(hot, HOT);
        let found = survey(&mut probe, &target);
        let inside = counts(&found, hot..hot + HOT).1;
        assert!(nearly((inside, 0), (4096, 0)), "round {round}: {inside}");
        let (present, touched, unobservable) = counts(&found, range.clone());
        assert_eq!(present, 16_384, "round {round}");
        assert!(nearly((touched, unobservable), (4096, 0)), "round {round}: {touched} {unobservable}");
        assert!(nearly(clear_all(&mut probe, &target, &range), (4096, 0)), "round {round}");
    }
    assert_eq!(probe.shared_left_out(), None);
}

#[test]
fn locked_memory_that_would_take_too_long_to_clear_is_left_out_and_the_remark_says_that_it_is_locked() {
    let mut target = Target::start();
    let start = target.map("locked", SIZE);
    let mut probe = or_skip!(open());
    let limits = SharedLimits { longest_hold: Duration::from_micros(10), ..SharedLimits::default() };
    probe.set_shared_memory(SharedMemory::Auto, limits);
    update(&mut probe, &[&target]);
    clear_all(&mut probe, &target, &(start..start + SIZE));
    for _ in 0..3 {
        target.write(start, SIZE);
        let found = clear_all(&mut probe, &target, &(start..start + SIZE));
        assert!(nearly(found, (0, 16_384)), "{found:?}");
        let left_out = probe.shared_left_out().unwrap();
        assert!(left_out.locked >= SIZE / 50 * 49, "{left_out:?}");
        assert!(matches!(left_out.reason, SharedReason::LongHold { .. }), "{left_out:?}");
    }
}

#[test]
fn shared_pages_have_the_same_frames_in_all_processes() {
    let mut probe = or_skip!(open());
    let file = SharedFile::new("frames");
    let (mut target, mut other) = (Target::start(), Target::start());
    let starts = [file.map(&mut target), file.map(&mut other)];
    target.read(starts[0], SIZE);
    other.read(starts[1], SIZE);
    update(&mut probe, &[&target, &other]);
    let found = [&target, &other].map(|target| {
        survey(&mut probe, target);
        let mut frames = BTreeMap::new();
        let mut add = |found: BlockFrames<'_>| {
            let addr = |page: usize| found.start + page as u64 * PAGE;
            frames.extend(found.pages.iter().map(|page| (addr(page), found.frames[page])));
        };
        assert!(probe.survey().unwrap().frames(space(target).id, &mut add).unwrap());
        frames
    });
    let of_file = |n: usize| found[n].range(starts[n]..starts[n] + SIZE).map(|(_, &frame)| frame).collect::<Vec<_>>();
    // The kernel may be moving some pages while they are read.
    let few = SIZE / PAGE / 64;
    assert!(of_file(0).len() as u64 >= SIZE / PAGE - few, "{}", of_file(0).len());
    let other: HashSet<u64> = of_file(1).into_iter().collect();
    let same = of_file(0).into_iter().filter(|frame| other.contains(frame)).count() as u64;
    assert!(same >= SIZE / PAGE - 2 * few, "{same}");
}

#[test]
fn what_other_pages_were_cleared_is_told() {
    let mut probe = or_skip!(open_always());
    let file = SharedFile::new("other");
    let (mut target, mut other) = (Target::start(), Target::start());
    let start = file.map(&mut target);
    let in_other = file.map(&mut other);
    other.read(in_other, SIZE);
    target.read(start, SIZE);
    update(&mut probe, &[&target]);
    let blocks = survey(&mut probe, &target);
    // Only one page is asked for, and all are cleared.
    let (_, done) = clear(&mut probe, &target, &blocks, start..start + PAGE);
    let pages = done.iter().filter(|block| (start..start + SIZE).contains(&block.start));
    let pages = pages.map(|block| block.pages.count()).sum();
    assert!(nearly_all(pages, 16_384), "{pages}");
    assert_eq!(counts(&survey(&mut probe, &target), start..start + SIZE).1, 0);
    // Without a page that is asked for, too.
    target.read(start, MIB);
    survey(&mut probe, &target);
    let mut none = Vec::new();
    probe.survey().unwrap().clear(space(&target).id, &mut none).unwrap();
    let pages = none.iter().filter(|block| (start..start + SIZE).contains(&block.start));
    assert!(pages.map(|block| block.pages.count()).sum::<usize>() + STRAGGLERS >= 256);
}

#[test]
fn a_large_target_with_shared_pages_is_read_in_parts_and_no_access_in_between_is_lost() {
    const BLOCKS: u64 = 600;
    let mut probe = or_skip!(open_always());
    let file = SharedFile::new("parts");
    let (mut target, mut other) = (Target::start(), Target::start());
    // One page in each block, of more blocks than are read at once. They lie above the file, which is mapped later.
    let large = target.map("small", BLOCKS * BLOCK_SIZE);
    (0..BLOCKS).for_each(|nth| target.write(large + nth * BLOCK_SIZE, PAGE));
    let start = file.map(&mut target);
    assert!(start < large);
    let range = start..start + SIZE;
    let in_other = file.map(&mut other);
    other.read(in_other, SIZE);
    target.read(start, SIZE);
    update(&mut probe, &[&target]);
    assert!(nearly(clear_all(&mut probe, &target, &range), (16_384, 0)));

    let space = space(&target);
    let probe_survey = probe.survey().unwrap();
    probe_survey.begin().unwrap();
    let (mut first, mut from, mut parts) = (Vec::new(), Some(0), 0);
    while let Some(part) = from {
        let mut blocks = Vec::new();
        let rest = probe_survey.read(&space, SurveyPart { from: part, most: 64 }, &mut blocks).unwrap();
        if part == 0 {
            assert!(rest.from.is_some_and(|from| from > range.end), "the file was read, and not all of the rest");
            // After it was read, and before it is cleared.
            target.read(start, HOT);
            first = blocks;
        }
        probe_survey.clear(space.id, &mut Vec::new()).unwrap();
        (from, parts) = (rest.from, parts + 1);
    }
    assert!(parts > 1);
    assert!(counts(&first, range.clone()).1 < 16_384 / 50, "the file was not accessed before it was read");
    let found = counts(&survey(&mut probe, &target), range).1;
    assert!(nearly((found, 0), (4096, 0)), "{found}");
}

#[test]
fn memory_that_is_left_out_is_unobservable_and_the_reason_is_told() {
    let file = SharedFile::new("left-out");
    let (mut target, mut other) = (Target::start(), Target::start());
    let start = file.map(&mut target);
    let in_other = file.map(&mut other);
    other.read(in_other, SIZE);
    let limits = SharedLimits { longest_hold: Duration::from_micros(10), ..SharedLimits::default() };
    for (mode, limits) in [(SharedMemory::Never, SharedLimits::default()), (SharedMemory::Auto, limits)] {
        let mut probe = or_skip!(open());
        probe.set_shared_memory(mode, limits);
        update(&mut probe, &[&target]);
        for _ in 0..3 {
            target.read(start, SIZE);
            let found = clear_all(&mut probe, &target, &(start..start + SIZE));
            assert!(nearly(found, (0, 16_384)), "{mode:?}: {found:?}");
            let left_out = probe.shared_left_out().unwrap();
            assert!(left_out.bytes >= SIZE / 50 * 49, "{left_out:?}");
            let expected = match left_out.reason {
                SharedReason::Never => mode == SharedMemory::Never,
                SharedReason::LongHold { estimate, longest } => mode == SharedMemory::Auto && estimate > longest,
                _ => false,
            };
            assert!(expected, "{left_out:?}");
        }
    }
}

#[test]
fn processes_that_share_memory_are_cleared_together_if_all_of_them_wait_for_less_than_the_limit() {
    let mut probe = or_skip!(open());
    // Whatever a clear takes, all are allowed, and the next one at once.
    const LONG: Duration = Duration::from_secs(10);
    let limits = SharedLimits { longest_hold: LONG, together: LONG, time_share: 1e6, ..SharedLimits::default() };
    probe.set_shared_memory(SharedMemory::Auto, limits);
    // 64 MiB in two mappings take longer than processes need no turns for.
    let file = SharedFile::new("turns");
    let mut targets = [Target::start(), Target::start()];
    let starts = targets.each_mut().map(|target| [file.map(target), file.map(target)]);
    // Private memory is cleared last, and this flushes the TLB. Otherwise the next reads set no accessed bits where no
    // other process has run in between.
    let private = targets.each_mut().map(|target| target.map("small", MIB));
    let touch = |target: &mut Target, i: usize| {
        starts[i].iter().for_each(|&start| target.read(start, SIZE));
        target.write(private[i], MIB);
    };
    targets.iter_mut().enumerate().for_each(|(i, target)| touch(target, i));
    update(&mut probe, &[&targets[0], &targets[1]]);
    let mut turns = Vec::new();
    for _ in 0..7 {
        let mut cleared = [false; 2];
        targets.iter_mut().enumerate().for_each(|(i, target)| touch(target, i));
        probe.survey().unwrap().begin().unwrap();
        for (i, target) in targets.iter().enumerate() {
            let mut blocks = Vec::new();
            probe.survey().unwrap().read(&space(target), SurveyPart::ALL, &mut blocks).unwrap();
            let (_, done) = clear(&mut probe, target, &blocks, 0..u64::MAX);
            // The other mapping is a second view of the same memory.
            cleared[i] = done.iter().any(|block| starts[i].contains(&block.start) && block.pages.count() >= 256);
        }
        turns.push(cleared);
    }
    assert!(turns.iter().skip(1).all(|cleared| *cleared == [true, true]), "{turns:?}");
}
