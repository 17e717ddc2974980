//! `isotherm record`: probe, targets, monitor and recording, wired together.

use std::process::ExitCode;
use std::sync::mpsc::sync_channel;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use isotherm_kernel::Host;
use isotherm_record::{Header, Recorder};

use crate::cli::Record;
use crate::command::{self, Command};
use crate::progress::{Progress, size};
use crate::session::Control;
use crate::units::unix_ns;
use crate::watch::{Ready, Watching};

/// How many snapshots may wait for the disk before the monitor waits for it, too.
pub const BACKLOG: usize = 64;

pub fn run(options: &Record) -> Result<ExitCode> {
    let watch = &options.watch;
    // Whatever can fail without the command does so before the command is started.
    let ready = Ready::new("record", watch)?;
    let recorder = Recorder::create(&options.output, &header(&ready))?;
    let control = Control::new()?;
    let command = if watch.command.is_empty() { None } else { Some(Command::start(&watch.command)?) };
    command::handle_signals(command.as_ref(), control.stop.clone())?;
    command::survive_file_size_limit()?;

    let session = ready.session(watch, command.as_ref()).context("nothing was recorded");
    let recorded = session.and_then(|session| record(session, recorder, control, options.quiet));
    match command {
        Some(command) => command::attend(command, recorded, watch.duration.is_some()),
        None => recorded.map(|()| ExitCode::SUCCESS),
    }
}

/// What a recording says of its run.
pub fn header(Ready { chosen, attributes, seed, .. }: &Ready) -> Header {
    let Host { name, kernel, architecture, cpus, memory_bytes } = Host::read();
    Header {
        isotherm_version: env!("CARGO_PKG_VERSION").into(),
        probe: chosen.name.into(),
        granularity: chosen.granularity_name().into(),
        sampling_ns: attributes.sampling().as_nanos() as u64,
        aggregation_ns: attributes.aggregation().as_nanos() as u64,
        update_ns: attributes.update().as_nanos() as u64,
        min_regions: attributes.min_regions() as u64,
        max_regions: attributes.max_regions() as u64,
        seed: *seed,
        started_unix_ns: unix_ns(),
        host: isotherm_record::Host { name, kernel, architecture, cpus, memory_bytes },
    }
}

/// Runs the monitor to its end, and writes down what it finds.
fn record(session: Watching, mut recorder: Recorder, control: Control, quiet: bool) -> Result<()> {
    let aggregation = session.attributes().aggregation();
    let (sender, findings) = sync_channel(BACKLOG);
    let start = Instant::now();
    let monitor = session.start(sender, control)?;

    let mut progress = Progress::new(quiet);
    let mut snapshots = 0_u64;
    let mut written = Ok(());
    for finding in findings {
        progress.update(&finding);
        snapshots += 1;
        written = recorder.write(&finding.snapshot, &finding.cost, &|id| finding.info(id));
        if written.is_err() {
            // With nobody there to take them, the next snapshot ends the monitor.
            break;
        }
    }
    progress.clear();
    let lasted = start.elapsed();
    let watched = monitor.join().unwrap_or_else(|_| bail!("the monitor's thread died of a bug in isotherm"));
    // What failed first is the cause of all that followed.
    written?;
    let path = recorder.path().to_owned();
    let bytes = recorder.finish()?;
    watched?;
    if snapshots == 0 {
        bail!(
            "nothing was recorded: the end came after {lasted:.0?}, before the first aggregation interval ({aggregation:?}) \
             was over; shorten it with --aggr"
        );
    }
    progress.warn_of_gaps();
    let path = path.display();
    progress.done(format_args!("{snapshots} snapshots in {lasted:.1?}, {} in {path}", size(bytes)));
    progress.done(format_args!("what next: isotherm report summary {path}; isotherm report heatmap {path}"));
    Ok(())
}
