//! The options of `isotherm tier`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use isotherm_core::tiering::DEFAULT_RATE;
use isotherm_core::units;
use isotherm_report::Format;
use isotherm_report::tiering::FastSize;

use super::report::{SelectionOptions, formats};
use super::watch::share;
use super::{FilesOption, PlainFormat, RECORDING, Reading, WatchOptions};

/// Fast and slow memory: keep hot memory in the fast tier
///
/// Some machines have memory of different speed: next to another processor, behind CXL, or persistent memory. The
/// kernel shows each as a NUMA node. docs/tiers.md says how isotherm finds out which nodes are fast.
#[derive(Args)]
pub struct Tier {
    #[command(subcommand)]
    pub command: TierCommand,
}

#[derive(Subcommand)]
pub enum TierCommand {
    List(Box<TierList>),
    Run(Box<TierRun>),
    Config(TierConfig),
    Try(Box<TierTry>),
}

/// List nodes and tiers, with their sizes, and where memory would move to
///
/// Memory is promoted to the nearest node of the next faster tier, and demoted to the nearest of the next slower one.
/// Nothing is moved.
///
/// If processes are named, isotherm watches them for 15 seconds, as `isotherm record` does, and also lists how much of
/// their memory is on each node, and how much of that is hot, warm and cold. That needs root.
#[derive(Args)]
#[command(after_long_help = LIST_EXAMPLES)]
pub struct TierList {
    #[command(flatten)]
    pub tiers: TiersOption,
    #[command(flatten)]
    pub watch: WatchOptions,
    /// List a line per node for each of these
    #[arg(long, value_name = "WHAT", default_value = "program")]
    pub by: Grouping,
    /// The format
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub format: PlainFormat,
    /// Show no progress
    #[arg(short, long)]
    pub quiet: bool,
}

/// The groups by which the memory of processes is added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Grouping {
    /// Programs
    Program,
    /// Cgroups
    Cgroup,
}

impl Grouping {
    /// The name of the column.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Program => "program",
            Self::Cgroup => "cgroup",
        }
    }
}

/// Which nodes are fast.
#[derive(Args)]
pub struct TiersOption {
    /// Which nodes are equally fast: the fastest tier first, tiers separated by `/`, nodes by commas [default: what the
    /// kernel says; else nodes with processors are fast]
    #[arg(long, value_name = "TIERS")]
    pub tiers: Option<String>,
}

/// Keep hot memory in the fast tier and cold memory in the slow one
///
/// isotherm watches processes as `isotherm record` does. It moves memory of slow nodes that is in use to a faster node,
/// the hottest first, and memory that was idle for 10 s to a slower node if the fast one is full. `isotherm tier
/// config` prints the schemes that do this; docs/tiers.md explains them. At the end, pages stay where they are.
///
/// --cpu-budget bounds both watching and moving: half of it is for each.
///
/// With --files or --open-files, the page cache of files is moved instead of memory of processes. How long it has been
/// idle is known with idle page tracking only.
///
/// Moving needs root and at least two memory nodes. Before the run, isotherm tries it on its own memory.
#[derive(Args)]
#[command(after_long_help = RUN_EXAMPLES)]
pub struct TierRun {
    #[command(flatten)]
    pub watch: WatchOptions,
    #[command(flatten)]
    pub files: FilesOption,
    #[command(flatten)]
    pub schemes: TierSchemes,
    /// Move nothing, and show what would be moved
    #[arg(long)]
    pub dry_run: bool,
    /// Write a recording to this file, which only its owner can read. `isotherm report schemes` shows what was moved.
    /// An existing recording is kept as FILE.old
    #[arg(short, long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// With --record: end the run if the recording can no longer be written, as on a full disk. Without this, isotherm
    /// says so, and goes on acting
    #[arg(long, requires = "record")]
    pub record_needed: bool,
    /// Show no progress and no summary at the end
    #[arg(short, long)]
    pub quiet: bool,
}

/// Print the schemes of `isotherm tier run`, to change them
///
/// `isotherm run --schemes FILE` applies them. docs/schemes.md describes the language.
#[derive(Args)]
#[command(after_long_help = CONFIG_EXAMPLES)]
pub struct TierConfig {
    #[command(flatten)]
    pub schemes: TierSchemes,
    /// The highest share of one CPU that `isotherm tier run` would use. Half of it, for inspecting and moving pages,
    /// becomes the `time` of the schemes [default: 10%]
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub cpu_budget: Option<f64>,
}

/// The options that the schemes depend on.
#[derive(Args)]
pub struct TierSchemes {
    #[command(flatten)]
    pub tiers: TiersOption,
    #[command(flatten)]
    pub rate: RateOption,
}

/// The limit of how much memory is moved.
#[derive(Args)]
pub struct RateOption {
    /// The highest number of bytes moved per second, in both directions together
    #[arg(long, value_name = "SIZE", value_parser = units::parse_bytes, default_value_t = DEFAULT_RATE)]
    pub rate: u64,
}

/// Show which share of the accesses of a recorded program would go to slow memory
///
/// isotherm places the recorded memory in a fast tier of a given size and a slow tier, in three ways: where it was
/// first touched, with the fast tier filled first; as isotherm would move it, hot memory to the fast tier and cold
/// memory to the slow one; and the best way with hindsight. Without --fast, it shows a curve over sizes up to all of
/// the resident memory. It needs no privileges and no second memory node. docs/tier-try.md describes the model and what
/// it does not know.
///
/// The result goes to standard output, or to a file with -o. The format is that of --format, or of the file's
/// extension: .txt, .json, .png, .svg or .html. PNG and HTML need a file or a pipe.
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
    #[command(flatten)]
    pub rate: RateOption,
    /// The time that the program takes with slow memory only, divided by the time with fast memory only, such as 1.2.
    /// The result then has the time that follows from the share. This time is modelled, not measured
    #[arg(long, value_name = "RATIO", value_parser = parse_price)]
    pub slow_price: Option<f64>,
    /// The format [default: that of the extension of -o, else text]
    #[arg(short, long, value_name = "FORMAT", value_parser = formats(&Format::ALL))]
    pub format: Option<Format>,
    /// Write the result to this file, which only its owner can read
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub selection: SelectionOptions,
    #[command(flatten)]
    pub reading: Reading,
}

const LIST_EXAMPLES: &str = "\
Examples:
  isotherm tier list
  isotherm tier list --format json
  isotherm tier list --name '^redis-server$'     where is its memory?
  isotherm tier list --all --min-rss 100M --duration 1m
  isotherm tier list --all --by cgroup           whose memory is where?";

const RUN_EXAMPLES: &str = "\
Examples:
  isotherm tier run --name '^redis-server$' --dry-run
  isotherm tier run --all --min-rss 100M
  isotherm tier run --cgroup /system.slice --rate 50M --record moved.rec
  isotherm tier run --open-files --unit redis  the page cache of its files";

const CONFIG_EXAMPLES: &str = "\
Examples:
  isotherm tier config
  isotherm tier config --rate 50M";

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
