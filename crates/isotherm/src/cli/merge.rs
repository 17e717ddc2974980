//! The options of `isotherm merge`.

use std::path::PathBuf;

use clap::Args;

use super::Reading;

/// Make one recording of several
///
/// The recordings must be of one machine since its last boot, with the same probe. Recordings of the same target must
/// have been made one after another; recordings of different targets may overlap in time. The time of the result begins
/// with the start of the earliest recording, by the wall clock.
#[derive(Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct Merge {
    /// The recordings, in any order
    #[arg(value_name = "REC", required = true, num_args = 2..)]
    pub recordings: Vec<PathBuf>,
    /// The recording to write, which only its owner can read. An existing recording is kept, with .old after its name
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    #[command(flatten)]
    pub reading: Reading,
}

const AFTER_HELP: &str = "\
A process that two recordings have at the same time is refused, because its
memory would count twice. `isotherm cut` leaves it out of one of them.

Examples:
  isotherm merge server.rec client.rec -o both.rec
  isotherm merge monday.rec tuesday.rec wednesday.rec -o week.rec";
