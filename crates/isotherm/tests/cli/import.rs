//! `isotherm convert` from and to the formats of damo.

use crate::common::Place;

/// A file as damo writes it, with one process and three aggregations.
fn damon_data() -> String {
    let region = |start: u64, accesses: u32| {
        format!(
            r#"{{"start": "{start}", "end": "{}", "nr_accesses": {{"samples": {accesses}, "percent": null}},
            "age": {{"usec": null, "aggr_intervals": "3"}}}}"#,
            start + (1 << 20)
        )
    };
    let regions = [region(0x5500_0000_0000, 20), region(0x7ffd_0000_0000, 0)].join(", ");
    let snapshot =
        |i: u32| format!(r#"{{"start_time": "{i}00000000", "end_time": "{}00000000", "regions": [{regions}]}}"#, i + 1);
    let snapshots = [1, 2, 3].map(snapshot).join(", ");
    let intervals = r#"{"sample_us": "5000", "aggr_us": "100000", "ops_update_us": "1000000"}"#;
    format!(r#"[{{"target_id": 0, "intervals": {intervals}, "snapshots": [{snapshots}]}}]"#)
}

#[test]
fn a_recording_of_damo_is_imported_reported_and_converted_back() {
    let place = Place::new();
    std::fs::write(place.path("damon.data"), damon_data()).unwrap();
    let ran = place.run(&["convert", "damon.data", "damon.rec", "--pid", "4711"]);
    assert_eq!((ran.status, ran.out.as_str(), ran.err.as_str()), (0, "", ""));

    let summary = place.run(&["report", "summary", "damon.rec"]);
    for word in ["pid 4711: 300 ms, 3 snapshots", "recorded by damo", "(mapping unknown)", "2 MiB"] {
        assert!(summary.out.contains(word), "{word:?} is not in: {}", summary.out);
    }
    for kind in ["heatmap", "wss", "regions", "overhead"] {
        let ran = place.run(&["report", kind, "damon.rec"]);
        assert!(ran.status == 0 && !ran.out.is_empty(), "{kind}: {ran:?}");
    }
    assert_eq!(place.run(&["convert", "damon.rec", "back.damo"]).status, 0);
    assert_eq!(place.run(&["convert", "back.damo", "back.rec"]).status, 0);
    assert_eq!(place.regions("back.rec"), place.regions("damon.rec"));
}

#[test]
fn a_file_that_is_not_a_recording_of_damo_is_refused_in_one_line() {
    let place = Place::new();
    std::fs::write(place.path("cut"), &damon_data()[..300]).unwrap();
    std::fs::write(place.path("same.rec"), damon_data()).unwrap();
    std::fs::write(place.path("perf.data"), b"PERFILE2\x68\0\0\0").unwrap();
    for (arguments, status, words) in [
        (&["convert", "damon.data", "a.rec"][..], 1, &["cannot open damon.data", "check the name"][..]),
        (&["convert", "cut", "cut.rec"], 1, &["cut is cut short at [0].snapshots[0]", "line ", "use a whole copy"]),
        (&["convert", "same.rec", "same.rec"], 1, &["cannot write same.rec", "an input of the same command"]),
        (&["convert", "perf.data", "perf.rec"], 1, &["it is a recording of perf", "damo convert_record_format"]),
        (&["convert", "cut", "cut.csv"], 2, &["cut is a recording of damo", ".rec first"]),
        (&["convert", "cut", "cut.rec", "--pid", "me"], 2, &["--pid", "me"]),
    ] {
        let ran = place.run(arguments);
        assert_eq!(ran.status, status, "{ran:?}");
        assert!(words.iter().all(|word| ran.err.contains(word)), "{words:?} are not in: {}", ran.err);
        assert!(status == 2 || ran.err.lines().count() == 1, "{}", ran.err);
    }
    assert!(!place.path("cut.rec").exists());
}
