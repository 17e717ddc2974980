//! A user at a pseudo-terminal: runs `isotherm top`, types and looks.

use std::io::Write;
use std::sync::{Arc, Mutex};

use portable_pty::{Child, CommandBuilder, ExitStatus, MasterPty, PtySize, native_pty_system};
use rustix::process::{Pid, Signal, kill_process};
use vt100::{Color, Parser, Screen};

use crate::common::{HOT_IN_COLD, ISOTHERM, Place, eventually};

/// Short intervals that every probe can keep.
pub const FAST: [&str; 4] = ["--sample", "10ms", "--aggr", "100ms"];

/// A user at a terminal.
pub struct User {
    master: Box<dyn MasterPty + Send>,
    keyboard: Box<dyn Write + Send>,
    child: Box<dyn Child + Send + Sync>,
    pub seen: Arc<Mutex<Seen>>,
}

/// The output of the program so far.
pub struct Seen {
    parser: Parser,
    pub raw: Vec<u8>,
}

impl User {
    /// Runs `isotherm top` with these arguments on a terminal of 100 columns and 30 lines.
    pub fn runs(place: &Place, arguments: &[&str]) -> Self {
        Self::with(place, arguments, &[("COLORTERM", "truecolor")])
    }

    pub fn with(place: &Place, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
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

    pub fn call(place: &Place, arguments: &[&str], environment: &[(&str, &str)]) -> CommandBuilder {
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
    pub fn watches_hot(place: &Place) -> Self {
        std::fs::write(place.path("hot.toml"), HOT_IN_COLD).unwrap();
        let command = ["--", ISOTHERM, "workload", "hot.toml"];
        let user = Self::runs(place, &[&FAST[..], &command].concat());
        user.sees("the hot area is found", |screen| {
            let hottest = |line: &String| line.starts_with("1 ") && line.contains("128 MiB");
            hot(&screen) > 12 && screen.lines().iter().any(hottest)
        });
        user
    }

    pub fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
        self.keyboard.flush().unwrap();
    }

    pub fn screen(&self) -> Shown {
        Shown(self.seen.lock().unwrap().parser.screen().clone())
    }

    #[track_caller]
    pub fn sees(&self, what: &str, holds: impl Fn(Shown) -> bool) {
        let start = std::time::Instant::now();
        while !holds(self.screen()) {
            let text = self.screen().0.contents();
            assert!(start.elapsed().as_secs() < 30, "timed out waiting until {what}; the screen is:\n{text}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    #[track_caller]
    pub fn reads(&self, text: &str) {
        self.sees(text, |screen| screen.contains(text));
    }

    pub fn resizes(&self, columns: u16, rows: u16) {
        // The crate vt100 panics when a screen of one row scrolls. So its screen has at least two rows.
        self.seen.lock().unwrap().parser.screen_mut().set_size(rows.max(2), columns);
        self.master.resize(size(columns, rows)).unwrap();
    }

    /// Waits until the program has ended and has restored the terminal.
    #[track_caller]
    pub fn wait_for_end(&mut self) -> ExitStatus {
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

    pub fn signals(&self, signal: Signal) {
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
pub struct Shown(pub Screen);

impl Shown {
    pub fn contains(&self, text: &str) -> bool {
        self.0.contents().contains(text)
    }

    pub fn lines(&self) -> Vec<String> {
        self.0.rows(0, self.0.size().1).collect()
    }

    /// The line that the cursor of the heatmap is in.
    pub fn cursor(&self) -> Option<usize> {
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

pub fn size(cols: u16, rows: u16) -> PtySize {
    PtySize { rows, cols, pixel_width: 0, pixel_height: 0 }
}
