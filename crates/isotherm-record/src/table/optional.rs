//! Columns that may be null or missing.

use arrow_array::ArrayRef;
use arrow_buffer::NullBuffer;
use arrow_schema::{ArrowError, DataType};

use super::{Build, Description, Read, Value};
use crate::column::{Column, Values};

impl<T: Value> Value for Option<T> {
    type Builder = Nullable<T::Builder>;
    type Reader = NullableReader<T::Reader>;
    const OPTIONAL: bool = true;

    fn data_type() -> DataType {
        T::data_type()
    }

    fn describe(path: &str, description: &mut Description) {
        T::describe(path, description);
    }

    fn type_name() -> String {
        T::type_name()
    }

    fn reader(column: Option<Column>) -> Result<Self::Reader, &'static str> {
        column.map_or(Ok(NullableReader { nulls: None, values: None }), NullableReader::of)
    }
}

/// Collects values that may be null.
#[derive(Debug, Default)]
pub(crate) struct Nullable<B> {
    valid: Vec<bool>,
    values: B,
}

impl<B: Build> Build for Nullable<B> {
    type Value = Option<B::Value>;

    fn push(&mut self, value: &Option<B::Value>) {
        self.valid.push(value.is_some());
        match value {
            Some(value) => self.values.push(value),
            None => self.values.push_placeholder(),
        }
    }

    fn push_placeholder(&mut self) {
        self.push(&None);
    }

    fn finish(self, _nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
        self.values.finish(Some(NullBuffer::from(self.valid)))
    }
}

/// Reads a column that may be null or missing.
#[derive(Debug)]
pub(crate) struct NullableReader<R> {
    nulls: Option<NullBuffer>,
    /// `None` if the file does not have the column, it is not wanted, or all of it is null.
    values: Option<R>,
}

impl<R> NullableReader<R> {
    /// The reader of the value in row `index`, if it is not null.
    #[inline]
    pub(crate) fn set(&self, index: usize) -> Option<&R> {
        self.values.as_ref().filter(|_| self.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(index)))
    }
}

impl<R: Read> Read for NullableReader<R> {
    type Value = Option<R::Value>;

    fn of(mut column: Column) -> Result<Self, &'static str> {
        let nulls = column.nulls.take();
        let values = match column.values {
            Values::Nothing | Values::Null => None,
            _ => Some(R::of(column)?),
        };
        Ok(Self { nulls, values })
    }

    #[inline]
    fn at(&self, index: usize) -> Option<R::Value> {
        self.set(index).map(|values| values.at(index))
    }
}
