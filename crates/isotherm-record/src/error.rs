//! What can go wrong with a recording. Each error says what failed, where, and how to fix it; its source says why.

use std::io;
use std::path::{Path, PathBuf};

use isotherm_core::units;
use isotherm_output::OutputError;

use crate::FORMAT;

/// Why a recording could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file to record to could not be created, or could not be given its name.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The kernel did not take a batch. What was written before stays readable.
    #[error(
        "cannot write to the recording {} at byte {offset} ({}what was recorded before is kept)",
        path.display(),
        write_hint(source)
    )]
    Write {
        /// The recording.
        path: PathBuf,
        /// Where the batch would have begun, in bytes; the file was cut back to this length.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// A snapshot could not be turned into a batch; a fault of isotherm, not of the file.
    #[error("cannot encode a snapshot for the recording {}: {reason}; please report this", path.display())]
    Encode {
        /// The recording.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The file does not exist, may not be read, or is a directory.
    #[error("cannot open the recording {}{}", path.display(), open_hint(source))]
    Open {
        /// The recording.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Reading failed.
    #[error("cannot read the recording {} at byte {offset}", path.display())]
    Read {
        /// The recording.
        path: PathBuf,
        /// Where, in bytes.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// The path names something that is neither a file nor a directory, such as a pipe.
    #[error("cannot read the recording {}: it is not a regular file; give the path of one", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The file has no bytes.
    #[error("the recording {} is empty: nothing was written to it; record again", path.display())]
    Empty {
        /// The recording.
        path: PathBuf,
    },
    /// The file is of another kind altogether.
    #[error("{} is not a recording of isotherm: {reason}; give a file made by `isotherm record`", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is instead, if that is known.
        reason: String,
    },
    /// The recording is of a format that this isotherm does not read.
    #[error(
        "the recording {} was made by isotherm {made_by} in format {format}; \
         this isotherm reads format {FORMAT} only: {}",
        path.display(),
        format_hint(*format)
    )]
    OtherFormat {
        /// The recording.
        path: PathBuf,
        /// The version of isotherm that made it, or `of an unknown version`.
        made_by: String,
        /// Its format.
        format: u64,
    },
    /// The file ends within its header.
    #[error(
        "the recording {} is cut short at byte {at}, before its header was whole: \
         nothing of it can be read; record again",
        path.display()
    )]
    CutInHeader {
        /// The recording.
        path: PathBuf,
        /// The length of the file, in bytes.
        at: u64,
    },
    /// A part of it is damaged, and all of it is needed.
    #[error(
        "the recording {} is damaged at byte {at}: {reason}; \
         save the rest first, with `isotherm check --save`, or use a copy",
        path.display()
    )]
    Incomplete {
        /// The recording.
        path: PathBuf,
        /// The first byte that is damaged.
        at: u64,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A part of it takes more memory than is allowed.
    #[error(
        "{part} of the recording {}, at byte {at}, takes more than {} of memory (if you trust the recording, raise \
         the limit with --max-memory)",
        path.display(),
        units::bytes(*limit)
    )]
    TooLarge {
        /// The recording.
        path: PathBuf,
        /// The first byte of the message that the part belongs to.
        at: u64,
        /// What is too large, such as `a batch`.
        part: &'static str,
        /// The limit in bytes.
        limit: u64,
    },
    /// The bytes are not what a recorder writes, although the checksums are right, or the header is damaged.
    #[error(
        "the recording {} is damaged at byte {at}: {reason}; \
         what lies before that byte is good, use a copy or record again",
        path.display()
    )]
    Damaged {
        /// The recording.
        path: PathBuf,
        /// The first byte of the message that is damaged.
        at: u64,
        /// What is wrong with it.
        reason: String,
    },
}

impl RecordError {
    pub(crate) fn damaged(path: &Path, at: u64, reason: impl Into<String>) -> Self {
        Self::Damaged { path: path.into(), at, reason: reason.into() }
    }

    pub(crate) fn foreign(path: &Path, reason: impl Into<String>) -> Self {
        Self::Foreign { path: path.into(), reason: reason.into() }
    }
}

/// How to fix a failure to write.
fn write_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "make room, or record elsewhere with -o; ",
        io::ErrorKind::FileTooLarge => "raise the limit with `ulimit -f`, or record for less long; ",
        _ => "",
    }
}

/// What to do about a recording of this format, which is another one.
fn format_hint(format: u64) -> &'static str {
    if format > FORMAT {
        "upgrade it"
    } else {
        "record again, or use the isotherm that made it (no release has written this format)"
    }
}

/// How to fix a failure to open.
fn open_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => " (check the name, or record first with `isotherm record`)",
        io::ErrorKind::PermissionDenied => " (only its owner may read a recording: read it as that user)",
        io::ErrorKind::IsADirectory => " (give a file)",
        _ => "",
    }
}
