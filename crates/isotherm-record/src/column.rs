//! Columns out of the bytes of a batch.
//!
//! A batch has some three hundred buffers, most of them of a few bytes, and a reader needs a few of them. So only the
//! wanted columns are decompressed, and a column that is null in every row is not. [`crate::shape`] has checked the
//! sizes of all buffers before.

use std::sync::Arc;

use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_ipc as ipc;
use arrow_schema::{DataType, Field, Fields};
use zstd::bulk::Decompressor;

/// The length that stands before the bytes of a buffer of a compressed batch, which are not compressed after all.
const NOT_COMPRESSED: i64 = -1;

const NOT_DECOMPRESSED: &str = "a buffer cannot be decompressed";
const TOO_FEW: &str = "a batch has too few parts";
const OFFSETS: &str = "the offsets of a column are out of order, or exceed what they are offsets of";

/// A column of a batch.
#[derive(Debug, Default)]
pub(crate) struct Column {
    /// Which values are null. `None` if none is.
    pub(crate) nulls: Option<NullBuffer>,
    pub(crate) values: Values,
}

/// The values of a column.
#[derive(Debug, Default)]
pub(crate) enum Values {
    /// The column is not wanted.
    #[default]
    Nothing,
    /// All values are null.
    Null,
    U64(Vec<u64>),
    U32(Vec<u32>),
    U16(Vec<u16>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Bool(BooleanBuffer),
    /// The offsets are those of characters of the text, and do not decrease.
    Utf8 {
        offsets: Vec<usize>,
        text: String,
    },
    /// The offsets are those of entries, and do not decrease.
    List {
        offsets: Vec<usize>,
        entries: Box<Column>,
    },
    Struct {
        fields: Fields,
        columns: Vec<Column>,
    },
    /// Of a type that the format does not use.
    Other,
}

impl Column {
    /// The column of a batch without rows.
    pub(crate) fn empty(data_type: &DataType) -> Self {
        let values = match data_type {
            DataType::UInt64 => Values::U64(Vec::new()),
            DataType::UInt32 => Values::U32(Vec::new()),
            DataType::UInt16 => Values::U16(Vec::new()),
            DataType::Int32 => Values::I32(Vec::new()),
            DataType::Float32 => Values::F32(Vec::new()),
            DataType::Float64 => Values::F64(Vec::new()),
            DataType::Boolean => Values::Bool(BooleanBuffer::new_unset(0)),
            DataType::Utf8 => Values::Utf8 { offsets: vec![0], text: String::new() },
            DataType::List(entry) => {
                Values::List { offsets: vec![0], entries: Box::new(Self::empty(entry.data_type())) }
            }
            DataType::Struct(fields) => {
                let columns = fields.iter().map(|field| Self::empty(field.data_type())).collect();
                Values::Struct { fields: fields.clone(), columns }
            }
            _ => Values::Other,
        };
        Self { nulls: None, values }
    }

    /// Takes the column with this name out of a struct. `None` if the struct has no such column.
    pub(crate) fn take(&mut self, name: &str) -> Option<Self> {
        let Values::Struct { fields, columns } = &mut self.values else { return None };
        let place = fields.iter().position(|field| field.name() == name)?;
        columns.get_mut(place).map(std::mem::take)
    }
}

/// Which columns of a column are wanted. Those of the entries of a list are the list's.
#[derive(Clone, Debug)]
pub(crate) enum Wanted {
    Nothing,
    All,
    /// The lengths of lists, without their entries.
    Lengths,
    /// Those of a struct, in their order.
    Of(Vec<Wanted>),
}

impl Wanted {
    /// The columns of `fields` that `is_wanted` is true for. It gets the path of each column within a wanted one, such
    /// as `survey.blocks`.
    pub(crate) fn of(fields: &Fields, is_wanted: &dyn Fn(&str) -> bool) -> Self {
        Self::of_fields(fields, "", is_wanted)
    }

    fn of_fields(fields: &Fields, path: &str, is_wanted: &dyn Fn(&str) -> bool) -> Self {
        let of_field = |field: &Arc<Field>| {
            let path = if path.is_empty() { field.name().clone() } else { format!("{path}.{}", field.name()) };
            if is_wanted(&path) { Self::of_type(field.data_type(), &path, is_wanted) } else { Self::Nothing }
        };
        Self::Of(fields.iter().map(of_field).collect())
    }

    fn of_type(data_type: &DataType, path: &str, is_wanted: &dyn Fn(&str) -> bool) -> Self {
        match data_type {
            DataType::Struct(fields) => Self::of_fields(fields, path, is_wanted),
            DataType::List(entry) => match Self::of_type(entry.data_type(), path, is_wanted) {
                Self::Of(columns) if columns.iter().all(|of| matches!(of, Self::Nothing)) => Self::Lengths,
                wanted => wanted,
            },
            _ => Self::All,
        }
    }

    fn nth(&self, nth: usize) -> &Self {
        match self {
            Self::Of(columns) => columns.get(nth).unwrap_or(&Self::Nothing),
            Self::Nothing | Self::All | Self::Lengths => self,
        }
    }
}

/// What decoding one batch leaves for the next.
#[derive(Default)]
pub(crate) struct Context {
    decompressor: Option<Decompressor<'static>>,
    decompressed: Vec<u8>,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").finish_non_exhaustive()
    }
}

/// The wanted columns of `batch`, as one column of a struct. Its shape must have been checked.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn decode(
    batch: &ipc::RecordBatch<'_>,
    body: &[u8],
    fields: &Fields,
    wanted: &Wanted,
    context: &mut Context,
) -> Result<Column, &'static str> {
    let nodes = batch.nodes().ok_or(TOO_FEW)?;
    let buffers = batch.buffers().ok_or(TOO_FEW)?;
    let codec = batch.compression().map(|compression| compression.codec());
    if codec.is_some_and(|codec| codec != ipc::CompressionType::ZSTD) {
        return Err("a batch is compressed by another method than the format uses");
    }
    let mut parts = Parts { nodes: nodes.iter(), buffers: buffers.iter(), body, compressed: codec.is_some(), context };
    let columns = parts.fields(fields, wanted)?;
    Ok(Column { nulls: None, values: Values::Struct { fields: fields.clone(), columns } })
}

/// The parts of a batch that are still to be decoded, in the order of the columns.
struct Parts<'a, N, B> {
    nodes: N,
    buffers: B,
    body: &'a [u8],
    compressed: bool,
    context: &'a mut Context,
}

impl<'a, N, B> Parts<'a, N, B>
where
    N: Iterator<Item = &'a ipc::FieldNode>,
    B: Iterator<Item = &'a ipc::Buffer>,
{
    fn fields(&mut self, fields: &Fields, wanted: &Wanted) -> Result<Vec<Column>, &'static str> {
        // Collecting results grows a list step by step.
        let mut columns = Vec::with_capacity(fields.len());
        for (nth, field) in fields.iter().enumerate() {
            columns.push(self.column(field.data_type(), wanted.nth(nth))?.0);
        }
        Ok(columns)
    }

    /// A column, and how many values it has.
    fn column(&mut self, data_type: &DataType, wanted: &Wanted) -> Result<(Column, usize), &'static str> {
        let node = self.nodes.next().ok_or(TOO_FEW)?;
        let len = usize::try_from(node.length()).map_err(|_| TOO_FEW)?;
        let null_count = usize::try_from(node.null_count()).map_err(|_| TOO_FEW)?;
        let none = match wanted {
            Wanted::Nothing => Some(Column::default()),
            _ if len == 0 => Some(Column::empty(data_type)),
            _ if null_count == len => Some(Column { nulls: None, values: Values::Null }),
            Wanted::All | Wanted::Lengths | Wanted::Of(_) => None,
        };
        if let Some(none) = none {
            self.skip(data_type)?;
            return Ok((none, len));
        }
        let nulls = self.nulls(len, null_count)?;
        let values = match data_type {
            DataType::UInt64 => Values::U64(self.numbers(len, u64::from_le_bytes)?),
            DataType::UInt32 => Values::U32(self.numbers(len, u32::from_le_bytes)?),
            DataType::UInt16 => Values::U16(self.numbers(len, u16::from_le_bytes)?),
            DataType::Int32 => Values::I32(self.numbers(len, i32::from_le_bytes)?),
            DataType::Float32 => Values::F32(self.numbers(len, f32::from_le_bytes)?),
            DataType::Float64 => Values::F64(self.numbers(len, f64::from_le_bytes)?),
            DataType::Boolean => Values::Bool(self.bits(len)?),
            DataType::Utf8 => {
                let offsets = self.offsets(len)?;
                let text = std::str::from_utf8(self.bytes()?).map_err(|_| "a text is not UTF-8")?;
                if offsets.iter().any(|&offset| !text.is_char_boundary(offset)) {
                    return Err(OFFSETS);
                }
                Values::Utf8 { offsets, text: text.to_owned() }
            }
            DataType::List(entry) => {
                let offsets = self.offsets(len)?;
                // The last offset is that of the end of the entries.
                let count = offsets.last().copied().unwrap_or(0);
                let wanted = if matches!(wanted, Wanted::Lengths) { &Wanted::Nothing } else { wanted };
                let (entries, there) = self.column(entry.data_type(), wanted)?;
                if count > there {
                    return Err(OFFSETS);
                }
                Values::List { offsets, entries: Box::new(entries) }
            }
            DataType::Struct(fields) => {
                Values::Struct { fields: fields.clone(), columns: self.fields(fields, wanted)? }
            }
            other => {
                self.skip_values(other)?;
                Values::Other
            }
        };
        Ok((Column { nulls, values }, len))
    }

    /// Passes over the buffers of a column and over all of what is within it.
    fn skip(&mut self, data_type: &DataType) -> Result<(), &'static str> {
        self.buffers.next().ok_or(TOO_FEW)?;
        self.skip_values(data_type)
    }

    fn skip_values(&mut self, data_type: &DataType) -> Result<(), &'static str> {
        match data_type {
            DataType::Struct(fields) => fields.iter().try_for_each(|field| self.skip_column(field)),
            DataType::List(entry) => {
                self.buffers.next().ok_or(TOO_FEW)?;
                self.skip_column(entry)
            }
            DataType::Utf8 | DataType::Binary => {
                self.buffers.nth(1).ok_or(TOO_FEW)?;
                Ok(())
            }
            _ => self.buffers.next().map(drop).ok_or(TOO_FEW),
        }
    }

    fn skip_column(&mut self, field: &Field) -> Result<(), &'static str> {
        self.nodes.next().ok_or(TOO_FEW)?;
        self.skip(field.data_type())
    }

    fn nulls(&mut self, len: usize, null_count: usize) -> Result<Option<NullBuffer>, &'static str> {
        if null_count == 0 {
            self.buffers.next().ok_or(TOO_FEW)?;
            return Ok(None);
        }
        let nulls = NullBuffer::new(self.bits(len)?);
        if nulls.null_count() == null_count {
            Ok(Some(nulls))
        } else {
            Err("a column has more or fewer nulls than told")
        }
    }

    fn bits(&mut self, len: usize) -> Result<BooleanBuffer, &'static str> {
        let bytes = self.bytes()?.get(..len.div_ceil(8)).ok_or(TOO_FEW)?;
        Ok(BooleanBuffer::new(Buffer::from_slice_ref(bytes), 0, len))
    }

    fn numbers<T, const SIZE: usize>(
        &mut self,
        len: usize,
        of_bytes: fn([u8; SIZE]) -> T,
    ) -> Result<Vec<T>, &'static str> {
        let (numbers, rest) = self.bytes()?.as_chunks::<SIZE>();
        if numbers.len() != len || !rest.is_empty() {
            return Err(TOO_FEW);
        }
        Ok(numbers.iter().map(|bytes| of_bytes(*bytes)).collect())
    }

    /// The offsets of this many texts or lists: one more than there are of these.
    fn offsets(&mut self, len: usize) -> Result<Vec<usize>, &'static str> {
        let offsets = self.numbers(len + 1, i32::from_le_bytes)?;
        let offsets: Option<Vec<usize>> = offsets.into_iter().map(|offset| usize::try_from(offset).ok()).collect();
        offsets.filter(|offsets| offsets.is_sorted()).ok_or(OFFSETS)
    }

    /// The bytes of the next buffer.
    fn bytes(&mut self) -> Result<&[u8], &'static str> {
        let buffer = self.buffers.next().ok_or(TOO_FEW)?;
        let start = usize::try_from(buffer.offset()).map_err(|_| TOO_FEW)?;
        let len = usize::try_from(buffer.length()).map_err(|_| TOO_FEW)?;
        let bytes = start.checked_add(len).and_then(|end| self.body.get(start..end)).ok_or(TOO_FEW)?;
        if !self.compressed || bytes.is_empty() {
            return Ok(bytes);
        }
        let (stated, bytes) = bytes.split_first_chunk().ok_or(NOT_DECOMPRESSED)?;
        let stated = i64::from_le_bytes(*stated);
        if stated == NOT_COMPRESSED {
            return Ok(bytes);
        }
        let stated = usize::try_from(stated).map_err(|_| NOT_DECOMPRESSED)?;
        let Context { decompressor, decompressed } = &mut *self.context;
        if decompressor.is_none() {
            *decompressor = Some(Decompressor::new().map_err(|_| NOT_DECOMPRESSED)?);
        }
        let decompressor = decompressor.as_mut().ok_or(NOT_DECOMPRESSED)?;
        decompressed.clear();
        decompressed.reserve(stated);
        decompressor.decompress_to_buffer(bytes, decompressed).map_err(|_| NOT_DECOMPRESSED)?;
        if decompressed.len() == stated { Ok(decompressed) } else { Err(NOT_DECOMPRESSED) }
    }
}
