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

use crate::limits::Limits;
use crate::shape::{self, Refused};
use crate::table::{Read, Value};
use crate::{FORMAT, columns, legacy};

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

/// The rows of a batch, as rows of format 3 whatever the format of the recording is.
#[derive(Debug)]
pub(crate) enum Rows {
    Present(Box<columns::RowReader>),
    Legacy(Box<legacy::RowReader>),
}

impl Rows {
    /// The rows of a batch of a recording of this format.
    ///
    /// # Errors
    /// When the columns are not those of the format.
    pub(crate) fn new(format: u64, batch: RecordBatch) -> Result<Self, &'static str> {
        let rows: ArrayRef = Arc::new(StructArray::from(batch));
        if format < FORMAT {
            legacy::Row::reader(Some(&rows)).map(|rows| Self::Legacy(Box::new(rows)))
        } else {
            columns::Row::reader(Some(&rows)).map(|rows| Self::Present(Box::new(rows)))
        }
    }

    /// What row `index` is.
    pub(crate) fn kind(&self, index: usize) -> Kind {
        match self {
            Self::Present(rows) => match &*rows.kind.at(index) {
                columns::TARGET => Kind::Target,
                columns::ACTIVITY => Kind::Activity,
                columns::SURVEY => Kind::Survey,
                columns::MARK => Kind::Mark,
                columns::ALLOCATIONS => Kind::Allocations,
                columns::MISSED => Kind::Missed,
                columns::PANEL => Kind::Panel,
                _ => Kind::Unknown,
            },
            Self::Legacy(rows) if rows.activity.is_set(index) => Kind::Activity,
            Self::Legacy(_) => Kind::Target,
        }
    }

    /// Row `index`.
    pub(crate) fn row(&self, index: usize) -> columns::Row {
        match self {
            Self::Present(rows) => rows.at(index),
            Self::Legacy(rows) => rows.at(index).into(),
        }
    }

    /// The identity in row `index`, and what the row says that the target is.
    pub(crate) fn target(&self, index: usize) -> (Option<columns::Id>, Option<columns::Target>) {
        match self {
            Self::Present(rows) => (rows.id.at(index), rows.target.at(index)),
            Self::Legacy(rows) => (Some(legacy::id(rows.pid.at(index))), rows.target.at(index)),
        }
    }

    /// The time in row `index`, in nanoseconds.
    pub(crate) fn time_ns(&self, index: usize) -> u64 {
        match self {
            Self::Present(rows) => rows.time_ns.at(index),
            Self::Legacy(rows) => rows.time_ns.at(index),
        }
    }

    /// The mappings that row `index` has, for readers of surveys, which older formats do not have.
    pub(crate) fn mappings(&self, index: usize) -> Option<Vec<columns::Mapping>> {
        match self {
            Self::Present(rows) => rows.mappings.at(index),
            Self::Legacy(_) => None,
        }
    }
}
