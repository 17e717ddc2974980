//! What clients get to see of a snapshot.

use isotherm_core::{RegionSnapshot, Snapshot, TargetSnapshot};
use isotherm_record::SnapshotRecord;
use isotherm_report::Share;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ns;

/// The newest snapshot of a group.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct SnapshotView {
    /// Since the run began.
    pub time_ns: u64,
    /// The same since the Unix epoch.
    pub unix_ns: u64,
    /// The time that it covers.
    pub aggregation_ns: u64,
    /// The processes, each with its regions.
    pub targets: Vec<TargetRegions>,
}

/// The regions of a process.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct TargetRegions {
    /// The process ID. 0 for physical memory.
    pub pid: u32,
    /// The command line, or the name.
    pub command: String,
    /// The regions, by address.
    pub regions: Vec<RegionView>,
}

/// A region: neighbouring memory of about one access frequency.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct RegionView {
    /// The first address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// How many samples found it accessed, of those of an aggregation.
    pub nr_accesses: u32,
    /// The share of the samples that found it accessed, 0 to 1.
    pub access_rate: f64,
    /// How often a page is accessed in a second.
    pub access_hz: f64,
    /// The share of the memory of which samples or surveys tell the access frequency, 0 to 1.
    pub observed_share: f64,
    /// The share of the memory that could be observed and was not, 0 to 1.
    pub unknown_share: f64,
    /// For how long the access frequency has been the same.
    pub age_ns: u64,
    /// Bytes of it that are in memory. `None` without surveys.
    pub present_bytes: Option<u64>,
    /// What the last survey found of these. `None` without surveys.
    pub pages: Option<PagesView>,
}

/// What a survey found in a region, in bytes.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct PagesView {
    /// In memory, and accessed since the survey before.
    pub touched_bytes: u64,
    /// In memory, and cannot be observed.
    pub unobservable_bytes: u64,
    /// In memory, and not yet known whether it was accessed.
    pub unknown_bytes: u64,
    /// In swap. `None` if that is not known.
    pub swapped_bytes: Option<u64>,
}

impl RegionView {
    fn new(region: &RegionSnapshot, snapshot: &Snapshot) -> Self {
        let share = Share::of(region, snapshot.samples, snapshot.aggregation);
        Self {
            start: region.range.start(),
            end: region.range.end(),
            nr_accesses: region.nr_accesses,
            access_rate: region.access_rate(snapshot.samples),
            access_hz: region.access_hz(snapshot.aggregation),
            observed_share: share.observed,
            unknown_share: share.unknown,
            age_ns: ns(snapshot.aggregation).saturating_mul(region.age.into()),
            present_bytes: region.pages.map(|pages| pages.present),
            pages: region.pages.map(|pages| PagesView {
                touched_bytes: pages.touched,
                unobservable_bytes: pages.unobservable,
                unknown_bytes: pages.unknown,
                swapped_bytes: pages.swapped.known(),
            }),
        }
    }
}

impl SnapshotView {
    /// What is shown of a snapshot of a run that began at this time since the Unix epoch.
    pub fn new(record: &SnapshotRecord, started_unix_ns: u64) -> Self {
        let snapshot = &record.snapshot;
        let target = |target: &TargetSnapshot| TargetRegions {
            pid: target.id.pid().unwrap_or(0),
            command: record.info(target.id).command.clone(),
            regions: target.regions.iter().map(|region| RegionView::new(region, snapshot)).collect(),
        };
        Self {
            time_ns: ns(snapshot.time),
            unix_ns: started_unix_ns.saturating_add(ns(snapshot.time)),
            aggregation_ns: ns(snapshot.aggregation),
            targets: snapshot.targets.iter().map(target).collect(),
        }
    }
}
