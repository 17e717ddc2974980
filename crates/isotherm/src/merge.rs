//! `isotherm merge`: makes one recording of several.

use std::process::ExitCode;

use anyhow::Result;
use isotherm_core::units;
use isotherm_record::{Joined, Merged};

use crate::cli;
use crate::report::open_all;
use crate::tell;

pub fn run(options: &cli::Merge) -> Result<ExitCode> {
    let recordings = Joined::new(open_all(&options.recordings, options.reading.max_memory)?)?;
    let Merged { snapshots, targets, incomplete } = isotherm_record::merge(&recordings, &options.output)?;
    for (path, why) in incomplete {
        tell(format_args!("isotherm: not all of {} was merged: {why}", path.display()));
    }
    let (snapshots, targets) = (units::counted(snapshots, "snapshot"), units::counted(targets, "target"));
    tell(format_args!("isotherm: {snapshots} of {targets} in {}", options.output.display()));
    Ok(ExitCode::SUCCESS)
}
