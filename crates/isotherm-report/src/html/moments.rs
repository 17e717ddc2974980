//! The regions of some snapshots, as variable-length numbers.

use std::collections::HashMap;
use std::time::Duration;

use isotherm_core::survey::TargetSurvey;
use isotherm_core::{PAGE_SIZE, TargetId};
use isotherm_record::Needs;
use serde::Serialize;

use super::data::Limits;
use crate::ReportError;
use crate::extent::TargetExtent;
use crate::regions::{RegionOptions, TargetRegions};
use crate::source::{Accumulator, Seen, Takes, Visit};
use crate::surveys::LastSurveys;

/// The maximum number of snapshots of a target.
const SNAPSHOTS: u64 = 1_500;

/// The regions of some snapshots of each target, at even distances.
pub(crate) struct SampledSnapshots<'a> {
    targets: HashMap<TargetId, TargetSnapshots<'a>>,
    surveys: LastSurveys,
    /// Whether regions have access rates. If not, they have the share that was touched in place of it.
    sampled: bool,
}

/// The number of samples that stands for all of a region, if the share that was touched takes the place of the rate.
const PARTS: u32 = 1000;

struct TargetSnapshots<'a> {
    target: &'a TargetExtent,
    /// The number of snapshots to keep, and of those visited so far.
    wanted: u64,
    visited: u64,
    index: Vec<Moment>,
    bytes: Vec<u8>,
}

/// A kept snapshot.
#[derive(Serialize)]
pub(crate) struct Moment {
    /// Time and aggregation interval in milliseconds.
    time: f64,
    aggregation: f64,
    samples: u32,
    /// Where its regions begin among the bytes.
    offset: usize,
    regions: usize,
    /// The number of ranges in swap that no region covers, which follow the regions. `None` without a survey: regions
    /// then have no bytes in swap either.
    swapped: Option<usize>,
    /// Absent bytes that no region covers.
    absent: u64,
}

impl<'a> SampledSnapshots<'a> {
    pub(crate) fn new(targets: &[&'a TargetExtent], sampled: bool, limits: Limits) -> Self {
        let all: u64 = targets.iter().map(|target| target.regions).sum();
        let targets = targets.iter().map(|&target| {
            // Each target gets a share of the regions, and so of the snapshots.
            let share = limits.regions as f64 / all.max(1) as f64;
            let wanted = ((target.rows as f64 * share) as u64).clamp(1, SNAPSHOTS).min(target.rows);
            (target.id, TargetSnapshots { target, wanted, visited: 0, index: vec![], bytes: vec![] })
        });
        Self { targets: targets.collect(), surveys: LastSurveys::default(), sampled }
    }

    /// The number of kept snapshots.
    pub(crate) fn held(&self) -> u64 {
        self.targets.values().map(|held| held.index.len() as u64).sum()
    }

    /// Whether a survey was before one of them.
    pub(super) fn surveyed(&self) -> bool {
        self.targets.values().flat_map(|held| &held.index).any(|moment| moment.swapped.is_some())
    }

    /// The moments of a target, and the bytes in which their regions are.
    pub(super) fn of(&self, id: TargetId) -> (&[Moment], &[u8]) {
        self.targets.get(&id).map(|held| (&held.index[..], &held.bytes[..])).unwrap_or_default()
    }

    /// The number of all snapshots.
    pub(crate) fn rows(&self) -> u64 {
        self.targets.values().map(|held| held.target.rows).sum()
    }
}

impl Accumulator for SampledSnapshots<'_> {
    fn needs(&self) -> Needs {
        Needs::SNAPSHOTS | Needs::SURVEYS
    }

    fn takes(&self) -> Takes {
        Takes::Merged
    }

    fn event(&mut self, event: &Seen<'_>) -> Result<(), ReportError> {
        let Some(visit) = self.surveys.chosen(event) else { return Ok(()) };
        let row = &visit.row;
        let Some(held) = self.targets.get_mut(&row.target.id) else { return Ok(()) };
        let nth = |i: u64| i * held.wanted / held.target.rows.max(1);
        let take = nth(held.visited + 1) > nth(held.visited);
        held.visited += 1;
        if !take {
            return Ok(());
        }
        let last = self.surveys.before(row);
        let moment = write_moment(visit, last, self.sampled, &mut held.bytes);
        held.index.push(moment);
        Ok(())
    }
}

/// The regions of the last snapshot of each target.
pub(crate) struct LastMoments {
    surveys: LastSurveys,
    sampled: bool,
    /// Whether those of the next snapshot are wanted.
    pub(crate) wanted: bool,
    /// The moments, each with its regions as bytes.
    pub(crate) found: HashMap<TargetId, (Moment, Vec<u8>)>,
}

impl<'a> From<SampledSnapshots<'a>> for LastMoments {
    /// Those of the time after these snapshots.
    fn from(before: SampledSnapshots<'a>) -> Self {
        Self { surveys: before.surveys, sampled: before.sampled, wanted: false, found: HashMap::new() }
    }
}

impl Accumulator for LastMoments {
    fn needs(&self) -> Needs {
        Needs::SNAPSHOTS | Needs::SURVEYS
    }

    fn event(&mut self, event: &Seen<'_>) -> Result<(), ReportError> {
        let Some(visit) = self.surveys.chosen(event).filter(|_| self.wanted) else { return Ok(()) };
        let mut bytes = Vec::new();
        let moment = write_moment(visit, self.surveys.before(&visit.row), self.sampled, &mut bytes);
        self.found.insert(visit.row.target.id, (moment, bytes));
        Ok(())
    }
}

/// Writes the regions of a row after other bytes. `last` is the survey before it.
fn write_moment(visit: &Visit<'_>, last: Option<&TargetSurvey>, sampled: bool, bytes: &mut Vec<u8>) -> Moment {
    let row = &visit.row;
    let known = TargetRegions::of(visit, &RegionOptions::default(), last);
    let samples = if sampled { row.samples } else { PARTS };
    let ms = |time: Duration| time.as_nanos() as f64 / 1e6;
    let ranges = known.outside.as_ref().map(|outside| &outside.swapped[..]);
    let moment = Moment {
        time: ms(row.time),
        aggregation: ms(row.aggregation),
        samples,
        offset: bytes.len(),
        regions: known.regions.len(),
        swapped: last.map(|_| ranges.unwrap_or_default().len()),
        absent: known.outside.as_ref().map_or(0, |outside| outside.absent_bytes),
    };
    let mut writer = RangeWriter { bytes, end: 0 };
    for region in &known.regions {
        let (accesses, unobservable) = match (region.touched_bytes, region.present_bytes) {
            (Some(touched), Some(present)) if !sampled => {
                (parts(touched, present), parts(region.unobservable_bytes.unwrap_or(0), present))
            }
            _ => {
                let unobservable = region.unobservable_share * f64::from(row.samples);
                let hertz = || (region.access_hz * 1e3).round() as u64 * 2 + 1 + u64::from(region.is_saturated());
                (if region.has_frequency() { hertz() } else { 0 }, unobservable.round() as u64)
            }
        };
        let age = region.age_ns / row.aggregation.as_nanos().max(1) as u64;
        writer.range(region.start, region.end, &[accesses, unobservable, age]);
        if last.is_some() {
            writer.numbers(&[places(region.swapped_bytes), places(region.absent_bytes)]);
        }
    }
    writer.end = 0;
    for range in ranges.unwrap_or_default() {
        let numbers = [places(Some(range.swapped_bytes)), places(Some(range.absent_bytes))];
        writer.range(range.start, range.end, &numbers);
    }
    moment
}

/// Bytes as a number of pages plus one. 0 if they are not known.
fn places(bytes: Option<u64>) -> u64 {
    bytes.map_or(0, |bytes| bytes.div_ceil(PAGE_SIZE) + 1)
}

/// Writes ranges with numbers. Each range begins where the one before has ended, or above.
struct RangeWriter<'a> {
    bytes: &'a mut Vec<u8>,
    /// The page after the last range.
    end: u64,
}

impl RangeWriter<'_> {
    fn range(&mut self, start: u64, end: u64, numbers: &[u64]) {
        let (first, size) = (start / PAGE_SIZE, (end - start).div_ceil(PAGE_SIZE));
        self.numbers(&[first.saturating_sub(self.end), size]);
        self.numbers(numbers);
        self.end = first + size;
    }

    fn numbers(&mut self, numbers: &[u64]) {
        numbers.iter().for_each(|&number| write_number(self.bytes, number));
    }
}

/// A share in [`PARTS`].
fn parts(part: u64, of: u64) -> u64 {
    (part as f64 / of.max(1) as f64 * f64::from(PARTS)).round() as u64
}

/// Writes seven bits per byte, the lowest first. All bytes but the last have their highest bit set.
fn write_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}
