//! The regions of snapshots: sorted, filtered, one table or one line of JSON for each snapshot and target.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{AddrRange, TargetId, units};
use isotherm_record::{TargetInfo, pid_column};
use serde::Serialize;

use crate::ReportError;
use crate::source::{Seen, Selection, Source, View, walk};
use crate::space::shown_name;

/// By what regions are sorted.
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

/// A lower and an upper bound, both inclusive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds<T> {
    /// At least.
    pub min: Option<T>,
    /// At most.
    pub max: Option<T>,
}

impl<T> Default for Bounds<T> {
    fn default() -> Self {
        Self { min: None, max: None }
    }
}

impl<T: PartialOrd> Bounds<T> {
    fn hold(&self, value: T) -> bool {
        self.min.as_ref().is_none_or(|min| value >= *min) && self.max.as_ref().is_none_or(|max| value <= *max)
    }
}

/// Which regions are told, and in which order.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RegionOptions {
    /// Only the snapshot that speaks for this time; of pictures, the last one if there is none given.
    pub at: Option<Duration>,
    /// The order.
    pub sort: Sort,
    /// Bounds of the access rate, 0 to 1.
    pub rate: Bounds<f64>,
    /// Bounds of the age.
    pub age: Bounds<Duration>,
    /// Bounds of the size in bytes.
    pub size: Bounds<u64>,
}

/// A region as it is told.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Region {
    /// Its first address.
    pub start: u64,
    /// The address after its last.
    pub end: u64,
    /// In how many samples it was found accessed.
    pub nr_accesses: u32,
    /// The share of its samples that found it accessed, 0 to 1.
    pub access_rate: f64,
    /// For how long the access frequency has stayed as it is.
    pub age_ns: u64,
    /// The share of its samples in which it could not be observed, 0 to 1.
    pub unobservable_share: f64,
    /// How many of its bytes are mapped.
    pub mapped_bytes: u64,
    /// The name that most of its mapped bytes have.
    pub name: Arc<str>,
}

impl Region {
    /// Its size, mapped or not.
    pub fn size(&self) -> u64 {
        self.end - self.start
    }
}

/// The regions of one target in one snapshot.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TargetRegions {
    /// Since the recording's start.
    pub time_ns: u64,
    /// The aggregation interval.
    pub aggregation_ns: u64,
    /// Samples an aggregation: the highest possible `nr_accesses`.
    pub samples: u32,
    /// Which target: its pid, or 0 for physical memory.
    pub pid: u32,
    #[serde(skip)]
    id: TargetId,
    /// Its regions.
    pub regions: Vec<Region>,
    /// What the target is.
    #[serde(skip)]
    pub info: Arc<TargetInfo>,
}

impl TargetRegions {
    /// What is asked for of one row.
    pub fn of(seen: &Seen<'_>, options: &RegionOptions) -> Self {
        let row = seen.row;
        let mut regions: Vec<Region> = vec![];
        let mut named = 0;
        // Pieces come region by region; a region between two mappings has none, and is not told.
        let mut last: Option<AddrRange> = None;
        for piece in seen.pieces() {
            if last != Some(piece.region.range) {
                last = Some(piece.region.range);
                named = 0;
                let range = seen.clip(piece.region.range).unwrap_or(piece.region.range);
                let age = (row.aggregation.as_nanos() as u64).saturating_mul(piece.region.age.into());
                regions.push(Region {
                    start: range.start(),
                    end: range.end(),
                    nr_accesses: piece.region.nr_accesses,
                    access_rate: piece.region.access_rate(row.samples).min(1.0),
                    age_ns: age,
                    unobservable_share: piece.region.unobservable_share(row.samples).min(1.0),
                    mapped_bytes: 0,
                    name: piece.mapping.label(),
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
        regions.retain(|region| {
            options.rate.hold(region.access_rate)
                && options.age.hold(Duration::from_nanos(region.age_ns))
                && options.size.hold(region.size())
        });
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
            info: row.info.clone(),
        }
    }

    /// Which target.
    pub fn id(&self) -> TargetId {
        self.id
    }
}

/// Narrows a selection to one snapshot: the one that speaks for `at`, which is the first that ends at or after
/// it, or without `at` the last one.
///
/// # Errors
/// When the recording, as far as selected, does not reach to `at`.
pub fn one_snapshot(
    source: &dyn Source,
    selection: &Selection,
    at: Option<Duration>,
) -> Result<Selection, ReportError> {
    let mut found = Moments { at, ..Moments::default() };
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
struct Moments {
    at: Option<Duration>,
    first: Option<Duration>,
    covers: Option<Duration>,
    last: Duration,
    slack: Duration,
}

impl View for Moments {
    fn add(&mut self, seen: &Seen<'_>) -> Result<(), ReportError> {
        if seen.chosen {
            let time = seen.row.time;
            self.first.get_or_insert(time);
            self.last = time;
            self.slack = seen.row.aggregation;
            if self.at.is_some_and(|at| time >= at) {
                self.covers.get_or_insert(time);
            }
        }
        Ok(())
    }
}
