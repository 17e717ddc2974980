//! Recordings in other formats, one file each. [`convert_with`] is for a format that another crate writes.

mod activity;
mod csv;
mod flat;
mod identity;
mod json;
mod parquet;
mod recording;

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::{Activity, RecordError, Recording, Row};

/// Why a recording could not be converted.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// The output could not be written. Nothing is left of it, and what was there before is still there.
    #[error("cannot write {}{}", path.display(), hint(source))]
    Write {
        /// The output.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The output is the recording itself, which would be lost.
    #[error("cannot convert {} to itself: give another name", path.display())]
    Itself {
        /// The recording and the output.
        path: PathBuf,
    },
    /// The recording could not be read to its end.
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// A format that a recording can be converted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A recording of the present format.
    Recording,
    /// Apache Parquet: one row for each region of each snapshot.
    Parquet,
    /// CSV: one line for each region of each snapshot.
    Csv,
    /// JSON: the whole recording as one document.
    Json,
}

/// Why the writer of a format stopped: `?` makes it of either error.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The recording could not be read.
    #[error(transparent)]
    Read(#[from] RecordError),
    /// The output could not be written.
    #[error(transparent)]
    Write(#[from] io::Error),
}

/// The writer of a format. It takes the snapshots target by target, and keeps no more of them than it must.
trait FormatWriter: Sized {
    /// Whether it takes activities too.
    const ACTIVITIES: bool = false;

    /// Begins the output.
    fn begin(recording: &Recording, output: BufWriter<File>) -> io::Result<Self>;

    /// Adds a target of a snapshot.
    fn row(&mut self, row: &Row) -> io::Result<()>;

    /// Adds an activity. All activities come after the last snapshot.
    fn activity(&mut self, _activity: &Activity) -> io::Result<()> {
        Ok(())
    }

    /// Ends the output.
    fn end(self) -> io::Result<BufWriter<File>>;
}

/// Writes `recording` to `output` in `format`.
///
/// A recording that is cut short is converted as far as it goes; [`Recording::ending`] says whether it is. The output
/// has mode 0600 and appears, or replaces what is there, only once it is whole.
///
/// # Errors
/// When the output is the recording, the recording is damaged, or the output cannot be written.
pub fn convert(recording: &Recording, output: &Path, format: Format) -> Result<(), ConvertError> {
    match format {
        Format::Recording => convert_file(recording, output, |file| {
            recording::write(recording, file.path()).map_err(|error| match error {
                // The name of the temporary file means nothing to the user.
                RecordError::Create { source, .. } | RecordError::Write { source, .. } => TransferError::Write(source),
                RecordError::Encode { reason, .. } => RecordError::Encode { path: output.into(), reason }.into(),
                error => error.into(),
            })
        }),
        Format::Parquet => convert_with(recording, output, |writer| transfer::<parquet::Parquet>(recording, writer)),
        Format::Csv => convert_with(recording, output, |writer| transfer::<csv::Csv>(recording, writer)),
        Format::Json => convert_with(recording, output, |writer| transfer::<json::Json>(recording, writer)),
    }
}

/// Lets `write` write `output`, a file made of `recording` in a format that this crate does not know.
///
/// As with [`convert()`], the output has mode 0600 and appears, or replaces what is there, only once `write` has
/// returned.
///
/// # Errors
/// When the output is the recording, or `write` fails.
pub fn convert_with(
    recording: &Recording,
    output: &Path,
    write: impl FnOnce(BufWriter<File>) -> Result<BufWriter<File>, TransferError>,
) -> Result<(), ConvertError> {
    convert_file(recording, output, |file| {
        let writer = BufWriter::new(file.as_file().try_clone()?);
        Ok(write(writer)?.flush()?)
    })
}

/// Lets `write` write a file that becomes `output` once it is whole.
fn convert_file(
    recording: &Recording,
    output: &Path,
    write: impl FnOnce(&NamedTempFile) -> Result<(), TransferError>,
) -> Result<(), ConvertError> {
    if output.canonicalize().is_ok_and(|output| recording.path().canonicalize().is_ok_and(|input| input == output)) {
        return Err(ConvertError::Itself { path: output.into() });
    }
    let failed = |source| ConvertError::Write { path: output.into(), source };
    let directory = match output.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    // Such a file is made with mode 0600, and goes when it is dropped.
    let file = NamedTempFile::new_in(directory).map_err(|error| failed(without_path(error)))?;
    write(&file).map_err(|error| match error {
        TransferError::Read(error) => ConvertError::Record(error),
        TransferError::Write(error) => failed(error),
    })?;
    file.persist(output).map_err(|error| failed(error.error))?;
    Ok(())
}

fn transfer<W: FormatWriter>(recording: &Recording, output: BufWriter<File>) -> Result<BufWriter<File>, TransferError> {
    let mut writer = W::begin(recording, output)?;
    for record in recording.snapshots()? {
        record?.into_rows().try_for_each(|row| writer.row(&row))?;
    }
    if W::ACTIVITIES {
        for activity in recording.activities()? {
            writer.activity(&activity?)?;
        }
    }
    Ok(writer.end()?)
}

/// How to fix a failure to write.
fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => " (make its directory first)",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => " (make room, or write elsewhere)",
        _ => "",
    }
}

/// The error of the operating system, without the name of the temporary file, which means nothing to the user.
fn without_path(error: io::Error) -> io::Error {
    error.kind().into()
}
