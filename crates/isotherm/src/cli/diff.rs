//! The options of `isotherm diff`.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use isotherm_core::units;
use isotherm_report::Format;

use super::Reading;
use super::report::{formats, parse_window};

/// Show the difference of two recordings, or of two parts of one
///
/// isotherm compares the working set and the resident, hot and cold memory, each by its mean over time and its peak: of
/// all memory, by name of mapping, and by name of program. Addresses, process IDs and lengths may differ. The largest
/// growth comes first. isotherm warns of figures that cannot be compared. docs/reports.md describes the figures.
///
/// The difference goes to standard output, or to a file with -o. The format is that of --format, or of the file's
/// extension: .txt, .json, .png, .svg or .html. PNG and HTML need a file or a pipe.
#[derive(Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct Diff {
    /// The first recording
    #[arg(value_name = "BEFORE")]
    pub before: PathBuf,
    /// The second recording [default: the first one; --with selects its part]
    #[arg(value_name = "AFTER", required_unless_present = "with")]
    pub after: Option<PathBuf>,
    /// The format [default: that of the extension of -o, else text]
    #[arg(short, long, value_name = "FORMAT", value_parser = formats(&Format::ALL))]
    pub format: Option<Format>,
    /// Write the difference to this file, which only its owner can read
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Use only this time of the first recording, since its start, such as 2s:10s, :10s or 2s:
    #[arg(long, value_name = "FROM:TO", value_parser = units::parse_time_range)]
    pub time: Option<Range<Duration>>,
    /// Use only this time of the second recording [default: that of --time]
    #[arg(long, value_name = "FROM:TO", value_parser = units::parse_time_range)]
    pub with: Option<Range<Duration>>,
    /// Use only the target with this process ID, in both
    #[arg(long, value_name = "PID")]
    pub target: Option<u32>,
    /// In the working set, count what was touched within this time: 1s, 2s, 5s, 10s, 30s, 1m, 2m, 5m, 10m, 30m or 1h
    /// [default: the shortest of these that is no shorter than the survey interval of both; an estimate from samples if
    /// one of them has no surveys]
    #[arg(long, value_name = "TIME", value_parser = parse_window)]
    pub window: Option<Duration>,
    #[command(flatten)]
    pub reading: Reading,
}

const AFTER_HELP: &str = "\
Examples:
  isotherm diff old.rec new.rec              what grew, what shrank?
  isotherm diff old.rec new.rec --window 1m
  isotherm diff run.rec --time 10s:1m --with 1m:2m
  isotherm diff old.rec new.rec -o diff.html
  isotherm diff old.rec new.rec --format json";
