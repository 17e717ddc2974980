//! Batches out of bytes, and rows out of batches.
//!
//! The checksums keep accidents away from the decoder, [`crate::shape`] keeps malice away from it.

use arrow_ipc as ipc;
use arrow_schema::{DataType, Fields};

use crate::column::{self, Column, Context, Wanted};
use crate::columns;
use crate::limits::Limits;
use crate::shape::{self, Refused};
use crate::table::{Read, Value};

/// Decodes the message of a batch: its wanted columns. Returns the rows, and their number.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn batch(
    message: ipc::Message<'_>,
    body: &[u8],
    fields: &Fields,
    wanted: &Wanted,
    limits: Limits,
    context: &mut Context,
) -> Result<(Rows, usize), Refused> {
    let batch = message.header_as_record_batch().ok_or("a message is not a batch of rows")?;
    shape::check(&batch, body, fields, limits)?;
    let rows = column::decode(&batch, body, fields, wanted, context)?;
    let count = usize::try_from(batch.length()).map_err(|_| "a batch has an impossible length")?;
    let mut rows = Rows::new(rows)?;
    rows.has_merged = (0..count).any(|index| rows.columns.merged.set(index).is_some());
    Ok((rows, count))
}

/// What a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Target,
    Activity,
    Survey,
    Mark,
    Allocations,
    Missed,
    Panel,
    Merged,
    /// Of a later version, to be passed over.
    Unknown,
}

/// The rows of a batch.
#[derive(Debug)]
pub(crate) struct Rows {
    columns: columns::RowReader,
    /// Whether merged snapshots are wanted, and one of the rows is of them.
    pub(crate) has_merged: bool,
}

impl Rows {
    /// The rows of a batch of a recording.
    ///
    /// # Errors
    /// When the columns are not those of the format.
    fn new(rows: Column) -> Result<Self, &'static str> {
        columns::Row::reader(Some(rows)).map(|columns| Self { columns, has_merged: false })
    }

    /// Checks whether `fields` are the columns of a recording.
    ///
    /// # Errors
    /// When they are not.
    pub(crate) fn check(fields: &Fields) -> Result<(), &'static str> {
        Self::new(Column::empty(&DataType::Struct(fields.clone()))).map(drop)
    }

    /// What row `index` is.
    pub(crate) fn kind(&self, index: usize) -> Kind {
        match self.columns.kind.text(index) {
            columns::TARGET => Kind::Target,
            columns::ACTIVITY => Kind::Activity,
            columns::SURVEY => Kind::Survey,
            columns::MARK => Kind::Mark,
            columns::ALLOCATIONS => Kind::Allocations,
            columns::MISSED => Kind::Missed,
            columns::PANEL => Kind::Panel,
            columns::MERGED => Kind::Merged,
            _ => Kind::Unknown,
        }
    }

    /// The columns.
    pub(crate) fn columns(&self) -> &columns::RowReader {
        &self.columns
    }

    /// The identity in row `index`, and what the row says that the target is.
    pub(crate) fn target(&self, index: usize) -> (Option<columns::Id>, Option<columns::Target>) {
        (self.columns.id.at(index), self.columns.target.at(index))
    }

    /// The time in row `index`, in nanoseconds.
    pub(crate) fn time_ns(&self, index: usize) -> u64 {
        self.columns.time_ns.at(index)
    }
}

/// The value of a row of its kind, which must not be null.
macro_rules! of_kind {
    ($($field:ident: $type:ident, $none:literal;)+) => {
        impl columns::RowReader {
            $(
                pub(crate) fn $field(&self, index: usize) -> Result<columns::$type, &'static str> {
                    self.$field.at(index).ok_or($none)
                }
            )+
        }
    };
}

of_kind! {
    activity: Activity, "the row of an activity has none";
    survey: Survey, "the row of a survey has none";
    mark: Mark, "the row of a mark has none";
    allocations: Allocations, "the row of calls has none";
    missed: Missed, "the row of what is missing has nothing";
    panel: Panel, "the row of a panel has none";
}
