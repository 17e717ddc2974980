//! The data of the page's script: cells as bytes, and the regions of some snapshots as variable-length numbers.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use isotherm_core::survey::BLOCK_SIZE;
use isotherm_core::{PAGE_SIZE, TargetId};
use isotherm_record::{Mark, Needs};
use serde::Serialize;
use serde_json::{Value, json};

use crate::Measure;
use crate::axis::AxisResolution;
use crate::command::program_of;
use crate::extent::{Extent, TargetExtent, shown_name};
use crate::heatmap::{HIGHEST_RATE, Heatmap, IN_SWAP, IS_ABSENT, Memo, NOTHING, Plan, TargetMap};
use crate::regions::{RegionOptions, TargetRegions};
use crate::source::{Accumulator, Seen, Takes};
use crate::surveys::LastSurveys;
use crate::svg::palette;
use crate::text::cut;
use crate::text::title::title;
use crate::{ReportError, Terminal};

/// How much of a recording a page has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The maximum number of targets with a heatmap. Those with most memory are chosen.
    pub(crate) targets: usize,
    /// The maximum number of cells of all targets together. Each takes three bytes, and with surveys another three.
    pub(crate) cells: usize,
    /// The approximate maximum of regions of all snapshots and targets together. Each takes about ten bytes.
    pub(crate) regions: u64,
}

impl Limits {
    /// Those of a report, which is made once.
    pub(crate) const REPORT: Self = Self { targets: 100, cells: 600_000, regions: 100_000 };
    /// Those of the live page, which asks again and again.
    pub(crate) const LIVE: Self = Self { targets: 40, cells: 200_000, regions: 20_000 };
}

/// The maximum number of snapshots of a target.
const SNAPSHOTS: u64 = 1_500;
/// The maximum number of named pieces of address space of all targets together. Smaller pieces share a name.
const PIECES: usize = 6_000;
/// The maximum number of marks: the first ones.
pub(crate) const MARKS: usize = 2_000;
/// The maximum length of a name.
const NAME: usize = 160;

/// The maximum number of rows of a target, so that blocks of 2 MiB can be told apart in up to 8 GiB.
const ROWS: usize = 4096;

/// The targets of the page, and the resolution of their heatmaps. With surveys, a row is no more than a block of theirs
/// if that leaves a target enough columns.
pub(crate) fn plan(extent: &Extent, surveyed: bool, limits: Limits) -> Plan {
    let columns = usize::try_from(extent.snapshots).unwrap_or(usize::MAX).clamp(1, 1600);
    Plan::largest(extent, limits.targets, columns, |target, share| {
        let cells = limits.cells as f64 * share;
        let few = (cells / 4.0).sqrt();
        let mapped: u64 = target.mapped.iter().map(|named| named.range.size()).sum();
        let blocks = if surveyed { mapped.div_ceil(BLOCK_SIZE) as f64 } else { 0.0 };
        let rows = few.clamp(12.0, 300.0).max(blocks.min(cells / 100.0).min(ROWS as f64)) as usize;
        let snapshots = usize::try_from(target.rows).unwrap_or(usize::MAX).max(1);
        let columns = ((cells / rows as f64) as usize).clamp(20, 1600).min(snapshots);
        let axis = AxisResolution { rows, rows_of_area: (rows / 24).clamp(1, 12), areas: 8, group: 1 };
        (axis, Some(columns))
    })
}

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
struct Moment {
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
        let row = visit.row;
        let Some(held) = self.targets.get_mut(&row.target.id) else { return Ok(()) };
        let nth = |i: u64| i * held.wanted / held.target.rows.max(1);
        let take = nth(held.visited + 1) > nth(held.visited);
        held.visited += 1;
        if !take {
            return Ok(());
        }
        let last = self.surveys.before(row);
        let known = TargetRegions::of(visit, &RegionOptions::default(), last);
        let samples = if self.sampled { row.samples } else { PARTS };
        let ms = |time: std::time::Duration| time.as_nanos() as f64 / 1e6;
        let ranges = known.outside.as_ref().map(|outside| &outside.swapped[..]);
        held.index.push(Moment {
            time: ms(row.time),
            aggregation: ms(row.aggregation),
            samples,
            offset: held.bytes.len(),
            regions: known.regions.len(),
            swapped: last.map(|_| ranges.unwrap_or_default().len()),
            absent: known.outside.as_ref().map_or(0, |outside| outside.absent_bytes),
        });
        let mut writer = RangeWriter { bytes: &mut held.bytes, end: 0 };
        for region in &known.regions {
            let (accesses, unobservable) = match (region.touched_bytes, region.present_bytes) {
                (Some(touched), Some(present)) if !self.sampled => {
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
        Ok(())
    }
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

/// An age as a byte, on a logarithmic scale from 0 to weeks, with an error of about four per cent.
fn age_code(age: std::time::Duration) -> u8 {
    ((age.as_secs_f64() * 1e3 + 1.0).log2() * 8.0).round().min(255.0) as u8
}

/// A rate in Hz as a byte, on a logarithmic scale from 0 to millions, with an error of about four per cent.
fn hz_code(hz: f32) -> u8 {
    ((f64::from(hz) * 1e3 + 1.0).log2() * 8.0).round().min(255.0) as u8
}

/// All data of the script. `touched` has the shares that surveys found touched in the cells of the heatmap.
pub(crate) fn data(
    heatmap: &Heatmap,
    touched: Option<&Heatmap>,
    moments: &SampledSnapshots<'_>,
    marks: &[Mark],
) -> Value {
    let mut names = Names::default();
    let has_touched = touched.is_some();
    let pieces = PIECES / heatmap.targets.len().max(1);
    let targets: Vec<Value> = heatmap
        .targets
        .iter()
        .map(|target| {
            let held = moments.targets.get(&target.id);
            let touched = touched.and_then(|touched| touched.targets.iter().find(|map| map.id == target.id));
            let layers = Layers::of(target);
            let touched = target.codes().iter().enumerate().map(|(nth, &code)| match code {
                elsewhere @ (IN_SWAP | IS_ABSENT) => elsewhere,
                _ => touched.and_then(|touched| touched.codes().get(nth).copied()).unwrap_or(NOTHING),
            });
            let (places, samples) = (heatmap.has_places(), heatmap.has_samples());
            json!({
                "title": cut_at_end(&title(target.id, &target.info)),
                "program": cut_at_end(&program_of(target.id, &target.info.command)),
                "pid": target.id.pid(),
                "start": target.columns.start.as_secs_f64(),
                "end": target.columns.end.as_secs_f64(),
                "columns": target.columns.count,
                "bytes": target.most_bytes,
                "rows": target.axis.rows,
                "areas": areas(target, &mut names, pieces),
                "size": target.size(),
                "physical": target.id == TargetId::PhysicalMemory,
                "cells": BASE64.encode(target.codes()),
                "touched": has_touched.then(|| BASE64.encode(touched.collect::<Vec<_>>())),
                "ages": BASE64.encode(layers.ages),
                "hz": samples.then(|| BASE64.encode(layers.hz)),
                "present": places.then(|| BASE64.encode(layers.present)),
                "swapped": places.then(|| BASE64.encode(layers.swapped)),
                "moments": held.map(|held| &held.index[..]).unwrap_or_default(),
                "regions": BASE64.encode(held.map(|held| &held.bytes[..]).unwrap_or_default()),
            })
        })
        .collect();
    let mark = |mark: &Mark| json!([mark.time.as_secs_f64(), cut_at_end(&crate::sanitise(&mark.text))]);
    json!({
        "start": heatmap.start.as_secs_f64(),
        "end": heatmap.end.as_secs_f64(),
        "measure": heatmap.measure.title(),
        "surveyed": moments.targets.values().flat_map(|held| &held.index).any(|moment| moment.swapped.is_some()),
        "marks": marks.iter().take(MARKS).map(mark).collect::<Vec<_>>(),
        "targets": targets,
        "names": names.list,
        "scale": Measure::HERTZ,
        "palette": BASE64.encode(palette(heatmap.measure)),
    })
}

/// A byte for each cell of each kind, row by row from the lowest addresses.
struct Layers {
    ages: Vec<u8>,
    hz: Vec<u8>,
    present: Vec<u8>,
    swapped: Vec<u8>,
}

impl Layers {
    fn of(target: &TargetMap) -> Self {
        let columns = target.columns.count;
        let blank = || vec![0; target.axis.rows * columns];
        let mut layers = Self { ages: blank(), hz: blank(), present: blank(), swapped: blank() };
        let (mut age_code, mut hz_code) = (Memo::new(age_code), Memo::new(hz_code));
        target.each_cell(|row, column| {
            let at = row * columns + column;
            if let Some((hz, age)) = target.hz_and_age(row, column) {
                (layers.ages[at], layers.hz[at]) = (age_code.of(age), hz_code.of(hz));
            }
            let placement = target.placement(row, column);
            layers.present[at] = share_code(placement.map(|of| of.present));
            layers.swapped[at] = share_code(placement.and_then(|of| of.swapped));
        });
        layers
    }
}

/// A share as a byte, as [`Shown::code`](crate::heatmap::Shown::code) has rates.
fn share_code(share: Option<f64>) -> u8 {
    share.map_or(NOTHING, |share| (share * f64::from(HIGHEST_RATE)).round() as u8)
}

/// The areas: the mapped bytes below each row, and the mapped pieces as start, size and index of the name.
fn areas(target: &TargetMap, names: &mut Names, most: usize) -> Value {
    let mut sizes: Vec<u64> =
        target.axis.areas.iter().flat_map(|area| area.mapped.iter().map(|named| named.range.size())).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let least = sizes.get(most).copied().unwrap_or(0);
    let area = |area: &crate::axis::Area| {
        let edges: Vec<u64> = (0..=area.rows).map(|row| area.row_offset(row)).collect();
        let mut pieces: Vec<(u64, u64, usize)> = vec![];
        for named in &area.mapped {
            let (start, size) = (named.range.start(), named.range.size());
            let name =
                names.number(if size > least || least == 0 { shown_name(&named.name) } else { "(small mappings)" });
            match pieces.last_mut() {
                Some((s, n, same)) if *same == name && *s + *n == start => *n += size,
                _ => pieces.push((start, size, name)),
            }
        }
        // Small mappings with gaps between them may still be too many; the smallest are left out.
        if pieces.len() > most {
            pieces.retain(|&(_, size, _)| size > least);
        }
        json!({ "first": area.first_row, "rows": area.rows, "bytes": area.bytes, "edges": edges, "pieces": pieces })
    };
    target.axis.areas.iter().map(area).collect()
}

/// A list of distinct names.
#[derive(Default)]
struct Names {
    list: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, usize>,
}

impl Names {
    fn number(&mut self, name: &str) -> usize {
        let name: Arc<str> = shortened(name).into();
        *self.numbers.entry(name.clone()).or_insert_with(|| {
            self.list.push(name);
            self.list.len() - 1
        })
    }
}

/// A text that is sanitised, cut at its end to at most `NAME` columns.
fn cut_at_end(text: &str) -> String {
    cut(text, NAME, &Terminal::default())
}

/// The name, sanitised, and cut at its start to at most `NAME` characters.
fn shortened(name: &str) -> String {
    let name = crate::sanitise(name);
    let skip = name.chars().count().saturating_sub(NAME);
    if skip == 0 { name.into_owned() } else { std::iter::once('…').chain(name.chars().skip(skip + 1)).collect() }
}
