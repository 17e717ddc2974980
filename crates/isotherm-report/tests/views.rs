//! What the views compute, against recordings whose truth is known.
#![allow(missing_docs, clippy::unwrap_used)]

mod made;

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{PAGE_SIZE, RegionSnapshot, TargetId};
use isotherm_record::Row;
use isotherm_report::axis::{Axis, Fineness};
use isotherm_report::heatmap::{Heatmap, Resolution};
use isotherm_report::overhead::Overhead;
use isotherm_report::space::{Named, Survey};
use isotherm_report::summary::{Summary, SummaryBuilder};
use isotherm_report::wss::Wss;
use isotherm_report::{ReportError, Selection, Source, walk};
use made::{AGGREGATION, ANON, HEAP, MIB, Made, made, mapping, range, region, row};
use proptest::prelude::*;

fn resolution(columns: usize, rows: usize) -> Resolution {
    Resolution { columns, axis: Fineness { rows, rows_of_area: 1, areas: 8, group: 1 } }
}

fn heatmap(source: &Made, selection: &Selection, columns: usize, rows: usize) -> Heatmap {
    Heatmap::new(source, selection, |_| resolution(columns, rows)).unwrap()
}

fn summary(source: &Made, selection: &Selection) -> Summary {
    let (mut summary, mut overhead) = (SummaryBuilder::default(), Overhead::new(source.header()));
    walk(source, selection, &mut [&mut summary, &mut overhead]).unwrap();
    summary.finish(source.header(), None, &overhead.finish())
}

fn wss(source: &Made, selection: &Selection) -> Wss {
    let mut wss = Wss::default();
    walk(source, selection, &mut [&mut wss]).unwrap();
    wss
}

fn one_mapping() -> Arc<[isotherm_core::Mapping]> {
    vec![mapping(HEAP, HEAP + 4 * MIB, "[heap]")].into()
}

#[test]
fn a_cell_is_the_mean_weighted_by_bytes_and_time() {
    let mappings = one_mapping();
    let source = made(vec![
        // A quarter at 1, three quarters at 0.2: 0.4.
        row(1, 1, &mappings, vec![region(HEAP, HEAP + MIB, 20, 1), region(HEAP + MIB, HEAP + 4 * MIB, 4, 1)]),
        // All of it at 0.5, and at 0.6.
        row(2, 1, &mappings, vec![region(HEAP, HEAP + 4 * MIB, 10, 3)]),
        row(3, 1, &mappings, vec![region(HEAP, HEAP + 4 * MIB, 12, 5)]),
    ]);
    let cell = heatmap(&source, &Selection::default(), 1, 1).targets[0].cell(0, 0).unwrap();
    assert!((cell.rate - 0.5).abs() < 1e-6, "{cell:?}");
    assert_eq!(cell.age, AGGREGATION * 3);
    let fine = heatmap(&source, &Selection::default(), 3, 4);
    let rates: Vec<f32> = (0..4).map(|r| fine.targets[0].cell(r, 0).unwrap().rate).collect();
    assert_eq!(rates, [1.0, 0.2, 0.2, 0.2]);
    assert!((fine.targets[0].cell(3, 2).unwrap().rate - 0.6).abs() < 1e-6);
}

#[test]
fn unobservable_memory_is_neither_hot_nor_cold() {
    let mappings = one_mapping();
    let dark = RegionSnapshot { nr_unobservable: 20, ..region(HEAP, HEAP + 2 * MIB, 0, 1) };
    // Of what could be observed of the other half, all was accessed.
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
fn the_working_set_is_the_cores() {
    let source = made::phases(25);
    let expected: Vec<u64> = source.rows.iter().map(|row| row.target.working_set()).collect();
    let points = wss(&source, &Selection::default()).points;
    assert_eq!(points.iter().map(|point| point.bytes).collect::<Vec<_>>(), expected);
    let sizes: Vec<u64> =
        source.rows.iter().map(|row| row.target.mapped_bytes().map(|(_, bytes)| bytes).sum()).collect();
    assert_eq!(points.iter().map(|point| point.mapped).collect::<Vec<_>>(), sizes);
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
    assert_eq!(all.percentiles().0, [3 * MIB, 3 * MIB, 3 * MIB, 4 * MIB, 4 * MIB, 4 * MIB, 4 * MIB]);
    let one = wss(&source, &Selection { target: Some(TargetId(2)), ..Selection::default() });
    assert_eq!(one.percentiles().0[0], 2 * MIB);
    assert_eq!(one.points.len(), 2);
    let map = heatmap(&source, &Selection::default(), 2, 4);
    assert_eq!(map.targets.len(), 2);
}

#[test]
fn a_summary_adds_up_and_knows_for_how_long_the_cold_is_cold() {
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
    let order: Vec<u64> = summary.mappings.iter().map(|t| t.hot_bytes).collect();
    assert!(order.is_sorted_by(|a, b| a >= b));
}

#[test]
fn overhead_is_of_the_selected_time_and_of_all_targets() {
    let source = made::phases(50);
    let of = |selection: &Selection| {
        let mut overhead = Overhead::new(source.header());
        walk(&source, selection, &mut [&mut overhead]).unwrap();
        overhead.finish()
    };
    let all = of(&Selection::default());
    assert_eq!((all.rounds, all.late_rounds, all.max_regions, all.wall()), (1000, 1, 1000, AGGREGATION * 50));
    assert_eq!((all.regions.max, all.reads_per_sampling.max), (39, 39));
    assert!((all.reads_per_sampling.mean - 38.5 * 19.0 / 20.0).abs() < 0.01);
    assert!((1.0..1.8).contains(&all.cpu_percent));
    let part = of(&Selection { time: Some(AGGREGATION * 10..AGGREGATION * 20), ..Selection::default() });
    assert_eq!((part.rounds, part.late_rounds, part.over_time.len()), (200, 0, 10));
}

#[test]
fn aggregations_that_are_missing_are_counted_from_the_rounds_of_the_next() {
    let mut source = made::phases(50);
    assert_eq!(summary(&source, &Selection::default()).lost_aggregations, 0);
    // Three aggregations' rounds at once, and one and a half: of the latter none is missing as a whole.
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
    let selection = Selection { time: Some(time), address, target: Some(TargetId(1234)) };
    let points = wss(&source, &selection).points;
    assert_eq!(points.len(), 10);
    assert!(points.iter().all(|point| point.bytes == 2 * MIB && point.mapped == 2 * MIB));
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
        ("target", Selection { target: Some(TargetId(4)), ..Selection::default() }),
        ("address", Selection { address: Some(range(0x1000, 0x2000)), ..Selection::default() }),
    ] {
        insta::assert_snapshot!(name, walk(&source, &selection, &mut []).unwrap_err().to_string());
    }
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
        rows in rows(), columns in 1..50_usize, lines in 0..80_usize, areas in 1..5_usize, least in 1..4_usize, group in 1..3_usize,
    ) {
        let fineness = Fineness { rows: lines, rows_of_area: least, areas, group };
        let source = made(rows);
        if source.rows.iter().all(|row| row.target.mappings.is_empty()) {
            return Ok(());
        }
        let map = Heatmap::new(&source, &Selection::default(), |_| Resolution { columns, axis: fineness }).unwrap();
        let target = &map.targets[0];
        for r in 0..target.axis.rows {
            for c in 0..columns {
                if let Some(cell) = target.cell(r, c) {
                    prop_assert!((0.0..=1.0).contains(&cell.rate) && (0.0..=1.0).contains(&cell.unobservable));
                }
            }
        }
        let mut survey = Survey::default();
        walk(&source, &Selection::default(), &mut [&mut survey]).unwrap();
        let survey = survey.finish();
        let axis = &target.axis;
        let mut found = vec![0; axis.rows];
        for Named { range, .. } in &survey.places[0].mapped {
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
    fn addresses_and_offsets_of_an_area_are_each_others_inverse(rows in rows(), share in 0.0..1.0_f64) {
        let mut survey = Survey::default();
        if walk(&made(rows), &Selection::default(), &mut [&mut survey]).is_err() {
            return Ok(());
        }
        for place in survey.finish().places {
            for area in Axis::new(&place.mapped, resolution(1, 9).axis).areas {
                let offset = (share * area.bytes as f64) as u64;
                prop_assert_eq!(area.offset_of(area.address_at(offset)), offset);
                prop_assert_eq!(area.between(0, area.bytes).map(|named| named.range.size()).sum::<u64>(), area.bytes);
            }
        }
    }
}
