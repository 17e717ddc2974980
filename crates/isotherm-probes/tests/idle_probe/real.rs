//! The `idle` probe on real pages. The tests need a kernel with idle page tracking, such as that of the laboratory.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use isotherm_core::Observation::{self, Accessed, Idle, Unobservable};
use isotherm_core::survey::{BlockPages, ClearPages, PageBits, SurveyPart};
use isotherm_core::{AccessProbe, Layout, Sample, TargetId, TargetSpace};
use isotherm_kernel::{PhysicalMemory, Process};
use isotherm_probes::idle::IdleProbe;
use isotherm_testing::or_skip;

use crate::made::{HEAD, PHYSICAL};
use crate::target::Target;

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;
const HUGE: u64 = 2 * MIB;

/// The largest number of pages, of a few hundred, that may be unobservable because they are new. A new page may wait on
/// another processor before it is put on a reclaim list.
const STRAGGLERS: usize = 64;

/// Opens the probe. An error is the reason to skip the test.
fn open() -> Result<IdleProbe, &'static str> {
    if !rustix::process::geteuid().is_root() {
        return Err("the idle probe needs root");
    }
    if !fs::exists("/sys/kernel/mm/page_idle/bitmap").unwrap() {
        return Err("this kernel has no idle page tracking");
    }
    Ok(IdleProbe::open().expect("root can open the probe where the kernel has it"))
}

fn update(probe: &mut IdleProbe, target: &Target) {
    let mappings = Process::open(target.pid()).unwrap().mappings().unwrap();
    let process =
        TargetSpace { id: TargetId::process(target.pid(), Duration::ZERO), layout: Layout::Process, mappings };
    let physical = PhysicalMemory::new([]).unwrap();
    let spaces = isotherm_core::AddressSpace::read_targets(&mut { physical }).unwrap();
    probe.update(&[spaces, vec![process]].concat()).unwrap();
}

/// A sample for every page of the range.
fn pages(target: &Target, start: u64, size: u64) -> Vec<Sample> {
    let target = TargetId::process(target.pid(), Duration::ZERO);
    (0..size / PAGE).map(|page| Sample { target, addr: start + page * PAGE }).collect()
}

fn round(probe: &mut IdleProbe, samples: &[Sample], between: impl FnOnce()) -> Vec<Observation> {
    let mut answers = vec![Unobservable; samples.len()];
    probe.clear(samples).unwrap();
    between();
    probe.read(samples, &mut answers).unwrap();
    answers
}

/// Writes to every page of the range with new translations. The change of protection flushes the TLB, which marking
/// does not.
fn write_anew(target: &mut Target, start: u64, size: u64, write: u64) {
    target.request(&format!("protect {start} {size}"));
    target.request(&format!("unprotect {start} {size}"));
    target.write(start, write);
}

fn count(answers: &[Observation], answer: Observation) -> usize {
    answers.iter().filter(|&&a| a == answer).count()
}

/// The frames of the pages of a range.
fn frames(target: &Target, start: u64, size: u64) -> Vec<u64> {
    let pagemap = File::open(format!("/proc/{}/pagemap", target.pid())).unwrap();
    let entry = |page: u64| word(&pagemap, page);
    (start / PAGE..(start + size) / PAGE).map(entry).filter(|e| e >> 63 == 1).map(|e| e & ((1 << 55) - 1)).collect()
}

fn word(file: &File, index: u64) -> u64 {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, index * 8).unwrap();
    u64::from_ne_bytes(bytes)
}

fn heads(frames: &[u64]) -> usize {
    let flags = File::open("/proc/kpageflags").unwrap();
    frames.iter().filter(|&&frame| word(&flags, frame) & HEAD != 0).count()
}

#[test]
fn the_probe_passes_its_own_test() {
    drop(or_skip!(open()));
    IdleProbe::check().unwrap();
}

#[test]
fn written_pages_are_accessed_and_others_are_idle() {
    let mut probe = or_skip!(open());
    let mut target = Target::start();
    let start = target.map("small", 2 * MIB);
    target.write(start, 2 * MIB);
    update(&mut probe, &target);
    let samples = pages(&target, start, 2 * MIB);
    for _ in 0..3 {
        let answers = round(&mut probe, &samples, || write_anew(&mut target, start, MIB, MIB));
        let (hot, cold) = answers.split_at(256);
        assert_eq!((count(hot, Idle), count(cold, Accessed)), (0, 0));
        assert!(count(hot, Accessed) + STRAGGLERS >= 256 && count(cold, Idle) + STRAGGLERS >= 256);
    }
}

#[test]
fn a_page_that_is_faulted_in_during_the_round_is_accessed_and_a_missing_page_is_idle() {
    let mut probe = or_skip!(open());
    let mut target = Target::start();
    let start = target.map("small", MIB);
    update(&mut probe, &target);
    let samples = pages(&target, start, MIB);
    let answers = round(&mut probe, &samples, || target.write(start, MIB / 2));
    assert_eq!((count(&answers[..128], Accessed), count(&answers[128..], Idle)), (128, 128));
}

#[test]
fn a_huge_page_has_one_answer_and_is_not_split() {
    let mut probe = or_skip!(open());
    let mut target = Target::start();
    let start = target.map("huge", 2 * HUGE);
    target.write(start, 2 * HUGE);
    let before = heads(&frames(&target, start, 2 * HUGE));
    if before != 2 {
        return isotherm_testing::skip("huge pages are not available");
    }
    update(&mut probe, &target);
    let samples = pages(&target, start, 2 * HUGE);
    let answers = round(&mut probe, &samples, || write_anew(&mut target, start, HUGE, PAGE));
    assert_eq!((count(&answers[..512], Accessed), count(&answers[512..], Idle)), (512, 512));
    assert_eq!(probe.clears(), 2);
    assert_eq!(heads(&frames(&target, start, 2 * HUGE)), 2);
}

#[test]
fn hugetlb_pages_are_unobservable() {
    let mut probe = or_skip!(open());
    let free = fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages").unwrap_or_default();
    if free.trim().parse::<u32>().is_ok_and(|free| free < 2) || free.is_empty() {
        return isotherm_testing::skip("hugetlbfs has no free pages");
    }
    let mut target = Target::start();
    let start = target.map("hugetlb", 2 * HUGE);
    target.write(start, 2 * HUGE);
    update(&mut probe, &target);
    let answers = round(&mut probe, &pages(&target, start, 2 * HUGE), || target.write(start, 2 * HUGE));
    assert_eq!(count(&answers, Unobservable), 1024);
}

#[test]
fn pages_of_several_processes_are_observed_and_any_access_counts() {
    let mut probe = or_skip!(open());
    let mut target = Target::start();
    let start = target.map("shared", MIB);
    target.write(start, MIB);
    target.request(&format!("fork-and-read {start} {MIB}"));
    update(&mut probe, &target);
    let samples = pages(&target, start, MIB);
    let answers = round(&mut probe, &samples, || write_anew(&mut target, start, MIB / 2, MIB / 2));
    assert_eq!((count(&answers[..128], Idle), count(&answers[128..], Accessed)), (0, 0));
    assert!(count(&answers, Unobservable) <= STRAGGLERS);
    // This read is made by another process, through another mapping of the same pages.
    let answers = round(&mut probe, &samples, || _ = target.request(&format!("fork-and-read {start} {MIB}")));
    assert!(count(&answers, Accessed) + STRAGGLERS >= 256);
}

#[test]
fn locked_pages_are_observed_and_the_zero_page_is_unobservable() {
    let mut probe = or_skip!(open());
    let mut target = Target::start();
    let locked = target.map("locked", MIB);
    let zeroes = target.map("small", MIB);
    target.write(locked, MIB);
    target.read(zeroes, MIB);
    update(&mut probe, &target);
    let answers = round(&mut probe, &pages(&target, locked, MIB), || ());
    assert!(count(&answers, Idle) + STRAGGLERS >= 256);
    let answers = round(&mut probe, &pages(&target, zeroes, MIB), || ());
    assert_eq!(count(&answers, Unobservable), 256);
}

#[test]
fn a_file_that_no_process_maps_is_observed_in_physical_memory() {
    let mut probe = or_skip!(open());
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("file");
    fs::write(&path, vec![7; MIB as usize]).unwrap();
    let mut target = Target::start();
    let start = target.map(&format!("file:{}", path.display()), MIB);
    target.read(start, MIB);
    let frames = frames(&target, start, MIB);
    assert_eq!(frames.len(), 256);
    target.request(&format!("unmap {start} {MIB}"));
    update(&mut probe, &target);
    let samples: Vec<_> = frames.iter().map(|frame| Sample { target: PHYSICAL, addr: frame * PAGE }).collect();
    let answers = round(&mut probe, &samples, || ());
    assert_eq!(count(&answers, Accessed), 0);
    assert!(count(&answers, Idle) + STRAGGLERS >= 256);
    let answers = round(&mut probe, &samples, || assert_eq!(fs::read(&path).unwrap().len(), MIB as usize));
    assert!(count(&answers, Accessed) + STRAGGLERS >= 256, "{} of 256", count(&answers, Accessed));
}

#[test]
fn the_kernel_keeps_the_referenced_state_of_pages_that_are_marked() {
    let mut probe = or_skip!(open());
    let mut target = Target::start();
    let start = target.map("small", MIB);
    target.write(start, MIB);
    update(&mut probe, &target);
    round(&mut probe, &pages(&target, start, MIB), || ());
    let smaps = fs::read_to_string(format!("/proc/{}/smaps", target.pid())).unwrap();
    let mapping = smaps.split(&format!("{start:x}-")).nth(1).unwrap();
    let referenced = mapping.lines().find_map(|line| line.strip_prefix("Referenced:")).unwrap();
    assert_eq!(referenced.trim(), "1024 kB");
}

#[test]
fn a_target_that_calls_exec_or_ends_is_not_an_error() {
    let mut probe = or_skip!(open());
    let mut target = Target::start();
    let start = target.map("small", MIB);
    target.write(start, MIB);
    update(&mut probe, &target);
    let samples = pages(&target, start, MIB);
    target.request("exec");
    assert_eq!(count(&round(&mut probe, &samples, || ()), Idle), 256);
    // The next update finds the new address space.
    let start = target.map("small", MIB);
    target.write(start, MIB);
    update(&mut probe, &target);
    let samples = pages(&target, start, MIB);
    let answers = round(&mut probe, &samples, || write_anew(&mut target, start, MIB, MIB));
    assert!(count(&answers, Accessed) + STRAGGLERS >= 256);
    target.kill();
    assert_eq!(count(&round(&mut probe, &samples, || ()), Idle), 256);
}

/// Surveys the target. Returns the numbers of present, accessed and unobservable pages of the range, and the blocks.
fn survey(probe: &mut IdleProbe, target: &Target, start: u64, size: u64) -> ([usize; 3], Vec<BlockPages>) {
    let mappings = Process::open(target.pid()).unwrap().mappings().unwrap();
    let id = TargetId::process(target.pid(), Duration::ZERO);
    let survey = probe.survey().unwrap();
    survey.begin().unwrap();
    let mut blocks = Vec::new();
    survey.read(&TargetSpace { id, layout: Layout::Process, mappings }, SurveyPart::ALL, &mut blocks).unwrap();
    assert!(blocks.is_sorted_by(|a, b| a.start < b.start));
    blocks.retain(|block| (start..start + size).contains(&block.start));
    let sum = |of: fn(&BlockPages) -> PageBits| blocks.iter().map(|block| of(block).count()).sum();
    let counts = [
        |block: &BlockPages| block.present,
        |b: &BlockPages| b.accessed & !b.unobservable,
        |b: &BlockPages| b.unobservable,
    ];
    (counts.map(sum), blocks)
}

/// Marks the accessed pages of the blocks.
fn mark(probe: &mut IdleProbe, target: &Target, blocks: &[BlockPages]) -> u64 {
    let id = TargetId::process(target.pid(), Duration::ZERO);
    let accessed = |block: &BlockPages| ClearPages { start: block.start, pages: block.accessed, ..Default::default() };
    let mut chosen: Vec<_> = blocks.iter().map(accessed).collect();
    probe.survey().unwrap().clear(id, &mut chosen).unwrap()
}

#[test]
fn the_survey_finds_every_page_that_was_accessed_and_no_other() {
    let mut probe = or_skip!(open());
    let mut target = Target::start();
    let size = 16 * MIB;
    let start = target.map("small", size + 4 * MIB);
    target.write(start, size);
    update(&mut probe, &target);
    let (counts, blocks) = survey(&mut probe, &target, start, size);
    // New pages are unobservable until they are on a reclaim list.
    assert_eq!((counts[0], counts[1] + counts[2]), (4096, 4096));
    assert!(counts[2] <= STRAGGLERS, "{counts:?}");
    mark(&mut probe, &target, &blocks);
    for round in 1..4 {
        write_anew(&mut target, start, size, round * MIB);
        // A sample marks a page that was accessed. The survey learns of the access.
        probe.clear(&pages(&target, start, 16 * PAGE)).unwrap();
        let (counts, blocks) = survey(&mut probe, &target, start, size);
        let written = (round * MIB / PAGE) as usize;
        assert!(counts[1] <= written + STRAGGLERS && counts[1] + counts[2] >= written, "{counts:?} {written}");
        assert!(blocks[0].accessed.count() >= 256 && counts[2] <= STRAGGLERS, "{counts:?}");
        mark(&mut probe, &target, &blocks);
    }
    let (counts, _) = survey(&mut probe, &target, start, size);
    assert_eq!(counts[0], 4096);
    assert!(counts[1] <= STRAGGLERS, "{counts:?}");
}

#[test]
fn the_survey_observes_pages_of_several_processes_and_huge_pages() {
    let mut probe = or_skip!(open());
    let mut target = Target::start();
    let shared = target.map("shared", 4 * MIB);
    target.write(shared, 4 * MIB);
    target.request(&format!("fork-and-read {shared} {}", 4 * MIB));
    let huge = target.map("huge", 2 * HUGE);
    target.write(huge, 2 * HUGE);
    update(&mut probe, &target);
    let (_, blocks) = survey(&mut probe, &target, shared, 4 * MIB);
    mark(&mut probe, &target, &blocks);
    let (_, blocks) = survey(&mut probe, &target, huge, 2 * HUGE);
    if heads(&frames(&target, huge, 2 * HUGE)) == 2 {
        assert!(blocks.iter().all(|block| block.huge));
        assert_eq!(mark(&mut probe, &target, &blocks), 2);
        write_anew(&mut target, huge, HUGE, PAGE);
        let (counts, _) = survey(&mut probe, &target, huge, 2 * HUGE);
        assert_eq!(counts, [1024, 512, 0]);
        assert_eq!(heads(&frames(&target, huge, 2 * HUGE)), 2);
    }
    write_anew(&mut target, shared, 4 * MIB, MIB);
    let ([present, accessed, unobservable], _) = survey(&mut probe, &target, shared, 4 * MIB);
    assert_eq!(present, 1024);
    assert!((256 - unobservable.min(256)..=256 + STRAGGLERS).contains(&accessed), "{accessed} {unobservable}");
    assert!(unobservable <= STRAGGLERS);
}

#[test]
fn the_survey_of_a_large_reservation_finds_its_pages() {
    let mut probe = or_skip!(open());
    let mut target = Target::start();
    let small = target.map("small", MIB);
    target.write(small, MIB);
    let start = target.request(&format!("reserve read {}", 256_u64 << 30));
    update(&mut probe, &target);
    let began = std::time::Instant::now();
    let (counts, _) = survey(&mut probe, &target, small, MIB);
    println!("a survey with 256 GiB reserved at {start:#x}: {:?}", began.elapsed());
    assert_eq!(counts[0], 256);
}

#[test]
fn a_look_finds_accesses_that_samples_and_surveys_have_hidden() {
    let mut probe = or_skip!(open());
    let mut look = probe.look().unwrap();
    let mut target = Target::start();
    let start = target.map("small", 2 * MIB);
    target.write(start, 2 * MIB);
    update(&mut probe, &target);
    let (_, blocks) = survey(&mut probe, &target, start, 2 * MIB);
    mark(&mut probe, &target, &blocks);
    survey(&mut probe, &target, start, 2 * MIB);
    let mut young = |target: &Target| {
        let samples = pages(target, start, 2 * MIB);
        let mut answers = vec![Unobservable; samples.len()];
        let mappings = Process::open(target.pid()).unwrap().mappings().unwrap();
        look.update(&[TargetSpace { id: samples[0].target, layout: Layout::Process, mappings }]).unwrap();
        look.read(&samples, &mut answers).unwrap();
        (count(&answers[..128], Accessed), count(&answers[128..], Accessed))
    };
    let (hot, cold) = young(&target);
    assert!(hot + cold <= STRAGGLERS, "{hot} {cold}");
    write_anew(&mut target, start, MIB / 2, MIB / 2);
    let (hot, cold) = young(&target);
    assert!(hot == 128 && cold <= STRAGGLERS, "{hot} {cold}");
    probe.clear(&pages(&target, start, MIB / 4)).unwrap();
    let (hot, cold) = young(&target);
    assert!(hot == 128 && cold <= STRAGGLERS, "after samples: {hot} {cold}");
    let (_, blocks) = survey(&mut probe, &target, start, 2 * MIB);
    mark(&mut probe, &target, &blocks);
    let (hot, cold) = young(&target);
    assert!(hot == 128 && cold <= STRAGGLERS, "in a survey: {hot} {cold}");
}
