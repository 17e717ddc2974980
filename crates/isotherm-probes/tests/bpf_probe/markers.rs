//! Entries of page tables that have the form of a page in swap, but stand for no page: guard regions, poisoned memory,
//! and memory that userfaultfd protects before anything is there.

use std::fs::File;
use std::os::unix::fs::FileExt;

use isotherm_core::AccessProbe;
use isotherm_core::survey::{BlockPages, PageBits};

use crate::survey::survey;
use crate::target::Target;
use crate::watch::*;

/// Whether the kernel says that all pages of the range are in swap, as it does of markers.
fn seem_swapped(target: &Target, start: u64, size: u64) -> bool {
    let mut entries = vec![0; (size / PAGE * 8) as usize];
    let pagemap = File::open(format!("/proc/{}/pagemap", target.pid())).unwrap();
    pagemap.read_exact_at(&mut entries, start / PAGE * 8).unwrap();
    entries.as_chunks().0.iter().all(|entry| u64::from_ne_bytes(*entry) >> 62 == 1)
}

#[test]
fn guard_regions_and_markers_of_userfaultfd_are_absent_and_not_in_swap() {
    let mut probe = or_skip!(open());
    let mut made = 0;
    for (kind, memory) in [("guard", "small"), ("poison", "small"), ("write-protect", "shared")] {
        let mut target = Target::start();
        let start = target.map(memory, 4 * MIB);
        if target.request(&format!("marker {kind} {start} {MIB}")) != 0 {
            eprintln!("this kernel has no markers of the kind {kind}");
            continue;
        }
        made += 1;
        target.write(start + MIB, 3 * MIB);
        assert!(seem_swapped(&target, start, MIB), "{kind}");
        update(&mut probe, &[&target]);
        let blocks = survey(&mut probe, &target);
        let pages = |of: fn(&BlockPages) -> PageBits| -> usize {
            let within = blocks.iter().filter(|block| (start..start + 4 * MIB).contains(&block.start));
            within.map(|block| of(block).iter().count()).sum()
        };
        assert_eq!((pages(|block| block.present), pages(|block| block.swapped)), (3 * 256, 0), "{kind}");
        let samples = crate::watch::pages(&target, start, MIB);
        probe.clear(&samples).unwrap();
        assert_eq!(count(&read(&mut probe, &samples), Idle), samples.len(), "{kind}");
    }
    if made == 0 {
        isotherm_testing::skip("this kernel has no markers");
    }
}
