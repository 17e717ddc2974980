//! Tables of columns, each declared as a struct.
//!
//! [`table!`] declares a struct with one field for each column. The declaration defines the Arrow schema, the builder
//! that collects values for a file, the reader of a file's columns, the form in JSON, and the description of each
//! column in `docs/recording.md`.
//!
//! A reader finds a column by its name. It ignores columns that are not declared. A column of type `Option` may be
//! missing, and then reads as null. Of a column that was not wanted, an `Option` reads as null and a list as empty.

mod description;
mod lists;
mod optional;
mod scalars;
mod select;

use std::sync::Arc;

use arrow_array::{ArrayRef, StructArray};
use arrow_buffer::NullBuffer;
use arrow_schema::{ArrowError, DataType, Fields};

use crate::column::{Column, Values};

pub(crate) use description::Description;
pub(crate) use lists::ListReader;
pub(crate) use select::only;

// Why a column of a file cannot be read as declared.
const MISSING: &str = "a column is missing";
const OTHER_TYPE: &str = "a column has another type than the format says";
const NULLS: &str = "a column has nulls that may not have any";

/// A value that a column can hold.
pub(crate) trait Value: Sized {
    /// Collects values for a batch.
    type Builder: Build<Value = Self>;
    /// Reads values from a batch.
    type Reader: Read<Value = Self>;
    /// Whether the column may be null or missing.
    const OPTIONAL: bool = false;

    /// The column's type in Arrow.
    fn data_type() -> DataType;

    /// Adds the columns within this column to a description. `path` is the path of this column.
    fn describe(_path: &str, _description: &mut Description) {}

    /// The name of the type in the documentation.
    fn type_name() -> String;

    /// A reader of a column of a file; `None` if the file does not have the column.
    ///
    /// # Errors
    /// Says why the column cannot be read.
    fn reader(column: Option<Column>) -> Result<Self::Reader, &'static str> {
        let column = column.ok_or(MISSING)?;
        if column.nulls.is_some() || matches!(column.values, Values::Null) {
            Err(NULLS)
        } else {
            Self::Reader::of(column)
        }
    }
}

/// Collects the values of a column.
pub(crate) trait Build: Default {
    type Value;

    fn push(&mut self, value: &Self::Value);

    /// Adds a value that no reader uses, because the column or a column around it is null in this row.
    fn push_placeholder(&mut self);

    /// The column, with these nulls.
    ///
    /// # Errors
    /// Fails if the column is too long for Arrow.
    fn finish(self, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError>;
}

/// Reads values from a column.
pub(crate) trait Read: Sized {
    type Value;

    /// A reader of a column of a file.
    ///
    /// # Errors
    /// Says why the column cannot be read.
    fn of(column: Column) -> Result<Self, &'static str>;

    /// The value in row `index`. The row must exist, and its value must not be null.
    fn at(&self, index: usize) -> Self::Value;
}

/// A struct that [`table!`] declares.
pub(crate) trait Table: Value {
    /// The columns that this version writes.
    fn fields() -> Fields;
}

/// A struct column of the columns of a table.
pub(crate) fn structs<T: Table>(columns: Vec<ArrayRef>, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
    Ok(Arc::new(StructArray::try_new(T::fields(), columns, nulls)?))
}

/// The columns of a struct column.
pub(crate) fn columns_of(column: Column) -> Result<Column, &'static str> {
    if matches!(column.values, Values::Struct { .. }) { Ok(column) } else { Err(OTHER_TYPE) }
}

/// Declares a table: a struct whose fields are its columns, in their order. The doc comment of a field is the
/// description of the column in `docs/recording.md`. The struct has the traits that `#[derive]` names beside its own.
macro_rules! table {
    (
        $(#[doc = $about:literal])*
        $(#[derive($($derived:ident),+)])?
        $visible:vis struct $table:ident, $builder:ident, $reader:ident {
            $( $(#[doc = $doc:literal])* $column:literal => $field:ident: $type:ty, )+
        }
    ) => {
        $(#[doc = $about])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize $(, $($derived),+)?)]
        $visible struct $table {
            $( $(#[doc = $doc])* #[serde(rename = $column)] $visible $field: $type, )+
        }

        /// Collects rows of the table.
        #[derive(Debug, Default)]
        pub(crate) struct $builder {
            $( $field: <$type as Value>::Builder, )+
        }

        /// Reads rows of the table.
        #[derive(Debug)]
        pub(crate) struct $reader {
            $( pub(crate) $field: <$type as Value>::Reader, )+
        }

        impl Value for $table {
            type Builder = $builder;
            type Reader = $reader;

            fn data_type() -> DataType {
                DataType::Struct(Self::fields())
            }

            fn describe(path: &str, description: &mut Description) {
                description.table(path, stringify!($table), |description| {
                    $( description.column::<$type>(path, $column, concat!($($doc),*)); )+
                });
            }

            fn type_name() -> String {
                "struct".into()
            }
        }

        impl Table for $table {
            fn fields() -> Fields {
                // Made once: a batch needs them for each table in it.
                static FIELDS: std::sync::OnceLock<Fields> = std::sync::OnceLock::new();
                let make = || {
                    let columns = [$( Field::new($column, <$type>::data_type(), <$type>::OPTIONAL), )+];
                    columns.into_iter().collect()
                };
                FIELDS.get_or_init(make).clone()
            }
        }

        impl Build for $builder {
            type Value = $table;

            fn push(&mut self, row: &$table) {
                $( Build::push(&mut self.$field, &row.$field); )+
            }

            fn push_placeholder(&mut self) {
                $( self.$field.push_placeholder(); )+
            }

            fn finish(self, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
                let columns = vec![$( self.$field.finish(None)?, )+];
                structs::<$table>(columns, nulls)
            }
        }

        impl Read for $reader {
            type Value = $table;

            fn of(column: Column) -> Result<Self, &'static str> {
                let mut columns = columns_of(column)?;
                Ok(Self { $( $field: <$type>::reader(columns.take($column))?, )+ })
            }

            #[inline]
            fn at(&self, index: usize) -> $table {
                $table { $( $field: self.$field.at(index), )+ }
            }
        }
    };
}

pub(crate) use table;
