//! `isotherm top`: shows the memory temperature of processes on a live screen.
//!
//! [`model`] has the data of the run, and [`app`] the part of it that is shown. Both are plain state, which events and
//! keys change. [`draw`] draws the state into the cells of a screen. Only [`live`] and [`screen`] use the terminal.

mod address_lines;
mod app;
mod cgroups;
mod connected;
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
mod processes;
mod scheme_activity;
mod screen;
mod shares;
mod sort;

use std::fs::File;
use std::io::{IsTerminal, stdin, stdout};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::Result;
use isotherm_core::Granularity;
use isotherm_run::{Command, EndReason, Need, Prepared, SchemeSource, Streams};
use signal_hook::consts::{SIGCONT, SIGHUP};
use signal_hook::low_level::siginfo::Cause;

use crate::cli::Top;
use crate::command::{self, ENDING, OF_THE_COMMAND};
use crate::terminal::terminal;
use crate::watch::{self, Call};
use crate::{WrongCall, complain, tell};
use app::{App, Appearance, RunInfo};
use live::{ScreenEvent, Shared};
use screen::Screen;

/// How long a command may take to end before a message says that isotherm waits for it.
const PATIENCE: Duration = Duration::from_secs(1);

/// The screen shows something new at least this often.
const SLOWEST: Duration = Duration::from_secs(1);

pub fn run(options: &Top) -> Result<ExitCode> {
    if let Some(group) = &options.connect {
        check_terminal()?;
        return connected::run(options, group);
    }
    let watch = &options.watch;
    // The screen reads keys from the terminal. So the command gets standard input only if that is not a terminal.
    let streams = Streams::Detached { input: !stdin().is_terminal(), log: options.log.clone() };
    let call = Call::new("top", watch).with(&options.physical);
    let call = Call {
        schemes: options.schemes.clone().map(SchemeSource::File),
        memory_use: true,
        files: Some(&options.files),
        streams,
        most_aggregation: Some(SLOWEST),
        ..call
    };
    call.validate()?;
    check_terminal()?;
    // Everything that can fail without the command is done before the command is started.
    let mut run = watch::prepare(call)?;
    let mut command = run.start_command()?;
    command::raise_file_limit();

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
        tell("isotherm: waiting for the command to end after SIGTERM; Ctrl-C interrupts it");
    }
    command::exit_code(command, shown.is_ok())
}

/// Checks that there is a terminal for the screen and for keys.
fn check_terminal() -> Result<()> {
    let fix = "use isotherm record, then isotherm report";
    let wrong = |what: &str| Err(WrongCall::new("top", format!("{what}; {fix}")).into());
    if !stdout().is_terminal() {
        return wrong("the live screen needs a terminal, but standard output is not one");
    }
    if std::env::var("TERM").is_ok_and(|term| term == "dumb") {
        return wrong("this terminal (TERM=dumb) cannot show a live screen");
    }
    #[allow(clippy::disallowed_methods, reason = "whether there is a terminal")]
    let has_terminal = || File::open("/dev/tty").is_ok();
    if !stdin().is_terminal() && !has_terminal() {
        return wrong("the live screen needs a terminal for keys, but there is none");
    }
    Ok(())
}

/// Runs the monitor and shows its data until the user quits.
fn show(options: &Top, mut prepared: Prepared, command: &mut Option<Command>) -> Result<()> {
    let terminal = terminal();
    let output =
        options.log.as_deref().map_or("discarded; --log FILE keeps it".into(), |log| log.display().to_string());
    let properties = prepared.properties();
    let attributes = properties.attributes.unwrap_or_default();
    let budget = properties.budget.unwrap_or_default().cpu;
    let run = RunInfo {
        probe: properties.probe.clone(),
        coarse: properties.granularity == Granularity::Mapping,
        sampled: properties.samples,
        aggregation: attributes.aggregation(),
        max_regions: attributes.max_regions(),
        output: command.as_ref().map(|_| output),
    };
    let state = Shared::new(App::new(run, Appearance { colour: terminal.colour, unicode: terminal.unicode }));

    let (sender, inputs) = live::inputs();
    let control = prepared.control();
    let pid = command.as_ref().map(Command::pid);
    let reload = options.schemes.is_some();
    let signalled = sender.clone();
    command::on_signals(ENDING.into_iter().chain(OF_THE_COMMAND).chain([SIGCONT]), move |origin| {
        let _ = match (origin.signal, pid) {
            (SIGCONT, _) => signalled.try_send(ScreenEvent::Continued),
            // A SIGHUP from a process reloads the schemes. A SIGHUP from the terminal ends the run.
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
    let helpers = prepared.helper_cpu();
    live::listen(sender.clone(), helpers.clone())?;
    prepared.add_sink("screen", Need::Needed, live::sink(state.clone(), sender));
    let session = prepared.start()?;
    let mut ended = false;
    let shown = live::run(&mut screen, &state, &inputs, &helpers, budget, |reason| {
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
    // The sink must not block on a full channel.
    drop(inputs);
    let summary = session.stop();
    // The screen may have hidden warnings too soon, so they are printed again.
    for warning in &state.lock().warnings {
        tell(format_args!("isotherm: {warning}"));
    }
    match shown {
        // The terminal has hung up, which is the same as quitting.
        Err(error) if error.chain().any(is_hang_up) => Ok(()),
        // An error that ended the run before the user quit is reported again, because the screen is gone. An error
        // after that is a result of quitting.
        shown => shown.and_then(|()| if ended { summary.map(drop).map_err(Into::into) } else { Ok(()) }),
    }
}

/// Whether the error means that the terminal has hung up.
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
pub(crate) mod fixtures;
