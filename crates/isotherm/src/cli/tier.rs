//! The options of `isotherm tier`.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use isotherm_core::{AddrRange, units};
use isotherm_report::tiering::FastSize;

use super::report::ReportFormat;
use super::{RECORDING, Reading};

/// Fast and slow memory: what two tiers would be worth
#[derive(Args)]
pub struct Tier {
    #[command(subcommand)]
    pub command: TierCommand,
}

#[derive(Subcommand)]
pub enum TierCommand {
    Try(Box<TierTry>),
}

/// Show what share of the accesses of a recorded program slow memory would serve
///
/// isotherm places the recorded memory in a fast tier of a given size and a slow tier, in three ways: where it was
/// first touched, with the fast tier filled first; as isotherm would move it, hot memory to the fast tier and cold
/// memory to the slow one; and the best way with hindsight. Without --fast, it shows a curve over sizes up to all of
/// the resident memory. It needs no privileges and no second memory node. docs/tier-try.md describes the model and what
/// it does not know.
///
/// The result goes to standard output, or to a file with -o. The format is that of --format, or of the file's
/// extension: .txt, .json, .png, .svg, .pdf or .html. PNG, PDF and HTML need a file or a pipe.
#[derive(Args)]
#[command(after_long_help = TRY_EXAMPLES)]
pub struct TierTry {
    /// The recording
    #[arg(value_name = "REC", default_value = RECORDING)]
    pub recording: PathBuf,
    /// The size of the fast tier, such as 1.5G, or 40% of the most resident memory; may be given several times
    #[arg(long, value_name = "SIZE", value_parser = parse_fast)]
    pub fast: Vec<FastSize>,
    /// Show the curve over sizes with --fast as well
    #[arg(long)]
    pub curve: bool,
    /// How many bytes isotherm moves in a second at most, in both directions together [default: 200 MB]
    #[arg(long, value_name = "SIZE", value_parser = units::parse_bytes)]
    pub rate: Option<u64>,
    /// The time that the program takes with slow memory only, divided by that with fast memory only, such as 1.2. The
    /// result then has the time that follows from the share. It is modelled, not measured
    #[arg(long, value_name = "RATIO", value_parser = parse_price)]
    pub slow_price: Option<f64>,
    /// The format [default: that of the extension of -o, else text]
    #[arg(short, long, value_name = "FORMAT")]
    pub format: Option<ReportFormat>,
    /// Write the result to this file, which only its owner can read
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Use only this time since the start of the recording, such as 2s:10s, :10s or 2s:
    #[arg(long, value_name = "FROM:TO", value_parser = units::parse_time_range)]
    pub time: Option<Range<Duration>>,
    /// Use only these addresses, such as 0x7f0000000000:0x7f0000100000 or 4GiB:5GiB
    #[arg(long, value_name = "FROM:TO", value_parser = units::parse_address_range)]
    pub address: Option<AddrRange>,
    /// Use only the target with this process ID
    #[arg(long, value_name = "PID")]
    pub target: Option<u32>,
    #[command(flatten)]
    pub reading: Reading,
}

/// A size of the fast tier: bytes, or a share of the resident memory in per cent.
fn parse_fast(text: &str) -> Result<FastSize, String> {
    let found = match text.strip_suffix('%') {
        Some(_) => units::parse_share(text).map(FastSize::Share),
        None => units::parse_bytes(text).map(FastSize::Bytes),
    };
    found.map_err(|error| error.to_string())
}

/// A price of slow memory.
fn parse_price(text: &str) -> Result<f64, String> {
    let price = units::parse_decimal(text).filter(|price| (1.0..=1000.0).contains(price));
    price.ok_or_else(|| format!("'{text}' is not a ratio from 1 to 1000, such as 1.2"))
}

const TRY_EXAMPLES: &str = "\
Examples:
  isotherm record --pid 1234 --duration 5m
  isotherm tier try                          how much fast memory is needed?
  isotherm tier try --fast 1.5G              what would this much give?
  isotherm tier try --fast 25% --fast 50% --slow-price 1.2
  isotherm tier try my.rec -o curve.png";
