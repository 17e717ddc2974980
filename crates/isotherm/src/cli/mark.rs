//! The options of `isotherm mark`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

/// Add a named mark at the current time to the recordings that are being made
///
/// The mark goes to each recording that `isotherm record`, `run --record` or `tune --record` of the same user makes on
/// this machine; a mark by root goes to those of all users. Reports draw it as a line on their time axes, with the text
/// as its label. `isotherm record --stdin-marks` takes marks from a pipe instead.
#[derive(Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct Mark {
    /// The text of the mark. At most 256 bytes are kept
    pub text: OsString,
    /// Only in this recording
    #[arg(long, value_name = "FILE")]
    pub recording: Option<PathBuf>,
    /// Do not print which recordings took the mark
    #[arg(short, long)]
    pub quiet: bool,
}

const AFTER_HELP: &str = "\
Examples:
  isotherm mark load
  isotherm mark --recording isotherm.rec load

Exit status: 0 if each recording took the mark, 1 if a recording did not take it or no recording was found.";
