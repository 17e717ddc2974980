//! `isotherm tier`: fast and slow memory.

mod list;
mod placed;
mod run;
mod trial;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use isotherm_core::{Tiers, chain};
use isotherm_kernel::NodesError;

use crate::WrongCall;
use crate::cli::{Tier as Options, TierCommand};

pub fn run(options: &Options) -> Result<ExitCode> {
    match &options.command {
        TierCommand::List(options) => list::run(options),
        TierCommand::Run(options) => run::run(options),
        TierCommand::Config(options) => run::config(options),
        TierCommand::Try(options) => trial::run(options),
    }
}

/// The tiers of this machine, or those that the user of `subcommand` describes; or why there are none.
///
/// # Errors
/// If the nodes cannot be read. A [`WrongCall`] if the description is wrong.
fn tiers(subcommand: &'static str, described: Option<&str>) -> Result<Result<Tiers, NodesError>> {
    match isotherm_kernel::tiers(Path::new("/"), described) {
        // It is an answer: all memory of such a machine is alike.
        Err(error @ NodesError::NoNuma(_)) => Ok(Err(error)),
        Err(NodesError::Described(error)) => Err(WrongCall::new(subcommand, error.to_string()).into()),
        tiers => Ok(Ok(tiers?)),
    }
}

/// The tiers between which `isotherm tier run` moves memory on this machine.
///
/// # Errors
/// Says why there is nothing to move between.
pub fn found() -> Result<Tiers, String> {
    let tiers = tiers("doctor", None).map_err(|error| chain(&*error))?.map_err(|error| chain(&error))?;
    only_one(&tiers).map_or(Ok(tiers), Err)
}

/// Why there is nothing to move between, if all memory is of one tier.
fn only_one(tiers: &Tiers) -> Option<String> {
    match tiers.tiers() {
        [_, _, ..] => None,
        [nodes] if nodes.len() > 1 => {
            Some("all memory nodes are in one tier; name the fast and the slow ones with --tiers if they differ".into())
        }
        tiers => {
            let node = tiers.iter().flatten().next().map(|node| format!(", {node}")).unwrap_or_default();
            Some(format!("this machine has one memory node{node} (a second one is needed, such as CXL memory)"))
        }
    }
}
