//! The command that isotherm starts and watches: its signals, its end, its exit status.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use anyhow::{Context, Result};
use isotherm_run::{Command, Control};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};

use crate::complain;

/// Waits for a command that was watched. Returns the exit status of isotherm: that of the command, or 1 if watching it
/// failed. If watching failed, the command continues undisturbed. Otherwise it gets SIGTERM if the time was `limited`.
pub fn attend(mut command: Command, watched: Result<()>, limited: bool) -> Result<ExitCode> {
    if let Err(error) = &watched {
        complain(error);
    } else if limited {
        command.terminate();
    }
    exit_code(&mut command, watched.is_ok())
}

/// Waits for the command. Returns the exit status of isotherm: that of the command, or 128 plus the number of the
/// signal that ended it; 0 if isotherm ended it, and 1 if watching it failed.
pub fn exit_code(command: &mut Command, watched: bool) -> Result<ExitCode> {
    let status = command.wait().context("waiting for the command failed")?;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    let code = code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX);
    Ok(match watched {
        true if command.was_terminated() => ExitCode::SUCCESS,
        true => ExitCode::from(code),
        false => ExitCode::FAILURE,
    })
}

/// The signals that end isotherm, or are passed to the command.
pub const ENDING: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];
/// The signals that mean nothing to isotherm, and are passed to the command.
pub const OF_THE_COMMAND: [i32; 2] = [SIGUSR1, SIGUSR2];

/// Starts to handle signals. With a command, each signal is passed to it. Without one, the signals [`ENDING`] stop the
/// run.
pub fn handle_signals(command: Option<&Command>, control: Control) -> Result<()> {
    match command.map(Command::pid) {
        Some(command) => on_signals(ENDING.into_iter().chain(OF_THE_COMMAND), move |origin| pass_on(command, origin)),
        None => on_signals(ENDING, move |_| control.stop()),
    }
}

/// Starts a thread that calls `act` at each of these signals.
pub fn on_signals(signals: impl IntoIterator<Item = i32>, mut act: impl FnMut(&Origin) + Send + 'static) -> Result<()> {
    let signals = SignalsInfo::<WithOrigin>::new(signals);
    let mut signals = signals.context("signals cannot be handled")?;
    let handle = move || signals.forever().for_each(|origin| act(&origin));
    thread::Builder::new().name("signals".into()).spawn(handle).context("the thread for signals cannot be started")?;
    Ok(())
}

/// Makes a write beyond the limit on file sizes (setrlimit(2)) return an error instead of killing isotherm.
pub fn survive_file_size_limit() -> Result<()> {
    let noted = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGXFSZ, noted).context("signals cannot be handled")?;
    Ok(())
}

/// Passes a signal to the command. Signals from the terminal are left out, because the terminal sends them to the whole
/// process group.
pub fn pass_on(command: u32, origin: &Origin) {
    if origin.cause == Cause::Kernel {
        return;
    }
    // isotherm waits for the command only after the run, so no other process can have its ID.
    if let (Some(pid), Some(signal)) = (pid(command), Signal::from_named_raw(origin.signal)) {
        let _ = kill_process(pid, signal);
    }
}

fn pid(id: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(id).ok()?)
}
