//! The options of `isotherm check`.

use std::path::PathBuf;

use clap::Args;

use super::{PlainFormat, Reading};

/// Check whether a recording is intact, and list what is missing
///
/// Each message of a recording has checksums. `isotherm check` verifies all of them, reads all rows, and lists the
/// parts that cannot be read, by bytes and by the time of the run. Reports skip damaged parts, and say so.
///
/// It also shows how complete the data is: how many sampling rounds began late, the longest time that no snapshot
/// covers, how many surveys there are, and how much of the memory was unknown or unobservable at the last survey. These
/// figures do not change the exit status.
///
/// With --save, the intact batches of the recording become a new recording. A batch covers about half a second of the
/// run. A recording has the identity and the mappings of a target only where they change. If such a change is lost with
/// a damaged batch, the rows after it have the previous values, or mappings with the name `[unknown]`.
#[derive(Args)]
#[command(after_long_help = CHECK)]
pub struct Check {
    /// The recording
    #[arg(value_name = "FILE", default_value = super::RECORDING)]
    pub recording: PathBuf,
    /// The format of the result
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: PlainFormat,
    /// Save the readable parts as this recording, which only its owner can read. An existing recording is kept, with
    /// .old after its name
    #[arg(long, value_name = "GOOD")]
    pub save: Option<PathBuf>,
    #[command(flatten)]
    pub reading: Reading,
}

const CHECK: &str = "\
Exit status:
  0  whole; with --save, the readable parts are saved
  1  it cannot be read at all; with --save, nothing is saved
  3  nothing is damaged, but it has no end mark: it is still being
     recorded, its recorder was killed, or the file was cut
  4  a part of it is damaged

Examples:
  isotherm check
  isotherm check isotherm.rec --format json
  isotherm check bad.rec --save good.rec";
