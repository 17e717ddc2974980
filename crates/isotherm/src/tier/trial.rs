//! `isotherm tier try`: tries sizes of a fast tier on a recording.

use std::process::ExitCode;

use anyhow::Result;
use isotherm_record::Recording;
use isotherm_report::tiering::{TierTrial, TrialOptions};
use isotherm_report::{Format, Options};

use crate::cli::TierTry;
use crate::report::{Destination, warn_of_damage};

pub fn run(options: &TierTry) -> Result<ExitCode> {
    let to = Destination::new("tier try", options.format, options.output.as_deref(), &Format::ALL)?;
    let recording = Recording::open_within(&options.recording, options.reading.max_memory)?;
    warn_of_damage(&recording);
    let selection = options.selection.selection();
    let tried = TrialOptions {
        fast: options.fast.clone(),
        curve: options.curve,
        rate: options.rate.rate,
        slow_price: options.slow_price,
    };
    let trial = TierTrial::new(&recording, &selection, &tried)?;
    let report = Options { terminal: to.terminal(), ..Options::default() };
    to.write(&[&options.recording], |out| trial.write(to.format, &report, out))
}
