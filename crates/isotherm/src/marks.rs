//! Marks for a run: from standard input, and by `isotherm mark`.

use std::io::{Write as _, stdin};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use std::thread;

use anyhow::{Context, Error, Result, bail};
use isotherm_core::{chain, sanitise};
use isotherm_input::Lines;
use isotherm_output::standard_output;
use isotherm_record::MarkText;
use isotherm_run::{Command, Control, Events, MarkError, MarkSocket, Prepared, RunningRecording, Streams};

use crate::cli::Mark;
use crate::watch::{self, Call};
use crate::{WrongCall, command, complain, tell};

/// `isotherm mark`: puts a mark into the recordings that are being made.
pub fn run(options: &Mark) -> Result<ExitCode> {
    let text = options.text.as_bytes();
    if MarkText::new(text).is_none() {
        return Err(WrongCall::new("mark", MarkError::Empty.to_string()).into());
    }
    let wanted = |running: &RunningRecording| options.recording.as_ref().is_none_or(|path| running.is_at(path));
    let running = RunningRecording::all().context("the running recordings cannot be found")?;
    let (mut marked, mut refused) = (vec![], 0);
    for recording in running.into_iter().filter(wanted) {
        let path = recording.path().display().to_string();
        match recording.mark(text) {
            Ok(()) => marked.push(path),
            Err(error) => {
                refused += 1;
                tell(format_args!("isotherm: {path} has not taken the mark: {}", chain(&error)));
            }
        }
    }
    if marked.len() + refused == 0 {
        match &options.recording {
            Some(path) => bail!(
                "no recorder that this user may reach records to {} (check that it runs, and as which user)",
                path.display()
            ),
            None => bail!("this user has no recording in progress (start one with `isotherm record`)"),
        }
    }
    if !options.quiet {
        let have = if marked.len() == 1 { "recording has" } else { "recordings have" };
        let list = if marked.is_empty() { String::new() } else { format!(": {}", marked.join(", ")) };
        writeln!(standard_output(), "{}", sanitise(&format!("{} {have} the mark{list}", marked.len())))?;
    }
    Ok(if refused > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Makes the run of a call: prepares it, starts its command, and watches to its end by `watch`, as
/// [`command::start_and_watch`] does. `isotherm mark` reaches a run that is recorded. If the standard streams are those
/// that [`streams`] gives for marks, the lines of standard input are marks, too.
pub fn make_run(
    call: Call,
    signals: impl FnOnce(Option<&Command>, Control) -> Result<()>,
    watch: impl FnOnce(Prepared, Events) -> Result<()>,
) -> Result<ExitCode> {
    let (limit, recording) = (call.duration, call.recording.clone());
    let takes_lines = matches!(call.streams, Streams::WithoutInput);
    let run = watch::prepare(call)?;
    let _socket = recording.and_then(|path| listen(&path, run.control()));
    command::start_and_watch(run, limit, signals, |run, events| {
        if takes_lines {
            from_standard_input(run.control())?;
        }
        watch(run, events)
    })
}

/// Lets `isotherm mark` reach the run that records to this path, until the socket is dropped. Without a socket, the run
/// goes on.
pub fn listen(recording: &Path, control: Control) -> Option<MarkSocket> {
    let socket = MarkSocket::open(recording, control);
    let unreachable = |error| tell(format_args!("isotherm: `isotherm mark` cannot reach this recording: {error}"));
    socket.map_err(unreachable).ok()
}

/// The standard streams of a command: it has no input if its lines are marks.
pub fn streams(stdin_marks: bool) -> Streams {
    if stdin_marks { Streams::WithoutInput } else { Streams::Inherited }
}

/// Takes each line of standard input as a mark of the run, on a thread that nobody waits for.
fn from_standard_input(control: Control) -> Result<()> {
    let take = move || {
        // One byte more than is kept shows that a text was cut.
        for line in Lines::new(stdin().lock(), MarkText::LONGEST + 1) {
            let taken = line.context("standard input cannot be read").and_then(|line| match control.mark(line) {
                // An empty line is no mark.
                Err(MarkError::Empty) => Ok(()),
                taken => Ok(taken?),
            });
            if let Err(error) = taken {
                return refuse(&error);
            }
        }
    };
    thread::Builder::new().name("marks".into()).spawn(take).context("the thread for marks cannot be started")?;
    Ok(())
}

/// Says why no more marks are taken, unless the run is over.
fn refuse(error: &Error) {
    if error.downcast_ref() != Some(&MarkError::Over) {
        complain(error);
    }
}
