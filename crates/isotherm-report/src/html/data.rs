//! The data of the page's script: cells as bytes.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use isotherm_core::TargetId;
use isotherm_core::survey::BLOCK_SIZE;
use isotherm_record::Mark;
use serde_json::{Value, json};

use crate::Measure;
use crate::Terminal;
use crate::axis::AxisResolution;
use crate::command::program_of;
use crate::extent::{Extent, shown_name};
use crate::heatmap::{HIGHEST_RATE, Heatmap, IN_SWAP, IS_ABSENT, Memo, NOTHING, Plan, TargetMap};
use crate::svg::palette;
use crate::text::cut;
use crate::text::title::title;

use super::moments::SampledSnapshots;

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

/// An age as a byte, on a logarithmic scale from 0 to weeks, with an error of about four per cent.
pub(super) fn age_code(age: std::time::Duration) -> u8 {
    ((age.as_secs_f64() * 1e3 + 1.0).log2() * 8.0).round().min(255.0) as u8
}

/// A rate in Hz as a byte, on a logarithmic scale from 0 to millions, with an error of about four per cent.
pub(super) fn hz_code(hz: f32) -> u8 {
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
            let (index, regions) = moments.of(target.id);
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
                "moments": index,
                "regions": BASE64.encode(regions),
            })
        })
        .collect();
    let mark = |mark: &Mark| json!([mark.time.as_secs_f64(), cut_at_end(&crate::sanitise(&mark.text))]);
    json!({
        "start": heatmap.start.as_secs_f64(),
        "end": heatmap.end.as_secs_f64(),
        "measure": heatmap.measure.title(),
        "surveyed": moments.surveyed(),
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
