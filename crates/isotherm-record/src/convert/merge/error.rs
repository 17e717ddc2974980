//! Why recordings could not be merged.

use std::path::PathBuf;

use isotherm_output::OutputError;

use crate::RecordError;
use crate::convert::ConvertError;

/// Why recordings could not be merged. There is no output then, and a file that was there before is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// The output could not be written, or is one of the recordings.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// A recording could not be read.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Figures of both recordings together would be wrong.
    #[error("cannot merge {} and {}: {what}", first.display(), second.display())]
    Differ {
        /// One of the recordings.
        first: PathBuf,
        /// The other one.
        second: PathBuf,
        /// What differs, with the values of both.
        what: String,
    },
    /// Both recordings have the same target at the same time, so that its memory would count twice.
    #[error(
        "cannot merge {} and {}: both have {target} at the same time, and its memory would count twice; `isotherm cut \
         --time` or `--target` makes a recording of the rest of one of them",
        first.display(),
        second.display()
    )]
    SameTarget {
        /// One of the recordings.
        first: PathBuf,
        /// The other one.
        second: PathBuf,
        /// The target, such as `process 1234 (sleep 10)`.
        target: String,
    },
    /// Both recordings have a scheme of this name at the same time.
    #[error(
        "cannot merge {} and {}: both have a scheme \"{name}\" at the same time, and reports could not tell them apart",
        first.display(),
        second.display()
    )]
    SameScheme {
        /// One of the recordings.
        first: PathBuf,
        /// The other one.
        second: PathBuf,
        /// The name of the scheme, with control characters escaped.
        name: String,
    },
    /// There is neither a snapshot nor a survey in the recordings.
    #[error("there is nothing to merge: the recordings have neither a snapshot nor a survey")]
    Nothing,
}

impl From<ConvertError> for MergeError {
    fn from(error: ConvertError) -> Self {
        match error {
            ConvertError::Output(error) => error.into(),
            ConvertError::Record(error) => error.into(),
            ConvertError::NothingToCut { .. } => Self::Nothing,
        }
    }
}
