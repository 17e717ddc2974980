//! The options of `isotherm scheme`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use isotherm_core::units;
use isotherm_eval::{MayChange, Search};

use super::{PlainFormat, RECORDING, Reading};

/// Check schemes, try them on a recording, and find their best values
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
    Tune(Box<SchemeTune>),
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

/// Find the best values of a scheme for a program
///
/// The scheme file has a range where a value is free: LOW..HIGH, or LOW..USUAL..HIGH to compare with a usual value.
/// Where a field has bounds, an open end marks the range: `age: 1s..60s..` has a free minimum, `access_frequency:
/// ..0.1Hz..10Hz` a free maximum.
///
/// isotherm first tries many values on a recording. Memory that would have been freed counts as out of memory until it
/// is accessed again. Then it runs the program with the values that promise most, and without a scheme in between.
/// After each run, a model says what is to be expected of all other values. Without a program, there are estimates
/// only. What actions other than pageout, reclaim and limit would give is not known from a recording: they are tuned by
/// runs alone.
///
/// The directory of the result has tuned.yaml, the schemes with the best values; tuning.svg, a picture of what other
/// values would give; tuning.json; and runs.jsonl with each run. docs/evaluation.md describes the search.
#[derive(Args)]
#[command(after_long_help = TUNE_EXAMPLES)]
pub struct SchemeTune {
    /// The scheme file in YAML, with ranges in place of values
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The program; it runs with each of the values
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "workload")]
    pub command: Vec<OsString>,
    /// A workload of a suite in place of a command, with its preparation and its own runtime
    #[arg(long, value_name = "NAME")]
    pub workload: Option<String>,
    /// The suite of the workload: programs, parsec-splash2x, patterns, or a file whose path ends in .yaml or has a
    /// slash
    #[arg(short, long, value_name = "NAME|FILE", default_value = "programs", requires = "workload")]
    pub suite: String,
    /// A recording of the program, on which values are tried. May be given several times [default: one is made]
    #[arg(short, long, value_name = "REC")]
    pub recording: Vec<PathBuf>,
    /// What is best: the highest value of this expression of runtime, rss and system (memory of the program and of the
    /// system), changes in per cent, and pressure (PSI some), in points of per cent [default: that of the papers' tool,
    /// -(0.5 * runtime + 0.5 * rss)]. A run that is slower by more than 20 % is worthless
    #[arg(long, value_name = "EXPRESSION", allow_hyphen_values = true, conflicts_with_all = BOUNDS)]
    pub score: Option<String>,
    /// In place of a score: the least memory with at most this slowdown, such as 1%
    #[arg(long, value_name = "PERCENT", value_parser = units::parse_share)]
    pub max_slowdown: Option<f64>,
    /// In place of a score: the least memory with at most so much more pressure (PSI some), such as 0.1%
    #[arg(long, value_name = "PERCENT", value_parser = units::parse_share)]
    pub max_pressure: Option<f64>,
    /// The most runs with values. Runs without a scheme are added: two, and one for each five
    #[arg(short = 'n', long, value_name = "N", default_value_t = 15)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Begin no run after this time
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    pub time: Option<Duration>,
    /// How values are chosen. model: by estimates, and a model of the runs. random and grid: to compare with
    #[arg(long, value_name = "NAME", default_value = "model", value_parser = searches(), hide_possible_values = true)]
    pub search: String,
    /// What it costs when a page comes back, in estimates
    #[arg(long, value_name = "TIME", default_value = "15us", value_parser = units::parse_duration)]
    pub fault: Duration,
    /// The directory of the result. It holds the files of the program, too
    #[arg(short, long, value_name = "DIR", default_value = "isotherm-tune")]
    pub output: PathBuf,
    /// Go on with the runs that the directory has
    #[arg(long)]
    pub resume: bool,
    /// The format of the result on standard output
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub format: PlainFormat,
    /// Settings of the machine that may be changed, as for `isotherm eval run`: thp, swap, caches
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = settings(), hide_short_help = true)]
    #[arg(hide_possible_values = true)]
    pub may_change: Vec<String>,
    /// The work of a workload of a suite, in per cent of the usual
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    #[arg(hide_short_help = true)]
    pub scale: u32,
    /// The tree of PARSEC, for the suite parsec-splash2x
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    pub parsec: Option<PathBuf>,
    /// Further options of `isotherm record` and `isotherm run`, separated by blanks: `--with="--probe bpf"`
    #[arg(long, value_name = "OPTIONS", default_value = "", allow_hyphen_values = true, hide_short_help = true)]
    pub with: String,
    /// How long the program may take
    #[arg(long, value_name = "TIME", default_value = "20m", value_parser = units::parse_duration)]
    #[arg(hide_short_help = true)]
    pub timeout: Duration,
    /// The number with which chance begins
    #[arg(long, value_name = "N", default_value_t = 1, hide_short_help = true)]
    pub seed: u64,
    /// Show no progress
    #[arg(short, long)]
    pub quiet: bool,
}

/// The options that are in place of a score.
const BOUNDS: [&str; 2] = ["max_slowdown", "max_pressure"];

const TUNE_EXAMPLES: &str = "\
Examples:
  isotherm scheme tune free.yaml -- ./mine --work 10
  isotherm scheme tune free.yaml --workload numpy-file --max-slowdown 1%
  isotherm scheme tune free.yaml -r a.rec -r b.rec       estimates only
  isotherm scheme tune free.yaml -n 30 --time 2h --resume -- ./mine
  isotherm scheme tune free.yaml --score=-runtime-2*system -- ./mine

A file with a range:
  - {name: prcl, action: pageout, access_rate: 0%, age: {min: 1s..5s..60s}}

Signals: INT and TERM end the run under way, which is not part of the result; --resume goes on.";

fn searches() -> PossibleValuesParser {
    PossibleValuesParser::new(Search::ALL.map(Search::name))
}

fn settings() -> PossibleValuesParser {
    PossibleValuesParser::new(MayChange::NAMES)
}
