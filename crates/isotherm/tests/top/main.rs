//! The live screen on a pseudo-terminal: what a user sees and types.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

#[path = "../cli/common/mod.rs"]
mod common;
mod connected;
mod names;
mod schemes;
mod user;

use common::{HOT_IN_COLD, ISOTHERM, Kept, Place, eventually};
use rustix::process::Signal;
use user::{FAST, Shown, User};

#[test]
fn the_screen_shows_heatmap_working_set_hottest_mapping_and_cost() {
    let place = Place::new();
    let mut user = User::watches_hot(&place);
    user.sees("all parts are shown", |screen| {
        let lines = screen.lines();
        let holds = |words: &[&str]| lines.iter().any(|line| words.iter().all(|word| line.contains(word)));
        screen.0.alternate_screen()
            && screen.0.hide_cursor()
            && holds(&["isotherm pid", "workload hot.toml", " s"])
            && holds(&["working set", "MiB resident", "%"])
            && holds(&["hot", "MiB", "warm", "cold", "unobs"])
            && holds(&["monitor", "% CPU", "regions", "reads/s", "late"])
            && holds(&["▁", "working set"]) | holds(&["█", "working set"])
            && holds(&["[stack]"])
            && holds(&["-30 s", "-10 s", "now"])
            && holds(&["frequency 0", "unobservable"])
            && holds(&["▾hot", "work.set", "size", "rate", "age", "mapping"])
            && lines.iter().any(|line| line.starts_with('1') && line.contains("MiB") && line.contains("anonymous 0x"))
            && holds(&["q quit", "? help"])
    });
    user.types("q");
    assert_eq!(user.wait_for_end().exit_code(), 0);
}

#[test]
fn keys_pause_sort_and_help() {
    let place = Place::new();
    let mut user = User::watches_hot(&place);
    user.types(" ");
    user.reads("PAUSED at");
    let frozen = user.screen().lines()[0].clone();
    // A key has an effect, but the time shown does not change.
    user.types("s");
    user.reads("▾work.set");
    assert_eq!(user.screen().lines()[0], frozen);
    user.types("r");
    user.reads("▴work.set");
    user.types("S");
    user.reads("▾hot");
    user.types("p");
    user.sees("the screen continues", |screen| !screen.contains("PAUSED"));

    user.types("?");
    user.reads("pause the screen; the monitor continues");
    user.reads("discarded; --log FILE keeps it");
    user.reads("any other key");
    user.types("x");
    assert!(user.screen().contains("any other key"), "a key without a meaning has no effect");
    user.types("\x1b");
    user.sees("the help is gone", |screen| !screen.contains("any other key"));
    user.types("\x03");
    assert_eq!(user.wait_for_end().exit_code(), 0, "Ctrl-C quits");
}

#[test]
fn keys_zoom_and_pan_in_addresses_and_time() {
    let place = Place::new();
    let mut user = User::watches_hot(&place);
    let area = |screen: &Shown| screen.lines().iter().find(|line| line.contains(" to 0x")).cloned().unwrap();
    let areas = |screen: &Shown| screen.lines().iter().filter(|line| line.contains(" to 0x")).count();
    assert!(areas(&user.screen()) > 1);

    user.types("1");
    user.sees("one mapping fills the picture", |screen| areas(&screen) == 1 && screen.contains("128 MiB ─"));
    user.types("\x1b[B");
    user.sees("a cursor appears", |screen| screen.cursor().is_some() && areas(&screen) == 2);
    let line = user.screen().cursor().unwrap();
    user.types("\x1b[A");
    user.sees("the cursor moves up", |screen| screen.cursor() == Some(line - 1));
    user.types("+");
    user.reads("64 MiB ─");
    user.types("vj");
    user.reads("selected 0x");
    user.types("\r");
    user.sees("the selection fills the picture", |screen| !screen.contains("64 MiB ─") && !screen.contains("selected"));
    let zoomed = area(&user.screen());
    user.types("\x1b[6~\x1b[6~\x1b[6~\x1b[6~");
    user.sees("the window moves", |screen| area(&screen) != zoomed);
    user.types("0");
    user.sees("all areas are shown again", |screen| areas(&screen) > 1 && screen.cursor().is_none());

    user.types("]");
    user.reads("-60 s");
    user.types("[[");
    user.reads("-15 s");
    user.types("\x1b[D");
    user.sees("an earlier time is shown", |screen| screen.lines()[0].contains(" at ") && !screen.contains("─ now"));
    user.types("\x1b[F");
    user.reads("─ now");
    user.types("q");
    assert_eq!(user.wait_for_end().exit_code(), 0);
}

#[test]
fn the_screen_works_at_every_size() {
    let place = Place::new();
    let mut user = User::watches_hot(&place);
    for (columns, rows) in [(200, 60), (1, 1), (80, 24), (10, 3), (24, 6), (300, 5), (20, 80), (47, 13), (2, 50)] {
        user.resizes(columns, rows);
        // Ctrl-L draws the whole screen again, because a terminal may keep parts of the old contents.
        user.types("\x0c");
        match (columns, rows) {
            (1, 1) => user.sees("a part of the message", |screen| screen.lines()[0] == "t"),
            (24.., 6..) => user.sees("the title and the keys", |screen| {
                let lines = screen.lines();
                lines[0].starts_with(" isotherm") && lines[usize::from(rows) - 1].starts_with(" q quit")
            }),
            _ => user.reads("to"),
        }
    }
    for step in 0..40 {
        user.resizes(1 + step * 37 % 150, 1 + step * 17 % 50);
    }
    user.resizes(100, 30);
    user.types("\x0c");
    user.reads("▾hot");
    user.types("q");
    assert_eq!(user.wait_for_end().exit_code(), 0);
}

#[test]
fn a_key_during_a_change_of_size_is_not_lost() {
    let place = Place::new();
    let mut user = User::runs(&place, &[&FAST[..], &["--", "sleep", "1000"]].concat());
    user.reads("[stack]");
    for columns in (80..140).chain(80..140) {
        user.resizes(columns, 30);
        user.types(" ");
        user.reads("PAUSED");
        user.resizes(columns + 1, 30);
        user.types(" ");
        user.sees("the screen continues", |screen| !screen.contains("PAUSED"));
    }
    user.types("q");
    assert_eq!(user.wait_for_end().exit_code(), 0);
}

#[test]
fn the_end_of_the_command_is_shown_and_its_status_passed_through() {
    let place = Place::new();
    let mut user = User::runs(&place, &[&FAST[..], &["--", "sh", "-c", "sleep 1; exit 7"]].concat());
    user.reads("the command ended with status 7");
    assert!(user.screen().contains("working set"), "the last picture stays");
    user.types("?");
    user.reads("any other key");
    user.types("?q");
    assert_eq!(user.wait_for_end().exit_code(), 7);

    let mut user = User::runs(&place, &[&FAST[..], &["--", "sh", "-c", "sleep 1; kill -9 $$"]].concat());
    user.reads("the command was ended by signal 9");
    user.types("q");
    assert_eq!(user.wait_for_end().exit_code(), 137);
}

#[test]
fn quitting_sends_sigterm_to_the_command_and_waits_for_it() {
    let place = Place::new();
    let script = "trap 'sleep 0.3; echo asked > asked; exit 3' TERM; while :; do sleep 0.05; done";
    let mut user = User::runs(&place, &[&FAST[..], &["--", "sh", "-c", script]].concat());
    user.reads("[stack]");
    user.types("q");
    assert_eq!(user.wait_for_end().exit_code(), 0);
    assert!(place.path("asked").exists());
}

#[test]
fn a_process_continues_when_the_user_quits_and_its_end_is_shown() {
    let place = Place::new();
    let sleep = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let mut sleep = Kept(sleep);
    let pid = sleep.0.id().to_string();
    let arguments = [&FAST[..], &["--pid", &pid]].concat();
    for quit in ["q", "\x03"] {
        let mut user = User::runs(&place, &arguments);
        user.reads("[stack]");
        user.types(quit);
        assert_eq!(user.wait_for_end().exit_code(), 0);
        assert!(sleep.0.try_wait().unwrap().is_none(), "the target continues");
    }
    let mut user = User::runs(&place, &arguments);
    user.reads("[stack]");
    sleep.0.kill().unwrap();
    sleep.0.wait().unwrap();
    user.reads("no target is left");
    user.types("q");
    assert_eq!(user.wait_for_end().exit_code(), 0);
}

#[test]
fn tab_shows_the_next_target() {
    let place = Place::new();
    let sleeps = [(); 2].map(|()| Kept(std::process::Command::new("sleep").arg("1000").spawn().unwrap()));
    let [a, b] = sleeps.each_ref().map(|sleep| sleep.0.id().to_string());
    let mut user = User::runs(&place, &[&FAST[..], &["--pid", &a, "--pid", &b]].concat());
    user.reads("[1 of 2, Tab]");
    user.types("\t");
    user.reads("[2 of 2, Tab]");
    user.types("\x1b[Z");
    user.reads("[1 of 2, Tab]");
    user.types("q");
    assert_eq!(user.wait_for_end().exit_code(), 0);
}

#[test]
fn a_table_shows_all_targets_by_cgroup_too_and_selects_them() {
    let place = Place::new();
    let sleeps = [(); 2].map(|()| Kept(std::process::Command::new("sleep").arg("1000").spawn().unwrap()));
    let pids = sleeps.each_ref().map(|sleep| sleep.0.id().to_string());
    let mut user = User::runs(&place, &[&FAST[..], &["--pid", &pids[0], "--pid", &pids[1]]].concat());
    user.sees("both processes have a line", |screen| {
        let lines = screen.lines();
        let line = |pid: &String| lines.iter().any(|line| line.contains(pid) && line.contains(" s  "));
        screen.contains("watched") && pids.iter().all(line)
    });
    // The order by name does not change: that by hot memory may, between a look and a key.
    user.types("sss");
    user.reads("▴command");
    for (key, selected) in [("2", "2▸"), ("1", "1▸")] {
        user.types(key);
        user.reads(selected);
    }
    user.types("g");
    user.reads("(2)");
    user.types("t");
    user.reads("mapping ");
    user.types("t");
    user.reads("(2)");
    user.types("q");
    assert_eq!(user.wait_for_end().exit_code(), 0);
}

#[test]
fn the_terminal_is_restored_after_a_signal() {
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let place = Place::new();
        let user = &mut User::runs(&place, &[&FAST[..], &["--", "sleep", "1000"]].concat());
        user.reads("[stack]");
        user.signals(signal);
        assert_eq!(user.wait_for_end().exit_code(), 0, "{signal:?}");
    }
}

#[test]
fn the_output_of_the_command_goes_to_the_log() {
    let place = Place::new();
    let script = "echo garbage; echo rubbish >&2; sleep 1000";
    let arguments = [&FAST[..], &["--log", "out.txt", "--", "sh", "-c", script]].concat();
    let mut user = User::runs(&place, &arguments);
    user.reads("[stack]");
    user.types("?");
    user.reads("The command's output: out.txt");
    user.types("?q");
    assert_eq!(user.wait_for_end().exit_code(), 0);
    assert_eq!(std::fs::read_to_string(place.path("out.txt")).unwrap(), "garbage\nrubbish\n");
    // The screen shows the script itself as the name of the target.
    let raw = String::from_utf8_lossy(&user.seen.lock().unwrap().raw).into_owned();
    assert!(!raw.contains("\ngarbage") && !raw.contains("\nrubbish"));
}

#[test]
fn without_colours_rates_are_digits() {
    let place = Place::new();
    std::fs::write(place.path("hot.toml"), HOT_IN_COLD).unwrap();
    let command = ["--", ISOTHERM, "workload", "hot.toml"];
    let environment = [("NO_COLOR", "1"), ("COLORTERM", "truecolor")];
    let mut user = User::with(&place, &[&FAST[..], &command].concat(), &environment);
    user.reads("frequency: 0 none (cold) to 9 at 200 Hz");
    user.sees("digits", |screen| screen.lines().iter().any(|line| line.contains("0000")));
    user.types("q");
    user.wait_for_end();
    let raw = String::from_utf8_lossy(&user.seen.lock().unwrap().raw).into_owned();
    assert!(!raw.contains("\x1b[38;") && !raw.contains("\x1b[48;"), "no colour is set");
}

#[test]
fn the_duration_ends_the_screen_and_the_command() {
    let place = Place::new();
    let mut user = User::runs(&place, &[&FAST[..], &["--duration", "1s", "--", "sleep", "1000"]].concat());
    assert_eq!(user.wait_for_end().exit_code(), 0);
}

#[test]
fn errors_at_the_start_are_reported_without_a_screen() {
    let place = Place::new();
    std::os::unix::fs::symlink("theirs", place.path("link")).unwrap();
    let _ = std::os::unix::fs::lchown(place.path("link"), Some(65534), None);
    for (arguments, word) in [
        (&["--pid", "4194304"][..], "no process 4194304"),
        (&["--", "no-such-command"], "cannot be started"),
        (&["--log", "no/such/log", "--", "sleep", "1"], "cannot write no/such/log"),
        (&["--log", "link", "--", "sleep", "1"], "symbolic link of user 65534"),
    ] {
        if word.contains("65534") && !common::is_root() {
            continue;
        }
        let mut user = User::runs(&place, arguments);
        assert_eq!(user.wait_for_end().exit_code(), 1);
        user.reads(word);
        let raw = String::from_utf8_lossy(&user.seen.lock().unwrap().raw).into_owned();
        assert!(!raw.contains("\x1b[?1049h"), "{raw}");
    }
}

#[test]
fn a_suspended_screen_comes_back() {
    // The kernel does not stop the job here, because no shell could continue it. isotherm leaves and enters the screen
    // all the same.
    let place = Place::new();
    let mut user = User::runs(&place, &[&FAST[..], &["--", "sleep", "1000"]].concat());
    user.reads("[stack]");
    user.types("\x1a");
    eventually("the screen is left and entered again", || {
        let raw = user.seen.lock().unwrap().raw.clone();
        let count = |text: &[u8]| raw.windows(text.len()).filter(|window| *window == text).count();
        count(b"\x1b[?1049h") == 2 && count(b"\x1b[?1049l") == 1
    });
    user.reads("[stack]");
    user.types("q");
    assert_eq!(user.wait_for_end().exit_code(), 0);
}

#[test]
fn without_a_terminal_there_is_no_screen() {
    let place = Place::new();
    let ran = place.run(&["top", "--", "sleep", "1"]);
    assert_eq!(ran.status, 2, "{ran:?}");
    for word in ["needs a terminal", "isotherm record", "Usage"] {
        assert!(ran.err.contains(word), "{word:?} is not in: {}", ran.err);
    }
    let mut user = User::with(&place, &["--", "sleep", "1"], &[("TERM", "dumb")]);
    assert_eq!(user.wait_for_end().exit_code(), 2);
    user.reads("TERM=dumb");
    let mut user = User::runs(&place, &["--log", "x", "--pid", "1"]);
    assert_eq!(user.wait_for_end().exit_code(), 2, "--log without a command");
}
