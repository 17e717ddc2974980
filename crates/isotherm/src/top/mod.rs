//! `isotherm top`: the memory temperature of processes on a live screen.
//!
//! What is known ([`model`]) and what of it is looked at ([`app`]) are plain state that findings and keys
//! change; [`draw`] makes the cells of a screen of it; [`live`] and [`screen`] are all that touches a
//! terminal.

mod address_lines;
mod app;
mod draw;
mod figures;
mod frame;
mod grid;
mod history;
mod keys;
mod layout;
mod live;
mod mapped_history;
mod mapped_space;
mod model;
mod scheme_activity;
mod screen;
mod sort;

use std::fs::File;
use std::io::{IsTerminal, stdin, stdout};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use isotherm_core::Granularity;
use signal_hook::consts::{SIGCONT, SIGHUP};
use signal_hook::low_level::siginfo::Cause;

use crate::cli::Top;
use crate::command::{self, Command, ENDING, OF_THE_COMMAND};
use crate::session::Control;
use crate::steering;
use crate::terminal::terminal;
use crate::watch::Ready;
use crate::{complain, tell, wrong_call};
use app::{App, Look, RunInfo};
use live::{News, Shared};
use screen::Screen;

/// How long a command may take to end before the user is told what is waited for.
const PATIENCE: Duration = Duration::from_secs(1);

pub fn run(options: &Top) -> Result<ExitCode> {
    let watch = &options.watch;
    if options.schemes.is_some() {
        steering::check("top", watch);
    }
    check_terminal();
    // Whatever can fail without the command does so before the command is started.
    let ready = Ready::new("top", watch)?;
    let schemes = match options.schemes.as_deref().map(steering::Ready::new).transpose()? {
        Some(None) => return Ok(ExitCode::FAILURE),
        schemes => schemes.flatten(),
    };
    let control = Control::new()?;
    let log = options.log.as_deref().map(create).transpose()?;
    let mut command = if watch.command.is_empty() {
        None
    } else {
        // Keys are ours: the command has standard input only if that is no terminal.
        let input = if stdin().is_terminal() { Stdio::null() } else { Stdio::inherit() };
        Some(Command::start_apart(&watch.command, input, log)?)
    };

    let shown = show(options, ready, schemes, control, &mut command);
    let Some(command) = &mut command else {
        return shown.map(|()| ExitCode::SUCCESS);
    };
    if let Err(error) = &shown {
        complain(error);
    }
    command.terminate();
    let patience = Instant::now() + PATIENCE;
    while command.ended().is_none() && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(10));
    }
    if command.ended().is_none() {
        tell("isotherm: the command was asked to end (SIGTERM) and takes its time; Ctrl-C interrupts it");
    }
    let ended = command.wait()?;
    Ok(match shown {
        Ok(()) if ended.by_us => ExitCode::SUCCESS,
        Ok(()) => ExitCode::from(ended.code),
        Err(_) => ExitCode::FAILURE,
    })
}

/// A screen needs a terminal that can place its cursor.
fn check_terminal() {
    let mend = "use isotherm record, then isotherm report";
    if !stdout().is_terminal() {
        wrong_call("top", format!("the live screen needs a terminal, and standard output is none; {mend}"));
    }
    if std::env::var("TERM").is_ok_and(|term| term == "dumb") {
        wrong_call("top", format!("this terminal (TERM=dumb) cannot show a screen; {mend}"));
    }
    if !stdin().is_terminal() && File::open("/dev/tty").is_err() {
        wrong_call("top", format!("the live screen needs a terminal for its keys, and there is none; {mend}"));
    }
}

/// The file for the command's output and errors; for its owner only, like all that tells of a process's memory.
fn create(path: &Path) -> Result<(File, File)> {
    use std::os::unix::fs::OpenOptionsExt;
    let file = File::options().append(true).create(true).mode(0o600).open(path);
    file.and_then(|out| Ok((out.try_clone()?, out)))
        .with_context(|| format!("the log {} cannot be written; name another file with --log", path.display()))
}

/// Watches, and shows it until someone quits.
fn show(
    options: &Top,
    ready: Ready,
    schemes: Option<steering::Ready>,
    control: Control,
    command: &mut Option<Command>,
) -> Result<()> {
    let watch = &options.watch;
    let terminal = terminal();
    let output =
        options.log.as_deref().map_or("discarded; --log FILE keeps it".into(), |log| log.display().to_string());
    let run = RunInfo {
        probe: ready.chosen.name,
        coarse: ready.chosen.granularity() == Granularity::Mapping,
        aggregation: ready.attributes.aggregation(),
        max_regions: ready.attributes.max_regions(),
        output: command.as_ref().map(|_| output),
    };
    let state = Shared::new(App::new(run, Look { colour: terminal.colour, unicode: terminal.unicode }));
    let session = ready.session(watch, command.as_ref())?;

    let (sender, news) = live::news();
    let pid = command.as_ref().map(Command::pid);
    let reload = schemes.as_ref().map(steering::Ready::reload);
    let signalled = sender.clone();
    command::on_signals(ENDING.into_iter().chain(OF_THE_COMMAND).chain([SIGCONT]), move |origin| {
        let _ = match (origin.signal, pid) {
            (SIGCONT, _) => signalled.try_send(News::Continued),
            // The hang-up that someone sends is for the schemes. The terminal's own is the end.
            (SIGHUP, _) if reload.is_some() && origin.cause != Cause::Kernel => {
                reload.iter().for_each(|reload| reload());
                Ok(())
            }
            (signal, Some(pid)) if OF_THE_COMMAND.contains(&signal) => {
                command::pass_on(pid, origin);
                Ok(())
            }
            _ => signalled.send(News::Quit).map_err(Into::into),
        };
    })?;

    let mut screen = Screen::take()?;
    live::listen(sender.clone())?;
    let start = Instant::now();
    let monitor = live::start(session, schemes, control.clone(), state.clone(), sender)?;
    let watched = live::run(&mut screen, &state, &news, |result| match result {
        Ok(()) if watch.duration.is_some_and(|duration| start.elapsed() >= duration) => None,
        Ok(()) => Some(match command.as_mut() {
            Some(command) => command.ended().map_or("the command ended".into(), how_it_ended),
            None => "no target is left".into(),
        }),
        Err(error) => Some(format!("{error:#}")),
    });
    drop(screen);
    control.stop.ask();
    // News that nobody reads must not keep the collector from its end.
    drop(news);
    let _ = monitor.join();
    // What was told on the screen may have gone unseen. If the terminal has gone, there is nobody to tell.
    for warning in &state.lock().warnings {
        tell(format_args!("isotherm: {warning}"));
    }
    // What ended the watching before someone quit is told once more: the screen is gone.
    match watched {
        // The terminal has hung up; whoever it was has quit.
        Err(error) if error.chain().any(is_hang_up) => Ok(()),
        watched => watched?.unwrap_or(Ok(())),
    }
}

/// Whether a terminal said this because there is nobody at its other end any more.
fn is_hang_up(error: &(dyn std::error::Error + 'static)) -> bool {
    let hung_up = Some(rustix::io::Errno::IO.raw_os_error());
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.raw_os_error() == hung_up)
}

fn how_it_ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("the command ended with status {code}"),
        (None, Some(signal)) => format!("the command was ended by signal {signal}"),
        (None, None) => "the command ended".into(),
    }
}

#[cfg(test)]
mod fixtures;
