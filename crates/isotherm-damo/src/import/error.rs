//! Why a file of damo cannot be imported: what is wrong, where, and how to fix it.

use std::io;
use std::path::{Path, PathBuf};

use isotherm_record::RecordError;

/// Why a file of damo could not be imported. What was there before is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file does not exist, is not readable, or is a directory.
    #[error("cannot open {}{}", path.display(), hint(source))]
    Open {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Reading failed.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The path is neither a file nor a directory, but a pipe or a device.
    #[error("cannot read {}: it is not a regular file; give the path of a file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The file has no bytes.
    #[error("{} is empty: damo wrote nothing to it; record again", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The file is in another format, possibly one of damo.
    #[error("{} is not JSON of damo: {reason}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What the file is, and how to get JSON.
        reason: String,
    },
    /// The file ends in the middle of the JSON.
    #[error(
        "{} is cut short at {place}: a file of damo can only be read as a whole; use a whole copy, or record again",
        path.display()
    )]
    CutShort {
        /// The file.
        path: PathBuf,
        /// The place in the JSON.
        place: String,
    },
    /// Decompression failed.
    #[error("{} is damaged: it cannot be decompressed after {place} (use a good copy)", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The place in the JSON.
        place: String,
        /// The cause.
        source: io::Error,
    },
    /// The text is not JSON, or the JSON does not have damo's layout.
    #[error("{} has an error at {place}: {reason}; {fix}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The place in the JSON.
        place: String,
        /// What is wrong.
        reason: String,
        /// How to fix it.
        fix: &'static str,
    },
    /// The values in the file contradict each other or the options.
    #[error("{} cannot be imported: {reason}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong, where, and how to fix it.
        reason: String,
    },
    /// The JSON is larger than the limit.
    #[error(
        "{} holds more than {} of JSON, the limit for a file of its size; split it, for example with `damo adjust`, or \
         raise the limit with --max-memory",
        path.display(),
        isotherm_core::units::bytes(*limit)
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit, in bytes.
        limit: u64,
    },
    /// Its values take more memory than the limit.
    #[error(
        "{} takes more than {} of memory, the limit for a file of its size; split it, for example with `damo adjust`, \
         or raise the limit with --max-memory",
        path.display(),
        isotherm_core::units::bytes(*limit)
    )]
    TooMuchMemory {
        /// The file.
        path: PathBuf,
        /// The limit, in bytes.
        limit: u64,
    },
    /// The recording could not be written, or would replace the file that is imported.
    #[error(transparent)]
    Record(#[from] RecordError),
}

impl ImportError {
    pub(super) fn foreign(path: &Path, reason: impl Into<String>) -> Self {
        Self::Foreign { path: path.into(), reason: reason.into() }
    }

    pub(super) fn invalid(path: &Path, reason: impl Into<String>) -> Self {
        Self::Invalid { path: path.into(), reason: reason.into() }
    }
}

/// How to fix a failure to open the file.
fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => " (check the name)",
        io::ErrorKind::PermissionDenied => {
            " (only root may read damo's recordings: read it as root, or change its owner)"
        }
        io::ErrorKind::IsADirectory => " (give a file)",
        _ => "",
    }
}
