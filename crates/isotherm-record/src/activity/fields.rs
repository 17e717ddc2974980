//! The fields of the column, in their Arrow form; `docs/recording.md` describes each.

use arrow_schema::{DataType, Field, Fields};

use crate::arrays::{item, required};

/// The fields of the `activity` column.
pub(crate) fn fields() -> Fields {
    Fields::from(vec![
        required("time_ns", DataType::UInt64),
        required("schemes", DataType::List(item(scheme()))),
        required("memory", DataType::List(item(memory()))),
        required("system", DataType::Struct(system())),
    ])
}

/// The fields of one entry of `schemes`.
pub(super) fn scheme() -> Fields {
    Fields::from(vec![
        required("name", DataType::Utf8),
        required("action", DataType::Utf8),
        required("awake", DataType::Boolean),
        Field::new("quota_bytes", DataType::UInt64, true),
        Field::new("goal_score", DataType::Float64, true),
        required("total", DataType::Struct(total())),
        required("last", DataType::Struct(last())),
    ])
}

/// The fields of `total`.
pub(super) fn total() -> Fields {
    Fields::from(vec![
        required("applications", DataType::UInt64),
        required("tried_regions", DataType::UInt64),
        required("tried_bytes", DataType::UInt64),
        required("passed_bytes", DataType::UInt64),
        required("applied_regions", DataType::UInt64),
        required("applied_bytes", DataType::UInt64),
        required("rejected_bytes", DataType::UInt64),
        required("refusals", DataType::List(item(refusal()))),
        required("quota_exceeded", DataType::UInt64),
        required("spent_ns", DataType::UInt64),
    ])
}

/// The fields of one entry of `refusals`.
pub(super) fn refusal() -> Fields {
    Fields::from(vec![
        required("errno", DataType::Int32),
        required("regions", DataType::UInt64),
        required("bytes", DataType::UInt64),
    ])
}

/// The fields of `last`.
pub(super) fn last() -> Fields {
    Fields::from(vec![
        required("time_ns", DataType::UInt64),
        required("held_back_bytes", DataType::UInt64),
        required("unobservable_bytes", DataType::UInt64),
        required("regions", DataType::List(item(acted()))),
    ])
}

/// The fields of one entry of the last application's `regions`.
pub(super) fn acted() -> Fields {
    Fields::from(vec![
        required("pid", DataType::UInt32),
        required("start", DataType::UInt64),
        required("end", DataType::UInt64),
        required("applied_bytes", DataType::UInt64),
    ])
}

/// The fields of one entry of `memory`.
pub(super) fn memory() -> Fields {
    Fields::from(vec![
        required("pid", DataType::UInt32),
        required("resident_bytes", DataType::UInt64),
        required("proportional_bytes", DataType::UInt64),
        required("swapped_bytes", DataType::UInt64),
    ])
}

/// The fields of `system`.
pub(super) fn system() -> Fields {
    Fields::from(vec![
        required("total_bytes", DataType::UInt64),
        required("free_bytes", DataType::UInt64),
        required("available_bytes", DataType::UInt64),
        required("swap_total_bytes", DataType::UInt64),
        required("swap_free_bytes", DataType::UInt64),
        Field::new("stalled_ns", DataType::UInt64, true),
    ])
}
