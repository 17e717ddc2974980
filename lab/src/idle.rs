//! Helpers of the tests of `isotherm idle`: cgroups with a known workload, and reports.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::{EMULATED, Workload, eventually, succeed};

/// Bytes of a mebibyte.
pub const MIB: u64 = 1 << 20;
/// Mount point of cgroup version 2.
pub const V2: &str = "/sys/fs/cgroup";

/// A pattern with `cold` MiB that are touched only once, and `hot` MiB that are touched fifty times a second.
fn pattern(cold: u64, hot: u64) -> String {
    format!(
        "about = \"hot and cold\"\n[[area]]\nname = \"cold\"\nsize = \"{cold} MiB\"\n\
         [[area]]\nname = \"hot\"\nsize = \"{hot} MiB\"\n\
         [[phase]]\ntime = \"1000s\"\ntouch = [{{ area = \"hot\", every = \"20ms\" }}]\n"
    )
}

/// A cgroup with a workload that touched all of its memory inside the cgroup.
pub struct CgroupWorkload {
    directory: PathBuf,
    /// The workload.
    pub workload: Workload,
}

impl CgroupWorkload {
    /// Makes the cgroup `directory` and starts a workload in it, with `cold` and `hot` MiB.
    pub fn new(directory: &str, cold: u64, hot: u64) -> Self {
        let directory = PathBuf::from(directory);
        fs::create_dir_all(&directory).unwrap();
        let file = std::env::temp_dir().join(format!("{cold}-{hot}.toml"));
        fs::write(&file, pattern(cold, hot)).unwrap();
        let script = format!(
            "echo $$ > {}/cgroup.procs && exec isotherm workload {} --announce",
            directory.display(),
            file.display()
        );
        let workload = Workload::announced(Command::new("sh").args(["-c", &script]));
        Self { directory, workload }
    }

    /// The workload's process ID.
    pub fn pid(&self) -> String {
        self.workload.process.pid().to_string()
    }

    /// Ends the workload, and removes the cgroup.
    pub fn end(self) {
        drop(self.workload);
        eventually("an empty cgroup can be removed", || fs::remove_dir(&self.directory).is_ok());
    }
}

/// The reports of `isotherm idle` with these arguments.
pub fn idle(arguments: &[&str]) -> Vec<Value> {
    let budget = if arguments.contains(&"--rate") { &[] } else { &EMULATED[..] };
    let out = succeed(&[&["idle", "--format", "json"], budget, arguments].concat());
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A figure of a report.
pub fn bytes(figures: &Value, key: &str) -> u64 {
    figures[key].as_u64().unwrap_or_else(|| panic!("no {key} in {figures}"))
}

/// The figures of a cgroup's own memory.
pub fn own<'a>(report: &'a Value, path: &str) -> &'a Value {
    let found = report["cgroups"].as_array().unwrap().iter().find(|cgroup| cgroup["path"] == path);
    &found.unwrap_or_else(|| panic!("no cgroup {path} in {report}"))["own"]
}

/// The code and data of the workload itself are less than this, and mostly idle. They were 3.9 MiB on 2026-11-29, most
/// of it relocated addresses of the program, and grow with it.
const PROGRAM: u64 = 5 * MIB;

/// Asserts that a cgroup's figures are right within 1 % of its size. `cold` and `hot` are the true sizes in MiB,
/// without the workload's code and data.
#[track_caller]
pub fn assert_figures(figures: &Value, cold: u64, hot: u64) {
    assert_temperature(figures, cold, hot);
    assert_near(figures, "size_bytes", cold + hot, PROGRAM, cold + hot);
}

/// The same without the size. With page tables, the size includes memory that the workload shares with others.
#[track_caller]
pub fn assert_temperature(figures: &Value, cold: u64, hot: u64) {
    assert_near(figures, "idle_bytes", cold, PROGRAM, cold + hot);
    assert_near(figures, "accessed_bytes", hot, 0, cold + hot);
}

/// Asserts that a figure is `truth` MiB, or up to `beside` bytes more, within 1 % of `size` MiB.
#[track_caller]
fn assert_near(figures: &Value, key: &str, truth: u64, beside: u64, size: u64) {
    let (found, truth, size) = (bytes(figures, key), truth * MIB, size * MIB);
    let off = found.abs_diff(found.clamp(truth, truth + beside));
    println!("{key}: {found} of {truth}, off by {:.2} % of the size", off as f64 / size as f64 * 100.0);
    assert!(off * 100 <= size, "{key} is {found} instead of {truth}: {figures}");
}

/// Whether the report has a note that contains `part`.
pub fn note(report: &Value, part: &str) -> bool {
    report["notes"].as_array().unwrap().iter().any(|note| note.as_str().unwrap().contains(part))
}

/// Enables the memory controller in cgroup version 2, down to the second level.
pub fn account_in_v2() {
    eventually("the memory controller is available", || {
        fs::write(format!("{V2}/cgroup.subtree_control"), "+memory").is_ok()
    });
    fs::create_dir_all(format!("{V2}/outer")).unwrap();
    fs::write(format!("{V2}/outer/cgroup.subtree_control"), "+memory").unwrap();
}

/// Calls `make` while transparent huge pages are set to `always`.
pub fn with_huge_pages<T>(make: impl FnOnce() -> T) -> T {
    const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
    let before = fs::read_to_string(ENABLED).unwrap();
    fs::write(ENABLED, "always").unwrap();
    let made = make();
    // The current setting is in brackets.
    let chosen = before.split(['[', ']']).nth(1).unwrap();
    fs::write(ENABLED, chosen).unwrap();
    made
}
