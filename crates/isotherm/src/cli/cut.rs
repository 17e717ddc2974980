//! The options of `isotherm cut`.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use isotherm_core::units;

use super::{RECORDING, Reading};

/// Make a recording of a part of a recording
///
/// Times still count from the start of the run. So a report on the part is the same as a report on the whole with the
/// same --time and --target. The recording also has the snapshot and the survey before and after the part. Reports need
/// these, but do not count them.
#[derive(Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct Cut {
    /// The recording
    #[arg(value_name = "REC", default_value = RECORDING)]
    pub recording: PathBuf,
    /// Keep only this time since the start of the recording, such as 2s:10s, :10s or 2s:
    #[arg(long, value_name = "FROM:TO", value_parser = units::parse_time_range, required_unless_present = "target")]
    pub time: Option<Range<Duration>>,
    /// Keep only the target with this process ID; 0 is physical memory. May be given several times
    #[arg(long, value_name = "PID")]
    pub target: Vec<u32>,
    /// The recording to write, which only its owner can read. An existing recording is kept, with .old after its name
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    #[command(flatten)]
    pub reading: Reading,
}

const AFTER_HELP: &str = "\
Examples:
  isotherm cut --time 10s:20s -o part.rec
  isotherm cut all.rec --target 1234 --target 1240 -o two.rec";
