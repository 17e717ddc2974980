//! List columns.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, ListArray};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{ArrowError, DataType, Field};

use super::{Build, Description, OTHER_TYPE, Read, Value};
use crate::column::{Column, Values};

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
    /// `None` if the lists were not wanted, and are empty. Without entries, only their lengths were wanted.
    lists: Option<(Vec<usize>, Option<R>)>,
}

impl<R: Read> ListReader<R> {
    /// The reader of all entries, and the places of those of the list in row `index`.
    pub(crate) fn entries(&self, index: usize) -> Option<(&R, Range<usize>)> {
        // The offsets do not decrease, and do not exceed the number of entries.
        self.lists.as_ref().and_then(|(offsets, entries)| Some((entries.as_ref()?, offsets[index]..offsets[index + 1])))
    }

    /// The number of entries of the list in row `index`.
    pub(crate) fn len(&self, index: usize) -> usize {
        self.lists.as_ref().map_or(0, |(offsets, _)| offsets[index + 1] - offsets[index])
    }
}

impl<T: Value<Reader = R>, R: Read<Value = T>> Read for ListReader<R> {
    type Value = Vec<T>;

    fn of(column: Column) -> Result<Self, &'static str> {
        let lists = match column.values {
            Values::Nothing => None,
            Values::List { offsets, entries } if matches!(entries.values, Values::Nothing) => Some((offsets, None)),
            Values::List { offsets, entries } => Some((offsets, Some(T::reader(Some(*entries))?))),
            _ => return Err(OTHER_TYPE),
        };
        Ok(Self { lists })
    }

    fn at(&self, index: usize) -> Vec<R::Value> {
        let Some((entries, places)) = self.entries(index) else { return Vec::new() };
        places.map(|place| entries.at(place)).collect()
    }
}
