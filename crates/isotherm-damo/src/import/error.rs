//! What can go wrong with a file of damo's: each error says what, where, why, and what would mend it.

use std::io;
use std::path::{Path, PathBuf};

use isotherm_record::RecordError;

/// Why a file of damo's could not be imported. Nothing was written then, but for [`DamoError::Record`].
#[derive(Debug, thiserror::Error)]
pub enum DamoError {
    /// The file does not exist, may not be read, or is a directory.
    #[error("cannot open {}{}", path.display(), hint(source))]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Reading failed.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The path names something that is neither a file nor a directory, such as a pipe.
    #[error("cannot read {}: it is not a regular file; give the path of one", path.display())]
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
    /// The file is of another kind, or of a kind of damo's that is not JSON.
    #[error("{} is not JSON of damo's: {reason}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is instead, and the mend.
        reason: String,
    },
    /// The file ends before it is whole.
    #[error(
        "{} is cut short at {place}: damo's JSON can be read only whole; use a copy that is, or record again",
        path.display()
    )]
    CutShort {
        /// The file.
        path: PathBuf,
        /// Where, in the JSON.
        place: String,
    },
    /// The compressed bytes are not what was written.
    #[error("{} is damaged after {place}, and cannot be decompressed there (use a good copy)", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where, in the JSON.
        place: String,
        /// Why.
        source: io::Error,
    },
    /// The text is not JSON, or the JSON does not say what damo's says.
    #[error("{} cannot be understood at {place}: {reason}; {mend}", path.display())]
    Misread {
        /// The file.
        path: PathBuf,
        /// Where, in the JSON.
        place: String,
        /// What is wrong.
        reason: String,
        /// What would mend it.
        mend: &'static str,
    },
    /// What the file says cannot be a recording.
    #[error("{} cannot be imported: {reason}", path.display())]
    Senseless {
        /// The file.
        path: PathBuf,
        /// What is wrong, where, and the mend.
        reason: String,
    },
    /// The JSON is larger than what is read.
    #[error(
        "{} holds more than {} GiB of JSON, more than is imported at once; split it, with `damo adjust` for one",
        path.display(),
        super::MAX_JSON >> 30
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// The recording would be written over the file that is imported.
    #[error("cannot import {} into itself: name another file with -o", path.display())]
    Itself {
        /// The file.
        path: PathBuf,
    },
    /// The recording could not be written.
    #[error(transparent)]
    Record(#[from] RecordError),
}

impl DamoError {
    pub(super) fn foreign(path: &Path, reason: impl Into<String>) -> Self {
        Self::Foreign { path: path.into(), reason: reason.into() }
    }

    pub(super) fn senseless(path: &Path, reason: impl Into<String>) -> Self {
        Self::Senseless { path: path.into(), reason: reason.into() }
    }
}

/// How to fix a failure to open.
fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => " (check the name: damo itself writes damon.data)",
        io::ErrorKind::PermissionDenied => {
            " (only root may read what damo records: read it as root, or change its owner)"
        }
        io::ErrorKind::IsADirectory => " (give a file)",
        _ => "",
    }
}
