//! The figures of the views, for recordings with known contents.

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{PAGE_SIZE, RegionSnapshot};
use isotherm_report::axis::{Axis, AxisResolution};
use isotherm_report::extent::{Extent, Named};
use isotherm_report::heatmap::{Heatmap, Plan};
use isotherm_report::overhead::Overhead;
use isotherm_report::schemes::Schemes;
use isotherm_report::summary::{Summary, SummaryBuilder};
use isotherm_report::wss::Wss;
use isotherm_report::{ReportError, SelectedTarget, Selection, Source, walk};
use proptest::prelude::*;

use crate::made::{self, AGGREGATION, ANON, HEAP, MIB, Made, Row, made, mapping, process, range, region, row};

fn fineness(rows: usize) -> AxisResolution {
    AxisResolution { rows, rows_of_area: 1, areas: 8, group: 1 }
}

fn heatmap(source: &Made, selection: &Selection, columns: usize, rows: usize) -> Heatmap {
    Heatmap::new(source, selection, |extent| Plan::all(extent, columns, fineness(rows))).unwrap()
}

fn summary(source: &Made, selection: &Selection) -> Summary {
    let (mut summary, mut overhead) = (SummaryBuilder::default(), Overhead::new(source.header(), selection));
    walk(source, selection, &mut [&mut summary, &mut overhead]).unwrap();
    summary.finish(source.header(), None, &overhead.finish())
}

fn wss(source: &Made, selection: &Selection) -> Wss {
    Wss::new(source, selection, None).unwrap()
}

fn one_mapping() -> Arc<[isotherm_core::Mapping]> {
    vec![mapping(HEAP, HEAP + 4 * MIB, "[heap]")].into()
}

#[test]
fn a_cell_is_the_mean_weighted_by_bytes_and_time() {
    let mappings = one_mapping();
    let source = made(vec![
        // A quarter at 200 Hz, three quarters at 40: 80 Hz.
        row(1, 1, &mappings, vec![region(HEAP, HEAP + MIB, 20, 1), region(HEAP + MIB, HEAP + 4 * MIB, 4, 1)]),
        // All of it at 100 Hz, and at 120.
        row(2, 1, &mappings, vec![region(HEAP, HEAP + 4 * MIB, 10, 3)]),
        row(3, 1, &mappings, vec![region(HEAP, HEAP + 4 * MIB, 12, 5)]),
    ]);
    let cell = heatmap(&source, &Selection::default(), 1, 1).targets[0].cell(0, 0).unwrap();
    assert!((cell.hz - 100.0).abs() < 1e-3, "{cell:?}");
    assert_eq!(cell.age, AGGREGATION * 3);
    let fine = heatmap(&source, &Selection::default(), 3, 4);
    let rates: Vec<f32> = (0..4).map(|r| fine.targets[0].cell(r, 0).unwrap().hz).collect();
    assert_eq!(rates, [200.0, 40.0, 40.0, 40.0]);
    assert!((fine.targets[0].cell(3, 2).unwrap().hz - 120.0).abs() < 1e-3);
}

#[test]
fn unobservable_memory_is_neither_hot_nor_cold() {
    let mappings = one_mapping();
    let dark = RegionSnapshot { nr_unobservable: 20, ..region(HEAP, HEAP + 2 * MIB, 0, 1) };
    // All observed samples of the other half found an access.
    let half = RegionSnapshot { nr_unobservable: 10, ..region(HEAP + 2 * MIB, HEAP + 4 * MIB, 10, 1) };
    let source = made(vec![row(1, 1, &mappings, vec![dark, half])]);
    let map = heatmap(&source, &Selection::default(), 1, 2);
    assert!(map.targets[0].cell(0, 0).unwrap().is_unobservable());
    let cell = map.targets[0].cell(1, 0).unwrap();
    assert_eq!((cell.rate, cell.unobservable, cell.is_unobservable()), (1.0, 0.5, false));
    let total = summary(&source, &Selection::default()).total;
    assert_eq!((total.hot_bytes, total.cold_bytes, total.unobservable_bytes), (MIB, 0, 3 * MIB));
}

#[test]
fn memory_that_is_not_mapped_yet_and_time_without_the_target_are_blank() {
    let source = made::phases(40);
    let map = heatmap(&source, &Selection::default(), 40, 100);
    let target = &map.targets[0];
    let late: Vec<usize> = (0..target.axis.rows).filter(|&r| &*target.axis.row_name(r) == "/dev/shm/cache").collect();
    assert!(late.len() > 3);
    assert!(target.cell(late[1], 3).is_none() && target.cell(late[1], 39).is_some());

    let mappings = one_mapping();
    let whole = |i, pid| row(i, pid, &mappings, vec![region(HEAP, HEAP + 4 * MIB, 10, 1)]);
    let source = made(vec![whole(1, 1), whole(2, 1), whole(9, 1), whole(10, 1)]);
    let map = heatmap(&source, &Selection::default(), 10, 1);
    let there: Vec<bool> = (0..10).map(|column| map.targets[0].cell(0, column).is_some()).collect();
    assert_eq!(there, [true, true, false, false, false, false, false, false, true, true]);
}

#[test]
fn gaps_are_cut_out_of_the_address_axis() {
    let source = made::phases(10);
    let map = heatmap(&source, &Selection::default(), 10, 60);
    let axis = &map.targets[0].axis;
    let areas: Vec<_> = axis.areas.iter().map(|area| (area.start(), area.bytes / MIB)).collect();
    assert_eq!(areas, [(HEAP - 4 * MIB, 49), (ANON, 302), (made::STACK, 0)]);
    assert_eq!(axis.rows, 60);
}

#[test]
fn the_working_set_is_that_of_core() {
    let source = made::phases(25);
    let expected: Vec<u64> = source.rows.iter().map(|row| row.target.working_set()).collect();
    let points = wss(&source, &Selection::default()).points;
    assert_eq!(points.iter().map(|point| point.amount.bytes).collect::<Vec<_>>(), expected);
    let sizes: Vec<u64> =
        source.rows.iter().map(|row| row.target.mapped_bytes().map(|(_, bytes)| bytes).sum()).collect();
    assert_eq!(points.iter().map(|point| point.amount.mapped).collect::<Vec<_>>(), sizes);
}

#[test]
fn targets_are_summed_by_snapshot() {
    let mappings = one_mapping();
    let part = |i, pid, end: u64| {
        let regions = vec![region(HEAP, HEAP + end, 1, 1), region(HEAP + end, HEAP + 4 * MIB, 0, 1)];
        Row { cost: None, ..row(i, pid, &mappings, regions) }
    };
    let source = made(vec![part(1, 1, MIB), part(1, 2, 2 * MIB), part(2, 1, MIB), part(2, 2, 3 * MIB)]);
    let all = wss(&source, &Selection::default());
    assert_eq!(all.percentiles().unwrap().0, [3 * MIB, 3 * MIB, 3 * MIB, 4 * MIB, 4 * MIB, 4 * MIB, 4 * MIB]);
    let one = wss(&source, &Selection { target: Some(SelectedTarget::Process(2)), ..Selection::default() });
    assert_eq!(one.percentiles().unwrap().0[0], 2 * MIB);
    assert_eq!(one.points.len(), 2);
    let map = heatmap(&source, &Selection::default(), 2, 4);
    assert_eq!(map.targets.len(), 2);
}

#[test]
fn a_summary_adds_up_and_has_the_age_of_cold_memory() {
    let source = made::phases(60);
    let summary = summary(&source, &Selection::default());
    for t in summary.mappings.iter().chain([&summary.total]) {
        assert_eq!(t.size_bytes, t.hot_bytes + t.warm_bytes + t.cold_bytes + t.unobservable_bytes, "{}", t.name);
    }
    let heap = summary.mappings.iter().find(|t| &*t.name == "[heap]").unwrap();
    assert_eq!((heap.hot_bytes, heap.cold_bytes, heap.unobservable_bytes), (20 * MIB, 20 * MIB, 8 * MIB));
    assert_eq!(heap.cold_for_ns, Some((AGGREGATION * 60).as_nanos() as u64));
    let cache = summary.mappings.iter().find(|t| &*t.name == "/dev/shm/cache").unwrap();
    assert_eq!(cache.size_bytes, 22 * MIB, "mapped for half of the time");
    assert_eq!(summary.mappings.iter().map(|t| t.size_bytes).sum::<u64>() / 1000, summary.total.size_bytes / 1000);
    let order: Vec<u64> = summary.mappings.iter().map(|t| t.size_bytes).collect();
    assert!(order.is_sorted_by(|a, b| a >= b));
}

/// A page that is accessed at random, on the mean once in 50 ms: 20 samples over each of 5 ms, then over each of 50 ms.
/// The expected counts are 20 × (1 − e^(−5/50)) and 20 × (1 − e^(−50/50)).
fn with_another_interval() -> Made {
    let mappings = one_mapping();
    let of =
        |index: u32, found: u32, age: u32| row(index, 1, &mappings, vec![region(HEAP, HEAP + 4 * MIB, found, age)]);
    let longer = |mut row: Row, time: Duration| {
        row.aggregation = AGGREGATION * 10;
        row.time = time;
        row
    };
    let mut rows: Vec<_> = (1..=10).map(|i| of(i, 2, i)).collect();
    rows.extend((2..=4).map(|i| longer(of(i, 13, i - 1), AGGREGATION * 10 * i)));
    made(rows)
}

#[test]
fn another_sampling_interval_leaves_frequencies_and_ages_as_they_are() {
    let map = heatmap(&with_another_interval(), &Selection::default(), 4, 1);
    let cells: Vec<_> = (0..4).map(|column| map.targets[0].cell(0, column).unwrap()).collect();
    // Without frequencies, as in recordings of the kernel's DAMON: 13 of 20 samples over 50 ms, and 2 of 20 over 5 ms.
    assert_eq!(cells.iter().map(|cell| cell.hz).collect::<Vec<_>>(), [20.0, 13.0, 13.0, 13.0]);
    let ages: Vec<_> = cells[1..].iter().map(|cell| cell.age).collect();
    assert_eq!(ages, [1, 2, 3].map(|nth| AGGREGATION * 10 * nth));
    let bounds = map.intervals.bounds().unwrap();
    assert_eq!(bounds, (Duration::from_millis(5), Duration::from_millis(50)));
}

#[test]
fn percentiles_are_over_time_and_not_over_snapshots() {
    let mut source = with_another_interval();
    // In use for the first second, in ten snapshots, and idle for the next three, in three.
    for row in &mut source.rows[10..] {
        row.target.regions[0].nr_accesses = 0;
    }
    let wss = wss(&source, &Selection::default());
    assert_eq!(wss.percentiles().unwrap().0[..4], [0, 0, 0, 0]);
    assert_eq!(wss.percentiles().unwrap().0[4], 4 * MIB);
    let summary = summary(&source, &Selection::default());
    assert_eq!(summary.total.working_set_bytes, MIB);
}

#[test]
fn overhead_covers_the_selected_time_and_all_targets() {
    let source = made::phases(50);
    let of = |selection: &Selection| {
        let mut overhead = Overhead::new(source.header(), selection);
        walk(&source, selection, &mut [&mut overhead]).unwrap();
        overhead.finish()
    };
    let all = of(&Selection::default());
    assert_eq!((all.rounds, all.late_rounds, all.max_regions, all.wall()), (1000, 1, 1000, AGGREGATION * 50));
    assert_eq!((all.regions.max, all.reads_per_sampling.max), (39, 39));
    assert!((all.reads_per_sampling.mean - 38.5 * 19.0 / 20.0).abs() < 0.01);
    assert!((1.0..1.8).contains(&all.pace.cpu_percent.unwrap()));
    let part = of(&Selection { time: Some(AGGREGATION * 10..AGGREGATION * 20), ..Selection::default() });
    assert_eq!((part.rounds, part.late_rounds, part.over_time.len()), (200, 0, 10));
}

#[test]
fn missing_aggregations_are_counted_by_the_rounds_of_the_next_snapshot() {
    let mut source = made::phases(50);
    assert_eq!(summary(&source, &Selection::default()).lost_aggregations, 0);
    // The rounds of three aggregations at once, and those of one and a half. In the latter no whole aggregation is
    // missing.
    for (row, rounds) in [(10, 60), (20, 30)] {
        source.rows[row].cost.as_mut().unwrap().rounds = rounds;
    }
    assert_eq!(summary(&source, &Selection::default()).lost_aggregations, 2);
    let after = Selection { time: Some(AGGREGATION * 15..AGGREGATION * 50), ..Selection::default() };
    assert_eq!(summary(&source, &after).lost_aggregations, 0);
}

#[test]
fn a_selection_narrows_time_and_addresses() {
    let source = made::phases(50);
    let time = AGGREGATION * 10..AGGREGATION * 20;
    let address = Some(range(HEAP + MIB, HEAP + 3 * MIB));
    let selection =
        Selection { time: Some(time), address, target: Some(SelectedTarget::Process(1234)), ..Selection::default() };
    let points = wss(&source, &selection).points;
    assert_eq!(points.len(), 10);
    assert!(points.iter().all(|point| point.amount.bytes == 2 * MIB && point.amount.mapped == 2 * MIB));
    let map = heatmap(&source, &selection, 10, 10);
    assert_eq!((map.start, map.end), (AGGREGATION * 10, AGGREGATION * 20));
    assert_eq!((map.targets[0].axis.bytes(), map.targets[0].axis.areas[0].start()), (2 * MIB, HEAP + MIB));
}

#[test]
fn an_empty_recording_and_an_empty_selection_say_what_is_there() {
    let nothing = walk(&made(vec![]), &Selection::default(), &mut []).unwrap_err();
    assert!(matches!(nothing, ReportError::NothingRecorded { .. }));
    insta::assert_snapshot!(nothing.to_string());
    let source = made::phases(50);
    for (name, selection) in [
        ("time", Selection { time: Some(Duration::from_secs(60)..Duration::from_secs(70)), ..Selection::default() }),
        ("target", Selection { target: Some(SelectedTarget::Process(4)), ..Selection::default() }),
        ("address", Selection { address: Some(range(0x1000, 0x2000)), ..Selection::default() }),
    ] {
        insta::assert_snapshot!(name, walk(&source, &selection, &mut []).unwrap_err().to_string());
    }
}

fn schemes(source: &Made, selection: &Selection) -> Schemes {
    Schemes::new(source, selection).unwrap()
}

#[test]
fn the_sums_of_schemes_are_those_of_the_last_activity() {
    let source = made::schemed(20);
    let view = schemes(&source, &Selection::default());
    let end = source.activities.last().unwrap();
    for (scheme, report) in view.schemes.iter().zip(&end.schemes) {
        let (total, expected) = (&scheme.total, &report.total);
        assert_eq!(scheme.name, report.name);
        assert_eq!(
            (total.applications, total.tried_regions, total.tried_bytes, total.passed_bytes),
            (expected.applications, expected.tried_regions, expected.tried_bytes, expected.passed_bytes)
        );
        assert_eq!(
            (total.applied_regions, total.applied_bytes, total.rejected_bytes, total.quota_exceeded),
            (expected.applied_regions, expected.applied_bytes, expected.rejected_bytes, expected.quota_exceeded)
        );
        assert_eq!(
            (total.refused_bytes(), total.spent_ns),
            (expected.refused_bytes(), expected.time.as_nanos() as u64)
        );
        assert_eq!((scheme.quota_bytes, scheme.goal_score), (report.quota, report.goal_score));
    }
    let hot = &view.schemes[1].total.refusals;
    assert_eq!(hot.iter().map(|r| r.label()).collect::<Vec<_>>(), ["EAGAIN", "EINVAL", "error 4711"]);
    // It slept for a quarter of the time.
    assert_eq!(view.schemes.iter().map(|s| (s.awake_share * 4.0).round()).collect::<Vec<_>>(), [3.0, 4.0]);
    let last = view.schemes[0].last.as_ref().unwrap();
    assert_eq!((last.time_ns, last.regions.len()), (19_960_000_000, 14));
}

#[test]
fn the_last_application_that_acted_is_kept_after_one_that_found_nothing() {
    let mut source = made::schemed(6);
    source.activities[5].schemes[0].last.regions.clear();
    source.activities[4].schemes[0].last.regions.truncate(2);
    let of = |source: &Made| {
        let scheme = schemes(source, &Selection::default()).schemes.remove(0);
        [scheme.last, scheme.last_acting].map(|last| last.map(|last| (last.time_ns, last.regions.len())))
    };
    assert_eq!(of(&source), [Some((5_960_000_000, 0)), Some((4_960_000_000, 2))]);
    source.activities.iter_mut().for_each(|activity| activity.schemes[0].total.applications = 0);
    assert_eq!(of(&source), [None, None]);
}

#[test]
fn the_sums_of_neighbouring_times_add_up() {
    let source = made::schemed(20);
    let of = |from: u64, to: u64| {
        let time = Some(Duration::from_secs(from)..Duration::from_secs(to));
        let view = schemes(&source, &Selection { time, ..Selection::default() });
        (view.schemes[0].total.applied_bytes, view.schemes[1].total.refused_bytes(), view.over_time.len())
    };
    let (all, first, second) = (of(0, 20), of(0, 7), of(7, 20));
    assert_eq!(all, (first.0 + second.0, first.1 + second.1, 20));
    assert!(first.0 > 0 && second.0 > 0 && first.2 == 7);
    let over_time = schemes(&source, &Selection::default()).over_time;
    assert_eq!(over_time.iter().map(|moment| moment.schemes[0].applied_bytes).sum::<u64>(), all.0);
}

#[test]
fn schemes_that_are_changed_while_they_run_are_counted_to_the_end() {
    let mut source = made::schemed(4);
    let whole = source.activities[3].schemes[1].total.applied_bytes;
    // After the second moment `prcl` is removed, and `hot` is restarted under the same name.
    let before = source.activities[1].schemes[1].total.clone();
    for activity in &mut source.activities[2..] {
        activity.schemes.remove(0);
        let total = &mut activity.schemes[0].total;
        total.applications -= before.applications;
        total.applied_bytes -= before.applied_bytes;
    }
    let view = schemes(&source, &Selection::default());
    let in_force: Vec<_> = view.schemes.iter().map(|scheme| (&*scheme.name, scheme.in_force)).collect();
    assert_eq!(in_force, [("prcl", false), ("hot", true)]);
    assert_eq!(view.schemes[0].total.applied_bytes, source.activities[1].schemes[0].total.applied_bytes);
    // In the third second everything is refused, so the count since the restart does not exceed the count before it.
    assert_eq!(view.schemes[1].total.applied_bytes, whole);
}

#[test]
fn memory_and_regions_are_those_of_the_selected_target_and_addresses() {
    let mut source = made::schemed(6);
    for activity in &mut source.activities {
        let used = activity.memory[0].1;
        activity.memory.push((process(5), used));
        activity.schemes[0].last.regions[2].target = process(5);
    }
    let resident = source.activities[0].memory[0].1.resident;
    let all = schemes(&source, &Selection::default());
    assert_eq!(all.over_time[0].used()[0], Some(2 * resident));
    let one = schemes(&source, &Selection { target: Some(SelectedTarget::Process(5)), ..Selection::default() });
    assert_eq!(one.over_time[0].used()[0], Some(resident));
    let regions = |view: &Schemes| view.schemes[0].last.as_ref().unwrap().regions.len();
    assert_eq!((regions(&all), regions(&one)), (14, 1));
    // The upper half of the first region, and the lower half of the second.
    let address = Some(range(ANON + 64 * MIB + MIB / 2, ANON + 72 * MIB + MIB / 2));
    let part = schemes(&source, &Selection { address, ..Selection::default() });
    assert_eq!(regions(&part), 2);
    assert_eq!(part.schemes[0].total.applied_bytes, all.schemes[0].total.applied_bytes);

    for (name, selection) in [
        (
            "schemes-time",
            Selection { time: Some(Duration::from_secs(60)..Duration::from_secs(70)), ..Selection::default() },
        ),
        ("schemes-target", Selection { target: Some(SelectedTarget::Process(4)), ..Selection::default() }),
    ] {
        insta::assert_snapshot!(name, Schemes::new(&source, &selection).unwrap_err().to_string());
    }
}

#[test]
fn rates_are_bytes_by_time_and_close_moments_make_one_point() {
    let mut source = made::schemed(4);
    let rates = |source: &Made| schemes(source, &Selection::default()).rate("prcl");
    let plain = rates(&source);
    let expected =
        source.activities[1].schemes[0].total.applied_bytes - source.activities[0].schemes[0].total.applied_bytes;
    assert!((plain[1].1 - expected as f64).abs() < 1.0, "{plain:?}");
    // A last moment shortly after the previous one, as at the end of a run, does not make the rate jump.
    let mut last = source.activities[3].clone();
    last.time += Duration::from_millis(2);
    last.schemes[0].total.applied_bytes += MIB;
    source.activities.push(last);
    let more = rates(&source);
    assert_eq!(more.len(), plain.len());
    assert!((more[3].1 - plain[3].1 - MIB as f64).abs() < 0.02 * more[3].1, "{plain:?} {more:?}");
}

/// Mappings with gaps of all sizes, and regions that cover them and some of the gaps.
fn rows() -> impl Strategy<Value = Vec<Row>> {
    let space =
        prop::collection::vec((1..40_u64, prop_oneof![Just(0), 1..50_u64, Just(1 << 15), Just(1 << 25)]), 1..30);
    let snapshots = prop::collection::vec((prop::collection::vec(1..60_u64, 1..60), any::<u64>(), 1..4_u32), 1..6);
    (space, snapshots).prop_map(|(space, snapshots)| {
        let (mut at, mut mappings) = (16, vec![]);
        for (pages, gap) in space {
            mappings.push(mapping(
                at * PAGE_SIZE,
                (at + pages) * PAGE_SIZE,
                ["", "[heap]", "/lib/a"][(pages % 3) as usize],
            ));
            at += pages + gap;
        }
        let mut time = 0;
        let mut rows = vec![];
        for (sizes, seed, step) in snapshots {
            time += step;
            // Each snapshot has lost some of the mappings.
            let mappings: Arc<[_]> =
                mappings.iter().enumerate().filter(|(i, _)| seed >> i & 3 != 0).map(|(_, m)| m.clone()).collect();
            let mut regions = vec![];
            for mapping in &*mappings {
                let mut start = mapping.range.start();
                for (i, size) in sizes.iter().enumerate() {
                    let end = (start + size * PAGE_SIZE).min(mapping.range.end());
                    if start < end {
                        let nr = (seed >> (i % 40)) as u32 % 21;
                        let dark = (seed >> (i % 30 + 7)) as u32 % (21 - nr);
                        regions.push(RegionSnapshot { nr_unobservable: dark, ..region(start, end, nr, i as u32) });
                    }
                    start = end;
                }
            }
            rows.push(row(time, 7, &mappings, regions));
        }
        rows
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn cells_are_rates_and_every_mapped_byte_is_in_exactly_one_row(
        rows in rows(), columns in 1..50_usize, lines in 0..80_usize, areas in 1..5_usize,
        least in 1..4_usize, group in 1..3_usize,
    ) {
        let axis = AxisResolution { rows: lines, rows_of_area: least, areas, group };
        let source = made(rows);
        if source.rows.iter().all(|row| row.target.mappings.is_empty()) {
            return Ok(());
        }
        let map = Heatmap::new(&source, &Selection::default(), |extent| Plan::all(extent, columns, axis)).unwrap();
        let target = &map.targets[0];
        for r in 0..target.axis.rows {
            for c in 0..columns {
                if let Some(cell) = target.cell(r, c) {
                    prop_assert!((0.0..=1.0).contains(&cell.rate) && (0.0..=1.0).contains(&cell.unobservable));
                }
            }
        }
        let mut extent = Extent::default();
        walk(&source, &Selection::default(), &mut [&mut extent]).unwrap();
        let extent = extent.finish();
        let axis = &target.axis;
        let mut found = vec![0; axis.rows];
        for Named { range, .. } in &extent.targets[0].mapped {
            let mut bytes = 0;
            for (r, n) in axis.rows_of(*range) {
                found[r] += n;
                bytes += n;
            }
            prop_assert_eq!(bytes, range.size());
        }
        let sizes: Vec<u64> = (0..axis.rows)
            .map(|r| { let (area, r) = axis.row(r).unwrap(); area.row_offset(r + 1) - area.row_offset(r) })
            .collect();
        prop_assert_eq!(&found, &sizes);
        prop_assert!(sizes.iter().all(|&size| size > 0));
        prop_assert_eq!(axis.areas.iter().map(|area| area.rows).sum::<usize>(), axis.rows);
    }

    #[test]
    fn address_at_is_the_inverse_of_offset_of(rows in rows(), share in 0.0..1.0_f64) {
        let mut extent = Extent::default();
        if walk(&made(rows), &Selection::default(), &mut [&mut extent]).is_err() {
            return Ok(());
        }
        for target in extent.finish().targets {
            for area in Axis::new(&target.mapped, fineness(9)).areas {
                let offset = (share * area.bytes as f64) as u64;
                prop_assert_eq!(area.offset_of(area.address_at(offset)), offset);
                prop_assert_eq!(area.between(0, area.bytes).map(|named| named.range.size()).sum::<u64>(), area.bytes);
            }
        }
    }
}
