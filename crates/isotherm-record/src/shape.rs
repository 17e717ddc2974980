//! Whether the parts of a batch have the sizes that its columns ask for, before anything is allocated or sliced by
//! them.
//!
//! Arrow's decoder checks much of this too, but in places by an assertion, and it allocates as much memory as a
//! compressed buffer claims to need.

use arrow_ipc as ipc;
use arrow_schema::{DataType, Field, Fields};

use crate::limits::Limits;
use crate::message::MAX_BODY;

/// The length that stands before a buffer's bytes when they are not compressed after all.
const NOT_COMPRESSED: i64 = -1;
/// The bytes of that length.
const LENGTH_LEN: u64 = 8;

/// Why a batch is refused.
#[derive(Debug)]
pub(crate) enum Refused {
    /// What is wrong with it.
    Wrong(String),
    /// It takes more memory than this limit, in bytes.
    TooLarge(u64),
}

impl From<&'static str> for Refused {
    fn from(reason: &'static str) -> Self {
        Self::Wrong(reason.into())
    }
}

/// Checks the parts of `batch`, whose columns are `fields`, against each other, against `body`, and against `limits`.
///
/// # Errors
/// What does not fit.
pub(crate) fn check(batch: &ipc::RecordBatch<'_>, body: &[u8], fields: &Fields, limits: Limits) -> Result<(), Refused> {
    let nodes = batch.nodes().ok_or("a batch has no columns")?;
    let buffers = batch.buffers().ok_or("a batch has no buffers")?;
    let mut parts = Parts {
        nodes: nodes.iter(),
        buffers: buffers.iter(),
        body,
        compressed: batch.compression().is_some(),
        size: 0,
        text: 0,
        entries: 0,
    };
    let rows = length(batch.length())?;
    for field in fields {
        if parts.check_field(field)? != rows {
            return Err("the columns of a batch are not of one length".into());
        }
    }
    if parts.nodes.next().is_some() || parts.buffers.next().is_some() {
        return Err("a batch has more parts than columns for them".into());
    }
    match limits.exceeded(body.len() as u64, parts.size, parts.text, parts.entries) {
        Some(limit) => Err(Refused::TooLarge(limit)),
        None => Ok(()),
    }
}

/// The parts of a batch that are still to be checked, in the order of the columns.
struct Parts<'a, N, B> {
    nodes: N,
    buffers: B,
    body: &'a [u8],
    compressed: bool,
    /// Of the buffers checked so far, decompressed, without text.
    size: u64,
    /// Of the text checked so far, decompressed.
    text: u64,
    /// The entries of the lists checked so far.
    entries: u64,
}

impl<'a, N, B> Parts<'_, N, B>
where
    N: Iterator<Item = &'a ipc::FieldNode>,
    B: Iterator<Item = &'a ipc::Buffer>,
{
    /// Checks the parts of a column and what is within it; returns how many values it has.
    fn check_field(&mut self, field: &Field) -> Result<u64, &'static str> {
        let node = self.nodes.next().ok_or("a batch has too few columns")?;
        let values = length(node.length())?;
        let nulls = length(node.null_count())?;
        let validity = self.next_buffer()?;
        if nulls > values || (nulls > 0 && (!field.is_nullable() || validity < values.div_ceil(8))) {
            return Err("the nulls of a column do not fit its values");
        }
        match field.data_type() {
            DataType::UInt64 | DataType::Int64 | DataType::Float64 => self.check_values(values * 8)?,
            DataType::UInt32 | DataType::Int32 | DataType::Float32 => self.check_values(values * 4)?,
            DataType::UInt16 | DataType::Int16 => self.check_values(values * 2)?,
            DataType::UInt8 | DataType::Int8 => self.check_values(values)?,
            DataType::Boolean => self.check_values(values.div_ceil(8))?,
            DataType::Utf8 | DataType::Binary => {
                self.check_offsets(values)?;
                let text = self.next_buffer()?;
                self.size -= text;
                self.text = self.text.saturating_add(text);
            }
            DataType::List(entry) => {
                self.check_offsets(values)?;
                let entries = self.check_field(entry)?;
                if matches!(entry.data_type(), DataType::Struct(_)) {
                    self.entries = self.entries.saturating_add(entries);
                }
            }
            DataType::Struct(fields) => {
                for field in fields {
                    if self.check_field(field)? != values {
                        return Err("the fields of a column are not of one length");
                    }
                }
            }
            _ => return Err("a column has a type that the format does not use"),
        }
        Ok(values)
    }

    fn check_values(&mut self, bytes: u64) -> Result<(), &'static str> {
        if self.next_buffer()? == bytes { Ok(()) } else { Err("a column has more or fewer bytes than values") }
    }

    /// Checks the offsets of that many values: one more, of 4 bytes. Of no value there may be none.
    fn check_offsets(&mut self, values: u64) -> Result<(), &'static str> {
        let bytes = self.next_buffer()?;
        if bytes == (values + 1) * 4 || (values == 0 && bytes == 0) {
            Ok(())
        } else {
            Err("a column has more or fewer offsets than values")
        }
    }

    /// The size of the next buffer, decompressed.
    fn next_buffer(&mut self) -> Result<u64, &'static str> {
        let buffer = self.buffers.next().ok_or("a batch has too few buffers")?;
        let bytes = usize::try_from(buffer.offset())
            .ok()
            .zip(usize::try_from(buffer.length()).ok())
            .and_then(|(start, length)| self.body.get(start..start.checked_add(length)?))
            .ok_or("a buffer lies outside of its message")?;
        let size = if self.compressed { decompressed_size(bytes)? } else { bytes.len() as u64 };
        // A stated size beyond all limits must not overflow the sums.
        let size = size.min(MAX_BODY + 1);
        self.size = self.size.saturating_add(size);
        Ok(size)
    }
}

fn decompressed_size(bytes: &[u8]) -> Result<u64, &'static str> {
    if bytes.is_empty() {
        return Ok(0);
    }
    let length = bytes.first_chunk().ok_or("a compressed buffer is too short")?;
    match i64::from_le_bytes(*length) {
        NOT_COMPRESSED => Ok(bytes.len() as u64 - LENGTH_LEN),
        length => u64::try_from(length).map_err(|_| "a compressed buffer has an impossible length"),
    }
}

/// A number of values, of which each takes a part of a byte at least.
fn length(stated: i64) -> Result<u64, &'static str> {
    u64::try_from(stated).ok().filter(|&values| values <= MAX_BODY).ok_or("a column has an impossible length")
}
