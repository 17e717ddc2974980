//! `isotherm top`: the memory temperature of processes on a live screen.
//!
//! What is known ([`model`]) and what of it is looked at ([`app`]) are plain state that events and keys
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
use std::process::{ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::Result;
use isotherm_core::Granularity;
use isotherm_run::{Command, EndReason, Prepared, Streams};
use signal_hook::consts::{SIGCONT, SIGHUP};
use signal_hook::low_level::siginfo::Cause;

use crate::cli::Top;
use crate::command::{self, ENDING, OF_THE_COMMAND};
use crate::terminal::terminal;
use crate::watch::{self, Call};
use crate::{WrongCall, complain, tell};
use app::{App, Look, RunInfo};
use live::{ScreenEvent, Shared};
use screen::Screen;

/// How long a command may take to end before the user is told what is waited for.
const PATIENCE: Duration = Duration::from_secs(1);

pub fn run(options: &Top) -> Result<ExitCode> {
    let watch = &options.watch;
    // Keys are for the screen: the command has standard input only if that is no terminal.
    let streams = Streams::Detached { input: !stdin().is_terminal(), log: options.log.clone() };
    let call = Call::new("top", watch).with(&options.physical);
    let call = Call { schemes: options.schemes.as_deref(), memory_use: true, streams, ..call };
    call.validate()?;
    check_terminal()?;
    // Whatever can fail without the command does so before the command is started.
    let mut run = watch::prepare(call)?;
    let mut command = run.start_command()?;

    let shown = show(options, run, &mut command);
    let Some(command) = &mut command else {
        return shown.map(|()| ExitCode::SUCCESS);
    };
    if let Err(error) = &shown {
        complain(error);
    }
    command.terminate();
    let patience = Instant::now() + PATIENCE;
    while command.try_wait().is_none() && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(10));
    }
    if command.try_wait().is_none() {
        tell("isotherm: waiting for the command, which was asked to end (SIGTERM); Ctrl-C interrupts it");
    }
    command::exit_code(command, shown.is_ok())
}

/// A screen needs a terminal that can place its cursor.
fn check_terminal() -> Result<()> {
    let fix = "use isotherm record, then isotherm report";
    let wrong = |what: &str| Err(WrongCall::new("top", format!("{what}; {fix}")).into());
    if !stdout().is_terminal() {
        return wrong("the live screen needs a terminal, and standard output is none");
    }
    if std::env::var("TERM").is_ok_and(|term| term == "dumb") {
        return wrong("this terminal (TERM=dumb) cannot show a screen");
    }
    if !stdin().is_terminal() && File::open("/dev/tty").is_err() {
        return wrong("the live screen needs a terminal for its keys, and there is none");
    }
    Ok(())
}

/// Watches, and shows it until the user quits.
fn show(options: &Top, mut prepared: Prepared, command: &mut Option<Command>) -> Result<()> {
    let terminal = terminal();
    let output =
        options.log.as_deref().map_or("discarded; --log FILE keeps it".into(), |log| log.display().to_string());
    let properties = prepared.properties();
    let attributes = properties.attributes.unwrap_or_default();
    let run = RunInfo {
        probe: properties.probe.clone(),
        coarse: properties.granularity == Granularity::Mapping,
        aggregation: attributes.aggregation(),
        max_regions: attributes.max_regions(),
        output: command.as_ref().map(|_| output),
    };
    let state = Shared::new(App::new(run, Look { colour: terminal.colour, unicode: terminal.unicode }));

    let (sender, inputs) = live::inputs();
    let control = prepared.control();
    let pid = command.as_ref().map(Command::pid);
    let reload = options.schemes.is_some();
    let signalled = sender.clone();
    command::on_signals(ENDING.into_iter().chain(OF_THE_COMMAND).chain([SIGCONT]), move |origin| {
        let _ = match (origin.signal, pid) {
            (SIGCONT, _) => signalled.try_send(ScreenEvent::Continued),
            // A hang-up that a process sends reloads the schemes. The terminal's own is the end.
            (SIGHUP, _) if reload && origin.cause != Cause::Kernel => {
                control.reload_schemes();
                Ok(())
            }
            (signal, Some(pid)) if OF_THE_COMMAND.contains(&signal) => {
                command::pass_on(pid, origin);
                Ok(())
            }
            _ => signalled.send(ScreenEvent::Quit).map_err(Into::into),
        };
    })?;

    let mut screen = Screen::take()?;
    live::listen(sender.clone())?;
    prepared.add_sink("screen", live::sink(state.clone(), sender));
    let session = prepared.start()?;
    let mut ended = false;
    let shown = live::run(&mut screen, &state, &inputs, |reason| {
        ended = true;
        match reason {
            EndReason::DurationOver => None,
            EndReason::Finished => Some(match command.as_mut() {
                Some(command) => command.try_wait().map_or("the command ended".into(), how_it_ended),
                None => reason.to_string(),
            }),
            EndReason::Stopped => Some(reason.to_string()),
            EndReason::Failed(error) => Some(isotherm_run::chain(&**error)),
        }
    });
    drop(screen);
    // Inputs that nobody takes must not keep the sink from its end.
    drop(inputs);
    let summary = session.stop();
    // Warnings on the screen may have gone unseen. If the terminal has gone, nobody reads these either.
    for warning in &state.lock().warnings {
        tell(format_args!("isotherm: {warning}"));
    }
    match shown {
        // The terminal has hung up: its user has quit.
        Err(error) if error.chain().any(is_hang_up) => Ok(()),
        // What ended the run before its user quit is said once more: the screen is gone. A failure that the quitting
        // itself brings about is no news.
        shown => shown.and_then(|()| if ended { summary.map(drop).map_err(Into::into) } else { Ok(()) }),
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
