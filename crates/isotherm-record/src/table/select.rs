//! The columns of a table that are wanted.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, ListArray, StructArray};
use arrow_schema::{ArrowError, DataType, Field};

/// The columns of `all`, which holds at least these, that `wanted` has; within structs and lists of structs too.
///
/// # Errors
/// When a wanted column is missing.
pub(crate) fn only(all: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, ArrowError> {
    match (wanted, all.data_type()) {
        (wanted, found) if wanted == found => Ok(Arc::clone(all)),
        (DataType::Struct(fields), DataType::Struct(_)) => {
            let all = all.as_struct();
            let column = |field: &Arc<Field>| {
                let missing = || ArrowError::SchemaError(format!("there is no column {}", field.name()));
                only(all.column_by_name(field.name()).ok_or_else(missing)?, field.data_type())
            };
            let columns = fields.iter().map(column).collect::<Result<_, _>>()?;
            Ok(Arc::new(StructArray::try_new(fields.clone(), columns, all.nulls().cloned())?))
        }
        (DataType::List(entry), DataType::List(_)) => {
            let all: &ListArray = all.as_list();
            let entries = only(all.values(), entry.data_type())?;
            Ok(Arc::new(ListArray::try_new(Arc::clone(entry), all.offsets().clone(), entries, all.nulls().cloned())?))
        }
        _ => Err(ArrowError::SchemaError("a column has another type".to_owned())),
    }
}
