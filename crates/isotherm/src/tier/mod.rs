//! `isotherm tier`: fast and slow memory.

mod trial;

use std::process::ExitCode;

use anyhow::Result;

use crate::cli::{Tier as Options, TierCommand};

pub fn run(options: &Options) -> Result<ExitCode> {
    match &options.command {
        TierCommand::Try(options) => trial::run(options),
    }
}
