//! `isotherm record`: probe, targets, monitor and recording, wired together.

use std::process::ExitCode;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use isotherm_core::{Attributes, TargetId};
use isotherm_linux::{Host, Processes, Stop, TargetError};
use isotherm_record::{Header, Recorder};

use crate::cli::Record;
use crate::command::{self, Command};
use crate::probe::{self, Chosen};
use crate::progress::{Progress, size};
use crate::session::Session;
use crate::{complain, wrong_call};

/// How many snapshots may wait for the disk before the monitor waits for it, too.
const BACKLOG: usize = 64;

pub fn run(options: &Record) -> Result<ExitCode> {
    // A wrong call is one wherever it is made, so that it is told before any probe is tried.
    attributes(options, probe::PAGE_INTERVALS);
    if options.pid.is_empty() && options.command.is_empty() {
        wrong_call("record", "say what to watch: a process with --pid PID, or a command after --");
    }
    let chosen = Chosen::new(options.probe)?;
    let attributes = attributes(options, chosen.default_intervals());

    // Whatever can fail without the command does so before the command is started.
    let targets = Processes::new(options.pid.iter().copied(), options.children)?;
    let header = header(&chosen, &attributes, options.attributes.seed);
    let recorder = Recorder::create(&options.output, &header)?;
    let stop = Stop::new().context("no file descriptor is left")?;
    let mut command = if options.command.is_empty() { None } else { Some(Command::start(&options.command)?) };
    command::handle_signals(command.as_ref(), stop.clone())?;
    command::survive_file_size_limit()?;

    let recorded = match &command {
        Some(command) => follow(command, options.children),
        None => Ok(targets),
    }
    .and_then(|processes| {
        let session =
            Session { attributes, seed: header.seed, probe: chosen.probe, processes, duration: options.duration };
        record(session, recorder, stop, options.quiet)
    });
    let Some(command) = &mut command else {
        return recorded.map(|()| ExitCode::SUCCESS);
    };

    // The command is not to suffer from what befell its recording.
    if let Err(error) = &recorded {
        complain(error);
    } else if options.duration.is_some() {
        command.terminate();
    }
    let ended = command.wait()?;
    Ok(match recorded {
        Ok(()) if ended.by_us => ExitCode::SUCCESS,
        Ok(()) => ExitCode::from(ended.code),
        Err(_) => ExitCode::FAILURE,
    })
}

/// The attributes asked for; ends the program if there are none of that kind.
fn attributes(options: &Record, (sampling, aggregation): (Duration, Duration)) -> Attributes {
    let asked = &options.attributes;
    let (min, max) = asked.regions;
    let attributes =
        Attributes::new(asked.sample.unwrap_or(sampling), asked.aggr.unwrap_or(aggregation), asked.update, min, max);
    let attributes = attributes.unwrap_or_else(|error| wrong_call("record", error));
    if let Some(duration) = options.duration.filter(|&duration| duration < attributes.aggregation()) {
        let aggregation = attributes.aggregation();
        let mend = "record for longer, or shorten it with --aggr";
        wrong_call(
            "record",
            format!("{duration:?} is shorter than the aggregation interval ({aggregation:?}); {mend}"),
        );
    }
    attributes
}

fn header(chosen: &Chosen, attributes: &Attributes, seed: Option<u64>) -> Header {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    let Host { name, kernel, architecture, cpus, memory_bytes } = Host::read();
    Header {
        isotherm_version: env!("CARGO_PKG_VERSION").into(),
        probe: chosen.name.into(),
        granularity: chosen.granularity().into(),
        sampling_ns: attributes.sampling().as_nanos() as u64,
        aggregation_ns: attributes.aggregation().as_nanos() as u64,
        update_ns: attributes.update().as_nanos() as u64,
        min_regions: attributes.min_regions() as u64,
        max_regions: attributes.max_regions() as u64,
        seed: seed.unwrap_or(now),
        started_unix_ns: now,
        host: isotherm_record::Host { name, kernel, architecture, cpus, memory_bytes },
    }
}

/// The command as a target.
fn follow(command: &Command, children: bool) -> Result<Processes> {
    match Processes::new([command.pid()], children) {
        Ok(processes) => Ok(processes.ending_with(TargetId(command.pid()))),
        Err(TargetError::Ended { .. } | TargetError::NoSuchProcess(_)) => {
            bail!("the command ended at once, before it could be watched; nothing was recorded")
        }
        Err(error) => Err(error.into()),
    }
}

/// Runs the monitor to its end, and writes down what it finds.
fn record(session: Session, mut recorder: Recorder, stop: Stop, quiet: bool) -> Result<()> {
    let aggregation = session.attributes.aggregation();
    let (sender, findings) = sync_channel(BACKLOG);
    let start = Instant::now();
    let monitor = session.start(sender, stop)?;

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
    let path = path.display();
    progress.done(format_args!("{snapshots} snapshots in {lasted:.1?}, {} in {path}", size(bytes)));
    progress.done(format_args!("what next: isotherm report summary {path}; isotherm report heatmap {path}"));
    Ok(())
}
