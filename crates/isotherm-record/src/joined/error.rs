//! Why recordings cannot be read as one.

use std::path::PathBuf;

use crate::RecordError;

/// Why recordings cannot be read as one.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// A recording could not be read.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Figures of both recordings together would be wrong.
    #[error("cannot read {} and {} as one: {what}; report on each by itself", first.display(), second.display())]
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
        "cannot read {} and {} as one: both have {target} at the same time, and its memory would count twice; \
         `isotherm cut --time` or `--target` makes a recording of the rest of one of them",
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
        "cannot read {} and {} as one: both have a scheme \"{name}\" at the same time, and reports could not tell them \
         apart; report on each by itself",
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
    /// There is no recording.
    #[error("there is no recording to read")]
    Nothing,
}
