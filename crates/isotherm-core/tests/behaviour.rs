//! The monitor step by step, in single examples.

mod common;

use std::time::Duration;

use common::{SAMPLING, TestProbe, attributes, monitor, run, target};
use isotherm_core::{Attributes, Granularity, Next, Observation, PAGE_SIZE, Sample};

fn idle(_: u32, _: Sample) -> Observation {
    Observation::Idle
}

#[test]
fn the_sink_is_called_in_order() {
    let mut monitor = monitor(attributes(2, 5, 10, 100), 1, vec![vec![target(1, &[(0, 100)])]], TestProbe::new(idle));
    run(&mut monitor, 4, |_| {});
    assert_eq!(
        monitor.sink().hooks,
        ["start", "sampled", "sampled", "aggregated", "sampled", "sampled", "aggregated", "end"]
    );
}

#[test]
fn the_first_regions_are_of_equal_size_and_about_the_minimum_in_number() {
    let mut monitor = monitor(
        attributes(20, 10, 10, 100),
        1,
        vec![vec![target(1, &[(0, 600), (10_000, 10_400)])]],
        TestProbe::new(idle),
    );
    monitor.start().unwrap();
    let pages: Vec<u64> = monitor.regions().map(|r| r.range().pages()).collect();
    assert_eq!(pages, [100; 10]);
}

#[test]
fn the_borders_of_a_hot_part_are_found() {
    let hot = 3_000 * PAGE_SIZE..3_400 * PAGE_SIZE;
    let range = hot.clone();
    let answer = move |_: u32, sample: Sample| {
        if range.contains(&sample.addr) { Observation::Accessed } else { Observation::Idle }
    };
    let mut monitor =
        monitor(attributes(20, 10, 10, 1_000), 1, vec![vec![target(1, &[(0, 20_000)])]], TestProbe::new(answer));
    run(&mut monitor, 20 * 30, |_| {});
    let last = monitor.sink().snapshots.last().unwrap();
    let found: u64 = (last.targets[0].regions.iter())
        .filter(|r| r.access_rate(last.samples) >= 0.5)
        .map(|r| {
            assert!(r.range.start() < hot.end && r.range.end() > hot.start, "{:?} is cold", r.range);
            r.range.pages()
        })
        .sum();
    assert!((380..=420).contains(&found), "{found} pages");
}

#[test]
fn a_region_that_cools_down_is_of_age_zero_again() {
    let answer = |round: u32, _: Sample| if round < 40 { Observation::Accessed } else { Observation::Idle };
    let mut monitor =
        monitor(attributes(10, 50, 10, 10), 1, vec![vec![target(1, &[(0, 100)])]], TestProbe::new(answer));
    run(&mut monitor, 70, |_| {});
    let ages: Vec<u32> = monitor.sink().snapshots.iter().map(|s| s.targets[0].regions[0].age).collect();
    assert_eq!(ages, [0, 1, 2, 3, 0, 1, 2]);
}

#[test]
fn unobservable_memory_is_neither_hot_nor_merged_with_cold() {
    let answer = |_: u32, sample: Sample| {
        if sample.addr < 500 * PAGE_SIZE { Observation::Unobservable } else { Observation::Idle }
    };
    let mut monitor =
        monitor(attributes(10, 50, 10, 100), 1, vec![vec![target(1, &[(0, 1_000)])]], TestProbe::new(answer));
    run(&mut monitor, 50, |_| {});
    let last = monitor.sink().snapshots.last().unwrap();
    assert!(last.targets[0].regions.iter().all(|r| r.nr_accesses == 0));
    assert_eq!(last.targets[0].unobservable_bytes(last.samples), 500 * PAGE_SIZE);
}

#[test]
fn single_unobservable_pages_do_not_use_up_the_budget_of_regions() {
    // Every other page of a thousand cannot be observed, as in a shared library. The target has a million pages.
    let answer = |_: u32, sample: Sample| {
        let page = sample.addr / PAGE_SIZE;
        if page < 1_000 && page.is_multiple_of(2) { Observation::Unobservable } else { Observation::Idle }
    };
    let mut monitor =
        monitor(attributes(10, 50, 10, 1_000), 1, vec![vec![target(1, &[(0, 1_000_000)])]], TestProbe::new(answer));
    run(&mut monitor, 500, |_| {});
    let last = monitor.sink().snapshots.last().unwrap();
    assert!(last.targets[0].regions.len() < 30, "{} regions", last.targets[0].regions.len());
}

#[test]
fn the_run_ends_with_the_last_target() {
    let both = vec![target(1, &[(0, 100)]), target(2, &[(0, 100)])];
    let one = vec![target(2, &[(0, 100)])];
    let mut monitor = monitor(attributes(10, 1, 10, 100), 1, vec![both, one, vec![]], TestProbe::new(idle));
    let mut rounds = 0;
    run(&mut monitor, 1_000, |m| {
        rounds += 1;
        assert!(m.regions().count() > 0);
    });
    assert_eq!(rounds, 20, "the start, and all rounds up to the update that finds no target");
    let targets: Vec<usize> = monitor.sink().snapshots.iter().map(|s| s.targets.len()).collect();
    assert_eq!(targets, [2, 1]);
}

#[test]
fn a_run_that_is_shorter_than_an_aggregation_has_a_snapshot_of_its_rounds() {
    let answer = |round: u32, _: Sample| if round < 3 { Observation::Accessed } else { Observation::Idle };
    let mut monitor =
        monitor(attributes(20, 10, 10, 100), 1, vec![vec![target(1, &[(0, 100)])], vec![]], TestProbe::new(answer));
    monitor.start().unwrap();
    monitor.cut_short(SAMPLING / 2).unwrap();
    assert!(monitor.sink().snapshots.is_empty(), "no sampling interval is over");
    for round in 0..5 {
        monitor.probe().round.set(round);
        monitor.step(SAMPLING * (round + 1)).unwrap();
    }
    monitor.cut_short(SAMPLING * 5).unwrap();
    let [snapshot] = &monitor.sink().snapshots[..] else { panic!("{:?}", monitor.sink().hooks) };
    assert_eq!((snapshot.samples, snapshot.aggregation, snapshot.time), (5, SAMPLING * 5, SAMPLING * 5));
    let region = snapshot.targets[0].regions[0];
    assert_eq!((region.nr_accesses, region.nr_samples), (3, 5));
    assert_eq!(monitor.attributes(), attributes(20, 10, 10, 100));
    monitor.ask_for_update();
    assert_eq!(monitor.step(SAMPLING * 6).unwrap(), Next::End);
}

#[test]
fn an_update_is_made_at_the_next_step_if_it_is_asked_for() {
    let readings = vec![vec![target(1, &[(0, 100)])], vec![]];
    let mut monitor = monitor(attributes(10, 1_000, 10, 100), 1, readings, TestProbe::new(idle));
    monitor.start().unwrap();
    assert_eq!(monitor.step(SAMPLING).unwrap(), Next::Step { after: SAMPLING });
    monitor.ask_for_update();
    assert_eq!(monitor.step(SAMPLING * 2).unwrap(), Next::End);
}

#[test]
fn a_snapshot_counts_the_rounds_that_had_samples() {
    let mut monitor =
        monitor(attributes(20, 50, 10, 100), 1, vec![vec![target(1, &[(0, 1_000)])]], TestProbe::new(idle));
    monitor.set_sampling_stride(5);
    run(&mut monitor, 40, |_| {});
    let hooks = monitor.sink().hooks.iter().filter(|hook| **hook == "sampled").count();
    let counted: Vec<u32> = monitor.sink().snapshots.iter().map(|snapshot| snapshot.sampled_rounds).collect();
    assert!(counted.iter().all(|&rounds| (1..20).contains(&rounds)), "{counted:?}");
    assert_eq!(counted.iter().sum::<u32>() as usize, hooks);
}

#[test]
fn rounds_without_samples_are_skipped_while_all_regions_are_steady() {
    let space = vec![vec![target(1, &[(0, 20_000)])]];
    let mut monitor = monitor(attributes(20, 10, 10, 100), 1, space, TestProbe::new(idle));
    // How many steps were made while there were this many snapshots.
    let mut steps = [0; 31];
    run(&mut monitor, 20 * 30, |m| steps[m.sink().snapshots.len()] += 1);
    assert_eq!(steps[1], 20, "no region is steady yet: pages are read in each round");
    assert_eq!(steps[15], 10, "a page is chosen in every fourth round, and read in the next");
    assert_eq!(steps[29], 4, "a page is chosen in every twelfth round, and read in the next");
    let samples = [0, 14, 28].map(|nth: usize| monitor.sink().snapshots[nth].targets[0].regions[0].nr_samples);
    assert_eq!(samples, [20, 5, 2], "the samples that were really taken");
    for (nth, snapshot) in monitor.sink().snapshots.iter().enumerate() {
        assert_eq!(snapshot.rounds, 20, "aggregation {nth}");
        assert_eq!(snapshot.time, SAMPLING * 20 * (nth as u32 + 1));
    }
}

#[test]
fn targets_beyond_the_maximum_of_regions_are_left_out() {
    let many = (0..20).map(|id| target(id, &[(0, 10), (1_000, 1_010), (9_000, 9_010)])).collect();
    let mut monitor = monitor(attributes(10, 1, 3, 12), 1, vec![many], TestProbe::new(idle));
    run(&mut monitor, 30, |m| assert!(m.regions().count() <= 12));
    assert_eq!(monitor.sink().snapshots[0].targets.len(), 12);
}

#[test]
fn changed_attributes_apply_from_the_next_aggregation_on_and_keep_ages_in_time() {
    let mut monitor = monitor(attributes(10, 50, 10, 100), 1, vec![vec![target(1, &[(0, 100)])]], TestProbe::new(idle));
    monitor.start().unwrap();
    let mut now = SAMPLING;
    let mut step = |m: &mut common::TestMonitor<_>, times: u32| {
        for _ in 0..times {
            m.step(now).unwrap();
            now += SAMPLING;
        }
    };
    step(&mut monitor, 35);
    monitor.set_attributes(attributes(20, 50, 3, 8));
    step(&mut monitor, 5 + 20);
    let snapshots = &monitor.sink().snapshots;
    assert_eq!(snapshots.iter().map(|s| s.samples).collect::<Vec<_>>(), [10, 10, 10, 10, 20]);
    // Four aggregations of 10 samples are as long as two of 20, and one more has passed.
    assert!(snapshots[4].targets[0].regions.iter().all(|r| r.age == 3));
    assert!(snapshots[4].targets[0].regions.len() <= 8);
}

#[test]
fn the_time_to_wait_follows_a_new_sampling_interval_and_rates_and_ages_stay() {
    let hot = |_: u32, _: Sample| Observation::Accessed;
    let space = vec![vec![target(1, &[(0, 100)])]];
    let mut monitor = monitor(attributes(10, 50, 10, 10), 1, space, TestProbe::new(hot));
    let ms = Duration::from_millis;
    let slower = Attributes::new(ms(20), ms(400), ms(4000), 10, 10).unwrap();
    let mut next = monitor.start().unwrap();
    let (mut now, mut waits) = (Duration::ZERO, Vec::new());
    while now < ms(200 + 400) {
        let Next::Step { after } = next else { panic!("the target lives") };
        waits.push(after);
        now += after;
        next = monitor.step(now).unwrap();
        if now == ms(175) {
            monitor.set_attributes(slower);
        }
    }
    // Four aggregations of 10 rounds, the last of which ran when the attributes were changed, and one of 20 rounds.
    assert_eq!((waits.len(), monitor.attributes()), (60, slower));
    assert!(waits[..40].iter().all(|&wait| wait == SAMPLING) && waits[40..].iter().all(|&wait| wait == ms(20)));
    let snapshots = &monitor.sink().snapshots;
    assert_eq!(snapshots.iter().map(|s| s.time).collect::<Vec<_>>(), [50, 100, 150, 200, 600].map(ms));
    let last = &snapshots[4];
    for region in &last.targets[0].regions {
        assert_eq!((region.access_rate(last.samples), region.nr_samples), (1.0, 20));
        // The age was 150 ms, which is less than one aggregation of 400 ms, and one more aggregation has passed.
        assert_eq!(region.age, 1);
    }
}

#[test]
fn each_mapping_is_a_region_if_the_probe_answers_for_mappings() {
    let before = vec![target(1, &[(0, 100), (100, 300), (5_000, 5_001)])];
    let grown = vec![target(1, &[(0, 100), (100, 900), (7_000, 7_001)])];
    let answer = |_: u32, sample: Sample| {
        if sample.addr >= 100 * PAGE_SIZE { Observation::Accessed } else { Observation::Idle }
    };
    let probe = TestProbe { granularity: Granularity::Mapping, ..TestProbe::new(answer) };
    let mut monitor = monitor(attributes(10, 1, 10, 100), 1, vec![before, grown], probe);
    run(&mut monitor, 25, |_| {});
    let regions = |nth: usize| -> Vec<(u64, u64, u32)> {
        let taken = &monitor.sink().snapshots[nth].targets[0];
        let pages =
            |r: &isotherm_core::RegionSnapshot| (r.range.start() / PAGE_SIZE, r.range.end() / PAGE_SIZE, r.nr_accesses);
        taken.regions.iter().map(pages).collect()
    };
    assert_eq!(regions(0), [(0, 100, 0), (100, 300, 10), (5_000, 5_001, 10)]);
    assert_eq!(regions(1), [(0, 100, 0), (100, 900, 10), (7_000, 7_001, 10)]);
}

#[test]
fn after_a_time_without_monitoring_all_statistics_begin_anew() {
    let hot = |_: u32, _: Sample| Observation::Accessed;
    let mut monitor = monitor(attributes(10, 50, 10, 100), 1, vec![vec![target(1, &[(0, 100)])]], TestProbe::new(hot));
    run(&mut monitor, 35, |_| {});
    assert!(monitor.regions().any(|region| !region.age().is_zero()));
    assert_ne!(monitor.resume(SAMPLING * 100_000).unwrap(), isotherm_core::Next::End);
    assert!(monitor.regions().all(|region| region.age().is_zero()));
    for round in 1..=10 {
        monitor.step(SAMPLING * (100_000 + round)).unwrap();
    }
    let last = monitor.sink().snapshots.last().unwrap();
    assert_eq!((last.time, last.rounds), (SAMPLING * 100_010, 10), "a whole aggregation after the resumption");
}

#[test]
fn an_answer_counts_for_the_region_of_its_page_if_the_targets_change_before_it_is_read() {
    // The mappings are read in the middle of a round: one target ends, and the other gets a mapping below.
    let [sampling, aggregation, update] = [200, 800, 500].map(Duration::from_millis);
    let attributes = Attributes::new(sampling, aggregation, update, 10, 100).unwrap();
    let hot = target(2, &[(5_000, 6_000)]);
    let with_more = target(2, &[(4_500, 4_600), (5_000, 6_000)]);
    let readings = vec![vec![target(1, &[(0, 1_000)]), hot.clone()], vec![hot], vec![with_more]];
    let answer = |_: u32, sample: Sample| {
        if sample.addr >= 5_000 * PAGE_SIZE { Observation::Accessed } else { Observation::Idle }
    };
    let mut monitor = monitor(attributes, 1, readings, TestProbe::new(answer));
    let mut now = Duration::ZERO;
    let mut next = monitor.start().unwrap();
    while let Next::Step { after } = next
        && now < Duration::from_secs(5)
    {
        now += after;
        next = monitor.step(now).unwrap();
    }
    let snapshots = &monitor.sink().snapshots;
    assert!(snapshots.len() > 4, "{} snapshots", snapshots.len());
    for snapshot in snapshots {
        for region in snapshot.regions() {
            let expected = if region.range.start() >= 5_000 * PAGE_SIZE { snapshot.samples } else { 0 };
            assert_eq!(region.nr_accesses, expected, "{:?} at {:?}", region.range, snapshot.time);
        }
    }
}

#[test]
fn an_aggregation_after_one_that_was_cut_short_has_no_more_samples_than_it_says() {
    let mut monitor = monitor(attributes(10, 10, 10, 100), 1, vec![vec![target(1, &[(0, 100)])]], TestProbe::new(idle));
    monitor.start().unwrap();
    monitor.step(SAMPLING).unwrap();
    monitor.cut_short(SAMPLING * 19 / 10).unwrap();
    for round in 2..=30 {
        monitor.step(SAMPLING * round).unwrap();
    }
    let snapshots = &monitor.sink().snapshots;
    assert_eq!(snapshots.len(), 3);
    for snapshot in snapshots {
        assert!(snapshot.sampled_rounds <= snapshot.samples, "{snapshot:?}");
        assert!(snapshot.regions().all(|region| region.nr_samples <= snapshot.samples), "{snapshot:?}");
    }
}
