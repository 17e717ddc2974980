//! The options of `isotherm scheme`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{PlainFormat, RECORDING, Reading};

/// Check schemes, and try them on a recording
///
/// A scheme says which memory to act on, by size, access rate and age, what to do with it, and how much of it.
/// docs/schemes.md describes the language. The directory schemes/ has examples.
#[derive(Args)]
pub struct Scheme {
    #[command(subcommand)]
    pub command: SchemeCommand,
}

#[derive(Subcommand)]
pub enum SchemeCommand {
    Check(SchemeCheck),
    Try(SchemeTry),
}

/// Explain what the schemes of a file do, or list its errors
///
/// Each error is printed with file, line and column. The exit status is 1 if there are errors.
#[derive(Args)]
pub struct SchemeCheck {
    /// The scheme file: YAML, the one-line form of the DAMON papers, or damo's JSON
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// Show what schemes would have done to a recorded program
///
/// isotherm replays the recording through the schemes and acts on nothing, so no privileges are needed. For each scheme
/// it reports which regions and how many bytes it would have acted on, when, and how much its quota would have held
/// back. Sizes are those of present memory if the recording has surveys. The reaction of the program is not known: it
/// might have read reclaimed memory back, for example.
#[derive(Args)]
#[command(after_long_help = TRY_EXAMPLES)]
pub struct SchemeTry {
    /// The scheme file: YAML, the one-line form of the DAMON papers, or damo's JSON
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The recording
    #[arg(value_name = "REC", default_value = RECORDING)]
    pub recording: PathBuf,
    /// The format of the report
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub format: PlainFormat,
    #[command(flatten)]
    pub reading: Reading,
}

const TRY_EXAMPLES: &str = "\
Examples:
  isotherm record --pid 1234 --duration 1m
  isotherm scheme try prcl.yaml
  isotherm scheme try mine.yaml other.rec --format json";
