//! Huge pages and large folios are observed, and never split.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use isotherm_core::AccessProbe;

use crate::survey::{clear, counts, survey};
use crate::target::Target;
use crate::watch::*;

const SIZE: u64 = 16 * MIB;

/// A target with memory in huge pages.
fn huge() -> Result<(isotherm_probes::bpf::BpfProbe, Target, u64), &'static str> {
    let probe = open()?;
    let mut target = Target::start();
    let start = target.map("huge", SIZE);
    target.write(start, SIZE);
    if smaps_kib(target.pid(), start, "AnonHugePages") * 1024 != SIZE {
        return Err("huge pages are not available (see /sys/kernel/mm/transparent_hugepage/enabled)");
    }
    Ok((probe, target, start))
}

#[test]
fn a_huge_page_is_observed_as_one_and_never_split() {
    let (mut probe, mut target, start) = or_skip!(huge());
    update(&mut probe, &[&target]);
    let samples = pages(&target, start, SIZE);
    let mut right = 0;
    for round in 0..30 {
        // Some rounds sample all pages, others a few at irregular distances.
        let step = 1 + round * 37 % 512;
        let samples: Vec<_> = samples.iter().copied().skip(round % step).step_by(step).collect();
        let lower = samples.iter().filter(|sample| sample.addr < start + SIZE / 2).count();
        probe.clear(&samples).unwrap();
        // A write to any part of a huge page makes all of it accessed.
        (0..SIZE / 2).step_by(2 << 20).for_each(|page| target.write(start + page + 5 * PAGE, PAGE));
        let answers = read(&mut probe, &samples);
        let as_expected = count(&answers[..lower], Accessed) + count(&answers[lower..], Idle);
        right += usize::from(nearly_all(as_expected, answers.len()));
        assert_eq!(smaps_kib(target.pid(), start, "AnonHugePages") * 1024, SIZE, "round {round}");
    }
    // The kernel's DAMON, if it runs, often clears the accessed bits of many huge pages at once.
    assert!(right >= 25, "{right} of 30 rounds are right");
}

#[test]
fn a_huge_page_counts_as_one_clear_at_most() {
    let (probe, target, start) = or_skip!(huge());
    let mut probe = probe.with_sweeps(false);
    update(&mut probe, &[&target]);
    let samples: Vec<_> = pages(&target, start, SIZE).into_iter().step_by(512).collect();
    probe.clear(&samples).unwrap();
    let clears = probe.clears();
    assert!((1..=SIZE / (2 * MIB)).contains(&clears), "{clears}");
}

#[test]
fn a_huge_page_mapped_by_small_entries_is_not_split() {
    let (mut probe, mut target, start) = or_skip!(huge());
    // After this, each huge page is still one folio, but it is mapped page by page.
    (0..SIZE).step_by(2 << 20).for_each(|page| {
        target.request(&format!("protect {} {PAGE}", start + page + PAGE));
        target.request(&format!("unprotect {} {PAGE}", start + page + PAGE));
    });
    let folios =
        |target: &Target| kernel_flags(target.pid(), start, SIZE).iter().filter(|&flags| flags & COMPOUND != 0).count();
    assert_eq!(smaps_kib(target.pid(), start, "AnonHugePages"), 0);
    assert_eq!(folios(&target) as u64, SIZE / PAGE);
    update(&mut probe, &[&target]);

    let samples: Vec<_> = pages(&target, start, SIZE).into_iter().skip(7).step_by(101).collect();
    let mut right = 0;
    for _ in 0..10 {
        target.write(start, SIZE);
        probe.clear(&samples).unwrap();
        let answers = read(&mut probe, &samples);
        right += count(&answers, if probe.clears_large_folios() { Idle } else { Unobservable });
        assert_eq!(folios(&target) as u64, SIZE / PAGE);
    }
    assert!(nearly_all(right, 10 * samples.len()), "{right} of 10 times {} are right", samples.len());
}

#[test]
fn each_page_of_a_large_folio_that_is_mapped_page_by_page_has_an_accessed_bit_of_its_own() {
    let (mut probe, mut target, start) = or_skip!(huge());
    if !probe.clears_large_folios() {
        return isotherm_testing::skip("this kernel splits large folios to clear them, so that they are not observed");
    }
    (0..SIZE).step_by(2 << 20).for_each(|page| {
        target.request(&format!("protect {} {PAGE}", start + page + PAGE));
        target.request(&format!("unprotect {} {PAGE}", start + page + PAGE));
    });
    update(&mut probe, &[&target]);
    let samples = pages(&target, start, SIZE);
    probe.clear(&samples).unwrap();
    let used: Vec<u64> = (0..SIZE).step_by(2 << 20).map(|page| start + page + 77 * PAGE).collect();
    used.iter().for_each(|&page| target.write(page, PAGE));
    let answers = read(&mut probe, &samples);
    let accessed =
        samples.iter().zip(&answers).filter(|(_, answer)| **answer == Accessed).map(|(sample, _)| sample.addr);
    let accessed: Vec<u64> = accessed.collect();
    // The kernel's DAMON, if it runs, may clear one in between.
    assert!(accessed.iter().all(|page| used.contains(page)) && accessed.len() + 2 >= used.len(), "{accessed:x?}");
}

#[test]
fn a_part_of_a_large_folio_is_not_cleared() {
    let (mut probe, mut target, start) = or_skip!(huge());
    // A page in the middle of each folio becomes read-only. Each folio is in three mappings now.
    (0..SIZE).step_by(2 << 20).for_each(|page| {
        target.request(&format!("protect {} {PAGE}", start + page + 100 * PAGE));
    });
    update(&mut probe, &[&target]);
    let clears = probe.clears();
    let samples: Vec<_> = pages(&target, start, SIZE).into_iter().skip(7).step_by(512).collect();
    let mut unobservable = 0;
    for _ in 0..20 {
        target.read(start, SIZE);
        probe.clear(&samples).unwrap();
        unobservable += count(&read(&mut probe, &samples), Unobservable);
    }
    assert!(nearly_all(unobservable, 20 * samples.len()), "{unobservable} of 20 times {}", samples.len());
    assert_eq!(probe.clears(), clears);
    let flags = kernel_flags(target.pid(), start, SIZE);
    assert!(flags.iter().all(|flags| flags & COMPOUND != 0));
}

/// A file that is deleted when the value is dropped.
struct TestFile(PathBuf);

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn large_folios_of_a_file_are_not_split() {
    let mut probe = or_skip!(open());
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("large-folios-{}", std::process::id()));
    let file = TestFile(path);
    let mut writer = fs::File::create(&file.0).unwrap();
    (0..SIZE / MIB).for_each(|i| writer.write_all(&vec![i as u8; MIB as usize]).unwrap());
    writer.sync_all().unwrap();
    rustix::fs::fadvise(&writer, 0, None, rustix::fs::Advice::DontNeed).unwrap();

    let mut target = Target::start();
    let start = target.map(&format!("file:{}", file.0.display()), SIZE);
    target.read(start, SIZE);
    let heads = |target: &Target| -> Vec<bool> {
        kernel_flags(target.pid(), start, SIZE).iter().map(|flags| flags & HEAD != 0).collect()
    };
    let before = heads(&target);
    let folios = before.iter().filter(|&&head| head).count();
    if folios == 0 {
        return isotherm_testing::skip("this file system makes no large folios");
    }
    update(&mut probe, &[&target]);
    let all = pages(&target, start, SIZE);
    let mut seen = [0; 3];
    for round in 0..10 {
        let samples: Vec<_> = all.iter().copied().skip(round).step_by(31).collect();
        probe.clear(&samples).unwrap();
        target.read(start, SIZE / 2);
        let answers = read(&mut probe, &samples);
        [Accessed, Idle, Unobservable].iter().enumerate().for_each(|(i, &a)| seen[i] += count(&answers, a));
        assert_eq!(heads(&target), before, "round {round}");
    }
    let [accessed, idle, unobservable] = seen;
    eprintln!(
        "{folios} large folios in {} pages: {accessed} accessed, {idle} idle, {unobservable} unobservable",
        all.len()
    );
    if probe.clears_large_folios() {
        assert!(accessed > 0 && idle > 0);
    }
}

#[test]
fn pages_of_hugetlbfs_are_unobservable() {
    let mut probe = or_skip!(open());
    let free: u64 = fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
        .ok()
        .and_then(|n| n.trim().parse().ok())
        .unwrap_or(0);
    if free < 2 {
        return isotherm_testing::skip("hugetlbfs has no free pages (see /proc/sys/vm/nr_hugepages)");
    }
    for kind in ["hugetlb", "shared-hugetlb"] {
        let mut target = Target::start();
        let start = target.map(kind, 4 * MIB);
        target.write(start, 4 * MIB);
        update(&mut probe, &[&target]);
        let samples = pages(&target, start, 4 * MIB);
        probe.clear(&samples).unwrap();
        assert_eq!(count(&read(&mut probe, &samples), Unobservable), samples.len(), "{kind}");

        // A survey knows it once it was to clear them.
        let (blocks, range) = (survey(&mut probe, &target), start..start + 4 * MIB);
        assert_eq!(counts(&blocks, range.clone()).0, 1024, "{kind}");
        let (_, done) = clear(&mut probe, &target, &blocks, range.clone());
        let refused = done.iter().filter(|block| range.contains(&block.start));
        assert_eq!(refused.map(|block| block.unobservable.iter().count()).sum::<usize>(), 1024, "{kind}");
    }
}
