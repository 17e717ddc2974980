//! What the live screen shows of schemes.

use std::io::Read;

use portable_pty::native_pty_system;
use rustix::process::Signal;

use crate::common::{HOT_IN_COLD, Kept, Place, eventually};
use crate::user::{FAST, User, size};

/// A scheme that counts hot memory.
const HOT: &str = "- {name: hot, access_rate: {min: 50%}, action: stat, apply_interval: 500ms, quota: {bytes: 1G}}\n";
/// A scheme that sleeps as long as the machine has free memory.
const ASLEEP: &str = "- name: idle\n  action: stat\n  \
                      watermarks: {metric: free_memory, interval: 200ms, high: 0.2%, mid: 0.1%, low: 0%}\n";

/// Starts the workload [`HOT_IN_COLD`], and `isotherm top` with schemes on it.
fn schemes_on_hot(place: &Place, schemes: &str) -> (Kept, User) {
    std::fs::write(place.path("mine.yaml"), schemes).unwrap();
    std::fs::write(place.path("hot.toml"), HOT_IN_COLD).unwrap();
    let workload = Kept(place.isotherm(&["workload", "hot.toml"]).spawn().unwrap());
    let pid = workload.0.id().to_string();
    let user = User::runs(place, &[&FAST[..], &["--schemes", "mine.yaml", "--pid", &pid]].concat());
    (workload, user)
}

#[test]
fn the_screen_shows_what_schemes_do_and_the_target_continues_after_it() {
    let place = Place::new();
    let (mut workload, mut user) = schemes_on_hot(&place, &format!("{HOT}- {{name: all, action: stat}}\n"));
    user.sees("a line for each scheme, and the memory in use", |screen| {
        let lines = screen.lines();
        let holds = |words: &[&str]| lines.iter().any(|line| words.iter().all(|word| line.contains(word)));
        holds(&["schemes  hot", "stat", "/s", " in all", "quota "])
            && holds(&["all", "stat", "iB/s", " in all"])
            && holds(&["working set", "RSS 1"])
            && holds(&[" a ", "schemes", "? ", "help"])
    });
    user.types("a");
    user.sees("the table of schemes, and the last application of the first", |screen| {
        let lines = screen.lines();
        let holds = |words: &[&str]| lines.iter().any(|line| words.iter().all(|word| line.contains(word)));
        holds(&["scheme", "action", "state", "applied", "recently", "refused", "quota", "time"])
            && holds(&["1 hot", "stat", "awake", "MiB"])
            && holds(&["2 all", "stat", "awake", "iB"])
            && holds(&["hot last at"])
            && !holds(&["work.set"])
    });
    user.types("2");
    user.reads("all last at");
    user.types("a");
    user.reads("▾hot");
    user.types("?");
    user.reads("switch to the table of schemes and back");
    user.types("?q");
    assert_eq!(user.wait_for_end().exit_code(), 0);
    assert!(workload.0.try_wait().unwrap().is_none(), "the target continues");
}

#[test]
fn the_screen_shows_changes_and_errors_of_the_scheme_file() {
    let place = Place::new();
    let (_workload, mut user) = schemes_on_hot(&place, HOT);
    user.reads("schemes  hot");
    std::fs::write(place.path("mine.yaml"), HOT.replace("hot", "warm")).unwrap();
    user.reads("mine.yaml: its schemes are in force now");
    user.sees("the new scheme", |screen| screen.contains("schemes  warm") && !screen.contains("schemes  hot"));
    user.types(" ");
    user.sees("a key removes the notice", |screen| screen.contains("PAUSED") && !screen.contains("in force now"));
    user.types(" ");

    std::fs::write(place.path("mine.yaml"), HOT.replace("stat", "melt")).unwrap();
    user.reads("there is no action \"melt\"");
    user.reads("the schemes that were in force before stay");
    assert!(user.screen().contains("schemes  warm"));
    // The modification time may be the same as before. SIGHUP makes isotherm read the file, and does not end it.
    std::fs::write(place.path("mine.yaml"), HOT.replace("hot", "third")).unwrap();
    user.signals(Signal::HUP);
    user.reads("schemes  third");
    user.types("q");
    assert_eq!(user.wait_for_end().exit_code(), 0);
    user.reads("isotherm: mine.yaml:1:");
    user.reads("there is no action \"melt\"");
}

#[test]
fn the_clock_of_the_screen_continues_while_all_schemes_sleep() {
    let place = Place::new();
    let (mut workload, mut user) = schemes_on_hot(&place, ASLEEP);
    user.reads("all schemes sleep: nothing is monitored");
    let title = user.screen().lines()[0].clone();
    assert!(title.contains("ASLEEP") && !title.contains("(ended)"), "{title}");
    user.sees("the clock continues", |screen| screen.contains("ASLEEP") && screen.lines()[0] != title);
    std::fs::write(place.path("mine.yaml"), HOT).unwrap();
    user.sees("another scheme is awake", |screen| !screen.contains("ASLEEP") && screen.contains("reads/s"));
    std::fs::write(place.path("mine.yaml"), ASLEEP).unwrap();
    user.reads("all schemes sleep: nothing is monitored");
    workload.0.kill().unwrap();
    workload.0.wait().unwrap();
    user.reads("no target is left");
    user.types("q");
    assert_eq!(user.wait_for_end().exit_code(), 0);
}

#[test]
fn errors_of_schemes_are_reported_without_a_screen_and_before_the_command_is_started() {
    let place = Place::new();
    for (schemes, word) in [
        ("- {action: pageout, age: 5}", "mine.yaml:1:26: 5 has no unit"),
        ("- {action: mlock}", "add `inside: true`"),
        ("- {action: stat, quota: {goals: [{fed: {from: none, value: 1}}]}}", "no number can be read from none"),
    ] {
        std::fs::write(place.path("mine.yaml"), schemes).unwrap();
        let mut user = User::runs(&place, &["-s", "mine.yaml", "--", "touch", "touched"]);
        assert_eq!(user.wait_for_end().exit_code(), 1);
        user.reads(word);
        let raw = String::from_utf8_lossy(&user.seen.lock().unwrap().raw).into_owned();
        assert!(!raw.contains("\x1b[?1049h") && !place.path("touched").exists(), "{raw}");
    }
    std::fs::write(place.path("mine.yaml"), HOT).unwrap();
    let mut user = User::runs(&place, &["-s", "mine.yaml", "--log", "mine.yaml", "--", "touch", "touched"]);
    assert_eq!(user.wait_for_end().exit_code(), 1);
    user.reads("it is an input of the same command");
    assert_eq!(std::fs::read_to_string(place.path("mine.yaml")).unwrap(), HOT);
    assert!(!place.path("touched").exists());
    let ran = place.run(&["top", "--schemes", "mine.yaml", "--physical", "--survey", "off"]);
    assert_eq!(ran.status, 2, "{ran:?}");
    assert!(ran.err.contains("schemes act on physical memory by surveys only"), "{}", ran.err);
}

#[test]
fn a_hang_up_of_the_terminal_ends_a_screen_with_schemes() {
    let place = Place::new();
    std::fs::write(place.path("mine.yaml"), HOT).unwrap();
    let mut sleep = Kept(std::process::Command::new("sleep").arg("1000").spawn().unwrap());
    let pid = sleep.0.id().to_string();
    let arguments = [&FAST[..], &["--schemes", "mine.yaml", "--pid", &pid]].concat();
    let pty = native_pty_system().openpty(size(100, 30)).unwrap();
    let mut child = pty.slave.spawn_command(User::call(&place, &arguments, &[])).unwrap();
    let mut reader = pty.master.try_clone_reader().unwrap();
    let (mut raw, mut buffer) = (String::new(), [0; 4096]);
    while !raw.contains("[stack]") {
        let n = reader.read(&mut buffer).unwrap();
        raw += &String::from_utf8_lossy(&buffer[..n]);
    }
    drop((reader, pty));
    let mut status = None;
    eventually("isotherm ends", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().exit_code(), 0);
    assert!(sleep.0.try_wait().unwrap().is_none(), "the target continues");
}
