//! The live screen on a pseudo-terminal: what a user sees and types.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod common;

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};

use common::{HOT_IN_COLD, ISOTHERM, Kept, Place, eventually};
use portable_pty::{Child, CommandBuilder, ExitStatus, MasterPty, PtySize, native_pty_system};
use rustix::process::{Pid, Signal, kill_process};
use vt100::{Color, Parser, Screen};

/// Short intervals that every probe can keep.
const FAST: [&str; 4] = ["--sample", "10ms", "--aggr", "100ms"];

/// A user at a terminal.
struct User {
    master: Box<dyn MasterPty + Send>,
    keyboard: Box<dyn Write + Send>,
    child: Box<dyn Child + Send + Sync>,
    seen: Arc<Mutex<Seen>>,
}

/// The output of the program so far.
struct Seen {
    parser: Parser,
    raw: Vec<u8>,
}

impl User {
    /// Runs `isotherm top` with these arguments on a terminal of 100 columns and 30 lines.
    fn runs(place: &Place, arguments: &[&str]) -> Self {
        Self::with(place, arguments, &[("COLORTERM", "truecolor")])
    }

    fn with(place: &Place, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let command = Self::call(place, arguments, environment);
        let pty = native_pty_system().openpty(size(100, 30)).unwrap();
        let child = pty.slave.spawn_command(command).unwrap();
        let seen = Arc::new(Mutex::new(Seen { parser: Parser::new(30, 100, 0), raw: vec![] }));
        let (mut reader, keyboard) = (pty.master.try_clone_reader().unwrap(), pty.master.take_writer().unwrap());
        let taken = Arc::clone(&seen);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // The read fails after the last program on the terminal has ended.
            while let Ok(n @ 1..) = reader.read(&mut buffer) {
                let mut seen = taken.lock().unwrap();
                seen.parser.process(&buffer[..n]);
                seen.raw.extend_from_slice(&buffer[..n]);
            }
        });
        Self { master: pty.master, keyboard, child, seen }
    }

    fn call(place: &Place, arguments: &[&str], environment: &[(&str, &str)]) -> CommandBuilder {
        let mut command = CommandBuilder::new(ISOTHERM);
        command.arg("top");
        command.args(arguments);
        command.cwd(place.dir.path());
        for name in ["NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "COLORTERM", "LC_ALL", "LC_CTYPE"] {
            command.env_remove(name);
        }
        for (name, value) in [("TERM", "xterm-256color"), ("LANG", "C.UTF-8")].iter().chain(environment) {
            command.env(name, value);
        }
        command
    }

    /// Runs `isotherm top` on the workload [`HOT_IN_COLD`], and waits until the hot area is shown.
    fn watches_hot(place: &Place) -> Self {
        std::fs::write(place.path("hot.toml"), HOT_IN_COLD).unwrap();
        let command = ["--", ISOTHERM, "workload", "hot.toml"];
        let user = Self::runs(place, &[&FAST[..], &command].concat());
        user.sees("the hot area is found", |screen| {
            let hottest = |line: &String| line.starts_with("1 ") && line.contains("128 MiB");
            hot(&screen) > 12 && screen.lines().iter().any(hottest)
        });
        user
    }

    fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
        self.keyboard.flush().unwrap();
    }

    fn screen(&self) -> Shown {
        Shown(self.seen.lock().unwrap().parser.screen().clone())
    }

    #[track_caller]
    fn sees(&self, what: &str, holds: impl Fn(Shown) -> bool) {
        let start = std::time::Instant::now();
        while !holds(self.screen()) {
            let text = self.screen().0.contents();
            assert!(start.elapsed().as_secs() < 30, "timed out waiting until {what}; the screen is:\n{text}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    #[track_caller]
    fn reads(&self, text: &str) {
        self.sees(text, |screen| screen.contains(text));
    }

    fn resizes(&self, columns: u16, rows: u16) {
        // The crate vt100 panics when a screen of one row scrolls. So its screen has at least two rows.
        self.seen.lock().unwrap().parser.screen_mut().set_size(rows.max(2), columns);
        self.master.resize(size(columns, rows)).unwrap();
    }

    /// Waits until the program has ended and has restored the terminal.
    #[track_caller]
    fn wait_for_end(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("isotherm ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        self.sees("the alternate screen is left and the cursor shown", |screen| {
            !screen.0.alternate_screen() && !screen.0.hide_cursor()
        });
        status.unwrap()
    }

    fn signals(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.process_id().unwrap() as i32).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The contents of the terminal.
struct Shown(Screen);

impl Shown {
    fn contains(&self, text: &str) -> bool {
        self.0.contents().contains(text)
    }

    fn lines(&self) -> Vec<String> {
        self.0.rows(0, self.0.size().1).collect()
    }

    /// The line that the cursor of the heatmap is in.
    fn cursor(&self) -> Option<usize> {
        self.lines().iter().position(|line| line.chars().nth(10) == Some('>'))
    }
}

/// The number of half cells in a colour of the hot end of the scale.
fn hot(screen: &Shown) -> usize {
    let (rows, columns) = screen.0.size();
    let yellow = |colour| matches!(colour, Color::Rgb(200.., 120.., 0..=100));
    let cells = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
    let cells = cells.filter_map(|(row, column)| screen.0.cell(row, column));
    cells.map(|cell| usize::from(yellow(cell.bgcolor())) + usize::from(yellow(cell.fgcolor()))).sum()
}

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

fn size(cols: u16, rows: u16) -> PtySize {
    PtySize { rows, cols, pixel_width: 0, pixel_height: 0 }
}

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
            && holds(&["working set", "mapped", "%"])
            && holds(&["hot", "MiB", "warm", "cold", "unobs"])
            && holds(&["monitor", "% CPU", "regions", "reads/s", "late"])
            && holds(&["▁", "working set"]) | holds(&["█", "working set"])
            && holds(&["[stack]"])
            && holds(&["-30 s", "-10 s", "now"])
            && holds(&["access rate 0", "unobservable"])
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
    user.reads("access rate: 0 never to 9 always");
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
    let ran = place.run(&["top", "--schemes", "mine.yaml", "--physical"]);
    assert_eq!(ran.status, 2, "{ran:?}");
    assert!(ran.err.contains("schemes act on processes"), "{}", ran.err);
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
