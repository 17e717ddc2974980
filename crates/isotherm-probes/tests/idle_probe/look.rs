//! The look before an action, on copies of the kernel's files.

use isotherm_core::survey::{ClearPages, PageBits, SurveyPart};
use isotherm_core::{AccessProbe, Observation};
use isotherm_probes::idle::{IdleLook, IdleProbe};

use crate::made::*;

/// Surveys process 7, and marks all of its pages.
fn survey_and_mark(probe: &mut IdleProbe, pages: u64) {
    let survey = probe.survey().unwrap();
    survey.begin().unwrap();
    survey.read(&space(PROCESS, pages), SurveyPart::ALL, &mut Vec::new()).unwrap();
    let all = ClearPages { start: 0, pages: PageBits::of(0..pages as usize), unobservable: PageBits::NONE };
    survey.clear(PROCESS, &mut vec![all]).unwrap();
}

/// Begins a survey and reads process 7, but marks nothing.
fn survey(probe: &mut IdleProbe, pages: u64) {
    let survey = probe.survey().unwrap();
    survey.begin().unwrap();
    survey.read(&space(PROCESS, pages), SurveyPart::ALL, &mut Vec::new()).unwrap();
}

/// The pages of process 7 that a look finds accessed.
fn young(look: &mut IdleLook, pages: u64) -> Vec<u64> {
    let mut answers = vec![Observation::Unobservable; pages as usize];
    look.update(&[space(PROCESS, pages)]).unwrap();
    look.read(&samples(PROCESS, 0..pages), &mut answers).unwrap();
    assert!(!answers.contains(&Observation::Unobservable), "{answers:?}");
    (0..).zip(answers).filter(|(_, answer)| *answer == Observation::Accessed).map(|(page, _)| page).collect()
}

#[test]
fn a_look_finds_what_was_accessed_since_the_survey_and_changes_nothing() {
    let made = Made::new(128);
    (0..4).for_each(|page| made.set_page(page, PRESENT | EXCLUSIVE | (70 + page)));
    made.set_page(4, SWAPPED | 9);
    let mut probe = made.probe(6);
    let mut look = probe.look().unwrap();
    assert_eq!(young(&mut look, 6), [0, 1, 2, 3], "nothing was marked yet");
    survey_and_mark(&mut probe, 6);
    survey(&mut probe, 6);
    assert_eq!(young(&mut look, 6), [0_u64; 0]);
    made.access([71, 72]);
    let before = made.idle();
    assert_eq!(young(&mut look, 6), [1, 2]);
    assert_eq!(young(&mut look, 6), [1, 2], "until it is marked again");
    assert_eq!(made.idle(), before);
}

#[test]
fn an_access_that_a_sample_or_a_survey_has_hidden_is_found() {
    let made = Made::new(128);
    (0..4).for_each(|page| made.set_page(page, PRESENT | EXCLUSIVE | (70 + page)));
    let mut probe = made.probe(4);
    let mut look = probe.look().unwrap();
    survey_and_mark(&mut probe, 4);
    survey(&mut probe, 4);
    assert_eq!(young(&mut look, 4), [0_u64; 0]);
    made.access([71]);
    [70, 72, 73].iter().for_each(|&frame| made.set_flags(frame, LRU | IDLE));
    round(&mut probe, &samples(PROCESS, 0..4), || ());
    assert_eq!(made.idle(), [70, 71, 72, 73]);
    assert_eq!(young(&mut look, 4), [1], "a sample has marked it again");
    // The next survey marks it as well, and has not ended yet.
    made.access([73]);
    survey_and_mark(&mut probe, 4);
    assert_eq!(made.idle(), [70, 71, 72, 73]);
    assert!([1, 3].iter().all(|page| young(&mut look, 4).contains(page)));
    // The survey after it has begun, so that it has ended: it knows of these accesses.
    survey(&mut probe, 4);
    assert_eq!(young(&mut look, 4), [0_u64; 0]);
}

#[test]
fn what_is_not_known_to_be_idle_counts_as_accessed() {
    let made = Made::new(1024);
    (0..3).for_each(|page| made.set_page(page, PRESENT | EXCLUSIVE | (70 + page)));
    made.set_page(3, PRESENT | 5);
    made.set_flags(5, ZERO_PAGE);
    // Two pages of a folio of four.
    made.set_flags(516, LRU | HEAD);
    (517..520).for_each(|frame| made.set_flags(frame, TAIL));
    (4..6).for_each(|page| made.set_page(page, PRESENT | EXCLUSIVE | (514 + page)));
    let mut probe = made.probe(6);
    let mut look = probe.look().unwrap();
    survey_and_mark(&mut probe, 6);
    survey(&mut probe, 6);
    assert_eq!(young(&mut look, 6), [0_u64; 0]);
    // The page is taken off its list, or cannot be checked just now, and the kernel shows it as accessed.
    made.access([70, 71]);
    made.set_flags(70, 0);
    made.set_flags(71, LRU | IDLE);
    assert_eq!(young(&mut look, 6), [0, 1]);
    made.access([516]);
    assert_eq!(young(&mut look, 6), [0, 1, 4, 5], "the bit of a folio is that of its first frame");
}

#[test]
fn a_process_that_has_ended_has_no_young_pages() {
    let made = Made::new(128);
    made.set_page(0, PRESENT | 9);
    let mut look = made.probe(1).look().unwrap();
    std::fs::remove_file(made.path("proc/7/pagemap")).unwrap();
    assert_eq!(young(&mut look, 1), [0_u64; 0]);
}
