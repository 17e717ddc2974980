//! The call of `isotherm scheme`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::RECORDING;

/// Check schemes, and try them on a recording
///
/// A scheme says what is to be done to which memory: which regions, by size, access rate and age, and which action, within
/// which budget. docs/schemes.md describes the language; schemes/ holds examples.
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

/// Say what is wrong with a scheme file, or what each of its schemes will do, in plain words
///
/// Whatever is wrong is told with file, line and column, and the exit status is 1.
#[derive(Args)]
pub struct SchemeCheck {
    /// The schemes: YAML, the lines of the DAMON papers, or damo's JSON
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// Say what schemes would have done to what a recording holds
///
/// The recording is replayed through the schemes, and nothing is acted on, so that no privileges are needed: which regions and how
/// many bytes each scheme would have taken, when, and what its budget would have held back. What its actions would have
/// changed is not known: memory that is reclaimed is read back, for one, if it is needed.
#[derive(Args)]
#[command(after_long_help = TRY_EXAMPLES)]
pub struct SchemeTry {
    /// The schemes: YAML, the lines of the DAMON papers, or damo's JSON
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The recording
    #[arg(value_name = "REC", default_value = RECORDING)]
    pub recording: PathBuf,
    /// The format
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub format: TryFormat,
}

/// How a trial is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TryFormat {
    /// For people
    Text,
    /// For programs (docs/schemes.md)
    Json,
}

const TRY_EXAMPLES: &str = "\
Examples:
  isotherm record --pid 1234 --duration 1m
  isotherm scheme try schemes/prcl.yaml
  isotherm scheme try mine.yaml other.rec --format json | jq '.schemes[].distinct_bytes'";
