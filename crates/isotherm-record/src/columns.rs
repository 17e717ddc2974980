//! The columns of a recording. This declaration is the only place that names them.
//!
//! `docs/recording.md` has the same columns, with the same descriptions; a test compares both.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_buffer::NullBuffer;
use arrow_schema::{ArrowError, DataType, Field, Fields};

use crate::column::Column;
use crate::table::{Build, Description, Read, Table, Value, columns_of, structs, table};

/// The `kind` of a row that is one target in one snapshot.
pub(crate) const TARGET: &str = "target";
/// The `kind` of a row that is an activity.
pub(crate) const ACTIVITY: &str = "activity";
/// The `kind` of a row that is one target in one survey.
pub(crate) const SURVEY: &str = "survey";
/// The columns that tell the times of snapshots and surveys.
pub(crate) const TIMES: [&str; 5] = ["kind", "time_ns", SURVEY, "survey.time_ns", "survey.interval_ns"];
/// The `kind` of a row that is a mark.
pub(crate) const MARK: &str = "mark";
/// The `kind` of a row that says what is missing.
pub(crate) const MISSED: &str = "missed";
/// The `kind` of a row that has calls that mapped memory.
pub(crate) const ALLOCATIONS: &str = "allocations";
/// The `kind` of a row that says how much memory is in use.
pub(crate) const PANEL: &str = "panel";
/// The `kind` of a row that is one target in several snapshots, merged; and the column of what it has of them.
pub(crate) const MERGED: &str = "merged";
/// The column of the identity of a target.
pub(crate) const ID: &str = "id";
/// The column of mappings.
pub(crate) const MAPPINGS: &str = "mappings";
/// The column of what a survey found in blocks.
pub(crate) const BLOCKS: &str = "survey.blocks";
/// The column of regions.
pub(crate) const REGIONS: &str = "regions";
/// The column of what a snapshot took.
pub(crate) const COST: &str = "cost";
/// The columns of a survey and of a cost that only a live source fills.
pub(crate) const OF_LIVE: [&str; 3] = ["kinds", "longest_hold_ns", "holds_ns"];
/// The column of a region that says what a survey found in it.
pub(crate) const FIGURES: &str = "figures";

table! {
    /// A row.
    struct Row, RowBuilder, RowReader {
        /// what the row is: `target`, `activity`, `survey`, `mark`, `allocations`, `missed`, `panel` or `merged`
        "kind" => kind: Arc<str>,
        /// nanoseconds since the start of the run, also while the machine is suspended; rows are in the order of time
        "time_ns" => time_ns: u64,
        /// the aggregation interval in force, in nanoseconds
        "aggregation_ns" => aggregation_ns: Option<u64>,
        /// samples in an aggregation: the highest possible `nr_accesses`
        "samples" => samples: Option<u32>,
        /// the number of the snapshot in the recording, modulo 2^32
        "snapshot" => snapshot: Option<u32>,
        /// the identity of the target
        "id" => id: Option<Id>,
        /// what the target is; null if it is what the last row of the target says
        "target" => target: Option<Target>,
        /// the mappings of the target as they were read last, sorted and disjoint; null if they are what the last row
        /// of the target says
        "mappings" => mappings: Option<Vec<Mapping>>,
        /// the regions of the target, sorted and disjoint; between mappings they may cover unmapped space
        "regions" => regions: Option<Vec<Region>>,
        /// what the whole snapshot took, for all targets together; null in all rows of a snapshot but the first
        "cost" => cost: Option<Cost>,
        /// what schemes have done, and how much memory is in use; not null in rows of this kind only
        "activity" => activity: Option<Activity>,
        /// what a survey found in the target; not null in rows of this kind only
        "survey" => survey: Option<Survey>,
        /// a moment with a name; not null in rows of this kind only
        "mark" => mark: Option<Mark>,
        /// calls of the targets that mapped memory; not null in rows of this kind only
        "allocations" => allocations: Option<Allocations>,
        /// what the recorder could not take in; not null in rows of this kind only
        "missed" => missed: Option<Missed>,
        /// how much memory is in use, with bounds; not null in rows of this kind only
        "panel" => panel: Option<Panel>,
        /// the target in several snapshots, merged; not null in rows of this kind only
        "merged" => merged: Option<Merged>,
    }
}

table! {
    /// A target in several snapshots, merged.
    struct Merged, MergedBuilder, MergedReader {
        /// the time of the last of them, in nanoseconds since the start of the run
        "time_ns" => time_ns: u64,
        /// the regions
        "regions" => regions: Vec<Region>,
    }
}

table! {
    /// The identity of a target.
    struct Id, IdBuilder, IdReader {
        /// `process`, `physical` or `cgroup`
        "type" => kind: Arc<str>,
        /// the process ID; null if the target is no process
        "pid" => pid: Option<u32>,
        /// when the process started, in nanoseconds since the boot of the machine, exact to the clock tick of the
        /// kernel; null if that is not known
        "start_ns" => start_ns: Option<u64>,
        /// the kernel's ID of the cgroup, which is the inode number of its directory; null if the target is no cgroup
        "cgroup" => cgroup: Option<u64>,
    }
}

table! {
    /// What a target is.
    struct Target, TargetBuilder, TargetReader {
        /// the command line of the process, with arguments joined by spaces; `physical memory` for physical memory
        "command" => command: Arc<str>,
        /// when the target started, in nanoseconds since the Unix epoch; for physical memory, when the machine started
        "started_unix_ns" => started_unix_ns: u64,
        /// the path of the cgroup of the process, within the hierarchy that accounts memory; null if the target is no
        /// process, and if it is not known
        "cgroup" => cgroup: Option<Arc<str>>,
        /// the process ID in the PID namespace of the process; null if that is the recorder's, if the target is no
        /// process, and if it is not known
        "inner_pid" => inner_pid: Option<u32>,
    }
}

table! {
    /// A mapping.
    struct Mapping, MappingBuilder, MappingReader {
        /// the first address; addresses of physical memory are page frame number × 4096
        "start" => start: u64,
        /// the address after the last
        "end" => end: u64,
        /// four letters, as in `/proc/PID/maps`, such as `rw-p`; `----` for physical memory
        "permissions" => permissions: Arc<str>,
        /// the file's path, `[heap]` and the like, or empty for anonymous memory; `System RAM` for physical memory
        "name" => name: Arc<str>,
        /// the NUMA node that all of the mapping lies on; null if it is not bound to one node, as in a process
        "node" => node: Option<u32>,
    }
}

table! {
    /// A region.
    struct Region, RegionBuilder, RegionReader {
        /// the distance from the end of the region before, in bytes; that of the first region of a row from address 0
        "gap_bytes" => gap_bytes: u64,
        /// bytes of the region that are not in memory, be they mapped or not; all of them without a survey. The region
        /// ends after these and `figures.present_bytes`
        "absent_bytes" => absent_bytes: u64,
        /// in how many of `samples` samples the region was found accessed; counted in the samples that were taken and
        /// could be observed, and scaled to `samples`
        "nr_accesses" => nr_accesses: u32,
        /// how many samples were really taken, at most `samples`; a region that is steady or new has fewer; `samples`
        /// where the source does not tell, as with the probe `damon`
        "nr_samples" => nr_samples: u32,
        /// the number of the snapshot since which the access frequency is the same: its age in aggregations is
        /// `snapshot` less this number, modulo 2^32
        "since" => since: u32,
        /// how many of `samples` samples could not be observed; scaled as `nr_accesses` is
        "nr_unobservable" => nr_unobservable: u32,
        /// accesses of a page in a second, the most likely number by samples of several lengths and by surveys, rounded
        /// to two digits; null if there were none, and if the source does not tell, as with the probe `damon`
        "hz" => hz: Option<f64>,
        /// the factor, at least 1, within which `hz` is right in 19 of 20 cases; null if `hz` is only the least that
        /// there may be, and if there is none
        "hz_factor" => hz_factor: Option<f64>,
        /// what the last survey found in the region; null without one
        "figures" => figures: Option<Figures>,
    }
}

table! {
    /// What a survey knows of some bytes.
    struct Figures, FiguresBuilder, FiguresReader {
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
    }
}

table! {
    /// The cost of a snapshot.
    struct Cost, CostBuilder, CostReader {
        /// sampling rounds since the last snapshot; twice `samples` or more if aggregations in between are missing, as
        /// with the probe `damon`
        "rounds" => rounds: u32,
        /// how many of these rounds began late
        "late_rounds" => late_rounds: u32,
        /// how many of these rounds had samples; null if the source does not tell
        "sampled_rounds" => sampled_rounds: Option<u32>,
        /// pages read in these rounds
        "reads" => reads: u64,
        /// pages read in the round that read most
        "max_reads" => max_reads: u32,
        /// pages cleared in these rounds
        "clears" => clears: u64,
        /// CPU time of the monitor's thread since the last snapshot, surveys included, in nanoseconds
        "cpu_ns" => cpu_ns: u64,
        /// CPU time of the threads that record and draw since the last snapshot, in nanoseconds; null if the source
        /// does not tell
        "other_cpu_ns" => other_cpu_ns: Option<u64>,
        /// whether the budget did not suffice, so that surveys or samples were rarer than they would be without it;
        /// null if there is no budget
        "limited" => limited: Option<bool>,
        /// what the budget did not suffice for; null if there is no budget
        "not_afforded" => not_afforded: Option<NotAfforded>,
        /// mapped bytes that could not be observed
        "unobservable_bytes" => unobservable_bytes: u64,
        /// the longest call since the last snapshot for which the kernel held the memory map of a target, so that the
        /// target could wait for it, in nanoseconds; null if the source does not tell
        "longest_hold_ns" => longest_hold_ns: Option<u64>,
        /// all such calls since the last snapshot together, in nanoseconds; null as `longest_hold_ns`
        "holds_ns" => holds_ns: Option<u64>,
    }
}

table! {
    /// What the budget did not suffice for.
    struct NotAfforded, NotAffordedBuilder, NotAffordedReader {
        /// whether surveys came less often than once a second
        "surveys" => surveys: bool,
        /// whether some rounds were without samples
        "samples" => samples: bool,
        /// whether the mappings were read less often than the update interval says
        "mappings" => mappings: bool,
        /// whether surveys did not clear all pages that they found accessed, so that the last one did not know of more
        /// than a tenth of the resident memory whether it was accessed
        "clears" => clears: bool,
    }
}

table! {
    /// An activity.
    struct Activity, ActivityBuilder, ActivityReader {
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
        /// what advice on the memory of the targets needs beside it, as JSON: see
        /// [below](#surroundings); null if schemes act
        "surroundings" => surroundings: Option<Arc<str>>,
    }
}

table! {
    /// A scheme.
    struct Scheme, SchemeBuilder, SchemeReader {
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
    struct Action, ActionBuilder, ActionReader {
        /// the name of the action, such as `pageout`
        "name" => name: Arc<str>,
        /// the NUMA node that the action moves memory to; null if it moves none
        "target_node" => target_node: Option<u32>,
    }
}

table! {
    /// What a scheme did, added up.
    struct Total, TotalBuilder, TotalReader {
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
    struct Refusal, RefusalBuilder, RefusalReader {
        /// the kind of the reason: `target_gone`, `not_mapped`, `no_memory`, `no_swap`, `busy`, `not_permitted`,
        /// `unsupported`, `unsuitable`, `interrupted` or `other`
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
    struct Last, LastBuilder, LastReader {
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
    struct Acted, ActedBuilder, ActedReader {
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
    struct Memory, MemoryBuilder, MemoryReader {
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
        /// for how long some task has waited for memory (PSI `some`), in nanoseconds since any fixed moment; null if
        /// the kernel does not provide it
        "stalled_ns" => stalled_ns: Option<u64>,
    }
}

table! {
    /// What a survey found in a target.
    struct Survey, SurveyBuilder, SurveyReader {
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
    struct SurveyCost, SurveyCostBuilder, SurveyCostReader {
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
    struct SurveyTotal, SurveyTotalBuilder, SurveyTotalReader {
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
    struct Sums, SumsBuilder, SumsReader {
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
    struct Kinds, KindsBuilder, KindsReader {
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
    struct OnNode, OnNodeBuilder, OnNodeReader {
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
    struct Surveyed, SurveyedBuilder, SurveyedReader {
        /// the index of the mapping in `mappings` of this row, or of the last row that has them
        "mapping" => mapping: u32,
        /// the sums
        "sums" => sums: Sums,
    }
}

table! {
    /// A block of 2 MiB.
    struct Block, BlockBuilder, BlockReader {
        /// the distance from the end of the block before, in blocks; that of the first block of a row from address 0
        "gap_blocks" => gap_blocks: u64,
        /// the number of present pages, of 512
        "present_pages" => present_pages: u16,
        /// how many of these were accessed since the survey before
        "touched_pages" => touched_pages: u16,
        /// when the page that was accessed last was accessed, in hundredths of a second since the start of the run
        "used_cs" => used_cs: i32,
        /// when the present pages were accessed last, on the mean of those for which that is known, likewise; null if
        /// it is known for none
        "mean_used_cs" => mean_used_cs: Option<i32>,
        /// the number of absent pages that are in swap; null if the survey does not know
        "swapped_pages" => swapped_pages: Option<u16>,
        /// how many of the present pages could not be observed; null if that is not known
        "unobservable_pages" => unobservable_pages: Option<u16>,
        /// of how many of the present pages it is not known whether they were accessed since the survey before;
        /// `touched_pages` counts them as accessed in the same share as the rest; null if that is not known
        "unknown_pages" => unknown_pages: Option<u16>,
    }
}

table! {
    /// A mark.
    struct Mark, MarkBuilder, MarkReader {
        /// when the mark was made, in nanoseconds since the start of the run
        "time_ns" => time_ns: u64,
        /// what it is called, at most 256 bytes
        "text" => text: Arc<str>,
    }
}

table! {
    /// Things of one kind that the recorder could not take in.
    struct Missed, MissedBuilder, MissedReader {
        /// when the last of them was, in nanoseconds since the start of the run
        "time_ns" => time_ns: u64,
        /// what is missing: `snapshots`, `surveys`, `marks` or `calls` that mapped memory; `activities`, which were
        /// added up into the next one; or `processes` that came and went unobserved
        "kind" => kind: Arc<str>,
        /// how many of them
        "count" => count: u64,
    }
}

table! {
    /// Calls that mapped memory.
    struct Allocations, AllocationsBuilder, AllocationsReader {
        /// when the calls were read, in nanoseconds since the start of the run
        "time_ns" => time_ns: u64,
        /// the stacks that no row before has
        "stacks" => stacks: Vec<Stack>,
        /// the calls, in the order of time
        "calls" => calls: Vec<Call>,
        /// how many calls were lost since the row before of this kind, because there were too many at a time
        "lost" => lost: u64,
    }
}

table! {
    /// A call stack.
    struct Stack, StackBuilder, StackReader {
        /// the number of the stack, by which calls refer to it
        "stack" => stack: u32,
        /// the functions, the innermost first
        "frames" => frames: Vec<Frame>,
    }
}

table! {
    /// A function in a call stack.
    struct Frame, FrameBuilder, FrameReader {
        /// the name of the function; null if it is not known
        "function" => function: Option<Arc<str>>,
        /// the file that holds the code; null for code that no file holds
        "module" => module: Option<Arc<str>>,
        /// the distance of the call in bytes: from the start of the function, or without one from the start of the
        /// file, or without both from address 0
        "offset" => offset: u64,
    }
}

table! {
    /// A call that mapped memory.
    struct Call, CallBuilder, CallReader {
        /// when the call returned, in nanoseconds since the start of the run; 0 if that was before it
        "time_ns" => time_ns: u64,
        /// the process that made the call
        "id" => id: Id,
        /// the system call: `mmap`, `mremap` or `brk`; or `execve`, after which nothing of what was mapped before is
        /// left
        "call" => call: Arc<str>,
        /// the first address that was mapped
        "start" => start: u64,
        /// the address after the last
        "end" => end: u64,
        /// the number of the stack of the call; null if it is not known, and for `execve`
        "stack" => stack: Option<u32>,
    }
}

table! {
    /// How much memory is in use, as a reading of the panel has found it.
    struct Panel, PanelBuilder, PanelReader {
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
    struct Estimate, EstimateBuilder, EstimateReader {
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
    struct TargetPanel, TargetPanelBuilder, TargetPanelReader {
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
    struct MappingPanel, MappingPanelBuilder, MappingPanelReader {
        /// the first address
        "start" => start: u64,
        /// the address after the last
        "end" => end: u64,
        /// what was accessed within each window
        "within" => within: Vec<Estimate>,
    }
}

impl RowReader {
    /// The time in nanoseconds of the survey in row `index`, if that has one.
    pub(crate) fn survey_time(&self, index: usize) -> Option<u64> {
        self.survey.set(index).map(|survey| survey.time_ns.at(index))
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
            snapshot: None,
            id: None,
            target: None,
            mappings: None,
            regions: None,
            cost: None,
            activity: None,
            survey: None,
            mark: None,
            allocations: None,
            missed: None,
            panel: None,
            merged: None,
        }
    }

    /// About how many bytes the row takes, uncompressed.
    pub(crate) fn bytes(&self) -> usize {
        let mappings = self.mappings.iter().flatten().map(|mapping| 40 + mapping.name.len()).sum::<usize>();
        let merged = self.merged.as_ref().map(|merged| &merged.regions);
        let regions = self.regions.as_ref().or(merged).map_or(0, |regions| regions.len() * 64);
        let command = self.target.as_ref().map_or(0, |target| target.command.len());
        let activity = self.activity.as_ref().map_or(0, Activity::bytes);
        let mark = self.mark.as_ref().map_or(0, |mark| mark.text.len());
        let allocations = self.allocations.as_ref().map_or(0, Allocations::bytes);
        192 + mappings
            + regions
            + command
            + activity
            + mark
            + self.survey.as_ref().map_or(0, Survey::bytes)
            + allocations
            + self.panel.as_ref().map_or(0, Panel::bytes)
    }
}

impl Panel {
    fn bytes(&self) -> usize {
        let window = size_of::<Estimate>() * self.windows_ns.len();
        let target = |target: &TargetPanel| 24 + window + target.mappings.len() * (16 + window);
        64 + window + self.targets.iter().map(target).sum::<usize>()
    }
}

impl Allocations {
    fn bytes(&self) -> usize {
        let text = |text: &Option<Arc<str>>| text.as_ref().map_or(0, |text| text.len());
        let frame = |frame: &Frame| 24 + text(&frame.function) + text(&frame.module);
        let stack = |stack: &Stack| 8 + stack.frames.iter().map(frame).sum::<usize>();
        64 + self.calls.len() * 64 + self.stacks.iter().map(stack).sum::<usize>()
    }
}

impl Survey {
    fn bytes(&self) -> usize {
        let window = size_of::<u64>() * self.windows_ns.len();
        let of_total = self.total.as_ref().and_then(|total| total.nodes.as_ref());
        let nodes: usize = self.nodes.iter().chain(of_total).map(Vec::len).sum();
        64 + window + (self.mappings.len() + nodes) * (56 + window) + self.blocks.len() * 32
    }
}

impl Activity {
    fn bytes(&self) -> usize {
        let scheme = |scheme: &Scheme| {
            160 + scheme.name.len() + scheme.total.refusals.len() * 40 + scheme.last.regions.len() * 64
        };
        let surroundings = self.surroundings.as_ref().map_or(0, |text| text.len());
        64 + self.schemes.iter().map(scheme).sum::<usize>() + self.memory.len() * 64 + surroundings
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
        let command = "cargo run -p isotherm-record --example columns";
        assert!(document.contains(&table), "docs/recording.md has another table of columns than `{command}` prints");
    }
}
