//! Recordings in other formats: one file each, behind one trait. damo's is not in the order of time, and so for itself.

mod activity;
mod csv;
mod flat;
mod json;
mod parquet;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::{Activity, RecordError, Recording, Row, damo};

/// Why a recording could not be converted.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// The name does not say which format.
    #[error("cannot tell which format {} should have: its name must end in .parquet, .csv, .json, .damo or .damo.json", path.display())]
    UnknownFormat {
        /// The output.
        path: PathBuf,
    },
    /// The output could not be written. Nothing is left of it, and what was there before is still there.
    #[error("cannot write {}: {source}{}", path.display(), mend(source))]
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

/// A format: takes rows one after another, and keeps no more of them than it must.
trait Format: Sized {
    /// Whether it takes activities too.
    const ACTIVITIES: bool = false;

    /// Begins the output.
    fn begin(recording: &Recording, output: BufWriter<File>) -> io::Result<Self>;

    /// Adds a row.
    fn row(&mut self, row: &Row) -> io::Result<()>;

    /// Adds an activity; all come after the last row.
    fn activity(&mut self, _activity: &Activity) -> io::Result<()> {
        Ok(())
    }

    /// Ends the output.
    fn end(self) -> io::Result<BufWriter<File>>;
}

/// The name that damo itself gives to its recordings, and looks for.
const DAMOS_NAME: &str = "damon.data";

/// Writes `recording` to `output` in the format that its name tells: `.parquet`, `.csv`, `.json`, `.damo.json` (damo's `json`), or
/// `.damo` or `damon.data` (damo's `json_compressed`).
///
/// A recording that is cut short is converted as far as it goes ([`Recording::ending`] tells). The output has mode
/// 0600 and appears, or replaces what is there, only once it is whole.
///
/// # Errors
/// When the name is none of these, the output is the recording, the recording is damaged, or the output cannot be
/// written.
pub fn convert(recording: &Recording, output: &Path) -> Result<(), ConvertError> {
    if output.canonicalize().is_ok_and(|output| recording.path().canonicalize().is_ok_and(|input| input == output)) {
        return Err(ConvertError::Itself { path: output.into() });
    }
    let name = output.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let damos =
        |compressed| into_file(output, |writer, failed| damo::write::write(recording, writer, compressed, failed));
    match output.extension().and_then(|extension| extension.to_str()) {
        _ if name == DAMOS_NAME => damos(true),
        Some("damo") => damos(true),
        Some("json") if name.ends_with(".damo.json") => damos(false),
        Some("parquet") => convert_to::<parquet::Parquet>(recording, output),
        Some("csv") => convert_to::<csv::Csv>(recording, output),
        Some("json") => convert_to::<json::Json>(recording, output),
        _ => Err(ConvertError::UnknownFormat { path: output.into() }),
    }
}

fn convert_to<F: Format>(recording: &Recording, output: &Path) -> Result<(), ConvertError> {
    into_file(output, |writer, failed| {
        let mut format = F::begin(recording, writer).map_err(failed)?;
        for row in recording.rows()? {
            format.row(&row?).map_err(failed)?;
        }
        if F::ACTIVITIES {
            for activity in recording.activities()? {
                format.activity(&activity?).map_err(failed)?;
            }
        }
        format.end().map_err(failed)
    })
}

/// Lets `write` write a file that becomes `output` once it is whole; the function that it is given makes errors of failures to write.
fn into_file(
    output: &Path,
    write: impl FnOnce(BufWriter<File>, &dyn Fn(io::Error) -> ConvertError) -> Result<BufWriter<File>, ConvertError>,
) -> Result<(), ConvertError> {
    let failed = |source| ConvertError::Write { path: output.into(), source };
    let directory = match output.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    // Such a file is made with mode 0600, and goes when it is dropped.
    let file = tempfile::NamedTempFile::new_in(directory).map_err(|error| failed(without_path(error)))?;
    let writer = BufWriter::new(file.as_file().try_clone().map_err(failed)?);
    write(writer, &failed)?.flush().map_err(failed)?;
    file.persist(output).map_err(|error| failed(error.error))?;
    Ok(())
}

/// What would mend a failure to write.
fn mend(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "; make its directory first",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; make room, or write elsewhere",
        _ => "",
    }
}

/// The error of the operating system, without the name of the temporary file, which means nothing to the user.
fn without_path(error: io::Error) -> io::Error {
    error.kind().into()
}
