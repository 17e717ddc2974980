//! Helpers of the command-line tests: they run isotherm as users do.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use isotherm_record::Recording;

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
        // Whoever runs the tests by sudo does not change what they test.
        command.env_remove("SUDO_UID");
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Ran {
        Ran::new(self.isotherm(arguments).output().unwrap())
    }

    /// Runs isotherm as an ordinary user. An error is the reason to skip the test.
    pub fn run_as_nobody(&self, arguments: &[&str]) -> Result<Ran, &'static str> {
        Ok(Ran::new(self.as_nobody(arguments)?.output().unwrap()))
    }

    /// The command `isotherm` with these arguments, in this directory, as an ordinary user. An error is the reason to
    /// skip the test.
    pub fn as_nobody(&self, arguments: &[&str]) -> Result<Command, &'static str> {
        if !is_root() {
            return Ok(self.isotherm(arguments));
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
        Ok(command)
    }

    /// Makes a recording of the process 4711 with one snapshot: 1 MiB that was accessed in every sample, and 2 MiB that
    /// were accessed in half of the samples.
    pub fn make_recording(&self, name: &str) {
        self.make_recording_of(1, name);
    }

    /// The same with this many snapshots, which are a minute apart.
    pub fn make_recording_of(&self, snapshots: u64, name: &str) {
        let region = |start: u64, bytes: u64, accesses: u32| {
            let (end, counts) = (start + bytes, format!(r#"{{"samples": {accesses}}}"#));
            format!(r#"{{"start": {start}, "end": {end}, "nr_accesses": {counts}, "age": {{"aggr_intervals": 3}}}}"#)
        };
        let regions = [region(0x5500_0000_0000, 1 << 20, 20), region(0x7ffd_0000_0000, 2 << 20, 10)].join(", ");
        let snapshot = |nth: u64| {
            let (start, end) = (nth * 60_000_000_000 + 100_000_000, nth * 60_000_000_000 + 200_000_000);
            format!(r#"{{"start_time": {start}, "end_time": {end}, "regions": [{regions}]}}"#)
        };
        let snapshots = (0..snapshots).map(snapshot).collect::<Vec<_>>().join(", ");
        let intervals = r#"{"sample_us": 5000, "aggr_us": 100000, "ops_update_us": 1000000}"#;
        let recording = format!(r#"[{{"target_id": 0, "intervals": {intervals}, "snapshots": [{snapshots}]}}]"#);
        std::fs::write(self.path("known.damo"), recording).unwrap();
        let ran = self.run(&["convert", "known.damo", name, "-q", "--pid", "4711"]);
        assert_eq!(ran.status, 0, "{ran:?}");
    }

    /// Makes the recording `known.rec`, and the same of the process 4712 as `other.rec`.
    pub fn make_two_recordings(&self) {
        self.make_recording("known.rec");
        let ran = self.run(&["convert", "known.damo", "other.rec", "-q", "--pid", "4712"]);
        assert_eq!(ran.status, 0, "{ran:?}");
    }

    /// The names of all files in this directory, sorted.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// All calls that do something else: the commands without subcommands, such as `scheme try`, and each kind of
    /// `report`. The commands are those that have a manual page.
    pub fn commands(&self) -> Vec<String> {
        let pages = tempfile::tempdir().unwrap();
        assert_eq!(self.run(&["man", &pages.path().to_string_lossy()]).status, 0);
        let entries = std::fs::read_dir(&pages).unwrap().map(|entry| entry.unwrap().file_name());
        let name = |page: std::ffi::OsString| {
            Some(page.to_str().unwrap().strip_suffix(".1")?.strip_prefix("isotherm-")?.replacen('-', " ", 1))
        };
        let names: Vec<String> = entries.filter_map(name).collect();
        let is_whole = |name: &&String| !names.iter().any(|other| other.starts_with(&format!("{name} ")));
        let commands: Vec<String> = names.iter().filter(is_whole).cloned().collect();
        assert!(commands.len() > 25 && commands.contains(&"report wss".to_owned()), "{commands:?}");
        commands
    }

    /// Makes the device `full` in this directory, which is as /dev/full. An error is the reason to skip the test.
    pub fn full_device(&self) -> Result<PathBuf, String> {
        use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
        let path = self.path("full");
        let made = mknodat(CWD, &path, FileType::CharacterDevice, Mode::RUSR | Mode::WUSR, makedev(1, 7));
        made.map(|()| path).map_err(|error| format!("a device cannot be made: {error}"))
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
    pub fn new(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { status: output.status.code().unwrap_or(-1), out: text(&output.stdout), err: text(&output.stderr) }
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
pub fn eventually(what: &str, holds: impl FnMut() -> bool) {
    wait_until(Duration::from_millis(20), Duration::from_secs(30), what, holds);
}

/// Looks `each` so often whether `holds` returns true. Fails after `most`.
fn wait_until(each: Duration, most: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < most, "timed out waiting until {what}");
        std::thread::sleep(each);
    }
}

/// Runs `isotherm record` with these arguments and `-o a.rec` until what is recorded `holds`. Fails after 5 minutes.
pub fn record_until(place: &Place, args: &[&str], what: &str, holds: impl Fn(&Recording) -> bool) -> Recording {
    record_by(place.isotherm(&[&["record", "-o", "a.rec"], args].concat()), &place.path("a.rec"), what, holds)
}

/// Runs a command that records to `path` until what is recorded `holds`. Fails after 5 minutes.
pub fn record_by(mut command: Command, path: &Path, what: &str, holds: impl Fn(&Recording) -> bool) -> Recording {
    let mut recorder = Kept(command.spawn().unwrap());
    wait_until(Duration::from_millis(200), Duration::from_secs(300), what, || {
        assert!(recorder.0.try_wait().unwrap().is_none(), "the recorder goes on until {what}");
        Recording::open(path).is_ok_and(|recording| holds(&recording))
    });
    signal(&recorder.0, rustix::process::Signal::INT);
    assert!(recorder.0.wait().unwrap().success());
    Recording::open(path).unwrap()
}

pub fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Whether transparent huge pages are set as `orig` of `isotherm eval` needs it.
pub fn has_baseline() -> bool {
    std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").is_ok_and(|text| !text.contains("[always]"))
}

/// What a Python program does for ever: it touches `memory`.
const TOUCH: &str = "
def touch():
    while True:
        for at in range(0, len(memory), 4096): memory[at] = 1
        time.sleep(0.005)
";

/// A Python program as a target. It has printed a line: it is ready. An error is the reason to skip the test.
pub fn python(script: &str, change: impl FnOnce(&mut Command)) -> Result<Kept, String> {
    let mut command = Command::new("python3");
    command.args(["-c", &format!("import ctypes, mmap, os, sys, threading, time\n{TOUCH}\n{script}")]);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    change(&mut command);
    let mut child = command.spawn().map(Kept).map_err(|error| format!("python3 cannot be run: {error}"))?;
    let mut line = String::new();
    BufReader::new(child.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    Ok(child)
}

/// A [`python`] program whose main thread has ended. Another one goes on.
pub const LEADERLESS: &str = "
memory = mmap.mmap(-1, 32 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
def work():
    while open(f'/proc/{os.getpid()}/stat').read().split(') ')[1][0] != 'Z': time.sleep(0.005)
    print('ready', flush=True)
    touch()
threading.Thread(target=work).start()
# The system call exit ends this thread only, as pthread_exit does.
ctypes.CDLL(None).syscall(60, 0)";

/// A [`python`] program with names that are no text: that of the process, and that of a file that it maps and makes in
/// its working directory.
pub const ODD_NAMES: &str = "
ctypes.CDLL(None).prctl(15, b'c\\xff\\xfe\\x1b[31m', 0, 0, 0)
file = os.open(b'map\\xff\\xfe\\x1b[31m\\nx \\\\x41 ', os.O_RDWR | os.O_CREAT)
os.ftruncate(file, 1 << 20)
memory = mmap.mmap(file, 1 << 20)
print('ready', flush=True)
touch()";
