//! The options of `isotherm report`: a subcommand for each row of the table of reports.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, Error, FromArgMatches, Subcommand};
use isotherm_core::survey::WINDOWS;
use isotherm_core::{AddrRange, units};
use isotherm_report::{Choice, Format, GroupBy, Kind, Measure, SelectedTarget, Selection, Sort, SummarySort};

use super::{RECORDING, Reading, SOCKET};

/// Show a recording
#[derive(Args)]
#[command(subcommand_value_name = "KIND", subcommand_help_heading = "Kinds", after_long_help = SEE_ALSO)]
pub struct Report {
    #[command(subcommand)]
    pub kind: KindOptions,
}

const SEE_ALSO: &str = "`isotherm report KIND --help` has the options of each kind, and examples.";

/// What the help of each kind says after what the kind shows.
const WHERE: &str = "The report goes to standard output, or to a file with -o. The format is that of --format, or of \
the file's extension. PNG and HTML need a file or a pipe. docs/reports.md describes the figures.";
const PAGE: &str = " In HTML, it is the page with all reports.";

/// Options of all kinds of reports.
#[derive(Args)]
pub struct AllKinds {
    /// The recording, or several that are read as one: rotated files, or those of several machines
    #[arg(value_name = "REC", default_value = RECORDING)]
    pub recordings: Vec<PathBuf>,
    /// Ask the running daemon for what it keeps of this group, instead of reading recordings
    #[arg(long, value_name = "GROUP", conflicts_with = "recordings")]
    pub connect: Option<String>,
    /// With --connect: the time up to now that the report is on [default: all that is kept]
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, requires = "connect")]
    pub last: Option<Duration>,
    /// With --connect: the socket of the daemon
    #[arg(long, value_name = "PATH", default_value = SOCKET, hide_short_help = true)]
    pub socket: PathBuf,
    /// The format [default: that of the extension of -o, else the first of these]
    #[arg(short, long, value_name = "FORMAT", value_parser = formats(&Format::ALL))]
    pub format: Option<Format>,
    /// Write the report to this file, which only its owner can read
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub selection: SelectionOptions,
    #[command(flatten)]
    pub reading: Reading,
}

/// A kind of report with its options. Those that the kind does not have are at their defaults.
pub struct KindOptions {
    pub kind: Kind,
    pub all: AllKinds,
    pub by: Option<GroupBy>,
    pub window: Option<Duration>,
    pub measure: Option<Measure>,
    pub summary_sort: SummarySort,
    pub regions: RegionOptions,
    /// The given ones among those that not all kinds have.
    pub given: Vec<String>,
}

/// What most reports group memory by. Stacks are last of all.
const WITHOUT_STACKS: &[(GroupBy, &str, &str)] = GroupBy::NAMES.split_at(5).0;

#[derive(Args)]
struct ByOption {
    /// Group the memory by this
    #[arg(long, value_name = "WHAT", value_parser = one_of(WITHOUT_STACKS.iter().copied()))]
    by: Option<GroupBy>,
}

#[derive(Args)]
struct SummaryOptions {
    /// Group the memory by this [default: process; command with more than 8 targets of several programs]
    #[arg(long, value_name = "WHAT", value_parser = one_of(GroupBy::NAMES))]
    by: Option<GroupBy>,
    /// Sort groups and mappings by this key
    #[arg(long, value_name = "KEY", default_value = "size", value_parser = one_of(SummarySort::NAMES))]
    sort: SummarySort,
}

#[derive(Args)]
struct WindowOption {
    /// In the working set, count what was touched within this time: 1s, 2s, 5s, 10s, 30s, 1m, 2m, 5m, 10m, 30m or 1h
    /// [default: the survey interval; without surveys an estimate from samples]
    #[arg(long, value_name = "TIME", value_parser = parse_window)]
    window: Option<Duration>,
}

#[derive(Args)]
struct MeasureOption {
    /// What the heatmap shows [default: chosen by the information in the recording]
    #[arg(long, value_name = "MEASURE", value_parser = one_of(Measure::NAMES))]
    measure: Option<Measure>,
}

/// Which regions are shown, and in which order.
#[derive(Args, Clone, Default, PartialEq)]
pub struct RegionOptions {
    /// Sort the regions by this key
    #[arg(long, value_name = "KEY", default_value = "address", value_parser = one_of(Sort::NAMES))]
    pub sort: Sort,
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

/// The subcommand of a kind.
fn command(kind: Kind) -> Command {
    let command = kind.choices().iter().fold(Command::new(kind.name()), |command, choice| match choice {
        Choice::By { default } => {
            let help = format!("Group the memory by this [default: {default}]");
            ByOption::augment_args(command).mut_arg("by", |by| by.help(help))
        }
        Choice::Summary => SummaryOptions::augment_args(command),
        Choice::Window => WindowOption::augment_args(command),
        Choice::Measure => MeasureOption::augment_args(command),
        Choice::Regions => RegionOptions::augment_args(command),
    });
    let command = AllKinds::augment_args(command);
    let command = command.mut_arg("format", |format| format.value_parser(formats(kind.formats())));
    let page = if kind.formats().len() > 1 && kind.formats().contains(&Format::Html) { PAGE } else { "" };
    let about = kind.about();
    command.about(about).long_about(format!("{about}\n\n{WHERE}{page}")).after_long_help(examples(kind))
}

/// The options of a kind that not all kinds have and that are given.
fn given(kind: Kind, matches: &ArgMatches) -> Vec<String> {
    let (all, of_kind) = (AllKinds::augment_args(Command::new("")), command(kind));
    let own = of_kind.get_arguments().filter(|own| all.get_arguments().all(|of_all| of_all.get_id() != own.get_id()));
    let given = own.filter(|own| matches.value_source(own.get_id().as_str()) == Some(ValueSource::CommandLine));
    given.filter_map(|own| own.get_long().map(|name| format!("--{name}"))).collect()
}

fn examples(kind: Kind) -> String {
    let width = kind.examples().iter().map(|(call, _)| call.len() + 2).max().unwrap_or(0);
    let line = |(call, what): &(&str, &str)| format!("\n  isotherm report {call:<width$}{what}").trim_end().to_owned();
    format!("Examples:{}", kind.examples().iter().map(line).collect::<String>())
}

impl Subcommand for KindOptions {
    fn augment_subcommands(parent: Command) -> Command {
        parent.subcommand_required(true).disable_help_subcommand(true).subcommands(Kind::ALL.map(command))
    }

    fn augment_subcommands_for_update(parent: Command) -> Command {
        Self::augment_subcommands(parent)
    }

    fn has_subcommand(name: &str) -> bool {
        Kind::ALL.iter().any(|kind| kind.name() == name)
    }
}

impl FromArgMatches for KindOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let found = matches.subcommand();
        let found = found.and_then(|(name, of)| Some((Kind::ALL.into_iter().find(|kind| kind.name() == name)?, of)));
        let (kind, matches) = found.ok_or_else(|| Error::new(ErrorKind::MissingSubcommand))?;
        let mut options = Self {
            kind,
            all: AllKinds::from_arg_matches(matches)?,
            by: None,
            window: None,
            measure: None,
            summary_sort: SummarySort::default(),
            regions: RegionOptions::default(),
            given: given(kind, matches),
        };
        for choice in kind.choices() {
            match choice {
                Choice::By { .. } => options.by = ByOption::from_arg_matches(matches)?.by,
                Choice::Summary => {
                    SummaryOptions { by: options.by, sort: options.summary_sort } =
                        SummaryOptions::from_arg_matches(matches)?;
                }
                Choice::Window => options.window = WindowOption::from_arg_matches(matches)?.window,
                Choice::Measure => options.measure = MeasureOption::from_arg_matches(matches)?.measure,
                Choice::Regions => options.regions = RegionOptions::from_arg_matches(matches)?,
            }
        }
        Ok(options)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Reads one of some values by its name. Each comes with its name and what it is.
pub fn one_of<T: Copy + Send + Sync + 'static>(
    values: impl IntoIterator<Item = (T, &'static str, &'static str)>,
) -> impl TypedValueParser<Value = T> {
    let values: Vec<_> = values.into_iter().collect();
    let names: Vec<_> = values.iter().map(|(_, name, about)| PossibleValue::new(*name).help(*about)).collect();
    PossibleValuesParser::new(names).try_map(move |chosen| {
        values.iter().find(|(_, name, _)| *name == chosen).map(|(value, ..)| *value).ok_or("there is no such value")
    })
}

/// Reads one of these formats.
pub fn formats(formats: &[Format]) -> impl TypedValueParser<Value = Format> {
    one_of(formats.iter().map(|format| (*format, format.name(), format.about())))
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
    /// Call memory hot if a page is accessed at least so often, such as 5Hz [default: 10Hz]
    #[arg(long, value_name = "HZ", value_parser = units::parse_hertz)]
    pub hot: Option<f64>,
}

impl SelectionOptions {
    /// The part of the recording.
    pub fn selection(&self) -> Selection {
        Selection {
            time: self.time.clone(),
            address: self.address,
            target: self.target.map(selected),
            hot_hz: self.hot,
        }
    }
}

/// The target that `--target` selects: a process ID, or 0 for physical memory or page cache of files.
pub fn selected(number: u32) -> SelectedTarget {
    match number {
        0 => SelectedTarget::PhysicalMemory,
        pid => SelectedTarget::Process(pid),
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
