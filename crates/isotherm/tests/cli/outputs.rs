//! The files that the commands write. The rules for all outputs are tested in `isotherm-output`; here each command is
//! held to them. Devices and pipes are made in a temporary directory.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, lchown, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use isotherm_record::{Ending, Recording};
use isotherm_testing::or_skip;
use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::process::Signal;

use crate::common::{Kept, Place, Ran, bpf_works, eventually, signal};

/// A recording by the probe refs, which needs no privileges, of a snapshot every 200 ms.
const RECORD: [&str; 8] = ["record", "-q", "--probe", "refs", "--sample", "50ms", "--aggr", "200ms"];

const SCHEME: &str = "- {name: all, action: stat}\n";

/// Another user than root.
const NOBODY: u32 = 65534;

fn recorded(place: &Place, arguments: &[&str]) -> Ran {
    place.run(&[&RECORD[..], arguments].concat())
}

/// A recorder of `sleep`, once its recording has its name.
fn start_recorder(place: &Place, name: &str) -> Kept {
    let arguments = [&RECORD[..], &["-o", name, "--", "sleep", "1000"]].concat();
    let recorder = Kept(place.isotherm(&arguments).stderr(Stdio::null()).spawn().unwrap());
    eventually("there is a recording", || place.path(name).exists());
    recorder
}

/// Ends a recorder and its command properly.
fn end(mut recorder: Kept) {
    signal(&recorder.0, Signal::TERM);
    assert_eq!(recorder.0.wait().unwrap().code(), Some(128 + Signal::TERM.as_raw()));
}

/// Calls that write the file OUT. The process PID is any that can be watched. Makes the files that they read.
fn calls(place: &Place) -> Vec<Vec<&'static str>> {
    place.make_recording("known.rec");
    fs::write(place.path("all.yaml"), SCHEME).unwrap();
    let sleep = &["--", "sleep", "1"];
    let tune = ["tune", "-q", "--probe", "refs", "--sample", "50ms", "--aggr", "200ms", "-f", "text"];
    let mut calls = vec![
        vec!["report", "heatmap", "known.rec", "-f", "svg", "-o", "OUT"],
        vec!["report", "heatmap", "known.rec", "-f", "png", "-o", "OUT"],
        vec!["report", "summary", "known.rec", "-f", "text", "-o", "OUT"],
        vec!["report", "html", "known.rec", "-f", "html", "-o", "OUT"],
        vec!["tier", "try", "known.rec", "-f", "text", "-o", "OUT"],
        [&RECORD[..], &["-o", "OUT"], sleep].concat(),
        [&tune[..], &["-o", "OUT"], sleep].concat(),
        [&tune[..], &["--record", "OUT"], sleep].concat(),
    ];
    if bpf_works().is_ok() {
        calls.push(vec!["run", "-q", "-s", "all.yaml", "--probe", "bpf", "--record", "OUT", "--", "sleep", "1"]);
        let idle = ["idle", "-q", "--probe", "bpf", "--pid", "PID", "-i", "200ms", "-n", "1", "-f", "json"];
        calls.push([&idle[..], &["-o", "OUT"]].concat());
    }
    calls
}

/// Runs a call with this output.
fn run(place: &Place, call: &[&str], output: &str) -> Ran {
    let pid = std::process::id().to_string();
    let words = call.iter().map(|word| match *word {
        "OUT" => output,
        "PID" => &pid,
        word => word,
    });
    place.run(&words.collect::<Vec<_>>())
}

#[test]
fn each_command_writes_a_file_for_its_owner_and_leaves_nothing_else() {
    let place = Place::new();
    let calls = calls(&place);
    let kept = ["record", "run"];
    for call in &calls {
        let before = place.names();
        fs::write(place.path("out"), "what was there").unwrap();
        fs::set_permissions(place.path("out"), PermissionsExt::from_mode(0o666)).unwrap();
        let ran = run(&place, call, "out");
        assert_eq!(ran.status, 0, "{call:?}: {ran:?}");
        let found = fs::metadata(place.path("out")).unwrap();
        assert_eq!(found.permissions().mode() & 0o777, 0o600, "{call:?}");
        assert_ne!(fs::read(place.path("out")).unwrap(), b"what was there", "{call:?}");
        // What a recording replaces is kept.
        if kept.contains(&call[0]) || call.contains(&"--record") {
            assert_eq!(fs::read(place.path("out.old")).unwrap(), b"what was there", "{call:?}");
            fs::remove_file(place.path("out.old")).unwrap();
        }
        fs::remove_file(place.path("out")).unwrap();
        assert_eq!(place.names(), before, "{call:?}");
    }
    for name in ["a.csv", "a.json", "a.parquet", "a.rec", "a.damo"] {
        assert_eq!(place.run(&["convert", "known.rec", name]).status, 0, "{name}");
        assert_eq!(fs::metadata(place.path(name)).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
    }
    assert_eq!(place.run(&["man", "pages"]).status, 0);
    let page = fs::metadata(place.path("pages/isotherm.1")).unwrap();
    assert_eq!(page.permissions().mode() & 0o777, 0o644, "manual pages are for everybody");
}

#[test]
fn each_command_writes_to_a_device_and_to_a_pipe_and_replaces_neither() {
    let place = Place::new();
    let calls = calls(&place);
    let full = place.full_device();
    mkfifoat(CWD, place.path("pipe"), Mode::RUSR | Mode::WUSR).unwrap();
    // tune reads its recording, so that it needs a file.
    for call in calls.iter().filter(|call| call[0] != "tune" || !call.contains(&"--record")) {
        let path = place.path("pipe");
        let reader = std::thread::spawn(move || fs::read(path).unwrap());
        let ran = run(&place, call, "pipe");
        assert_eq!(ran.status, 0, "{call:?}: {ran:?}");
        assert!(!reader.join().unwrap().is_empty(), "{call:?}");
        assert!(fs::symlink_metadata(place.path("pipe")).unwrap().file_type().is_fifo(), "{call:?}");
        if let Ok(full) = &full {
            let ran = run(&place, call, "full");
            assert_eq!(ran.status, 1, "{call:?}: {ran:?}");
            assert!(ran.err.contains("full") && ran.err.contains("No space left"), "{call:?}: {ran:?}");
            assert!(fs::symlink_metadata(full).unwrap().file_type().is_char_device(), "{call:?}");
        }
        assert!(!place.names().iter().any(|name| name.contains("isotherm-")), "{call:?}: {:?}", place.names());
    }
    let ran = place.run(&["tune", "--record", "pipe", "--", "sleep", "1"]);
    assert!(ran.status == 2 && ran.err.contains("pipe is not a file"), "{ran:?}");
    or_skip!(full);
}

#[test]
fn no_command_writes_through_a_link_of_another_user() {
    let place = Place::new();
    let calls = calls(&place);
    fs::write(place.path("precious"), "precious").unwrap();
    symlink("precious", place.path("link")).unwrap();
    let given = lchown(place.path("link"), Some(NOBODY), None);
    or_skip!(given.map_err(|error| format!("a link cannot be given away: {error}")));
    for call in &calls {
        let ran = run(&place, call, "link");
        assert_eq!(ran.status, 1, "{call:?}: {ran:?}");
        assert!(ran.err.contains("link is a symbolic link of user 65534"), "{call:?}: {ran:?}");
        assert_eq!(fs::read_to_string(place.path("precious")).unwrap(), "precious", "{call:?}");
    }
}

#[test]
fn a_recording_does_not_stay_the_file_of_another_user() {
    let place = Place::new();
    fs::write(place.path("isotherm.rec"), "theirs").unwrap();
    let given = lchown(place.path("isotherm.rec"), Some(NOBODY), None);
    or_skip!(given.map_err(|error| format!("a file cannot be given away: {error}")));
    fs::set_permissions(place.path("isotherm.rec"), PermissionsExt::from_mode(0o666)).unwrap();
    assert_eq!(recorded(&place, &["--", "sleep", "1"]).status, 0);
    let owner = |name: &str| fs::metadata(place.path(name)).unwrap().uid();
    assert_eq!((owner("isotherm.rec"), owner("isotherm.rec.old")), (0, NOBODY));
}

#[test]
fn an_ordinary_user_keeps_the_recording_of_another_user() {
    // The kernel may refuse a second link to a file of another user. It is renamed then.
    let place = Place::new();
    fs::write(place.path("isotherm.rec"), "theirs").unwrap();
    fs::set_permissions(place.path("isotherm.rec"), PermissionsExt::from_mode(0o600)).unwrap();
    let ran = or_skip!(place.run_as_nobody(&[&RECORD[..], &["--", "sleep", "1"]].concat()));
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(fs::read_to_string(place.path("isotherm.rec.old")).unwrap(), "theirs");
    assert!(!place.regions("isotherm.rec").is_empty());
    assert_eq!(place.names(), ["isotherm.rec", "isotherm.rec.old"]);
}

#[test]
fn an_open_file_descriptor_is_a_stream() {
    let place = Place::new();
    place.make_recording("known.rec");
    symlink("/proc/self/fd/1", place.path("stdout")).unwrap();
    let report = place.run(&["report", "summary", "known.rec"]).out;
    for output in ["/proc/self/fd/1", "stdout"] {
        let call = ["report", "summary", "known.rec", "-f", "text", "-o", output];
        assert_eq!(place.run(&call).out, report, "{output}");
        // What is in the file already stays, and what follows comes after it.
        let file = fs::File::create(place.path("out")).unwrap();
        std::io::Write::write_all(&mut &file, b"before\n").unwrap();
        assert!(place.isotherm(&call).stdout(file.try_clone().unwrap()).status().unwrap().success());
        std::io::Write::write_all(&mut &file, b"after\n").unwrap();
        assert_eq!(fs::read_to_string(place.path("out")).unwrap(), format!("before\n{report}after\n"), "{output}");
    }
    // A socket cannot be opened by its path.
    let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let call = ["report", "summary", "known.rec", "-f", "text", "-o", "stdout"];
    let mut child = Kept(place.isotherm(&call).stdout(std::os::fd::OwnedFd::from(theirs)).spawn().unwrap());
    let mut read = String::new();
    std::io::Read::read_to_string(&mut ours, &mut read).unwrap();
    assert_eq!((child.0.wait().unwrap().code(), read), (Some(0), report));
}

#[test]
fn no_command_replaces_what_it_reads() {
    let place = Place::new();
    place.make_recording("known.rec");
    fs::write(place.path("all.yaml"), SCHEME).unwrap();
    fs::write(place.path("pressure"), "0.5").unwrap();
    let fed =
        "- {name: fed, action: stat, quota: {bytes: 1M, period: 1s, goals: [{fed: {from: pressure, value: 1}}]}}\n";
    fs::write(place.path("fed.yaml"), fed).unwrap();
    fs::copy("/bin/sleep", place.path("program")).unwrap();
    for (name, target) in [("link.rec", "known.rec"), ("link.yaml", "all.yaml")] {
        symlink(target, place.path(name)).unwrap();
    }
    for (name, target) in [("hard.rec", "known.rec"), ("damo.rec", "known.damo")] {
        fs::hard_link(place.path(target), place.path(name)).unwrap();
    }
    let mut calls = vec![
        vec!["report", "heatmap", "known.rec", "-f", "svg", "-o", "known.rec"],
        vec!["tier", "try", "known.rec", "-f", "svg", "-o", "known.rec"],
        vec!["report", "heatmap", "known.rec", "-f", "svg", "-o", "link.rec"],
        vec!["report", "html", "link.rec", "-f", "html", "-o", "known.rec"],
        vec!["report", "html", "hard.rec", "-f", "html", "-o", "known.rec"],
        vec!["convert", "known.rec", "link.rec"],
        vec!["convert", "hard.rec", "known.rec"],
        vec!["convert", "known.damo", "damo.rec"],
        vec!["record", "--probe", "refs", "-o", "program", "--", "./program", "0"],
    ];
    if bpf_works().is_ok() {
        for (schemes, output) in [("all.yaml", "all.yaml"), ("link.yaml", "all.yaml"), ("fed.yaml", "pressure")] {
            calls.push(vec!["run", "-s", schemes, "--probe", "bpf", "--record", output, "--", "sleep", "1"]);
        }
    }
    let read = || {
        ["known.rec", "all.yaml", "pressure", "known.damo", "program"].map(|name| fs::read(place.path(name)).unwrap())
    };
    let (before, names) = (read(), place.names());
    for call in calls {
        let ran = place.run(&call);
        assert_eq!(ran.status, 1, "{call:?}: {ran:?}");
        assert!(ran.err.contains("it is an input of the same command"), "{call:?}: {ran:?}");
        assert!(read() == before && place.names() == names, "{call:?}: {:?}", place.names());
    }
    // Standard output is an output, too.
    for call in [["report", "heatmap", "known.rec"], ["scheme", "check", "all.yaml"], ["scheme", "try", "all.yaml"]] {
        let same = fs::File::options().append(true).open(place.path(call[2])).unwrap();
        let mut command = place.isotherm(&call);
        if call[1] == "try" {
            command.arg("known.rec");
        }
        let output = command.stdout(same).stderr(Stdio::piped()).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && err.contains("standard output"), "{call:?}: {err}");
        assert!(read() == before, "{call:?}");
    }
}

#[test]
fn two_outputs_of_a_command_are_two_files() {
    let place = Place::new();
    let call = ["tune", "-q", "--probe", "refs", "--record", "both.txt", "-o", "both.txt", "--", "sleep", "1000"];
    let ran = place.run(&call);
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(ran.err.contains("both.txt") && ran.err.contains("this command writes it already"), "{ran:?}");
    assert_eq!(place.names(), [""; 0]);
}

#[test]
fn a_report_that_fails_leaves_the_report_that_was_there() {
    let place = Place::new();
    place.make_recording("known.rec");
    let mut bytes = fs::read(place.path("known.rec")).unwrap();
    let near_the_end = bytes.len() - 30;
    bytes[near_the_end] ^= 1;
    fs::write(place.path("bad.rec"), bytes).unwrap();
    for call in [
        &["report", "summary", "bad.rec", "-o", "out.txt"][..],
        &["report", "html", "bad.rec", "-f", "html", "-o", "out.txt"],
        &["report", "summary", "missing.rec", "-o", "out.txt"],
        &["report", "schemes", "known.rec", "-o", "out.txt"],
        &["report", "summary", "known.rec", "--time", "5s:6s", "-o", "out.txt"],
    ] {
        fs::write(place.path("out.txt"), "the previous report").unwrap();
        let ran = place.run(call);
        assert_eq!(ran.status, 1, "{call:?}: {ran:?}");
        assert_eq!(fs::read_to_string(place.path("out.txt")).unwrap(), "the previous report", "{call:?}");
    }
    assert_eq!(place.names(), ["bad.rec", "known.damo", "known.rec", "out.txt"]);
}

#[test]
fn a_second_writer_is_refused_and_learns_who_the_first_is() {
    let place = Place::new();
    place.make_recording("known.rec");
    let recorder = start_recorder(&place, "a.rec");
    symlink("a.rec", place.path("b.rec")).unwrap();
    let holder = format!("process {} (isotherm) writes it", recorder.0.id());
    for call in [
        [&RECORD[..], &["-o", "a.rec", "--", "sleep", "1000"]].concat(),
        [&RECORD[..], &["-o", "b.rec", "--", "sleep", "1000"]].concat(),
        vec!["convert", "known.rec", "a.rec"],
        vec!["convert", "known.damo", "a.rec"],
        vec!["report", "html", "known.rec", "-o", "a.rec", "-f", "html"],
        vec!["tune", "--probe", "refs", "--record", "a.rec", "--", "sleep", "1000"],
    ] {
        let ran = place.run(&call);
        assert_eq!(ran.status, 1, "{call:?}: {ran:?}");
        assert!(ran.err.contains(&holder) && ran.err.contains("wait for its end"), "{call:?}: {ran:?}");
    }
    let seen = place.regions("a.rec").len();
    eventually("it goes on", || place.regions("a.rec").len() > seen);
    end(recorder);
    assert_eq!(Recording::open(&place.path("a.rec")).unwrap().ending(), Ending::Whole);
    assert_eq!(place.names(), ["a.rec", "b.rec", "known.damo", "known.rec"]);
}

#[test]
fn a_second_writer_of_idle_reports_is_refused_between_two_reports() {
    or_skip!(bpf_works());
    let place = Place::new();
    let pid = std::process::id().to_string();
    let call = ["idle", "-q", "--probe", "bpf", "--pid", &pid, "-i", "200ms", "-f", "prometheus", "-o", "idle.prom"];
    let mut first = Kept(place.isotherm(&call).spawn().unwrap());
    eventually("there is a report", || place.path("idle.prom").exists());
    let inode = || fs::metadata(place.path("idle.prom")).unwrap().ino();
    for _ in 0..3 {
        let ran = place.run(&call);
        let holder = format!("process {} (isotherm) writes it", first.0.id());
        assert!(ran.status == 1 && ran.err.contains(&holder), "{ran:?}");
        let seen = inode();
        eventually("the first one goes on", || inode() != seen);
    }
    // A killed one leaves at most what the next one removes.
    signal(&first.0, Signal::KILL);
    first.0.wait().unwrap();
    let ran = place.run(&[&call[..], &["-n", "1"]].concat());
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(place.names(), ["idle.prom"]);
}

#[test]
fn a_command_that_cannot_start_leaves_everything_untouched() {
    let place = Place::new();
    place.make_recording("isotherm.rec");
    fs::write(place.path("broken.yaml"), "- {name: x}\n").unwrap();
    let (before, names) = (fs::read(place.path("isotherm.rec")).unwrap(), place.names());
    for (call, status) in [
        (&["record", "--", "no-such-command"][..], 1),
        (&["record", "--", "/etc/passwd"], 1),
        (&["record", "--pid", "4194304"], 1),
        (&["record", "--aggr", "0s", "--", "sleep", "1"], 2),
        (&["record", "--probe", "refs", "--nice", "-20", "--cpu-affinity", "1000", "--", "sleep", "1"], 1),
        (&["run", "-s", "broken.yaml", "--record", "isotherm.rec", "--", "true"], 1),
        (&["run", "-s", "missing.yaml", "--record", "isotherm.rec", "--", "true"], 1),
        (&["tune", "--record", "isotherm.rec", "--", "no-such-command"], 1),
        (&["convert", "missing", "isotherm.rec"], 1),
        (&["convert", "broken.damo", "isotherm.rec"], 1),
        (&["convert", "broken.yaml", "isotherm.rec"], 1),
    ] {
        let ran = place.run(call);
        assert_eq!(ran.status, status, "{call:?}: {ran:?}");
        assert_eq!(fs::read(place.path("isotherm.rec")).unwrap(), before, "{call:?}");
        assert_eq!(place.names(), names, "{call:?}");
    }
}

#[test]
fn a_run_that_found_nothing_leaves_what_was_there() {
    let place = Place::new();
    place.make_recording("isotherm.rec");
    let before = fs::read(place.path("isotherm.rec")).unwrap();
    let mut sleep = Kept(Command::new("sleep").arg("1000").spawn().unwrap());
    let pid = sleep.0.id().to_string();
    let call = ["record", "-q", "--probe", "refs", "--survey", "off", "--sample", "50s", "--pid", &pid];
    let mut isotherm = Kept(place.isotherm(&call).stderr(Stdio::null()).spawn().unwrap());
    eventually("it watches", || {
        fs::metadata(place.path(".isotherm.rec.isotherm-part")).is_ok_and(|part| part.len() > 0)
    });
    // Signals are handled when the run is about to start.
    eventually("it handles signals", || handles(isotherm.0.id(), Signal::TERM));
    signal(&isotherm.0, Signal::TERM);
    assert_eq!(isotherm.0.wait().unwrap().code(), Some(1));
    assert_eq!(fs::read(place.path("isotherm.rec")).unwrap(), before);
    assert_eq!(place.names(), ["isotherm.rec", "known.damo"]);
    assert!(sleep.0.try_wait().unwrap().is_none(), "the target continues");
}

/// Whether a process has a handler for a signal.
fn handles(pid: u32, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() & 1 << (signal.as_raw() - 1) != 0
}

#[test]
fn what_was_recorded_is_there_whenever_the_recorder_is_killed() {
    let place = Place::new();
    place.make_recording("isotherm.rec");
    let imported = fs::read(place.path("isotherm.rec")).unwrap();
    let path = place.path("isotherm.rec");
    let mut sleep = Kept(Command::new("sleep").arg("1000").spawn().unwrap());
    let pid = sleep.0.id().to_string();
    // It is killed before it has created a file, before the first snapshots are in, and after them. The last has put
    // its recording into place.
    let sizes = [0, 1, 5_000, 10_000, 12_000, 15_000].map(|bytes| (bytes, false));
    for (bytes, in_place) in sizes.into_iter().chain([(1, true)]) {
        let call = [&RECORD[..], &["--pid", &pid]].concat();
        let before = fs::read(&path).unwrap();
        let mut isotherm = Kept(place.isotherm(&call).stderr(Stdio::null()).spawn().unwrap());
        let part = place.path(".isotherm.rec.isotherm-part");
        let len = |path: &Path| fs::metadata(path).map_or(0, |file| file.len());
        let is_new = || fs::read(&path).unwrap() != before;
        let is_enough = || !in_place && len(&part) >= bytes || is_new() && len(&path) >= bytes;
        eventually("it has recorded enough", is_enough);
        let seen = is_new().then(|| place.regions("isotherm.rec").len());
        signal(&isotherm.0, Signal::KILL);
        isotherm.0.wait().unwrap();
        let after = place.regions("isotherm.rec").len();
        assert!(after >= seen.unwrap_or(1), "{bytes}: {after} of {seen:?}");
    }
    assert_ne!(fs::read(&path).unwrap(), imported, "some have recorded");
    // The next one has everything to itself.
    assert_eq!(recorded(&place, &["--pid", &pid, "--duration", "1s"]).status, 0);
    assert_eq!(Recording::open(&path).unwrap().ending(), Ending::Whole);
    assert_eq!(place.names(), ["isotherm.rec", "isotherm.rec.old", "known.damo"]);
    assert!(sleep.0.try_wait().unwrap().is_none(), "the target continues");
}

#[test]
fn the_previous_recording_is_kept() {
    let place = Place::new();
    place.make_recording("isotherm.rec");
    let before = fs::read(place.path("isotherm.rec")).unwrap();
    assert_eq!(recorded(&place, &["--", "sleep", "1"]).status, 0);
    assert_eq!(fs::read(place.path("isotherm.rec.old")).unwrap(), before);
    assert_ne!(fs::read(place.path("isotherm.rec")).unwrap(), before);
    assert_eq!(place.run(&["report", "summary", "isotherm.rec.old"]).status, 0);
}
