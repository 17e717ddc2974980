//! What the tests of `isotherm idle` share: cgroups with a workload whose temperature is known, and reports.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::{Workload, eventually, succeed};

/// Bytes of a mebibyte.
pub const MIB: u64 = 1 << 20;
/// Where the hierarchy of version 2 is mounted.
pub const V2: &str = "/sys/fs/cgroup";

/// A pattern of some MiB that are never touched again, and some that are touched fifty times a second.
fn pattern(cold: u64, hot: u64) -> String {
    format!(
        "about = \"hot and cold\"\n[[area]]\nname = \"cold\"\nsize = \"{cold} MiB\"\n[[area]]\nname = \"hot\"\nsize = \"{hot} MiB\"\n\
         [[phase]]\ntime = \"1000s\"\ntouch = [{{ area = \"hot\", every = \"20ms\" }}]\n"
    )
}

/// A cgroup with a workload in it, which has been in it before it touched any memory.
pub struct Inhabited {
    directory: PathBuf,
    /// What touches its memory.
    pub workload: Workload,
}

impl Inhabited {
    /// Makes the cgroup of this directory, with so many MiB that are cold and hot.
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

    /// The workload's process.
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
    let out = succeed(&[&["idle", "--format", "json"], arguments].concat());
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

/// Holds a cgroup's figures against what is truly cold and hot in it, in MiB, page by page: off by 1 % of its size at most. The
/// workload's own small memory is within that.
#[track_caller]
pub fn is_true(figures: &Value, cold: u64, hot: u64) {
    temperature_is_true(figures, cold, hot);
    holds(figures, "size_bytes", cold + hot, cold + hot);
}

/// The same without the size, to which by page tables belongs what the workload shares with others.
#[track_caller]
pub fn temperature_is_true(figures: &Value, cold: u64, hot: u64) {
    holds(figures, "idle_bytes", cold, cold + hot);
    holds(figures, "accessed_bytes", hot, cold + hot);
}

#[track_caller]
fn holds(figures: &Value, key: &str, truth: u64, size: u64) {
    let (found, truth, size) = (bytes(figures, key), truth * MIB, size * MIB);
    let off = found.abs_diff(truth);
    println!("{key}: {found} of {truth}, off by {:.2} % of the size", off as f64 / size as f64 * 100.0);
    assert!(off * 100 <= size, "{key} is {found}, and in truth {truth}: {figures}");
}

/// Whether the report has a note with this in it.
pub fn note(report: &Value, part: &str) -> bool {
    report["notes"].as_array().unwrap().iter().any(|note| note.as_str().unwrap().contains(part))
}

/// Memory is accounted in the hierarchy of version 2, down to the second level.
pub fn account_in_v2() {
    eventually("the controller of memory is there", || {
        fs::write(format!("{V2}/cgroup.subtree_control"), "+memory").is_ok()
    });
    fs::create_dir_all(format!("{V2}/outer")).unwrap();
    fs::write(format!("{V2}/outer/cgroup.subtree_control"), "+memory").unwrap();
}

/// Does something while all memory that is touched for the first time gets huge pages.
pub fn with_huge_pages<T>(make: impl FnOnce() -> T) -> T {
    const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
    let before = fs::read_to_string(ENABLED).unwrap();
    fs::write(ENABLED, "always").unwrap();
    let made = make();
    // The chosen one is in brackets.
    let chosen = before.split(['[', ']']).nth(1).unwrap();
    fs::write(ENABLED, chosen).unwrap();
    made
}
