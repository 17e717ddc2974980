//! The options of `isotherm fleet`.

use std::path::PathBuf;

#[cfg(feature = "fleet-query")]
use clap::ValueEnum;
use clap::{Args, Subcommand};

/// The memory temperature of many hosts as a table, for SQL
///
/// A dataset is a folder of Parquet files, with a row for each minute, host, service and program, or a place on an
/// object store: `s3://BUCKET/PREFIX`, `gs://` and `az://` or `abfs://`, with the credentials of the environment. Each
/// host writes its own files. DuckDB and others read them; docs/fleet.md has the columns.
#[derive(Args)]
pub struct Fleet {
    #[command(subcommand)]
    pub command: FleetCommand,
}

#[derive(Subcommand)]
pub enum FleetCommand {
    Write(FleetWrite),
    Compact(FleetCompact),
    Check(FleetCheck),
    Views(FleetViews),
    Generate(FleetGenerate),
    #[cfg(feature = "fleet-query")]
    Query(FleetQuery),
    #[cfg(feature = "fleet-query")]
    Report(FleetReport),
}

/// Write what the daemon's history or recordings have
///
/// Each quarter of an hour that is over is written once. A later call writes what is missing, such as the time in which
/// the dataset could not be reached, as far back as the history goes. A daemon with `fleet: {to: DATASET}` in its
/// configuration does this by itself.
#[derive(Args)]
#[command(after_long_help = WRITE_EXAMPLES)]
pub struct FleetWrite {
    /// Directories of a daemon's history, with a directory for each group; or recordings
    #[arg(value_name = "PATH", default_value = "/var/lib/isotherm/history")]
    pub paths: Vec<PathBuf>,
    /// The dataset, a folder or a URL; it is made if it does not exist, but for its bucket
    #[arg(long, value_name = "DATASET")]
    pub to: PathBuf,
    /// The group of the recordings that are given
    #[arg(long, value_name = "NAME", default_value = "recording")]
    pub group: String,
    /// Show nothing but problems
    #[arg(short, long)]
    pub quiet: bool,
}

const WRITE_EXAMPLES: &str = "\
Examples:
  isotherm fleet write --to /mnt/fleet              the daemon's history
  isotherm fleet write --to s3://bucket/fleet
  isotherm fleet write --to fleet --group web a.rec b.rec";

/// Make one file of those of each host and day
///
/// It can be ended at any moment: the next call goes on. Only one may run at a time.
#[derive(Args)]
pub struct FleetCompact {
    /// The dataset
    #[arg(value_name = "DATASET")]
    pub dataset: PathBuf,
    /// Compact days before this one [default: today, in UTC]
    #[arg(long, value_name = "YYYY-MM-DD")]
    pub before: Option<String>,
}

/// Say what is wrong with the files of a dataset
///
/// Files can be cut short, of another version or host, or have rows that another file has. The exit status is 1 if
/// something is wrong; otherwise, a line says how many files, hosts, days and rows there are.
#[derive(Args)]
pub struct FleetCheck {
    /// Read the files whole, not only their ends: that finds damage in the middle
    #[arg(long)]
    pub whole: bool,
    /// The dataset
    #[arg(value_name = "DATASET")]
    pub dataset: PathBuf,
}

/// List the views, or print one
///
/// A view is a query on the table `fleet`, for DuckDB and other engines.
#[derive(Args)]
#[command(after_long_help = VIEWS_EXAMPLES)]
pub struct FleetViews {
    /// The view to print
    #[arg(value_name = "VIEW")]
    pub view: Option<String>,
}

const VIEWS_EXAMPLES: &str = "\
Examples:
  isotherm fleet views                              list the views
  isotherm fleet views idle                         print the query";

/// Make a dataset of a fleet whose answers are known, for tests and measurements
#[derive(Args)]
#[command(after_long_help = GENERATE_EXAMPLES)]
pub struct FleetGenerate {
    /// The dataset, which must not exist
    #[arg(value_name = "DATASET")]
    pub dataset: PathBuf,
    /// Hosts
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub hosts: u32,
    /// Days
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub days: u32,
    /// Services, each of which runs on each host
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub services: u32,
    /// Each seed makes another fleet, and always the same one
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Print the answers as JSON
    #[arg(long)]
    pub truth: bool,
}

const GENERATE_EXAMPLES: &str = "\
Examples:
  isotherm fleet generate made --hosts 1000 --services 50    72 million rows
  isotherm fleet generate made --truth                        print the answers";

/// The format of an answer.
#[cfg(feature = "fleet-query")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AnswerFormat {
    /// A table for people, with rounded figures
    Text,
    /// Comma-separated values
    Csv,
    /// A JSON object for each row
    Json,
    /// A page that needs no network
    Html,
}

/// What is asked, and where the answer goes.
#[cfg(feature = "fleet-query")]
#[derive(Args)]
pub struct AnswerOptions {
    /// The dataset
    #[arg(value_name = "DATASET")]
    pub dataset: PathBuf,
    /// Leave out the days before this one, in UTC
    #[arg(long, value_name = "YYYY-MM-DD")]
    pub from: Option<String>,
    /// Leave out the days after this one, in UTC
    #[arg(long, value_name = "YYYY-MM-DD")]
    pub to: Option<String>,
    /// The format [default: that of the extension of -o (.txt, .csv, .json or .html), else text]
    #[arg(short, long, value_name = "FORMAT")]
    pub format: Option<AnswerFormat>,
    /// Write to this file, which appears when it is whole
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Answer a query in SQL
///
/// The table is `fleet`. Each view is a table of its name; the order of its rows is that which the query asks for.
#[cfg(feature = "fleet-query")]
#[derive(Args)]
#[command(after_long_help = QUERY_EXAMPLES)]
pub struct FleetQuery {
    /// The query
    #[arg(value_name = "SQL")]
    pub sql: String,
    #[command(flatten)]
    pub answer: AnswerOptions,
}

#[cfg(feature = "fleet-query")]
const QUERY_EXAMPLES: &str = "\
Examples:
  isotherm fleet query 'SELECT * FROM idle ORDER BY mean_idle_bytes DESC LIMIT 9' fleet
  isotherm fleet query 'SELECT COUNT(*) FROM fleet' fleet --from 2026-11-29 --format csv";

/// Answer all views, or one
#[cfg(feature = "fleet-query")]
#[derive(Args)]
#[command(after_long_help = REPORT_EXAMPLES)]
pub struct FleetReport {
    #[command(flatten)]
    pub answer: AnswerOptions,
    /// Only this view
    #[arg(long, value_name = "VIEW")]
    pub view: Option<String>,
    /// At most so many rows of each view
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub rows: u32,
}

#[cfg(feature = "fleet-query")]
const REPORT_EXAMPLES: &str = "\
Examples:
  isotherm fleet report fleet -o fleet.html         a page with pictures
  isotherm fleet report fleet --from 2026-11-29 --view packing --rows 1000 --format csv";
