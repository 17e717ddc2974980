//! Memory that settings of the machine change: merged by KSM, and shared memory in swap. So these tests run in the
//! laboratory only.

use std::fs;
use std::path::Path;
use std::process::Command;

use isotherm_core::AddrRange;
use isotherm_core::survey::{BlockPages, PageBits};
use isotherm_kernel::Pidfd;
use isotherm_kernel::madvise::{Advice, advise};
use isotherm_probes::bpf::{BpfProbe, SharedLimits, SharedMemory};

use crate::survey::{clear, counts, nearly, settle, survey};
use crate::target::Target;
use crate::watch::*;

const SIZE: u64 = 8 * MIB;

/// Opens the probe on a machine whose settings may be changed, if it has `path`.
fn open_with(path: &str) -> Result<BpfProbe, &'static str> {
    if !Path::new("/lab/settings").exists() {
        return Err("it changes settings of the machine, so it runs in the laboratory");
    }
    if !Path::new(path).exists() {
        return Err("this kernel of the laboratory has no KSM, or no zram");
    }
    let mut probe = open()?;
    probe.set_shared_memory(SharedMemory::Always, SharedLimits::default());
    Ok(probe)
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !holds() {
        assert!(start.elapsed() < std::time::Duration::from_secs(60), "timed out waiting until {what}");
        std::thread::yield_now();
    }
}

#[test]
fn pages_that_the_kernel_has_merged_are_observed_one_by_one() {
    const KSM: &str = "/sys/kernel/mm/ksm";
    let mut probe = or_skip!(open_with(KSM));
    let mut target = Target::start();
    let start = target.map("small", SIZE);
    target.write(start, SIZE);
    assert_eq!(target.request(&format!("merge {start} {SIZE}")), 0);
    fs::write(format!("{KSM}/pages_to_scan"), "10000").unwrap();
    fs::write(format!("{KSM}/run"), "1").unwrap();
    let merged = || fs::read_to_string(format!("{KSM}/pages_sharing")).unwrap().trim().parse::<u64>().unwrap();
    eventually("pages are merged", || merged() >= 2000);
    fs::write(format!("{KSM}/run"), "0").unwrap();

    let range = start..start + SIZE;
    update(&mut probe, &[&target]);
    for round in 0..3 {
        let blocks = survey(&mut probe, &target);
        let (present, _, unobservable) = counts(&blocks, range.clone());
        assert_eq!((present, unobservable), (2048, 0), "{round}");
        clear(&mut probe, &target, &blocks, range.clone());
        target.read(start + round * MIB, MIB);
        let accessed = counts(&survey(&mut probe, &target), range.clone()).1;
        assert!(nearly(accessed as u64, 256), "{round}: {accessed}");
    }
    fs::write(format!("{KSM}/run"), "2").unwrap();
}

/// Swap until this is dropped.
struct Swap;

impl Drop for Swap {
    fn drop(&mut self) {
        let _ = Command::new("sh").args(["-c", "swapoff /dev/zram0; echo 1 > /sys/block/zram0/reset"]).status();
    }
}

#[test]
fn shared_memory_in_swap_is_absent() {
    let mut probe = or_skip!(open_with("/sys/block/zram0"));
    let script = "echo 64M > /sys/block/zram0/disksize && mkswap /dev/zram0 && swapon /dev/zram0";
    assert!(Command::new("sh").args(["-c", script]).status().unwrap().success());
    let _swap = Swap;
    let mut target = Target::start();
    let start = target.map("shared", SIZE);
    target.write(start, SIZE);
    let handle = Pidfd::open(target.pid()).unwrap();
    let out = AddrRange::new(start, start + SIZE / 2).unwrap();
    update(&mut probe, &[&target]);
    let mut pages = (0, 0);
    eventually("the first half is in swap", || {
        advise(&handle, [out], Advice::PageOut).unwrap();
        let blocks = survey(&mut probe, &target);
        let within = |of: fn(&BlockPages) -> PageBits| -> usize {
            let all = blocks.iter().filter(|block| (start..start + SIZE).contains(&block.start));
            all.map(|block| of(block).iter().count()).sum()
        };
        pages = (within(|block| block.present), within(|block| block.swapped));
        pages.0 <= 1024
    });
    assert_eq!(pages, (1024, 0), "the kernel removes the entries");
}

/// Multi-size THP of one size, for memory that asks for huge pages, until this is dropped.
struct FolioSize(u64);

impl FolioSize {
    const DIRECTORY: &str = "/sys/kernel/mm/transparent_hugepage";

    fn set(kib: u64, value: &str) {
        fs::write(format!("{}/hugepages-{kib}kB/enabled", Self::DIRECTORY), value).unwrap();
    }

    fn only(kib: u64) -> Self {
        Self::set(2048, "never");
        Self::set(kib, "madvise");
        Self(kib)
    }
}

impl Drop for FolioSize {
    fn drop(&mut self) {
        Self::set(self.0, "never");
        Self::set(2048, "inherit");
    }
}

#[test]
fn each_page_of_multi_size_thp_has_an_accessed_bit_of_its_own_and_folios_stay_whole() {
    for kib in [64, 1024] {
        let mut probe = or_skip!(open_with(&format!("{}/hugepages-{kib}kB", FolioSize::DIRECTORY)));
        let _size = FolioSize::only(kib);
        let mut target = Target::start();
        let start = target.map("huge", SIZE);
        target.write(start, SIZE);
        let pid = target.pid();
        let folios = || kernel_flags(pid, start, SIZE).iter().filter(|&flags| flags & HEAD != 0).count() as u64;
        let pages_of_one = kib * 1024 / PAGE;
        assert_eq!(folios(), SIZE / (kib * 1024), "{kib}");

        let range = start..start + SIZE;
        update(&mut probe, &[&target]);
        for round in 0..4 {
            settle(&mut probe, &target, &range);
            // One page of each folio, another one in each round.
            let used = |folio: u64| start + (folio * pages_of_one + (round * 5 + folio) % pages_of_one) * PAGE;
            (0..folios()).for_each(|folio| target.read(used(folio), PAGE));
            let found = survey(&mut probe, &target);
            let (present, accessed, unobservable) = counts(&found, range.clone());
            assert_eq!((present, unobservable), (2048, 0), "{kib}, {round}");
            assert!(nearly(accessed as u64, folios()), "{kib}, {round}: {accessed} of {}", folios());
            assert_eq!(folios(), SIZE / (kib * 1024), "{kib}, {round}");
        }
    }
}
