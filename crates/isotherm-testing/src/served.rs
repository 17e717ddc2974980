//! A process that executes the commands of a test.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::env;
use std::fmt::Display;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, getppid, kill_process_group, set_parent_process_death_signal};

/// Set in the environment of the process, to the process ID of the test.
const ROLE: &str = "ISOTHERM_TEST_SERVED";

/// The prefix of an answer. The output of the test harness does not have it.
const ANSWER: &str = "@ ";

/// A process that executes one command at a time, so that no test depends on timing.
///
/// The process is the test binary, started again to run only one ignored test, which calls [`serve`]. It and its
/// children are killed when the value is dropped.
#[derive(Debug)]
pub struct Served {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Served {
    /// Starts the process, which runs the test with this name.
    ///
    /// # Panics
    /// When the process cannot be started.
    pub fn start(test: &str) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"])
            .env(ROLE, std::process::id().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let commands = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut served = Self { child, commands, answers };
        served.answer();
        served
    }

    /// The process ID.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a command and waits until it is done.
    ///
    /// # Panics
    /// When the process ends, or answers with an error.
    pub fn request(&mut self, command: &str) -> u64 {
        writeln!(self.commands, "{command}").unwrap();
        self.answer()
    }

    /// Kills the process and its children and waits until it has ended.
    pub fn kill(&mut self) {
        // The process leads a group of its own, which contains only the process and its children.
        let group = Pid::from_child(&self.child);
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }

    fn answer(&mut self) -> u64 {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.answers.read_line(&mut line).unwrap(), 0, "the process ended unexpectedly");
            // The test harness prints the name of the test without a newline before the first answer.
            if let Some((_, answer)) = line.split_once(ANSWER) {
                return answer.trim().parse().unwrap_or_else(|_| panic!("the process says: {answer}"));
            }
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Executes the commands of the test that started this process, until it closes its end. The ignored test that
/// [`Served::start`] names calls this.
///
/// # Errors
/// When no test has started this process, the reason for which the test is skipped.
///
/// # Panics
/// When the test has ended already.
pub fn serve<E: Display>(mut obey: impl FnMut(&str) -> Result<u64, E>) -> Result<(), &'static str> {
    let test = env::var(ROLE).map_err(|_| "it is a part of other tests")?;
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    assert_eq!(getppid().map(|pid| pid.to_string()), Some(test), "the test has ended already");
    println!("{ANSWER}0");
    for line in io::stdin().lines() {
        match obey(&line.unwrap()) {
            Ok(value) => println!("{ANSWER}{value}"),
            Err(error) => println!("{ANSWER}{error}"),
        }
    }
    Ok(())
}
