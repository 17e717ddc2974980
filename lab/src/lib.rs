//! Helpers of the laboratory's tests: running isotherm, and workloads whose access pattern is known.
//!
//! The tests (`lab/tests/*.rs`) run as root inside a virtual machine, one after the other. `lab/test` lists
//! which tests run on which kernel. The helpers panic on any failure.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

pub mod acting;
pub mod idle;
pub mod migration;
pub mod podman;
mod switches;
mod zram;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use isotherm_core::{AddrRange, PAGE_SIZE};
use isotherm_kernel::page_cache::{CachedFiles, FileReader};
use serde_json::Value;

use switches::Switches;
pub use zram::Zram;

/// A pattern of 48 MiB cold, 16 MiB hot and 64 MiB cold memory: the areas `cold below`, `hot` and
/// `cold above`. Each hot page is touched every 2 ms. It runs for 1,000 s.
pub const HOT_IN_COLD: &str = r#"
about = "hot in cold"
[[area]]
name = "cold below"
size = "48 MiB"
[[area]]
name = "hot"
size = "16 MiB"
[[area]]
name = "cold above"
size = "64 MiB"
[[phase]]
time = "1000s"
touch = [{ area = "hot", every = "2ms" }]
"#;

/// An emulated processor is so much slower than a real one that the default budget is too small for it.
pub const EMULATED: [&str; 2] = ["--cpu-budget", "100%"];

/// `isotherm` with these arguments and no standard input.
pub fn isotherm(arguments: &[&str]) -> Command {
    let mut command = Command::new("isotherm");
    command.args(arguments).stdin(Stdio::null());
    command
}

/// The result of a command.
#[derive(Debug)]
pub struct Ran {
    /// The exit status, or -1 if a signal ended it.
    pub status: i32,
    /// The standard output.
    pub out: String,
    /// The standard error.
    pub err: String,
}

/// Runs a command to its end; it may fail.
pub fn run(command: &mut Command) -> Ran {
    let output = command.output().unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { status: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

/// Runs `isotherm`, which must succeed; returns its standard output.
pub fn succeed(arguments: &[&str]) -> String {
    let ran = run(&mut isotherm(arguments));
    assert_eq!(ran.status, 0, "isotherm {arguments:?}: {ran:?}");
    ran.out
}

/// The path of a file in /results, which the host gets when the machine ends.
pub fn result_file(name: &str) -> PathBuf {
    let results = Path::new("/results");
    assert!(results.is_dir(), "there is no /results: these tests run in the laboratory, ./dev lab");
    results.join(name)
}

/// The JSON of `isotherm report VIEW RECORDING`, a value a line.
pub fn report(view: &str, recording: &Path) -> Vec<Value> {
    let out = succeed(&["report", view, recording.to_str().unwrap(), "--format", "json"]);
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Waits until `holds` returns true, at most two minutes: an emulated machine beside a busy host is slow.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(120), "not true within 2 minutes: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The bytes of a file that are in the page cache.
pub fn cached(path: &Path) -> u64 {
    let files = CachedFiles::new(&[path.into()]).unwrap();
    let mut bytes = 0;
    let mut reader = FileReader::new(files.table());
    reader.resident(AddrRange::new(0, u64::MAX).unwrap(), |_| bytes += PAGE_SIZE).unwrap();
    bytes
}

/// What a script of the shell prints. It must succeed.
#[track_caller]
pub fn shell(script: &str) -> String {
    let ran = run(Command::new("sh").args(["-ec", script]));
    assert_eq!(ran.status, 0, "{script}: {ran:?}");
    ran.out
}

/// The CPU time of a process in ticks. It grows while the process runs.
pub fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after_name = stat.rsplit(") ").next().unwrap();
    after_name.split(' ').skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum()
}

/// The processes that `recorder` holds a pidfd of.
pub fn watched(recorder: u32) -> BTreeSet<u32> {
    let entries = std::fs::read_dir(format!("/proc/{recorder}/fdinfo")).unwrap();
    let texts = entries.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path()).ok());
    let pids = texts.filter_map(|text| text.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok()));
    pids.collect()
}

/// A process that is killed at the end of the test, and its standard output.
pub struct Running {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Running {
    /// Starts it.
    pub fn start(command: &mut Command) -> Self {
        let mut child =
            command.stdout(Stdio::piped()).spawn().unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// Its process ID.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Reads up to the next line that contains `part`, and returns that line.
    pub fn wait_for_line(&mut self, part: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "its output ended before a line with {part:?}");
            if line.contains(part) {
                return line;
            }
        }
    }

    /// Sends it SIGINT.
    pub fn interrupt(&self) {
        assert_eq!(run(Command::new("kill").args(["-INT", &self.pid().to_string()])).status, 0);
    }

    /// Waits for its end. Returns its exit status, or -1 if a signal ended it.
    pub fn wait(&mut self) -> i32 {
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A running `isotherm workload` and the addresses of its areas.
pub struct Workload {
    /// The workload's process, or the isotherm that started it.
    pub process: Running,
    areas: Vec<(String, AddrRange)>,
    _switches: Switches,
}

impl Workload {
    /// Starts a pattern: the name of a built-in one, or a pattern's text such as [`HOT_IN_COLD`].
    pub fn start(pattern: &str) -> Self {
        let pattern = pattern_file(pattern);
        Self::announced(&mut isotherm(&["workload", &pattern, "--announce"]))
    }

    /// Starts a command that runs `isotherm workload ... --announce` with the same standard output.
    pub fn announced(command: &mut Command) -> Self {
        let mut process = Running::start(command);
        let announced: Value = serde_json::from_str(&process.wait_for_line("\"areas\"")).unwrap();
        let area = |area: &Value| {
            let addr = |key: &str| area[key].as_u64().unwrap();
            (area["name"].as_str().unwrap().into(), AddrRange::new(addr("start"), addr("end")).unwrap())
        };
        let areas = announced["areas"].as_array().unwrap().iter().map(area).collect();
        Self { process, areas, _switches: Switches::begin() }
    }

    /// The addresses of an area.
    pub fn area(&self, name: &str) -> AddrRange {
        let found = self.areas.iter().find(|(known, _)| known == name);
        found.unwrap_or_else(|| panic!("there is no area {name} in {:?}", self.areas)).1
    }
}

/// The argument of `isotherm workload` for a pattern: its name, or a file with its text.
pub fn pattern_file(pattern: &str) -> String {
    if !pattern.contains('\n') {
        return pattern.into();
    }
    let path = std::env::temp_dir().join(format!("pattern-{}.toml", std::process::id()));
    std::fs::write(&path, pattern).unwrap();
    path.to_str().unwrap().into()
}

/// Precision and recall of the area `hot` in these lines of `report regions`, 0 to 1 each. A region counts as
/// hot if it was accessed in at least half of the samples.
pub fn precision_and_recall(snapshots: &[Value], hot: AddrRange) -> (f64, f64) {
    let (mut found, mut right) = (0, 0);
    for region in snapshots.iter().flat_map(|snapshot| snapshot["regions"].as_array().unwrap()) {
        if region["access_rate"].as_f64().unwrap() >= 0.5 {
            let range = AddrRange::new(region["start"].as_u64().unwrap(), region["end"].as_u64().unwrap()).unwrap();
            found += range.size();
            right += range.intersection(hot).map_or(0, AddrRange::size);
        }
    }
    let truth = hot.size() * snapshots.len() as u64;
    (right as f64 / (found as f64).max(1.0), right as f64 / (truth as f64).max(1.0))
}
