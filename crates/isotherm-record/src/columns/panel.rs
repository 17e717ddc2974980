//! The columns of a reading of the panel.

use arrow_array::ArrayRef;
use arrow_buffer::NullBuffer;
use arrow_schema::{ArrowError, DataType, Field, Fields};

use super::Id;
use crate::column::Column;
use crate::table::{Build, Description, Read, Table, Value, columns_of, structs, table};

table! {
    /// How much memory is in use, as a reading of the panel has found it.
    pub(crate) struct Panel, PanelBuilder, PanelReader {
        /// when the panel was read, in nanoseconds since the start of the run
        "time_ns" => time_ns: u64,
        /// the time since the reading before; shorter windows hold what was accessed within this time
        "interval_ns" => interval_ns: u64,
        /// the longest window that the readings tell; of longer ones, what nothing is known of is within the bounds
        "observed_ns" => observed_ns: u64,
        /// how many pages were read
        "reads" => reads: u64,
        /// how many accessed bits were cleared
        "clears" => clears: u64,
        /// the windows of time before the reading
        "windows_ns" => windows_ns: Vec<u64>,
        /// the memory of all targets together that was accessed within each window; what several of them map counts
        /// once
        "total" => total: Vec<Estimate>,
        /// the targets
        "targets" => targets: Vec<TargetPanel>,
    }
}

table! {
    /// An estimate with bounds that hold the true number in 19 of 20 cases.
    pub(crate) struct Estimate, EstimateBuilder, EstimateReader {
        /// the lower bound, with unknown memory as not accessed
        "low_bytes" => low_bytes: u64,
        /// the most likely number
        "bytes" => bytes: u64,
        /// the upper bound, with unknown memory as accessed
        "high_bytes" => high_bytes: u64,
    }
}

table! {
    /// How much memory of a target is in use.
    pub(crate) struct TargetPanel, TargetPanelBuilder, TargetPanelReader {
        /// the target
        "id" => id: Id,
        /// what was accessed within each window
        "within" => within: Vec<Estimate>,
        /// the mappings with at least 100 pages in the panel
        "mappings" => mappings: Vec<MappingPanel>,
    }
}

table! {
    /// How much memory of a mapping is in use.
    pub(crate) struct MappingPanel, MappingPanelBuilder, MappingPanelReader {
        /// the first address
        "start" => start: u64,
        /// the address after the last
        "end" => end: u64,
        /// what was accessed within each window
        "within" => within: Vec<Estimate>,
    }
}

impl Panel {
    /// About how many bytes it takes, uncompressed.
    pub(super) fn bytes(&self) -> usize {
        let window = size_of::<Estimate>() * self.windows_ns.len();
        let target = |target: &TargetPanel| 24 + window + target.mappings.len() * (16 + window);
        64 + window + self.targets.iter().map(target).sum::<usize>()
    }
}
