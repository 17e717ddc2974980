//! Results of an evaluation, for `isotherm eval report`.

use std::path::Path;
use std::{fs, io};

const SESSIONS: &str = r#"{"format": 1, "sessions": [{
  "started_unix_ns": 1795737600000000000, "isotherm": "0.1.0", "suite": "mine", "workloads": ["a"],
  "machine": {"id": "", "kernel": "6.1.0", "architecture": "x86_64", "processor": "", "cpus": 2, "memory": 1073741824,
    "huge_pages": "madvise", "swap": false, "lru_gen": ""},
  "configurations": ["orig", "rec"], "runs": 1, "scale": 100, "may_change": [], "options": [], "left_out": []
}]}
"#;

const RUN: &str = r#"{"session": 0, "workload": "a", "configuration": "CONFIGURATION", "nth": 1, "started_unix_ns": 1,
 "seconds": 2.0, "command_seconds": 2.0, "cpu_seconds": 1.0, "rss": 1e6, "rss_late": 1e6, "rss_max": 1e6, "system": 1e6,
 "huge": 0.0, "swap": 0.0, "zram": 0.0, "major_faults": 0, "anonymous_refaults": 0, "file_refaults": 0,
 "swapped_out": 0, "some_stalled": null, "all_stalled": null, "samples": 20, "isotherm": null, "recorded": null}"#;

/// Makes a directory with results of one program under `orig` and `rec`.
///
/// # Errors
/// If it cannot be written.
pub fn make_evaluation(directory: &Path) -> io::Result<()> {
    fs::create_dir(directory)?;
    fs::write(directory.join("evaluation.json"), SESSIONS)?;
    let run = RUN.replace('\n', "");
    let runs = ["orig", "rec"].map(|configuration| run.replace("CONFIGURATION", configuration) + "\n");
    fs::write(directory.join("runs.jsonl"), runs.concat())
}
