//! The options of `isotherm eval`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use isotherm_core::units;
use isotherm_eval::{Configuration, MayChange, Paper, PressureScheme, Rendering};

use super::PlainFormat;

/// The directory of results that commands use unless another is named.
const DIRECTORY: &str = "isotherm-eval";

/// Measure programs with and without isotherm, and make the tables of the DAMON papers
///
/// docs/evaluation.md describes suites of programs, configurations, results and figures.
#[derive(Args)]
pub struct Eval {
    #[command(subcommand)]
    pub command: EvalCommand,
}

#[derive(Subcommand)]
pub enum EvalCommand {
    Run(Box<EvalRun>),
    Pressure(Box<EvalPressure>),
    Report(EvalReport),
}

// No documentation: clap would take it for that of the commands.
#[derive(Args)]
pub struct EvalPrograms {
    /// The programs: programs, parsec-splash2x, patterns, or a file whose path ends in .yaml or has a slash
    #[arg(short, long, value_name = "NAME|FILE", default_value = "programs")]
    pub suite: String,
    /// Only these programs, separated by commas, with or without their group
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Add to the results that the directory has: make the runs that are missing or have failed
    #[arg(long)]
    pub resume: bool,
    /// The work of each program, in per cent of the usual
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub scale: u32,
    /// The tree of PARSEC, for the suite parsec-splash2x
    #[arg(long, value_name = "DIR")]
    pub parsec: Option<PathBuf>,
    /// Settings of the machine that may be changed, separated by commas. They are restored at the end. thp: transparent
    /// huge pages, always for thp and madvise for all others. swap: swap to the first zram device. caches: drop the
    /// page cache before each run
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = settings())]
    #[arg(hide_possible_values = true)]
    pub may_change: Vec<String>,
    /// Further options of `isotherm record` and `isotherm run`, separated by blanks: `--with="--probe bpf"`
    #[arg(long, value_name = "OPTIONS", default_value = "", allow_hyphen_values = true, hide_short_help = true)]
    pub with: String,
    /// How long a program may take
    #[arg(long, value_name = "TIME", default_value = "20m", value_parser = units::parse_duration)]
    #[arg(hide_short_help = true)]
    pub timeout: Duration,
    /// Show no progress
    #[arg(short, long)]
    pub quiet: bool,
}

/// Run programs under several configurations, in turn, and measure time and memory
///
/// orig: neither isotherm nor huge pages. rec: isotherm records the program. prec: isotherm records physical memory.
/// thp: huge pages for all memory. ethp: isotherm makes huge pages where memory is accessed. prcl: isotherm reclaims
/// memory that was idle for 5 s.
///
/// Each program is prepared and runs once without being measured. Then all its configurations run, one after the
/// other, as often as --runs says. Each run is added to the results when it ends, so that a measurement that was ended
/// goes on with --resume. isotherm records and acts on programs as root.
///
/// Settings of the machine stay as they are, unless --may-change names them. thp then is for the program alone: its
/// allocator asks for huge pages. What is not possible on this machine is left out, and standard error says why, and
/// what would allow it. A configuration that --configs names and that no program can run under is an error.
#[derive(Args)]
#[command(after_long_help = RUN_EXAMPLES)]
pub struct EvalRun {
    #[command(flatten)]
    pub programs: EvalPrograms,
    /// Only these configurations, separated by commas; orig is always among them [default: all that are possible]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = configurations())]
    #[arg(hide_possible_values = true)]
    pub configs: Vec<String>,
    /// Runs of each program under each configuration
    #[arg(short = 'n', long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: u32,
    /// The directory of the results. It holds the files of the programs, too
    #[arg(short, long, value_name = "DIR", default_value = DIRECTORY)]
    pub output: PathBuf,
    /// The scheme file of ethp or prcl, in place of isotherm's own: prcl=FILE. May be given several times
    #[arg(long, value_name = "NAME=FILE", value_parser = scheme, hide_short_help = true)]
    pub scheme: Vec<(Configuration, PathBuf)>,
}

const RUN_EXAMPLES: &str = "\
Examples:
  isotherm eval run --suite patterns --configs rec --runs 1 --scale 10
  isotherm eval run --only redis,sqlite3 -o tables
  isotherm eval run --configs thp,ethp --runs 5 -o tables --resume
  isotherm eval run --suite parsec-splash2x --parsec parsec -o tables --resume
  isotherm eval report tables            what came of it?

Signals: INT and TERM end the run under way, which is not part of the results.";

fn configurations() -> PossibleValuesParser {
    PossibleValuesParser::new(Configuration::ALL.map(Configuration::name))
}

fn settings() -> PossibleValuesParser {
    PossibleValuesParser::new(MayChange::NAMES)
}

fn scheme(text: &str) -> Result<(Configuration, PathBuf), String> {
    let named = text.split_once('=').and_then(|(name, file)| Some((Configuration::named(name)?, file.into())));
    let acts = |configuration| matches!(configuration, Configuration::Ethp | Configuration::Prcl);
    let named = named.filter(|(configuration, _)| acts(*configuration));
    named.ok_or_else(|| "write ethp=FILE or prcl=FILE".into())
}

/// Run programs with less memory than they use, without and with schemes, and compare their speed
///
/// Each program runs once in a cgroup without a limit, which tells the most memory that it has, page cache included.
/// Then it runs in cgroups that are limited to shares of it, in turn: without isotherm, and with it. mlock: isotherm
/// locks hot memory. willneed: isotherm reads reclaimed memory in that is near to hot memory. prcl: isotherm reclaims
/// memory that was idle for 5 s. Runs without isotherm, and without a limit, are always made.
///
/// Each run has a cgroup of its own, which is removed after it, also after an error or a signal. Existing cgroups stay
/// as they are: the cgroup above must have the controller memory turned on for those below it. Limiting needs swap,
/// unless most memory of the program is of files.
#[derive(Args)]
#[command(after_long_help = PRESSURE_EXAMPLES)]
pub struct EvalPressure {
    #[command(flatten)]
    pub programs: EvalPrograms,
    /// The limits, in per cent of the most memory without a limit, separated by commas
    #[arg(long, value_name = "PERCENTS", value_delimiter = ',', default_value = "50,70,90")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    pub limits: Vec<u32>,
    /// What isotherm does, separated by commas: mlock, willneed, prcl, none
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "mlock,willneed,prcl")]
    #[arg(value_parser = pressure_schemes(), hide_possible_values = true)]
    pub configs: Vec<String>,
    /// Runs of each program in each case
    #[arg(short = 'n', long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: u32,
    /// The directory of the results. It holds the files of the programs, too
    #[arg(short, long, value_name = "DIR", default_value = "isotherm-pressure")]
    pub output: PathBuf,
    /// The format of the result on standard output
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub format: PlainFormat,
    /// The cgroup below which cgroups are made
    #[arg(long, value_name = "PATH", default_value = "/")]
    pub cgroup: String,
    /// The scheme file of mlock, willneed or prcl, in place of isotherm's own: mlock=FILE. May be given several times
    #[arg(long, value_name = "NAME=FILE", value_parser = pressure_scheme, hide_short_help = true)]
    pub scheme: Vec<(PressureScheme, PathBuf)>,
}

const PRESSURE_EXAMPLES: &str = "\
Examples:
  isotherm eval pressure --only redis,sqlite3 --limits 50,70,90 -o pressure
  isotherm eval pressure --only numpy-file --configs willneed,prcl
  isotherm eval pressure -o pressure --resume --runs 5
  isotherm eval pressure --cgroup /user.slice --configs mlock

Signals: INT and TERM end the run under way, which is not part of the results.";

fn pressure_schemes() -> PossibleValuesParser {
    PossibleValuesParser::new(PressureScheme::ALL.map(PressureScheme::name))
}

fn pressure_scheme(text: &str) -> Result<(PressureScheme, PathBuf), String> {
    let named = text.split_once('=').and_then(|(name, file)| Some((PressureScheme::named(name)?, file.into())));
    let named = named.filter(|(scheme, _)| *scheme != PressureScheme::None);
    named.ok_or_else(|| "write mlock=FILE, willneed=FILE or prcl=FILE".into())
}

/// Show the tables of an evaluation
///
/// For runtime, memory of the system and resident memory, a table has a row for each program, the total and the
/// average: the mean of orig, and the change of each other configuration in per cent, with its interval of 95 %
/// confidence. If the papers have the program, their change is next to ours.
#[derive(Args)]
#[command(after_long_help = REPORT_EXAMPLES)]
pub struct EvalReport {
    /// The directory of the results
    #[arg(value_name = "DIR", default_value = DIRECTORY)]
    pub directory: PathBuf,
    /// The format [default: that of the extension of -o (.txt, .md, .csv, .json or .html), else text]
    #[arg(short, long, value_name = "FORMAT", value_parser = renderings())]
    pub format: Option<String>,
    /// Also show the standard deviation, the minimum and the maximum of the runs
    #[arg(long)]
    pub spread: bool,
    /// The paper whose figures are next to ours; CSV and JSON have all of them. v24: DAMON v24. v8: DAMON v8. schemes:
    /// operation schemes
    #[arg(long, value_name = "PAPER", default_value = "v24", value_parser = papers(), hide_possible_values = true)]
    pub paper: String,
    /// What a major page fault costs on a real machine. Where processors are emulated, a runtime is modelled with it
    #[arg(long, value_name = "TIME", default_value = "15us", value_parser = units::parse_duration)]
    pub fault: Duration,
    /// Write the report to this file, which only its owner can read
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

const REPORT_EXAMPLES: &str = "\
Examples:
  isotherm eval report tables
  isotherm eval report tables --spread -o tables.md
  isotherm eval report tables -o tables.html     with pictures";

fn renderings() -> PossibleValuesParser {
    PossibleValuesParser::new(Rendering::ALL.map(Rendering::name))
}

fn papers() -> PossibleValuesParser {
    PossibleValuesParser::new(Paper::ALL.map(Paper::name))
}
