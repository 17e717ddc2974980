//! Errors of reports. Each says what failed, and how to fix it; its source says why.

use std::io;
use std::time::Duration;

use isotherm_core::{BoxError, units};

use crate::{Format, Kind, Measure};

/// Why a report cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The recording cannot be read.
    #[error(transparent)]
    Source(BoxError),
    /// The recording holds no snapshot.
    #[error(
        "nothing was recorded: the run ended within its first aggregation interval of {}, or nothing that it was asked \
         to watch was there; record for longer, or something else",
        units::duration(*aggregation)
    )]
    NothingRecorded {
        /// The aggregation interval of the recording.
        aggregation: Duration,
    },
    /// No snapshot of the recording matches the selection.
    #[error("nothing in the recording matches {asked}; it holds {holds}")]
    NothingMatches {
        /// The selection, as text.
        asked: String,
        /// What the recording has, as text.
        holds: String,
    },
    /// The recording has no activity of schemes.
    #[error(
        "no schemes ran while this recording was made; `isotherm run --schemes FILE --record REC` records what \
         schemes do"
    )]
    NoSchemes,
    /// No target has a known cgroup.
    #[error(
        "the recording does not tell the cgroup of any of its processes: an older version of isotherm or another tool \
         made it; record again, or use --by command"
    )]
    NoCgroups,
    /// The recording has no call stacks.
    #[error("the recording does not tell which code mapped memory; record with --stacks, or use another --by")]
    NoStacks,
    /// The calls that mapped memory are more than a report keeps.
    #[error(
        "the calls of the recording that mapped memory take more than {} of memory; report on one process at a time \
         with --target, or use another --by",
        units::bytes(*most as u64)
    )]
    TooManyCalls {
        /// The most bytes that they take.
        most: usize,
    },
    /// The recording has no surveys.
    #[error(
        "the recording has no survey, so the working set within {} is not known; record with --survey auto, or leave \
         out --window for an estimate from samples",
        units::duration(*window)
    )]
    NoSurveys {
        /// The window that was asked for.
        window: Duration,
    },
    /// The selection has no survey with one before it.
    #[error("a heatmap of {} needs surveys, and there are none: record with --survey auto, or show --measure rate",
        measure.name())]
    NotSurveyed {
        /// The measure that was asked for.
        measure: Measure,
    },
    /// Two parts are not of one run, or not one after the other.
    #[error(
        "the parts that were accumulated are of different runs, or not one after the other; read the recordings of \
         several runs as one stream"
    )]
    NotOneStream,
    /// The report does not exist in this format.
    #[error(
        "there is no {} of the report {}; use --format {}", format.name(), kind.name(), formats(*kind)
    )]
    Unsupported {
        /// The kind of the report.
        kind: Kind,
        /// The format.
        format: Format,
    },
    /// The report cannot be written.
    #[error("cannot write the report")]
    Write(#[from] io::Error),
    /// A picture cannot be drawn.
    #[error("cannot draw the picture: {0}; use --format svg")]
    Picture(String),
}

impl From<serde_json::Error> for ReportError {
    fn from(error: serde_json::Error) -> Self {
        Self::Write(error.into())
    }
}

/// The formats of a report in words: `text or json`.
fn formats(kind: Kind) -> String {
    let names: Vec<&str> = kind.formats().iter().map(|format| format.name()).collect();
    match &names[..] {
        [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        names => names.concat(),
    }
}
