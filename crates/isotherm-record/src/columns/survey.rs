//! The columns of a survey.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_buffer::NullBuffer;
use arrow_schema::{ArrowError, DataType, Field, Fields};

use super::Figures;
use crate::column::Column;
use crate::table::{Build, Description, Read, Table, Value, columns_of, structs, table};

table! {
    /// What a survey found in a target.
    pub(crate) struct Survey, SurveyBuilder, SurveyReader {
        /// when the survey was, in nanoseconds since the start of the run
        "time_ns" => time_ns: u64,
        /// the time since the survey before, in nanoseconds; 0 for the first
        "interval_ns" => interval_ns: u64,
        /// what the whole survey took, for all targets together; null in all rows of a survey but the first
        "cost" => cost: Option<SurveyCost>,
        /// all targets together, where each page counts once; null in all rows of a survey but the first, and if it is
        /// not known which memory the targets share
        "total" => total: Option<SurveyTotal>,
        /// why much memory was left unobservable, and which option has it observed, in a sentence; null in all rows of
        /// a survey but the first, and if little was left out
        "left_out" => left_out: Option<Arc<str>>,
        /// the windows of `within_bytes`, in nanoseconds, rising
        "windows_ns" => windows_ns: Vec<u64>,
        /// bytes that were accessed within each of `windows_ns` before the survey, less those within the window before:
        /// those of the first mapping, of the second, and so on. A window that goes back to before the first survey
        /// counts what was accessed since then
        "within_bytes" => within_bytes: Vec<u64>,
        /// the sums of the mappings that have a page in memory or in swap, in the order of the mappings
        "mappings" => mappings: Vec<Surveyed>,
        /// the blocks of 2 MiB that have a present or a swapped page, in the order of addresses
        "blocks" => blocks: Vec<Block>,
        /// the memory of the target on each NUMA node, in the order of the nodes; null if all
        /// memory is on one node, and if the survey does not know the nodes
        "nodes" => nodes: Option<Vec<OnNode>>,
    }
}

table! {
    /// The cost of a survey.
    pub(crate) struct SurveyCost, SurveyCostBuilder, SurveyCostReader {
        /// present pages that were read
        "reads" => reads: u64,
        /// accessed bits that were cleared
        "clears" => clears: u64,
        /// CPU time of the survey, in nanoseconds; null if it was not measured
        "cpu_ns" => cpu_ns: Option<u64>,
    }
}

table! {
    /// The sums of a survey over all targets, where each page counts once.
    pub(crate) struct SurveyTotal, SurveyTotalBuilder, SurveyTotalReader {
        /// the sums; `unknown_bytes` may count several times what several targets share
        "sums" => sums: Sums,
        /// of the present bytes, those that more than one target maps
        "shared_bytes" => shared_bytes: u64,
        /// as `survey.within_bytes`
        "within_bytes" => within_bytes: Vec<u64>,
        /// the memory on each NUMA node, in the order of the nodes; null as `nodes` of the survey
        "nodes" => nodes: Option<Vec<OnNode>>,
    }
}

table! {
    /// What a survey found in some memory.
    pub(crate) struct Sums, SumsBuilder, SumsReader {
        /// what is known of it; a struct as that of regions
        "figures" => figures: Figures,
        /// bytes by kind; null if none has a kind, and if the source does not tell
        "kinds" => kinds: Option<Kinds>,
        /// bytes in memory that the target maps at a lower address too: they are counted there, and in no other column
        /// here
        "mapped_again_bytes" => mapped_again_bytes: u64,
    }
}

table! {
    /// Bytes by kind, as a survey found them.
    pub(crate) struct Kinds, KindsBuilder, KindsReader {
        /// bytes that the process has freed lazily (`MADV_FREE`) and not used since; not among the present ones
        "lazily_freed_bytes" => lazily_freed_bytes: u64,
        /// of the unobservable bytes, those that are locked in memory
        "locked_bytes" => locked_bytes: u64,
        /// of the unobservable bytes, those that several processes map
        "shared_bytes" => shared_bytes: u64,
        /// of the unobservable bytes, memory of guests of KVM
        "guest_bytes" => guest_bytes: u64,
        /// of the unobservable bytes, memory that devices access (VFIO, RDMA)
        "device_bytes" => device_bytes: u64,
        /// of the unobservable bytes, buffers that are registered with io_uring
        "io_uring_bytes" => io_uring_bytes: u64,
        /// of the unobservable bytes, memory of hugetlbfs
        "hugetlb_bytes" => hugetlb_bytes: u64,
        /// of the unobservable bytes, those that are unobservable for any other reason
        "other_bytes" => other_bytes: u64,
    }
}

table! {
    /// What a survey found on a NUMA node.
    pub(crate) struct OnNode, OnNodeBuilder, OnNodeReader {
        /// the number of the node
        "node" => node: u32,
        /// what is known of its memory
        "figures" => figures: Figures,
        /// as `survey.within_bytes`
        "within_bytes" => within_bytes: Vec<u64>,
    }
}

table! {
    /// What a survey found in a mapping.
    pub(crate) struct Surveyed, SurveyedBuilder, SurveyedReader {
        /// the index of the mapping in `mappings` of this row, or of the last row that has them
        "mapping" => mapping: u32,
        /// the sums
        "sums" => sums: Sums,
    }
}

table! {
    /// A block of 2 MiB.
    pub(crate) struct Block, BlockBuilder, BlockReader {
        /// the distance from the end of the block before, in blocks; that of the first block of a row from address 0
        "gap_blocks" => gap_blocks: u64,
        /// the number of present pages, of 512
        "present_pages" => present_pages: u16,
        /// how many of these were accessed since the survey before
        "touched_pages" => touched_pages: u16,
        /// when the page that was accessed last was accessed, in hundredths of a second since the start of the run
        "used_cs" => used_cs: i32,
        /// how long before `used_cs` the present pages were accessed last, on the mean of those for which that is
        /// known, in hundredths of a second; null if it is known for none
        "mean_before_cs" => mean_before_cs: Option<i32>,
        /// the number of absent pages that are in swap; null if the survey does not know
        "swapped_pages" => swapped_pages: Option<u16>,
        /// how many of the present pages could not be observed
        "unobservable_pages" => unobservable_pages: u16,
        /// of how many of the present pages it is not known whether they were accessed since the survey before;
        /// `touched_pages` counts them as accessed in the same share as the rest
        "unknown_pages" => unknown_pages: u16,
    }
}

impl Survey {
    /// About how many bytes it takes, uncompressed.
    pub(super) fn bytes(&self) -> usize {
        let window = size_of::<u64>() * self.windows_ns.len();
        let of_total = self.total.as_ref().and_then(|total| total.nodes.as_ref());
        let nodes: usize = self.nodes.iter().chain(of_total).map(Vec::len).sum();
        64 + window + (self.mappings.len() + nodes) * (56 + window) + self.blocks.len() * 32
    }
}
