//! A target that reserves terabytes of address space, of which it uses little. What it costs is measured here alone,
//! since memory is measured as the most that any child took.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

#[path = "cli/common/mod.rs"]
mod common;

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use common::{ISOTHERM, Kept, Place, bpf_works};
use isotherm_testing::installed_or_skip;
use nix::sys::resource::{UsageWho, getrusage};

const MIB: u64 = 1 << 20;

/// Reserves 40 TiB that may not be accessed and 20 TiB of which every page may be, and uses 4 MiB of the latter.
const RESERVE: &str = "
import ctypes, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
NONE, READ_WRITE, FLAGS = 0, 3, 0x4022  # MAP_NORESERVE, MAP_ANONYMOUS, MAP_PRIVATE
assert libc.mmap(None, 40 << 40, NONE, FLAGS, -1, 0) != ctypes.c_void_p(-1).value
memory = libc.mmap(None, 20 << 40, READ_WRITE, FLAGS, -1, 0)
assert memory != ctypes.c_void_p(-1).value
used = memory + (10 << 40)
ctypes.memset(used, 1, 4 << 20)
print('ready', flush=True)
while True:
    ctypes.memset(used, 1, 4 << 20)
    time.sleep(0.005)
";

/// A process that reserves. It has printed a line: it is ready. An error is the reason to skip the test.
fn target() -> Result<Kept, String> {
    let mut command = Command::new("python3");
    command.args(["-c", RESERVE]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map(Kept).map_err(|error| format!("python3 cannot be run: {error}"))?;
    let mut line = String::new();
    BufReader::new(child.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    if line == "ready\n" { Ok(child) } else { Err("address space cannot be reserved here".into()) }
}

/// Runs isotherm, which may take a minute of a CPU and 192 MiB of memory.
#[track_caller]
fn run(place: &Place, call: &str) {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -t 60 && exec \"$@\"", "sh", ISOTHERM]).args(call.split(' '));
    let output = command.current_dir(place.dir.path()).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), None, "{call} took a minute of a CPU, or was killed: {said}");
    assert_eq!(output.status.code(), Some(0), "{call}: {said}");
    let peak = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap().max_rss() as u64 * 1024;
    assert!(peak < 192 * MIB, "{call}: {} MiB", peak / MIB);
}

#[test]
fn address_space_that_is_only_reserved_costs_next_to_nothing() {
    let place = Place::new();
    let target = installed_or_skip!(target());
    let pid = target.0.id();
    std::fs::write(place.path("all.yaml"), "- {name: all, action: stat, apply_interval: 100ms}\n").unwrap();
    let mut calls = vec![format!("record -q --probe refs --aggr 100ms --sample 10ms -d 3s -o a.rec -p {pid}")];
    if bpf_works().is_ok() {
        calls.push(format!("record -q --probe bpf -d 3s -o a.rec -p {pid}"));
        calls.push(format!("run -q -s all.yaml --probe bpf -d 3s --record a.rec -p {pid}"));
    }
    for call in calls {
        run(&place, &call);
        let bytes = std::fs::metadata(place.path("a.rec")).unwrap().len();
        assert!(bytes < MIB, "{call}: a recording of {bytes} bytes");
        run(&place, "scheme try all.yaml a.rec");
        run(&place, "report summary a.rec -f json");
        run(&place, "report heatmap a.rec -f text");
    }
}
