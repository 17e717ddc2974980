//! The command that a run starts and ends with.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use isotherm_kernel::has_arguments;
use isotherm_output::{Output, OutputError};
use rustix::process::{Pid, Signal, kill_process};

use crate::{CommandLine, RunError, Streams};

/// For how long the start of a command is waited for. A program may clear its own arguments.
const LONGEST_START: Duration = Duration::from_millis(100);

/// A command that a run started. Dropping it leaves the command running.
#[derive(Debug)]
pub struct Command {
    child: Child,
    terminated: bool,
}

impl Command {
    /// Starts the command of a run that reads these files.
    pub(crate) fn start(line: &CommandLine, inputs: &[PathBuf]) -> Result<Self, RunError> {
        let (program, arguments) = line.words.split_first().ok_or(crate::ConfigError::NoTarget)?;
        let mut command = std::process::Command::new(program);
        command.args(arguments);
        if let Some(user) = &line.user {
            user.run(&mut command);
        }
        match &line.streams {
            Streams::Inherited => {}
            Streams::WithoutInput => drop(command.stdin(Stdio::null())),
            Streams::Detached { input, log } => {
                let (output, errors) = match log {
                    Some(path) => {
                        let log = Output::new(path).apart_from(inputs).append()?;
                        let same = log.try_clone().map_err(|error| OutputError::new(path, error))?;
                        (same.into(), log.into())
                    }
                    None => (Stdio::null(), Stdio::null()),
                };
                let input = if *input { Stdio::inherit() } else { Stdio::null() };
                command.stdin(input).stdout(output).stderr(errors);
            }
        }
        let mut child = command.spawn().map_err(|source| RunError::Command {
            name: program.to_string_lossy().into(),
            hint: match source.kind() {
                io::ErrorKind::NotFound => "check its name and $PATH",
                io::ErrorKind::PermissionDenied => "check that it is an executable file, which its user may execute",
                _ => "try to start it without isotherm",
            },
            source,
        })?;
        wait_for_program(&mut child);
        Ok(Self { child, terminated: false })
    }

    /// Its process ID.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks the command to end (SIGTERM). Does nothing if it has ended.
    pub fn terminate(&mut self) {
        if let (Ok(None), Some(pid)) = (self.child.try_wait(), pid(self.child.id())) {
            self.terminated = kill_process(pid, Signal::TERM).is_ok();
        }
    }

    /// Whether [`terminate`](Self::terminate) asked a running command to end.
    pub fn was_terminated(&self) -> bool {
        self.terminated
    }

    /// Its exit status if it has ended.
    pub fn try_wait(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// If the kernel refuses to wait for it.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }
}

/// Waits until the program of a command runs, at most [`LONGEST_START`]. `spawn` returns while execve(2) is under way,
/// when the process has neither its arguments nor its mappings yet.
fn wait_for_program(child: &mut Child) {
    let start = Instant::now();
    let is_starting =
        |child: &mut Child| matches!(child.try_wait(), Ok(None)) && !has_arguments(Path::new("/"), child.id());
    while is_starting(child) && start.elapsed() < LONGEST_START {
        std::thread::sleep(Duration::from_micros(50));
    }
}

fn pid(id: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(id).ok()?)
}
