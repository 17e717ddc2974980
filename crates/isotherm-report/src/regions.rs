//! The regions of snapshots, filtered and sorted. Each snapshot and target makes one table, or one line of JSON.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::survey::TargetSurvey;
use isotherm_core::{AddrRange, Frequency, TargetId, units};
use isotherm_record::{Needs, TargetInfo, pid_column};
use schemars::JsonSchema;
use serde::Serialize;

use crate::ReportError;
use crate::extent::shown_name;
use crate::outside::Outside;
use crate::source::{Accumulator, Seen, Selection, Source, Visit, walk};

/// The order of regions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// Lowest address first.
    #[default]
    Address,
    /// Highest access rate first.
    Rate,
    /// Oldest first.
    Age,
    /// Largest first.
    Size,
}

impl Sort {
    /// Each order with its name on the command line and what it is.
    pub const NAMES: [(Self, &'static str, &'static str); 4] = [
        (Self::Address, "address", "Lowest address first"),
        (Self::Rate, "rate", "Highest access rate first"),
        (Self::Age, "age", "Oldest first"),
        (Self::Size, "size", "Largest first"),
    ];
}

/// A lower and an upper limit, both inclusive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits<T> {
    /// The lower limit.
    pub min: Option<T>,
    /// The upper limit.
    pub max: Option<T>,
}

impl<T> Default for Limits<T> {
    fn default() -> Self {
        Self { min: None, max: None }
    }
}

impl<T: PartialOrd> Limits<T> {
    fn is_none(&self) -> bool {
        self.min.is_none() && self.max.is_none()
    }

    fn hold(&self, value: T) -> bool {
        self.min.as_ref().is_none_or(|min| value >= *min) && self.max.as_ref().is_none_or(|max| value <= *max)
    }
}

/// Which regions are shown, and in which order.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RegionOptions {
    /// Only the snapshot that covers this time. A picture shows the last snapshot if this is `None`.
    pub at: Option<Duration>,
    /// The order.
    pub sort: Sort,
    /// Limits of the access rate, 0 to 1.
    pub rate: Limits<f64>,
    /// Limits of the age.
    pub age: Limits<Duration>,
    /// Limits of the size in bytes.
    pub size: Limits<u64>,
}

/// A region of the report.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Region {
    /// The first address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// The number of samples that found it accessed.
    pub nr_accesses: u32,
    /// The number of samples that were taken of it: the evidence for the rate.
    pub nr_samples: u32,
    /// The share of samples that found it accessed, 0 to 1.
    pub access_rate: f64,
    /// How often a page is accessed, in hertz, by samples of several lengths and by surveys. Where the recording does
    /// not tell, `nr_accesses` divided by the aggregation interval.
    pub access_hz: f64,
    /// The factor within which `access_hz` is right in 19 of 20 cases. `None` if it is not known, and if `access_hz` is
    /// only the least that there may be.
    pub hz_factor: Option<f64>,
    #[serde(skip)]
    is_least_hz: bool,
    #[serde(skip)]
    has_hz: bool,
    /// The age: the time for which the access rate has been about the same.
    pub age_ns: u64,
    /// The share of samples that could not be observed, 0 to 1.
    pub unobservable_share: f64,
    /// The mapped bytes of the region.
    pub mapped_bytes: u64,
    /// The name of most of its mapped bytes.
    pub name: Arc<str>,
    /// Bytes in memory, by the last survey; `None` without one, as the next five. If only a part of the region is
    /// selected, they are still those of the whole region.
    pub present_bytes: Option<u64>,
    /// Bytes that were accessed between the last two surveys.
    pub touched_bytes: Option<u64>,
    /// Bytes that could not be observed.
    pub unobservable_bytes: Option<u64>,
    /// Bytes whose accesses are not known.
    pub unknown_bytes: Option<u64>,
    /// Bytes in swap. `None` also if the survey does not know.
    pub swapped_bytes: Option<u64>,
    /// Mapped bytes that are neither in memory nor known to be in swap. `None` without a survey, and for physical
    /// memory.
    pub absent_bytes: Option<u64>,
}

impl Region {
    /// Whether something tells its frequency. A process that has just joined may not have been sampled yet.
    pub fn has_frequency(&self) -> bool {
        self.nr_samples > 0 || self.nr_accesses > 0 || self.has_hz
    }

    /// Whether `access_hz` is only the least that there may be.
    pub fn is_saturated(&self) -> bool {
        self.is_least_hz
    }

    /// The size, including unmapped bytes.
    pub fn size(&self) -> u64 {
        self.end - self.start
    }
}

/// The regions of one target in one snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct TargetRegions {
    /// The time since the start of the recording.
    pub time_ns: u64,
    /// The aggregation interval.
    pub aggregation_ns: u64,
    /// Samples per aggregation interval: the highest possible `nr_accesses`.
    pub samples: u32,
    /// The process ID of the target, or 0 for physical memory.
    pub pid: u32,
    #[serde(skip)]
    id: TargetId,
    /// The regions.
    pub regions: Vec<Region>,
    /// What no region covers. `None` without a survey, and for physical memory.
    pub outside: Option<Outside>,
    /// The command and start of the target.
    #[serde(skip)]
    pub info: Arc<TargetInfo>,
}

impl TargetRegions {
    /// The regions of one row that the options select, and what of its target they do not cover, by the last survey
    /// before it.
    pub fn of(visit: &Visit<'_>, options: &RegionOptions, survey: Option<&TargetSurvey>) -> Self {
        let row = &visit.row;
        let mut regions: Vec<Region> = vec![];
        let mut named = 0;
        // The pieces of a region are consecutive. A region without mapped bytes has none, and is left out.
        let mut last: Option<AddrRange> = None;
        for piece in visit.pieces() {
            if last != Some(piece.region.range) {
                last = Some(piece.region.range);
                named = 0;
                let range = visit.clip(piece.region.range).unwrap_or(piece.region.range);
                let age = (row.aggregation.as_nanos() as u64).saturating_mul(piece.region.age.into());
                regions.push(Region {
                    start: range.start(),
                    end: range.end(),
                    nr_accesses: piece.region.nr_accesses,
                    nr_samples: piece.region.nr_samples,
                    access_rate: piece.region.access_rate(row.samples).min(1.0),
                    access_hz: piece.region.access_hz(row.aggregation),
                    hz_factor: piece.region.frequency.filter(|of| of.hz() > 0.0).and_then(Frequency::factor),
                    has_hz: piece.region.frequency.is_some(),
                    is_least_hz: piece.region.is_least_hz(row.samples),
                    age_ns: age,
                    unobservable_share: piece.region.unobservable_share(row.samples).min(1.0),
                    mapped_bytes: 0,
                    name: piece.mapping.label(),
                    present_bytes: piece.region.pages.map(|pages| pages.present),
                    touched_bytes: piece.region.pages.map(|pages| pages.touched),
                    unobservable_bytes: piece.region.pages.map(|pages| pages.unobservable),
                    unknown_bytes: piece.region.pages.map(|pages| pages.unknown),
                    swapped_bytes: piece.region.pages.and_then(|pages| pages.swapped.known()),
                    absent_bytes: None,
                });
            }
            if let Some(region) = regions.last_mut() {
                region.mapped_bytes += piece.range.size();
                if piece.range.size() > named {
                    named = piece.range.size();
                    region.name = shown_name(&piece.mapping.label()).into();
                }
            }
        }
        for region in regions.iter_mut().filter(|_| row.target.id != TargetId::PhysicalMemory) {
            let kept = region.present_bytes.map(|present| present + region.swapped_bytes.unwrap_or(0));
            region.absent_bytes = kept.map(|kept| region.mapped_bytes.saturating_sub(kept));
        }
        regions.retain(|region| {
            options.rate.hold(region.access_rate)
                && options.age.hold(Duration::from_nanos(region.age_ns))
                && options.size.hold(region.size())
        });
        let mut outside = survey.and_then(|survey| Outside::of(visit, survey));
        if let Some(outside) = &mut outside {
            // Memory without a region has no rate and no age.
            let any = options.rate.is_none() && options.age.is_none();
            outside.swapped.retain(|range| any && options.size.hold(range.end - range.start));
        }
        match options.sort {
            Sort::Address => {}
            Sort::Rate => regions.sort_by_key(|region| Reverse(region.nr_accesses)),
            Sort::Age => regions.sort_by_key(|region| Reverse(region.age_ns)),
            Sort::Size => regions.sort_by_key(|region| Reverse(region.size())),
        }
        Self {
            time_ns: row.time.as_nanos() as u64,
            aggregation_ns: row.aggregation.as_nanos() as u64,
            samples: row.samples,
            pid: pid_column(row.target.id),
            id: row.target.id,
            regions,
            outside,
            info: row.info.clone(),
        }
    }

    /// The target.
    pub fn id(&self) -> TargetId {
        self.id
    }
}

/// Narrows a selection to one snapshot: the one that covers `at`, which is the first that ends at or after it. Without
/// `at`, that is the last one.
///
/// # Errors
/// If the selection ends before `at`.
pub fn one_snapshot(
    source: &dyn Source,
    selection: &Selection,
    at: Option<Duration>,
) -> Result<Selection, ReportError> {
    let mut found = SnapshotSearch { at, ..SnapshotSearch::default() };
    walk(source, selection, &mut [&mut found])?;
    let time = match (found.covers, at) {
        (Some(time), _) => time,
        (None, Some(at)) if at > found.last.saturating_add(found.slack) => {
            return Err(ReportError::NothingMatches {
                asked: format!("time {}", units::duration(at)),
                holds: format!(
                    "snapshots from {} to {}",
                    units::duration(found.first.unwrap_or_default()),
                    units::duration(found.last)
                ),
            });
        }
        _ => found.last,
    };
    Ok(Selection { time: Some(time.saturating_sub(Duration::from_nanos(1))..time), ..selection.clone() })
}

#[derive(Default)]
struct SnapshotSearch {
    at: Option<Duration>,
    first: Option<Duration>,
    covers: Option<Duration>,
    last: Duration,
    slack: Duration,
}

impl Accumulator for SnapshotSearch {
    fn needs(&self) -> Needs {
        Needs { snapshots: true, ..Needs::NOTHING }
    }

    fn event(&mut self, event: &Seen<'_>) -> Result<(), ReportError> {
        let Seen::Row(visit) = event else { return Ok(()) };
        if visit.chosen {
            let time = visit.row.time;
            self.first.get_or_insert(time);
            self.last = time;
            self.slack = visit.row.aggregation;
            if self.at.is_some_and(|at| time >= at) {
                self.covers.get_or_insert(time);
            }
        }
        Ok(())
    }
}
