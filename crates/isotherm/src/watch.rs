//! From a call to a session: what all that watch have in common.

use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, bail};
use isotherm_core::{Attributes, TargetId};
use isotherm_kernel::{PhysicalMemory, Processes, Roster, TargetError};
use isotherm_probes::damon::{self, Scope};

use crate::cli::{ProbeChoice, Watch};
use crate::command::Command;
use crate::kernel_session::KernelSession;
use crate::probe::{self, Chosen, How};
use crate::session::{Control, Finding, Session};
use crate::targets::Targets;
use crate::units::unix_ns;
use crate::wrong_call;

/// All of a session that there is before its command is started.
pub struct Ready {
    pub chosen: Chosen,
    pub attributes: Attributes,
    pub seed: u64,
    targets: Targets,
}

impl Ready {
    /// Checks what was asked for; ends the program if that is a wrong call of `subcommand`.
    pub fn new(subcommand: &str, watch: &Watch) -> Result<Self> {
        // A wrong call is one wherever it is made, so that it is told before any probe is tried.
        attributes(subcommand, watch, probe::PAGE_INTERVALS);
        if watch.pid.is_empty() && watch.command.is_empty() && !watch.physical {
            // Who acts, acts on processes.
            let physical = if subcommand == "run" { "" } else { ", or all memory with --physical" };
            let what = format!("say what to watch: a process with --pid PID, a command after --{physical}");
            wrong_call(subcommand, what);
        }
        check_range(subcommand, watch);
        if watch.probe == ProbeChoice::Damon && watch.children {
            let what = "--probe damon watches what it began with, and cannot take in children; use another probe";
            wrong_call(subcommand, what);
        }
        let chosen = match watch.probe {
            probe if !watch.physical => Chosen::new(probe)?,
            ProbeChoice::Auto => Chosen::for_physical_memory()?,
            probe => {
                if !probe.sees_physical_memory() {
                    let what =
                        "the probe does not see physical memory; use --probe idle or damon, or leave --physical out";
                    wrong_call(subcommand, what);
                }
                Chosen::new(probe)?
            }
        };
        if let How::Kernel(places) = &chosen.how {
            damon::check_operations(places, Scope::operations_for(watch.physical, !watch.range.is_empty()))?;
        }
        let attributes = attributes(subcommand, watch, chosen.default_intervals());
        let seed = watch.attributes.seed.unwrap_or_else(unix_ns);
        let targets = if watch.physical {
            Targets::Physical(PhysicalMemory::new(watch.range.iter().copied())?, None)
        } else {
            Targets::Processes(Processes::new(watch.pid.iter().copied(), watch.children)?)
        };
        Ok(Self { chosen, attributes, seed, targets })
    }

    /// The session that watches the command, or the processes if there is none; or physical memory until the command ends.
    pub fn session(self, watch: &Watch, command: Option<&Command>) -> Result<Watching> {
        let Self { chosen, attributes, seed, targets } = self;
        let processes = command.map(|command| follow(command, watch.children)).transpose()?;
        let targets = match (targets, processes) {
            (Targets::Physical(memory, _), processes) => Targets::Physical(memory, processes),
            (_, Some(processes)) => Targets::Processes(processes),
            (targets, None) => targets,
        };
        let duration = watch.duration;
        Ok(match chosen.how {
            How::Monitor(probe) => Watching::Monitor(Session { attributes, seed, probe, targets, duration }),
            How::Kernel(places) => {
                // Of physical memory, the targets are what was asked for already.
                let ranges = if watch.physical { Vec::new() } else { watch.range.clone() };
                Watching::Kernel(KernelSession { attributes, places, targets, ranges, duration })
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
    pub fn start(self, findings: SyncSender<Finding>, control: Control) -> Result<JoinHandle<Result<()>>> {
        match self {
            Self::Monitor(session) => session.start(findings, control),
            Self::Kernel(session) => session.start(findings, control),
        }
    }

    /// The processes that are watched.
    pub fn roster(&self) -> Roster {
        match self {
            Self::Monitor(session) => session.targets.roster(),
            Self::Kernel(session) => session.targets.roster(),
        }
    }
}

/// Whose addresses a range is of must be clear, and the probe must be able to leave out the rest.
fn check_range(subcommand: &str, watch: &Watch) {
    if watch.range.is_empty() || watch.physical {
        return;
    }
    if watch.probe != ProbeChoice::Damon {
        let what =
            "--range is of physical addresses; give --physical, too (or, for a part of a process, --probe damon)";
        wrong_call(subcommand, what);
    }
    if watch.pid.len() != 1 {
        wrong_call(subcommand, "--range is of the addresses of one process; give one --pid");
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
