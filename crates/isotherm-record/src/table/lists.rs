//! List columns.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, ListArray};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{ArrowError, DataType, Field};

use super::{Build, Description, OTHER_TYPE, Read, Value};

impl<T: Value> Value for Vec<T> {
    type Builder = Lists<T::Builder>;
    type Reader = ListReader<T::Reader>;

    fn data_type() -> DataType {
        DataType::List(entry::<T>())
    }

    fn describe(path: &str, description: &mut Description) {
        T::describe(path, description);
    }

    fn type_name() -> String {
        format!("list of {}", T::type_name())
    }
}

/// An entry of a list column.
fn entry<T: Value>() -> Arc<Field> {
    Arc::new(Field::new("item", T::data_type(), false))
}

/// Collects lists: the number of entries of each, and the entries of all lists one after another.
#[derive(Debug, Default)]
pub(crate) struct Lists<B> {
    lengths: Vec<usize>,
    entries: B,
}

impl<T: Value, B: Build<Value = T>> Build for Lists<B> {
    type Value = Vec<T>;

    fn push(&mut self, value: &Vec<T>) {
        self.lengths.push(value.len());
        value.iter().for_each(|entry| self.entries.push(entry));
    }

    fn push_placeholder(&mut self) {
        self.lengths.push(0);
    }

    fn finish(self, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
        let offsets = OffsetBuffer::try_from_lengths(self.lengths)
            .map_err(|error| ArrowError::InvalidArgumentError(error.to_string()))?;
        Ok(Arc::new(ListArray::try_new(entry::<T>(), offsets, self.entries.finish(None)?, nulls)?))
    }
}

/// Reads lists.
#[derive(Debug)]
pub(crate) struct ListReader<R> {
    offsets: OffsetBuffer<i32>,
    entries: R,
}

impl<T: Value<Reader = R>, R: Read<Value = T>> Read for ListReader<R> {
    type Value = Vec<T>;

    fn of(column: &ArrayRef) -> Result<Self, &'static str> {
        let lists: &ListArray = column.as_list_opt().ok_or(OTHER_TYPE)?;
        Ok(Self { offsets: lists.offsets().clone(), entries: T::reader(Some(lists.values()))? })
    }

    fn at(&self, index: usize) -> Vec<R::Value> {
        // Arrow has checked that the offsets do not decrease, and do not exceed the number of entries.
        let (start, end) = (self.offsets[index] as usize, self.offsets[index + 1] as usize);
        (start..end).map(|entry| self.entries.at(entry)).collect()
    }
}
