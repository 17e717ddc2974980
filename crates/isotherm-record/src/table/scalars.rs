//! Columns of numbers, Booleans and strings.

use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Float64Type, Int32Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{ArrayRef, BooleanArray, PrimitiveArray, StringArray};
use arrow_buffer::NullBuffer;
use arrow_schema::{ArrowError, DataType};

use super::{Build, OTHER_TYPE, Read, Value};

macro_rules! number {
    ($type:ty, $arrow:ty, $name:literal) => {
        impl Value for $type {
            type Builder = Vec<$type>;
            type Reader = PrimitiveArray<$arrow>;

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

        impl Read for PrimitiveArray<$arrow> {
            type Value = $type;

            fn of(column: &ArrayRef) -> Result<Self, &'static str> {
                column.as_primitive_opt::<$arrow>().cloned().ok_or(OTHER_TYPE)
            }

            fn at(&self, index: usize) -> $type {
                self.value(index)
            }
        }
    };
}

number!(u64, UInt64Type, "uint64");
number!(u32, UInt32Type, "uint32");
number!(u16, UInt16Type, "uint16");
number!(i32, Int32Type, "int32");
number!(f64, Float64Type, "double");

impl Value for bool {
    type Builder = Vec<bool>;
    type Reader = BooleanArray;

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

impl Read for BooleanArray {
    type Value = bool;

    fn of(column: &ArrayRef) -> Result<Self, &'static str> {
        column.as_boolean_opt().cloned().ok_or(OTHER_TYPE)
    }

    fn at(&self, index: usize) -> bool {
        self.value(index)
    }
}

impl Value for Arc<str> {
    type Builder = StringBuilder;
    type Reader = StringArray;

    fn data_type() -> DataType {
        DataType::Utf8
    }

    fn type_name() -> String {
        "utf8".into()
    }
}

impl Build for StringBuilder {
    type Value = Arc<str>;

    fn push(&mut self, value: &Arc<str>) {
        self.append_value(value);
    }

    fn push_placeholder(&mut self) {
        self.append_value("");
    }

    fn finish(mut self, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
        let (offsets, bytes, _) = Self::finish(&mut self).into_parts();
        Ok(Arc::new(StringArray::try_new(offsets, bytes, nulls)?))
    }
}

impl Read for StringArray {
    type Value = Arc<str>;

    fn of(column: &ArrayRef) -> Result<Self, &'static str> {
        column.as_string_opt().cloned().ok_or(OTHER_TYPE)
    }

    fn at(&self, index: usize) -> Arc<str> {
        self.value(index).into()
    }
}
