//! What is watched: processes by name, command line and the like, parts of them, as they come and go.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use isotherm_record::Recording;
use isotherm_testing::or_skip;
use rustix::process::Signal;

use crate::common::{Kept, Place, bpf_works, eventually, signal};

/// A program of this name, which sleeps.
fn program(place: &Place, name: &str) -> PathBuf {
    let path = place.path(name);
    std::fs::copy("/bin/sleep", &path).unwrap();
    path
}

fn start(program: &Path, arguments: &[&str]) -> Kept {
    Kept(Command::new(program).args(arguments).stdin(Stdio::null()).spawn().unwrap())
}

/// The IDs of the targets of a recording.
fn targets(place: &Place, recording: &str) -> BTreeSet<u32> {
    let recording = Recording::open(&place.path(recording)).unwrap();
    let snapshots = recording.snapshots().map(|snapshot| snapshot.unwrap().snapshot);
    snapshots.flat_map(|snapshot| snapshot.targets.into_iter().filter_map(|target| target.id.pid())).collect()
}

fn pids<const N: usize>(of: [&Kept; N]) -> BTreeSet<u32> {
    of.iter().map(|kept| kept.0.id()).collect()
}

#[test]
fn processes_are_watched_by_name_and_command_line_without_those_excluded() {
    or_skip!(bpf_works());
    let place = Place::new();
    // The kernel keeps 15 bytes of a name.
    let (long, other) = (program(&place, "selected-by-its-long-name"), program(&place, "other-name"));
    let [a, b] = ["1001", "1002"].map(|time| start(&long, &[time]));
    let c = start(&other, &["1003"]);
    let path = place.dir.path().to_str().unwrap();
    let watched = |arguments: &[&str]| {
        let ran = place.run(&[&["record", "-d", "1s", "-o", "s.rec"], arguments].concat());
        assert_eq!(ran.status, 0, "{arguments:?}: {}", ran.err);
        targets(&place, "s.rec")
    };
    assert_eq!(watched(&["--name", "^selected-by-its-long-name$"]), pids([&a, &b]));
    assert_eq!(watched(&["--command", &format!("^{path}/.* 100[23]$")]), pids([&b, &c]));
    let id = a.0.id().to_string();
    let exclude = ["--command", path, "--exclude", "name=^selected", "--pid", &id];
    assert_eq!(watched(&exclude), pids([&a, &c]), "an ID is watched in any case");
    assert_eq!(watched(&["--command", path, "--exclude", &format!("pid={id}"), "--min-rss", "100K"]), pids([&b, &c]));

    let ran = place.run(&["record", "-d", "1s", "--command", path, "--min-rss", "1G"]);
    assert!(ran.status == 1 && ran.err.contains("no process matches: command"), "{}", ran.err);
    let ran = place.run(&["idle", "-i", "100ms", "-n", "1", "-f", "json", "--command", path]);
    let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let found: BTreeSet<u32> =
        report["processes"].as_array().unwrap().iter().map(|of| of["pid"].as_u64().unwrap() as u32).collect();
    assert_eq!(found, pids([&a, &b, &c]));
}

#[test]
fn what_matches_joins_when_it_appears_and_leaves_when_it_ends_or_becomes_another_program() {
    or_skip!(bpf_works());
    let place = Place::new();
    let joins = program(&place, "joins-later");
    let options = ["record", "--name", "^joins-later$", "--wait", "--quiet", "-o", "w.rec", "--aggr", "100ms"];
    let mut recorder = Kept(place.isotherm(&options).spawn().unwrap());
    let watched = |wanted: &dyn Fn(&BTreeSet<u32>) -> bool| {
        let recording = || Recording::open(&place.path("w.rec")).ok()?.snapshots().last()?.ok();
        let last = || recording().map(|last| last.snapshot.targets.iter().filter_map(|of| of.id.pid()).collect());
        eventually("the last snapshot has the targets", || last().is_some_and(|last| wanted(&last)));
    };
    let first = start(&joins, &["1000"]);
    watched(&|last| *last == pids([&first]));
    // A shell that becomes the program, and another one that was it.
    let shell = format!("read x; exec {} 1000", joins.display());
    let mut second = Command::new("sh").args(["-c", &shell]).stdin(Stdio::piped()).spawn().map(Kept).unwrap();
    drop(second.0.stdin.take());
    watched(&|last| *last == pids([&first, &second]));
    drop(first);
    watched(&|last| *last == pids([&second]));
    drop(second);
    let third = start(&joins, &["1000"]);
    watched(&|last| *last == pids([&third]));
    assert!(recorder.0.try_wait().unwrap().is_none());
    signal(&recorder.0, Signal::INT);
    assert!(recorder.0.wait().unwrap().success());
}

#[test]
fn only_a_part_of_a_process_is_watched() {
    or_skip!(bpf_works());
    let place = Place::new();
    let sleep = start(Path::new("/bin/sleep"), &["1000"]);
    let pid = sleep.0.id().to_string();
    let maps = || std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    eventually("the program runs", || maps().contains("libc.so"));
    let mappings = |options: &[&str]| {
        let ran = place.run(&[&["record", "-p", &pid, "-d", "1s", "-o", "p.rec"], options].concat());
        assert_eq!(ran.status, 0, "{options:?}: {}", ran.err);
        let recording = Recording::open(&place.path("p.rec")).unwrap();
        let snapshot = recording.snapshots().next().unwrap().unwrap().snapshot;
        snapshot.targets[0].mappings.iter().map(|mapping| (mapping.name.to_string(), mapping.range)).collect::<Vec<_>>()
    };
    let named = mappings(&["--mapping", "libc", "--mapping", r"^\[stack\]$"]);
    assert!(named.iter().all(|(name, _)| name.contains("libc") || name == "[stack]") && named.len() > 1, "{named:?}");
    let (_, stack) = named.iter().find(|(name, _)| name == "[stack]").unwrap();
    let (from, to) = (stack.end() - 8192, stack.end());
    let part = mappings(&["--range", &format!("{from:#x}:{to:#x}")]);
    assert_eq!(part.len(), 1);
    assert_eq!((part[0].1.start(), part[0].1.end()), (from, to));
    let whole = mappings(&["--probe", "refs", "--range", &format!("{from:#x}:{to:#x}")]);
    assert_eq!(whole, [("[stack]".to_owned(), *stack)]);
    let ran = place.run(&["record", "--name", "sleep", "--range", "0x1000:0x2000"]);
    assert!(ran.status == 2 && ran.err.contains("give one --pid with --range, or --mapping instead"), "{}", ran.err);
}

#[test]
fn a_mapping_that_is_not_there_is_an_error_or_is_waited_for_as_long_as_its_command_runs() {
    or_skip!(bpf_works());
    let place = Place::new();
    let sleep = start(Path::new("/bin/sleep"), &["1000"]);
    let pid = sleep.0.id().to_string();
    for part in [["--mapping", "^none$"], ["--range", "0x1000:0x2000"]] {
        let ran = place.run(&[&["record", "-p", &pid], &part[..]].concat());
        assert!(ran.status == 1 && ran.err.contains("nothing is mapped that matches: "), "{part:?}: {}", ran.err);
    }
    // The heap of a program is not there when its execution begins.
    let record = ["record", "-q", "-o", "h.rec", "--mapping", r"^\[heap\]$", "--", "sleep", "0.5"];
    let ran = place.run(&record);
    assert_eq!(ran.status, 0, "{}", ran.err);
    let recording = Recording::open(&place.path("h.rec")).unwrap();
    let snapshot = recording.snapshots().next().unwrap().unwrap().snapshot;
    assert!(snapshot.targets[0].mappings.iter().all(|mapping| &*mapping.name == "[heap]"), "{snapshot:?}");
    let ran = place.run(&["record", "--mapping", "^none$", "--", "sleep", "0.2"]);
    assert!(ran.status == 0 && ran.err.contains("nothing that matches --mapping was mapped"), "{}", ran.err);
}

#[test]
fn wrong_selectors_are_refused() {
    let place = Place::new();
    for (arguments, status, word) in [
        (&["--name", "a("][..], 2, "unclosed group"),
        (&["--cgroup", "/a["], 2, "/a[ is no pattern of a path"),
        (&["--user", "no-such-user"], 2, "there is no user no-such-user"),
        (&["--user", "0", "--user", "no-such-user"], 2, "there is no user no-such-user"),
        (&["--user", "0", "--user", "1", "--", "true"], 2, "a command runs as one user"),
        (&["--exclude", "comm=x"], 2, "write KIND=VALUE"),
        (&["--pid", "1", "--wait"], 2, "cannot be waited for"),
        (&["--name", "^no-such-program$"], 1, "no process matches: name ^no-such-program$"),
        (&["--unit", "no-such-unit"], 1, "no process matches: unit no-such-unit.service"),
        (&["--container", "no\x1bsuch"], 1, "no process matches: container no"),
        (&["--all", "--physical"], 2, "cannot be used with"),
        (&["--physical", "--node", "7777"], 1, "node 7777 has none of the memory"),
    ] {
        let ran = place.run(&[&["record"], arguments].concat());
        assert_eq!(ran.status, status, "{arguments:?}: {}", ran.err);
        let shown = ran.err.contains(word) || arguments.contains(&"--physical") && ran.err.contains("probe");
        assert!(shown && !ran.err.contains('\x1b'), "{arguments:?}: {}", ran.err);
    }
}
