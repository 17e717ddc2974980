//! Conversion of recordings to other formats, with one file for each format. [`convert_with`] is for the formats of
//! other crates.

mod csv;
mod cut;
mod flat;
mod json;
mod merge;
mod parquet;
mod recording;

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use isotherm_core::{Allocations, PanelSnapshot};
use isotherm_output::{Output, OutputError, OutputFile};

use crate::{Activity, Mark, Missed, RecordError, Recording, Row, SurveyRecord, recording_at};

pub use cut::{Cut, cut};
pub use merge::{MergeError, Merged, merge};

/// Why a recording could not be converted.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// The output could not be written, or is the recording. A file that was there before is unchanged.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The recording could not be read.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The part that was to be cut out has neither a snapshot nor a survey.
    #[error(
        "nothing of the recording {} is in this part; `isotherm check` says how long it is, and `isotherm report \
         summary` lists its targets",
        path.display()
    )]
    NothingToCut {
        /// The recording.
        path: PathBuf,
    },
}

/// A format that a recording can be converted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A recording.
    Recording,
    /// Apache Parquet: one row for each region of each snapshot.
    Parquet,
    /// CSV: one line for each region of each snapshot.
    Csv,
    /// JSON: the whole recording as one document.
    Json,
}

/// Why the contents of a recording could not be written in another format. The operator `?` makes it of either cause.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The recording could not be read.
    #[error(transparent)]
    Read(#[from] RecordError),
    /// The output could not be written.
    #[error(transparent)]
    Write(#[from] io::Error),
}

/// The writer of a format. It gets the snapshots target by target, and keeps as few of them in memory as the format
/// allows.
trait FormatWriter: Sized {
    /// Whether the format has activities, surveys, marks, calls that mapped memory, what is missing and readings of the
    /// panel, or snapshots alone.
    const ALL: bool = false;

    /// Begins the output.
    fn begin(recording: &Recording, output: BufWriter<File>) -> io::Result<Self>;

    /// Adds a target of a snapshot.
    fn row(&mut self, row: &Row<'_>) -> io::Result<()>;

    /// Adds an activity. All activities come after the last snapshot.
    fn activity(&mut self, _activity: &Activity) -> io::Result<()> {
        Ok(())
    }

    /// Adds a survey. All surveys come after the last activity.
    fn survey(&mut self, _survey: SurveyRecord) -> io::Result<()> {
        Ok(())
    }

    /// Adds a mark. All marks come after the last survey.
    fn mark(&mut self, _mark: &Mark) -> io::Result<()> {
        Ok(())
    }

    /// Adds calls that mapped memory. All of them come after the last mark.
    fn allocations(&mut self, _found: &Allocations) -> io::Result<()> {
        Ok(())
    }

    /// Adds something that is missing. All of it comes after the last calls.
    fn missed(&mut self, _missed: &Missed) -> io::Result<()> {
        Ok(())
    }

    /// Adds a reading of the panel. All of them come after what is missing.
    fn panel(&mut self, _found: &PanelSnapshot) -> io::Result<()> {
        Ok(())
    }

    /// Ends the output.
    fn end(self) -> io::Result<BufWriter<File>>;
}

/// Writes `recording` to `output` in `format`.
///
/// A recording that is cut short is converted up to that point (see [`Recording::ending`]). The output has mode 0600.
/// It appears, or replaces an existing file, only when it is complete. A recording that is replaced by another is kept.
///
/// # Errors
/// When the output is the recording, the recording is damaged, or the output cannot be written.
pub fn convert(recording: &Recording, output: &Path, format: Format) -> Result<(), ConvertError> {
    match format {
        Format::Recording => {
            let file = open(recording, recording_at(output))?;
            recording::transfer(recording, file, true).map(drop).map_err(|error| of_output(output, error))
        }
        Format::Parquet => convert_with(recording, output, |writer| transfer::<parquet::Parquet>(recording, writer)),
        Format::Csv => convert_with(recording, output, |writer| transfer::<csv::Csv>(recording, writer)),
        Format::Json => convert_with(recording, output, |writer| transfer::<json::Json>(recording, writer)),
    }
}

/// Writes what can be read of `recording` to `output`, as a recording. Returns why reading ended
/// before the end, if it did.
///
/// The new recording has an end mark if the old one has. It appears, or replaces an existing file, only when it is
/// complete. A recording that is replaced is kept.
///
/// # Errors
/// When the output is the recording or cannot be written, or the file cannot be read.
pub fn recover(recording: &Recording, output: &Path) -> Result<Option<RecordError>, ConvertError> {
    let file = recording_at(output).apart_from([recording.path()]).create()?;
    recording::transfer(recording, file, false).map_err(|error| of_output(output, error))
}

/// An error of writing a recording to `output`, or of reading another one.
fn of_output(output: &Path, error: RecordError) -> ConvertError {
    match error {
        RecordError::Write { source, .. } => OutputError::new(output, source).into(),
        RecordError::Output(error) => error.into(),
        error => ConvertError::Record(error),
    }
}

/// Writes `output` by means of `write`, for a format that this crate does not know.
///
/// As with [`convert()`], the output has mode 0600. It appears, or replaces an existing file, when `write` has
/// returned.
///
/// # Errors
/// When the output is the recording, or `write` fails.
pub fn convert_with(
    recording: &Recording,
    output: &Path,
    write: impl FnOnce(BufWriter<File>) -> Result<BufWriter<File>, TransferError>,
) -> Result<(), ConvertError> {
    let file = open(recording, Output::new(output))?;
    let written = file.writer().map_err(TransferError::from).and_then(write);
    written.and_then(|mut writer| Ok(writer.flush()?)).map_err(|error| match error {
        TransferError::Read(error) => ConvertError::Record(error),
        TransferError::Write(error) => OutputError::new(output, error).into(),
    })?;
    Ok(file.finish()?)
}

/// Opens the output of a conversion of `recording`, of which nothing may be missing.
fn open(recording: &Recording, output: Output) -> Result<OutputFile, ConvertError> {
    recording.must_be_undamaged()?;
    Ok(output.apart_from([recording.path()]).create()?)
}

fn transfer<W: FormatWriter>(recording: &Recording, output: BufWriter<File>) -> Result<BufWriter<File>, TransferError> {
    let mut writer = W::begin(recording, output)?;
    for record in recording.snapshots() {
        record?.rows().try_for_each(|row| writer.row(&row))?;
    }
    if W::ALL {
        for activity in recording.activities() {
            writer.activity(&activity?)?;
        }
        for survey in recording.surveys() {
            writer.survey(survey?)?;
        }
        for mark in recording.marks() {
            writer.mark(&mark?)?;
        }
        for found in recording.allocations() {
            writer.allocations(&found?)?;
        }
        for missed in recording.missed() {
            writer.missed(&missed?)?;
        }
        for found in recording.panels() {
            writer.panel(&found?)?;
        }
    }
    Ok(writer.end()?)
}
