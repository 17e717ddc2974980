//! Levels: snapshots that cover a longer time have the sums of those that they are made of.

use std::convert::Infallible;
use std::time::Duration;

use isotherm_core::{Figures, Frequency, Quantity, RegionSnapshot, Snapshot, TargetSnapshot};
use isotherm_record::{
    Contents, Ending, Event, Level, MERGED, Mark, MarkText, Needs, Recorder, Recording, SnapshotRecord, level, merged,
};
use proptest::prelude::*;

use crate::common;

const EACH: Duration = Duration::from_millis(100);

/// Snapshot number `nth`, of one target with these regions.
fn record(nth: u32, regions: Vec<RegionSnapshot>) -> SnapshotRecord {
    let target =
        TargetSnapshot { id: common::process(7), regions, mappings: vec![common::mapping(0..1024, "")].into() };
    let snapshot =
        Snapshot { time: EACH * nth, aggregation: EACH, samples: 20, targets: vec![target], ..Snapshot::default() };
    SnapshotRecord {
        infos: [(common::process(7), common::info(common::process(7)))].into(),
        snapshot,
        ..common::snapshot_record(nth)
    }
}

/// The snapshots of these events, merged.
fn snapshots(records: &[SnapshotRecord], length: Duration) -> Vec<SnapshotRecord> {
    let events = records.iter().cloned().map(|record| Ok::<_, Infallible>(Event::Snapshot(record)));
    merged(events, length)
        .map(|event| if let Ok(Event::Snapshot(record)) = event { record } else { panic!("{event:?}") })
        .collect()
}

/// Sums over regions and time: of bytes × the share of samples that found an access, and of present bytes.
fn sums(records: &[SnapshotRecord]) -> [f64; 2] {
    let mut sums = [0.0; 2];
    for Snapshot { aggregation, samples, targets, .. } in records.iter().map(|record| &record.snapshot) {
        let seconds = aggregation.as_secs_f64();
        for region in targets.iter().flat_map(|target| &target.regions) {
            let bytes = region.range.size() as f64;
            sums[0] += bytes * f64::from(region.nr_accesses) / f64::from(*samples) * seconds;
            sums[1] += region.pages.map_or(0.0, |pages| pages.present as f64) * seconds;
        }
    }
    sums
}

fn close(one: f64, other: f64) -> bool {
    (one - other).abs() <= 0.01 * one.abs().max(other.abs()) + 1.0
}

/// Regions between random borders, of all of 1,024 pages.
fn regions() -> impl Strategy<Value = Vec<RegionSnapshot>> {
    let region = (1..200_u64, 0..=20_u32, 0..100_u32, any::<bool>());
    prop::collection::vec(region, 1..12).prop_map(|parts| {
        let mut start = 0;
        let mut regions = Vec::new();
        for (pages, nr_accesses, age, is_present) in parts {
            let end = (start + pages).min(1024);
            if start < end {
                let range = common::range(start..end);
                let present = if is_present { range.size() } else { 0 };
                let pages = Some(Figures { present, swapped: Quantity::exact(0), ..Figures::default() });
                regions.push(RegionSnapshot { nr_accesses, nr_samples: 20, age, pages, ..RegionSnapshot::new(range) });
            }
            start = end;
        }
        regions
    })
}

proptest! {
    #![proptest_config(common::cases(100))]

    #[test]
    fn a_level_keeps_the_sums_and_so_does_the_one_above_it(all in prop::collection::vec(regions(), 1..80)) {
        let records: Vec<_> = (1..).zip(all).map(|(nth, regions)| record(nth, regions)).collect();
        let second = snapshots(&records, Duration::from_secs(1));
        prop_assert_eq!(second.len(), records.len().div_ceil(10));
        let fourth = snapshots(&second, Duration::from_secs(4));
        for [before, after] in [[sums(&records), sums(&second)], [sums(&second), sums(&fourth)]] {
            prop_assert!(close(before[0], after[0]) && close(before[1], after[1]), "{before:?} {after:?}");
        }
        for snapshot in second.iter().map(|record| &record.snapshot) {
            prop_assert!(snapshot.targets[0].regions.len() <= 64);
            prop_assert_eq!(snapshot.samples, 20 * (snapshot.aggregation.as_millis() / 100) as u32);
        }
    }
}

#[test]
fn a_merged_snapshot_ends_where_the_targets_or_the_interval_change_and_at_a_gap() {
    let region = |pages| RegionSnapshot {
        nr_accesses: 5,
        nr_samples: 20,
        age: 600,
        ..RegionSnapshot::new(common::range(pages))
    };
    let some = |nth: u32| {
        let frequency = (nth < 3).then(|| Frequency::new(f64::from(nth * 10), Some(f64::from(nth + 1))));
        record(nth, vec![RegionSnapshot { frequency, ..region(0..4) }])
    };
    let mut other = some(4);
    other.snapshot.targets[0].id = common::process(9);
    let mut slower = some(10);
    slower.snapshot.samples = 10;
    let records = [some(1), some(2), some(3), other, some(5), some(6), some(8), some(9), slower];
    let merged = snapshots(&records, Duration::from_secs(60));
    let times: Vec<_> =
        merged.iter().map(|record| (record.snapshot.time / 100, record.snapshot.aggregation / 100)).collect();
    let ms = Duration::from_millis;
    assert_eq!(times, [(3, 3), (4, 1), (6, 2), (9, 2), (10, 1)].map(|(time, covered)| (ms(time), ms(covered))));
    let region = merged[0].snapshot.targets[0].regions[0];
    // A third of as many aggregations, each three times as long.
    assert_eq!((region.nr_accesses, region.nr_samples, merged[0].snapshot.samples, region.age), (15, 60, 60, 200));
    // The mean of what is known.
    assert_eq!(region.frequency, Some(Frequency::new(15.0, Some(3.0))));
}

#[test]
fn other_events_stay_in_their_order_and_costs_are_summed() {
    let text = MarkText::new(b"now").unwrap();
    let mark = Event::Mark(Mark { time: EACH * 2, text });
    let records = [1, 2, 3].map(|nth| Event::Snapshot(common::snapshot_record(nth)));
    let [one, two, three] = records;
    let events = [one, two, mark.clone(), three].into_iter().map(Ok::<_, Infallible>);
    let events: Vec<_> = merged(events, Duration::from_secs(60)).map(Result::unwrap).collect();
    let [first, Event::Snapshot(last)] = &events[..] else { panic!("{events:?}") };
    assert_eq!((first, last.snapshot.time), (&mark, EACH * 3));
    assert_eq!(last.cost.unwrap().cpu_ns, (1..=3).map(|nth| common::cost(nth).cpu_ns).sum::<u64>());
}

#[test]
fn levels_of_a_recording_are_recordings_each_made_of_the_one_below() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let mut recorder =
        Recorder::create_with(&path("a.rec"), &common::header(), Contents { surveys: true, ..Contents::default() })
            .unwrap();
    for nth in 1..=1250 {
        let mut record = common::snapshot_record(nth);
        record.snapshot.time *= 10;
        record.snapshot.aggregation *= 10;
        recorder.write(&record).unwrap();
        if nth % 10 == 0 {
            let mut survey = common::survey(nth);
            survey.survey.time *= 10;
            recorder.write_survey(&survey).unwrap();
        }
    }
    recorder.finish().unwrap();
    level(&Recording::open(&path("a.rec")).unwrap(), Level::Minute, &path("minute.rec")).unwrap();
    level(&Recording::open(&path("minute.rec")).unwrap(), Level::Hour, &path("hour.rec")).unwrap();
    let all = |name: &str| {
        let recording = Recording::open(&path(name)).unwrap();
        let snapshots: Vec<_> = recording.snapshots().map(Result::unwrap).collect();
        (snapshots, recording.surveys().map(Result::unwrap).collect::<Vec<_>>(), recording.ending())
    };
    let (full, minute, hour) = (all("a.rec"), all("minute.rec"), all("hour.rec"));
    assert_eq!((minute.0.len(), minute.1.len(), hour.0.len(), hour.1.len()), (21, 21, 1, 1));
    assert_eq!((minute.2, hour.2), (Ending::Whole, Ending::Whole));
    let [full_sums, of_minute, of_hour] = [&full.0, &minute.0, &hour.0].map(|records| sums(records)[0]);
    assert!(close(full_sums, of_minute) && close(full_sums, of_hour), "{full_sums} {of_minute} {of_hour}");
    // Surveys are the last ones, without blocks; identities stay.
    let last = &hour.1[0].survey;
    let expected = &full.1.last().unwrap().survey;
    assert_eq!((last.time, &last.targets[0].by_mapping), (expected.time, &expected.targets[0].by_mapping));
    assert!(last.targets[0].by_block.is_empty());
    assert_eq!(hour.0[0].info(common::process(7)), common::info(common::process(7)));
}

#[test]
fn segments_have_merged_snapshots_and_those_after_the_last_segment_are_merged_when_they_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    let mut recorder = Recorder::create(&path, &common::header()).unwrap();
    let records: Vec<_> = (1..=6000).map(common::snapshot_record).collect();
    records.iter().for_each(|record| recorder.write(record).unwrap());
    recorder.flush().unwrap();
    // Its recorder still runs, so that the last segment is in parts.
    let recording = Recording::open(&path).unwrap();
    assert_eq!(recording.ending(), Ending::Unfinished);
    let of = |needs: Needs| -> (Vec<SnapshotRecord>, Vec<SnapshotRecord>) {
        let events = recording.events(needs).map(Result::unwrap);
        let all = events.map(|event| if let Event::Snapshot(record) = event { record } else { panic!("{event:?}") });
        all.partition(|record| record.is_merged)
    };
    let (merged, each) = of(Needs { merged: true, ..Needs::SNAPSHOTS });
    assert!(of(Needs::SNAPSHOTS).0.is_empty());
    let bare = each.iter().filter(|record| record.snapshot.regions().next().is_none()).count();
    assert!(bare > 3000 && bare < 6000, "{bare}");
    let least = (600 / MERGED.as_secs()) as usize;
    assert!((least..3 * least).contains(&merged.len()), "{}", merged.len());
    let times = |records: &[SnapshotRecord]| records.iter().map(|record| record.snapshot.time).collect::<Vec<_>>();
    assert!(times(&merged).is_sorted_by(|one, other| one < other), "{:?}", times(&merged));
    assert_eq!((times(&each), times(&merged).last()), (times(&records), times(&records).last()));
    assert_eq!(merged.iter().map(|record| record.snapshot.samples).sum::<u32>(), 6000 * records[0].snapshot.samples);
    let (whole, of_merged) = (sums(&records), sums(&merged));
    assert!(close(whole[0], of_merged[0]), "{whole:?} {of_merged:?}");
    assert_eq!(merged[0].info(common::process(7)), records[0].info(common::process(7)));
    let last = records.iter().find(|record| record.snapshot.time == merged[0].snapshot.time).unwrap();
    assert_eq!(merged[0].snapshot.targets[0].mappings, last.snapshot.targets[0].mappings);
}
