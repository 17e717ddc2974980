//! Scans of page tables for idle memory.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use isotherm_core::IdleTally;
use isotherm_kernel::Selection;
use isotherm_kernel::Stop;
use isotherm_probes::bpf::{SharedLimits, SharedMemory};
use isotherm_probes::idle_scan::{Detail, IdleFindings, PageTableScan, ProcessIdle, Scan, ScanPacer, Scope};

use crate::target::Target;
use crate::watch::*;

const DETAIL: Detail = Detail { processes: true, mappings: true };

fn pacer() -> ScanPacer {
    ScanPacer::new(None, Stop::new().unwrap(), |_, _| ())
}

/// Opens a scan of targets and marks their memory. An error is the reason to skip the test.
fn marked(targets: &[&Target], shared: SharedMemory) -> Result<PageTableScan, &'static str> {
    drop(open()?);
    let pids = targets.iter().map(|target| target.pid());
    let scope = Scope::Processes(Selection::pids(pids).into());
    let mut scan = PageTableScan::open(scope, DETAIL, shared, SharedLimits::default()).unwrap();
    scan.mark(&mut pacer()).unwrap();
    Ok(scan)
}

fn read_scan(scan: &mut PageTableScan) -> IdleFindings {
    scan.read(&mut pacer()).unwrap()
}

fn of<'a>(findings: &'a IdleFindings, target: &Target) -> &'a ProcessIdle {
    findings.processes.iter().find(|process| process.pid == target.pid()).unwrap()
}

/// The mapping of a target that begins at `start`.
fn at<'a>(findings: &'a IdleFindings, target: &Target, start: u64) -> &'a IdleTally {
    let mut mappings = of(findings, target).mappings.iter();
    &mappings.find(|mapping| mapping.range.start() == start).unwrap().tally
}

/// Whether a figure is as expected, but for a fiftieth of `size`: the kernel's DAMON clears accessed bits if it runs,
/// and a new page may not be cleared the first time.
#[track_caller]
fn assert_near(found: u64, expected: u64, size: u64) {
    assert!(found.abs_diff(expected) * 50 <= size, "{} pages instead of {}", found / PAGE, expected / PAGE);
}

/// A file in memory that is deleted when the value is dropped.
struct SharedFile(PathBuf);

impl SharedFile {
    fn new(name: &str, size: u64) -> Self {
        let path = PathBuf::from(format!("/dev/shm/isotherm-scan-{name}-{}", std::process::id()));
        fs::write(&path, vec![1; size as usize]).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().size(), size);
        Self(path)
    }

    fn map(&self, target: &mut Target, size: u64) -> u64 {
        target.map(&format!("file:{}", self.0.display()), size)
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn hot_and_cold_memory_is_known_to_the_page_in_every_interval() {
    const SIZE: u64 = 32 * MIB;
    const HOT: u64 = 9 * MIB + 5 * PAGE;
    let mut target = Target::start();
    let start = target.map("small", SIZE);
    target.write(start, SIZE);
    let mut scan = or_skip!(marked(&[&target], SharedMemory::Auto));
    // More intervals than after which the survey of a monitor samples hot memory.
    for intervals in 1..=6_usize {
        target.write(start, HOT);
        let findings = read_scan(&mut scan);
        let found = at(&findings, &target, start);
        assert_near(found.accessed, HOT, SIZE);
        assert_near(found.idle, SIZE - HOT, SIZE);
        assert_eq!(found.size(), SIZE);
        assert_near(found.by_intervals()[intervals - 1], SIZE - HOT, SIZE);
        assert_eq!((findings.processes.len(), of(&findings, &target).shared), (1, 0));
        assert_eq!(findings.total.size(), of(&findings, &target).total.size());
    }
}

#[test]
fn memory_that_processes_share_counts_once_and_is_in_use_if_one_of_them_uses_it() {
    const SIZE: u64 = 32 * MIB;
    let file = SharedFile::new("twice", SIZE);
    let mut targets = [Target::start(), Target::start()];
    let starts = targets.each_mut().map(|target| file.map(target, SIZE));
    let alone = targets[0].map("small", 16 * MIB);
    targets[0].write(alone, 16 * MIB);
    for (target, start) in targets.iter_mut().zip(starts) {
        target.read(start, SIZE);
    }
    let mut scan = or_skip!(marked(&[&targets[0], &targets[1]], SharedMemory::Always));
    for _ in 0..2 {
        targets[0].read(starts[0], 8 * MIB);
        targets[1].read(starts[1] + 4 * MIB, 8 * MIB);
        let findings = read_scan(&mut scan);
        // The view of each process.
        for (target, start) in targets.iter().zip(starts) {
            let found = at(&findings, target, start);
            assert_near(found.accessed, 8 * MIB, SIZE);
            assert_near(found.idle, SIZE - 8 * MIB, SIZE);
            assert!(of(&findings, target).shared >= SIZE);
        }
        assert_near(at(&findings, &targets[0], alone).idle, 16 * MIB, SIZE);
        // All processes together. The program and its libraries are shared as well.
        let shared = findings.shared.as_ref().unwrap();
        let sum: u64 = findings.processes.iter().map(|process| process.total.size()).sum();
        let others = sum - findings.total.size();
        // Two processes map each shared page. One process maps a few pages of libraries twice: the last page of a part
        // of the file can also be the first page of the next part.
        let twice = others.checked_sub(shared.size()).unwrap();
        assert!(twice <= 64 * PAGE, "{} and {others}", shared.size());
        assert!(shared.size() >= SIZE && shared.size() < SIZE + 16 * MIB, "{shared:?}");
        assert!(shared.accessed >= 12 * MIB - SIZE / 50 && shared.accessed < 12 * MIB + 12 * MIB, "{shared:?}");
        assert!(shared.idle >= SIZE - 12 * MIB - SIZE / 50, "{shared:?}");
        let cgroups: u64 = findings.cgroups.iter().map(|cgroup| cgroup.own.size()).sum();
        assert!(findings.cgroups.is_empty() || cgroups == findings.total.size());
    }
}

#[test]
fn shared_memory_that_is_not_to_be_observed_is_unobservable() {
    const SIZE: u64 = 16 * MIB;
    let file = SharedFile::new("never", SIZE);
    let mut targets = [Target::start(), Target::start()];
    let starts = targets.each_mut().map(|target| file.map(target, SIZE));
    for (target, start) in targets.iter_mut().zip(starts) {
        target.read(start, SIZE);
    }
    let mut scan = or_skip!(marked(&[&targets[0], &targets[1]], SharedMemory::Never));
    for _ in 0..2 {
        targets[0].read(starts[0], SIZE);
        let findings = read_scan(&mut scan);
        assert_near(at(&findings, &targets[0], starts[0]).unobservable, SIZE, SIZE);
        assert!(findings.shared.unwrap().unobservable >= SIZE - SIZE / 50);
    }
}

#[test]
fn memory_shared_since_a_fork_counts_once() {
    const SIZE: u64 = 16 * MIB;
    let mut target = Target::start();
    let start = target.map("small", SIZE);
    target.write(start, SIZE);
    let child = target.request(&format!("fork-and-read {start} {SIZE}")) as u32;
    drop(or_skip!(open()));
    let scope = Scope::Processes(Selection::pids([target.pid(), child]).into());
    let mut scan = PageTableScan::open(scope, DETAIL, SharedMemory::Always, SharedLimits::default()).unwrap();
    scan.mark(&mut pacer()).unwrap();
    target.read(start, 4 * MIB);
    let findings = read_scan(&mut scan);
    let shared = findings.shared.as_ref().unwrap();
    assert!(shared.size() >= SIZE && of(&findings, &target).shared >= SIZE, "{shared:?}");
    assert_near(at(&findings, &target, start).accessed, 4 * MIB, SIZE);
    assert!(findings.total.size() < of(&findings, &target).total.size() + SIZE, "{findings:?}");
}

#[test]
fn new_memory_and_the_memory_of_a_program_that_was_executed_are_accessed() {
    const SIZE: u64 = 8 * MIB;
    let mut target = Target::start();
    let mut scan = or_skip!(marked(&[&target], SharedMemory::Auto));
    let start = target.map("small", SIZE);
    target.write(start, SIZE);
    assert_near(at(&read_scan(&mut scan), &target, start).accessed, SIZE, SIZE);
    assert_near(at(&read_scan(&mut scan), &target, start).idle, SIZE, SIZE);

    target.request("exec");
    let start = target.map("small", SIZE);
    target.write(start, SIZE);
    let findings = read_scan(&mut scan);
    assert_near(at(&findings, &target, start).accessed, SIZE, SIZE);
    let total = &of(&findings, &target).total;
    assert_eq!(total.by_intervals().iter().skip(1).sum::<u64>(), 0, "nothing is older than the program: {total:?}");
    target.kill();
    let findings = read_scan(&mut scan);
    assert!(findings.total.is_empty() && findings.notes.iter().any(|note| note.contains("has ended")), "{findings:?}");
}
