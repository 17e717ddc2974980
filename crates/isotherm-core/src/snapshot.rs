//! Snapshots: all regions at the end of one aggregation interval.

use std::sync::Arc;
use std::time::Duration;

use crate::{AddrRange, Mapping, TargetId};

/// All regions of all targets at the end of one aggregation interval, and what finding them took.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Since the start of the run.
    pub time: Duration,
    /// The aggregation interval that was asked for.
    pub aggregation: Duration,
    /// Samples an aggregation: the highest possible `nr_accesses`.
    pub samples: u32,
    /// One entry a target.
    pub targets: Vec<TargetSnapshot>,
    /// Sampling rounds since the last snapshot.
    pub rounds: u32,
    /// Pages read in these rounds, all together.
    pub reads: u64,
    /// Pages read in the round that read most.
    pub max_reads: u32,
    /// Pages cleared in these rounds.
    pub clears: u64,
}

/// The regions of one target at the end of one aggregation interval.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetSnapshot {
    /// Which target.
    pub id: TargetId,
    /// Its regions: sorted, disjoint, page-aligned. Between mappings they may cover unmapped space.
    pub regions: Vec<RegionSnapshot>,
    /// Its mappings as they were read last.
    pub mappings: Arc<[Mapping]>,
}

/// One region at the end of one aggregation interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionSnapshot {
    /// Where it lies.
    pub range: AddrRange,
    /// In how many samples it was found accessed, of [`Snapshot::samples`].
    pub nr_accesses: u32,
    /// How many samples were really taken in this aggregation, at most [`Snapshot::samples`]. A steady region has fewer.
    pub nr_samples: u32,
    /// In how many samples it could not be observed, of [`Snapshot::samples`].
    pub nr_unobservable: u32,
    /// For how many aggregations the access frequency has stayed as it is.
    pub age: u32,
}

impl Snapshot {
    /// The regions of all targets.
    pub fn regions(&self) -> impl Iterator<Item = &RegionSnapshot> {
        self.targets.iter().flat_map(|target| &target.regions)
    }

    /// The working set of all targets, in bytes.
    pub fn working_set(&self) -> u64 {
        self.targets.iter().map(TargetSnapshot::working_set).sum()
    }
}

impl RegionSnapshot {
    /// The access rate: `nr_accesses` of `samples`, 0 to 1.
    pub fn access_rate(&self, samples: u32) -> f64 {
        f64::from(self.nr_accesses) / f64::from(samples.max(1))
    }

    /// The share of the region that could not be observed, 0 to 1.
    pub fn unobservable_share(&self, samples: u32) -> f64 {
        f64::from(self.nr_unobservable) / f64::from(samples.max(1))
    }
}

impl TargetSnapshot {
    /// How many bytes of each region are mapped, in the order of the regions.
    pub fn mapped_bytes(&self) -> impl Iterator<Item = (&RegionSnapshot, u64)> {
        let mut rest = &self.mappings[..];
        self.regions.iter().map(move |region| {
            let passed = rest.iter().take_while(|m| m.range.end() <= region.range.start()).count();
            rest = &rest[passed..];
            let bytes = rest.iter().map_while(|m| m.range.intersection(region.range)).map(AddrRange::size).sum();
            (region, bytes)
        })
    }

    /// The working set: mapped bytes of regions that were found accessed at least once.
    pub fn working_set(&self) -> u64 {
        self.mapped_bytes().filter(|(region, _)| region.nr_accesses > 0).map(|(_, bytes)| bytes).sum()
    }

    /// Mapped bytes that could not be observed, by each region's share of `samples`.
    pub fn unobservable_bytes(&self, samples: u32) -> u64 {
        self.mapped_bytes().map(|(region, bytes)| bytes as f64 * region.unobservable_share(samples)).sum::<f64>() as u64
    }
}
