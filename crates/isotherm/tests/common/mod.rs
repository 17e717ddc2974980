//! Helpers of the command-line tests: they run isotherm as users do.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub const ISOTHERM: &str = env!("CARGO_BIN_EXE_isotherm");

/// A pattern with a hot area between two cold ones.
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

/// A temporary directory in which isotherm runs.
pub struct Place {
    pub dir: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        // `run_as_nobody` runs isotherm in this directory as another user.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(dir.path(), open).unwrap();
        Self { dir }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The command `isotherm` with these arguments, in this directory.
    pub fn isotherm(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(ISOTHERM);
        command.args(arguments).current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Ran {
        Ran::new(self.isotherm(arguments).output().unwrap())
    }

    /// Runs isotherm as an ordinary user. An error is the reason to skip the test.
    pub fn run_as_nobody(&self, arguments: &[&str]) -> Result<Ran, &'static str> {
        if !is_root() {
            return Ok(self.run(arguments));
        }
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", ISOTHERM]).args(arguments);
        command.current_dir(self.dir.path()).stdin(Stdio::null());
        // The directory of the checkout may be closed to other users.
        let reachable = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", ISOTHERM, "--version"])
            .output()
            .is_ok_and(|output| output.status.success());
        if !reachable {
            return Err("an ordinary user cannot run the binary");
        }
        Ok(Ran::new(command.output().unwrap()))
    }

    /// The output of `report regions` for the recording: one value per line.
    pub fn regions(&self, recording: &str) -> Vec<serde_json::Value> {
        let ran = self.run(&["report", "regions", recording, "--format", "json"]);
        assert_eq!(ran.status, 0, "{}", ran.err);
        ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// The result of a call.
#[derive(Debug)]
pub struct Ran {
    pub status: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    fn new(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { status: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }
}

/// A process that is killed at the end of the test.
pub struct Kept(pub Child);

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether the probe bpf works here. An error is the reason to skip the test.
pub fn bpf_works() -> Result<(), String> {
    isotherm_probes::bpf::BpfProbe::check().map_err(|error| isotherm_core::chain(&error))
}

/// Waits until `holds` returns true. Fails after 30 seconds.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(30), "timed out waiting until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, signal).unwrap();
}
