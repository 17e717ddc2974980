//! From a call to a session: what all that watch have in common.

use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, bail};
use isotherm_core::{Attributes, TargetId};
use isotherm_linux::{Processes, Stop, TargetError};

use crate::cli::{ProbeChoice, Watch};
use crate::command::Command;
use crate::kernel_session::KernelSession;
use crate::probe::{self, Chosen, How};
use crate::session::{Finding, Session};
use crate::units::unix_ns;
use crate::wrong_call;

/// All of a session that there is before its command is started.
pub struct Ready {
    pub chosen: Chosen,
    pub attributes: Attributes,
    pub seed: u64,
    targets: Processes,
}

impl Ready {
    /// Checks what was asked for; ends the program if that is a wrong call of `subcommand`.
    pub fn new(subcommand: &str, watch: &Watch) -> Result<Self> {
        // A wrong call is one wherever it is made, so that it is told before any probe is tried.
        attributes(subcommand, watch, probe::PAGE_INTERVALS);
        if watch.pid.is_empty() && watch.command.is_empty() {
            wrong_call(subcommand, "say what to watch: a process with --pid PID, or a command after --");
        }
        check_kernels(subcommand, watch);
        let chosen = Chosen::new(watch.probe)?;
        let attributes = attributes(subcommand, watch, chosen.default_intervals());
        let seed = watch.attributes.seed.unwrap_or_else(unix_ns);
        let targets = Processes::new(watch.pid.iter().copied(), watch.children)?;
        Ok(Self { chosen, attributes, seed, targets })
    }

    /// The session that watches the command, or the processes if there is none.
    pub fn session(self, watch: &Watch, command: Option<&Command>) -> Result<Watching> {
        let Self { chosen, attributes, seed, targets } = self;
        let processes = command.map_or(Ok(targets), |command| follow(command, watch.children))?;
        let duration = watch.duration;
        Ok(match chosen.how {
            How::Monitor(probe) => Watching::Monitor(Session { attributes, seed, probe, processes, duration }),
            How::Kernel(places) => {
                let (roster, space) = (processes.roster(), Box::new(processes));
                Watching::Kernel(KernelSession { attributes, places, space, roster, range: watch.range, duration })
            }
        })
    }
}

/// A session of either kind: the same from outside.
pub enum Watching {
    Monitor(Session),
    Kernel(KernelSession),
}

impl Watching {
    pub fn attributes(&self) -> Attributes {
        match self {
            Self::Monitor(session) => session.attributes,
            Self::Kernel(session) => session.attributes,
        }
    }

    /// Starts its thread, which sends what it finds to `findings`.
    pub fn start(self, findings: SyncSender<Finding>, stop: Stop) -> Result<JoinHandle<Result<()>>> {
        match self {
            Self::Monitor(session) => session.start(findings, stop),
            Self::Kernel(session) => session.start(findings, stop),
        }
    }
}

/// What the kernel's DAMON can do and our monitor cannot, and the other way round.
fn check_kernels(subcommand: &str, watch: &Watch) {
    let kernels = watch.probe == ProbeChoice::Damon;
    if kernels && watch.children {
        wrong_call(
            subcommand,
            "--probe damon watches what it began with, and cannot take in children; use --probe bpf",
        );
    }
    if watch.range.is_some() && !kernels {
        wrong_call(
            subcommand,
            "--range is for --probe damon; all of a process is watched, and `isotherm report` takes --address",
        );
    }
    if watch.range.is_some() && watch.pid.len() > 1 {
        wrong_call(subcommand, "--range is for one process");
    }
}

/// The attributes asked for; ends the program if there are none of that kind.
fn attributes(subcommand: &str, watch: &Watch, (sampling, aggregation): (Duration, Duration)) -> Attributes {
    let asked = &watch.attributes;
    let (min, max) = asked.regions;
    let attributes =
        Attributes::new(asked.sample.unwrap_or(sampling), asked.aggr.unwrap_or(aggregation), asked.update, min, max);
    let attributes = attributes.unwrap_or_else(|error| wrong_call(subcommand, error));
    if let Some(duration) = watch.duration.filter(|&duration| duration < attributes.aggregation()) {
        let aggregation = attributes.aggregation();
        let mend = "let it last longer, or shorten that with --aggr";
        let what = format!("{duration:?} is shorter than the aggregation interval ({aggregation:?}); {mend}");
        wrong_call(subcommand, what);
    }
    attributes
}

/// The command as a target.
fn follow(command: &Command, children: bool) -> Result<Processes> {
    match Processes::new([command.pid()], children) {
        Ok(processes) => Ok(processes.ending_with(TargetId(command.pid()))),
        Err(TargetError::Ended { .. } | TargetError::NoSuchProcess(_)) => {
            bail!("the command ended at once, before it could be watched")
        }
        Err(error) => Err(error.into()),
    }
}
