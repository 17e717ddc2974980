//! The options of the auxiliary commands: `doctor`, `workload`, `schema` and `completions`.

use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use isotherm_core::units;

use super::PlainFormat;

/// Report what works on this machine, and how to fix what does not
///
/// isotherm tries each probe and each action of schemes on its own memory. It only inspects the kernel's DAMON, because
/// a trial would start it.
#[derive(Args)]
pub struct Doctor {
    /// The format of the report
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub format: PlainFormat,
}

/// Run a workload with a known access pattern
///
/// A workload has areas of memory and phases of time. In each phase it accesses each area as the pattern says, so the
/// figures that isotherm finds can be compared with the truth.
#[derive(Args)]
pub struct Workload {
    /// The name of a built-in pattern, or a file that ends in .toml
    #[arg(value_name = "PATTERN", default_value = "stairs")]
    pub pattern: String,
    /// Run for this long. The phases repeat if this is longer than all of them [default: each phase once]
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    pub time: Option<Duration>,
    /// Make each area this many times as large
    #[arg(long, value_name = "FACTOR", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub scale: u32,
    /// Access the memory of the first phase as fast as possible, and print the number of accesses every 0.1 s, as JSON
    /// Lines
    #[arg(long, requires = "time")]
    pub flat_out: bool,
    /// Print the addresses of the areas and the start of each phase, as JSON Lines
    #[arg(long)]
    pub announce: bool,
    /// Print the built-in patterns and exit
    #[arg(long)]
    pub list: bool,
}

/// Print the JSON Schema of what a command writes as JSON, of scheme files, or of the daemon's configuration
#[derive(Args)]
pub struct Schema {
    /// A kind of report, another command that writes JSON, scheme-file, or daemon
    #[arg(value_name = "NAME", value_parser = schemas())]
    pub name: String,
}

/// The names of the schemas.
fn schemas() -> PossibleValuesParser {
    isotherm_report::schema::names().chain(["scheme-file", "daemon"]).collect::<Vec<_>>().into()
}

/// Print a completion script for a shell
///
/// For bash: `isotherm completions bash > /etc/bash_completion.d/isotherm`
#[derive(Args)]
pub struct Completions {
    /// The shell
    pub shell: clap_complete::Shell,
}
