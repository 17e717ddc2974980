//! Errors.

use std::io;
use std::path::PathBuf;

use isotherm_input::InputError;
use isotherm_output::OutputError;
use isotherm_record::RecordError;
use isotherm_report::ReportError;
use isotherm_scheme::Diagnostics;
use thiserror::Error;

/// Why an evaluation or its report failed.
#[derive(Debug, Error)]
pub enum EvalError {
    /// The suite file has errors.
    #[error("{0}")]
    Suite(Diagnostics),
    /// There is no such suite.
    #[error("there is no suite {name:?}; use {shipped}, or a file whose path ends in .yaml or has a slash")]
    UnknownSuite {
        /// What was asked for.
        name: String,
        /// The names of those that there are.
        shipped: String,
    },
    /// There is no such workload.
    #[error("the suite {suite} has no workload {name:?}; it has {known}")]
    UnknownWorkload {
        /// The suite.
        suite: String,
        /// What was asked for.
        name: String,
        /// The names of those that there are.
        known: String,
    },
    /// No run is possible.
    #[error("nothing can be run:\n{0}")]
    NothingToRun(String),
    /// The directory has results already.
    #[error("{} has results already; --resume adds to them, or name another directory with -o", .0.display())]
    HasResults(PathBuf),
    /// The results are those of another machine, or of this machine with other settings.
    #[error(
        "{} has results of another machine or setting: {what}; name another directory with -o",
        path.display()
    )]
    OtherMachine {
        /// The directory.
        path: PathBuf,
        /// What differs.
        what: String,
    },
    /// A score is wrong.
    #[error("the score {text:?} is wrong: {what}; write an expression of {}", crate::Changes::NAMES.join(", "))]
    Score {
        /// The score.
        text: String,
        /// What is wrong with it.
        what: String,
    },
    /// The directory has no results.
    #[error("{} has no results; `isotherm eval run` makes them", .0.display())]
    NoResults(PathBuf),
    /// A file of the results cannot be understood.
    #[error("{} cannot be understood in line {line}", path.display())]
    Results {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// A file cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// A file cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// A recording of isotherm cannot be read.
    #[error("the recording of the run cannot be read")]
    Recording(#[from] RecordError),
    /// A report on a recording cannot be made.
    #[error("the recording of the run cannot be shown")]
    Report(#[from] ReportError),
    /// The system refused something.
    #[error("{what}")]
    System {
        /// What was tried.
        what: String,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// A preparation, a program or isotherm failed.
    #[error("{0}")]
    Failed(String),
    /// The user ended the evaluation.
    #[error("the evaluation was ended; --resume goes on with it")]
    Stopped,
    /// JSON or CSV cannot be written.
    #[error("the report cannot be written")]
    Write(#[source] io::Error),
}

impl EvalError {
    /// An error of the system, with what was tried.
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::System { what, source }
    }
}
