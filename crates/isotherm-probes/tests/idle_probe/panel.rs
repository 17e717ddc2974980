//! Single pages for the panel, on copies of the kernel's files.

use isotherm_core::survey::SurveyPart;
use isotherm_core::{AccessProbe, Observation, PageLook, Sample, TargetId};
use isotherm_probes::idle::IdleProbe;

use crate::made::*;

fn look(probe: &mut IdleProbe, pages: &[Sample]) -> Vec<PageLook> {
    let mut looks = Vec::new();
    probe.pages().unwrap().look(pages, &mut looks).unwrap();
    looks
}

fn clear(probe: &mut IdleProbe, pages: &[Sample]) -> Vec<bool> {
    let mut cleared = Vec::new();
    probe.pages().unwrap().clear_pages(pages, &mut cleared).unwrap();
    cleared
}

/// The pages of a process by number, whose frames have numbers that are 10 higher.
fn of_process(made: &Made, pages: impl IntoIterator<Item = u64> + Clone) -> Vec<Sample> {
    pages.clone().into_iter().for_each(|page| made.set_page(page, PRESENT | EXCLUSIVE | (10 + page)));
    samples(PROCESS, pages)
}

#[test]
fn a_page_that_was_cleared_is_accessed_again_only_after_an_access() {
    let made = Made::new(256);
    let mut pages = of_process(&made, [5, 1, 3]);
    // One is absent, and one is no memory of the target.
    pages.extend(samples(PROCESS, [2, 20]));
    made.set_page(2, 0);
    let mut probe = made.probe(8);
    let accessed = |looks: &[PageLook]| looks.iter().map(|look| look.present.then_some(look.accessed)).collect();
    let found: Vec<Option<bool>> = accessed(&look(&mut probe, &pages));
    assert_eq!(found, [Some(true), Some(true), Some(true), None, None]);
    assert_eq!(clear(&mut probe, &pages), [true, true, true, false, false]);
    assert_eq!((made.idle(), probe.clears()), (vec![11, 13, 15], 3));
    made.access([13]);
    let looks = look(&mut probe, &pages);
    let found: Vec<Option<bool>> = accessed(&looks);
    assert_eq!(found, [Some(false), Some(false), Some(true), None, None]);
    assert_eq!(looks[0].frame, Some(15));
}

#[test]
fn a_huge_page_is_one_and_its_first_frame_tells_of_all() {
    let made = Made::new(1024 + 64);
    for frame in 512..1024 {
        made.set_flags(frame, if frame == 512 { LRU | HEAD } else { TAIL });
    }
    for page in 0..512 {
        made.set_page(page, PRESENT | EXCLUSIVE | (512 + page));
    }
    let mut probe = made.probe(512);
    let pages = samples(PROCESS, [0, 7, 511]);
    assert!(look(&mut probe, &pages).iter().all(|look| look.huge && look.accessed));
    assert_eq!(clear(&mut probe, &pages[1..2]), [true]);
    assert_eq!(made.idle(), [512]);
    made.set_flags(512, LRU | HEAD | IDLE);
    assert!(look(&mut probe, &pages).iter().all(|look| look.present && look.huge && !look.accessed));
}

#[test]
fn what_has_no_bit_stays_accessed_and_free_memory_is_absent() {
    let made = Made::new(256);
    let pages = of_process(&made, [1, 2, 3]);
    // Isolated from its list, the zero page, and memory of a device.
    [(11, ANON), (12, ZERO_PAGE), (13, 0)].into_iter().for_each(|(frame, flags)| made.set_flags(frame, flags));
    made.set_flags(14, BUDDY);
    let mut probe = made.probe(64);
    let found = |looks: Vec<PageLook>| looks.iter().map(|look| (look.present, look.accessed)).collect::<Vec<_>>();
    assert_eq!(found(look(&mut probe, &pages)), [(true, true), (false, false), (true, true)]);
    assert_eq!(clear(&mut probe, &pages), [false; 3]);
    let of_machine = samples(TargetId::PhysicalMemory, [14, 15]);
    assert_eq!(found(look(&mut probe, &of_machine)), [(false, false), (true, true)]);
    assert_eq!(clear(&mut probe, &of_machine), [false, true]);
}

#[test]
fn neither_a_survey_nor_samples_lose_what_the_panel_has_cleared() {
    let made = Made::new(256);
    // Each in a word of its own: in a file, a write also clears bits.
    let pages = of_process(&made, [1, 65, 129]);
    let mut probe = made.probe(130);
    let survey = |probe: &mut IdleProbe| {
        probe.survey().unwrap().begin().unwrap();
        let mut blocks = Vec::new();
        probe.survey().unwrap().read(&space(PROCESS, 130), SurveyPart::ALL, &mut blocks).unwrap();
        blocks[0].accessed.iter().collect::<Vec<_>>()
    };
    clear(&mut probe, &pages);
    assert_eq!(survey(&mut probe), [1, 65, 129], "they were not known to be idle before");
    assert!(survey(&mut probe).is_empty());
    made.access([75]);
    clear(&mut probe, &pages[1..2]);
    assert_eq!(survey(&mut probe), [65]);
    // Samples that wait to be read keep their pages.
    let (mut answers, others) = ([Observation::Unobservable], samples(PROCESS, [1]));
    probe.clear(&others).unwrap();
    look(&mut probe, &pages);
    clear(&mut probe, &pages[2..]);
    made.access([11]);
    probe.read(&others, &mut answers).unwrap();
    assert_eq!(answers, [Observation::Accessed]);
}
