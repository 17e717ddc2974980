//! The rows of the dataset: their columns, declared once.
//!
//! The Arrow schema, the writer, and the table of docs/fleet.md follow from the declaration.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};

/// The version of the columns and of the layout of a dataset.
pub const VERSION: u32 = 1;

/// A type of cells.
trait Cell: Sized {
    /// As in the documentation.
    const TYPE: &'static str;
    const DATA: DataType;
    const NULLABLE: bool;

    fn array<'a>(cells: impl Iterator<Item = &'a Self>) -> ArrayRef
    where
        Self: 'a;
}

impl Cell for i64 {
    const TYPE: &'static str = "int64";
    const DATA: DataType = DataType::Int64;
    const NULLABLE: bool = false;

    fn array<'a>(cells: impl Iterator<Item = &'a Self>) -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(cells.copied()))
    }
}

impl Cell for Option<i64> {
    const TYPE: &'static str = "int64, or null";
    const DATA: DataType = DataType::Int64;
    const NULLABLE: bool = true;

    fn array<'a>(cells: impl Iterator<Item = &'a Self>) -> ArrayRef {
        Arc::new(Int64Array::from_iter(cells.copied()))
    }
}

impl Cell for Arc<str> {
    const TYPE: &'static str = "utf8";
    const DATA: DataType = DataType::Utf8;
    const NULLABLE: bool = false;

    fn array<'a>(cells: impl Iterator<Item = &'a Self>) -> ArrayRef {
        Arc::new(StringArray::from_iter_values(cells))
    }
}

impl Cell for Option<Arc<str>> {
    const TYPE: &'static str = "utf8, or null";
    const DATA: DataType = DataType::Utf8;
    const NULLABLE: bool = true;

    fn array<'a>(cells: impl Iterator<Item = &'a Self>) -> ArrayRef {
        Arc::new(StringArray::from_iter(cells.map(Option::as_deref)))
    }
}

macro_rules! columns {
    ($($(#[doc = $about:literal])+ $name:ident: $cell:ty,)+) => {
        /// A row of the dataset.
        #[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
        pub struct Row {
            $($(#[doc = $about])+ pub $name: $cell,)+
        }

        /// The schema of a file, without the columns of its path.
        pub fn schema() -> SchemaRef {
            Arc::new(Schema::new(vec![
                $(Field::new(stringify!($name), <$cell as Cell>::DATA, <$cell as Cell>::NULLABLE),)+
            ]))
        }

        /// The rows as columns of [`schema`].
        pub(crate) fn batch(rows: &[Row]) -> Result<RecordBatch, ArrowError> {
            RecordBatch::try_new(schema(), vec![$(Cell::array(rows.iter().map(|row| &row.$name)),)+])
        }

        /// The columns as the table of docs/fleet.md has them.
        pub fn column_table() -> String {
            let rows = [$((stringify!($name), <$cell as Cell>::TYPE, concat!($($about),+)),)+];
            rows.iter().map(|(name, kind, about)| format!("| `{name}` | {kind} |{about} |\n")).collect()
        }
    };
}

columns! {
    /// The minute: its start, in seconds since the Unix epoch, a multiple of 60.
    minute: i64,
    /// What the row is about: `memory`, `shared`, `group` or `host`.
    kind: Arc<str>,
    /// The name of the host. Names can be the same; `host` of the path cannot.
    host_name: Arc<str>,
    /// The identifier of the boot of the host.
    boot: Arc<str>,
    /// The group of the daemon, or the name that was given for a recording. Empty in a row of the host.
    group_name: Arc<str>,
    /// What the memory serves: the container with its namespace, else the systemd unit, else the group.
    service: Arc<str>,
    /// The namespace of the pod. Null without one, and if it is not known.
    namespace: Option<Arc<str>>,
    /// The pod. Null without one, and if it is not known.
    pod: Option<Arc<str>>,
    /// The container. Null without one.
    container: Option<Arc<str>>,
    /// The path of the cgroup. Null if it is not known, and in rows that are about several.
    cgroup: Option<Arc<str>>,
    /// The program: the last part of the first word of the command line. Null in rows that are about several.
    command: Option<Arc<str>>,
    /// The NUMA node. Null if all memory is on one node or the nodes are not known, and for what no node has.
    node: Option<i64>,
    /// Bytes in memory, by the last survey of the minute.
    present_bytes: Option<i64>,
    /// Of these, bytes that were accessed since the survey before.
    touched_bytes: Option<i64>,
    /// Of the bytes in memory, those that cannot be observed.
    unobservable_bytes: Option<i64>,
    /// Of the bytes in memory, those of which it is not known whether they were accessed since the survey before.
    /// The other sums count them as accessed in the same share as the rest.
    unknown_bytes: Option<i64>,
    /// Bytes in swap, the least that there may be. Null if nothing is known of them.
    swapped_bytes: Option<i64>,
    /// 1 if there may be more in swap than `swapped_bytes` says, else 0. A sum above 0 makes a sum of `swapped_bytes`
    /// a lower bound.
    swapped_bounds: i64,
    /// Bytes that were freed lazily (`MADV_FREE`) and not used since. They are not among those in memory.
    lazily_freed_bytes: Option<i64>,
    /// Bytes accessed within the second before the survey. Null, as in the next nine, if the group was watched for a
    /// shorter time than the window.
    within_1s_bytes: Option<i64>,
    /// Bytes accessed within 2 s.
    within_2s_bytes: Option<i64>,
    /// Bytes accessed within 5 s.
    within_5s_bytes: Option<i64>,
    /// Bytes accessed within 10 s.
    within_10s_bytes: Option<i64>,
    /// Bytes accessed within 30 s.
    within_30s_bytes: Option<i64>,
    /// Bytes accessed within 60 s.
    within_60s_bytes: Option<i64>,
    /// Bytes accessed within 120 s.
    within_120s_bytes: Option<i64>,
    /// Bytes accessed within 300 s.
    within_300s_bytes: Option<i64>,
    /// Bytes accessed within 600 s.
    within_600s_bytes: Option<i64>,
    /// Bytes accessed within 1,800 s.
    within_1800s_bytes: Option<i64>,
    /// 1 if the recording does not know which memory its processes share, so that sums of the group count it several
    /// times, else 0.
    shared_unknown: i64,
    /// Bytes in memory of which no frequency is known.
    hz_unknown_bytes: Option<i64>,
    /// Bytes accessed less often than every 100 s, or not at all. A page of memory has the frequency of its region.
    hz_0_bytes: Option<i64>,
    /// Bytes accessed 0.01 to 0.1 times a second.
    hz_001_bytes: Option<i64>,
    /// Bytes accessed 0.1 to 1 times a second.
    hz_01_bytes: Option<i64>,
    /// Bytes accessed 1 to 10 times a second.
    hz_1_bytes: Option<i64>,
    /// Bytes accessed 10 to 100 times a second.
    hz_10_bytes: Option<i64>,
    /// Bytes accessed 100 to 1,000 times a second.
    hz_100_bytes: Option<i64>,
    /// Bytes accessed at least 1,000 times a second.
    hz_1000_bytes: Option<i64>,
    /// Accesses in the minute of the pages of `hz_0_bytes`: frequency × pages of 4 KiB × 60 s.
    hz_0_accesses: Option<i64>,
    /// Those of `hz_001_bytes`.
    hz_001_accesses: Option<i64>,
    /// Those of `hz_01_bytes`.
    hz_01_accesses: Option<i64>,
    /// Those of `hz_1_bytes`.
    hz_1_accesses: Option<i64>,
    /// Those of `hz_10_bytes`.
    hz_10_accesses: Option<i64>,
    /// Those of `hz_100_bytes`.
    hz_100_accesses: Option<i64>,
    /// Those of `hz_1000_bytes`.
    hz_1000_accesses: Option<i64>,
    /// Bytes that schemes freed in the minute. Null if it is not known what they did before.
    freed_bytes: Option<i64>,
    /// Of the freed bytes, those that were watched until the end of their time in this minute.
    watched_bytes: Option<i64>,
    /// Of the watched bytes, those that were in memory again.
    returned_bytes: Option<i64>,
    /// Bytes that schemes moved to another memory node in the minute.
    moved_bytes: Option<i64>,
    /// CPU time of isotherm for the group in the minute, in nanoseconds. Null if it is not known.
    cpu_ns: Option<i64>,
    /// How long the kernel held memory maps of processes for isotherm in the minute, in nanoseconds.
    holds_ns: Option<i64>,
    /// Pages that isotherm read.
    reads: Option<i64>,
    /// Accessed bits that isotherm cleared.
    clears: Option<i64>,
    /// The limit of the cgroup of all processes of the group (`memory.high`, or the lower `memory.max`). Null without a
    /// limit, and if it is not known.
    limit_bytes: Option<i64>,
    /// Memory of the host.
    host_memory_bytes: Option<i64>,
    /// Memory of the host that is available without swapping.
    host_available_bytes: Option<i64>,
    /// Swap of the host that is used.
    host_swapped_bytes: Option<i64>,
}

/// What a row is about.
pub mod kind {
    /// Memory of the processes of one program in one cgroup.
    pub const MEMORY: &str = "memory";
    /// What the sums of the rows of memory count more than once, below zero.
    pub const SHARED: &str = "shared";
    /// Schemes, cost and limit of a group.
    pub const GROUP: &str = "group";
    /// The memory of the host.
    pub const HOST: &str = "host";
}

/// A number of a recording as a number of the table.
pub(crate) fn int(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_document_has_the_columns_as_they_are() {
        let document = include_str!("../../../docs/fleet.md");
        let table = super::column_table();
        assert!(document.contains(&table), "put this into docs/fleet.md:\n{table}");
    }
}
