//! Properties of the monitor that hold for all mappings and all answers of the probe.

mod common;

use std::time::Duration;

use common::{TestProbe, attributes, monitor, run, target};
use isotherm_core::{AddrRange, Attributes, Layout, Next, Observation, PAGE_SIZE, Region, Sample, TargetSpace, areas};
use proptest::prelude::*;

const ROUNDS: u32 = 60;

/// Mappings of a target: sorted, disjoint, some touching, some with small and some with very large gaps.
fn mappings() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let gap = prop_oneof![Just(0), 1..20_u64, 1_000..1_000_000_u64];
    prop::collection::vec((gap, 1..3_000_u64), 1..12).prop_map(|gaps_and_sizes| {
        let mut at = 0;
        let place = |(gap, size): (u64, u64)| {
            let start = at + gap;
            at = start + size;
            (start, at)
        };
        gaps_and_sizes.into_iter().map(place).collect()
    })
}

/// Readings of up to four targets, each of which may be missing. The first reading is never empty.
fn readings() -> impl Strategy<Value = Vec<Vec<TargetSpace>>> {
    let reading = prop::collection::vec(prop::option::weighted(0.8, mappings()), 1..5).prop_map(|targets| {
        let present = targets.iter().enumerate().filter_map(|(id, pages)| Some(target(id as u32, pages.as_ref()?)));
        present.collect::<Vec<_>>()
    });
    prop::collection::vec(reading, 1..5).prop_map(|mut readings| {
        if readings[0].is_empty() {
            readings[0] = vec![target(9, &[(1, 500)])];
        }
        readings
    })
}

/// Answers that are stable in some places, random in others, and unobservable in others.
fn answer(seed: u64) -> impl FnMut(u32, Sample) -> Observation {
    move |round, sample| {
        let place = (sample.addr / PAGE_SIZE / 256).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed;
        let noise =
            u64::from(round).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ sample.addr.wrapping_mul(0x94d0_49bb_1331_11eb);
        match place >> 61 {
            0 | 1 => Observation::Idle,
            2 | 3 => Observation::Accessed,
            4 => Observation::Unobservable,
            _ if (noise >> 33) % 3 == 0 => Observation::Accessed,
            _ => Observation::Idle,
        }
    }
}

fn sorted_and_disjoint(regions: &[AddrRange]) -> bool {
    regions.windows(2).all(|pair| pair[0].end() <= pair[1].start())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_round_reads_more_than_the_maximum(
        readings in readings(), seed: u64, min in 3..40_usize, extra in 0..60_usize
    ) {
        let max = min + extra;
        let mut monitor = monitor(attributes(10, 1, min, max), seed, readings, TestProbe::new(answer(seed)));
        let mut most = 0;
        run(&mut monitor, ROUNDS, |m| most = most.max(m.regions().count()));
        prop_assert!(most <= max, "{most} regions");
        for round in &monitor.sink().rounds {
            prop_assert!(round.reads <= max);
        }
    }

    #[test]
    fn regions_are_sorted_aligned_and_cover_the_areas_exactly(readings in readings(), seed: u64) {
        let mut monitor = monitor(attributes(10, 1, 10, 200), seed, readings, TestProbe::new(answer(seed)));
        run(&mut monitor, ROUNDS, |_| {});
        for taken in monitor.sink().snapshots.iter().flat_map(|s| &s.targets) {
            let ranges: Vec<_> = taken.regions.iter().map(|r| r.range).collect();
            prop_assert!(sorted_and_disjoint(&ranges));
            prop_assert!(ranges.iter().all(|r| r.start() % PAGE_SIZE == 0 && r.end() % PAGE_SIZE == 0));
            let areas = areas(&taken.mappings, Layout::Process, usize::MAX);
            prop_assert!(ranges.iter().all(|r| areas.iter().any(|a| a.intersection(*r) == Some(*r))));
            let total = |ranges: &[AddrRange]| ranges.iter().map(|r| r.size()).sum::<u64>();
            prop_assert_eq!(total(&ranges), total(&areas), "merging and splitting keep the size");
        }
    }

    #[test]
    fn counts_and_ages_stay_in_their_bounds(readings in readings(), seed: u64, samples in 1..30_u32) {
        let mut monitor = monitor(attributes(samples, 2, 10, 200), seed, readings, TestProbe::new(answer(seed)));
        run(&mut monitor, ROUNDS, |_| {});
        for (nth, snapshot) in monitor.sink().snapshots.iter().enumerate() {
            prop_assert_eq!(snapshot.samples, samples);
            for region in snapshot.targets.iter().flat_map(|t| &t.regions) {
                prop_assert!(region.nr_accesses <= samples);
                prop_assert!(region.nr_unobservable <= samples);
                prop_assert!(region.age as usize <= nth + 1, "no region is older than the run");
            }
        }
    }

    #[test]
    fn late_steps_and_changes_of_the_intervals_keep_counts_and_ages_in_their_bounds(
        readings in readings(), seed: u64, paused: bool,
        steps in prop::collection::vec((0..40_u32, prop::option::weighted(0.1, (1..60_u64, 1..30_u32))), 1..300),
    ) {
        let mut monitor = monitor(attributes(10, 2, 10, 200), seed, readings, TestProbe::new(answer(seed)));
        let mut now = Duration::ZERO;
        let mut next = monitor.start().unwrap();
        for (nth, (late, change)) in steps.into_iter().enumerate() {
            let Next::Step { after } = next else { break };
            // Most steps are up to a millisecond late; one in eight is up to two intervals late.
            let late = if late < 35 { late * 30 } else { (late - 34) * 2_000 };
            now += after + Duration::from_micros(late.into());
            next = if paused && nth == 50 { monitor.resume(now).unwrap() } else { monitor.step(now).unwrap() };
            if let Some((sampling, samples)) = change {
                let sampling = Duration::from_millis(sampling);
                let aggregation = sampling * samples;
                monitor.set_attributes(Attributes::new(sampling, aggregation, aggregation * 2, 10, 200).unwrap());
            }
        }
        for snapshot in &monitor.sink().snapshots {
            for region in snapshot.targets.iter().flat_map(|t| &t.regions) {
                prop_assert!(region.nr_samples <= snapshot.samples);
                prop_assert!(region.nr_accesses <= snapshot.samples);
                prop_assert!(region.nr_unobservable <= snapshot.samples);
                prop_assert!(snapshot.aggregation * region.age <= snapshot.time, "no region is older than the run");
            }
        }
    }

    #[test]
    fn the_same_seed_and_answers_make_the_same_regions(readings in readings(), seed: u64) {
        let regions = || {
            let mut monitor =
                monitor(attributes(10, 1, 10, 200), seed, readings.clone(), TestProbe::new(answer(seed)));
            let mut seen: Vec<Vec<Region>> = Vec::new();
            run(&mut monitor, ROUNDS, |m| seen.push(m.regions().copied().collect()));
            seen
        };
        prop_assert_eq!(regions(), regions());
    }

    #[test]
    fn what_stays_mapped_keeps_its_statistics(kept in 1..2_000_u64, grown in 1..2_000_u64, seed: u64) {
        // The first mapping stays, the second goes and a third comes. Large gaps make each an area.
        let before = vec![target(1, &[(0, kept), (1_000_000, 1_000_100)])];
        let after = vec![target(1, &[(0, kept), (2_000_000, 2_000_000 + grown)])];
        let readings = vec![before.clone(), before, after];
        let hot = |_: u32, sample: Sample| {
            if sample.addr < 1_000_000 * PAGE_SIZE { Observation::Accessed } else { Observation::Idle }
        };
        let mut monitor = monitor(attributes(10, 2, 10, 200), seed, readings, TestProbe::new(hot));
        // Updates are made in rounds 20 and 40, snapshots in every tenth round.
        run(&mut monitor, 50, |_| {});
        let last = monitor.sink().snapshots.last().unwrap();
        for region in &last.targets[0].regions {
            if region.range.start() < 1_000_000 * PAGE_SIZE {
                prop_assert_eq!((region.nr_accesses, region.age), (10, 4), "hot from the first aggregation on");
            } else {
                prop_assert!(region.range.start() >= 2_000_000 * PAGE_SIZE, "unmapped memory has no region");
                prop_assert_eq!((region.nr_accesses, region.age), (0, 1), "new since the update");
            }
        }
    }
}
