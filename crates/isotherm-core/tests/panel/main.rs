//! How much memory is in use, by the panel: simulated memory from 64 MiB to 5 TiB with a known truth and known prices.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod world;

use std::time::Duration;

use isotherm_core::survey::WINDOWS;
use isotherm_core::{AddrRange, PAGE_SIZE, SurveyInterval};

use world::{Kept, Part, World, watch, watch_with};

const GIB: u64 = 1 << 30;

/// How much memory the last survey does not know.
fn unknown(found: &Kept) -> u64 {
    found.surveys.last().unwrap().targets[0].total().figures.unknown
}

/// Memory of which this share is accessed every 20 ms.
fn in_use(share: f64) -> [Part; 1] {
    [Part { share, every: Duration::from_millis(20) }]
}

/// The last reading of the panel, and what it says of a window relative to the truth.
fn last(world: &World, found: &Kept, window: usize) -> [f64; 3] {
    let panel = found.panels.last().unwrap();
    let truth = world.truth(WINDOWS[window].clamp(panel.interval, panel.observed));
    let of = panel.total[window];
    [of.low, of.value, of.high].map(|bytes| bytes as f64 / truth)
}

/// What is known of a window relative to the truth: by the last survey if that knows all memory, or else by the panel.
fn known(world: &World, found: &Kept, window: usize) -> [f64; 3] {
    let total = found.surveys.last().map(|survey| survey.targets[0].total());
    match total.filter(|total| total.figures.unknown * 100 <= total.figures.present) {
        Some(total) => [total.within[window] as f64 / world.truth(WINDOWS[window]); 3],
        None => last(world, found, window),
    }
}

#[test]
fn while_surveys_do_not_know_much_of_the_memory_the_panel_tells_how_much_is_in_use() {
    let world = World::dense(1, 20 * GIB, &in_use(0.1), false);
    let (found, _) = watch(&world, Duration::from_millis(1300), false);
    let total = found.surveys.last().unwrap().targets[0].total();
    assert!(total.figures.unknown > 2 * GIB, "{} MiB unknown", total.figures.unknown >> 20);
    let [low, value, high] = last(&world, &found, 2);
    assert!((0.9..1.1).contains(&value) && low <= 1.0 && high >= 1.0, "{low} {value} {high}");
}

#[test]
fn memory_in_use_is_known_within_a_tenth_after_two_seconds_whatever_the_size() {
    for (size, share, scattered) in [
        (GIB / 16, 0.1, false),
        (GIB / 16, 0.01, true),
        (GIB, 0.5, true),
        (500 * GIB, 0.1, true),
        (5 << 40, 0.01, false),
    ] {
        let world = World::dense(1, size, &in_use(share), scattered);
        let (found, cpu) = watch(&world, Duration::from_millis(2100), false);
        let [low, value, high] = known(&world, &found, 0);
        let what = format!("{} MiB, {share}: {low:.3} {value:.3} {high:.3}", size >> 20);
        assert!((0.9..1.1).contains(&value) && low > 0.8 && high < 1.25, "{what}");
        assert!(cpu.iter().sum::<Duration>() < Duration::from_millis(300), "{what}: {cpu:?}");
    }
}

#[test]
fn where_it_is_dear_to_clear_a_page_the_start_keeps_to_its_credit_and_the_panel_is_right() {
    for (share, off) in [(1.0, 0.02), (0.5, 0.1), (0.1, 0.15)] {
        let world = World { clear_price: 25_000, ..World::dense(1, GIB / 5, &in_use(share), true) };
        let (found, cpu) = watch(&world, Duration::from_millis(2900), false);
        let value = found.panels.last().unwrap().total[0].value as f64 / world.truth(WINDOWS[0]);
        assert!((value - 1.0).abs() < off, "{share}: {value}");
        assert!(cpu.iter().sum::<Duration>() < Duration::from_millis(300), "{share}: {cpu:?}");
    }
}

#[test]
fn the_panel_is_small_where_surveys_know_all_memory_and_grows_where_they_do_not() {
    let reads = |size: u64, seconds: u64| {
        let world = World::dense(1, size, &in_use(0.01), false);
        let (found, _) = watch(&world, Duration::from_secs(seconds), false);
        found.panels.last().unwrap().reads
    };
    // An eighth of the pages at most, where a hundredth of the memory in use asks for 40,000; later 1,000.
    let (early, late, of_much) = (reads(GIB / 4, 1), reads(GIB, 12), reads(500 * GIB, 12));
    assert!(early <= 8300, "{early} pages of 65,536");
    assert!(late <= 1100, "{late} pages of 1 GiB, which surveys know");
    assert!(of_much > 10_000, "{of_much} pages of 500 GiB");
}

#[test]
fn memory_of_which_most_pages_are_absent_is_known_as_exactly_as_other_memory() {
    // The first survey does not end within this time.
    let width = |sparse: u64| {
        let world = World { sparse, ..World::dense(1, sparse * 64 * GIB, &in_use(0.01), false) };
        let (found, _) = watch(&world, Duration::from_millis(2100), false);
        let [low, value, high] = last(&world, &found, 0);
        assert!((0.85..1.15).contains(&value) && low <= 1.0 && high >= 1.0, "{sparse}: {low:.3} {value:.3} {high:.3}");
        high - low
    };
    let (dense, sparse) = (width(1), width(8));
    assert!(sparse < dense * 1.5, "{sparse:.3} wide, where dense memory has {dense:.3}");
}

#[test]
fn memory_that_goes_after_its_size_was_read_does_not_count_twice() {
    let ends = Some(Duration::from_millis(2600));
    let world = World { ends, ..World::dense(1, GIB / 4, &in_use(0.5), true) };
    let (found, _) = watch(&world, Duration::from_millis(3500), false);
    let last = found.panels.last().unwrap();
    assert!(last.time > Duration::from_millis(2600));
    assert!(last.total.iter().all(|of| of.high <= GIB / 4), "{:?}", last.total);
}

#[test]
fn surveys_know_two_and_a_half_gib_within_ten_seconds() {
    // A process with shared memory is read by 1 GiB at once.
    for (scattered, at_once, length) in [(false, 1, 10), (true, 1, 10), (false, 512, 3)] {
        let world = World { at_once, ..World::dense(1, GIB * 5 / 2, &in_use(0.1), scattered) };
        let (found, cpu) = watch(&world, Duration::from_secs(length), false);
        // Memory in use that lies scattered has to be cleared again and again, and that takes more than is allowed.
        let least = if scattered { GIB / 4 } else { 0 };
        let unknown = unknown(&found);
        assert!(unknown <= least + GIB / 40, "{} MiB unknown, scattered: {scattered}, {at_once}", unknown >> 20);
        let start: Duration = cpu[..3].iter().sum();
        assert!(start < Duration::from_millis(320), "{start:?} at the start");
    }
}

#[test]
fn bounds_hold_the_truth_in_19_of_20_runs() {
    for (share, huge) in [(0.02, false), (0.3, false), (0.2, true)] {
        let held = (0..60).filter(|&pid| {
            let size = if huge { GIB / 4 } else { GIB / 16 };
            let world = World { huge, ..World::dense(pid, size, &in_use(share), true) };
            // One survey finds the pages.
            let rare = SurveyInterval::Fixed(Duration::from_secs(60));
            let (found, _) = watch_with(&world, Duration::from_millis(1300), false, rare);
            let [low, _, high] = last(&world, &found, 0);
            low <= 1.0 && high >= 1.0
        });
        let held = held.count();
        assert!(held >= 55, "{held} of 60, {share} {huge}");
    }
}

#[test]
fn windows_hold_what_was_accessed_within_them() {
    let part = |share, seconds| Part { share, every: Duration::from_secs_f64(seconds) };
    let parts = [part(0.05, 0.02), part(0.05, 1.7), part(0.1, 4.0), part(0.2, 15.0), part(0.2, 100.0)];
    for samples in [false, true] {
        let world = World::dense(7, GIB / 8, &parts, true);
        let (found, _) = watch(&world, Duration::from_millis(13_100), samples);
        for (window, &length) in WINDOWS.iter().enumerate().take(4) {
            let [low, value, high] = last(&world, &found, window);
            // Samples and surveys clear most of this memory, too.
            let what = format!("{:?}, samples {samples}: {low:.3} {value:.3} {high:.3}", length);
            assert!((0.9..1.1).contains(&value) && low <= 1.02 && high >= 0.98, "{what}");
        }
    }
}

#[test]
fn memory_that_is_spread_over_much_address_space_is_known() {
    // 900 areas of 512 KiB, each in a mapping of its own, and one of 8 TiB that is hardly present.
    let areas = (0..900).map(|nth| AddrRange::new((nth + 1) << 30, ((nth + 1) << 30) + (512 << 10)).unwrap());
    let world = World::new(3, areas.collect(), &in_use(0.2), true);
    let reserved = AddrRange::new(1 << 44, (1 << 44) + (8 << 40)).unwrap();
    let world = World { reserved: Some(reserved), ..world };
    let (found, _) = watch(&world, Duration::from_millis(2100), false);
    let [low, value, high] = last(&world, &found, 0);
    assert!((0.9..1.1).contains(&value) && low <= 1.0 && high >= 1.0, "{low} {value} {high}");
}

#[test]
fn memory_that_a_process_maps_three_times_counts_once_and_is_used_if_it_is_at_one_address() {
    for scattered in [false, true] {
        let world = World { again: 2, ..World::dense(1, 256 << 20, &in_use(0.25), scattered) };
        let (found, _) = watch(&world, Duration::from_secs(20), false);
        let truth = world.truth(WINDOWS[1]);
        let mut told = 0;
        for panel in &found.panels {
            for of in panel.total {
                let [low, high] = [of.low, of.high].map(|bytes| bytes as f64);
                let all = (world.pages() * PAGE_SIZE) as f64;
                assert!(low <= truth && truth <= high && high <= all, "{scattered} {:?}: {of:?}", panel.time);
                if high < truth * 1.25 {
                    told += 1;
                    assert!((of.value as f64 / truth - 1.0).abs() < 0.1, "{scattered} {:?}: {of:?}", panel.time);
                }
            }
        }
        assert!(told > 10, "{scattered}: {told}");
    }
}

#[test]
fn memory_that_is_added_is_within_the_bounds_at_each_reading() {
    // A quarter of it appears between two surveys, and is accessed all the time.
    for (size, fills) in [(GIB / 4, 6.0), (10 * GIB, 10.0)] {
        let (fills, rare) = (Duration::from_secs_f64(fills), SurveyInterval::Fixed(Duration::from_secs(4)));
        let world = World { fills, ..World::dense(4, size, &in_use(1.0), false) };
        let (found, _) = watch_with(&world, fills + Duration::from_secs(2), false, rare);
        let readings = found.panels.iter().flat_map(|panel| {
            let there = (panel.time.as_secs_f64() / fills.as_secs_f64()).min(1.0) * size as f64;
            [0, 2]
                .map(|window| panel.total[window])
                .map(|of| [of.low, of.value, of.high].map(|bytes| bytes as f64 / there))
        });
        let readings: Vec<[f64; 3]> = readings.collect();
        assert!(readings.iter().all(|[low, _, high]| *low <= 1.001 && *high >= 0.999), "{readings:.2?}");
        let good = readings.iter().filter(|[low, value, _]| (0.9..1.1).contains(value) && *low > 0.8).count();
        assert!(good * 2 > readings.len(), "{readings:.2?}");
    }
}

#[test]
fn a_program_that_begins_with_the_run_is_known_from_its_beginning() {
    for (size, fills) in [(GIB / 4, 0.7), (4 * GIB, 2.0)] {
        let fills = Duration::from_secs_f64(fills);
        let world = World { fills, begins: true, ..World::dense(9, size, &in_use(0.1), true) };
        let (found, _) = watch(&world, fills + Duration::from_secs(4), false);
        assert!(found.panels.len() > 3, "{} readings", found.panels.len());
        for panel in &found.panels {
            world.now.set(panel.time);
            assert!(panel.observed >= WINDOWS[3], "{panel:?}");
            let (since, of) = (panel.time.saturating_sub(fills).as_secs_f64(), panel.total);
            // All memory was filled in the last five seconds. Of these, a second is known when it is over, and to the
            // aimed precision when the panel has grown.
            let there = world.filled_part() * size as f64;
            let known = [(2, there, panel.time <= WINDOWS[2]), (0, 0.1 * size as f64, since >= 1.9)];
            for (window, truth, _) in known.into_iter().filter(|(.., is_known)| *is_known) {
                let [low, value, high] = [of[window].low, of[window].value, of[window].high].map(|b| b as f64 / truth);
                let what = format!("{size} at {:?}, {:?}: {low:.3} {value:.3} {high:.3}", panel.time, WINDOWS[window]);
                assert!((0.85..1.15).contains(&value) && low <= 1.02 && high >= 0.98, "{what}");
                assert!(low > 0.8 && high < 1.25, "{what}");
            }
        }
    }
}

#[test]
fn surveys_know_a_program_that_fills_memory_although_opening_it_took_long() {
    let (fills, opens) = (Duration::from_millis(500), 40_000_000);
    let world = World { fills, begins: true, opens, at_once: 512, ..World::dense(1, GIB, &in_use(0.1), false) };
    let (found, _) = watch(&world, Duration::from_secs(5), true);
    assert!(unknown(&found) <= GIB / 100, "{} MiB unknown", unknown(&found) >> 20);
}
