//! The survey of physical memory, on copies of the kernel's files.

use std::sync::Arc;

use isotherm_core::survey::{BLOCK_SIZE, BlockPages, ClearPages, PageBits, SurveyPart};
use isotherm_core::{AccessProbe, AddrRange, Layout, Mapping, Observation, PAGE_SIZE, Permissions, TargetSpace};
use isotherm_probes::idle::IdleProbe;

use crate::made::*;

/// The frames of a block.
const BLOCK: u64 = 512;

/// Memory at these ranges of frames.
fn memory(ranges: &[(u64, u64)]) -> TargetSpace {
    let mapping = |&(start, end): &(u64, u64)| {
        let range = AddrRange::new(start * PAGE_SIZE, end * PAGE_SIZE).unwrap();
        Mapping { permissions: Permissions::NONE, ..Mapping::anonymous(range) }
    };
    let mappings: Arc<[Mapping]> = ranges.iter().map(mapping).collect();
    TargetSpace { id: PHYSICAL, layout: Layout::Ranges, mappings }
}

/// Surveys `memory` in parts of so many blocks. Marks what is accessed if `mark` is set.
fn survey(probe: &mut IdleProbe, memory: &TargetSpace, most: usize, mark: bool) -> Vec<BlockPages> {
    let survey = probe.survey().unwrap();
    survey.begin().unwrap();
    let (mut all, mut part) = (Vec::new(), SurveyPart { from: 0, most });
    loop {
        let mut blocks = Vec::new();
        let rest = survey.read(memory, part, &mut blocks).unwrap();
        assert!(blocks.len() <= most);
        let accessed =
            |block: &BlockPages| ClearPages { start: block.start, pages: block.accessed, unobservable: PageBits::NONE };
        let mut chosen: Vec<_> = blocks.iter().filter(|_| mark).map(accessed).collect();
        survey.clear(PHYSICAL, &mut chosen).unwrap();
        all.extend(blocks);
        match rest.from {
            Some(from) => part.from = from,
            None => return all,
        }
        assert!(rest.blocks > 0);
    }
}

/// The frames among the pages of blocks.
fn frames(blocks: &[BlockPages], of: impl Fn(&BlockPages) -> PageBits) -> Vec<u64> {
    let frames = blocks.iter().flat_map(|block| of(block).iter().map(|page| block.start / PAGE_SIZE + page as u64));
    frames.collect()
}

#[test]
fn user_memory_is_present_and_idle_until_it_is_accessed() {
    let made = Made::new(4 * BLOCK as usize);
    (0..4 * BLOCK).for_each(|frame| made.set_flags(frame, BUDDY));
    let used = [3, 500, 600, 1025, 1026, 2000];
    used.iter().for_each(|&frame| made.set_flags(frame, LRU));
    // Anonymous memory that is on no list, hugetlbfs, and what is no memory of a user.
    made.set_flags(4, ANON);
    made.set_flags(5, HUGETLB | HEAD);
    made.set_flags(6, HUGETLB | TAIL);
    made.set_flags(7, ZERO_PAGE);
    made.set_flags(8, 0);
    // Frame 1026 does not belong to the memory that is watched.
    let memory = memory(&[(0, BLOCK + 100), (BLOCK + 100, 1026), (1900, 4 * BLOCK)]);
    let mut probe = made.probe(1);
    let found = survey(&mut probe, &memory, usize::MAX, true);
    assert_eq!(frames(&found, |block| block.present), [3, 4, 5, 6, 500, 600, 1025, 2000]);
    assert_eq!(frames(&found, |block| block.unobservable), [4, 5, 6]);
    assert_eq!(frames(&found, |block| block.accessed & !block.unobservable), [3, 500, 600, 1025, 2000]);
    assert_eq!(made.idle(), [3, 500, 600, 1025, 2000]);

    made.access([600]);
    let found = survey(&mut probe, &memory, usize::MAX, false);
    assert_eq!(frames(&found, |block| block.accessed & !block.unobservable), [600]);
    // A freed frame is gone, and with it its block.
    made.access([600]);
    made.set_flags(600, BUDDY);
    let found = survey(&mut probe, &memory, usize::MAX, false);
    assert_eq!(found.iter().map(|block| block.start / BLOCK_SIZE).collect::<Vec<_>>(), [0, 2, 3]);
    assert!(frames(&found, |block| block.accessed & !block.unobservable).is_empty());
}

#[test]
fn parts_find_the_same_as_the_whole() {
    let blocks = 150;
    let made = Made::new((blocks * BLOCK) as usize);
    let free = |frame: u64| frame % 7 == 3 || frame / BLOCK == 20;
    (0..blocks * BLOCK).filter(|&frame| free(frame)).for_each(|frame| made.set_flags(frame, BUDDY));
    let memory = memory(&[(0, 30 * BLOCK + 9), (40 * BLOCK, blocks * BLOCK)]);
    let mut probe = made.probe(1);
    let whole = survey(&mut probe, &memory, usize::MAX, false);
    assert_eq!(whole.len(), 31 - 1 + 110);
    for most in [1, 7, 64, 100] {
        assert_eq!(survey(&mut probe, &memory, most, false), whole);
    }
    // What one part marks, no other part takes for idle.
    assert_eq!(survey(&mut probe, &memory, 7, true), whole);
    let idle = survey(&mut probe, &memory, 13, false);
    assert_eq!(frames(&idle, |block| block.present), frames(&whole, |block| block.present));
    assert!(frames(&idle, |block| block.accessed).is_empty());
}

#[test]
fn a_folio_has_one_bit_and_is_marked_as_a_whole() {
    let made = Made::new(3 * BLOCK as usize);
    made.set_flags(BLOCK, LRU | HEAD);
    (BLOCK + 1..2 * BLOCK).for_each(|frame| made.set_flags(frame, TAIL));
    made.set_flags(8, LRU | HEAD);
    (9..12).for_each(|frame| made.set_flags(frame, TAIL));
    let memory = memory(&[(0, 3 * BLOCK)]);
    let mut probe = made.probe(1);
    let found = survey(&mut probe, &memory, usize::MAX, false);
    assert_eq!(found.iter().map(|block| block.huge).collect::<Vec<_>>(), [false, true, false]);
    let one = |start: u64, page: usize| ClearPages { start, pages: PageBits::of(page..page + 1), ..Default::default() };
    let mut chosen = vec![one(0, 10), one(BLOCK_SIZE, 7)];
    assert_eq!(probe.survey().unwrap().clear(PHYSICAL, &mut chosen).unwrap(), 2);
    assert_eq!(made.idle(), [8, BLOCK]);
    assert_eq!((chosen[0].pages, chosen[1].pages), (PageBits::of(8..12), PageBits::ALL));
    let found = survey(&mut probe, &memory, usize::MAX, false);
    assert_eq!((found[0].accessed & PageBits::of(8..12), found[1].accessed), (PageBits::NONE, PageBits::NONE));
}

#[test]
fn the_survey_of_physical_memory_learns_what_samples_mark() {
    let made = Made::new(128);
    let memory = memory(&[(0, 128)]);
    let mut probe = made.probe(1);
    probe.update(std::slice::from_ref(&memory)).unwrap();
    survey(&mut probe, &memory, usize::MAX, true);
    survey(&mut probe, &memory, usize::MAX, false);
    made.access([70]);
    (64..128).filter(|&frame| frame != 70).for_each(|frame| made.set_flags(frame, LRU | IDLE));
    assert_eq!(round(&mut probe, &samples(PHYSICAL, 64..128), || ()), [Observation::Idle; 64]);
    assert_eq!(frames(&survey(&mut probe, &memory, usize::MAX, false), |block| block.accessed), [70]);
    assert!(frames(&survey(&mut probe, &memory, usize::MAX, false), |block| block.accessed).is_empty());
}
