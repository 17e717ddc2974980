//! `isotherm record`: writes a recording, and shows the progress.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use isotherm_agent::config::Group;
use isotherm_run::{Events, Prepared, RunConfig};

use crate::cli::Record;
use crate::command;
use crate::ending::Ending;
use crate::progress::Progress;
use crate::watch::{self, Call};
use crate::{complain, marks, tell};

pub fn run(options: &Record) -> Result<ExitCode> {
    let watch = &options.watch;
    let (stacks, streams) = (options.stacks, marks::streams(options.stdin_marks));
    let quiet = options.quiet;
    let files = Some(&options.files);
    let call = Call { quiet, stacks, streams, files, ..Call::new("record", watch).with(&options.physical) };
    let group = options.config.as_deref().map(group).transpose()?;
    let call = Call { recording: Some(options.output.clone()), group, ..call };
    marks::make_run(call, command::handle_signals, |run, events| record(run, events, options))
}

/// The run that watches the group in a file.
fn group(path: &Path) -> Result<RunConfig> {
    let text = isotherm_scheme::read_text(path)?;
    Ok(Group::parse(&path.display().to_string(), &text)?.run(None))
}

/// Records until the end of the run, and shows the progress.
fn record(run: Prepared, events: Events, options: &Record) -> Result<()> {
    let quiet = options.quiet;
    let mut ending = Ending::new(run.properties().budget.map(|budget| budget.cpu));
    let session = run.start().context("nothing was recorded")?;
    let mut progress = Progress::new(quiet);
    let summary = progress.follow(session, events, |event| ending.event(event))?;
    // A command that ends at once has a recording and a status all the same.
    match watch::check_recorded(&summary, &options.watch) {
        Err(nothing) if !options.watch.command.is_empty() => {
            if !quiet {
                complain(&nothing);
            }
            return Ok(());
        }
        checked => checked?,
    }
    progress.warn_of_gaps();
    if let Some(recording) = summary.recording.filter(|_| !quiet) {
        let path = recording.path.display();
        progress.done(format_args!("next: isotherm report summary {path}; isotherm report heatmap {path}"));
        let lines = ending.lines(summary.lasted, summary.snapshots, &recording.path, recording.bytes);
        let [time, rest @ ..] = lines;
        tell(format_args!("isotherm: {time}"));
        rest.iter().for_each(|line| tell(format_args!("  {line}")));
    }
    Ok(())
}
