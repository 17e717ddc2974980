//! Columns that may be null or missing.

use arrow_array::{Array, ArrayRef};
use arrow_buffer::NullBuffer;
use arrow_schema::{ArrowError, DataType};

use super::{Build, Description, Read, Value};

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

    fn reader(column: Option<&ArrayRef>) -> Result<Self::Reader, &'static str> {
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
    /// `None` if the file does not have the column.
    values: Option<R>,
}

impl<R> NullableReader<R> {
    /// Whether the value in row `index` is not null.
    pub(crate) fn is_set(&self, index: usize) -> bool {
        self.values.is_some() && self.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(index))
    }
}

impl<R: Read> Read for NullableReader<R> {
    type Value = Option<R::Value>;

    fn of(column: &ArrayRef) -> Result<Self, &'static str> {
        Ok(Self { nulls: column.nulls().cloned(), values: Some(R::of(column)?) })
    }

    fn at(&self, index: usize) -> Option<R::Value> {
        if self.is_set(index) { self.values.as_ref().map(|values| values.at(index)) } else { None }
    }
}
