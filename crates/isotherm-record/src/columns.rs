//! The columns of format 3. This declaration is the only place that names them.
//!
//! `docs/recording.md` has the same columns, with the same descriptions; a test compares both.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_buffer::NullBuffer;
use arrow_schema::{ArrowError, DataType, Field, Fields};

use crate::table::{Build, Description, Read, Reserved, Table, Value, columns_of, structs, table};

/// The `kind` of a row that is one target in one snapshot.
pub(crate) const TARGET: &str = "target";
/// The `kind` of a row that is an activity.
pub(crate) const ACTIVITY: &str = "activity";

table! {
    /// A row.
    struct Row, RowBuilder, RowReader {
        /// what the row is: `target` or `activity`
        "kind" => kind: Arc<str>,
        /// nanoseconds since the start of the run
        "time_ns" => time_ns: u64,
        /// the aggregation interval in force, nanoseconds
        "aggregation_ns" => aggregation_ns: Option<u64>,
        /// samples in an aggregation: the highest possible `nr_accesses`
        "samples" => samples: Option<u32>,
        /// the identity of the target
        "id" => id: Option<Id>,
        /// what the target is
        "target" => target: Option<Target>,
        /// its mappings, sorted and disjoint, as they were read last
        "mappings" => mappings: Option<Vec<Mapping>>,
        /// its regions, sorted and disjoint; between mappings they may cover unmapped space
        "regions" => regions: Option<Vec<Region>>,
        /// what the whole snapshot took, all targets together
        "cost" => cost: Option<Cost>,
        /// what schemes have done, and how much memory is in use
        "activity" => activity: Option<Activity>,
    }
}

table! {
    /// The identity of a target.
    struct Id, IdBuilder, IdReader {
        /// `process`, `physical` or `cgroup`
        "type" => kind: Arc<str>,
        /// the process ID; null if the target is no process
        "pid" => pid: Option<u32>,
        /// when the process started, nanoseconds since the boot of the machine, exact to the clock tick of the kernel; null if that is not known
        "start_ns" => start_ns: Option<u64>,
        /// the kernel's ID of the cgroup, which is the inode number of its directory; null if the target is no cgroup
        "cgroup" => cgroup: Option<u64>,
    }
}

table! {
    /// What a target is.
    struct Target, TargetBuilder, TargetReader {
        /// its command line, arguments joined by spaces; `physical memory` for that
        "command" => command: Arc<str>,
        /// when it started, nanoseconds since the Unix epoch; for physical memory, when the machine did
        "started_unix_ns" => started_unix_ns: u64,
    }
}

table! {
    /// A mapping.
    struct Mapping, MappingBuilder, MappingReader {
        /// first address; of physical memory, addresses are physical ones: page frame number × 4096
        "start" => start: u64,
        /// the address after the last
        "end" => end: u64,
        /// four letters as in `/proc/PID/maps`, such as `rw-p`; `----` for physical memory
        "permissions" => permissions: Arc<str>,
        /// the file's path, `[heap]` and the like, or empty for anonymous memory; `System RAM` for physical memory
        "name" => name: Arc<str>,
        /// the NUMA node that all of it lies on; null if it is not bound to one, as in a process
        "node" => node: Option<u32>,
    }
}

table! {
    /// A region.
    struct Region, RegionBuilder, RegionReader {
        /// first address
        "start" => start: u64,
        /// the address after the last
        "end" => end: u64,
        /// in how many of `samples` the region was found accessed
        "nr_accesses" => nr_accesses: u32,
        /// how many samples were really taken, at most `samples`; a steady region is sampled less often, and its `nr_accesses` is scaled up
        "nr_samples" => nr_samples: u32,
        /// for how many aggregations the access frequency has stayed as it is
        "age" => age: u32,
        /// in how many of `samples` it could not be observed
        "nr_unobservable" => nr_unobservable: u32,
        /// reserved for the survey: bytes of the region that are present
        "present_bytes" => present_bytes: Reserved<u64>,
        /// reserved for the survey: bytes of the region that were accessed since the survey before
        "touched_bytes" => touched_bytes: Reserved<u64>,
        /// reserved for the survey: bytes of the region that could not be observed
        "unobservable_bytes" => unobservable_bytes: Reserved<u64>,
    }
}

table! {
    /// The cost of a snapshot.
    struct Cost, CostBuilder, CostReader {
        /// sampling rounds since the last snapshot; twice `samples` or more if aggregations in between are missing (probe `damon`)
        "rounds" => rounds: u32,
        /// how many of them began later than they should
        "late_rounds" => late_rounds: u32,
        /// pages read in these rounds
        "reads" => reads: u64,
        /// pages read in the round that read most
        "max_reads" => max_reads: u32,
        /// pages cleared in these rounds
        "clears" => clears: u64,
        /// CPU time of the monitor's thread in these rounds, nanoseconds
        "cpu_ns" => cpu_ns: u64,
        /// mapped bytes that could not be observed
        "unobservable_bytes" => unobservable_bytes: u64,
    }
}

table! {
    /// An activity.
    struct Activity, ActivityBuilder, ActivityReader {
        /// when, nanoseconds since the start of the run
        "time_ns" => time_ns: u64,
        /// the schemes, in their order
        "schemes" => schemes: Vec<Scheme>,
        /// the memory of the targets for which it could be read
        "memory" => memory: Vec<Memory>,
        /// the memory of the whole system
        "system" => system: System,
    }
}

table! {
    /// A scheme.
    struct Scheme, SchemeBuilder, SchemeReader {
        /// its name
        "name" => name: Arc<str>,
        /// what it does
        "action" => action: Action,
        /// whether its watermarks let it work
        "awake" => awake: bool,
        /// how much the quota allows in a period now, all limits together; null if nothing limits it
        "quota_bytes" => quota_bytes: Option<u64>,
        /// how far its goals are reached, 1 being just so; null without goals, or while it is not known
        "goal_score" => goal_score: Option<f64>,
        /// since the start of the run, or since the schemes were changed
        "total" => total: Total,
        /// of its applications since the activity before, the last that acted on something; if there is none, its last application, with no regions; zeros if there was none at all
        "last" => last: Last,
    }
}

table! {
    /// An action with its parameters.
    struct Action, ActionBuilder, ActionReader {
        /// its name, such as `pageout`
        "name" => name: Arc<str>,
        /// the NUMA node that it moves memory to; null if it moves none
        "target_node" => target_node: Option<u32>,
    }
}

table! {
    /// What a scheme did, added up.
    struct Total, TotalBuilder, TotalReader {
        /// how often regions were looked for
        "applications" => applications: u64,
        /// regions that it wanted and the quota allowed, but for those of which filters left nothing
        "tried_regions" => tried_regions: u64,
        /// bytes of them
        "tried_bytes" => tried_bytes: u64,
        /// what all filters let pass: what the action was called for
        "passed_bytes" => passed_bytes: u64,
        /// ranges that the action was carried out on
        "applied_regions" => applied_regions: u64,
        /// bytes that it was carried out on
        "applied_bytes" => applied_bytes: u64,
        /// what it wanted and a filter rejected
        "rejected_bytes" => rejected_bytes: u64,
        /// what was refused, an entry for each reason
        "refusals" => refusals: Vec<Refusal>,
        /// in how many periods the quota did not suffice
        "quota_exceeded" => quota_exceeded: u64,
        /// time that its actions took, and looking at pages for its filters
        "spent_ns" => spent_ns: u64,
    }
}

table! {
    /// What was refused for one reason.
    struct Refusal, RefusalBuilder, RefusalReader {
        /// the kind of the reason: `target_gone`, `not_mapped`, `no_memory`, `busy`, `not_permitted`, `unsupported`, `unsuitable`, `interrupted` or `other`
        "reason" => reason: Arc<str>,
        /// the number by which the kernel told the reason (errno); null if it told none
        "code" => code: Option<i32>,
        /// ranges that were refused, at least in part
        "regions" => regions: u64,
        /// bytes of them
        "bytes" => bytes: u64,
    }
}

table! {
    /// One application of a scheme.
    struct Last, LastBuilder, LastReader {
        /// when, nanoseconds since the start of the run
        "time_ns" => time_ns: u64,
        /// what it wanted and the quota held back
        "held_back_bytes" => held_back_bytes: u64,
        /// what was left alone because its temperature could not be observed
        "unobservable_bytes" => unobservable_bytes: u64,
        /// what it acted on, in that order
        "regions" => regions: Vec<Acted>,
    }
}

table! {
    /// A range that a scheme acted on.
    struct Acted, ActedBuilder, ActedReader {
        /// whose memory
        "id" => id: Id,
        /// first address
        "start" => start: u64,
        /// the address after the last
        "end" => end: u64,
        /// bytes of it that the action was carried out on
        "applied_bytes" => applied_bytes: u64,
    }
}

table! {
    /// The memory of a target.
    struct Memory, MemoryBuilder, MemoryReader {
        /// whose memory
        "id" => id: Id,
        /// resident bytes (RSS)
        "resident_bytes" => resident_bytes: u64,
        /// resident bytes, those that several processes share divided among them (PSS)
        "proportional_bytes" => proportional_bytes: u64,
        /// bytes in swap
        "swapped_bytes" => swapped_bytes: u64,
    }
}

table! {
    /// The memory of the system.
    struct System, SystemBuilder, SystemReader {
        /// bytes of memory
        "total_bytes" => total_bytes: u64,
        /// bytes that nothing uses
        "free_bytes" => free_bytes: u64,
        /// bytes that are available without swapping
        "available_bytes" => available_bytes: u64,
        /// bytes of swap
        "swap_total_bytes" => swap_total_bytes: u64,
        /// bytes of swap that are not used
        "swap_free_bytes" => swap_free_bytes: u64,
        /// for how long some task has waited for memory (PSI `some`), nanoseconds since any fixed moment; null if the kernel does not tell
        "stalled_ns" => stalled_ns: Option<u64>,
    }
}

impl Row {
    /// A row that says nothing but what it is and when.
    pub(crate) fn new(kind: &str, time_ns: u64) -> Self {
        Self {
            kind: Arc::from(kind),
            time_ns,
            aggregation_ns: None,
            samples: None,
            id: None,
            target: None,
            mappings: None,
            regions: None,
            cost: None,
            activity: None,
        }
    }

    /// About how many bytes the row takes, uncompressed.
    pub(crate) fn bytes(&self) -> usize {
        let mappings = self.mappings.iter().flatten().map(|mapping| 40 + mapping.name.len()).sum::<usize>();
        let regions = self.regions.as_ref().map_or(0, |regions| regions.len() * 32);
        let command = self.target.as_ref().map_or(0, |target| target.command.len());
        192 + mappings + regions + command + self.activity.as_ref().map_or(0, Activity::bytes)
    }
}

impl Activity {
    fn bytes(&self) -> usize {
        let scheme = |scheme: &Scheme| {
            160 + scheme.name.len() + scheme.total.refusals.len() * 40 + scheme.last.regions.len() * 64
        };
        64 + self.schemes.iter().map(scheme).sum::<usize>() + self.memory.len() * 64
    }
}

/// The columns of a recording as rows of a Markdown table: path, type, meaning. `docs/recording.md` has this table.
pub fn column_table() -> String {
    Description::of::<Row>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_has_the_columns_as_they_are_declared() {
        let document = include_str!("../../../docs/recording.md");
        let table = column_table();
        assert!(
            document.contains(&table),
            "docs/recording.md has another table of columns than `cargo run -p isotherm-record --example columns` prints"
        );
    }
}
