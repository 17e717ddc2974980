//! The columns of a recording. These declarations are the only place that names them.
//!
//! `docs/recording.md` has the same columns, with the same descriptions; a test compares both.

mod activity;
mod allocations;
mod cost;
mod figures;
mod panel;
mod survey;

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_buffer::NullBuffer;
use arrow_schema::{ArrowError, DataType, Field, Fields};

use crate::column::Column;
use crate::table::{Build, Description, Read, Table, Value, columns_of, structs, table};

pub(crate) use activity::{Acted, Action, Activity, Last, Memory, Refusal, Scheme, System, Total};
pub(crate) use allocations::{Allocations, Call, Frame, Stack};
pub use cost::{Cost, NotAfforded};
pub(crate) use figures::Figures;
pub(crate) use panel::{Estimate, MappingPanel, Panel, TargetPanel};
pub(crate) use survey::{Block, Kinds, OnNode, Sums, Survey, SurveyCost, SurveyTotal, Surveyed};

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
/// The columns of a region and of merged snapshots that only surveys fill.
pub(crate) const OF_SURVEYS: [&str; 2] = ["figures", "surveys"];

table! {
    /// A row.
    pub(crate) struct Row, RowBuilder, RowReader {
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
    /// A target in several snapshots, merged, and in the surveys of their time.
    pub(crate) struct Merged, MergedBuilder, MergedReader {
        /// the time of the last of them, in nanoseconds since the start of the run
        "time_ns" => time_ns: u64,
        /// the regions
        "regions" => regions: Vec<Region>,
        /// what the surveys of their time found in blocks; null if there are none
        "surveys" => surveys: Option<MergedSurveys>,
    }
}

table! {
    /// What several surveys found in a target, merged.
    pub(crate) struct MergedSurveys, MergedSurveysBuilder, MergedSurveysReader {
        /// the time of the last of them, in nanoseconds since the start of the run
        "time_ns" => time_ns: u64,
        /// the time that they cover: the sum of `survey.interval_ns`
        "interval_ns" => interval_ns: u64,
        /// the indexes of the mappings of which the last one found something in memory or in swap
        "mappings" => mappings: Vec<u32>,
        /// the blocks: means over the time, and when they were accessed last
        "blocks" => blocks: Vec<Block>,
    }
}

table! {
    /// The identity of a target.
    pub(crate) struct Id, IdBuilder, IdReader {
        /// `process`, `physical`, `cgroup` or `page_cache`
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
    pub(crate) struct Target, TargetBuilder, TargetReader {
        /// the command line of the process, with arguments joined by spaces; `physical memory` for physical memory, and
        /// `page cache` for page cache of files
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
    pub(crate) struct Mapping, MappingBuilder, MappingReader {
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
    pub(crate) struct Region, RegionBuilder, RegionReader {
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
        /// accesses of a page in a second, the most likely number by samples of several lengths and by surveys,
        /// [rounded](#frequencies) to the digits that its error leaves; null if the source does not tell, as with the
        /// probe `damon`
        "hz" => hz: Option<f32>,
        /// ten times the factor, at least 1, within which `hz` is right in 19 of 20 cases, [rounded up](#frequencies);
        /// null if `hz` is only the least that there may be, and if there is none
        "hz_factor_tenths" => hz_factor_tenths: Option<u16>,
        /// what the last survey found in the region; null without one
        "figures" => figures: Option<Figures>,
    }
}

table! {
    /// A mark.
    pub(crate) struct Mark, MarkBuilder, MarkReader {
        /// when the mark was made, in nanoseconds since the start of the run
        "time_ns" => time_ns: u64,
        /// what it is called, at most 256 bytes
        "text" => text: Arc<str>,
    }
}

table! {
    /// Things of one kind that the recorder could not take in.
    pub(crate) struct Missed, MissedBuilder, MissedReader {
        /// when the last of them was, in nanoseconds since the start of the run
        "time_ns" => time_ns: u64,
        /// what is missing: `snapshots`, `surveys`, `marks` or `calls` that mapped memory; `activities`, which were
        /// added up into the next one; or `processes` that came and went unobserved
        "kind" => kind: Arc<str>,
        /// how many of them
        "count" => count: u64,
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
        let surveys = self.merged.iter().flat_map(|merged| &merged.surveys);
        let surveyed: usize = surveys.map(|of| of.blocks.len() * 32 + of.mappings.len() * 4).sum();
        let command = self.target.as_ref().map_or(0, |target| target.command.len());
        let activity = self.activity.as_ref().map_or(0, Activity::bytes);
        let mark = self.mark.as_ref().map_or(0, |mark| mark.text.len());
        let allocations = self.allocations.as_ref().map_or(0, Allocations::bytes);
        192 + mappings
            + regions
            + surveyed
            + command
            + activity
            + mark
            + self.survey.as_ref().map_or(0, Survey::bytes)
            + allocations
            + self.panel.as_ref().map_or(0, Panel::bytes)
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
        let document = include_str!("../../../../docs/recording.md");
        let table = column_table();
        let command = "cargo run -p isotherm-record --example columns";
        assert!(document.contains(&table), "docs/recording.md has another table of columns than `{command}` prints");
    }
}
