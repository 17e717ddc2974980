//! The options of `isotherm check` and `isotherm recover`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::Reading;

/// Check whether a recording is whole, and say what is missing
///
/// Each message of a recording has checksums. `isotherm check` compares all of them, reads all rows, and lists what
/// cannot be read, by bytes and by the time of the run. Reports pass over what is damaged, and say so.
///
/// It also says how much the recording tells: how many sampling rounds began late, the longest time that no snapshot
/// covers, how many surveys there are, and how much of the memory was unknown or unobservable at the last one. These do
/// not change the exit status.
#[derive(Args)]
#[command(after_long_help = CHECK)]
pub struct Check {
    /// The recording
    #[arg(value_name = "FILE", default_value = super::RECORDING)]
    pub recording: PathBuf,
    /// The format of the result
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: CheckFormat,
    #[command(flatten)]
    pub reading: Reading,
}

/// The format of the result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CheckFormat {
    /// For people
    Text,
    /// One JSON object
    Json,
}

const CHECK: &str = "\
Exit status:
  0  whole
  1  it cannot be read at all
  3  nothing is damaged, but it has no end mark: it is still being
     recorded, its recorder was killed, or the file was cut
  4  a part of it is damaged

Examples:
  isotherm check
  isotherm check isotherm.rec --format json";

/// Save what can be read of a damaged recording
///
/// The new recording has all batches of the old one that are whole, about half a second of the run each. What a target
/// is and its mappings are written where they change: if that was in a damaged batch, the rows after it have what was
/// known before, or mappings whose name is `[unknown]`.
#[derive(Args)]
#[command(after_long_help = RECOVER)]
pub struct Recover {
    /// The damaged recording
    #[arg(value_name = "BAD")]
    pub recording: PathBuf,
    /// The recording to write, which only its owner can read. A recording that is there is kept, with .old after its
    /// name
    #[arg(value_name = "GOOD")]
    pub output: PathBuf,
    #[command(flatten)]
    pub reading: Reading,
}

const RECOVER: &str = "\
Examples:
  isotherm recover isotherm.rec good.rec";
