//! The options of all commands that read recordings.

use clap::Args;
use isotherm_core::units;

/// How a recording is read.
#[derive(Args)]
pub struct Reading {
    /// The memory that one part of a recording may take, which is a batch, a snapshot or a survey. A small file can
    /// hold very much [default: 512 MiB, and less for a small batch]
    #[arg(long, value_name = "SIZE", value_parser = units::parse_bytes)]
    pub max_memory: Option<u64>,
}
