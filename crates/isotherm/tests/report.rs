//! `isotherm report`: its options, on a recording whose regions are known.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod common;

use common::{Place, Ran};

const MIB: u64 = 1 << 20;

/// A place with the recording `known.rec` of one snapshot: 1 MiB that every sample found accessed, and 2 MiB that half of
/// the samples did.
fn place() -> Place {
    let place = Place::new();
    let region = |start: u64, bytes: u64, accesses: u32| {
        format!(
            r#"{{"start": {start}, "end": {}, "nr_accesses": {{"samples": {accesses}}}, "age": {{"aggr_intervals": 3}}}}"#,
            start + bytes
        )
    };
    let regions = [region(0x5500_0000_0000, MIB, 20), region(0x7ffd_0000_0000, 2 * MIB, 10)].join(", ");
    let snapshot = format!(r#"{{"start_time": 100000000, "end_time": 200000000, "regions": [{regions}]}}"#);
    let intervals = r#"{"sample_us": 5000, "aggr_us": 100000, "ops_update_us": 1000000}"#;
    let recording = format!(r#"[{{"target_id": 0, "intervals": {intervals}, "snapshots": [{snapshot}]}}]"#);
    std::fs::write(place.path("known"), recording).unwrap();
    let ran = place.run(&["import", "damo", "known", "-o", "known.rec", "--pid", "4711"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    place
}

/// The sizes of the regions that `report regions` shows with these options, in MiB.
#[track_caller]
fn sizes(place: &Place, options: &[&str]) -> Vec<u64> {
    let ran = place.run(&[&["report", "regions", "known.rec", "--format", "json"], options].concat());
    let Ran { status: 0, out, .. } = ran else { panic!("{ran:?}") };
    let snapshot: serde_json::Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
    let of = |region: &serde_json::Value| (region["end"].as_u64().unwrap() - region["start"].as_u64().unwrap()) / MIB;
    snapshot["regions"].as_array().unwrap().iter().map(of).collect()
}

#[test]
fn units_of_sizes_are_powers_of_1024() {
    let place = place();
    for one in ["1M", "1m", "1MB", "1 MiB", "1024K", "1048576"] {
        assert_eq!(sizes(&place, &["--max-size", one]), [1], "{one}");
        assert_eq!(sizes(&place, &["--min-size", one]), [1, 2], "{one}");
    }
    assert_eq!(sizes(&place, &["--min-size", "1048577"]), [2]);
    assert_eq!(sizes(&place, &["--min-size", "1.5M"]), [2]);
}

#[test]
fn a_rate_is_a_share_of_one_or_in_per_cent() {
    let place = place();
    for half in ["0.5", "50%", "50 %"] {
        assert_eq!(sizes(&place, &["--min-rate", half]), [1, 2], "{half}");
        assert_eq!(sizes(&place, &["--max-rate", half]), [2], "{half}");
    }
    assert_eq!(sizes(&place, &["--min-rate", "51%"]), [1]);
}
