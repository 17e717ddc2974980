//! From a call to a session: what all that watch have in common.

use std::time::Duration;

use anyhow::{Result, bail};
use isotherm_core::{Attributes, TargetId};
use isotherm_linux::{PhysicalMemory, Processes, TargetError};

use crate::cli::{ProbeChoice, Watch};
use crate::command::Command;
use crate::probe::{self, Chosen};
use crate::session::Session;
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
            let what = "say what to watch: a process with --pid PID, a command after --, or all memory with --physical";
            wrong_call(subcommand, what);
        }
        if !watch.range.is_empty() && !watch.physical {
            wrong_call(subcommand, "--range is of physical addresses; give --physical, too");
        }
        let chosen = match watch.probe {
            probe if !watch.physical => Chosen::new(probe)?,
            ProbeChoice::Auto => Chosen::for_physical_memory()?,
            probe => {
                if !probe.sees_physical_memory() {
                    let what = "the probe does not see physical memory; use --probe idle, or leave --physical out";
                    wrong_call(subcommand, what);
                }
                Chosen::new(probe)?
            }
        };
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
    pub fn session(self, watch: &Watch, command: Option<&Command>) -> Result<Session> {
        let Self { chosen, attributes, seed, targets } = self;
        let processes = command.map(|command| follow(command, watch.children)).transpose()?;
        let targets = match (targets, processes) {
            (Targets::Physical(memory, _), processes) => Targets::Physical(memory, processes),
            (_, Some(processes)) => Targets::Processes(processes),
            (targets, None) => targets,
        };
        Ok(Session { attributes, seed, probe: chosen.probe, targets, duration: watch.duration })
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
