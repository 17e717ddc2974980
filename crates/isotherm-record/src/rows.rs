//! Reading a recording: its rows.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use isotherm_core::{Mapping, TargetId, TargetSnapshot};

use crate::decode::{self, RawRow};
use crate::message::{Checksum, Found, find};
use crate::reader::Source;
use crate::schema::columns;
use crate::{RecordError, Row, TargetInfo};

/// The rows of a recording, in the order of their recording. After an error there is no further row.
///
/// Rows of the same target share what it is and its mappings, as long as these do not change.
#[derive(Debug)]
pub struct Rows {
    source: Source,
    schema: SchemaRef,
    /// The next message.
    at: u64,
    batch: Option<Batch>,
    /// What is known of the targets.
    known: HashMap<u32, Known>,
    /// Of the last row, in nanoseconds.
    time_ns: u64,
}

/// A batch whose rows are being handed out.
#[derive(Debug)]
struct Batch {
    /// The first byte of its message.
    at: u64,
    rows: RecordBatch,
    next: usize,
}

#[derive(Debug)]
struct Known {
    info: Arc<TargetInfo>,
    mappings: Arc<[Mapping]>,
    /// The time of the last row of the target, in nanoseconds.
    seen: u64,
}

impl Rows {
    pub(crate) fn new(source: Source) -> Self {
        let schema = Arc::new(Schema::new(columns()));
        Self { at: source.start, source, schema, batch: None, known: HashMap::new(), time_ns: 0 }
    }

    fn next_row(&mut self) -> Result<Option<Row>, RecordError> {
        loop {
            if let Some(batch) = &mut self.batch
                && batch.next < batch.rows.num_rows()
            {
                batch.next += 1;
                let at = batch.at;
                let raw = decode::row(&batch.rows, batch.next - 1);
                let row = raw.and_then(|raw| self.complete(raw));
                return row.map(Some).map_err(|reason| RecordError::damaged(&self.source.path, at, reason));
            }
            if self.at >= self.source.end {
                return Ok(None);
            }
            self.batch = Some(self.next_batch()?);
        }
    }

    fn next_batch(&mut self) -> Result<Batch, RecordError> {
        let (path, file, at) = (&self.source.path, &self.source.file, self.at);
        let fault = |fault: crate::message::Fault| fault.at(path, at);
        let Found::Message(message) = find(file, at, self.source.end, Checksum::Needed).map_err(fault)? else {
            return Err(RecordError::damaged(path, at, "the file has changed since it was opened"));
        };
        let body = message.body(file).map_err(fault)?;
        let rows = decode::batch(message.flatbuffer().map_err(fault)?, body, &self.schema)
            .map_err(|reason| RecordError::damaged(path, at, reason))?;
        self.at = message.end();
        Ok(Batch { at, rows, next: 0 })
    }

    /// Fills in what earlier rows of the target have said.
    fn complete(&mut self, raw: RawRow) -> Result<Row, &'static str> {
        if raw.time_ns < self.time_ns {
            return Err("time goes backwards");
        }
        if raw.time_ns > self.time_ns {
            // A target that was missing in a snapshot begins anew.
            let last = self.time_ns;
            self.known.retain(|_, known| known.seen == last);
            self.time_ns = raw.time_ns;
        }
        let info = raw.info.map(Arc::new);
        let mappings: Option<Arc<[Mapping]>> = raw.mappings.map(Arc::from);
        let before = self.known.remove(&raw.pid);
        let (info, mappings) = match before {
            Some(known) => (info.unwrap_or(known.info), mappings.unwrap_or(known.mappings)),
            None => (
                info.ok_or("the first row of a target does not say what it is")?,
                mappings.ok_or("the first row of a target has no mappings")?,
            ),
        };
        let known = Known { info: Arc::clone(&info), mappings: Arc::clone(&mappings), seen: raw.time_ns };
        self.known.insert(raw.pid, known);
        Ok(Row {
            time: Duration::from_nanos(raw.time_ns),
            aggregation: Duration::from_nanos(raw.aggregation_ns),
            samples: raw.samples,
            target: TargetSnapshot { id: TargetId(raw.pid), regions: raw.regions, mappings },
            info,
            cost: raw.cost,
        })
    }
}

impl Iterator for Rows {
    type Item = Result<Row, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        let row = self.next_row().transpose();
        if let Some(Err(_)) = row {
            self.batch = None;
            self.at = self.source.end;
        }
        row
    }
}
