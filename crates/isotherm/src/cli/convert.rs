//! The options of `isotherm convert` and `isotherm import`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use isotherm_core::units;

use super::Reading;

/// Convert a recording to another format
///
/// The name of the output selects the format. docs/recording.md and docs/damo.md describe the formats. A recording that
/// is replaced by a recording is kept, with .old after its name.
#[derive(Args)]
#[command(after_long_help = FORMATS)]
pub struct Convert {
    /// The recording
    #[arg(value_name = "REC")]
    pub recording: PathBuf,
    /// The file to write: .rec, .parquet, .csv, .json, .damo or .damo.json
    #[arg(value_name = "OUT")]
    pub output: PathBuf,
    #[command(flatten)]
    pub reading: Reading,
}

const FORMATS: &str = "\
Formats:
  .rec        a recording in the present format, made of one in any format
  .parquet    Apache Parquet: a row for each region of each snapshot
  .csv        CSV: the same rows
  .json       one JSON document with the whole recording
  .damo       compressed JSON of damo, the user-space tool of DAMON;
              the name damon.data selects it too
  .damo.json  plain JSON of damo

damo's formats have regions, access counts, ages and times. They have no mappings, commands, costs, activity of \
schemes \
and unobservable samples.";

/// Import a recording of another tool
#[derive(Args)]
pub struct Import {
    #[command(subcommand)]
    pub from: ImportFrom,
}

/// The tool that made the recording.
#[derive(Subcommand)]
pub enum ImportFrom {
    Damo(ImportDamo),
}

/// Import a recording of damo, the user-space tool of DAMON
///
/// isotherm reads the formats json_compressed (the default of damo) and json of damo 1.9 and later. `damo
/// convert_record_format` converts other formats to these. The targets are taken from FILE.kdamonds, which `damo
/// record` writes next to FILE, if it exists.
///
/// damo records regions, access counts, ages and times. It records no mappings, so all watched memory counts as mapped,
/// and it records no costs (docs/damo.md).
#[derive(Args)]
#[command(after_long_help = IMPORT_DAMO_EXAMPLES)]
pub struct ImportDamo {
    /// The recording of damo
    #[arg(value_name = "FILE", default_value = "damon.data")]
    pub file: PathBuf,
    /// Write the recording to this file, which only its owner can read. An existing recording is kept, with .old after
    /// its name [default: FILE with the extension .rec]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Process ID of a target, or 0 for physical memory. May be given several times, in the order of the targets
    /// [default: from FILE.kdamonds]
    #[arg(short, long, value_name = "PID")]
    pub pid: Vec<u32>,
    /// The approximate limit of memory for the import. A compressed file can hold any amount of text [default: 256 MiB
    /// and 64 times the size of FILE, at most 2 GiB]
    #[arg(long, value_name = "SIZE", value_parser = units::parse_bytes)]
    pub max_memory: Option<u64>,
    /// Show only what was guessed or left out
    #[arg(short, long)]
    pub quiet: bool,
}

const IMPORT_DAMO_EXAMPLES: &str = "\
Examples:
  isotherm import damo                  damon.data to damon.rec
  isotherm report heatmap damon.rec
  isotherm import damo old.data -o old.rec --pid 4711";
