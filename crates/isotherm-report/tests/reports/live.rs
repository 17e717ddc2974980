//! The heatmap of the live page: what follows its report is what a report would have.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use isotherm_record::{Event, Needs};
use isotherm_report::{LiveHeatmap, Selection, Source, live_heatmap};
use serde_json::Value;

use crate::made::{self, AGGREGATION, ANON, MIB, Row};

const PID: u32 = 7;

/// A snapshot of 4 MiB, of which the lower half is accessed in each sample, and `more` MiB elsewhere.
fn row(index: u32, more: u64) -> Row {
    let mut mappings = vec![made::mapping(ANON, ANON + 4 * MIB, "")];
    let mut regions =
        vec![made::region(ANON, ANON + 2 * MIB, 20, 1), made::region(ANON + 2 * MIB, ANON + 4 * MIB, 0, 9)];
    if more > 0 {
        let far = ANON + 1024 * MIB;
        mappings.push(made::mapping(far, far + more * MIB, ""));
        regions.push(made::region(far, far + more * MIB, 0, 1));
    }
    let mappings: Arc<[_]> = mappings.into();
    made::row(index, PID, &mappings, regions)
}

fn bytes(value: &Value) -> Vec<u8> {
    STANDARD.decode(value.as_str().unwrap()).unwrap()
}

/// The snapshots of a source after `since`, in a run that began `later` after it.
fn snapshots(source: &dyn Source, since: Duration, later: Duration) -> Vec<Event> {
    let events = source.events(Needs::SNAPSHOTS).unwrap().map(Result::unwrap);
    let moved = |event| match event {
        Event::Snapshot(mut record) => {
            record.snapshot.time -= later;
            Event::Snapshot(record)
        }
        other => other,
    };
    events.filter(|event| event.time() > since).map(moved).collect()
}

#[test]
fn columns_that_follow_a_report_are_those_of_a_report() {
    let whole = made::made((1..=20).map(|index| row(index, 0)).collect());
    let selection = Selection { time: Some(Duration::ZERO..AGGREGATION * 10), ..Selection::default() };
    let (mut live, first) = LiveHeatmap::begin(&whole, &selection, AGGREGATION).unwrap();
    let target = &first["targets"][0];
    assert_eq!(target["pid"], PID);
    let rows = target["rows"].as_u64().unwrap() as usize;
    let begin = target["end"].as_f64().unwrap();
    let (wanted, columns) =
        (target["later"]["columns"].as_u64().unwrap() as usize, target["columns"].as_u64().unwrap());
    assert!(wanted >= 8, "{target}");

    // The run that goes on began half a second after the recording.
    let later = AGGREGATION * 5;
    let started = whole.header.started_unix_ns + later.as_nanos() as u64;
    let rest = snapshots(&whole, AGGREGATION * 10, later);
    let count = rest.len();
    for (nth, event) in rest.into_iter().enumerate() {
        live.event(event, started, nth + 1 == count).unwrap();
    }
    let told = live.columns();
    assert_eq!(told["stale"], false, "{told}");
    assert_eq!(told["time"].as_f64(), Some(2.0), "{told}");
    let part = &told["targets"][0];
    let (from, count) = (part["first"].as_u64().unwrap() as usize, part["count"].as_u64().unwrap() as usize);
    assert_eq!(from, 0);
    assert!((count as f64 - (2.0 - begin) * 10.0).abs() <= 1.0, "{count} columns after {begin} s");

    // All columns of a report of the whole are alike here, and so are these.
    let report = live_heatmap(&whole, &Selection::default()).unwrap();
    let of_report = &report["targets"][0];
    assert_eq!(of_report["rows"].as_u64(), Some(rows as u64));
    let all = of_report["columns"].as_u64().unwrap() as usize;
    assert!(all as u64 >= columns);
    for layer in ["cells", "hz"] {
        let (cells, expected) = (bytes(&part[layer]), bytes(&of_report[layer]));
        for row in 0..rows {
            let own = &cells[row * count..row * count + count - 1];
            assert!(own.iter().all(|cell| *cell == expected[row * all + all / 2]), "{layer}, row {row}: {own:?}");
        }
    }
    let (low, high) = (bytes(&part["cells"])[0], bytes(&part["cells"])[(rows - 1) * count]);
    assert!(low > 100 && high == 0, "{low} and {high}");
    assert_eq!(part["moment"]["regions"], 2);
    assert!(!bytes(&part["regions"]).is_empty());
    assert_eq!(live.columns()["targets"], serde_json::json!([]), "nothing has changed since");
}

#[test]
fn a_heatmap_that_shows_too_little_is_stale() {
    let source = made::made((1..=10).map(|index| row(index, 0)).collect());
    let started = source.header.started_unix_ns;
    let begin = || LiveHeatmap::begin(&source, &Selection::default(), AGGREGATION).unwrap().0;
    let next = |row: Row| snapshots(&made::made(vec![row]), Duration::ZERO, Duration::ZERO).remove(0);
    let stale = |live: &mut LiveHeatmap| live.columns()["stale"].as_bool().unwrap();

    let mut live = begin();
    live.event(next(row(11, 0)), started, true).unwrap();
    assert!(!stale(&mut live));
    live.event(next(row(12, 4)), started, true).unwrap();
    assert!(stale(&mut live), "half of the memory has no place");

    let mut live = begin();
    live.event(next(row(100_000, 0)), started, true).unwrap();
    assert!(stale(&mut live), "there are no columns for that time");

    let mut live = begin();
    let mut other = row(11, 0);
    other.target.id = made::process(PID + 1);
    live.event(next(other), started, true).unwrap();
    assert!(stale(&mut live), "a process is new");

    let mut live = begin();
    live.missed();
    assert!(stale(&mut live));
}
