//! The options of `isotherm convert`.

use std::path::PathBuf;

use clap::Args;

use super::Reading;

/// Convert a recording to another format, or a recording of damo
///
/// The name of the output selects the format. docs/recording.md and docs/damo.md describe the formats. A recording that
/// is replaced by a recording is kept, with .old after its name.
///
/// damo is the user-space tool of DAMON. isotherm reads its formats json_compressed (the default of damo) and json of
/// damo 1.9 and later. `damo convert_record_format` converts other formats to these. The targets are taken from
/// IN.kdamonds, which `damo record` writes next to IN, if it exists. damo records no mappings, so all watched memory
/// counts as mapped, and it records no costs.
#[derive(Args)]
#[command(after_long_help = FORMATS)]
pub struct Convert {
    /// The recording, of isotherm or of damo
    #[arg(value_name = "IN")]
    pub recording: PathBuf,
    /// The file to write: .rec, .parquet, .csv, .json, .damo or .damo.json
    #[arg(value_name = "OUT")]
    pub output: PathBuf,
    /// Process ID of a target of damo, or 0 for physical memory. May be given several times, in the order of the
    /// targets [default: from IN.kdamonds]
    #[arg(short, long, value_name = "PID")]
    pub pid: Vec<u32>,
    /// Show only what was guessed or left out
    #[arg(short, long)]
    pub quiet: bool,
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
and unobservable samples.

Examples:
  isotherm convert isotherm.rec isotherm.parquet
  isotherm convert damon.data damon.rec
  isotherm convert old.data old.rec --pid 4711";
