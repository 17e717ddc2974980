//! Columns of numbers, Booleans and strings.

use std::sync::Arc;

use arrow_array::types::{ArrowPrimitiveType, Float32Type, Float64Type, Int32Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{ArrayRef, BooleanArray, PrimitiveArray, StringArray};
use arrow_buffer::{BooleanBuffer, NullBuffer, OffsetBuffer};
use arrow_schema::{ArrowError, DataType};

use super::{Build, OTHER_TYPE, Read, Value};
use crate::column::{Column, Values};

macro_rules! number {
    ($type:ty, $arrow:ty, $values:ident, $name:literal) => {
        impl Value for $type {
            type Builder = Vec<$type>;
            type Reader = Vec<$type>;

            fn data_type() -> DataType {
                <$arrow>::DATA_TYPE
            }

            fn type_name() -> String {
                $name.into()
            }
        }

        impl Build for Vec<$type> {
            type Value = $type;

            fn push(&mut self, value: &$type) {
                Self::push(self, *value);
            }

            fn push_placeholder(&mut self) {
                Self::push(self, <$type>::default());
            }

            fn finish(self, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
                Ok(Arc::new(PrimitiveArray::<$arrow>::try_new(self.into(), nulls)?))
            }
        }

        impl Read for Vec<$type> {
            type Value = $type;

            fn of(column: Column) -> Result<Self, &'static str> {
                match column.values {
                    Values::$values(values) => Ok(values),
                    _ => Err(OTHER_TYPE),
                }
            }

            fn at(&self, index: usize) -> $type {
                self[index]
            }
        }
    };
}

number!(u64, UInt64Type, U64, "uint64");
number!(u32, UInt32Type, U32, "uint32");
number!(u16, UInt16Type, U16, "uint16");
number!(i32, Int32Type, I32, "int32");
number!(f32, Float32Type, F32, "float");
number!(f64, Float64Type, F64, "double");

impl Value for bool {
    type Builder = Vec<bool>;
    type Reader = BooleanBuffer;

    fn data_type() -> DataType {
        DataType::Boolean
    }

    fn type_name() -> String {
        "bool".into()
    }
}

impl Build for Vec<bool> {
    type Value = bool;

    fn push(&mut self, value: &bool) {
        Self::push(self, *value);
    }

    fn push_placeholder(&mut self) {
        Self::push(self, false);
    }

    fn finish(self, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
        Ok(Arc::new(BooleanArray::new(self.into(), nulls)))
    }
}

impl Read for BooleanBuffer {
    type Value = bool;

    fn of(column: Column) -> Result<Self, &'static str> {
        match column.values {
            Values::Bool(values) => Ok(values),
            _ => Err(OTHER_TYPE),
        }
    }

    fn at(&self, index: usize) -> bool {
        self.value(index)
    }
}

impl Value for Arc<str> {
    type Builder = TextBuilder;
    type Reader = Texts;

    fn data_type() -> DataType {
        DataType::Utf8
    }

    fn type_name() -> String {
        "utf8".into()
    }
}

/// Collects texts.
#[derive(Debug, Default)]
pub(crate) struct TextBuilder {
    lengths: Vec<usize>,
    text: String,
}

impl Build for TextBuilder {
    type Value = Arc<str>;

    fn push(&mut self, value: &Arc<str>) {
        self.lengths.push(value.len());
        self.text.push_str(value);
    }

    fn push_placeholder(&mut self) {
        self.lengths.push(0);
    }

    fn finish(self, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
        if i32::try_from(self.text.len()).is_err() {
            return Err(ArrowError::OffsetOverflowError(self.text.len()));
        }
        let offsets = OffsetBuffer::from_lengths(self.lengths);
        Ok(Arc::new(StringArray::try_new(offsets, self.text.into_bytes().into(), nulls)?))
    }
}

/// Reads texts.
#[derive(Debug)]
pub(crate) struct Texts {
    offsets: Vec<usize>,
    text: String,
}

impl Texts {
    /// The text in row `index`.
    pub(crate) fn text(&self, index: usize) -> &str {
        // The offsets do not decrease, and are those of characters.
        &self.text[self.offsets[index]..self.offsets[index + 1]]
    }
}

impl Read for Texts {
    type Value = Arc<str>;

    fn of(column: Column) -> Result<Self, &'static str> {
        match column.values {
            Values::Utf8 { offsets, text } => Ok(Self { offsets, text }),
            _ => Err(OTHER_TYPE),
        }
    }

    fn at(&self, index: usize) -> Arc<str> {
        self.text(index).into()
    }
}
