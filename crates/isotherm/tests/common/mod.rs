//! Runs isotherm as its users do.
#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub const ISOTHERM: &str = env!("CARGO_BIN_EXE_isotherm");

/// A pattern of one hot area in a cold one, as a file.
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

/// A directory of this test's own, and isotherm in it.
pub struct Place {
    pub dir: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        // An ordinary user works here, too.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(dir.path(), open).unwrap();
        Self { dir }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `isotherm` with these arguments, in this place.
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
        // A checkout that nobody may read is no place to start a program from.
        let reachable = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", ISOTHERM, "--version"])
            .output()
            .is_ok_and(|output| output.status.success());
        if !reachable {
            return Err("an ordinary user cannot run the binary");
        }
        Ok(Ran::new(command.output().unwrap()))
    }

    /// Everything that `report regions` says of the recording.
    pub fn regions(&self, recording: &str) -> Vec<serde_json::Value> {
        let ran = self.run(&["report", "regions", recording, "--format", "json"]);
        assert_eq!(ran.status, 0, "{}", ran.err);
        ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// What became of a call.
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

/// A process that ends with the test.
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
    isotherm_probes::bpf::BpfProbe::check().map_err(|e| e.to_string())
}

/// Waits until this holds; fails after 30 seconds.
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
