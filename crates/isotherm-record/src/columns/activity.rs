//! The columns of an activity.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_buffer::NullBuffer;
use arrow_schema::{ArrowError, DataType, Field, Fields};

use super::Id;
use crate::column::Column;
use crate::table::{Build, Description, Read, Table, Value, columns_of, structs, table};

table! {
    /// An activity.
    pub(crate) struct Activity, ActivityBuilder, ActivityReader {
        /// when the activity was taken, in nanoseconds since the start of the run
        "time_ns" => time_ns: u64,
        /// the schemes, in their order
        "schemes" => schemes: Vec<Scheme>,
        /// the memory of the targets for which it could be read
        "memory" => memory: Vec<Memory>,
        /// the memory of the whole system
        "system" => system: System,
        /// major page faults of the targets since the start of the run, for which a page was read from a disk or from
        /// swap; null if that is not known
        "major_faults" => major_faults: Option<u64>,
        /// bytes by which compressed swap (zram and zswap) has grown since the schemes began, 0 if it has shrunk; null
        /// without compressed swap
        "compressed_growth_bytes" => compressed_growth_bytes: Option<u64>,
        /// what advice on the memory of the targets needs beside it, as JSON: see
        /// [below](#surroundings); null if schemes act
        "surroundings" => surroundings: Option<Arc<str>>,
    }
}

table! {
    /// A scheme.
    pub(crate) struct Scheme, SchemeBuilder, SchemeReader {
        /// the name of the scheme
        "name" => name: Arc<str>,
        /// the action of the scheme
        "action" => action: Action,
        /// whether the scheme is awake by its watermarks
        "awake" => awake: bool,
        /// how many bytes the quota allows in a period now, by all its limits; null if nothing limits it
        "quota_bytes" => quota_bytes: Option<u64>,
        /// how far the goals are reached; 1 is exactly; null without goals, or if it is not known
        "goal_score" => goal_score: Option<f64>,
        /// the share of the quota that is in force, above 0 and below 1, because too much of what the scheme freed came
        /// back soon; null if all of it is in force, or nothing limits the scheme
        "quota_share" => quota_share: Option<f64>,
        /// the sums since the start of the run, or since the schemes were changed
        "total" => total: Total,
        /// the last application since the activity before that acted on something; without one, the last application at
        /// all, which has no regions; zeros if there was no application
        "last" => last: Last,
    }
}

table! {
    /// An action with its parameters.
    pub(crate) struct Action, ActionBuilder, ActionReader {
        /// the name of the action, such as `pageout`
        "name" => name: Arc<str>,
        /// the NUMA node that the action moves memory to; null if it moves none
        "target_node" => target_node: Option<u32>,
    }
}

table! {
    /// What a scheme did, added up.
    pub(crate) struct Total, TotalBuilder, TotalReader {
        /// how often the scheme was applied to a snapshot
        "applications" => applications: u64,
        /// regions, or parts of regions, that matched the condition, that no filter rejected as a whole, and that the
        /// quota allowed
        "tried_regions" => tried_regions: u64,
        /// bytes of these regions
        "tried_bytes" => tried_bytes: u64,
        /// bytes of these regions that all filters allowed; the action was called for them
        "passed_bytes" => passed_bytes: u64,
        /// ranges that the action was carried out on, wholly or in part
        "applied_regions" => applied_regions: u64,
        /// bytes that the action was carried out on
        "applied_bytes" => applied_bytes: u64,
        /// bytes that matched the condition and that a filter rejected; memory that stays as it is counts once
        "rejected_bytes" => rejected_bytes: u64,
        /// what the system refused to act on, with an entry for each reason
        "refusals" => refusals: Vec<Refusal>,
        /// the number of periods in which the quota did not suffice
        "quota_exceeded" => quota_exceeded: u64,
        /// the time of the actions and of inspecting pages for the filters, in nanoseconds
        "spent_ns" => spent_ns: u64,
        /// of the bytes that the action freed, those that were watched until the end of their time
        "watched_bytes" => watched_bytes: u64,
        /// of `watched_bytes`, those that were in memory again within their time: the least age that the scheme asks
        /// for, at most a minute
        "returned_bytes" => returned_bytes: u64,
        /// bytes that an action which frees memory unmapped from their target without freeing them, so that they are
        /// in memory still
        "unmapped_bytes" => unmapped_bytes: u64,
    }
}

table! {
    /// What was refused for one reason.
    pub(crate) struct Refusal, RefusalBuilder, RefusalReader {
        /// the kind of the reason: `target_gone`, `not_mapped`, `no_memory`, `no_swap`, `dirty`, `busy`,
        /// `not_permitted`, `unsupported`, `unsuitable`, `interrupted` or `other`
        "reason" => reason: Arc<str>,
        /// the error number of the kernel (errno); null if there was none
        "code" => code: Option<i32>,
        /// ranges that were refused, wholly or in part
        "regions" => regions: u64,
        /// bytes that were refused
        "bytes" => bytes: u64,
    }
}

table! {
    /// One application of a scheme.
    pub(crate) struct Last, LastBuilder, LastReader {
        /// when the application was, in nanoseconds since the start of the run
        "time_ns" => time_ns: u64,
        /// bytes that matched the condition and that the quota held back
        "held_back_bytes" => held_back_bytes: u64,
        /// bytes that were left alone because their temperature could not be observed
        "unobservable_bytes" => unobservable_bytes: u64,
        /// what the scheme acted on, in that order
        "regions" => regions: Vec<Acted>,
    }
}

table! {
    /// A range that a scheme acted on.
    pub(crate) struct Acted, ActedBuilder, ActedReader {
        /// the target
        "id" => id: Id,
        /// the first address
        "start" => start: u64,
        /// the address after the last
        "end" => end: u64,
        /// bytes of the range that the action was carried out on
        "applied_bytes" => applied_bytes: u64,
    }
}

table! {
    /// The memory of a target.
    pub(crate) struct Memory, MemoryBuilder, MemoryReader {
        /// the target
        "id" => id: Id,
        /// resident bytes (RSS)
        "resident_bytes" => resident_bytes: u64,
        /// resident bytes, with those that several processes share divided among them (PSS), by the kernel's
        /// `/proc/PID/smaps_rollup`; null in recordings of versions that do not read it, because the target waits for
        /// it
        "proportional_bytes" => proportional_bytes: Option<u64>,
        /// bytes in swap, without shared memory
        "swapped_bytes" => swapped_bytes: u64,
    }
}

table! {
    /// The memory of the system.
    pub(crate) struct System, SystemBuilder, SystemReader {
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
        /// for how long some task has waited for memory (PSI `some`), in nanoseconds since any fixed moment; null if
        /// the kernel does not provide it
        "stalled_ns" => stalled_ns: Option<u64>,
    }
}

impl Activity {
    /// About how many bytes it takes, uncompressed.
    pub(super) fn bytes(&self) -> usize {
        let scheme = |scheme: &Scheme| {
            160 + scheme.name.len() + scheme.total.refusals.len() * 40 + scheme.last.regions.len() * 64
        };
        let surroundings = self.surroundings.as_ref().map_or(0, |text| text.len());
        64 + self.schemes.iter().map(scheme).sum::<usize>() + self.memory.len() * 64 + surroundings
    }
}
