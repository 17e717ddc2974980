//! The command line, described in one place; it knows nothing of how things are done.

mod idle;
mod man;
mod run;
mod scheme;
mod top;

use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use isotherm_core::AddrRange;
use isotherm_core::units::{self, QuantityError};

pub use idle::{By, Idle, IdleFormatChoice, IdleProbeChoice};
pub use man::Man;
pub use run::Run;
pub use scheme::{Scheme, SchemeCommand, TryFormat};
pub use top::Top;

const RECORDING: &str = "isotherm.rec";

/// Show the temperature of memory: which of it is hot, which is cold, and for how long.
///
/// isotherm watches the memory of running processes with a bounded overhead, by the method of DAMON: neighbouring pages
/// of equal access frequency form a region, and only one page of each region is looked at in each sampling interval.
/// It needs no kernel with DAMON and no idle page tracking.
#[derive(Parser)]
#[command(name = "isotherm", version, propagate_version = true, max_term_width = 100, after_long_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  isotherm doctor                          what works on this machine
  isotherm top --pid 1234                  its memory, live
  isotherm idle                            how much memory is idle, and whose
  isotherm record --pid 1234 --duration 10s
  isotherm record -- ./my-program --its-option
  isotherm report summary                  what the memory is doing
  isotherm report heatmap                  when and where it is hot
  isotherm report schemes acted.rec -o schemes.svg what schemes did, and the memory in use beside it
  isotherm report html -o memory.html      all of it, in one page
  isotherm scheme try prcl.yaml            what a scheme would have done to it
  isotherm run --schemes prcl.yaml --pid 1234
                                           let it do that

Exit status: 0 if all went well, 1 if it failed, 2 if the call was wrong. `isotherm record -- COMMAND` \
exits with the command's own status, or with 128 and the number of the signal that ended it.";

#[derive(Subcommand)]
pub enum Command {
    Record(Box<Record>),
    Top(Box<Top>),
    Idle(Box<Idle>),
    Run(Box<Run>),
    Report(Box<Report>),
    Convert(Convert),
    Import(Import),
    Scheme(Scheme),
    Doctor(Doctor),
    Workload(Workload),
    Completions(Completions),
    Man(Man),
}

/// Record the memory temperature of processes, or of all physical memory
///
/// Watches a command from its start to its end, or processes that run already until they end, the time is over, or
/// Ctrl-C is pressed; with --physical all memory of the machine, as long as the command runs or until one of the latter. The recording is an Apache Arrow IPC stream (docs/recording.md); whatever ends isotherm, what was
/// recorded until a second before stays readable.
///
/// The monitor samples one page of each region every sampling interval, and so never looks at more pages than there may
/// be regions. After each aggregation interval it writes a snapshot, merges neighbouring regions of the same access
/// frequency and splits them again at random to find new borders. After each update interval it reads the mappings again.
#[derive(Args)]
#[command(after_long_help = RECORD_EXAMPLES)]
pub struct Record {
    #[command(flatten)]
    pub watch: Watch,
    /// Write the recording to this file, which only its owner may read
    #[arg(short, long, value_name = "FILE", default_value = RECORDING)]
    pub output: PathBuf,
    /// Show no progress
    #[arg(short, long)]
    pub quiet: bool,
}

const RECORD_EXAMPLES: &str = "\
Examples:
  isotherm record -- ./my-program              from its start to its end
  isotherm record --pid 1234 --duration 1m     a minute of a process that runs
  isotherm record --pid 1234 --children        it and all that it starts
  isotherm record --aggr 1s --pid 1234         coarser in time, with finer access rates
  isotherm record --physical --duration 1m     all memory of the machine, page cache included
  isotherm record --physical -- ./my-program   all memory while a command runs

Signals: with a command, HUP, INT, QUIT, TERM, USR1 and USR2 are passed on to it, and isotherm ends when it has. \
Without one, HUP, INT, QUIT and TERM end the recording cleanly.";

/// What is watched, and how: the same for all that watch.
#[derive(Args)]
pub struct Watch {
    /// Watch the process of this ID; may be given several times
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Vec<u32>,
    /// Watch physical memory instead of processes; a command after -- then only says for how long
    #[arg(long, conflicts_with_all = ["pid", "children"])]
    pub physical: bool,
    /// With --physical: only these addresses, such as 0x100000000:0x140000000 or 4GiB:5GiB; may be given several times. With --probe
    /// damon and one --pid: only these of that process
    #[arg(long, value_name = "FROM:TO", value_parser = units::parse_address_range)]
    pub range: Vec<AddrRange>,
    /// Watch the descendants of the targets, too: they join as they appear and leave as they end
    #[arg(long)]
    pub children: bool,
    /// End after this time; a command that isotherm started is then asked to end (SIGTERM)
    #[arg(short, long, value_name = "TIME", value_parser = units::parse_duration)]
    pub duration: Option<Duration>,
    /// How to learn whether a page was accessed
    #[arg(long, value_name = "PROBE", default_value = "auto")]
    pub probe: ProbeChoice,
    #[command(flatten)]
    pub attributes: AttributeOptions,
    /// The command to start and watch, after `--`
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "pid")]
    pub command: Vec<OsString>,
}

/// The monitoring attributes.
#[derive(Args)]
pub struct AttributeOptions {
    /// Sampling interval: the time between clearing a page and reading it [default: 5ms; 100ms with refs]
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    pub sample: Option<Duration>,
    /// Aggregation interval: the time over which accesses are counted [default: 100ms; 1s with refs]
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    pub aggr: Option<Duration>,
    /// Update interval: the time between two readings of the mappings
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    pub update: Option<Duration>,
    /// The number of regions: the minimum is aimed at, the maximum never exceeded
    #[arg(long, value_name = "MIN:MAX", value_parser = regions)]
    pub regions: Option<(usize, usize)>,
    /// Seed of the random choices, so that a run can be repeated [default: from the clock]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

/// Two numbers of regions.
fn regions(text: &str) -> Result<(usize, usize), QuantityError> {
    units::parse_count_range(text).map(|(min, max)| (min as usize, max as usize))
}

/// A way to learn whether a page was accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProbeChoice {
    /// The best that works here: idle, then bpf, then refs
    Auto,
    /// Idle page tracking: page by page; physical memory, too; needs root, and a kernel that has it
    Idle,
    /// Page tables, read by eBPF: page by page; needs root
    Bpf,
    /// /proc/PID/clear_refs and smaps: coarse, a mapping at a time; for a process of one's own
    Refs,
    /// The kernel's own DAMON does the work; needs root, and a kernel that has it and does not use it otherwise. Never chosen by auto
    Damon,
}

/// Show a recording
///
/// Pictures (png, svg) and pages (html) go to a file with -o, whose name also tells the format if --format does not.
#[derive(Args)]
#[command(after_long_help = REPORT_EXAMPLES)]
pub struct Report {
    /// What to show
    #[arg(value_name = "KIND")]
    pub kind: ReportKind,
    /// The recording
    #[arg(value_name = "REC", default_value = RECORDING)]
    pub recording: PathBuf,
    /// The format [default: by the name of -o, else text; html for html]
    #[arg(short, long, value_name = "FORMAT")]
    pub format: Option<ReportFormat>,
    /// Write to this file
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Only this time since the recording's start, such as 2s:10s, :10s or 2s:
    #[arg(long, value_name = "FROM:TO", value_parser = units::parse_time_range)]
    pub time: Option<Range<Duration>>,
    /// Only these addresses, such as 0x7f0000000000:0x7f0000100000 or 4GiB:5GiB
    #[arg(long, value_name = "FROM:TO", value_parser = units::parse_address_range)]
    pub address: Option<AddrRange>,
    /// Only the target of this process ID
    #[arg(long, value_name = "PID")]
    pub target: Option<u32>,
    #[command(flatten)]
    pub regions: RegionOptions,
}

const REPORT_EXAMPLES: &str = "\
Examples:
  isotherm report summary                          what the memory is doing
  isotherm report heatmap --time 2s:10s            when and where it is hot
  isotherm report heatmap -o heatmap.png
  isotherm report wss --format json | jq .percentiles
  isotherm report regions --at 3s --sort rate --min-rate 0.5
  isotherm report schemes acted.rec -o schemes.svg what schemes did, and the memory in use beside it
  isotherm report html -o memory.html              all of it, in one page

The JSON of each kind is described in docs/reports.md.";

/// What `report regions` shows of the regions.
#[derive(Args)]
#[command(next_help_heading = "Options of `report regions`")]
pub struct RegionOptions {
    /// Only the snapshot at this time since the recording's start
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    pub at: Option<Duration>,
    /// In which order
    #[arg(long, value_name = "KEY", default_value = "address")]
    pub sort: SortKey,
    /// Only regions of at least this access rate, 0 to 1
    #[arg(long, value_name = "RATE", value_parser = units::parse_share)]
    pub min_rate: Option<f64>,
    /// Only regions of at most this access rate, 0 to 1
    #[arg(long, value_name = "RATE", value_parser = units::parse_share)]
    pub max_rate: Option<f64>,
    /// Only regions whose access rate has stayed as it is for at least this long
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    pub min_age: Option<Duration>,
    /// Only regions whose access rate has stayed as it is for at most this long
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    pub max_age: Option<Duration>,
    /// Only regions of at least this size
    #[arg(long, value_name = "SIZE", value_parser = units::parse_bytes)]
    pub min_size: Option<u64>,
    /// Only regions of at most this size
    #[arg(long, value_name = "SIZE", value_parser = units::parse_bytes)]
    pub max_size: Option<u64>,
}

/// The key that regions are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SortKey {
    /// Lowest first
    Address,
    /// Hottest first
    Rate,
    /// Oldest first
    Age,
    /// Largest first
    Size,
}

/// What a report shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReportKind {
    /// When and where the memory is hot: time across, address up
    Heatmap,
    /// The working set: how much memory is in use, over time
    Wss,
    /// The regions of each snapshot
    Regions,
    /// For each mapping: hot, warm and cold bytes, working set, idle time
    Summary,
    /// What the monitor took: regions, reads, CPU time, late rounds
    Overhead,
    /// What schemes did, and the memory in use beside it; of recordings made by `isotherm run --record`
    Schemes,
    /// Everything, in one page that needs no network
    Html,
}

/// How a report is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// For a terminal
    Text,
    /// For programs
    Json,
    /// A picture of pixels
    Png,
    /// A picture of lines
    Svg,
    /// A page
    Html,
}

/// Convert a recording to Parquet, CSV or JSON, or for damo
///
/// The name of the output tells the format: .parquet and .csv have one row for each region of each snapshot, .json has
/// the whole recording as one document (docs/recording.md).
///
/// .damo (or the name damon.data, which damo looks for) and .damo.json are the compressed and the plain JSON of damo, DAMON's own
/// tool. They hold regions, counts, ages and times; not mappings, commands, costs, what schemes did, and what could not be observed
/// (docs/damo.md).
#[derive(Args)]
pub struct Convert {
    /// The recording
    #[arg(value_name = "REC")]
    pub recording: PathBuf,
    /// The file to write: .parquet, .csv, .json, .damo or .damo.json
    #[arg(value_name = "OUT")]
    pub output: PathBuf,
}

/// Make a recording of what another tool recorded
#[derive(Args)]
pub struct Import {
    #[command(subcommand)]
    pub from: ImportFrom,
}

/// Whose recording it is.
#[derive(Subcommand)]
pub enum ImportFrom {
    Damo(ImportDamo),
}

/// Make a recording of one of damo, DAMON's own tool
///
/// Reads damo's formats json_compressed (its default) and json, of damo 1.9 and later. `damo convert_record_format` makes these of
/// others. What the targets are is taken from FILE.kdamonds, which `damo record` writes beside FILE, if it is there.
///
/// damo tells regions, counts, ages and times. It tells no mappings, so that all that was watched counts as mapped; and no costs
/// (docs/damo.md).
#[derive(Args)]
#[command(after_long_help = IMPORT_DAMO_EXAMPLES)]
pub struct ImportDamo {
    /// What damo recorded
    #[arg(value_name = "FILE", default_value = "damon.data")]
    pub file: PathBuf,
    /// Write the recording to this file, which only its owner may read [default: FILE with the extension .rec]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The process that a target of damo's was, or 0 for physical memory; may be given several times, for one target after
    /// another [default: as FILE.kdamonds says]
    #[arg(short, long, value_name = "PID")]
    pub pid: Vec<u32>,
    /// Show only what had to be guessed or left out
    #[arg(short, long)]
    pub quiet: bool,
}

const IMPORT_DAMO_EXAMPLES: &str = "\
Examples:
  isotherm import damo                              damon.data to damon.rec
  isotherm report heatmap damon.rec
  isotherm import damo old.data -o old.rec --pid 4711";

/// Say which probes work here, and what would make the others work
///
/// Each is found out by trying it on isotherm's own memory.
#[derive(Args)]
pub struct Doctor {
    /// The format
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub format: DoctorFormat,
}

/// How the doctor's findings are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DoctorFormat {
    /// For people
    Text,
    /// For programs
    Json,
}

/// Run a built-in workload whose access pattern is known
///
/// It touches memory as the pattern says, so that what isotherm shows of it can be held against the truth.
#[derive(Args)]
pub struct Workload {
    /// The pattern's name, or a file that ends in .toml
    #[arg(value_name = "PATTERN", default_value = "stairs")]
    pub pattern: String,
    /// Run for this long, from the first phase on again when all are over [default: all phases once]
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    pub time: Option<Duration>,
    /// Make each area this many times as large
    #[arg(long, value_name = "FACTOR", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub scale: u32,
    /// Touch as fast as possible, in the manner of the first phase; print what every tenth of a second brought, as JSON Lines
    #[arg(long, requires = "time")]
    pub flat_out: bool,
    /// Print where each area lies and when each phase begins, as JSON Lines
    #[arg(long)]
    pub announce: bool,
    /// Print the names of the built-in patterns, and nothing else
    #[arg(long)]
    pub list: bool,
}

/// Print the completions for a shell
///
/// For bash, for one: `isotherm completions bash > /etc/bash_completion.d/isotherm`
#[derive(Args)]
pub struct Completions {
    /// The shell
    pub shell: clap_complete::Shell,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_holds_together() {
        super::Cli::command().debug_assert();
    }
}
