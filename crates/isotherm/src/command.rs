//! The command that isotherm starts and watches: its signals, its end, its exit status.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use anyhow::{Context, Result, anyhow};
use isotherm_kernel::Stop;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};

use crate::complain;

/// A command that isotherm started and ends with.
pub struct Command {
    child: Child,
    terminated: bool,
}

/// How a command ended.
pub struct Ended {
    /// The exit status that passes its own on: the same, or 128 and the number of the signal that ended it.
    pub code: u8,
    /// Whether it ended because it was asked to by [`Command::terminate`].
    pub by_us: bool,
}

impl Command {
    /// Starts the command: same terminal, same standard streams.
    pub fn start(words: &[OsString]) -> Result<Self> {
        Self::spawn(words, |_| {})
    }

    /// Starts the command away from the terminal: with this input, and with its output and errors in `log`, or nowhere.
    pub fn start_apart(words: &[OsString], input: Stdio, log: Option<(File, File)>) -> Result<Self> {
        let (out, err) = log.map_or_else(|| (Stdio::null(), Stdio::null()), |(out, err)| (out.into(), err.into()));
        Self::spawn(words, |command| _ = command.stdin(input).stdout(out).stderr(err))
    }

    fn spawn(words: &[OsString], streams: impl FnOnce(&mut std::process::Command)) -> Result<Self> {
        let (program, arguments) = words.split_first().context("the command is empty")?;
        let mut command = std::process::Command::new(program);
        streams(command.args(arguments));
        let child = command.spawn().map_err(|error| {
            let name = program.to_string_lossy();
            let mend = match error.kind() {
                io::ErrorKind::NotFound => "check its name and $PATH",
                io::ErrorKind::PermissionDenied => "is it an executable file?",
                _ => "try to start it without isotherm",
            };
            anyhow!("the command {name:?} cannot be started: {error}; {mend}")
        })?;
        Ok(Self { child, terminated: false })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks the command to end; it may take its time.
    pub fn terminate(&mut self) {
        // Nothing to do if it has ended already.
        if let (Ok(None), Some(pid)) = (self.child.try_wait(), pid(self.child.id())) {
            self.terminated = kill_process(pid, Signal::TERM).is_ok();
        }
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> Result<Ended> {
        let status = self.child.wait().context("waiting for the command failed")?;
        let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
        let code = code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX);
        Ok(Ended { code, by_us: self.terminated })
    }
}

/// The exit status of what `watched` a command: the command's own. It is not to suffer from what befell its watching: if that failed, it
/// lives on, and if its time was `limited`, it is asked to end.
pub fn attend(mut command: Command, watched: Result<()>, limited: bool) -> Result<ExitCode> {
    if let Err(error) = &watched {
        complain(error);
    } else if limited {
        command.terminate();
    }
    let ended = command.wait()?;
    Ok(match watched {
        Ok(()) if ended.by_us => ExitCode::SUCCESS,
        Ok(()) => ExitCode::from(ended.code),
        Err(_) => ExitCode::FAILURE,
    })
}

/// The signals that end a program unless it handles them, and those that are the command's own affair.
pub const ENDING: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];
pub const OF_THE_COMMAND: [i32; 2] = [SIGUSR1, SIGUSR2];

/// Handles signals from here on: with a command, each is passed to it; without, those that end a program stop the run.
pub fn handle_signals(command: Option<&Command>, stop: Stop) -> Result<()> {
    match command.map(Command::pid) {
        Some(command) => on_signals(ENDING.into_iter().chain(OF_THE_COMMAND), move |origin| pass_on(command, origin)),
        None => on_signals(ENDING, move |_| stop.ask()),
    }
}

/// Does this at each of these signals from here on, on a thread of its own.
pub fn on_signals(signals: impl IntoIterator<Item = i32>, mut act: impl FnMut(&Origin) + Send + 'static) -> Result<()> {
    let signals = SignalsInfo::<WithOrigin>::new(signals);
    let mut signals = signals.context("signals cannot be handled")?;
    let handle = move || signals.forever().for_each(|origin| act(&origin));
    thread::Builder::new().name("signals".into()).spawn(handle).context("the signals' thread cannot be started")?;
    Ok(())
}

/// Makes a write beyond the limit of file sizes an error instead of this process's death.
pub fn survive_file_size_limit() -> Result<()> {
    let noted = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGXFSZ, noted).context("signals cannot be handled")?;
    Ok(())
}

/// Passes a signal on, unless the command has it already: what the terminal sends goes to the whole process group.
pub fn pass_on(command: u32, origin: &Origin) {
    if origin.cause == Cause::Kernel {
        return;
    }
    // The command is not waited for before the run is over, so that its ID is still its own.
    if let (Some(pid), Some(signal)) = (pid(command), Signal::from_named_raw(origin.signal)) {
        let _ = kill_process(pid, signal);
    }
}

fn pid(id: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(id).ok()?)
}
