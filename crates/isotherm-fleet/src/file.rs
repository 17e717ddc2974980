//! One file of a dataset: rows of one host and day, as Parquet.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use isotherm_output::OutputError;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;

use crate::error::{FileProblem, FleetError};
use crate::row::{Row, VERSION, batch, schema};
use crate::store::{Sink, Source, Store};

/// The keys of the metadata.
const VERSION_KEY: &str = "isotherm.fleet.version";
const HOST_KEY: &str = "isotherm.fleet.host";
const DATE_KEY: &str = "isotherm.fleet.date";
const QUARTERS_KEY: &str = "isotherm.fleet.quarters";

/// Rows are handed to the encoder by so many.
const BATCH_ROWS: usize = 8192;
/// And to the file by so many, which an engine can pass over by their least and greatest values.
const GROUP_ROWS: usize = 1 << 17;

/// What a file says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) host: String,
    pub(crate) date: String,
    /// The quarters of an hour of the day that it is of, from 0 to 95.
    pub(crate) quarters: BTreeSet<u8>,
}

/// Writes a file whole or not at all. `write` hands over its rows. Returns whether it was written: on an object store,
/// one that exists stays, unless it is to be replaced.
pub(crate) fn write(
    (store, name): (&dyn Store, &str),
    about: &About,
    replace: bool,
    write: impl FnOnce(&mut Writer) -> Result<(), FleetError>,
) -> Result<bool, FleetError> {
    let quarters: Vec<String> = about.quarters.iter().map(u8::to_string).collect();
    let metadata = vec![
        KeyValue::new(VERSION_KEY.to_owned(), VERSION.to_string()),
        KeyValue::new(HOST_KEY.to_owned(), about.host.clone()),
        KeyValue::new(DATE_KEY.to_owned(), about.date.clone()),
        KeyValue::new(QUARTERS_KEY.to_owned(), quarters.join(" ")),
    ];
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_key_value_metadata(Some(metadata))
        .build();
    let options = ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true);
    let path = store.shown(name);
    let wrong = |error: ParquetError| OutputError::new(&path, io::Error::from(error));
    let inner = ArrowWriter::try_new_with_options(store.create(name)?, schema(), options).map_err(wrong)?;
    let mut writer = Writer { inner, path: &path };
    write(&mut writer)?;
    let sink = writer.inner.into_inner().map_err(wrong)?;
    store.publish(name, sink, replace)
}

/// Writes the rows of a file.
pub(crate) struct Writer<'a> {
    inner: ArrowWriter<Sink>,
    path: &'a Path,
}

impl Writer<'_> {
    pub(crate) fn rows(&mut self, rows: &[Row]) -> Result<(), FleetError> {
        for rows in rows.chunks(BATCH_ROWS) {
            let batch = batch(rows).map_err(|error| self.error(io::Error::other(error)))?;
            self.inner.write(&batch).map_err(|error| self.error(error.into()))?;
        }
        Ok(())
    }

    /// Copies the rows of another file.
    pub(crate) fn copy(&mut self, other: Opened) -> Result<(), FleetError> {
        other.each(|batch| self.inner.write(batch).map_err(|error| self.error(error.into())))
    }

    fn error(&self, error: io::Error) -> FleetError {
        OutputError::new(self.path, error).into()
    }
}

/// A file that is open for reading.
pub(crate) struct Opened {
    pub(crate) about: About,
    /// How many rows it has.
    pub(crate) rows: u64,
    path: PathBuf,
    builder: ParquetRecordBatchReaderBuilder<Source>,
}

impl Opened {
    /// Reads all rows.
    pub(crate) fn read(self) -> Result<(), FleetError> {
        self.each(|_| Ok(()))
    }

    /// Calls `each` with all rows, some at a time.
    fn each(self, mut each: impl FnMut(&RecordBatch) -> Result<(), FleetError>) -> Result<(), FleetError> {
        let path = &self.path;
        let reader = self.builder.with_batch_size(BATCH_ROWS).build().map_err(|error| not_whole(path, error))?;
        for batch in reader {
            each(&batch.map_err(|error| not_whole(path, error.into()))?)?;
        }
        Ok(())
    }
}

/// Opens a file, of which it reads the end. The file must be of this version, and have its columns.
pub(crate) fn open(path: &Path, file: Source) -> Result<Opened, FleetError> {
    let wrong = |problem| FleetError::File { path: path.to_owned(), problem };
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let metadata = ArrowReaderMetadata::load(&file, options).map_err(|error| not_whole(path, error))?;
    let rows = metadata.metadata().file_metadata().num_rows().unsigned_abs();
    let pairs = metadata.metadata().file_metadata().key_value_metadata();
    let value = |key: &str| -> Option<String> { pairs?.iter().find(|pair| pair.key == key)?.value.clone() };
    let version = value(VERSION_KEY).ok_or_else(|| wrong(FileProblem::Foreign))?;
    if version != VERSION.to_string() {
        return Err(wrong(FileProblem::Version(isotherm_core::sanitise(&version).into_owned())));
    }
    let about = || {
        let quarters = value(QUARTERS_KEY)?;
        let quarters: Option<BTreeSet<u8>> = quarters.split(' ').map(|nth| nth.parse().ok()).collect();
        Some(About { host: value(HOST_KEY)?, date: value(DATE_KEY)?, quarters: quarters? })
    };
    let about = about().ok_or_else(|| wrong(FileProblem::Foreign))?;
    let wanted = schema();
    let (fields, wanted) = (metadata.schema().fields(), wanted.fields());
    let same = fields.len() == wanted.len()
        && fields
            .iter()
            .zip(wanted)
            .all(|(one, other)| one.name() == other.name() && one.data_type() == other.data_type());
    if !same {
        return Err(wrong(FileProblem::Foreign));
    }
    let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata);
    Ok(Opened { about, rows, path: path.to_owned(), builder })
}

fn not_whole(path: &Path, error: ParquetError) -> FleetError {
    if let ParquetError::External(external) = error {
        return match external.downcast::<io::Error>() {
            Ok(source) => FleetError::Read { path: path.to_owned(), source: *source },
            Err(other) => FleetError::File { path: path.to_owned(), problem: FileProblem::NotWhole(other.to_string()) },
        };
    }
    FleetError::File { path: path.to_owned(), problem: FileProblem::NotWhole(error.to_string()) }
}
