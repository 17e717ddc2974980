//! The options of `isotherm ctl`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use isotherm_core::units;
use isotherm_report::{Format, Kind};

use super::report::{formats, one_of};

/// The usual socket of the daemon.
pub const SOCKET: &str = "/run/isotherm/api.sock";

/// Ask and steer a running daemon
///
/// It speaks HTTP and JSON on the daemon's Unix socket. Reading is for the group of the socket; changing is for root
/// and for users that the configuration names.
#[derive(Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct Ctl {
    /// The socket of the daemon
    #[arg(long, value_name = "PATH", default_value = SOCKET, global = true)]
    pub socket: PathBuf,
    /// Print the JSON of the daemon
    #[arg(long, global = true)]
    pub json: bool,
    #[command(subcommand)]
    pub command: CtlCommand,
}

#[derive(Subcommand)]
pub enum CtlCommand {
    /// Show what is watched: all groups, or one with its processes and schemes
    Status {
        /// The group [default: all, in a line each]
        group: Option<String>,
    },
    /// Print the names of all groups
    Groups,
    /// Make a group
    Add {
        /// A file with a group, as it stands in a configuration
        file: PathBuf,
    },
    /// Give a group another configuration
    Change {
        /// A file with the group, as it stands in a configuration
        file: PathBuf,
    },
    /// Watch nothing of a group until it is resumed
    Pause {
        /// The group
        group: String,
    },
    /// Watch a group again that is paused or has ended
    Resume {
        /// The group
        group: String,
    },
    /// End a group. Its history stays
    Delete {
        /// The group
        group: String,
    },
    /// Change the attributes or the schemes of a group
    Set(Set),
    /// Give a metric a value that goals of a group's schemes are about
    Feed {
        /// The group
        group: String,
        /// The metric: NAME of `fed: {metric: NAME}` in a scheme
        metric: String,
        /// The value
        #[arg(allow_negative_numbers = true)]
        value: f64,
        /// The time after which the value is not valid any more [default: until another one is fed]
        #[arg(long = "for", value_name = "TIME", value_parser = units::parse_duration)]
        valid_for: Option<Duration>,
    },
    /// Print the newest snapshot of a group, as JSON
    Snapshot {
        /// The group
        group: String,
    },
    /// Print the events of a group as they come, as JSON Lines, until Ctrl-C
    Stream {
        /// The group
        group: String,
        /// End after so many events
        #[arg(long, value_name = "N")]
        count: Option<u64>,
    },
    /// Start a recording of a group in the daemon's directory, or end it
    Record {
        /// The group
        group: String,
        /// The name of the recording
        name: String,
        /// End the recording
        #[arg(long)]
        stop: bool,
    },
    /// Show a report on what the daemon keeps of a group
    Report(CtlReport),
    /// Show how much memory each cgroup should have: requests and limits for Kubernetes, and why
    Advice {
        /// The group [default: all whose cgroups are no groups of their own]
        group: Option<String>,
    },
    /// Name the current moment of a group
    Mark {
        /// The group
        group: String,
        /// The text
        text: String,
    },
    /// Read the configuration again
    Reload,
    /// Print whether the daemon does what it was told. The exit status is 1 if it does not
    Health,
    /// Print the metrics
    Metrics,
    /// Print the description of the interface (OpenAPI), as JSON
    Openapi,
}

#[derive(Args)]
pub struct Set {
    /// The group
    pub group: String,
    /// The sampling interval
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    pub sample: Option<Duration>,
    /// The aggregation interval
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    pub aggr: Option<Duration>,
    /// The update interval
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    pub update: Option<Duration>,
    /// The number of regions
    #[arg(long, value_name = "MIN:MAX")]
    pub regions: Option<String>,
    /// Schemes in the place of those in force
    #[arg(long, value_name = "FILE")]
    pub schemes: Option<PathBuf>,
}

#[derive(Args)]
pub struct CtlReport {
    /// The group
    pub group: String,
    /// The report
    #[arg(value_parser = one_of(Kind::ALL.map(|kind| (kind, kind.name(), kind.about()))))]
    pub kind: Kind,
    /// The time up to now that it is on [default: all that is kept]
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    pub last: Option<Duration>,
    /// The format [default: that of the output's name, else text]
    #[arg(short, long, value_name = "FORMAT", value_parser = formats(&ALL_FORMATS))]
    pub format: Option<Format>,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

const ALL_FORMATS: [Format; 5] = [Format::Text, Format::Json, Format::Png, Format::Svg, Format::Html];

const AFTER_HELP: &str = "\
Examples:
  isotherm ctl status                    all groups, and their memory
  isotherm ctl status machine            its processes and schemes
  isotherm ctl set machine --regions 10:500
  isotherm ctl feed redis latency_ms 4.2 --for 30s
  isotherm ctl mark machine deployed
  isotherm ctl report machine wss --last 1h
  isotherm ctl report machine html --last 1h -o memory.html
  isotherm ctl advice shop.pod-1.cart    its right size
  isotherm ctl pause machine";
