//! Carries out actions on real processes. A test is skipped if it needs a privilege that this user does not have.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use isotherm_core::scheme::{Action, Actuator, HUGE_PAGE_SIZE, Outcome, PageInspector, PageKind, RefusalReason, Work};
use isotherm_core::{AccessProbe, AddrRange, BoxError, Observation, PAGE_SIZE, Sample, TargetSpace};
use isotherm_kernel::{ProcessTable, Processes};
use isotherm_probes::bpf::BpfProbe;
use isotherm_testing::or_skip;

use super::inside::tests::target::{SIZE, Target};
use super::{InsideError, ProcessActuator, ProcessInspector};

fn actuator(target: &Target) -> ProcessActuator {
    ProcessActuator::new(Processes::new([target.pid()], false).unwrap().process_table())
}

fn open_probe() -> Result<Box<dyn AccessProbe + Send>, BoxError> {
    Ok(Box::new(BpfProbe::open()?.with_sweeps(false)))
}

fn inspector(target: &Target) -> ProcessInspector {
    ProcessInspector::new(Processes::new([target.pid()], false).unwrap().process_table(), open_probe)
}

fn apply(actuator: &mut ProcessActuator, target: &Target, action: Action, ranges: &[AddrRange]) -> Vec<Outcome> {
    let mut outcomes = vec![Outcome::default(); ranges.len()];
    let work = Work { action, inside: true, target: target.id, ranges, elsewhere: None };
    actuator.apply(&work, &mut outcomes).unwrap();
    outcomes
}

fn pages(inspector: &mut ProcessInspector, target: &Target, kind: PageKind) -> Vec<AddrRange> {
    let mut found = Vec::new();
    inspector.pages(target.id, &[target.memory], kind, &mut found).unwrap();
    found
}

#[test]
fn a_file_that_is_paged_out_is_no_longer_resident() {
    // The file is on a disk. A file system in memory has no place to page out to.
    let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let path = directory.path().join("memory");
    std::fs::write(&path, vec![0; SIZE]).unwrap();
    std::fs::File::open(&path).unwrap().sync_all().unwrap();
    let target = Target::start(&format!("file {}", path.display()));
    let mut actuator = actuator(&target);
    or_skip!(actuator.supports(Action::PageOut, true));
    let before = target.kib("Rss:");
    let [outcome] = apply(&mut actuator, &target, Action::PageOut, &[target.memory])[..] else { panic!() };
    let after = target.kib("Rss:");
    // A page that waits in a CPU's batch may be unmapped, and stays in the cache.
    let freed = SIZE as u64 - cached(&std::fs::File::open(&path).unwrap());
    assert_eq!((outcome.applied, outcome.refusal), (freed, None), "only what was freed is counted");
    // The kernel leaves out pages that wait in a CPU's batch.
    assert!(before == SIZE as u64 / 1024 && after < before / 2, "{before} {after}");
    assert_eq!(apply(&mut actuator, &target, Action::WillNeed, &[target.memory]), [Outcome::all(target.memory)]);
    assert!(actuator.time_spent() > std::time::Duration::ZERO);
}

#[test]
fn what_is_unmapped_of_a_file_in_large_folios_is_freed_and_the_rest_stays_mapped() {
    use rustix::fs::{Advice, fadvise};
    let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let path = directory.path().join("memory");
    std::fs::write(&path, vec![0; SIZE]).unwrap();
    for (action, is_in_pieces) in [(Action::Cold, true), (Action::PageOut, true), (Action::PageOut, false)] {
        // What is read ahead is in large folios, if the file system has any.
        let file = std::fs::File::open(&path).unwrap();
        file.sync_all().unwrap();
        [Advice::DontNeed, Advice::Sequential].into_iter().for_each(|how| fadvise(&file, 0, None, how).unwrap());
        std::io::copy(&mut &file, &mut std::io::sink()).unwrap();
        let target = Target::start(&format!("file {}", path.display()));
        let mut actuator = actuator(&target);
        or_skip!(actuator.supports(action, true));
        let range = |pages: std::ops::Range<u64>| {
            let [start, end] = [pages.start, pages.end].map(|page| target.memory.start() + page * PAGE_SIZE);
            AddrRange::new(start, end).unwrap()
        };
        // Two ranges that touch, and each second quarter of a MiB after them.
        let rest = (4..SIZE as u64 >> 18).step_by(2).map(|nth| nth * 64..nth * 64 + 64);
        let pieces = || [100..130, 130..170].into_iter().chain(rest).map(range).collect();
        let ranges: Vec<AddrRange> = if is_in_pieces { pieces() } else { vec![target.memory] };
        let before = target.kib("Rss:") * 1024;
        let outcomes = apply(&mut actuator, &target, action, &ranges);
        let gone = before - target.kib("Rss:") * 1024;
        let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>();
        let unmapped = sum(|of| of.unmapped);
        assert_eq!(gone, if action == Action::Cold { 0 } else { sum(|of| of.applied) + unmapped }, "{outcomes:?}");
        // A page that waits in a CPU's batch may be unmapped, and stays in the cache.
        assert!(unmapped < SIZE as u64 / 16, "{outcomes:?}");
    }
}

/// The bytes of a file of `SIZE` bytes that are in memory.
#[allow(unsafe_code)]
fn cached(file: &std::fs::File) -> u64 {
    let mut pages = vec![0_u8; SIZE / PAGE_SIZE as usize];
    // SAFETY: the kernel chooses the address of the mapping, to which nothing refers and which is unmapped at the end.
    // `pages` has a byte for each page of it, and is borrowed for the call.
    unsafe {
        let flags = rustix::mm::MapFlags::SHARED;
        let memory = rustix::mm::mmap(std::ptr::null_mut(), SIZE, rustix::mm::ProtFlags::READ, flags, file, 0).unwrap();
        assert_eq!(libc::mincore(memory, SIZE, pages.as_mut_ptr()), 0);
        rustix::mm::munmap(memory, SIZE).unwrap();
    }
    pages.iter().filter(|page| **page & 1 == 1).count() as u64 * PAGE_SIZE
}

#[test]
fn changed_memory_of_a_file_counts_as_freed_only_if_it_has_left_the_cache() {
    // Files on a disk, and of a file system in memory, whose pages need swap. Some have no name any longer.
    let places = [env!("CARGO_MANIFEST_DIR"), "/dev/shm"];
    for (parent, is_deleted) in places.into_iter().flat_map(|parent| [(parent, false), (parent, true)]) {
        let directory = or_skip!(tempfile::tempdir_in(parent));
        let path = directory.path().join("memory");
        std::fs::write(&path, vec![0; SIZE]).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        let target = Target::start(&format!("shared {}", path.display()));
        if is_deleted {
            std::fs::remove_file(&path).unwrap();
        }
        or_skip!(pages_out_a_file(&target, &file, &format!("{parent}, deleted: {is_deleted}")));
    }
    let memory = rustix::fs::memfd_create("memory", rustix::fs::MemfdFlags::empty()).unwrap();
    rustix::fs::ftruncate(&memory, SIZE as u64).unwrap();
    let path = format!("/proc/{}/fd/{}", std::process::id(), std::os::fd::AsRawFd::as_raw_fd(&memory));
    let target = Target::start(&format!("shared {path}"));
    or_skip!(pages_out_a_file(&target, &memory.into(), "memfd"));
}

/// Pages out the changed pages of a file. An error is the reason why this user may not.
fn pages_out_a_file(target: &Target, file: &std::fs::File, what: &str) -> Result<(), String> {
    let mut actuator = actuator(target);
    actuator.supports(Action::PageOut, true).map_err(|error| format!("{error:?}"))?;
    assert_eq!(cached(file), SIZE as u64);
    let [outcome] = apply(&mut actuator, target, Action::PageOut, &[target.memory])[..] else { panic!() };
    let (mapped, cached) = (target.kib("Rss:") * 1024, cached(file));
    // Pages that are being written to a disk stay mapped, or leave the cache a little later.
    let on_disk = what.starts_with(env!("CARGO_MANIFEST_DIR"));
    let has_swap = isotherm_kernel::system_memory("/".as_ref()).unwrap().swap_free > 0;
    if !on_disk && !has_swap {
        // Memory that nothing can free stays mapped.
        let stays = Outcome::refused(target.memory, RefusalReason::NoSwap.into());
        assert_eq!(outcome, Outcome { resident: Some(SIZE as u64), ..stays }, "{what}");
    }
    assert!(outcome.applied <= SIZE as u64 - cached, "{what} {outcome:?}");
    assert_eq!(outcome.applied + outcome.unmapped + mapped, SIZE as u64, "{what} {outcome:?}");
    assert!(on_disk || !has_swap || outcome.unmapped > 0, "{what} {outcome:?}");
    assert_eq!(outcome.resident, Some(mapped), "{what} {outcome:?}");
    Ok(())
}

#[test]
fn anonymous_memory_without_swap_is_refused_for_this_reason_and_keeps_its_huge_pages() {
    let target = Target::start("touch");
    let mut actuator = actuator(&target);
    or_skip!(actuator.supports(Action::PageOut, true));
    let free = isotherm_kernel::system_memory("/".as_ref()).unwrap().swap_free;
    or_skip!(if free == 0 { Ok(()) } else { Err("this machine has swap") });
    let stays =
        Outcome { resident: Some(SIZE as u64), ..Outcome::refused(target.memory, RefusalReason::NoSwap.into()) };
    // A kernel without huge pages refuses them.
    apply(&mut actuator, &target, Action::Collapse, &[target.memory]);
    let huge = target.kib("AnonHugePages:");
    assert_eq!(apply(&mut actuator, &target, Action::PageOut, &[target.memory]), [stays]);
    assert_eq!(target.kib("AnonHugePages:"), huge);
    assert!(!actuator.can_free(&isotherm_core::Mapping::anonymous(target.memory)));
}

/// Tells that every second page of a process was accessed.
pub(super) struct EverySecond;

impl AccessProbe for EverySecond {
    fn update(&mut self, targets: &[TargetSpace]) -> Result<(), BoxError> {
        assert!(targets.iter().all(|target| target.id.pid().is_some()));
        Ok(())
    }

    fn clear(&mut self, _: &[Sample]) -> Result<(), BoxError> {
        Err("a look clears nothing".into())
    }

    fn read(&mut self, samples: &[Sample], answers: &mut [Observation]) -> Result<(), BoxError> {
        for (sample, answer) in samples.iter().zip(answers) {
            let is_second = sample.addr / PAGE_SIZE % 2 == 1;
            *answer = if is_second { Observation::Accessed } else { Observation::Idle };
        }
        Ok(())
    }

    fn clears(&self) -> u64 {
        0
    }
}

#[test]
fn young_pages_are_found_with_the_probe_that_was_given() {
    let target = Target::start("touch");
    let mut inspector = inspector(&target).with_probe(Box::new(EverySecond));
    assert!(inspector.tells(PageKind::Young).is_ok(), "no other probe is opened");
    let found = pages(&mut inspector, &target, PageKind::Young);
    assert_eq!(found.len() as u64, target.memory.size() / PAGE_SIZE / 2);
    assert!(found.iter().all(|range| range.size() == PAGE_SIZE && range.start() / PAGE_SIZE % 2 == 1));
}

#[test]
fn pages_that_compress_well_are_found_by_what_they_hold() {
    use rand::{RngExt as _, SeedableRng as _};
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("memory");
    // The first half is noise, the second half is text.
    let mut contents = b"what an allocator puts side by side is alike. ".repeat(SIZE / 46 + 1);
    contents.truncate(SIZE);
    rand_pcg::Pcg32::seed_from_u64(7).fill(&mut contents[..SIZE / 2]);
    std::fs::write(&path, contents).unwrap();
    let target = Target::start(&format!("file {}", path.display()));
    let mut inspector = inspector(&target);
    or_skip!(inspector.tells(PageKind::Compressible));
    let half = target.memory.split_at(target.memory.start() + SIZE as u64 / 2).unwrap().1;
    assert_eq!(pages(&mut inspector, &target, PageKind::Compressible), [half]);
}

#[test]
fn huge_pages_are_forbidden_allowed_made_and_found() {
    let target = Target::start("touch");
    let mut actuator = actuator(&target);
    or_skip!(actuator.supports(Action::Collapse, true));
    or_skip!(actuator.supports(Action::NoHugePage, true));
    let mut inspector = inspector(&target);
    or_skip!(inspector.tells(PageKind::Huge));
    assert_eq!(apply(&mut actuator, &target, Action::NoHugePage, &[target.memory]), [Outcome::all(target.memory)]);
    assert!(target.has_flag("nh"));
    assert_eq!(pages(&mut inspector, &target, PageKind::Huge), []);
    let small = PageKind::Folio(0, PAGE_SIZE);
    assert_eq!(pages(&mut inspector, &target, small), [target.memory]);
    assert_eq!(apply(&mut actuator, &target, Action::HugePage, &[target.memory]), [Outcome::all(target.memory)]);
    assert!(target.has_flag("hg"));
    let outcome = apply(&mut actuator, &target, Action::Collapse, &[target.memory])[0];
    assert_eq!(outcome.applied + outcome.refused, SIZE as u64);
    assert_eq!(target.kib("AnonHugePages:") * 1024, outcome.applied, "{outcome:?}");
    let huge: u64 = pages(&mut inspector, &target, PageKind::Huge).iter().map(|range| range.size()).sum();
    assert_eq!(huge, outcome.applied);
    let of_size = pages(&mut inspector, &target, PageKind::Folio(HUGE_PAGE_SIZE, u64::MAX));
    assert_eq!(of_size.iter().map(|range| range.size()).sum::<u64>(), outcome.applied);
    let of_less = pages(&mut inspector, &target, PageKind::Folio(2 * PAGE_SIZE, HUGE_PAGE_SIZE - 1));
    assert_eq!(of_less, []);
}

#[test]
fn huge_pages_are_allowed_in_the_rest_of_a_mapping_that_fills_up_and_nowhere_else() {
    let sparse = Target::start("touch");
    let mut none = actuator(&sparse);
    or_skip!(none.supports(Action::HugePageAhead, true));
    assert_eq!(apply(&mut none, &sparse, Action::HugePageAhead, &[sparse.memory]), [Outcome::default()], "too small");
    assert!(!sparse.has_flag("hg"));

    let mut target = Target::start("fill");
    let ranges = [target.memory];
    let mut actuator = actuator(&target);
    let mut other = self::actuator(&target);
    or_skip!(other.supports(Action::Collapse, true));
    let mappings = isotherm_kernel::Process::open(target.pid()).unwrap().mappings().unwrap();
    let whole = mappings.iter().find(|mapping| mapping.range.contains(target.memory.start())).unwrap().range;
    apply(&mut actuator, &target, Action::NoHugePage, &[whole]);
    let forbidden = Outcome::refused(target.memory, RefusalReason::Unsuitable.into());
    assert_eq!(apply(&mut other, &target, Action::HugePageAhead, &ranges), [forbidden], "as if the target had done it");
    assert!(target.has_flag("nh"));
    assert_eq!(apply(&mut actuator, &target, Action::HugePageAhead, &ranges), [Outcome::all(target.memory)]);
    assert!(target.has_flag("hg"));
    assert_eq!(apply(&mut actuator, &target, Action::HugePageAhead, &ranges), [Outcome::default()], "done before");
    // The kernel makes some huge pages of what is there, 16 MiB in ten seconds.
    let before = target.kib("AnonHugePages:");
    target.send("fill");
    assert_eq!(target.answer(), "filled");
    let made = target.kib("AnonHugePages:") - before;
    assert!(made > 32 << 10, "{made} KiB of the 64 MiB that were filled are in huge pages");
}

#[test]
fn pages_that_were_made_cold_are_not_active() {
    let target = Target::start("touch");
    let (mut actuator, mut inspector) = (actuator(&target), inspector(&target));
    or_skip!(actuator.supports(Action::Cold, true));
    or_skip!(inspector.tells(PageKind::Active));
    assert_eq!(apply(&mut actuator, &target, Action::Cold, &[target.memory]), [Outcome::all(target.memory)]);
    assert_eq!(pages(&mut inspector, &target, PageKind::Active), []);
}

#[test]
fn huge_pages_are_made_from_outside_where_the_actuator_has_forbidden_them_and_not_where_the_target_has() {
    let target = Target::start("touch");
    let mut actuator = actuator(&target);
    or_skip!(actuator.supports(Action::HugePage, false));
    or_skip!(actuator.supports(Action::NoHugePage, true));
    let make = |actuator: &mut ProcessActuator| {
        let mut outcomes = [Outcome::default()];
        let work = Work {
            action: Action::HugePage,
            inside: false,
            target: target.id,
            ranges: &[target.memory],
            elsewhere: None,
        };
        actuator.apply(&work, &mut outcomes).unwrap();
        outcomes[0]
    };
    assert_eq!(apply(&mut actuator, &target, Action::NoHugePage, &[target.memory]), [Outcome::all(target.memory)]);
    let refused = make(&mut self::actuator(&target));
    assert_eq!((refused.applied, refused.refusal.unwrap().reason), (0, RefusalReason::Unsuitable));
    assert!(target.has_flag("nh"));
    let outcome = make(&mut actuator);
    assert!(target.has_flag("hg") && outcome.applied > 0, "{outcome:?}");
    assert_eq!(target.kib("AnonHugePages:") * 1024, outcome.applied, "{outcome:?}");
}

/// How often a test looks at accessed bits that others may clear.
const TRIES: usize = 20;

#[test]
fn pages_are_young_if_they_were_accessed_since_they_were_made_cold() {
    let mut target = Target::start("touch");
    let mut actuator = actuator(&target);
    or_skip!(actuator.supports(Action::Cold, true));
    let mut inspector = inspector(&target);
    or_skip!(inspector.tells(PageKind::Young));
    let young = |inspector: &mut _, target: &_| pages(inspector, target, PageKind::Young);
    // A kernel with DAMON may clear an accessed bit between the touch and the look.
    let mut all_are_young_once_touched = |target: &mut Target| {
        (0..TRIES).any(|_| {
            target.send("touch");
            target.answer();
            young(&mut inspector, target) == [target.memory]
        })
    };
    assert!(all_are_young_once_touched(&mut target));
    let half = target.memory.split_at(target.memory.start() + SIZE as u64 / 2).unwrap().0;
    assert_eq!(apply(&mut actuator, &target, Action::Cold, &[half]), [Outcome::all(half)]);
    let left = pages(&mut self::inspector(&target), &target, PageKind::Young);
    let left: u64 = left.iter().filter_map(|range| range.intersection(half)).map(|range| range.size()).sum();
    // The kernel leaves out pages that wait in a CPU's batch.
    assert!(left < half.size() / 4, "{left}");
    assert!(all_are_young_once_touched(&mut target));
}

#[test]
fn unmapped_memory_is_refused_and_the_action_is_applied_to_the_rest() {
    let target = Target::start("touch");
    let mut actuator = actuator(&target);
    let unmapped = AddrRange::new(16 * PAGE_SIZE, 32 * PAGE_SIZE).unwrap();
    for action in [Action::Cold, Action::NoHugePage, Action::MLock, Action::MUnlock] {
        or_skip!(actuator.supports(action, true));
        let outcomes = apply(&mut actuator, &target, action, &[unmapped, target.memory]);
        let refused = Outcome::refused(unmapped, RefusalReason::NotMapped.with_code(libc::ENOMEM));
        assert_eq!(outcomes, [refused, Outcome::all(target.memory)], "{action}");
    }
}

#[test]
fn cold_is_refused_on_locked_memory_until_it_is_unlocked() {
    let target = Target::start("touch");
    let mut actuator = actuator(&target);
    or_skip!(actuator.supports(Action::Cold, true));
    or_skip!(actuator.supports(Action::MLock, true));
    assert_eq!(apply(&mut actuator, &target, Action::MLock, &[target.memory]), [Outcome::all(target.memory)]);
    assert!(target.has_flag("lo"));
    let refused = [Outcome::refused(target.memory, RefusalReason::Unsuitable.with_code(libc::EINVAL))];
    assert_eq!(apply(&mut actuator, &target, Action::Cold, &[target.memory]), refused);
    assert_eq!(apply(&mut actuator, &target, Action::MUnlock, &[target.memory]), [Outcome::all(target.memory)]);
    assert_eq!(apply(&mut actuator, &target, Action::Cold, &[target.memory]), [Outcome::all(target.memory)]);
}

#[test]
fn what_was_locked_is_unlocked_at_the_end_unless_the_target_had_locked_memory_before() {
    let target = Target::start("touch");
    let locked = || isotherm_kernel::locked("/".as_ref(), target.pid()).unwrap();
    let mut first = actuator(&target);
    or_skip!(first.supports(Action::MLock, true));
    let (low, high) = target.memory.split_at(target.memory.start() + SIZE as u64 / 2).unwrap();
    apply(&mut first, &target, Action::MLock, &[low]);
    let mut second = actuator(&target);
    apply(&mut second, &target, Action::MLock, &[high]);
    assert_eq!((second.end_locks(), locked()), (vec![], SIZE as u64));

    apply(&mut first, &target, Action::MLock, &[high]);
    let news = first.end_locks();
    assert_eq!(locked(), 0);
    assert!(!news[0].is_warning && news[0].text.starts_with("unlocked 8 MiB of 1 process,"), "{news:?}");
    assert_eq!(first.end_locks(), []);
}

#[test]
fn all_is_refused_if_the_target_has_ended_or_is_not_in_the_process_table() {
    let mut target = Target::start("touch");
    let memory = target.memory;
    let mut actuator = actuator(&target);
    target.kill();
    for action in [Action::PageOut, Action::NoHugePage] {
        let gone = Outcome::refused(memory, RefusalReason::TargetGone.with_code(libc::ESRCH));
        assert_eq!(apply(&mut actuator, &target, action, &[memory]), [gone]);
        let empty = &mut ProcessActuator::new(ProcessTable::default());
        assert_eq!(apply(empty, &target, action, &[memory]), [gone]);
    }
}

#[test]
fn the_reason_why_no_call_can_be_made_inside_a_target_is_kept_until_it_is_taken() {
    let target = Target::start("seccomp");
    let mut actuator = actuator(&target);
    or_skip!(actuator.supports(Action::MLock, true));
    let refused = apply(&mut actuator, &target, Action::MLock, &[target.memory]);
    assert_eq!(refused, [Outcome::refused(target.memory, RefusalReason::NotPermitted.with_code(libc::EACCES))]);
    let refusals: Vec<_> = actuator.take_refusals().collect();
    assert!(matches!(refusals[..], [(id, InsideError::Seccomp(_))] if id == target.id), "{refusals:?}");
    assert_eq!(actuator.take_refusals().count(), 0);
}

#[test]
fn an_action_that_works_only_inside_a_target_needs_permission() {
    let mut actuator = ProcessActuator::new(ProcessTable::default());
    for action in [Action::NoHugePage, Action::MLock, Action::MUnlock] {
        let error = actuator.supports(action, false).unwrap_err().to_string();
        assert!(error.contains("inside: true"), "{error}");
    }
    actuator.supports(Action::Stat, false).unwrap();
}

#[test]
fn a_process_that_leaves_the_table_is_refused_and_no_work_is_done_after_the_interrupt() {
    let target = Target::start("touch");
    let mut actuator = actuator(&target);
    let ranges = [target.memory];
    let work = Work { action: Action::Stat, inside: false, target: target.id, ranges: &ranges, elsewhere: None };
    let mut outcomes = [Outcome::default()];
    actuator.apply(&work, &mut outcomes).unwrap();
    assert_eq!(outcomes, [Outcome::all(target.memory)]);

    actuator.act_on(Processes::new([], false).unwrap().process_table());
    actuator.apply(&work, &mut outcomes).unwrap();
    assert_eq!(outcomes[0].refused, target.memory.size());
    actuator.interrupt().store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(actuator.apply(&work, &mut outcomes).unwrap_err().to_string().contains("ended"));
}
