//! `isotherm man`.

use std::path::PathBuf;

use clap::Args;

/// Write the manual pages to a directory, one for each command
#[derive(Args)]
#[command(hide = true)]
pub struct Man {
    /// The directory; it is made if it does not exist
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}
