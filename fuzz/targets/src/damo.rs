//! The import of damo's recordings.

use isotherm_damo::import;
use isotherm_record::{Ending, Recording};

use crate::scratch::Scratch;

thread_local! {
    static FILES: Scratch = {
        let files = Scratch::new("damon.data");
        // The parameters of the run: unknown fields of either file are ignored, so one input can be both.
        files.link("damon.data.kdamonds");
        files
    };
}

/// Imports a file, and reads the recording.
///
/// # Panics
/// If the recording is not whole.
pub fn damo_import(data: &[u8]) {
    FILES.with(|files| {
        let output = files.path("damon.rec");
        if let Ok(imported) = import(files.input(data), &output, &[], "0.0.0") {
            let recording = Recording::open(&output).expect("an imported recording can be opened");
            assert_eq!(recording.ending(), Ending::Whole);
            let snapshots =
                recording.snapshots().collect::<Result<Vec<_>, _>>().expect("an imported recording can be read");
            assert_eq!(snapshots.len() as u64, imported.snapshots);
        }
    });
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    const JSON: &[u8] = br#"[{"kdamond_idx": 0, "context_idx": 0, "target_id": 0,
        "intervals": {"sample_us": "5 ms", "aggr_us": 100000, "intervals_goal": {"aggrs": "3"}},
        "contexts": [{"ops": "vaddr", "targets": [{"pid": 7}], "nr_regions": {"min": "10", "max": "1,000"}}],
        "snapshots": [{"start_time": "0", "end_time": 100000000, "sample_interval_us": "5000", "regions": [
            {"start": "4,096", "end": "8 KiB", "nr_accesses": {"samples": null, "percent": 45},
             "age": {"usec": "5 s 300 ms", "aggr_intervals": null}},
            {"start": 8192, "end": 12288, "nr_accesses": {"samples": 3}}]}]}]"#;
    vec![
        JSON.into(),
        include_bytes!("../../../crates/isotherm-damo/tests/files/1.9.0.json").into(),
        include_bytes!("../../../crates/isotherm-damo/tests/files/2.3.0.json_compressed").into(),
        include_bytes!("../../../crates/isotherm-damo/tests/files/3.4.3.json_compressed").into(),
    ]
}
