//! `isotherm tier run` and `isotherm tier config`: the schemes for this machine, applied or printed.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use isotherm_kernel::room_by_node;
use isotherm_output::standard_output;
use isotherm_run::SchemeSource;

use super::{only_one, schemes, tiers};
use crate::cli::{TierConfig, TierRun, TierSchemes};
use crate::watch::Call;
use crate::{command, run as acting};

const SUBCOMMAND: &str = "tier run";

pub fn config(options: &TierConfig) -> Result<ExitCode> {
    write!(standard_output(), "{}", text("tier config", &options.schemes, false)?)?;
    Ok(ExitCode::SUCCESS)
}

pub fn run(options: &TierRun) -> Result<ExitCode> {
    let schemes =
        isotherm_scheme::parse("the schemes of this machine", &text(SUBCOMMAND, &options.schemes, options.dry_run)?)?;
    let call = Call {
        schemes: Some(SchemeSource::Fixed(schemes)),
        memory_use: options.record.is_some(),
        recording: options.record.clone(),
        quiet: options.quiet,
        ..Call::new(SUBCOMMAND, &options.watch)
    };
    acting::apply(call, command::handle_signals)
}

/// The schemes for this machine.
///
/// # Errors
/// If there is nothing to move between.
fn text(subcommand: &'static str, options: &TierSchemes, dry_run: bool) -> Result<String> {
    let found = tiers(subcommand, options.tiers.tiers.as_deref())??;
    if let Some(why_not) = only_one(&found) {
        bail!("memory cannot move between tiers here: {why_not}");
    }
    Ok(schemes::text(&found, &room_by_node(Path::new("/"))?, options.rate.rate, dry_run))
}
