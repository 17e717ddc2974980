//! `isotherm cut`: makes a recording of a part of a recording.

use std::process::ExitCode;

use anyhow::Result;
use isotherm_core::units;
use isotherm_record::Recording;

use crate::cli;
use crate::tell;

pub fn run(options: &cli::Cut) -> Result<ExitCode> {
    let recording = Recording::open_within(&options.recording, options.reading.max_memory)?;
    let wanted = isotherm_record::Cut { time: options.time.clone(), targets: options.target.iter().copied().collect() };
    let snapshots = isotherm_record::cut(&recording, &wanted, &options.output)?;
    tell(format_args!("isotherm: {} in {}", units::counted(snapshots, "snapshot"), options.output.display()));
    Ok(ExitCode::SUCCESS)
}
