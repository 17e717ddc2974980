//! The answers of a round.

use std::collections::BTreeSet;

use isotherm_core::AccessProbe;
use isotherm_core::Observation::{Accessed, Idle, Unobservable};
use proptest::prelude::*;

use crate::made::*;

#[test]
fn a_page_of_a_process_is_marked_in_its_frame() {
    let made = Made::new(256);
    for (page, frame) in [(0, 200), (1, 3), (2, 64)] {
        made.set_page(page, PRESENT | frame);
    }
    let mut probe = made.probe(3);
    let answers = round(&mut probe, &samples(PROCESS, 0..3), || {
        assert_eq!(made.idle(), [3, 64, 200]);
        made.access([3]);
    });
    assert_eq!(answers, [Idle, Accessed, Idle]);
    assert_eq!(probe.clears(), 3);
}

#[test]
fn memory_that_is_not_user_memory_is_unobservable_and_not_marked() {
    let made = Made::new(128);
    made.set_flags(1, BUDDY);
    made.set_flags(2, 0);
    made.set_flags(3, HUGETLB | HEAD);
    made.set_flags(4, HUGETLB | TAIL);
    let mut probe = made.probe(128);
    let answers = round(&mut probe, &samples(PHYSICAL, 0..6), || assert_eq!(made.idle(), [0, 5]));
    assert_eq!(answers, [Idle, Unobservable, Unobservable, Unobservable, Unobservable, Idle]);
}

#[test]
fn a_compound_page_is_marked_at_its_head() {
    let made = Made::new(2048);
    made.set_flags(512, LRU | HEAD);
    (513..1024).for_each(|frame| made.set_flags(frame, TAIL));
    made.set_flags(1028, LRU | HEAD);
    (1029..1032).for_each(|frame| made.set_flags(frame, TAIL));
    made.set_flags(1100, TAIL);
    made.set_page(0, PRESENT | 700);
    made.set_page(1, PRESENT | 1031);
    let mut probe = made.probe(2048);

    let mut all = samples(PHYSICAL, [512, 1023, 1029, 1100]);
    all.extend(samples(PROCESS, [0, 1]));
    let answers = round(&mut probe, &all, || {
        assert_eq!(made.idle(), [512, 1028]);
        made.access([1028]);
    });
    // A tail without a head cannot be observed.
    assert_eq!(answers, [Idle, Idle, Accessed, Unobservable, Idle, Accessed]);
    assert_eq!(probe.clears(), 2);
}

#[test]
fn a_missing_page_is_idle_until_it_is_faulted_in() {
    let made = Made::new(128);
    made.set_page(0, 0);
    made.set_page(1, SWAPPED | 77);
    made.set_page(2, PRESENT | 80);
    made.set_page(3, PRESENT | 81);
    made.set_page(4, PRESENT | 82);
    let mut probe = made.probe(5);
    let answers = round(&mut probe, &samples(PROCESS, 0..7), || {
        made.set_page(1, PRESENT | 90);
        // Page 2 is swapped out and page 3 is moved. Neither is marked in its new place.
        made.set_page(2, SWAPPED | 5);
        made.set_page(3, PRESENT | 91);
        made.access([80, 81]);
    });
    assert_eq!(answers, [Idle, Accessed, Idle, Unobservable, Idle, Idle, Idle]);
}

#[test]
fn a_hidden_frame_is_unobservable() {
    let made = Made::new(128);
    made.set_flags(0, 0);
    made.set_page(0, PRESENT);
    let mut probe = made.probe(1);
    assert_eq!(round(&mut probe, &samples(PROCESS, [0]), || assert!(made.idle().is_empty())), [Unobservable]);
}

#[test]
fn a_page_without_an_idle_bit_is_not_taken_for_accessed() {
    let made = Made::new(128);
    let mut probe = made.probe(128);
    let answers = round(&mut probe, &samples(PHYSICAL, [8, 9, 10]), || {
        made.access([8, 9, 10]);
        // Frame 8 is freed. Frame 9 is taken off its list for a moment and is still marked.
        made.set_flags(8, BUDDY);
        made.set_flags(9, LRU | IDLE);
    });
    assert_eq!(answers, [Unobservable, Unobservable, Accessed]);
}

#[test]
fn memory_that_was_removed_is_unobservable() {
    let made = Made::new(256);
    let mut probe = made.probe(256);
    let all = samples(PHYSICAL, [1, 100, 140, 250]);
    let answers = round(&mut probe, &all, || {
        made.access([100]);
        made.cut_bitmap(128);
    });
    assert_eq!(answers, [Idle, Accessed, Unobservable, Unobservable]);
    // The frames after the end of the table of page flags do not exist.
    assert_eq!(round(&mut made.probe(1000), &samples(PHYSICAL, [256, 999]), || ()), [Unobservable, Unobservable]);
}

#[test]
fn a_process_that_has_ended_or_called_exec_has_no_pages() {
    let made = Made::new(128);
    made.set_page(0, PRESENT | 9);
    let mut probe = made.probe(1);
    // The pagemap of the old address space reads as empty.
    std::fs::write(made.path("proc/7/pagemap"), []).unwrap();
    assert_eq!(round(&mut probe, &samples(PROCESS, [0]), || ()), [Idle]);
    std::fs::remove_file(made.path("proc/7/pagemap")).unwrap();
    probe.update(&[space(PROCESS, 1)]).unwrap();
    assert_eq!(round(&mut probe, &samples(PROCESS, [0]), || ()), [Idle]);
}

#[test]
fn a_read_without_a_clear_is_unobservable_and_a_removed_target_is_idle() {
    let made = Made::new(128);
    let mut probe = made.probe(128);
    let mut answers = [Idle; 2];
    probe.read(&samples(PHYSICAL, [1, 2]), &mut answers).unwrap();
    assert_eq!(answers, [Unobservable; 2]);
    probe.update(&[]).unwrap();
    assert_eq!(round(&mut probe, &samples(PHYSICAL, [1, 2]), || assert!(made.idle().is_empty())), [Idle; 2]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Exactly the sampled pages are marked, and each sample gets the answer of its own page, in any order of samples.
    #[test]
    fn each_sample_gets_the_answer_of_its_own_page(
        places in prop::collection::vec(0_u64..4096, 1..80),
        physical in prop::collection::vec(0_u64..4096, 0..80),
        hot in prop::collection::btree_set(0_u64..4096, 0..500),
        shift in 0_u64..4096,
    ) {
        let made = Made::new(4096);
        // Page `p` of process 7 is in frame `p + shift`.
        let frame = |page: u64| (page + shift) % 4096;
        for &page in places.iter().filter(|&&page| frame(page) != 0) {
            made.set_page(page, PRESENT | frame(page));
        }
        let mut probe = made.probe(4096);
        let mut all = samples(PROCESS, places.iter().copied());
        all.extend(samples(PHYSICAL, physical.iter().copied()));
        let frames: Vec<_> = places.iter().map(|&page| frame(page)).chain(physical.iter().copied()).collect();
        let answers = round(&mut probe, &all, || {
            let of_process = places.iter().map(|&page| frame(page)).filter(|&frame| frame != 0);
            let sampled: BTreeSet<u64> = of_process.chain(physical.iter().copied()).collect();
            assert_eq!(made.idle(), sampled.into_iter().collect::<Vec<_>>());
            made.access(hot.iter().copied());
        });
        for (index, (frame, answer)) in frames.into_iter().zip(answers).enumerate() {
            let expected = match frame {
                // The kernel shows frame 0 of a process only if it hides all frames.
                0 if index < places.len() => Idle,
                frame if hot.contains(&frame) => Accessed,
                _ => Idle,
            };
            prop_assert_eq!(answer, expected, "frame {}", frame);
        }
    }
}
