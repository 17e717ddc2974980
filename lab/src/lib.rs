//! What the laboratory's tests have in common: isotherm as it is inside, and workloads whose truth is known.
//!
//! The tests (`lab/tests/*.rs`) run as root inside a virtual machine that is theirs alone, one after the other; `lab/test`
//! says which of them run on which kernel. Whatever fails, panics: these are helpers of tests.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

pub mod idle;
mod switches;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use isotherm_core::AddrRange;
use serde_json::Value;

use switches::Switches;

/// 48 MiB cold, 16 MiB hot (each page is touched every 2 ms), 64 MiB cold, for as long as it is let: areas `cold below`, `hot` and
/// `cold above`.
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

/// `isotherm` with these arguments, without input.
pub fn isotherm(arguments: &[&str]) -> Command {
    let mut command = Command::new("isotherm");
    command.args(arguments).stdin(Stdio::null());
    command
}

/// What became of a call.
#[derive(Debug)]
pub struct Ran {
    /// The exit status, or -1 if a signal ended it.
    pub status: i32,
    /// The standard output.
    pub out: String,
    /// The standard error.
    pub err: String,
}

/// Runs a command to its end, whatever that is.
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

/// Where a recording of this name goes: into the results, so that it can be looked at from outside afterwards.
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

/// Waits until something holds, half a minute at most.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(30), "it never came to hold: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A process that ends with the test, and what it says.
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

    /// Its process number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line that holds `part`; the lines before it are passed over.
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

    /// Waits for its end; its exit status, or -1 if a signal ended it.
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

/// `isotherm workload` and where its areas lie.
pub struct Workload {
    /// The process that touches them: the workload, or isotherm that started it.
    pub process: Running,
    areas: Vec<(String, AddrRange)>,
    _switches: Switches,
}

impl Workload {
    /// Starts a pattern: a built-in one's name, or the text of one (such as [`HOT_IN_COLD`]).
    pub fn start(pattern: &str) -> Self {
        let pattern = pattern_file(pattern);
        Self::announced(&mut isotherm(&["workload", &pattern, "--announce"]))
    }

    /// Starts a command that runs `isotherm workload ... --announce` and passes its output through.
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

    /// Where an area lies.
    pub fn area(&self, name: &str) -> AddrRange {
        let found = self.areas.iter().find(|(known, _)| known == name);
        found.unwrap_or_else(|| panic!("there is no area {name} in {:?}", self.areas)).1
    }
}

/// What `isotherm workload` takes for a pattern: its name, or the file that its text was written to.
pub fn pattern_file(pattern: &str) -> String {
    if !pattern.contains('\n') {
        return pattern.into();
    }
    let path = std::env::temp_dir().join(format!("pattern-{}.toml", std::process::id()));
    std::fs::write(&path, pattern).unwrap();
    path.to_str().unwrap().into()
}

/// How well an area that is truly hot was found: of the bytes that these lines of `report regions` call hot (accessed in at least
/// half of the samples), the share that is truly so, and of the truly hot bytes, the share that was found; 0 to 1 each.
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
