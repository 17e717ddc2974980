//! Batches out of bytes, and rows out of batches.
//!
//! The checksums keep accidents away from Arrow's decoder, which panics at some batches that are wrong.
//! [`crate::shape`] keeps malice away from it.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StructArray};
use arrow_buffer::Buffer;
use arrow_ipc as ipc;
use arrow_ipc::reader::RecordBatchDecoder;
use arrow_schema::SchemaRef;

use crate::columns;
use crate::limits::Limits;
use crate::shape::{self, Refused};
use crate::table::{Read, Value};

/// Decodes the message of a batch: all columns, or those with these indices.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn batch(
    message: ipc::Message<'_>,
    body: Vec<u8>,
    schema: &SchemaRef,
    columns: Option<&[usize]>,
    limits: Limits,
) -> Result<RecordBatch, Refused> {
    let batch = message.header_as_record_batch().ok_or("a message is not a batch of rows")?;
    shape::check(&batch, &body, schema.fields(), limits)?;
    let version = message.version();
    let (body, dictionaries) = (Buffer::from_vec(body), HashMap::new());
    RecordBatchDecoder::try_new(&body, batch, Arc::clone(schema), &dictionaries, &version)
        .and_then(|decoder| decoder.with_projection(columns).read_record_batch())
        .map_err(|error| Refused::Wrong(format!("a batch cannot be decoded: {error}")))
}

/// What a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Target,
    Activity,
    Survey,
    Mark,
    Allocations,
    Missed,
    Panel,
    /// Of a later version, to be passed over.
    Unknown,
}

/// The rows of a batch.
#[derive(Debug)]
pub(crate) struct Rows(columns::RowReader);

impl Rows {
    /// The rows of a batch of a recording.
    ///
    /// # Errors
    /// When the columns are not those of the format.
    pub(crate) fn new(batch: RecordBatch) -> Result<Self, &'static str> {
        let rows: ArrayRef = Arc::new(StructArray::from(batch));
        columns::Row::reader(Some(&rows)).map(Self)
    }

    /// What row `index` is.
    pub(crate) fn kind(&self, index: usize) -> Kind {
        match &*self.0.kind.at(index) {
            columns::TARGET => Kind::Target,
            columns::ACTIVITY => Kind::Activity,
            columns::SURVEY => Kind::Survey,
            columns::MARK => Kind::Mark,
            columns::ALLOCATIONS => Kind::Allocations,
            columns::MISSED => Kind::Missed,
            columns::PANEL => Kind::Panel,
            _ => Kind::Unknown,
        }
    }

    /// Row `index`.
    pub(crate) fn row(&self, index: usize) -> columns::Row {
        self.0.at(index)
    }

    /// The identity in row `index`, and what the row says that the target is.
    pub(crate) fn target(&self, index: usize) -> (Option<columns::Id>, Option<columns::Target>) {
        (self.0.id.at(index), self.0.target.at(index))
    }

    /// The time in row `index`, in nanoseconds.
    pub(crate) fn time_ns(&self, index: usize) -> u64 {
        self.0.time_ns.at(index)
    }

    /// The mappings that row `index` has.
    pub(crate) fn mappings(&self, index: usize) -> Option<Vec<columns::Mapping>> {
        self.0.mappings.at(index)
    }
}
