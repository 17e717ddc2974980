//! What a snapshot took.

use std::time::Duration;

use arrow_array::ArrayRef;
use arrow_buffer::NullBuffer;
use arrow_schema::{ArrowError, DataType, Field, Fields};

use crate::column::Column;
use crate::table::{Build, Description, Read, Table, Value, columns_of, structs, table};

table! {
    /// What one snapshot took, of all targets together.
    #[derive(Copy, Default, Eq)]
    pub struct Cost, CostBuilder, CostReader {
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
    #[derive(Copy, Default, Eq)]
    pub struct NotAfforded, NotAffordedBuilder, NotAffordedReader {
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

impl NotAfforded {
    /// What one or the other did not suffice for.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            surveys: self.surveys || other.surveys,
            samples: self.samples || other.samples,
            mappings: self.mappings || other.mappings,
            clears: self.clears || other.clears,
        }
    }
}

impl Cost {
    /// Adds the cost of another snapshot. Counts and times are summed; one that is not known counts as zero, unless
    /// both are not known. The pages read in a round, the bytes that could not be observed and the longest hold become
    /// the larger of both.
    pub fn add(&mut self, other: &Self) {
        self.sampled_rounds = sum(self.sampled_rounds, other.sampled_rounds, u32::saturating_add);
        self.other_cpu_ns = sum(self.other_cpu_ns, other.other_cpu_ns, u64::saturating_add);
        self.longest_hold_ns = sum(self.longest_hold_ns, other.longest_hold_ns, u64::max);
        self.holds_ns = sum(self.holds_ns, other.holds_ns, u64::saturating_add);
        self.limited = sum(self.limited, other.limited, |one, other| one || other);
        self.not_afforded = sum(self.not_afforded, other.not_afforded, NotAfforded::or);
        self.rounds = self.rounds.saturating_add(other.rounds);
        self.late_rounds = self.late_rounds.saturating_add(other.late_rounds);
        self.reads = self.reads.saturating_add(other.reads);
        self.max_reads = self.max_reads.max(other.max_reads);
        self.clears = self.clears.saturating_add(other.clears);
        self.cpu_ns = self.cpu_ns.saturating_add(other.cpu_ns);
        self.unobservable_bytes = self.unobservable_bytes.max(other.unobservable_bytes);
    }

    /// The CPU time of all threads of isotherm since the last snapshot.
    pub fn cpu_time(&self) -> Duration {
        Duration::from_nanos(self.cpu_ns.saturating_add(self.other_cpu_ns.unwrap_or(0)))
    }

    /// How many aggregations of `samples` are missing between this snapshot and the one before it. Their rounds are in
    /// [`rounds`](Self::rounds). Only the kernel's DAMON loses aggregations: where rounds were late, the aggregation
    /// was a longer one.
    pub fn lost_aggregations(&self, samples: u32) -> u64 {
        if self.late_rounds > 0 {
            return 0;
        }
        (self.rounds / samples.max(1)).saturating_sub(1).into()
    }
}

fn sum<T>(one: Option<T>, other: Option<T>, add: fn(T, T) -> T) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(add(one, other)),
        (one, other) => one.or(other),
    }
}
