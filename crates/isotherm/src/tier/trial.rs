//! `isotherm tier try`: tries sizes of a fast tier on a recording.

use std::io::{IsTerminal, Write, stdout};
use std::process::ExitCode;

use anyhow::Result;
use isotherm_output::{Output, standard_output};
use isotherm_record::Recording;
use isotherm_report::tiering::{TierTrial, TrialOptions};
use isotherm_report::{Format, Options, Terminal};

use crate::WrongCall;
use crate::cli::TierTry;
use crate::report::{chosen_format, warn_of_damage, write_file};
use crate::terminal::terminal;

pub fn run(options: &TierTry) -> Result<ExitCode> {
    let format = chosen_format("tier try", options.format, options.output.as_deref())?.unwrap_or(Format::Text);
    if options.output.is_none() && stdout().is_terminal() && (format.is_binary() || format == Format::Html) {
        let what = format!("{} cannot be shown on a terminal; name a file with -o", format.name());
        return Err(WrongCall::new("tier try", what).into());
    }
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
    let terminal = if options.output.is_none() { terminal() } else { Terminal::default() };
    let report = Options { terminal, ..Options::default() };
    let inputs = [&options.recording];
    let write = |out: &mut dyn Write| trial.write(format, &report, out);
    match &options.output {
        None => write(&mut standard_output().apart_from(inputs)?)?,
        Some(path) => write_file(Output::new(path).apart_from(inputs).create()?, write)?,
    }
    Ok(ExitCode::SUCCESS)
}
