//! `isotherm tier run` and `isotherm tier config`: the schemes for this machine, applied or printed.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use isotherm_core::Tiers;
use isotherm_kernel::room_by_node;
use isotherm_output::standard_output;
use isotherm_run::tiering::{self, Limits};
use isotherm_run::{Need, SchemeSource};

use super::{only_one, tiers};
use crate::cli::{TierConfig, TierRun, TierSchemes};
use crate::moves_line::MovesLine;
use crate::progress::Progress;
use crate::watch::Call;
use crate::{command, run as acting};

const SUBCOMMAND: &str = "tier run";

/// The share of one CPU that watching and moving take together, unless the user says another. It is more than for
/// watching alone, because moving copies memory.
const CPU_BUDGET: f64 = 0.1;

/// The part of the budget that is for inspecting and moving pages. The rest is for watching.
const MOVING: f64 = 0.5;

pub fn config(options: &TierConfig) -> Result<ExitCode> {
    let budget = options.cpu_budget.unwrap_or(CPU_BUDGET);
    let (_, text) = schemes("tier config", &options.schemes, budget, false)?;
    write!(standard_output(), "{text}")?;
    Ok(ExitCode::SUCCESS)
}

pub fn run(options: &TierRun) -> Result<ExitCode> {
    let budget = options.watch.budget.cpu_budget.unwrap_or(CPU_BUDGET);
    let (tiers, text) = schemes(SUBCOMMAND, &options.schemes, budget, options.dry_run)?;
    let schemes = isotherm_scheme::parse("the schemes of this machine", &text)?;
    let call = Call {
        cpu_budget: Some(budget * (1.0 - MOVING)),
        schemes: Some(SchemeSource::Fixed(schemes)),
        files: Some(&options.files),
        memory_use: options.record.is_some(),
        recording: options.record.clone(),
        recording_need: options.record_needed.then_some(Need::Needed),
        quiet: options.quiet,
        ..Call::new(SUBCOMMAND, &options.watch)
    };
    let progress = match options.dry_run {
        true => Progress::new(options.quiet),
        false => Progress::of_moves(options.quiet, MovesLine::new(&tiers, "/")),
    };
    acting::apply(call, command::handle_signals, progress)
}

/// The tiers of this machine, and the schemes for them at this share of one CPU.
///
/// # Errors
/// If there is nothing to move between.
fn schemes(subcommand: &'static str, options: &TierSchemes, budget: f64, dry_run: bool) -> Result<(Tiers, String)> {
    let found = tiers(subcommand, options.tiers.tiers.as_deref())??;
    if let Some(why_not) = only_one(&found) {
        bail!("memory cannot move between tiers here: {why_not}");
    }
    let limits = Limits { rate: options.rate.rate, time: Duration::from_secs(1).mul_f64(budget * MOVING), dry_run };
    let text = tiering::text(&found, &room_by_node(Path::new("/"))?, limits);
    Ok((found, text))
}
