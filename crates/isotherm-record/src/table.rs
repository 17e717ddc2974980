//! Tables of columns: structs whose declaration is all that a recording needs to know of its columns.
//!
//! [`table!`] declares a struct, one field a column. From the declaration follow the Arrow schema, the builder that a
//! writer pushes values into, the reader that takes values out of a file's columns, and the description of each column
//! in `docs/recording.md`.
//!
//! A reader finds a column by its name. It passes over columns that are not declared. A column of type `Option` may be
//! missing, and then reads as null.

use std::marker::PhantomData;
use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Float64Type, Int32Type, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, ListArray, PrimitiveArray, StringArray, StructArray};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{ArrowError, DataType, Field, Fields};

/// Why a column of a file cannot be read as its declaration says.
const MISSING: &str = "a column is missing";
const OTHER_TYPE: &str = "a column has another type than the format says";
const NULLS: &str = "a column has nulls that may not have any";

/// A value that a column can hold.
pub(crate) trait Value: Sized {
    /// Collects values for a batch.
    type Builder: Build<Value = Self>;
    /// Takes values out of a batch.
    type Reader: Read<Value = Self>;
    /// Whether the column may be null, or missing altogether.
    const OPTIONAL: bool = false;
    /// Whether this version writes the column.
    const WRITTEN: bool = true;

    /// The column's type in Arrow.
    fn data_type() -> DataType;

    /// Adds the columns within this column, which is called `path`, to a description.
    fn describe(_path: &str, _description: &mut Description) {}

    /// The name of the type in the documentation.
    fn type_name() -> &'static str;

    /// A reader of a file's column, if the file has it.
    ///
    /// # Errors
    /// Why the column cannot be read.
    fn reader(column: Option<&ArrayRef>) -> Result<Self::Reader, &'static str> {
        let column = column.ok_or(MISSING)?;
        if column.null_count() > 0 { Err(NULLS) } else { Self::Reader::of(column) }
    }
}

/// Collects the values of a column.
pub(crate) trait Build: Default {
    type Value;

    fn push(&mut self, value: &Self::Value);

    /// Takes a place that no reader looks at, because what it belongs to is null.
    fn push_placeholder(&mut self);

    /// The column, with these nulls.
    ///
    /// # Errors
    /// When it holds more than Arrow can count.
    fn finish(self, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError>;
}

/// Takes values out of a column.
pub(crate) trait Read: Sized {
    type Value;

    /// A reader of a file's column.
    ///
    /// # Errors
    /// Why the column cannot be read.
    fn of(column: &ArrayRef) -> Result<Self, &'static str>;

    /// The value in row `index`, which the column has and which is not null.
    fn at(&self, index: usize) -> Self::Value;
}

macro_rules! number {
    ($type:ty, $arrow:ty, $name:literal) => {
        impl Value for $type {
            type Builder = Vec<$type>;
            type Reader = PrimitiveArray<$arrow>;

            fn data_type() -> DataType {
                <$arrow>::DATA_TYPE
            }

            fn type_name() -> &'static str {
                $name
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
number!(i32, Int32Type, "int32");
number!(f64, Float64Type, "double");

impl Value for bool {
    type Builder = Vec<bool>;
    type Reader = BooleanArray;

    fn data_type() -> DataType {
        DataType::Boolean
    }

    fn type_name() -> &'static str {
        "bool"
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

    fn type_name() -> &'static str {
        "utf8"
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

    fn type_name() -> &'static str {
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
    /// Whether the value in row `index` is there.
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

impl<T: Table> Value for Vec<T> {
    type Builder = Lists<T::Builder>;
    type Reader = ListReader<T::Reader>;

    fn data_type() -> DataType {
        DataType::List(entry::<T>())
    }

    fn describe(path: &str, description: &mut Description) {
        T::describe(path, description);
    }

    fn type_name() -> &'static str {
        "list of struct"
    }
}

/// An entry of a list column.
fn entry<T: Value>() -> Arc<Field> {
    Arc::new(Field::new("item", T::data_type(), false))
}

/// Collects lists: the number of entries of each, and the entries of all one after another.
#[derive(Debug, Default)]
pub(crate) struct Lists<B> {
    lengths: Vec<usize>,
    entries: B,
}

impl<T: Table, B: Build<Value = T>> Build for Lists<B> {
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

impl<T: Table<Reader = R>, R: Read<Value = T>> Read for ListReader<R> {
    type Value = Vec<T>;

    fn of(column: &ArrayRef) -> Result<Self, &'static str> {
        let lists: &ListArray = column.as_list_opt().ok_or(OTHER_TYPE)?;
        Ok(Self { offsets: lists.offsets().clone(), entries: T::reader(Some(lists.values()))? })
    }

    fn at(&self, index: usize) -> Vec<R::Value> {
        // Arrow has checked that offsets rise, from 0 to the number of entries at most.
        let (start, end) = (self.offsets[index] as usize, self.offsets[index + 1] as usize);
        (start..end).map(|entry| self.entries.at(entry)).collect()
    }
}

/// A column that a later version will write. This version passes over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reserved<T>(PhantomData<T>);

impl<T> Default for Reserved<T> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: Value> Value for Reserved<T> {
    type Builder = Self;
    type Reader = Self;
    const OPTIONAL: bool = true;
    const WRITTEN: bool = false;

    fn data_type() -> DataType {
        T::data_type()
    }

    fn type_name() -> &'static str {
        T::type_name()
    }

    fn reader(_column: Option<&ArrayRef>) -> Result<Self, &'static str> {
        Ok(Self(PhantomData))
    }
}

impl<T: Value> Build for Reserved<T> {
    type Value = Self;

    fn push(&mut self, _value: &Self) {}

    fn push_placeholder(&mut self) {}

    fn finish(self, _nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
        Err(ArrowError::SchemaError("a reserved column is not written".to_owned()))
    }
}

impl<T> Read for Reserved<T> {
    type Value = Self;

    fn of(_column: &ArrayRef) -> Result<Self, &'static str> {
        Ok(Self(PhantomData))
    }

    fn at(&self, _index: usize) -> Self {
        Self(PhantomData)
    }
}

/// A struct that [`table!`] has declared.
pub(crate) trait Table: Value {
    /// The columns that this version writes.
    fn fields() -> Fields;
}

/// The columns of a table and of the tables in it, as the documentation has them.
#[derive(Debug, Default)]
pub(crate) struct Description {
    lines: Vec<String>,
    /// The tables that have been described, and the path of the column that has them.
    tables: Vec<(&'static str, String)>,
}

impl Description {
    /// Describes a column.
    pub(crate) fn column<T: Value>(&mut self, path: &str, name: &str, doc: &str) {
        let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        let null = if T::OPTIONAL { ", or null" } else { "" };
        let doc = doc.trim();
        self.lines.push(format!("| `{path}` | {}{null} | {doc} |", T::type_name()));
        T::describe(&path, self);
    }

    /// Describes the columns of a table, unless that has been done already.
    pub(crate) fn table(&mut self, path: &str, table: &'static str, columns: impl FnOnce(&mut Self)) {
        match self.tables.iter().find(|(known, _)| *known == table) {
            Some((_, first)) => {
                if let Some(line) = self.lines.last_mut() {
                    let cut = line.trim_end_matches(" |").len();
                    line.truncate(cut);
                    line.push_str(&format!("; a struct as `{first}` |"));
                }
            }
            None => {
                self.tables.push((table, path.to_owned()));
                columns(self);
            }
        }
    }

    /// The rows of a Markdown table, one for each column.
    pub(crate) fn of<T: Table>() -> String {
        let mut description = Self::default();
        T::describe("", &mut description);
        description.lines.join("\n")
    }
}

/// The columns of a table as one.
pub(crate) fn structs<T: Table>(columns: Vec<ArrayRef>, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
    Ok(Arc::new(StructArray::try_new(T::fields(), columns, nulls)?))
}

/// The columns of a table in a file.
pub(crate) fn columns_of(column: &ArrayRef) -> Result<&StructArray, &'static str> {
    column.as_struct_opt().ok_or(OTHER_TYPE)
}

/// Declares a table: a struct whose fields are its columns, in their order. The doc comment of a field is its
/// description in
/// `docs/recording.md`.
macro_rules! table {
    (
        $(#[doc = $about:literal])*
        struct $table:ident, $builder:ident, $reader:ident {
            $( $(#[doc = $doc:literal])* $column:literal => $field:ident: $type:ty, )+
        }
    ) => {
        $(#[doc = $about])*
        #[derive(Clone, Debug, PartialEq)]
        pub(crate) struct $table {
            $( $(#[doc = $doc])* pub(crate) $field: $type, )+
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

            fn type_name() -> &'static str {
                "struct"
            }
        }

        impl Table for $table {
            fn fields() -> Fields {
                // Made once: a batch needs them for each table in it.
                static FIELDS: std::sync::OnceLock<Fields> = std::sync::OnceLock::new();
                let make = || {
                    let columns = [
                        $( (<$type>::WRITTEN, Field::new($column, <$type>::data_type(), <$type>::OPTIONAL)), )+
                    ];
                    columns.into_iter().filter(|(written, _)| *written).map(|(_, field)| field).collect()
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
                let mut columns = Vec::new();
                $( if <$type>::WRITTEN { columns.push(self.$field.finish(None)?); } )+
                structs::<$table>(columns, nulls)
            }
        }

        impl Read for $reader {
            type Value = $table;

            fn of(column: &ArrayRef) -> Result<Self, &'static str> {
                let columns = columns_of(column)?;
                Ok(Self { $( $field: <$type>::reader(columns.column_by_name($column))?, )+ })
            }

            fn at(&self, index: usize) -> $table {
                $table { $( $field: self.$field.at(index), )+ }
            }
        }
    };
}

pub(crate) use table;
