//! The schema of a recording, in its Arrow form; `docs/recording.md` describes every column.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_ipc as ipc;
use arrow_schema::{DataType, Field, Fields, Schema};

use crate::arrays::{item, required};
use crate::{Header, WITH_ACTIVITIES, activity};

/// The key of the schema metadata that holds the format's number.
pub(crate) const FORMAT_KEY: &str = "isotherm.format";
/// The key of the schema metadata that holds the [`Header`] as JSON.
pub(crate) const HEADER_KEY: &str = "isotherm.header";

/// The fields of the `target` column.
pub(crate) fn target_fields() -> Fields {
    Fields::from(vec![required("command", DataType::Utf8), required("started_unix_ns", DataType::UInt64)])
}

/// The fields of one entry of the `mappings` column.
pub(crate) fn mapping_fields() -> Fields {
    Fields::from(vec![
        required("start", DataType::UInt64),
        required("end", DataType::UInt64),
        required("permissions", DataType::Utf8),
        required("name", DataType::Utf8),
    ])
}

/// The fields of one entry of the `regions` column.
pub(crate) fn region_fields() -> Fields {
    Fields::from(vec![
        required("start", DataType::UInt64),
        required("end", DataType::UInt64),
        required("nr_accesses", DataType::UInt32),
        required("age", DataType::UInt32),
        required("nr_unobservable", DataType::UInt32),
    ])
}

/// The fields of the `cost` column.
pub(crate) fn cost_fields() -> Fields {
    Fields::from(vec![
        required("rounds", DataType::UInt32),
        required("late_rounds", DataType::UInt32),
        required("reads", DataType::UInt64),
        required("max_reads", DataType::UInt32),
        required("clears", DataType::UInt64),
        required("cpu_ns", DataType::UInt64),
        required("unobservable_bytes", DataType::UInt64),
    ])
}

/// The columns of a format, in their order.
pub(crate) fn columns(format: u64) -> Fields {
    let mut columns = vec![
        required("time_ns", DataType::UInt64),
        required("aggregation_ns", DataType::UInt64),
        required("samples", DataType::UInt32),
        required("pid", DataType::UInt32),
        Field::new("target", DataType::Struct(target_fields()), true),
        Field::new("mappings", DataType::List(item(mapping_fields())), true),
        required("regions", DataType::List(item(region_fields()))),
        Field::new("cost", DataType::Struct(cost_fields()), true),
    ];
    if format >= WITH_ACTIVITIES {
        columns.push(Field::new("activity", DataType::Struct(activity::fields()), true));
    }
    Fields::from(columns)
}

/// The whole schema of a recording of this format with this header.
///
/// # Errors
/// When the header has no JSON form; a [`Header`] always has.
pub(crate) fn schema(format: u64, header: &Header) -> Result<Schema, serde_json::Error> {
    let metadata = HashMap::from([
        (FORMAT_KEY.to_owned(), format.to_string()),
        (HEADER_KEY.to_owned(), serde_json::to_string(header)?),
    ]);
    Ok(Schema::new_with_metadata(columns(format), metadata))
}

/// The value of `key` in the schema's metadata.
pub(crate) fn metadata<'a>(schema: &ipc::Schema<'a>, key: &str) -> Option<&'a str> {
    let pairs = schema.custom_metadata()?;
    pairs.iter().find(|pair| pair.key() == Some(key))?.value()
}

/// Whether a schema found in a file has exactly the columns of `format`.
///
/// Compares what is in the file rather than converting it first: Arrow's conversion panics at types it does not know.
pub(crate) fn has_our_columns(schema: &ipc::Schema<'_>, format: u64) -> bool {
    schema.endianness() == ipc::Endianness::Little
        && schema.fields().is_some_and(|found| same_fields(found.iter(), &columns(format)))
}

fn same_fields<'a>(found: impl ExactSizeIterator<Item = ipc::Field<'a>>, expected: &Fields) -> bool {
    found.len() == expected.len() && found.zip(expected).all(|(found, expected)| same_field(found, expected))
}

fn same_field(found: ipc::Field<'_>, expected: &Field) -> bool {
    let children = |fields: &Fields| found.children().is_some_and(|found| same_fields(found.iter(), fields));
    let same_type = match expected.data_type() {
        DataType::UInt64 => is_int(found, 64, false),
        DataType::UInt32 => is_int(found, 32, false),
        DataType::Int32 => is_int(found, 32, true),
        DataType::Float64 => {
            found.type_as_floating_point().is_some_and(|float| float.precision() == ipc::Precision::DOUBLE)
        }
        DataType::Boolean => found.type_type() == ipc::Type::Bool,
        DataType::Utf8 => found.type_type() == ipc::Type::Utf8,
        DataType::Struct(fields) => found.type_type() == ipc::Type::Struct_ && children(fields),
        DataType::List(entry) => {
            found.type_type() == ipc::Type::List && children(&Fields::from(vec![Arc::clone(entry)]))
        }
        _ => false,
    };
    same_type
        && found.name() == Some(expected.name().as_str())
        && found.nullable() == expected.is_nullable()
        && found.dictionary().is_none()
}

fn is_int(field: ipc::Field<'_>, bits: i32, signed: bool) -> bool {
    field.type_as_int().is_some_and(|int| int.bitWidth() == bits && int.is_signed() == signed)
}
