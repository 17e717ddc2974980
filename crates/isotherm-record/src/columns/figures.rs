//! The columns of what is known of some bytes.

use arrow_array::ArrayRef;
use arrow_buffer::NullBuffer;
use arrow_schema::{ArrowError, DataType, Field, Fields};
use isotherm_core::{self as core, Quantity};

use crate::column::Column;
use crate::table::{Build, Description, Read, Table, Value, columns_of, structs, table};

table! {
    /// What a survey knows of some bytes.
    pub(crate) struct Figures, FiguresBuilder, FiguresReader {
        /// bytes in memory
        "present_bytes" => present_bytes: u64,
        /// bytes that were accessed since the survey before
        "touched_bytes" => touched_bytes: u64,
        /// present bytes that could not be observed
        "unobservable_bytes" => unobservable_bytes: u64,
        /// present bytes whose accesses since the survey before are not known: `touched_bytes` and `within_bytes` count
        /// them as accessed in the same share as the rest
        "unknown_bytes" => unknown_bytes: u64,
        /// bytes in swap; null if the survey does not know
        "swapped_bytes" => swapped_bytes: Option<u64>,
        /// whether there may be more in swap than `swapped_bytes`, because a part of the memory is not known
        "swapped_is_least" => swapped_is_least: bool,
    }
}

impl From<&core::Figures> for Figures {
    fn from(figures: &core::Figures) -> Self {
        let swapped = Some(figures.swapped).filter(|amount| !amount.is_unknown());
        Self {
            present_bytes: figures.present,
            touched_bytes: figures.touched,
            unobservable_bytes: figures.unobservable,
            unknown_bytes: figures.unknown,
            swapped_bytes: swapped.map(Quantity::least),
            swapped_is_least: swapped.is_some_and(Quantity::is_bound),
        }
    }
}

impl From<&Figures> for core::Figures {
    fn from(columns: &Figures) -> Self {
        let swapped = columns.swapped_bytes;
        Self {
            present: columns.present_bytes,
            touched: columns.touched_bytes,
            unobservable: columns.unobservable_bytes,
            unknown: columns.unknown_bytes,
            swapped: match columns.swapped_is_least {
                true => swapped.map_or_else(Quantity::unknown, Quantity::at_least),
                false => swapped.into(),
            },
        }
    }
}
