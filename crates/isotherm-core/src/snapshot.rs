//! Snapshots: all regions at the end of one aggregation interval.

use std::sync::Arc;
use std::time::Duration;

use crate::Figures;
use crate::survey::PageHistory;
use crate::{AddrRange, Frequency, Mapping, PAGE_SIZE, TargetId};

/// All regions of all targets at the end of one aggregation interval, and the work of finding them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// When the aggregation ended, since the start of the run.
    pub time: Duration,
    /// The aggregation interval that was asked for.
    pub aggregation: Duration,
    /// The number of sampling rounds in an aggregation: the highest possible `nr_accesses`.
    pub samples: u32,
    /// The targets, one entry each.
    pub targets: Vec<TargetSnapshot>,
    /// Sampling rounds since the last snapshot.
    pub rounds: u32,
    /// How many of these rounds had samples.
    pub sampled_rounds: u32,
    /// Pages read in these rounds.
    pub reads: u64,
    /// Pages read in the round that read most.
    pub max_reads: u32,
    /// Pages cleared in these rounds.
    pub clears: u64,
    /// The pages of the targets, as the last survey found them. Empty without a survey, and when read from a recording.
    pub histories: Vec<(TargetId, Arc<PageHistory>)>,
}

/// The regions of one target at the end of one aggregation interval.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetSnapshot {
    /// Which target.
    pub id: TargetId,
    /// Its regions: sorted, disjoint and page-aligned. A region may cover unmapped space between two mappings.
    pub regions: Vec<RegionSnapshot>,
    /// Its mappings as they were read last.
    pub mappings: Arc<[Mapping]>,
}

/// One region at the end of one aggregation interval.
///
/// Statistics of a region that was merged from several are the means of theirs, weighted by size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionSnapshot {
    /// The addresses of the region.
    pub range: AddrRange,
    /// How many samples found the region accessed, of [`Snapshot::samples`].
    ///
    /// It is counted in the samples that were taken and could be observed, and scaled to a whole aggregation. If
    /// samples were spared because the region is steady, they count as in the aggregation before. A region with no
    /// observable sample has 0.
    pub nr_accesses: u32,
    /// How many samples were really taken in this aggregation, at most [`Snapshot::samples`]: the evidence behind
    /// the other counts. A steady region has fewer than the others, and so has a region that is new. Where the
    /// source does not tell (the kernel's DAMON, old recordings) it is `Snapshot::samples`.
    pub nr_samples: u32,
    /// How many samples could not be observed, of [`Snapshot::samples`]; scaled as `nr_accesses` is.
    pub nr_unobservable: u32,
    /// For how many aggregations the access frequency has stayed the same.
    pub age: u32,
    /// How often a page is accessed, by samples of several lengths and by surveys. `None` if there were none, or if the
    /// source does not tell (the kernel's DAMON).
    pub frequency: Option<Frequency>,
    /// What the last survey found in the region. `None` without a survey.
    pub pages: Option<Figures>,
}

impl Snapshot {
    /// The regions of all targets.
    pub fn regions(&self) -> impl Iterator<Item = &RegionSnapshot> {
        self.targets.iter().flat_map(|target| &target.regions)
    }

    /// The pages of a target, as the last survey found them.
    pub fn history(&self, id: TargetId) -> Option<&PageHistory> {
        self.histories.iter().find(|(of, _)| *of == id).map(|(_, history)| &**history)
    }

    /// The working set of all targets, in bytes.
    pub fn working_set(&self) -> u64 {
        self.targets.iter().map(TargetSnapshot::working_set).sum()
    }

    /// The bytes of all targets that may have been accessed within `window`: present memory that surveys have not found
    /// idle for so long. Without surveys, the working set.
    pub(crate) fn in_use_within(&self, window: Duration) -> u64 {
        if self.histories.is_empty() {
            return self.working_set();
        }
        let Some(all) = AddrRange::new(0, u64::MAX) else { return 0 };
        let in_use = |history: &PageHistory| {
            let idle: u64 = history.idle_ranges(all, window).iter().map(|(range, _)| range.size()).sum();
            (history.present() * PAGE_SIZE).saturating_sub(idle)
        };
        self.histories.iter().map(|(_, history)| in_use(history)).sum()
    }
}

impl RegionSnapshot {
    /// A region of which nothing is known: no sample was taken, and there was no survey.
    pub fn new(range: AddrRange) -> Self {
        Self { range, nr_accesses: 0, nr_samples: 0, nr_unobservable: 0, age: 0, frequency: None, pages: None }
    }

    /// The size of the region in bytes: what is present of it, or all of it without a survey.
    pub fn size(&self) -> u64 {
        self.pages.map_or(self.range.size(), |pages| pages.present)
    }

    /// The access rate, 0 to 1: `nr_accesses` divided by the `samples` of an aggregation.
    #[inline]
    pub fn access_rate(&self, samples: u32) -> f64 {
        f64::from(self.nr_accesses) / f64::from(samples.max(1))
    }

    /// How often a page is accessed, in hertz: the [frequency](Self::frequency) if it is known. Otherwise the accesses
    /// that samples found in a second: `nr_accesses` divided by the aggregation interval. A sample finds one access at
    /// most, so that this is the least there was, and nothing is known of the most where the
    /// [rate](Self::access_rate) is 1.
    pub fn access_hz(&self, aggregation: Duration) -> f64 {
        let found = || f64::from(self.nr_accesses) / aggregation.as_secs_f64().max(1e-9);
        self.frequency.map_or_else(found, Frequency::hz)
    }

    /// Whether [`access_hz`](Self::access_hz) is only the least that there may be.
    pub fn is_least_hz(&self, samples: u32) -> bool {
        self.frequency.map_or(self.nr_accesses >= samples, Frequency::is_least)
    }

    /// The bytes, out of `mapped` bytes of the region, that are neither in memory nor known to be in swap. `None`
    /// without a survey.
    pub fn absent(&self, mapped: u64) -> Option<u64> {
        self.pages.map(|pages| mapped.saturating_sub(pages.kept()))
    }

    /// The share of the region that could not be observed, 0 to 1.
    #[inline]
    pub fn unobservable_share(&self, samples: u32) -> f64 {
        f64::from(self.nr_unobservable) / f64::from(samples.max(1))
    }
}

impl TargetSnapshot {
    /// Each region, in order, with the number of its bytes that are present, or mapped without a survey.
    pub fn mapped_bytes(&self) -> impl Iterator<Item = (&RegionSnapshot, u64)> {
        self.regions_with_mappings().map(|(region, mappings)| {
            let parts = mappings.iter().filter_map(|mapping| mapping.range.intersection(region.range));
            let mapped = || parts.map(AddrRange::size).sum();
            (region, region.pages.map_or_else(mapped, |pages| pages.present))
        })
    }

    /// The working set in bytes: what was accessed since the survey before. Without a survey, the mapped bytes of all
    /// regions with at least one access.
    pub fn working_set(&self) -> u64 {
        let of = |(region, mapped): (&RegionSnapshot, u64)| match region.pages {
            Some(pages) => pages.touched,
            None if region.nr_accesses > 0 => mapped,
            None => 0,
        };
        self.mapped_bytes().map(of).sum()
    }

    /// The bytes that could not be observed. Without a survey, of each region its share of unobservable `samples`.
    pub fn unobservable_bytes(&self, samples: u32) -> u64 {
        let of = |(region, mapped): (&RegionSnapshot, u64)| match region.pages {
            Some(pages) => pages.unobservable as f64,
            None => mapped as f64 * region.unobservable_share(samples),
        };
        self.mapped_bytes().map(of).sum::<f64>() as u64
    }
}
