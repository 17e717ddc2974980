//! What can go wrong with a report; each message says what, where and how to mend it.

use std::io;
use std::time::Duration;

use isotherm_core::{BoxError, units};

use crate::{Format, Kind};

/// Why a report could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The recording could not be read.
    #[error(transparent)]
    Source(BoxError),
    /// The recording holds no snapshot.
    #[error(
        "nothing was recorded: the recording holds no snapshot (the run ended before its first aggregation); \
         record for longer than one aggregation interval, {}",
        units::duration(*aggregation)
    )]
    NothingRecorded {
        /// The aggregation interval of the recording.
        aggregation: Duration,
    },
    /// The recording holds snapshots, but none that was asked for.
    #[error("nothing in the recording matches {asked}; it holds {holds}")]
    NothingMatches {
        /// What was asked for, as text.
        asked: String,
        /// What the recording holds, as text.
        holds: String,
    },
    /// The recording holds nothing of schemes.
    #[error(
        "the recording holds nothing of schemes: none ran while it was made; `isotherm run --schemes FILE --record REC` records \
         what they do"
    )]
    NoSchemes,
    /// A format that a kind of report does not have.
    #[error("the {} report has no {} format; {mend}", kind.name(), format.name())]
    Unsupported {
        /// The kind.
        kind: Kind,
        /// The format.
        format: Format,
        /// What to ask for instead.
        mend: &'static str,
    },
    /// The report could not be written.
    #[error("cannot write the report")]
    Write(#[from] io::Error),
    /// A picture could not be drawn.
    #[error("cannot draw the picture: {0}; try --format svg")]
    Picture(String),
}

impl From<serde_json::Error> for ReportError {
    fn from(error: serde_json::Error) -> Self {
        Self::Write(error.into())
    }
}
