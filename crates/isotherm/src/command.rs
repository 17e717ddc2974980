//! The command that isotherm starts and watches: its signals, its end, its exit status.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use isotherm_run::{Command, Control, Events, Prepared};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};

use crate::{complain, has_no_reader};

/// Starts the command of a run, if it has one, and handles signals by `signals`. Then calls `watch`, which watches to
/// the end of the run. A command with a time `limit` gets SIGTERM at the end. Returns the exit status of isotherm.
///
/// The run is prepared: what can fail without the command has been done, and the command is not started in vain.
pub fn start_and_watch(
    mut run: Prepared,
    limit: Option<Duration>,
    signals: impl FnOnce(Option<&Command>, Control) -> Result<()>,
    watch: impl FnOnce(Prepared, Events) -> Result<()>,
) -> Result<ExitCode> {
    let events = run.subscribe();
    let command = run.start_command()?;
    raise_file_limit();
    signals(command.as_ref(), run.control())?;
    let watched = watch(run, events);
    match command {
        Some(command) => attend(command, watched, limit.is_some()),
        None => watched.map(|()| ExitCode::SUCCESS),
    }
}

/// Waits for a command that was watched. Returns the exit status of isotherm: that of the command, or 1 if watching it
/// failed. If watching failed, the command continues undisturbed. Otherwise it gets SIGTERM if the time was `limited`.
fn attend(mut command: Command, watched: Result<()>, limited: bool) -> Result<ExitCode> {
    // A reader of the output that has gone is no failure.
    let watched = watched.or_else(|error| if has_no_reader(&error) { Ok(()) } else { Err(error) });
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

/// Allows as many open files as the system lets this process have: the page tables of each process that is watched need
/// two. If there are too few, opening a process says so. A command that is started later has the limit, too.
pub fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
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
