//! What the statistics of a region say after samples, surveys and merges.

use super::*;

const AGGREGATION: Duration = Duration::from_millis(100);

fn region(pages: std::ops::Range<u64>, accessed: u32, age: u32) -> Region {
    Region {
        samples: 20,
        accessed,
        past_samples: 20,
        age: AGGREGATION * age,
        steadiness: (0..age).fold(Steadiness::NEW, |mut steadiness, _| {
            steadiness.aggregated(false);
            steadiness
        }),
        ..Region::new(AddrRange::new(pages.start * 4096, pages.end * 4096).unwrap())
    }
}

#[test]
fn a_merged_region_has_the_means_weighted_by_size() {
    let mut a = region(0..3, 20, 8);
    let b = region(3..4, 0, 0);
    a.absorb(&b, AddrRange::new(0, 4 * 4096).unwrap());
    assert_eq!((a.accessed, a.age_in(AGGREGATION), a.range.pages()), (15, 6, 4));
}

#[test]
fn the_rate_counts_observable_samples_only() {
    let mut r = region(0..1, 0, 0);
    r.reset();
    for observation in [Observation::Accessed, Observation::Idle, Observation::Unobservable, Observation::Unobservable]
    {
        r.count(observation, 1);
    }
    r.settle(&Attributes::default(), 1);
    assert_eq!((r.accessed, r.unobservable), (10, 10));
}

#[test]
fn a_region_without_an_observable_sample_is_not_hot() {
    let mut r = region(0..1, 0, 0);
    r.reset();
    r.count(Observation::Unobservable, 1);
    r.settle(&Attributes::default(), 1);
    assert_eq!((r.accessed, r.unobservable), (0, 20));
}

/// Runs one aggregation of `of` samples, `accessed` of which find the region accessed. Returns its count and
/// its age.
fn aggregate(r: &mut Region, accessed: u32, of: u32) -> (u32, u32) {
    r.reset();
    (0..of).for_each(|i| r.count(if i < accessed { Observation::Accessed } else { Observation::Idle }, 1));
    r.settle(&Attributes::default(), 1);
    (r.accessed, r.age_in(AGGREGATION))
}

#[test]
fn the_age_starts_again_when_the_frequency_moves_by_more_than_the_threshold() {
    let mut r = region(0..1, 5, 7);
    assert_eq!(aggregate(&mut r, 7, 20), (7, 8));
    assert_eq!(aggregate(&mut r, 10, 20), (10, 0));
}

#[test]
fn spared_samples_of_a_steady_region_count_as_in_the_last_aggregation() {
    let mut cold = region(0..1, 0, 30);
    assert_eq!(aggregate(&mut cold, 0, 2), (0, 31));
    assert_eq!(
        aggregate(&mut cold, 1, 2),
        (1, 0),
        "one access in two samples does not make a rate of a half, but the age starts again"
    );
    let mut hot = region(0..1, 20, 30);
    assert_eq!(aggregate(&mut hot, 1, 2), (19, 31), "one miss is no change");
    assert_eq!(aggregate(&mut hot, 2, 2), (20, 32));
    assert_eq!(aggregate(&mut hot, 0, 2), (18, 0));
}

#[test]
fn samples_from_before_a_survey_found_another_use_do_not_count() {
    let mut r = Region { past_samples: 19, ..region(0..1, 0, 5) };
    r.begin_age();
    r.reset();
    r.count(Observation::Accessed, 1);
    r.settle(&Attributes::default(), 20);
    assert_eq!(r.accessed, 20);
}

#[test]
fn a_clear_turn_of_the_frequency_is_seen_at_once_although_few_rounds_have_samples() {
    // Of twenty rounds, three have samples.
    let turned = |before: u32, accessed: u32| {
        let mut r = Region { past_samples: 17, ..region(0..1, before, 5) };
        r.reset();
        (0..3).for_each(|i| r.count(if i < accessed { Observation::Accessed } else { Observation::Idle }, 1));
        r.settle(&Attributes::default(), 7);
        r.accessed
    };
    assert_eq!((turned(0, 3), turned(20, 0)), (20, 0));
    // What can be chance is a mean.
    assert_eq!((turned(0, 1), turned(20, 2)), (2, 18));
    assert!((7..=12).contains(&turned(10, 0)) && (8..=13).contains(&turned(10, 3)));
}

#[test]
fn a_region_whose_frequency_moves_by_chance_becomes_steady() {
    let attributes = Attributes::default();
    let mut half = region(0..1, 10, 0);
    for (nth, seen) in [8, 12, 9, 13, 10, 7, 11, 14, 9, 12].into_iter().enumerate() {
        assert_eq!(half.stride(&attributes), 1, "after {nth} aggregations");
        aggregate(&mut half, seen, 20);
    }
    assert!(half.age_in(AGGREGATION) < 10);
    assert_eq!(half.stride(&attributes), 2);
    aggregate(&mut half, 0, 10);
    half.reset();
    assert_eq!(half.stride(&attributes), 1, "chance does not turn a rate of a half into zero");
}

#[test]
fn a_small_part_of_a_region_has_a_rate_of_its_own_after_a_few_samples() {
    let sums = |pages: u64| Figures { present: pages * 4096, touched: pages * 4096, ..Figures::default() };
    let whole = region(0..100, 2, 30).with_pages(sums(100));
    let part = |pages: u64| {
        let mut part = whole.with_range(AddrRange::new(0, pages * 4096).unwrap()).with_pages(sums(pages));
        part = part.carved_from(whole.bytes());
        // One sample in an aggregation, because one round in twenty has samples.
        for _ in 0..3 {
            part.reset();
            part.count(Observation::Accessed, 1);
            part.settle(&Attributes::default(), 20);
        }
        part.accessed
    };
    assert_eq!(part(100), 5, "the whole changes as slowly as its samples allow");
    assert!(part(10) >= 12, "{}", part(10));
    assert_eq!(part(1), 20);
}

#[test]
fn few_samples_of_several_aggregations_show_together_that_the_frequency_has_turned() {
    // Two samples in an aggregation, because one round in ten has samples.
    let after = |of: &Region, answers: &[Observation]| {
        let mut r = *of;
        for answer in answers {
            r.reset();
            (0..2).for_each(|_| r.count(*answer, 1));
            r.settle(&Attributes::default(), 10);
        }
        (r.accessed, r.age_in(AGGREGATION))
    };
    let (hot, idle) = (region(0..1, 20, 30), region(0..1, 0, 30));
    assert_eq!(after(&hot, &[Observation::Idle]), (18, 0));
    assert_eq!(after(&hot, &[Observation::Idle; 2]), (0, 1), "as old as the samples that show it");
    assert_eq!(after(&hot, &[Observation::Idle; 5]), (0, 4));
    assert_eq!(after(&idle, &[Observation::Accessed; 2]), (20, 1));
    assert_eq!(after(&hot, &[Observation::Accessed; 40]), (20, 70), "the same is no change, however often");
    let misses = [Observation::Idle, Observation::Accessed, Observation::Idle, Observation::Accessed];
    assert!(after(&hot, &misses).0 > 10);
    // The change came within the first of two aggregations.
    let mut turning = hot;
    for answers in [[Observation::Accessed, Observation::Idle], [Observation::Idle; 2]] {
        turning.reset();
        answers.into_iter().for_each(|answer| turning.count(answer, 1));
        turning.settle(&Attributes::default(), 10);
    }
    assert_eq!((turning.accessed, turning.age_in(AGGREGATION)), (0, 1));
}

#[test]
fn memory_that_is_idle_from_the_middle_of_an_aggregation_on_has_no_frequency_in_the_next_one() {
    let accessed = Figures { present: 4096, touched: 4096, ..Figures::default() };
    // Four rounds of 200 ms in an aggregation.
    let aggregate = |r: &mut Region, answers: [bool; 4]| {
        r.reset();
        for is_accessed in answers {
            let observation = if is_accessed { Observation::Accessed } else { Observation::Idle };
            [10, 160, 200].iter().for_each(|ms| r.look(observation, Duration::from_millis(*ms), false));
            r.count(observation, 1);
        }
        r.settle(&attributes(40, 800), 5);
        r.frequency.unwrap().hz()
    };
    let mut r = region(0..1, 0, 0).with_pages(accessed);
    let mut hz = 0.0;
    (0..8).for_each(|_| hz = aggregate(&mut r, [true; 4]));
    assert!(hz > 30.0, "{hz} Hz");
    aggregate(&mut r, [true, true, false, false]);
    r.survey(accessed, None, Duration::from_secs(3));
    assert_eq!(aggregate(&mut r, [false; 4]), 0.0);
    r.survey(accessed, None, Duration::from_secs(3));
    assert_eq!(aggregate(&mut r, [false; 4]), 0.0, "most of what the survey tells of was before the turn");
    aggregate(&mut r, [false, false, true, true]);
    let hz = aggregate(&mut r, [true; 4]);
    assert!(hz > 30.0, "in use again, {hz} Hz");
}

#[test]
fn what_a_survey_does_not_know_ends_no_age_and_an_idle_region_is_as_old_as_its_pages_are_idle() {
    let pages = |touched, unknown| Figures { present: 4096, touched, unknown, ..Figures::default() };
    let age = |of: &Region, surveys: &[(u64, u64)]| {
        let mut r = *of;
        let idle = Some(AGGREGATION * 7);
        surveys.iter().for_each(|&(touched, unknown)| r.survey(pages(touched, unknown), idle, AGGREGATION));
        r.age_in(AGGREGATION)
    };
    let mut idle = region(0..1, 0, 30);
    idle.reset();
    assert_eq!((age(&idle, &[(0, 4096)]), age(&idle, &[(0, 4096), (0, 0)])), (30, 7));
    assert_eq!(age(&idle, &[(0, 0), (4096, 0)]), 0);
    assert_eq!(age(&idle, &[(4096, 0), (0, 4096)]), 30, "samples say that it is idle, and the survey cannot tell");
    assert_eq!(age(&idle, &[(4096, 0), (0, 0)]), 7);
    let mut hot = region(0..1, 20, 30);
    hot.reset();
    assert_eq!((age(&hot, &[(0, 4096), (0, 0)]), age(&hot, &[(0, 4096), (4096, 0)])), (7, 30));
}

#[test]
fn idle_memory_of_other_ages_stays_apart_until_the_difference_is_small() {
    let pages = |mib: u64| Figures { present: mib << 20, ..Figures::default() };
    let limits = MergeLimits {
        threshold: 2,
        alike: Some(1.5),
        size: u64::MAX,
        resolution: 0,
        keeps_use: true,
        ages: Some(AGGREGATION * 2),
    };
    let idle = |range, age| region(range, 0, age).with_pages(pages(1));
    let merges = |one, other| idle(0..256, one).continues_in(&idle(256..512, other), limits);
    assert!(merges(0, 2) && !merges(0, 3) && !merges(30, 70) && merges(100, 127) && merges(127, 100));
    assert!(region(0..256, 0, 30).continues_in(&region(256..512, 0, 70), limits), "without a survey");
}

#[test]
fn other_attributes_keep_the_rate_and_the_age_in_time() {
    let mut r = region(0..1, 10, 30);
    r.reset();
    r.rescale(&Attributes::default(), &attributes(5, 200));
    assert_eq!((r.last_nr_accesses, r.age_in(AGGREGATION), r.age_in(AGGREGATION * 2)), (20, 30, 15));
    assert_eq!(r.past_samples, 20);
    r.rescale(&attributes(5, 200), &attributes(20, 800));
    assert_eq!(r.past_samples, 5);
}

/// Attributes with this sampling and aggregation interval, in ms.
fn attributes(sampling: u64, aggregation: u64) -> Attributes {
    let ms = Duration::from_millis;
    Attributes::default().with_intervals(ms(sampling), ms(aggregation)).unwrap()
}

#[test]
fn another_sampling_interval_ends_no_age_that_it_can_explain() {
    // The age in aggregations, after one of these attributes in which this many of 20 samples find an access.
    let after = |of: &Region, from: (u64, u64), to: (u64, u64), found: u32| {
        let mut r = *of;
        r.reset();
        let new = attributes(to.0, to.1);
        r.rescale(&attributes(from.0, from.1), &new);
        let is_found = |i: u32| (i + 1) * found / 20 > i * found / 20;
        (0..20).for_each(|i| r.count(if is_found(i) { Observation::Accessed } else { Observation::Idle }, 1));
        r.settle(&new, 1);
        r.age().as_millis()
    };
    let (short, long) = ((5, 100), (50, 1000));
    // Of memory with accesses in half of the samples of 5 ms, as few of those of 50 ms find one if accesses come in
    // bursts, and each does if they are regular.
    let some = region(0..1, 10, 30);
    let ages = [0, 2, 3, 10, 16, 20].map(|found| after(&some, short, long, found));
    assert_eq!(ages, [0, 0, 4000, 4000, 4000, 4000]);
    // The same interval explains nothing, and 0 to 2 accesses are the same.
    assert_eq!([8, 7].map(|found| after(&some, short, (5, 200), found)), [3200, 0]);
    let (idle, hot) = (region(0..1, 0, 30), region(0..1, 20, 30));
    assert_eq!([0, 2, 3].map(|found| after(&idle, short, long, found)), [4000, 4000, 0]);
    assert_eq!([20, 18, 17].map(|found| after(&hot, short, long, found)), [4000, 4000, 0]);
    // The other way round: what is found in each long sample may be in each short one, or in one of ten.
    assert_eq!([20, 10, 2, 0].map(|found| after(&hot, long, short, found)), [3100; 4]);
    assert_eq!([18, 17, 1, 0].map(|found| after(&some, long, short, found)), [0, 3100, 3100, 3100]);
    assert_eq!([0, 2, 3].map(|found| after(&idle, long, short, found)), [3100, 3100, 0]);
}
