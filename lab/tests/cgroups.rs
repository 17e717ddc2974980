//! Cgroups that vanish and come back while their processes are watched.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use isotherm_lab::idle::V2;
use isotherm_lab::{EMULATED, Running, eventually, isotherm, result_file, succeed, watched};
use portable_pty::{CommandBuilder, PtySize, native_pty_system};
use serde_json::Value;

/// The number of files that a process has open.
fn files(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// A process that rests in a cgroup.
struct Inhabitant(Running);

impl Inhabitant {
    fn new(cgroup: &str) -> Self {
        fs::create_dir_all(format!("{V2}{cgroup}")).unwrap();
        let running = Running::start(Command::new("sleep").arg("1000"));
        let inhabitant = Self(running);
        inhabitant.move_to(cgroup);
        inhabitant
    }

    fn pid(&self) -> u32 {
        self.0.pid()
    }

    fn move_to(&self, cgroup: &str) {
        fs::write(format!("{V2}{cgroup}/cgroup.procs"), self.pid().to_string()).unwrap();
    }
}

fn remove(cgroup: &str) {
    eventually("an empty cgroup can be removed", || fs::remove_dir(format!("{V2}{cgroup}")).is_ok());
}

fn eventually_watches(recorder: &Running, pids: &[&Inhabitant]) {
    let wanted: BTreeSet<u32> = pids.iter().map(|inhabitant| inhabitant.pid()).collect();
    eventually(&format!("{wanted:?} are watched"), || watched(recorder.pid()) == wanted);
}

/// Processes join and leave with their cgroup, which vanishes and comes back `times` times, by death and by a move.
/// Returns how many files the recorder had open after the first time and at the end, and the processes by the cgroup.
fn come_and_go(recorder: &Running, cgroups: &[&str], times: usize) -> (usize, usize, Vec<(u32, String)>) {
    let (mut first, mut all) = (None, Vec::new());
    for _ in 0..times {
        for by_death in [true, false] {
            let inhabitants: Vec<Inhabitant> = cgroups.iter().map(|cgroup| Inhabitant::new(cgroup)).collect();
            eventually_watches(recorder, &inhabitants.iter().collect::<Vec<_>>());
            all.extend(inhabitants.iter().zip(cgroups).map(|(one, cgroup)| (one.pid(), cgroup.to_string())));
            if by_death {
                drop(inhabitants);
                eventually_watches(recorder, &[]);
            } else {
                inhabitants.iter().for_each(|inhabitant| inhabitant.move_to(""));
                eventually_watches(recorder, &[]);
            }
            cgroups.iter().for_each(|cgroup| remove(cgroup));
        }
        first.get_or_insert(files(recorder.pid()));
    }
    (first.unwrap(), files(recorder.pid()), all)
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn processes_join_and_leave_with_a_cgroup_that_vanishes_and_comes_back() {
    for (name, selector, cgroups) in
        [("path", "/job", &["/job"][..]), ("glob", "/jobs-*/**", &["/jobs-a/x", "/jobs-b/y"])]
    {
        let parents: Vec<&str> =
            cgroups.iter().filter_map(|cgroup| cgroup[1..].find('/').map(|end| &cgroup[..=end])).collect();
        let recording = result_file(&format!("vanishing-{name}.rec"));
        let file = recording.to_str().unwrap();
        let err = result_file(&format!("vanishing-{name}.err"));
        let mut command = isotherm(&["record", "--cgroup", selector, "--wait", "-o", file]);
        let mut recorder = Running::start(command.args(EMULATED).stderr(fs::File::create(&err).unwrap()));
        let (first, last, all) = come_and_go(&recorder, cgroups, 4);
        // One cgroup of several stays.
        let stays = Inhabitant::new(cgroups[0]);
        eventually_watches(&recorder, &[&stays]);
        assert!(last <= first + 1, "{first} files were open, and then {last}");
        recorder.interrupt();
        let said = || fs::read_to_string(&err).unwrap();
        assert_eq!(recorder.wait(), 0, "{}", said());
        assert!(!said().contains("error") && !said().contains("not watched"), "{}", said());
        drop(stays);
        remove(cgroups[0]);
        parents.iter().for_each(|parent| remove(parent));

        // A process is recorded with the cgroup in which it was found.
        let summary = succeed(&["report", "summary", "--by", "cgroup", "--format", "json", file]);
        let summary: Value = serde_json::from_str(&summary).unwrap();
        let groups = summary["groups"].as_array().unwrap();
        let names: BTreeSet<&str> = groups.iter().map(|group| group["name"].as_str().unwrap()).collect();
        assert_eq!(names, cgroups.iter().copied().collect(), "{summary}");
        let known: BTreeSet<u32> = all.iter().map(|(pid, _)| *pid).collect();
        let targets = summary["targets"].as_array().unwrap();
        let strangers = targets.iter().filter(|target| !known.contains(&(target["pid"].as_u64().unwrap() as u32)));
        // The one that stayed.
        assert!(strangers.count() <= 1, "{summary}");
    }
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn schemes_act_on_the_processes_of_a_cgroup_that_came_back() {
    let schemes = result_file("vanishing.yaml");
    fs::write(&schemes, "- {name: all, access_rate: 0%, action: stat}\n").unwrap();
    let mut command = isotherm(&["run", "--cgroup", "/acted", "--wait", "--schemes", schemes.to_str().unwrap()]);
    let mut runs = Running::start(command.args(EMULATED).args(["--duration", "5m"]));
    let (first, last, _) = come_and_go(&runs, &["/acted"], 2);
    assert!(last <= first + 1, "{first} files were open, and then {last}");
    runs.interrupt();
    assert_eq!(runs.wait(), 0);
}

#[test]
#[ignore = "runs in the laboratory: ./dev lab"]
fn the_live_screen_outlives_the_cgroup_that_it_shows() {
    let terminal = native_pty_system().openpty(PtySize { rows: 40, cols: 120, ..PtySize::default() }).unwrap();
    let mut command = CommandBuilder::new("isotherm");
    command.args(["top", "--cgroup", "/shown", "--wait"]);
    command.args(EMULATED);
    command.env("TERM", "xterm-256color");
    let mut screen = terminal.slave.spawn_command(command).unwrap();
    let pid = screen.process_id().unwrap();
    let mut output = terminal.master.try_clone_reader().unwrap();
    let shown = Arc::new(Mutex::new(String::new()));
    let seen = Arc::clone(&shown);
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = output.read(&mut bytes) {
            seen.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    });
    for _ in 0..2 {
        let inhabitant = Inhabitant::new("/shown");
        eventually("the process is watched", || watched(pid).contains(&inhabitant.pid()));
        // A space may be a move of the cursor.
        eventually("the process is shown", || shown.lock().unwrap().contains("sleep"));
        drop(inhabitant);
        eventually("nothing is watched", || watched(pid).is_empty());
        remove("/shown");
        shown.lock().unwrap().clear();
    }
    assert!(screen.try_wait().unwrap().is_none(), "the screen has ended: {}", shown.lock().unwrap());
    terminal.master.take_writer().unwrap().write_all(b"q").unwrap();
    assert_eq!(screen.wait().unwrap().exit_code(), 0);
}
