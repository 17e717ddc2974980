//! The survey of all pages, on copies of the kernel's files.

use std::time::Duration;

use isotherm_core::survey::{BlockPages, ClearPages, PageBits, SurveyPart, Unseen};
use isotherm_core::{AccessProbe, AddrRange, Observation, PAGE_SIZE, TargetId};
use isotherm_kernel::pages::SwapPlace;
use isotherm_probes::idle::IdleProbe;

use crate::made::*;

const OTHER: TargetId = TargetId::process(8, Duration::ZERO);

fn begin(probe: &mut IdleProbe) {
    probe.survey().unwrap().begin().unwrap();
}

fn read(probe: &mut IdleProbe, target: TargetId, pages: u64) -> Vec<BlockPages> {
    let mut blocks = Vec::new();
    probe.survey().unwrap().read(&space(target, pages), SurveyPart::ALL, &mut blocks).unwrap();
    blocks
}

/// Begins a survey, and reads process 7.
fn survey(probe: &mut IdleProbe, pages: u64) -> Vec<BlockPages> {
    begin(probe);
    read(probe, PROCESS, pages)
}

fn clear(probe: &mut IdleProbe, target: TargetId, pages: &[usize]) -> (u64, Vec<usize>, Vec<usize>) {
    let mut blocks = vec![ClearPages { start: 0, pages: bits(pages), unobservable: PageBits::NONE }];
    let marked = probe.survey().unwrap().clear(target, &mut blocks).unwrap();
    (marked, list(blocks[0].pages), list(blocks[0].unobservable))
}

fn bits(pages: &[usize]) -> PageBits {
    pages.iter().copied().collect()
}

fn list(pages: PageBits) -> Vec<usize> {
    pages.iter().collect()
}

#[test]
fn a_look_finds_pages_in_the_given_ranges() {
    let made = Made::new(256);
    for page in 0..6 {
        made.set_page(page, PRESENT | EXCLUSIVE | (10 + page));
    }
    let mut probe = made.probe(8);
    let ranges = [(1, 3), (5, 8)].map(|(start, end)| AddrRange::new(start * PAGE_SIZE, end * PAGE_SIZE).unwrap());
    let mut blocks = Vec::new();
    probe.survey().unwrap().look(&space(PROCESS, 8), &ranges, usize::MAX, &mut blocks).unwrap();
    assert_eq!((blocks.len(), list(blocks[0].present)), (1, vec![1, 2, 5]));
}

#[test]
fn memory_that_a_device_or_io_uring_accesses_is_unobservable_and_that_of_a_guest_is_not() {
    for (file, info, hidden, reason) in [
        ("anon_inode:[io_uring]", "UserBufs:\t1\n    0: 0x1000/4097\n", vec![1, 2], Some(Unseen::IoUring)),
        ("/dev/vfio/17", "", vec![0, 1, 2, 3], Some(Unseen::Device)),
        ("anon_inode:kvm-vm", "", vec![], None),
    ] {
        let made = Made::new(256);
        made.open_file(file, info);
        (0..4).for_each(|page| made.set_page(page, PRESENT | EXCLUSIVE | (10 + page)));
        let mut probe = made.probe(8);
        assert_eq!(list(survey(&mut probe, 8)[0].unobservable), hidden, "{file}");
        clear(&mut probe, PROCESS, &[0, 3]);
        let found = survey(&mut probe, 8);
        assert_eq!((list(found[0].present), list(found[0].unobservable)), (vec![0, 1, 2, 3], hidden.clone()), "{file}");
        let unseen = probe.survey().unwrap().unseen(PROCESS);
        assert_eq!(unseen.first().map(|(_, why)| *why), reason, "{file}");
        let answers = round(&mut probe, &samples(PROCESS, 0..4), || {});
        let unobservable: Vec<usize> = (0..4).filter(|&page| answers[page] == Observation::Unobservable).collect();
        assert_eq!(unobservable, hidden, "{file}");
    }
}

#[test]
fn a_page_is_idle_from_when_it_is_marked_until_it_is_accessed() {
    let made = Made::new(256);
    for (page, frame) in [(0, 200), (1, 3), (2, 64), (5, 65)] {
        made.set_page(page, PRESENT | EXCLUSIVE | frame);
    }
    made.set_page(3, SWAPPED | 9);
    let mut probe = made.probe(8);
    let first = survey(&mut probe, 8);
    assert_eq!((list(first[0].present), list(first[0].accessed)), (vec![0, 1, 2, 5], vec![0, 1, 2, 5]));
    assert_eq!(list(first[0].swapped), [3]);
    // Only what is asked for is marked.
    assert_eq!(clear(&mut probe, PROCESS, &[0, 1, 5]), (3, vec![0, 1, 5], vec![]));
    assert_eq!(made.idle(), [3, 65, 200]);
    assert_eq!(list(survey(&mut probe, 8)[0].accessed), [2]);
    made.access([200]);
    assert_eq!(list(survey(&mut probe, 8)[0].accessed), [0, 2]);
    // It stays accessed until it is marked again.
    assert_eq!(list(survey(&mut probe, 8)[0].accessed), [0, 2]);
    assert_eq!(probe.clears(), 3);
}

#[test]
fn a_block_whose_pages_are_all_in_swap_is_read() {
    let made = Made::new(64);
    made.set_page(2, SWAPPED | 7 << 5);
    // A page that is being moved.
    made.set_page(4, SWAPPED | 7 << 5 | 31);
    let mut probe = made.probe(8);
    let blocks = survey(&mut probe, 8);
    assert_eq!((list(blocks[0].present), list(blocks[0].swapped)), (vec![], vec![2]));
    assert!(probe.survey().unwrap().knows_swap());
}

#[test]
fn the_survey_learns_what_sampling_marks() {
    let made = Made::new(128);
    (0..4).for_each(|page| made.set_page(page, PRESENT | EXCLUSIVE | (70 + page)));
    let mut probe = made.probe(4);
    survey(&mut probe, 4);
    clear(&mut probe, PROCESS, &[0, 1, 2, 3]);
    made.access([70, 71]);
    // The kernel keeps the flag until somebody asks about accesses, so the flag of page 1 is stale.
    [71, 72, 73].iter().for_each(|&frame| made.set_flags(frame, LRU | IDLE));
    let answers = round(&mut probe, &samples(PROCESS, 0..4), || ());
    assert_eq!(answers, [Observation::Idle; 4]);
    assert_eq!(list(survey(&mut probe, 4)[0].accessed), [0, 1]);
    // It says so once.
    assert!(list(survey(&mut probe, 4)[0].accessed).is_empty());
}

#[test]
fn an_access_counts_in_all_targets_whatever_their_order() {
    let made = Made::new(128);
    std::fs::create_dir_all(made.path("proc/8")).unwrap();
    (0..2).for_each(|page| made.set_page(page, PRESENT | (80 + page)));
    std::fs::copy(made.path("proc/7/pagemap"), made.path("proc/8/pagemap")).unwrap();
    let mut probe = made.probe(2);
    probe.update(&[space(PROCESS, 2), space(OTHER, 2)]).unwrap();
    for _ in 0..2 {
        made.access([81]);
        begin(&mut probe);
        assert!(read(&mut probe, PROCESS, 2)[0].accessed.contains(1));
        clear(&mut probe, PROCESS, &[0, 1]);
        assert_eq!(made.idle(), [80, 81]);
        assert!(read(&mut probe, OTHER, 2)[0].accessed.contains(1));
    }
    begin(&mut probe);
    assert_eq!(
        [PROCESS, OTHER].map(|target| list(read(&mut probe, target, 2)[0].accessed)),
        [vec![0_usize; 0], vec![]]
    );
}

#[test]
fn frames_are_those_of_pages_that_others_may_map_and_swapped_pages_have_places() {
    let made = Made::new(128);
    made.set_page(0, PRESENT | EXCLUSIVE | 90);
    made.set_page(1, PRESENT | 91);
    made.set_page(2, SWAPPED | 91 << 5 | 3);
    let mut probe = made.probe(3);
    survey(&mut probe, 3);
    let (mut found, mut swapped) = (Vec::new(), Vec::new());
    let known = probe.survey().unwrap().frames(PROCESS, &mut |block| {
        found.extend(block.pages.iter().map(|page| (block.start + page as u64 * PAGE_SIZE, block.frames[page])));
        swapped.extend(block.swapped.iter().map(|page| (page, block.frames[page])));
    });
    assert!(known.unwrap());
    assert_eq!(found, [(PAGE_SIZE, 91)]);
    assert_eq!(swapped, [(2, SwapPlace { area: 3, offset: 91 }.number())]);
}

#[test]
fn a_folio_is_marked_as_a_whole_at_its_first_frame() {
    let made = Made::new(2048);
    made.set_flags(512, LRU | HEAD);
    (513..1024).for_each(|frame| made.set_flags(frame, TAIL));
    made.set_flags(1028, LRU | HEAD);
    (1029..1032).for_each(|frame| made.set_flags(frame, TAIL));
    (0..512).for_each(|page| made.set_page(page, PRESENT | EXCLUSIVE | (512 + page)));
    // Three pages of a folio of four, and another page.
    (0..3).for_each(|page| made.set_page(512 + page, PRESENT | EXCLUSIVE | (1028 + page)));
    made.set_page(515, PRESENT | EXCLUSIVE | 1500);
    let mut probe = made.probe(1024);
    let blocks = survey(&mut probe, 1024);
    assert_eq!(
        blocks.iter().map(|block| (block.huge, block.accessed.count())).collect::<Vec<_>>(),
        [(true, 512), (false, 4)]
    );
    let mut chosen =
        blocks.iter().map(|block| ClearPages { start: block.start, pages: bits(&[1]), ..Default::default() });
    let mut chosen: Vec<_> = chosen.by_ref().collect();
    assert_eq!(probe.survey().unwrap().clear(PROCESS, &mut chosen).unwrap(), 2);
    assert_eq!(made.idle(), [512, 1028]);
    assert_eq!((chosen[0].pages, list(chosen[1].pages)), (PageBits::ALL, vec![0, 1, 2]));
    let blocks = survey(&mut probe, 1024);
    assert_eq!((list(blocks[0].accessed), list(blocks[1].accessed)), (vec![], vec![3]));
    made.access([512]);
    assert_eq!(survey(&mut probe, 1024)[0].accessed, PageBits::ALL);
}

#[test]
fn pages_without_a_bit_are_unobservable_and_the_zero_page_is_absent() {
    let made = Made::new(128);
    made.set_flags(1, 0);
    made.set_flags(2, HUGETLB | HEAD);
    made.set_flags(3, ZERO_PAGE);
    // It could not be checked just now.
    made.set_flags(4, LRU | IDLE);
    (0..5).for_each(|page| made.set_page(page, PRESENT | EXCLUSIVE | page));
    let mut probe = made.probe(5);
    let found = survey(&mut probe, 5)[0];
    assert_eq!((list(found.present), list(found.unobservable)), (vec![0, 1, 2, 4], vec![1, 2, 4]));
    assert_eq!(clear(&mut probe, PROCESS, &[0, 1, 2]), (1, vec![0], vec![1, 2]));
    assert_eq!(made.idle(), [0]);
}

#[test]
fn a_target_that_has_ended_has_no_pages() {
    let made = Made::new(128);
    made.set_page(0, PRESENT | 9);
    let mut probe = made.probe(1);
    assert_eq!(survey(&mut probe, 1).len(), 1);
    std::fs::remove_file(made.path("proc/7/pagemap")).unwrap();
    assert!(survey(&mut probe, 1).is_empty());
    assert_eq!(clear(&mut probe, PROCESS, &[0]), (0, vec![], vec![]));
}
