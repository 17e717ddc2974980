//! What can go wrong with a dataset.

use std::io;
use std::path::PathBuf;

use isotherm_input::InputError;
use isotherm_output::OutputError;
use isotherm_record::RecordError;
use thiserror::Error;

use crate::row::VERSION;

/// What went wrong with a dataset.
#[derive(Debug, Error)]
pub enum FleetError {
    /// A recording cannot be read.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A recording does not say which machine it is of.
    #[error(
        "{path} does not say which machine it is of, so that its rows cannot be told from those of other machines (it \
         was imported, or its machine has no /etc/machine-id)"
    )]
    NoHost {
        /// The recording.
        path: PathBuf,
    },
    /// What a recording says of its machine cannot be part of a path.
    #[error("{path} says that its machine is what no identifier is (letters, digits, - and _); it was made by hand")]
    WrongHost {
        /// The recording.
        path: PathBuf,
    },
    /// A directory cannot be read or made.
    #[error("the directory {path} cannot be used")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file cannot be removed.
    #[error("{path} cannot be removed")]
    Remove {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The place of a dataset begins with what is no known scheme.
    #[error("{} is no folder, and {scheme}:// is no store that this isotherm knows ({})", place.display(), schemes())]
    Scheme {
        /// The place.
        place: PathBuf,
        /// What it begins with.
        scheme: String,
    },
    /// A URL is wrong, or what the environment says of its store.
    #[error("{url} cannot be used: {why}")]
    Url {
        /// The URL.
        url: String,
        /// Why.
        why: String,
    },
    /// A request to an object store has failed.
    #[error("{} cannot be {what}: {why} ({hint})", url.display())]
    Object {
        /// The object, or what is below a prefix.
        url: PathBuf,
        /// What was asked for.
        what: &'static str,
        /// Why.
        why: String,
        /// How to fix it.
        hint: &'static str,
    },
    /// Somebody else compacts the dataset.
    #[error("{} is being compacted: {holder}", place.display())]
    Compacting {
        /// The dataset.
        place: PathBuf,
        /// By whom.
        holder: String,
    },
    /// A file of the dataset cannot be read.
    #[error("{path} cannot be read")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// A file cannot be opened.
    #[error(transparent)]
    Input(#[from] InputError),
    /// A file of the dataset is not what its name says.
    #[error("{path} {problem}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: FileProblem,
    },
    /// There is nothing to read.
    #[error("{path} has no rows of hosts (a dataset has files date=YYYY-MM-DD/host=ID/*.parquet)")]
    Empty {
        /// The dataset.
        path: PathBuf,
    },
    /// A name is that of no view.
    #[error("there is no view {name} (there are {known})")]
    NoView {
        /// The name.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// A text is no day.
    #[cfg(feature = "query")]
    #[error("{text} is no day (a day is YYYY-MM-DD, such as 2026-11-29)")]
    NoDay {
        /// The text.
        text: String,
    },
    /// The last day is before the first one.
    #[cfg(feature = "query")]
    #[error("there is no day from {from} to {to}, which is before it")]
    DaysReversed {
        /// The first day.
        from: String,
        /// The last day.
        to: String,
    },
    /// There are no rows of these days.
    #[cfg(feature = "query")]
    #[error("{path} has no rows of these days")]
    NoRows {
        /// The dataset.
        path: PathBuf,
    },
    /// An answer cannot be written.
    #[cfg(feature = "query")]
    #[error("the answer cannot be written")]
    Write(#[source] io::Error),
    /// An answer has too many rows to be held.
    #[cfg(feature = "query")]
    #[error("the answer has more than {most} rows; use csv or json, which have any number, or LIMIT in the query")]
    TooManyRows {
        /// How many there may be.
        most: usize,
    },
    /// The engine refuses.
    #[cfg(feature = "query")]
    #[error("the query has failed: {why}")]
    Query {
        /// What the engine says, and how to fix it.
        why: String,
    },
}

#[cfg(feature = "query")]
impl From<datafusion::error::DataFusionError> for FleetError {
    fn from(error: datafusion::error::DataFusionError) -> Self {
        use datafusion::error::DataFusionError::{
            ArrowError, ParquetError, Plan, ResourcesExhausted, SQL, SchemaError,
        };
        // The engine says an error again for each layer that it has passed.
        let hint = match error.find_root() {
            SQL(..) => "",
            Plan(text) if text.starts_with("table ") => {
                " (the tables are fleet, and the views that `isotherm fleet views` lists)"
            }
            Plan(text) if text.contains("not supported") => " (a query only reads)",
            SchemaError(..) => " (`DESCRIBE fleet` lists the columns)",
            ParquetError(_) | ArrowError(..) if error.to_string().contains("Parquet") => {
                " (a file of the dataset is damaged: `isotherm fleet check --whole` names it)"
            }
            ResourcesExhausted(_) => " (ask for fewer days with --from and --to, or group by less)",
            _ => "",
        };
        let why = match error.find_root() {
            SQL(error, _) => error.to_string(),
            root => root.message().into_owned(),
        };
        Self::Query { why: format!("{}{hint}", isotherm_core::sanitise_lines(&why)) }
    }
}

/// The stores that are known.
fn schemes() -> &'static str {
    if cfg!(feature = "object-store") {
        "s3://, gs://, az:// and abfs://"
    } else {
        "none; it was built without the cargo feature object-store"
    }
}

/// What is wrong with a file of a dataset.
#[derive(Debug, Error)]
pub enum FileProblem {
    /// It is no whole Parquet file.
    #[error(
        "is cut short, damaged or no Parquet file ({0}); remove it, and write it again from the history of its host"
    )]
    NotWhole(String),
    /// It is of something else.
    #[error("is no file of isotherm's dataset; move it out of the dataset")]
    Foreign,
    /// It is of another version.
    #[error(
        "is of version {0} of the dataset, and this isotherm reads version {VERSION}; use the isotherm that wrote it"
    )]
    Version(String),
    /// It is of another host or day.
    #[error("has rows of host {host} on {date}, and was moved or copied here; remove it")]
    Misplaced {
        /// The host that it says.
        host: String,
        /// The day that it says.
        date: String,
    },
    /// It has rows of a time that another file has.
    #[error("has rows of a time that another file of this host and day has; `isotherm fleet compact` removes them")]
    Twice,
}
