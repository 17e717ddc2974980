//! A process that is watched and acted on: it checks its own memory, again and again.

use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The environment variable that makes a process a target: the number of rounds after which it ends, or 0.
pub const ROUNDS: &str = "ISOTHERM_SOAK_TARGET";

/// The environment variable that makes a process the parent of targets that come and go.
pub const CHURN: &str = "ISOTHERM_SOAK_CHURN";

/// The prefix of an answer; the output of a test harness does not have it.
const ANSWER: &str = "@ ";

/// The size of its memory in words.
const WORDS: usize = 1 << 18;

/// Is a target, in a process with [`ROUNDS`] in its environment.
///
/// It writes to 2 MiB of memory and checks all of it in each round. It answers each line of its input after two more
/// rounds, and ends with its input. The exit status is 77 when its memory is not what it wrote.
pub fn is_target(rounds: u64) -> ExitCode {
    static DONE: AtomicU64 = AtomicU64::new(0);
    let expected = |word: usize| (word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let memory: Vec<u64> = (0..WORDS).map(expected).collect();
    let check = move || {
        loop {
            let memory = std::hint::black_box(&memory);
            if memory.iter().enumerate().any(|(word, value)| *value != expected(word)) {
                std::process::exit(77);
            }
            let done = DONE.fetch_add(1, Ordering::Relaxed) + 1;
            if done == rounds {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    if rounds > 0 {
        check();
        return ExitCode::SUCCESS;
    }
    std::thread::spawn(check);
    let answer = |text: &str| {
        let mut output = io::stdout().lock();
        writeln!(output, "{ANSWER}{text}").and_then(|()| output.flush())
    };
    let mut questions = io::stdin().lines();
    let mut told = answer("ready");
    while told.is_ok() && questions.next().is_some_and(|line| line.is_ok()) {
        let begun = DONE.load(Ordering::Relaxed);
        while DONE.load(Ordering::Relaxed) < begun + 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
        told = answer("whole");
    }
    ExitCode::SUCCESS
}

/// How a target is started: a program and its arguments.
#[derive(Clone, Debug)]
pub struct Start(pub Vec<String>);

impl Start {
    /// The name of its program.
    pub fn name(&self) -> String {
        let program = self.0.first().map(Path::new).and_then(Path::file_name);
        program.unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Starts a target, and waits until it has written to its memory.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn target(&self) -> io::Result<Target> {
        let (program, arguments) = self.0.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command.args(arguments).env(ROUNDS, "0").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let mut target = Target { child, input, output: BufReader::new(output) };
        target.answer()?;
        Ok(target)
    }
}

/// A target that runs. It is killed when this is dropped.
#[derive(Debug)]
pub struct Target {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Target {
    /// Its process ID.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it has checked all of its memory once more.
    ///
    /// # Errors
    /// If it has ended, because its memory is not what it wrote or for another reason.
    pub fn check(&mut self) -> io::Result<()> {
        writeln!(self.input, "?")?;
        self.answer()
    }

    fn answer(&mut self) -> io::Result<()> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.output.read_line(&mut line)? == 0 {
                return Err(io::Error::other(format!("the target has ended: {}", self.child.wait()?)));
            }
            if line.contains(ANSWER) {
                return Ok(());
            }
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
