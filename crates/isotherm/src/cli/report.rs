//! The options of `isotherm report`.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{EnumValueParser, TypedValueParser as _};
use clap::{Args, ValueEnum};
use isotherm_core::survey::WINDOWS;
use isotherm_core::{AddrRange, units};
use isotherm_report::{GroupBy, Measure, SelectedTarget, Selection};

use super::{RECORDING, Reading};

/// Show a recording
///
/// A report goes to standard output, or to a file with -o. The format is that of --format, or of the file's extension:
/// .txt, .json, .png, .svg or .html. PNG and HTML need a file or a pipe.
#[derive(Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct Report {
    /// What to show
    #[arg(value_name = "KIND")]
    pub kind: ReportKind,
    /// The recording, or several that are read as one: rotated files, or those of several machines
    #[arg(value_name = "REC", default_value = RECORDING)]
    pub recordings: Vec<PathBuf>,
    /// The format [default: that of the extension of -o, else text; html for the kind html]
    #[arg(short, long, value_name = "FORMAT")]
    pub format: Option<ReportFormat>,
    /// Write the report to this file, which only its owner can read
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub selection: SelectionOptions,
    /// Group the memory in the summary and the working set [default: process; command with more than 8 targets of
    /// several programs], and in idle-time and temperature [default: command]
    #[arg(long, value_name = "WHAT", value_parser = EnumValueParser::<Group>::new().map(GroupBy::from))]
    pub by: Option<GroupBy>,
    /// In the working set, count what was touched within this time: 1s, 2s, 5s, 10s, 30s, 1m, 2m, 5m, 10m or 30m
    /// [default: the survey interval; without surveys an estimate from samples]
    #[arg(long, value_name = "TIME", value_parser = parse_window)]
    pub window: Option<Duration>,
    /// What a heatmap shows [default: chosen by the information in the recording]
    #[arg(long, value_name = "MEASURE", value_parser = EnumValueParser::<HeatmapMeasure>::new().map(Measure::from))]
    pub measure: Option<Measure>,
    /// Sort by this key: regions by address, rate, age or size [default: address], groups and mappings in the summary
    /// by size, wss, hot, cold or name [default: size]
    #[arg(long, value_name = "KEY", hide_possible_values = true)]
    pub sort: Option<SortKey>,
    #[command(flatten)]
    pub reading: Reading,
    #[command(flatten)]
    pub regions: RegionOptions,
}

/// Which part of a recording is used.
#[derive(Args)]
pub struct SelectionOptions {
    /// Use only this time since the start of the recording, such as 2s:10s, :10s or 2s:
    #[arg(long, value_name = "FROM:TO", value_parser = units::parse_time_range)]
    pub time: Option<Range<Duration>>,
    /// Use only these addresses, such as 0x7f0000000000:0x7f0000100000 or 4GiB:5GiB
    #[arg(long, value_name = "FROM:TO", value_parser = units::parse_address_range)]
    pub address: Option<AddrRange>,
    /// Use only the target with this process ID
    #[arg(long, value_name = "PID")]
    pub target: Option<u32>,
}

impl SelectionOptions {
    /// The part of the recording.
    pub fn selection(&self) -> Selection {
        Selection { time: self.time.clone(), address: self.address, target: self.target.map(selected) }
    }
}

/// The target that `--target` selects: a process ID, or 0 for physical memory.
pub fn selected(number: u32) -> SelectedTarget {
    match number {
        0 => SelectedTarget::PhysicalMemory,
        pid => SelectedTarget::Process(pid),
    }
}

/// What memory is grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Group {
    /// Each process by itself
    Process,
    /// The program that processes run
    Command,
    /// The cgroup of processes
    Cgroup,
    /// The innermost systemd unit of their cgroup
    Unit,
    /// The name of the mapping
    Mapping,
    /// The functions that mapped the memory; only in the summary, and for recordings with call stacks
    Stack,
}

impl From<Group> for GroupBy {
    fn from(group: Group) -> Self {
        match group {
            Group::Process => Self::Process,
            Group::Command => Self::Command,
            Group::Cgroup => Self::Cgroup,
            Group::Unit => Self::Unit,
            Group::Mapping => Self::Mapping,
            Group::Stack => Self::Stack,
        }
    }
}

/// What a heatmap shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum HeatmapMeasure {
    /// How often memory is accessed, from samples
    Rate,
    /// How much memory was touched within a survey interval
    Touched,
    /// For how long memory has been idle, from surveys
    IdleTime,
}

impl From<HeatmapMeasure> for Measure {
    fn from(measure: HeatmapMeasure) -> Self {
        match measure {
            HeatmapMeasure::Rate => Self::Rate,
            HeatmapMeasure::Touched => Self::Touched,
            HeatmapMeasure::IdleTime => Self::IdleTime,
        }
    }
}

/// A window of the working set.
pub fn parse_window(text: &str) -> Result<Duration, String> {
    let window = units::parse_duration(text).map_err(|error| error.to_string())?;
    if WINDOWS.contains(&window) {
        return Ok(window);
    }
    let known: Vec<String> = WINDOWS.map(units::duration).into();
    Err(format!("surveys do not count it; choose one of {}", known.join(", ")))
}

/// Which regions `report regions` shows, and in which order.
#[derive(Args)]
#[command(next_help_heading = "Options of `report regions`")]
pub struct RegionOptions {
    /// Show only the snapshot at this time since the start of the recording [default: all; in a picture, the last]
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    pub at: Option<Duration>,
    /// Show only regions with at least this access rate, such as 0.5 or 50%
    #[arg(long, value_name = "RATE", value_parser = units::parse_share)]
    pub min_rate: Option<f64>,
    /// Show only regions with at most this access rate
    #[arg(long, value_name = "RATE", value_parser = units::parse_share)]
    pub max_rate: Option<f64>,
    /// Show only regions of at least this age: the time for which the access rate has been about the same
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    pub min_age: Option<Duration>,
    /// Show only regions of at most this age
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    pub max_age: Option<Duration>,
    /// Show only regions of at least this size, such as 64K or 2M (powers of 1,024)
    #[arg(long, value_name = "SIZE", value_parser = units::parse_bytes)]
    pub min_size: Option<u64>,
    /// Show only regions of at most this size
    #[arg(long, value_name = "SIZE", value_parser = units::parse_bytes)]
    pub max_size: Option<u64>,
}

/// The key by which regions, or groups and mappings, are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SortKey {
    /// Lowest address first
    Address,
    /// Highest access rate first
    Rate,
    /// Oldest first
    Age,
    /// Largest first
    Size,
    /// Largest working set first
    Wss,
    /// Most hot memory first
    Hot,
    /// Most cold memory first
    Cold,
    /// By name
    Name,
}

/// What a report shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReportKind {
    /// When and where memory is hot: access rates by time and address
    Heatmap,
    /// The working set: how much memory is in use, over time
    Wss,
    /// The regions of each snapshot
    Regions,
    /// Resident, hot, warm, cold and idle bytes, and the working set of each mapping
    Summary,
    /// For how long memory has been idle: a histogram, by mapping and command, and over time
    IdleTime,
    /// How many bytes are accessed how often: a histogram of access rates, by mapping and command, and over time
    Temperature,
    /// What the monitoring cost: regions, page reads, CPU time, late rounds
    Overhead,
    /// What schemes did, and the memory in use; for recordings of `isotherm run --record`
    Schemes,
    /// Attributes, working sets and advice, as `isotherm tune` prints them; text and json only
    Tune,
    /// All reports but tune in one page, which needs no network
    Html,
}

/// The format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// Fitted to the terminal
    Text,
    /// For programs (docs/reports.md)
    Json,
    /// Pixel graphics
    Png,
    /// Vector graphics
    Svg,
    /// A page that needs no network; `isotherm report` puts all reports into it, for every kind but tune
    Html,
}

const AFTER_HELP: &str = "\
Examples:
  isotherm report summary                    how much is hot, warm, cold?
  isotherm report heatmap --time 2s:10s      when and where is it hot?
  isotherm report heatmap -o heatmap.png
  isotherm report heatmap --measure idle-time
  isotherm report wss --window 10s           how much is touched within 10 s?
  isotherm report wss --format json
  isotherm report summary --by unit --sort hot
  isotherm report idle-time                  for how long is it idle?
  isotherm report temperature                how much is accessed how often?
  isotherm report wss monday.rec tuesday.rec
  isotherm report regions --at 3s --sort rate --min-rate 50%
  isotherm report schemes acted.rec          what did the schemes do?
  isotherm report tune                       what follows for the target?
  isotherm report html -o memory.html        all reports in one page";
