//! Targets that are odd: names that are no text, a main thread that has ended, targets that cannot be read for a while
//! or at all.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use isotherm_core::bytes_of;
use isotherm_record::Recording;
use isotherm_testing::{installed_or_skip, or_skip};
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};

use crate::common::{self, Kept, LEADERLESS, ODD_NAMES, Place, bpf_works, eventually, is_root, python, signal};

/// Starts isotherm with its messages in the file `err`.
fn start(place: &Place, arguments: &[&str]) -> Kept {
    let err = std::fs::File::create(place.path("err")).unwrap();
    Kept(place.isotherm(arguments).stdout(Stdio::null()).stderr(err).spawn().unwrap())
}

fn messages(place: &Place) -> String {
    std::fs::read_to_string(place.path("err")).unwrap()
}

fn probes() -> Vec<&'static str> {
    let bpf = bpf_works();
    if let Err(reason) = &bpf {
        isotherm_testing::skip(reason);
    }
    bpf.map_or(vec!["refs"], |()| vec!["refs", "bpf"])
}

#[test]
fn names_that_are_no_text_are_kept_without_loss_and_escaped_in_output() {
    let place = Place::new();
    let argument = std::ffi::OsStr::from_bytes(b"a\xff\x1b]0;x\x07");
    let in_place = |command: &mut Command| _ = command.current_dir(place.dir.path()).arg(argument);
    let target = installed_or_skip!(python(ODD_NAMES, in_place));
    let pid = target.0.id().to_string();
    // The kernel writes a line feed as an octal number.
    let expected = [place.dir.path().as_os_str().as_encoded_bytes(), b"/map\xff\xfe\x1b[31m\\012x \\x41 "].concat();
    for probe in probes() {
        let file = format!("{probe}.rec");
        let ran = place.run(&["record", "--probe", probe, "-p", &pid, "-d", "1500ms", "-o", &file]);
        assert!(ran.status == 0 && !ran.err.contains('\x1b'), "{}", ran.err);
        let recording = Recording::open(&place.path(&file)).unwrap();
        let record = recording.snapshots().next().unwrap().unwrap();
        let names = record.snapshot.targets[0].mappings.iter().map(|mapping| bytes_of(&mapping.name).into_owned());
        assert!(names.collect::<Vec<_>>().contains(&expected), "{:?}", record.snapshot.targets[0].mappings);
        let command = bytes_of(&record.infos[0].1.command).into_owned();
        assert!(command.ends_with(b"touch() a\xff\x1b]0;x\x07"), "{:?}", record.infos);
        for report in ["summary", "regions", "wss", "heatmap"] {
            let ran = place.run(&["report", report, &file]);
            assert!(ran.status == 0 && !ran.out.contains(['\x1b', '\x07']), "{report}: {}", ran.out);
        }
        let ran = place.run(&["report", "regions", &file, "--format", "json"]);
        assert!(ran.out.contains(r"map\\xff\\xfe\u001b[31m\\012x \\x5cx41 "), "{}", ran.out);
        for output in ["h.html", "h.svg", "h.png"] {
            let ran = place.run(&["report", "heatmap", &file, "-o", output]);
            assert_eq!(ran.status, 0, "{output}: {}", ran.err);
            let text = output != "h.png";
            assert!(!text || !std::fs::read(place.path(output)).unwrap().contains(&0x1b), "{output}");
        }
        for output in ["c.damo", "c.csv", "c.parquet"] {
            let ran = place.run(&["convert", &file, output]);
            assert_eq!(ran.status, 0, "{output}: {}", ran.err);
        }
    }
    watch_otherwise(&place, &pid);
}

/// The calls of other commands that watch the process `PID` for a while.
fn other_calls(place: &Place) -> Vec<&'static str> {
    std::fs::write(place.path("all.yaml"), "- {name: all, action: stat}\n").unwrap();
    let mut calls = vec![
        "tune -q --probe refs --sample 20ms --aggr 100ms -d 1s -f text -p PID",
        "run -s all.yaml --probe refs -d 3s -p PID",
    ];
    if bpf_works().is_ok() {
        calls.extend([
            "tune -q --probe bpf -d 1s -f text -p PID",
            "run -s all.yaml --probe bpf -d 3s -p PID",
            "idle --probe bpf -i 200ms -n 1 -p PID",
        ]);
    }
    calls
}

/// The other commands that watch a process: each succeeds, and prints no control characters.
#[track_caller]
fn watch_otherwise(place: &Place, pid: &str) {
    for call in other_calls(place) {
        let ran = place.run(&call.replace("PID", pid).split(' ').collect::<Vec<_>>());
        let said = ran.out + &ran.err;
        assert!(ran.status == 0 && !said.contains(['\x1b', '\x07']), "{call}: {} {said}", ran.status);
    }
}

#[test]
fn a_process_whose_main_thread_has_ended_is_watched_until_it_ends() {
    for probe in probes() {
        let place = Place::new();
        let target = installed_or_skip!(python(LEADERLESS, |_| {}));
        let pid = target.0.id().to_string();
        let mut recorder = start(&place, &["record", "--probe", probe, "-p", &pid, "-o", "a.rec"]);
        eventually("there are snapshots", || {
            assert!(recorder.0.try_wait().unwrap().is_none(), "{}", messages(&place));
            Recording::open(&place.path("a.rec")).is_ok_and(|a| a.snapshots().count() > 2)
        });
        drop(target);
        assert!(recorder.0.wait().unwrap().success(), "{}", messages(&place));
        let recording = Recording::open(&place.path("a.rec")).unwrap();
        let record = recording.snapshots().next().unwrap().unwrap();
        assert!(record.infos[0].1.command.contains("python3 -c import"), "{:?}", record.infos);
    }
}

#[test]
fn each_command_watches_a_process_whose_main_thread_has_ended() {
    let place = Place::new();
    let target = installed_or_skip!(python(LEADERLESS, |_| {}));
    let pid = target.0.id().to_string();
    for call in other_calls(&place) {
        let said = ends(&place, &call.replace("PID", &pid));
        // The process has at least as much memory, and each of them tells it.
        assert!(sizes(&said).any(|mib| mib >= 32.0), "{call}: {said}");
        let widest = said.lines().map(|line| line.chars().count()).max();
        assert!(widest.is_some_and(|widest| widest <= 110), "{call}: {said}");
    }
}

/// The sizes in MiB in a text.
fn sizes(text: &str) -> impl Iterator<Item = f64> {
    let words = || text.split_ascii_whitespace();
    let is_unit = |unit: &str| unit.trim_end_matches([';', ',']) == "MiB";
    words().zip(words().skip(1)).filter(move |(_, unit)| is_unit(unit)).filter_map(|(number, _)| number.parse().ok())
}

/// What a call prints that succeeds within 30 s.
#[track_caller]
fn ends(place: &Place, call: &str) -> String {
    let output = || std::fs::File::create(place.path("out")).unwrap();
    let out = output();
    let err = out.try_clone().unwrap();
    let mut command = place.isotherm(&call.split(' ').collect::<Vec<_>>());
    let mut child = Kept(command.stdout(out).stderr(err).spawn().unwrap());
    let mut status = None;
    eventually(&format!("{call} ends"), || {
        status = child.0.try_wait().unwrap();
        status.is_some()
    });
    let said = std::fs::read_to_string(place.path("out")).unwrap();
    assert!(status.unwrap().success(), "{call}: {said}");
    said
}

#[test]
fn the_end_of_a_process_whose_main_thread_ended_before_ends_each_command() {
    let place = Place::new();
    for call in other_calls(&place) {
        // Without an end of its own, and with a file that is there once something was found.
        let file = if call.starts_with("idle") { " -o found" } else { " -r found" };
        let call = call.replace(" -d 1s", "").replace(" -d 3s", "").replace(" -n 1", "") + file;
        let _ = std::fs::remove_file(place.path("found"));
        let mut target = installed_or_skip!(python(LEADERLESS, |_| {}));
        let call = call.replace("PID", &target.0.id().to_string());
        let mut child = start(&place, &call.split(' ').collect::<Vec<_>>());
        eventually("it watches", || {
            assert!(child.0.try_wait().unwrap().is_none(), "{call}: {}", messages(&place));
            place.path("found").exists()
        });
        target.0.kill().unwrap();
        target.0.wait().unwrap();
        eventually(&format!("{call} ends"), || child.0.try_wait().unwrap().is_some());
        assert!(child.0.wait().unwrap().success(), "{call}: {}", messages(&place));
    }
}

/// Starts a recorder, and takes all further open files from it once it has snapshots.
fn without_files(place: &Place, probe: &str, pid: &str) -> Kept {
    let recorder = start(place, &["record", "--probe", probe, "-p", pid, "-o", "a.rec", "--survey", "off"]);
    eventually("there is a snapshot", || {
        Recording::open(&place.path("a.rec")).is_ok_and(|a| a.snapshots().count() > 0)
    });
    limit(&recorder.0, 3);
    recorder
}

fn limit(child: &Child, files: u64) {
    let limit = Rlimit { current: Some(files), maximum: Some(4096) };
    prlimit(Some(Pid::from_child(child)), Resource::Nofile, limit).unwrap();
}

#[test]
fn a_target_that_cannot_be_read_for_a_while_is_told_and_read_again() {
    let script = "
memory = mmap.mmap(-1, 8 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
print('ready', flush=True)
touch()";
    for probe in probes() {
        let place = Place::new();
        let target = installed_or_skip!(python(script, |_| {}));
        let mut recorder = without_files(&place, probe, &target.0.id().to_string());
        eventually("it is told", || {
            assert!(recorder.0.try_wait().unwrap().is_none(), "{}", messages(&place));
            messages(&place).contains("Too many open files")
        });
        let told = messages(&place);
        assert!(told.contains("tries again") && told.contains("ulimit -n"), "{told}");
        limit(&recorder.0, 1024);
        let count = || Recording::open(&place.path("a.rec")).unwrap().snapshots().count();
        let before = count();
        eventually("it goes on", || count() > before + 2);
        drop(target);
        assert!(recorder.0.wait().unwrap().success(), "the target's end ended it: {}", messages(&place));
        assert_eq!(messages(&place).matches("Too many open files").count(), 1, "{}", messages(&place));
    }
}

/// At a signal, it becomes a process that is not dumpable, which root alone can read.
const CLOSES: &str = "
memory = mmap.mmap(-1, 8 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
def close(*_): ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
import signal
signal.signal(signal.SIGUSR1, close)
print('ready', flush=True)
touch()";

/// Lets an ordinary user run a command, if this one is root.
fn as_nobody(command: &mut Command) {
    if is_root() {
        command.uid(65534).gid(65534);
    }
}

/// Starts a recorder of an ordinary user, and waits until there is a recording. An error is the reason to skip the
/// test.
fn record_as_nobody(place: &Place, pids: &[&str]) -> std::io::Result<Kept> {
    // The build directory may be closed to other users.
    let program = place.path("isotherm");
    std::fs::copy(common::ISOTHERM, &program).unwrap();
    let err = std::fs::File::create(place.path("err")).unwrap();
    let mut command = Command::new(&program);
    command.args(["record", "--probe", "refs", "-o", "a.rec"]).args(pids.iter().flat_map(|pid| ["-p", pid]));
    as_nobody(command.current_dir(place.dir.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(err));
    let mut recorder = Kept(command.spawn()?);
    eventually("there is a snapshot", || {
        assert!(recorder.0.try_wait().unwrap().is_none(), "{}", messages(place));
        place.path("a.rec").exists()
    });
    Ok(recorder)
}

#[test]
fn a_target_that_cannot_be_read_any_longer_takes_no_other_target_with_it() {
    let place = Place::new();
    let start = || python(CLOSES, |command| as_nobody(command.current_dir("/")));
    let (closing, healthy) = (installed_or_skip!(start()), installed_or_skip!(start()));
    let (closing_pid, healthy_pid) = (closing.0.id(), healthy.0.id());
    let mut recorder = or_skip!(record_as_nobody(&place, &[&closing_pid.to_string(), &healthy_pid.to_string()]));
    signal(&closing.0, Signal::USR1);
    eventually("its loss is told", || {
        assert!(recorder.0.try_wait().unwrap().is_none(), "{}", messages(&place));
        messages(&place).contains("no longer watched")
    });
    // Each snapshot has the processes that are in it.
    let watched = || {
        let recording = Recording::open(&place.path("a.rec")).unwrap();
        let pids = |record: isotherm_record::SnapshotRecord| {
            let pids = record.snapshot.targets.iter().filter_map(|target| target.id.pid());
            pids.collect::<Vec<u32>>()
        };
        recording.snapshots().map(|record| pids(record.unwrap())).collect::<Vec<_>>()
    };
    let count = watched().len();
    eventually("the other one is watched", || watched().len() > count + 2);
    let last = watched().pop().unwrap();
    assert_eq!(last, [healthy_pid], "{}", messages(&place));
    signal(&recorder.0, Signal::TERM);
    assert!(recorder.0.wait().unwrap().success(), "{}", messages(&place));
    assert_eq!(place.run(&["check", "a.rec"]).status, 0);
}

#[test]
fn a_run_that_ends_for_another_reason_than_the_end_of_its_target_fails_and_says_why() {
    let place = Place::new();
    let target = installed_or_skip!(python(CLOSES, |command| as_nobody(command.current_dir("/"))));
    let pid = target.0.id().to_string();
    let mut recorder = or_skip!(record_as_nobody(&place, &[&pid]));
    signal(&target.0, Signal::USR1);
    assert_eq!(recorder.0.wait().unwrap().code(), Some(1), "{}", messages(&place));
    let told = messages(&place);
    assert!(told.contains(&format!("process {pid} (python3")) && told.contains("no longer watched"), "{told}");
    assert!(told.contains("Permission denied"), "{told}");
    assert!(Path::new(&format!("/proc/{pid}")).exists(), "the target goes on");
    assert!(Recording::open(&place.path("a.rec")).is_ok());
}
