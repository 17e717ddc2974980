//! `isotherm scheme`: checks schemes, tries them on a recording, and finds their best values.

mod show;
mod trial;
mod tuned;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use isotherm_core::sanitise_lines;
use isotherm_core::scheme::Scheme;
use isotherm_output::standard_output;

use crate::cli::{PlainFormat, Scheme as Options, SchemeCommand};
use crate::tell;

pub fn run(options: &Options) -> Result<ExitCode> {
    match &options.command {
        SchemeCommand::Check(options) => check(&options.file),
        SchemeCommand::Try(options) => {
            let Some(schemes) = read(&options.file) else {
                return Ok(ExitCode::FAILURE);
            };
            let trial = trial::trial(schemes, &options.recording, options.reading.max_memory)?;
            let mut out = standard_output().apart_from([&options.file, &options.recording])?;
            match options.format {
                PlainFormat::Text => show::text(&trial, &mut out)?,
                PlainFormat::Json => show::json(&trial, &mut out)?,
            }
            Ok(ExitCode::SUCCESS)
        }
        SchemeCommand::Tune(options) => tuned::run(options),
    }
}

fn check(file: &Path) -> Result<ExitCode> {
    let Some(schemes) = read(file) else {
        return Ok(ExitCode::FAILURE);
    };
    let mut out = standard_output().apart_from([file])?;
    for (i, scheme) in schemes.iter().enumerate() {
        let separator = if i == 0 { "" } else { "\n" };
        write!(out, "{separator}{}", sanitise_lines(&isotherm_scheme::describe(scheme)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The schemes of a file. Prints the errors of the file if there are any.
fn read(file: &Path) -> Option<Vec<Scheme>> {
    // The lines have no program name: editors look for file, line and column at their start.
    isotherm_damo::read_schemes(file).map_err(tell).ok()
}
