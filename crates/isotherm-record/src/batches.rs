//! Reading a recording: its batches, one after another.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};

use crate::message::{Checksum, Fault, Found, find};
use crate::schema::columns;
use crate::source::Source;
use crate::{RecordError, decode};

/// The rows of a recording one by one, with one batch in memory at a time.
#[derive(Debug)]
pub(crate) struct Batches {
    source: Source,
    schema: SchemaRef,
    /// The next message.
    at: u64,
    batch: Option<Batch>,
}

/// A batch whose rows are being handed out.
#[derive(Debug)]
struct Batch {
    /// The first byte of its message.
    at: u64,
    rows: RecordBatch,
    next: usize,
}

impl Batches {
    pub(crate) fn new(source: Source) -> Self {
        let schema = Arc::new(Schema::new(columns(source.format)));
        Self { at: source.start, source, schema, batch: None }
    }

    /// What `read` makes of the next row, which it finds at the given place of the given batch. After an error there is no further row.
    ///
    /// # Errors
    /// When the batch cannot be read, or `read` refuses the row.
    pub(crate) fn next<T>(
        &mut self,
        read: impl FnOnce(&RecordBatch, usize) -> Result<T, &'static str>,
    ) -> Result<Option<T>, RecordError> {
        let read = self.try_next(read);
        if read.is_err() {
            self.batch = None;
            self.at = self.source.end;
        }
        read
    }

    fn try_next<T>(
        &mut self,
        read: impl FnOnce(&RecordBatch, usize) -> Result<T, &'static str>,
    ) -> Result<Option<T>, RecordError> {
        loop {
            if let Some(batch) = &mut self.batch
                && batch.next < batch.rows.num_rows()
            {
                batch.next += 1;
                return read(&batch.rows, batch.next - 1)
                    .map(Some)
                    .map_err(|reason| RecordError::damaged(&self.source.path, batch.at, reason));
            }
            if self.at >= self.source.end {
                return Ok(None);
            }
            self.batch = Some(self.next_batch()?);
        }
    }

    fn next_batch(&mut self) -> Result<Batch, RecordError> {
        let (path, file, at) = (&self.source.path, &self.source.file, self.at);
        let fault = |fault: Fault| fault.at(path, at);
        let Found::Message(message) = find(file, at, self.source.end, Checksum::Needed).map_err(fault)? else {
            return Err(RecordError::damaged(path, at, "the file has changed since it was opened"));
        };
        let body = message.body(file).map_err(fault)?;
        let rows = decode::batch(message.flatbuffer().map_err(fault)?, body, &self.schema)
            .map_err(|reason| RecordError::damaged(path, at, reason))?;
        self.at = message.end();
        Ok(Batch { at, rows, next: 0 })
    }
}
