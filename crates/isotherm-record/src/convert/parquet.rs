//! Parquet: one row per region, compressed, with the recording's header in the file's metadata.

use std::fs::File;
use std::io::{self, BufWriter};
use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, RecordBatch, StringArray, UInt32Array, UInt64Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;

use super::{FormatWriter, flat};
use crate::schema::{FORMAT_KEY, HEADER_KEY};
use crate::{FORMAT, Recording, Row};

/// Rows are handed to the encoder by so many.
const BATCH_ROWS: usize = 8192;
/// And to the file by so many: what is in memory at most.
const GROUP_ROWS: usize = 1 << 18;

pub(super) struct Parquet {
    writer: ArrowWriter<BufWriter<File>>,
    schema: SchemaRef,
    rows: Columns,
    from_boot: bool,
}

#[derive(Default)]
struct Columns {
    time_ns: Vec<u64>,
    pid: Vec<u32>,
    start: Vec<u64>,
    end: Vec<u64>,
    nr_accesses: Vec<u32>,
    samples: Vec<u32>,
    access_rate: Vec<f64>,
    age_ns: Vec<u64>,
    nr_unobservable: Vec<u32>,
    mapping: Vec<Arc<str>>,
    nr_samples: Vec<u32>,
    target_type: Vec<Arc<str>>,
    start_ns: Vec<Option<u64>>,
    cgroup: Vec<Option<u64>>,
    present_bytes: Vec<Option<u64>>,
    touched_bytes: Vec<Option<u64>>,
    unobservable_bytes: Vec<Option<u64>>,
    unknown_bytes: Vec<Option<u64>>,
    swapped_bytes: Vec<Option<u64>>,
    absent_bytes: Vec<Option<u64>>,
    aggregation_ns: Vec<u64>,
    access_hz: Vec<f64>,
}

impl FormatWriter for Parquet {
    fn begin(recording: &Recording, output: BufWriter<File>) -> io::Result<Self> {
        let header = serde_json::to_string(recording.header())?;
        let metadata = vec![
            KeyValue::new(FORMAT_KEY.to_owned(), FORMAT.to_string()),
            KeyValue::new(HEADER_KEY.to_owned(), header),
        ];
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_max_row_group_row_count(Some(GROUP_ROWS))
            .set_key_value_metadata(Some(metadata))
            .build();
        let schema = Arc::new(schema());
        // Parquet's own types say all; Arrow's schema beside them would hide the metadata from pyarrow.
        let options = ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true);
        let writer = ArrowWriter::try_new_with_options(output, Arc::clone(&schema), options)?;
        let from_boot = recording.header().host.counts_from_boot();
        Ok(Self { writer, schema, rows: Columns::default(), from_boot })
    }

    fn row(&mut self, row: &Row<'_>) -> io::Result<()> {
        for line in flat::lines(row, self.from_boot) {
            self.rows.push(line);
            if self.rows.time_ns.len() >= BATCH_ROWS {
                self.write_rows()?;
            }
        }
        Ok(())
    }

    fn end(mut self) -> io::Result<BufWriter<File>> {
        self.write_rows()?;
        Ok(self.writer.into_inner()?)
    }
}

impl Parquet {
    fn write_rows(&mut self) -> io::Result<()> {
        let columns = std::mem::take(&mut self.rows).into_arrays();
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(io::Error::other)?;
        Ok(self.writer.write(&batch)?)
    }
}

impl Columns {
    fn push(&mut self, line: flat::Line) {
        self.time_ns.push(line.time_ns);
        self.pid.push(line.pid);
        self.start.push(line.start);
        self.end.push(line.end);
        self.nr_accesses.push(line.nr_accesses);
        self.samples.push(line.samples);
        self.access_rate.push(line.access_rate);
        self.age_ns.push(line.age_ns);
        self.nr_unobservable.push(line.nr_unobservable);
        self.mapping.push(line.mapping);
        self.nr_samples.push(line.nr_samples);
        self.target_type.push(line.target_type);
        self.start_ns.push(line.start_ns);
        self.cgroup.push(line.cgroup);
        self.present_bytes.push(line.present_bytes);
        self.touched_bytes.push(line.touched_bytes);
        self.unobservable_bytes.push(line.unobservable_bytes);
        self.unknown_bytes.push(line.unknown_bytes);
        self.swapped_bytes.push(line.swapped_bytes);
        self.absent_bytes.push(line.absent_bytes);
        self.aggregation_ns.push(line.aggregation_ns);
        self.access_hz.push(line.access_hz);
    }

    /// In the order of [`schema`].
    fn into_arrays(self) -> Vec<ArrayRef> {
        vec![
            Arc::new(UInt64Array::from(self.time_ns)),
            Arc::new(UInt32Array::from(self.pid)),
            Arc::new(UInt64Array::from(self.start)),
            Arc::new(UInt64Array::from(self.end)),
            Arc::new(UInt32Array::from(self.nr_accesses)),
            Arc::new(UInt32Array::from(self.samples)),
            Arc::new(Float64Array::from(self.access_rate)),
            Arc::new(UInt64Array::from(self.age_ns)),
            Arc::new(UInt32Array::from(self.nr_unobservable)),
            Arc::new(StringArray::from_iter_values(self.mapping)),
            Arc::new(UInt32Array::from(self.nr_samples)),
            Arc::new(StringArray::from_iter_values(self.target_type)),
            Arc::new(UInt64Array::from(self.start_ns)),
            Arc::new(UInt64Array::from(self.cgroup)),
            Arc::new(UInt64Array::from(self.present_bytes)),
            Arc::new(UInt64Array::from(self.touched_bytes)),
            Arc::new(UInt64Array::from(self.unobservable_bytes)),
            Arc::new(UInt64Array::from(self.unknown_bytes)),
            Arc::new(UInt64Array::from(self.swapped_bytes)),
            Arc::new(UInt64Array::from(self.absent_bytes)),
            Arc::new(UInt64Array::from(self.aggregation_ns)),
            Arc::new(Float64Array::from(self.access_hz)),
        ]
    }
}

fn schema() -> Schema {
    let field = |name: &str, data_type| Field::new(name, data_type, false);
    Schema::new(vec![
        field("time_ns", DataType::UInt64),
        field("pid", DataType::UInt32),
        field("start", DataType::UInt64),
        field("end", DataType::UInt64),
        field("nr_accesses", DataType::UInt32),
        field("samples", DataType::UInt32),
        field("access_rate", DataType::Float64),
        field("age_ns", DataType::UInt64),
        field("nr_unobservable", DataType::UInt32),
        field("mapping", DataType::Utf8),
        field("nr_samples", DataType::UInt32),
        field("target_type", DataType::Utf8),
        Field::new("start_ns", DataType::UInt64, true),
        Field::new("cgroup", DataType::UInt64, true),
        Field::new("present_bytes", DataType::UInt64, true),
        Field::new("touched_bytes", DataType::UInt64, true),
        Field::new("unobservable_bytes", DataType::UInt64, true),
        Field::new("unknown_bytes", DataType::UInt64, true),
        Field::new("swapped_bytes", DataType::UInt64, true),
        Field::new("absent_bytes", DataType::UInt64, true),
        field("aggregation_ns", DataType::UInt64),
        field("access_hz", DataType::Float64),
    ])
}
