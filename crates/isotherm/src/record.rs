//! `isotherm record`: writes a recording, and shows the progress.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use isotherm_core::units;
use isotherm_run::{Events, Prepared};

use crate::cli::Record;
use crate::command;
use crate::progress::Progress;
use crate::watch::{self, Call};

pub fn run(options: &Record) -> Result<ExitCode> {
    let watch = &options.watch;
    // Everything that can fail without the command is done before the command is started.
    let call = Call::new("record", watch).with(&options.physical);
    let mut run = watch::prepare(Call { recording: Some(options.output.clone()), ..call })?;
    let events = run.subscribe();
    let command = run.start_command()?;
    command::handle_signals(command.as_ref(), run.control())?;
    command::survive_file_size_limit()?;
    let recorded = record(run, events, options.quiet);
    match command {
        Some(command) => command::attend(command, recorded, watch.duration.is_some()),
        None => recorded.map(|()| ExitCode::SUCCESS),
    }
}

/// Records until the end of the run, and shows the progress.
fn record(run: Prepared, events: Events, quiet: bool) -> Result<()> {
    let aggregation = run.properties().attributes.unwrap_or_default().aggregation();
    let session = run.start().context("nothing was recorded")?;
    let mut progress = Progress::new(quiet);
    for event in events {
        progress.event(&event);
    }
    progress.clear();
    let summary = session.wait()?;
    if summary.snapshots == 0 {
        bail!(
            "nothing was recorded: the run ended after {}, before the end of the first aggregation interval ({}); \
             shorten it with --aggr",
            units::duration(summary.lasted),
            units::duration(aggregation)
        );
    }
    progress.warn_of_gaps();
    if let Some(recording) = summary.recording {
        let path = recording.path.display();
        let (lasted, size) = (units::duration(summary.lasted), units::bytes(recording.bytes));
        progress.done(format_args!("{} snapshots in {lasted}, {size} in {path}", summary.snapshots));
        progress.done(format_args!("next: isotherm report summary {path}; isotherm report heatmap {path}"));
    }
    Ok(())
}
