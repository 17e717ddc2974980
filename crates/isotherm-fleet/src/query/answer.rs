//! An answer: its rows, and their formats.

use std::cell::Cell;
use std::io::{self, Write};
use std::rc::Rc;

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::arrow::{csv, json};
use datafusion::error::DataFusionError;
use isotherm_core::{is_unsafe, units};
use isotherm_report::Terminal;
use isotherm_report::sheet::{Column, Table};

use crate::error::FleetError;

/// What a cell without a value shows.
const NULL: &str = "-";

/// An answer.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    pub(super) batches: Vec<RecordBatch>,
}

impl Answer {
    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// Keeps at most so many rows. Returns whether there were more.
    pub(super) fn cut(&mut self, most: usize) -> bool {
        let mut left = most;
        let more = self.rows() > most;
        for batch in &mut self.batches {
            *batch = batch.slice(0, batch.num_rows().min(left));
            left -= batch.num_rows();
        }
        more
    }

    /// A table for people, fitted to the terminal: sizes and times have units and are rounded, and names have no
    /// control characters.
    ///
    /// # Errors
    /// If a value has no text.
    pub fn text(&self, terminal: &Terminal) -> Result<String, FleetError> {
        let mut out = Vec::new();
        self.table()?.text(terminal, &mut out).map_err(DataFusionError::from)?;
        Ok(String::from_utf8_lossy(&out).into_owned())
    }

    /// The rows for people.
    ///
    /// # Errors
    /// If a value has no text.
    pub fn table(&self) -> Result<Table, FleetError> {
        let Some(first) = self.batches.first() else { return Ok(Table::default()) };
        let schema = first.schema();
        let column = |field: &std::sync::Arc<datafusion::arrow::datatypes::Field>| Column {
            name: field.name().clone(),
            figures: field.data_type().is_numeric(),
        };
        let columns = schema.fields().iter().map(column).collect();
        let mut rows = Vec::with_capacity(self.rows());
        for batch in &self.batches {
            let options = FormatOptions::new().with_null(NULL);
            let formatters = batch.columns().iter().map(|array| ArrayFormatter::try_new(array, &options));
            let formatters: Vec<_> = formatters.collect::<Result<_, _>>().map_err(DataFusionError::from)?;
            for row in 0..batch.num_rows() {
                let cells = schema.fields().iter().zip(batch.columns()).zip(&formatters);
                let cells = cells.map(|((field, array), formatter)| match int(array, row) {
                    Some(number) => shown(field.name(), number),
                    None => formatter.value(row).to_string(),
                });
                rows.push(cells.collect());
            }
        }
        Ok(Table { columns, rows })
    }

    /// The values of a column of int64. All are `None` if the column is of another type.
    pub(super) fn ints(&self, name: &str) -> Vec<Option<i64>> {
        let of = |batch: &RecordBatch| match batch.column_by_name(name) {
            Some(array) => (0..batch.num_rows()).map(|row| int(array, row)).collect(),
            None => vec![None; batch.num_rows()],
        };
        self.batches.iter().flat_map(of).collect()
    }
}

/// A format of rows that are written one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowFormat {
    /// Comma-separated values, with the names of the columns in the first line. Texts are as they are.
    Csv,
    /// An object of JSON for each row, each on a line, with nulls. All control characters are escaped.
    Json,
}

/// Writes rows.
pub(super) struct RowWriter<'a> {
    inner: Inner<'a>,
    failed: Failed,
}

enum Inner<'a> {
    Csv(Box<csv::Writer<Out<'a>>>),
    Json(json::Writer<Out<'a>, json::writer::LineDelimited>),
}

/// What the output has failed with. Arrow makes text of it.
type Failed = Rc<Cell<Option<io::Error>>>;

impl<'a> RowWriter<'a> {
    pub(super) fn new(format: RowFormat, out: &'a mut dyn Write) -> Self {
        let failed = Failed::default();
        let out = Out { out, escapes: format == RowFormat::Json, failed: Rc::clone(&failed) };
        let inner = match format {
            RowFormat::Csv => Inner::Csv(Box::new(csv::Writer::new(out))),
            RowFormat::Json => Inner::Json(json::WriterBuilder::new().with_explicit_nulls(true).build(out)),
        };
        Self { inner, failed }
    }

    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<(), FleetError> {
        let written = match &mut self.inner {
            Inner::Csv(writer) => writer.write(batch),
            Inner::Json(writer) => writer.write(batch),
        };
        self.checked(written)
    }

    pub(super) fn end(mut self) -> Result<(), FleetError> {
        let written = match &mut self.inner {
            Inner::Csv(_) => Ok(()),
            Inner::Json(writer) => writer.finish(),
        };
        self.checked(written)
    }

    fn checked(&self, written: Result<(), ArrowError>) -> Result<(), FleetError> {
        written.map_err(|error| match self.failed.take() {
            Some(failed) => FleetError::Write(failed),
            None => DataFusionError::from(error).into(),
        })
    }
}

/// The output. In JSON on lines, what may act on a terminal is escaped.
struct Out<'a> {
    out: &'a mut dyn Write,
    escapes: bool,
    failed: Failed,
}

impl Out<'_> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.escapes || bytes.is_ascii() && !bytes.contains(&0x7f) {
            return self.out.write_all(bytes);
        }
        for character in std::str::from_utf8(bytes).map_err(io::Error::other)?.chars() {
            if is_unsafe(character) && character != '\n' {
                let mut units = [0; 2];
                for unit in character.encode_utf16(&mut units) {
                    write!(self.out, "\\u{unit:04x}")?;
                }
            } else {
                write!(self.out, "{character}")?;
            }
        }
        Ok(())
    }
}

impl Write for Out<'_> {
    /// Takes all of the bytes, which are whole rows of Arrow's writers.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.put(bytes) {
            Ok(()) => Ok(bytes.len()),
            Err(error) => {
                let kind = error.kind();
                self.failed.set(Some(error));
                Err(kind.into())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn int(array: &dyn Array, row: usize) -> Option<i64> {
    (*array.data_type() == DataType::Int64 && array.is_valid(row)).then(|| array.as_primitive::<Int64Type>().value(row))
}

/// A number of a column for people. The name of the column tells its unit.
fn shown(column: &str, number: i64) -> String {
    let sign = if number < 0 { "-" } else { "" };
    let size = number.unsigned_abs();
    match column {
        _ if column.ends_with("byte_minutes") => format!("{sign}{} min", units::bytes(size)),
        _ if column.contains("bytes") => format!("{sign}{}", units::bytes(size)),
        _ if column.ends_with("_ns") => format!("{sign}{}", units::nanoseconds(size)),
        // A time or an identifier, and not a count.
        "minute" | "node" => number.to_string(),
        _ => format!("{sign}{}", units::count(size)),
    }
}
