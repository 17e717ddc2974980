//! `isotherm tune`: watches for a while, and prints attributes, working sets and advice.

mod apply;
mod target_options;

use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use isotherm_output::{LockedOutput, Output, standard_output};
use isotherm_record::Recording;
use isotherm_report::tune::Tune as Report;
use isotherm_report::{Format, Kind, Selection, Terminal};
use isotherm_run::{EndReason, Events, Prepared};

use crate::WrongCall;
use crate::cli::Tune;
use crate::command;
use crate::marks;
use crate::progress::Progress;
use crate::report::{Destination, warn_of_damage, write_file};
use crate::tell;
use crate::terminal::terminal;
use crate::watch::{self, Call};
use target_options::target_options;

/// How long processes are watched: long enough for windows of 10 s, which advice needs, and for intervals to settle.
const DURATION: Duration = Duration::from_secs(30);

pub fn run(options: &Tune) -> Result<ExitCode> {
    let watch = &options.watch;
    let to = Destination::new("tune", options.format, options.output.as_deref(), Kind::Tune.formats())?;
    if let Some(path) = &options.record
        && path.metadata().is_ok_and(|kind| !kind.is_file())
    {
        let what = format!("{} is not a file; the recording is read for the report, so name a file", path.display());
        return Err(WrongCall::new("tune", what).into());
    }
    // What cannot be written is better known now than after the run.
    let [output, save] =
        [&options.output, &options.save].map(|path| path.as_deref().map(|path| Output::new(path).lock()));
    let (output, save) = (output.transpose()?, save.transpose()?);
    // Without --record, the recording has no name, so that nothing is left of it however isotherm ends.
    let temporary = match options.record {
        Some(_) => None,
        None => Some(tempfile::tempfile().context("no temporary recording can be made; name one with --record")?),
    };
    let unnamed = temporary.as_ref().map(|file| PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())));
    let recording = options.record.as_deref().or(unnamed.as_deref()).context("no temporary recording can be made")?;
    // A command is watched to its end.
    let default = if options.apply { apply::DURATION } else { DURATION };
    let duration = watch.duration.or(watch.command.is_empty().then_some(default));
    if options.apply {
        apply::check(options, duration.unwrap_or_default())?;
    }
    let call = Call { quiet: options.quiet, ..Call::new("tune", watch).with(&options.physical) };
    let targets = target_options(watch, &call.selection()?, options.physical.physical);
    let run = watch::prepare(Call { recording: Some(recording.into()), duration, ..call })?;
    let _socket = options.record.as_deref().and_then(|path| marks::listen(path, run.control()));
    let mut ended = None;
    let code = command::start_and_watch(run, watch.duration, command::handle_signals, |run, events| {
        ended = Some(observe(run, events, options)?);
        report(output, save, to.format, recording, targets)
    })?;
    match ended {
        // Who has ended the time early wants no more.
        Some(EndReason::DurationOver) if options.apply => apply::apply(options, recording),
        _ => Ok(code),
    }
}

/// Watches until the end of the run, and shows the progress. Returns why it ended.
fn observe(run: Prepared, events: Events, options: &Tune) -> Result<EndReason> {
    let session = run.start().context("nothing was recorded")?;
    let mut progress = Progress::new(options.quiet);
    let summary = progress.follow(session, events, |_| {})?;
    watch::check_recorded(&summary, &options.watch)?;
    progress.warn_of_gaps();
    Ok(summary.reason)
}

/// Writes the report on a recording, of targets that these options name.
fn report(
    output: Option<LockedOutput>,
    save: Option<LockedOutput>,
    format: Format,
    recording: &Path,
    targets: String,
) -> Result<()> {
    let recording = Recording::open(recording)?;
    warn_of_damage(&recording);
    let report = Report::new(&recording, &Selection::default(), Some(targets))?;
    match (save, report.schemes()) {
        (Some(save), Some(schemes)) => write_file(save.create()?, |out| Ok(out.write_all(schemes.as_bytes())?))?,
        (Some(_), None) => tell(format_args!("isotherm: no scheme is advised, so none is saved")),
        (None, _) => {}
    }
    match output {
        None => Ok(report.write(format, &terminal(), &mut standard_output())?),
        Some(output) => write_file(output.create()?, |out| report.write(format, &Terminal::default(), out)),
    }
}
