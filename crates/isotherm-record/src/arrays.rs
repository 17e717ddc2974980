//! Arrow fields and arrays: making one of values, and reading a value of one.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, ListArray, StringArray, StructArray, UInt32Array, UInt64Array};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{ArrowError, DataType, Field, Fields};
use isotherm_core::AddrRange;

/// An entry of a list column.
pub(crate) fn item(fields: Fields) -> Arc<Field> {
    Arc::new(Field::new("item", DataType::Struct(fields), false))
}

/// A field that is never null.
pub(crate) fn required(name: &str, data_type: DataType) -> Field {
    Field::new(name, data_type, false)
}

/// A list column: of each value the number of its entries, and the fields of all entries one after another.
pub(crate) fn list(
    entry: Fields,
    fields: Vec<ArrayRef>,
    lengths: Vec<usize>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    let entries = StructArray::try_new(entry.clone(), fields, None)?;
    let offsets =
        OffsetBuffer::try_from_lengths(lengths).map_err(|error| ArrowError::InvalidArgumentError(error.to_string()))?;
    Ok(Arc::new(ListArray::try_new(item(entry), offsets, Arc::new(entries), nulls)?))
}

pub(crate) fn u64s(values: Vec<u64>) -> ArrayRef {
    Arc::new(UInt64Array::from(values))
}

pub(crate) fn u32s(values: Vec<u32>) -> ArrayRef {
    Arc::new(UInt32Array::from(values))
}

pub(crate) fn strings<S: AsRef<str>>(values: &[S]) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

/// The range in the fields `first` and the one after it of an entry.
pub(crate) fn range_from(entries: &StructArray, first: usize, index: usize) -> Result<AddrRange, &'static str> {
    AddrRange::new(u64_at(entries.column(first), index), u64_at(entries.column(first + 1), index))
        .ok_or("a range of addresses is empty or reversed")
}

pub(crate) fn u64_at(column: &dyn Array, index: usize) -> u64 {
    column.as_primitive::<UInt64Type>().value(index)
}

pub(crate) fn u32_at(column: &dyn Array, index: usize) -> u32 {
    column.as_primitive::<UInt32Type>().value(index)
}
