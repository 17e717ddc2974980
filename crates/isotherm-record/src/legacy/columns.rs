//! The columns of formats 1 and 2, as far as they differ from those of format 3. Columns with the same name mean the
//! same.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_buffer::NullBuffer;
use arrow_schema::{ArrowError, DataType, Field, Fields};

use crate::columns::{Cost, System, Target};
use crate::table::{Build, Description, Read, Table, Value, columns_of, structs, table};

table! {
    /// A row. Format 1 has no `activity`.
    struct Row, RowBuilder, RowReader {
        "time_ns" => time_ns: u64,
        /// as in format 3; 0 in a row with an activity
        "aggregation_ns" => aggregation_ns: u64,
        /// as in format 3; 0 in a row with an activity
        "samples" => samples: u32,
        /// the process ID, or 0 for physical memory
        "pid" => pid: u32,
        "target" => target: Option<Target>,
        "mappings" => mappings: Option<Vec<Mapping>>,
        "regions" => regions: Vec<Region>,
        "cost" => cost: Option<Cost>,
        "activity" => activity: Option<Activity>,
    }
}

table! {
    /// A mapping.
    struct Mapping, MappingBuilder, MappingReader {
        "start" => start: u64,
        "end" => end: u64,
        "permissions" => permissions: Arc<str>,
        /// as in format 3; `System RAM, node 0` and the like for physical memory
        "name" => name: Arc<str>,
    }
}

table! {
    /// A region.
    struct Region, RegionBuilder, RegionReader {
        "start" => start: u64,
        "end" => end: u64,
        "nr_accesses" => nr_accesses: u32,
        "age" => age: u32,
        "nr_unobservable" => nr_unobservable: u32,
    }
}

table! {
    /// An activity.
    struct Activity, ActivityBuilder, ActivityReader {
        "time_ns" => time_ns: u64,
        "schemes" => schemes: Vec<Scheme>,
        "memory" => memory: Vec<Memory>,
        "system" => system: System,
    }
}

table! {
    /// A scheme.
    struct Scheme, SchemeBuilder, SchemeReader {
        "name" => name: Arc<str>,
        /// the name of the action
        "action" => action: Arc<str>,
        "awake" => awake: bool,
        "quota_bytes" => quota_bytes: Option<u64>,
        "goal_score" => goal_score: Option<f64>,
        "total" => total: Total,
        "last" => last: Last,
    }
}

table! {
    /// What a scheme did, added up.
    struct Total, TotalBuilder, TotalReader {
        "applications" => applications: u64,
        "tried_regions" => tried_regions: u64,
        "tried_bytes" => tried_bytes: u64,
        "passed_bytes" => passed_bytes: u64,
        "applied_regions" => applied_regions: u64,
        "applied_bytes" => applied_bytes: u64,
        "rejected_bytes" => rejected_bytes: u64,
        "refusals" => refusals: Vec<Refused>,
        "quota_exceeded" => quota_exceeded: u64,
        "spent_ns" => spent_ns: u64,
    }
}

table! {
    /// What was refused with one error number.
    struct Refused, RefusedBuilder, RefusedReader {
        /// the error number of Linux; 0 if there was none
        "errno" => errno: i32,
        "regions" => regions: u64,
        "bytes" => bytes: u64,
    }
}

table! {
    /// One application of a scheme.
    struct Last, LastBuilder, LastReader {
        "time_ns" => time_ns: u64,
        "held_back_bytes" => held_back_bytes: u64,
        "unobservable_bytes" => unobservable_bytes: u64,
        "regions" => regions: Vec<Acted>,
    }
}

table! {
    /// A range that a scheme acted on.
    struct Acted, ActedBuilder, ActedReader {
        /// whose memory
        "pid" => pid: u32,
        "start" => start: u64,
        "end" => end: u64,
        "applied_bytes" => applied_bytes: u64,
    }
}

table! {
    /// The memory of a target.
    struct Memory, MemoryBuilder, MemoryReader {
        /// whose memory
        "pid" => pid: u32,
        "resident_bytes" => resident_bytes: u64,
        "proportional_bytes" => proportional_bytes: u64,
        "swapped_bytes" => swapped_bytes: u64,
    }
}
