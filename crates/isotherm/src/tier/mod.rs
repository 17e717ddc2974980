//! `isotherm tier`: fast and slow memory.

mod list;

use std::process::ExitCode;

use anyhow::Result;

use crate::cli::{Tier, TierCommand};

pub fn run(options: &Tier) -> Result<ExitCode> {
    match &options.command {
        TierCommand::List(options) => list::run(options),
    }
}
