//! The survey of shared memory by the multi-generational LRU. The tests turn it on, so they run in the laboratory only.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use isotherm_core::AccessProbe;
use isotherm_core::survey::{BlockPages, ClearPages, PageBits, SurveyPart};
use isotherm_probes::bpf::{BpfProbe, SharedLimits, SharedMemory};

use crate::survey::{counts, nearly};
use crate::target::Target;
use crate::watch::*;

const SIZE: u64 = 64 * MIB;
const PART: u64 = 16 * MIB;
const ENABLED: &str = "/sys/kernel/mm/lru_gen/enabled";
const TOP: &str = "/sys/fs/cgroup";

/// Allows aging whenever it is asked for, and `/proc/PID/clear_refs` for nearly nothing.
fn only_aging() -> SharedLimits {
    SharedLimits { longest_hold: Duration::from_micros(10), time_share: 1e6, ..SharedLimits::default() }
}

/// Opens the probe on a machine on which the multi-generational LRU may be turned on.
fn open_in_the_laboratory() -> Result<BpfProbe, &'static str> {
    if !Path::new("/lab/settings").exists() {
        return Err("it changes how the machine reclaims memory, so it runs in the laboratory");
    }
    open()
}

/// A cgroup for targets, while the multi-generational LRU is on. Everything is as before when it is dropped.
struct Cgroup {
    directory: PathBuf,
    enabled: String,
}

impl Cgroup {
    fn new(name: &str) -> Self {
        let enabled = fs::read_to_string(ENABLED).unwrap();
        fs::write(ENABLED, "y").unwrap();
        fs::write(format!("{TOP}/cgroup.subtree_control"), "+memory").unwrap();
        let directory = PathBuf::from(format!("{TOP}/aging-{name}"));
        fs::create_dir(&directory).unwrap();
        Self { directory, enabled }
    }

    /// Starts a process in the cgroup.
    fn start(&self) -> Target {
        let target = Target::start();
        fs::write(self.directory.join("cgroup.procs"), target.pid().to_string()).unwrap();
        target
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The targets have ended: they were made after the cgroup.
        let _ = fs::remove_dir(&self.directory);
        let _ = fs::write(ENABLED, self.enabled.trim());
    }
}

/// A file in memory. Its pages are charged to the process that accesses them first.
struct SharedFile(PathBuf);

impl SharedFile {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(format!("/dev/shm/isotherm-aging-{name}"));
        fs::File::create(&path).unwrap().set_len(SIZE).unwrap();
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

/// Surveys the targets as the monitor does: reads all of them, runs `between`, and clears in all of them whatever the
/// survey clears by itself. Returns what it has read and what it has cleared, by target.
fn survey_all<const N: usize>(
    probe: &mut BpfProbe,
    targets: &mut [Target; N],
    between: impl FnOnce(&mut [Target; N]),
) -> [(Vec<BlockPages>, Vec<ClearPages>); N] {
    let survey = probe.survey().unwrap();
    survey.begin().unwrap();
    let mut found = targets.each_ref().map(|target| {
        let mut blocks = Vec::new();
        survey.read(&space(target), SurveyPart::ALL, &mut blocks).unwrap();
        (blocks, Vec::new())
    });
    between(targets);
    for (target, (_, cleared)) in targets.iter().zip(&mut found) {
        survey.clear(space(target).id, cleared).unwrap();
        assert!(cleared.windows(2).all(|pair| pair[0].start < pair[1].start));
    }
    found
}

/// The number of pages of a range that were cleared, and of those that are unobservable.
fn done(blocks: &[ClearPages], start: u64, size: u64) -> (u64, u64) {
    let count = |of: fn(&ClearPages) -> PageBits| -> usize {
        let inside = |block: &&ClearPages| (start..start + size).contains(&block.start);
        blocks.iter().filter(inside).map(|block| of(block).count()).sum()
    };
    (count(|block| block.pages) as u64, count(|block| block.unobservable) as u64)
}

fn accessed(blocks: &[BlockPages], start: u64, size: u64) -> u64 {
    counts(blocks, start..start + size).1 as u64
}

#[test]
fn one_aging_clears_shared_and_private_pages_of_all_targets_of_the_cgroup() {
    let mut probe = or_skip!(open_in_the_laboratory());
    probe.set_sweeps(false);
    probe.set_shared_memory(SharedMemory::Auto, only_aging());
    let cgroup = Cgroup::new("all");
    let file = SharedFile::new("all");
    let mut targets = [cgroup.start(), cgroup.start()];
    let shared = targets.each_mut().map(|target| file.map(target));
    let private = targets.each_mut().map(|target| target.map("small", SIZE));
    for ((target, shared), private) in targets.iter_mut().zip(shared).zip(private) {
        target.read(shared, SIZE);
        target.write(private, SIZE);
    }
    update(&mut probe, &[&targets[0], &targets[1]]);
    let first = survey_all(&mut probe, &mut targets, |_| {});
    for ((_, cleared), (shared, private)) in first.iter().zip(shared.into_iter().zip(private)) {
        assert!(nearly(done(cleared, shared, SIZE).0, SIZE / PAGE), "{:?}", done(cleared, shared, SIZE));
        assert!(nearly(done(cleared, private, SIZE).0, SIZE / PAGE), "{:?}", done(cleared, private, SIZE));
    }
    for round in 0..3 {
        let offset = round * PART;
        targets[0].read(shared[0] + offset, PART);
        targets[1].read(private[1] + offset, PART);
        let found = survey_all(&mut probe, &mut targets, |_| {});
        let hot = accessed(&found[0].0, shared[0] + offset, PART);
        assert!(nearly(hot, PART / PAGE), "{hot}");
        // Pages that were new, and that no aging has cleared yet, may be accessed still.
        assert!(accessed(&found[0].0, shared[0], SIZE) <= hot + STRAGGLERS as u64);
        assert!(accessed(&found[1].0, shared[1], SIZE) <= STRAGGLERS as u64);
        assert!(nearly(accessed(&found[1].0, private[1] + offset, PART), PART / PAGE));
        assert!(accessed(&found[0].0, private[0], SIZE) <= STRAGGLERS as u64);
        assert!(nearly(done(&found[0].1, shared[0] + offset, PART).0, PART / PAGE));
        assert!(nearly(done(&found[1].1, private[1] + offset, PART).0, PART / PAGE));
        assert_eq!(probe.agings(), round + 2, "one aging is for both targets");
    }
    // Libraries are charged to the cgroup that has used them first.
    let left_out = probe.shared_left_out().map_or(0, |left_out| left_out.bytes);
    assert!(left_out < SIZE / 4, "{left_out}");
}

#[test]
fn what_is_accessed_between_the_read_and_the_aging_counts_in_the_next_survey() {
    let mut probe = or_skip!(open_in_the_laboratory());
    probe.set_shared_memory(SharedMemory::Auto, only_aging());
    let cgroup = Cgroup::new("between");
    let file = SharedFile::new("between");
    let mut targets = [cgroup.start(), cgroup.start()];
    let shared = targets.each_mut().map(|target| file.map(target));
    targets.iter_mut().zip(shared).for_each(|(target, shared)| target.read(shared, SIZE));
    update(&mut probe, &[&targets[0], &targets[1]]);
    survey_all(&mut probe, &mut targets, |_| {});
    survey_all(&mut probe, &mut targets, |targets| targets[1].read(shared[1] + PART, PART));
    assert_eq!(probe.agings(), 2);
    let found = survey_all(&mut probe, &mut targets, |_| {});
    assert!(nearly(accessed(&found[1].0, shared[1] + PART, PART), PART / PAGE));
    let found = survey_all(&mut probe, &mut targets, |_| {});
    assert!(accessed(&found[1].0, shared[1] + PART, PART) <= STRAGGLERS as u64, "it says so once");
}

#[test]
fn pages_that_aging_leaves_are_cleared_by_clear_refs_or_are_unobservable() {
    let mut probe = or_skip!(open_in_the_laboratory());
    let cgroup = Cgroup::new("leaves");
    let file = SharedFile::new("leaves");
    // The pages are charged to the cgroup of the test.
    fs::write(&file.0, vec![1; SIZE as usize]).unwrap();
    let mut targets = [cgroup.start(), cgroup.start()];
    let shared = targets.each_mut().map(|target| file.map(target));
    let others = targets.each_mut().map(|target| target.map("small", 2 * MIB));
    update(&mut probe, &[&targets[0], &targets[1]]);
    let limits = [SharedLimits { longest_hold: Duration::from_secs(10), ..only_aging() }, only_aging()];
    for (limits, expected) in limits.into_iter().zip([(SIZE / PAGE, 0), (0, SIZE / PAGE)]) {
        probe.set_shared_memory(SharedMemory::Auto, limits);
        for _ in 0..3 {
            for ((target, shared), other) in targets.iter_mut().zip(shared).zip(others) {
                // clear_refs does not flush the TLB. This does, so that the reads set accessed bits.
                target.request(&format!("unprotect {other} {}", 2 * MIB));
                target.write(other, 2 * MIB);
                target.request(&format!("forbid {other} {}", 2 * MIB));
                target.read(shared, SIZE);
            }
            let found = survey_all(&mut probe, &mut targets, |_| {});
            for ((_, cleared), shared) in found.iter().zip(shared) {
                let found = done(cleared, shared, SIZE);
                let is_nearly = |found: u64, expected: u64| found.abs_diff(expected) * 50 <= SIZE / PAGE;
                assert!(is_nearly(found.0, expected.0) && is_nearly(found.1, expected.1), "{found:?} {expected:?}");
            }
        }
    }
    assert_eq!(probe.agings(), 1, "aging that leaves most shared pages is not tried again soon");
}

#[test]
fn a_cgroup_is_not_aged_if_that_costs_its_processes_more() {
    let mut probe = or_skip!(open_in_the_laboratory());
    let cgroup = Cgroup::new("costs");
    let file = SharedFile::new("costs");
    let mut targets = [cgroup.start(), cgroup.start()];
    let shared = targets.each_mut().map(|target| file.map(target));
    let private = targets[0].map("small", SIZE);
    targets.iter_mut().zip(shared).for_each(|(target, shared)| target.read(shared, SIZE));
    update(&mut probe, &[&targets[0], &targets[1]]);
    let survey = |probe: &mut BpfProbe, targets: &mut [Target; 2]| {
        targets[0].write(private, SIZE);
        survey_all(probe, targets, |_| {});
        probe.agings()
    };
    // Within the limits, clear_refs of the shared pages costs less than to set the bits of the private ones again.
    // Clears are slow on a busy machine, so the price of a bit is set high.
    let limits = SharedLimits {
        longest_hold: Duration::from_secs(10),
        together: Duration::MAX,
        time_share: 1e6,
        set_again: Duration::from_millis(1),
    };
    probe.set_shared_memory(SharedMemory::Auto, limits);
    assert_eq!((0..3).map(|_| survey(&mut probe, &mut targets)).max(), Some(0));
    // Without them, the cgroup is aged, until most of its memory is of a process that is not watched.
    probe.set_shared_memory(SharedMemory::Auto, only_aging());
    assert!(survey(&mut probe, &mut targets) > 0);
    let mut other = cgroup.start();
    let others = other.map("small", 4 * SIZE);
    other.write(others, 4 * SIZE);
    // It is noticed after some surveys.
    (0..8).for_each(|_| _ = survey(&mut probe, &mut targets));
    let before = probe.agings();
    assert_eq!((0..4).map(|_| survey(&mut probe, &mut targets)).max(), Some(before));
}
