//! The options of `isotherm tier`.

use clap::{Args, Subcommand, ValueEnum};

/// Show the tiers of memory: which is fast, and which is slow
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
    List(TierList),
}

/// List nodes and tiers, with their sizes, and where memory would move to
///
/// A node is promoted to the nearest node of the next faster tier, and demoted to the nearest of the next slower one.
/// Nothing is moved.
#[derive(Args)]
#[command(after_long_help = LIST_EXAMPLES)]
pub struct TierList {
    /// Which nodes are equally fast: the fastest tier first, tiers separated by `/`, nodes by commas [default: what the
    /// kernel says; else nodes with processors are fast]
    #[arg(long, value_name = "TIERS")]
    pub tiers: Option<String>,
    /// The format
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub format: TierFormat,
}

/// The format of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TierFormat {
    /// For people
    Text,
    /// One JSON object
    Json,
}

const LIST_EXAMPLES: &str = "\
Examples:
  isotherm tier list
  isotherm tier list --format json";
