//! The schema of a recording in its Arrow form, written and read.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_ipc as ipc;
use arrow_schema::{DataType, Field, Fields, Schema};

use crate::table::Table;
use crate::{FORMAT, Header, columns};

/// The key of the schema metadata that holds the format's number.
pub(crate) const FORMAT_KEY: &str = "isotherm.format";
/// The key of the schema metadata that holds the [`Header`] as JSON.
pub(crate) const HEADER_KEY: &str = "isotherm.header";

/// The most columns that are read, those within columns included. The present format has about a hundred.
const MAX_COLUMNS: usize = 4096;

/// What a recording has beside its snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Activities.
    pub activities: bool,
    /// Surveys, and the present bytes of regions.
    pub surveys: bool,
    /// What only a live source tells: what is missing, how long targets were held, readings of the panel, and in
    /// surveys the bytes by kind and those of second views.
    pub live: bool,
    /// Marks.
    pub marks: bool,
    /// Calls that mapped memory.
    pub allocations: bool,
}

/// The schema of a recording with this header.
///
/// A column that the run cannot fill is left out, because each batch repeats the layout of all columns. Without
/// `merged`, its segments have no merged snapshots.
///
/// # Errors
/// When the header has no JSON form; a [`Header`] always has.
pub(crate) fn schema(contents: Contents, header: &Header, merged: bool) -> Result<Schema, serde_json::Error> {
    let metadata = HashMap::from([
        (FORMAT_KEY.to_owned(), FORMAT.to_string()),
        (HEADER_KEY.to_owned(), serde_json::to_string(header)?),
    ]);
    let fields = columns::Row::fields();
    let written = fields.iter().filter_map(|field| match &**field.name() {
        columns::ACTIVITY if !contents.activities => None,
        columns::SURVEY if !contents.surveys => None,
        columns::PANEL if !contents.surveys || !contents.live => None,
        columns::SURVEY | columns::COST if !contents.live => Some(Arc::new(without(field, &columns::OF_LIVE))),
        columns::MARK if !contents.marks => None,
        columns::ALLOCATIONS if !contents.allocations => None,
        columns::MISSED if !contents.live => None,
        columns::MERGED if !merged => None,
        columns::REGIONS | columns::MERGED if !contents.surveys => Some(Arc::new(without(field, &columns::OF_SURVEYS))),
        _ => Some(Arc::clone(field)),
    });
    Ok(Schema::new_with_metadata(written.collect::<Fields>(), metadata))
}

/// A column without the columns of these names that are within it, at any depth.
fn without(column: &Field, names: &[&str]) -> Field {
    let data_type = match column.data_type() {
        DataType::List(entry) => DataType::List(Arc::new(without(entry, names))),
        DataType::Struct(fields) => {
            let kept = fields.iter().filter(|field| !names.contains(&&**field.name()));
            DataType::Struct(kept.map(|field| without(field, names)).collect())
        }
        other => other.clone(),
    };
    column.clone().with_data_type(data_type)
}

/// The value of `key` in the schema's metadata.
pub(crate) fn metadata<'a>(schema: &ipc::Schema<'a>, key: &str) -> Option<&'a str> {
    let pairs = schema.custom_metadata()?;
    pairs.iter().find(|pair| pair.key() == Some(key))?.value()
}

/// The columns of a schema found in a file.
///
/// They are converted here, because Arrow's own conversion panics at types that it does not know.
///
/// # Errors
/// Why they cannot be columns of a recording.
pub(crate) fn fields(schema: &ipc::Schema<'_>) -> Result<Fields, &'static str> {
    if schema.endianness() != ipc::Endianness::Little {
        return Err("its numbers are big-endian");
    }
    let mut left = MAX_COLUMNS;
    schema.fields().ok_or("it has no columns")?.iter().map(|found| field(found, &mut left)).collect()
}

fn field(found: ipc::Field<'_>, left: &mut usize) -> Result<Field, &'static str> {
    *left = left.checked_sub(1).ok_or("it has too many columns")?;
    if found.dictionary().is_some() {
        return Err("it has a column with a dictionary");
    }
    let mut children = || {
        let children = found.children().into_iter().flatten();
        children.map(|child| field(child, left)).collect::<Result<Vec<_>, _>>()
    };
    let data_type = match found.type_type() {
        ipc::Type::Int => integer(found).ok_or("it has integers of an unknown width")?,
        ipc::Type::FloatingPoint => match found.type_as_floating_point().map(|float| float.precision()) {
            Some(ipc::Precision::SINGLE) => DataType::Float32,
            Some(ipc::Precision::DOUBLE) => DataType::Float64,
            _ => return Err("it has floating-point numbers of an unknown width"),
        },
        ipc::Type::Bool => DataType::Boolean,
        ipc::Type::Utf8 => DataType::Utf8,
        ipc::Type::Binary => DataType::Binary,
        ipc::Type::Struct_ => DataType::Struct(children()?.into()),
        ipc::Type::List => {
            let [entry] = <[Field; 1]>::try_from(children()?).map_err(|_| "it has a list without a type")?;
            DataType::List(Arc::new(entry))
        }
        _ => return Err("it has a column of a type that recordings do not use"),
    };
    Ok(Field::new(found.name().unwrap_or_default(), data_type, found.nullable()))
}

fn integer(field: ipc::Field<'_>) -> Option<DataType> {
    let integer = field.type_as_int()?;
    Some(match (integer.bitWidth(), integer.is_signed()) {
        (8, false) => DataType::UInt8,
        (16, false) => DataType::UInt16,
        (32, false) => DataType::UInt32,
        (64, false) => DataType::UInt64,
        (8, true) => DataType::Int8,
        (16, true) => DataType::Int16,
        (32, true) => DataType::Int32,
        (64, true) => DataType::Int64,
        _ => return None,
    })
}
