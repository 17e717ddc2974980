//! What the page's script is given: cells as bytes, regions of some moments as variable-length numbers.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use isotherm_core::{PAGE_SIZE, TargetId};
use serde_json::{Value, json};

use crate::ReportError;
use crate::axis::Fineness;
use crate::colour::of_rate;
use crate::heatmap::{Heatmap, Resolution, TargetMap};
use crate::source::{Seen, View};
use crate::space::{Place, Survey, shown_name};
use crate::svg::{HIGHEST_RATE, code};
use crate::text::target_title;

/// Cells of all targets together, at most; two bytes each.
const CELLS: usize = 600_000;
/// Regions of all moments and targets together, about; ten bytes each.
const REGIONS: u64 = 100_000;
/// Moments of a target, at most.
const MOMENTS: u64 = 1_500;
/// Named pieces of address space of all targets together, at most; smaller ones share a name.
const PIECES: usize = 6_000;
/// Characters of a name, at most.
const NAME: usize = 160;

/// How finely the page's heatmaps are divided.
pub(crate) fn resolution(survey: &Survey, targets: usize) -> Resolution {
    let cells = CELLS / targets.max(1);
    let rows = ((cells as f64 / 4.0).sqrt() as usize).clamp(40, 300);
    let columns = (cells / rows).clamp(40, 1600).min(usize::try_from(survey.snapshots).unwrap_or(usize::MAX).max(1));
    Resolution { columns, axis: Fineness { rows, rows_of_area: (rows / 24).max(1), areas: 8, group: 1 } }
}

/// The regions of some snapshots of each target, evenly chosen.
pub(crate) struct Moments<'a> {
    targets: HashMap<TargetId, Held<'a>>,
}

struct Held<'a> {
    place: &'a Place,
    /// How many snapshots are held, and how many were seen.
    wanted: u64,
    seen: u64,
    /// Time in milliseconds, aggregation in milliseconds, samples, offset into the bytes, regions.
    index: Vec<(f64, f64, u32, usize, usize)>,
    bytes: Vec<u8>,
}

impl<'a> Moments<'a> {
    pub(crate) fn new(places: &[&'a Place]) -> Self {
        let all: u64 = places.iter().map(|place| place.regions).sum();
        let targets = places.iter().map(|&place| {
            // Each target has its share of the regions, and so of the moments.
            let share = REGIONS as f64 / all.max(1) as f64;
            let wanted = ((place.rows as f64 * share) as u64).clamp(1, MOMENTS).min(place.rows);
            (place.id, Held { place, wanted, seen: 0, index: vec![], bytes: vec![] })
        });
        Self { targets: targets.collect() }
    }

    /// Moments that are held.
    pub(crate) fn held(&self) -> u64 {
        self.targets.values().map(|held| held.index.len() as u64).sum()
    }

    /// Moments that there are.
    pub(crate) fn rows(&self) -> u64 {
        self.targets.values().map(|held| held.place.rows).sum()
    }
}

impl View for Moments<'_> {
    fn add(&mut self, seen: &Seen<'_>) -> Result<(), ReportError> {
        if !seen.chosen {
            return Ok(());
        }
        let row = seen.row;
        let Some(held) = self.targets.get_mut(&row.target.id) else { return Ok(()) };
        let nth = |i: u64| i * held.wanted / held.place.rows.max(1);
        let take = nth(held.seen + 1) > nth(held.seen);
        held.seen += 1;
        if !take {
            return Ok(());
        }
        let offset = held.bytes.len();
        let (mut regions, mut end) = (0, 0);
        for region in &row.target.regions {
            let Some(range) = seen.clip(region.range) else { continue };
            let (start, size) = (range.start() / PAGE_SIZE, range.size().div_ceil(PAGE_SIZE));
            let numbers = [
                start.saturating_sub(end),
                size,
                u64::from(region.nr_accesses),
                u64::from(region.nr_unobservable),
                u64::from(region.age),
            ];
            for number in numbers {
                write_number(&mut held.bytes, number);
            }
            end = start + size;
            regions += 1;
        }
        let ms = |time: std::time::Duration| time.as_nanos() as f64 / 1e6;
        held.index.push((ms(row.time), ms(row.aggregation), row.samples, offset, regions));
        Ok(())
    }
}

/// Seven bits a byte, the lowest first; all bytes but the last have their highest bit set.
fn write_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// An age as a byte: logarithmic, from 0 over milliseconds to weeks, to about four per cent.
fn age_code(age: std::time::Duration) -> u8 {
    ((age.as_secs_f64() * 1e3 + 1.0).log2() * 8.0).round().min(255.0) as u8
}

/// Everything for the script.
pub(crate) fn data(heatmap: &Heatmap, moments: &Moments<'_>) -> Value {
    let mut names = Names::default();
    let pieces = PIECES / heatmap.targets.len().max(1);
    let targets: Vec<Value> = heatmap
        .targets
        .iter()
        .map(|target| {
            let held = moments.targets.get(&target.id);
            json!({
                "title": shortened(&target_title(target.id, &target.info)),
                "bytes": target.axis.bytes(),
                "rows": target.axis.rows,
                "areas": areas(target, &mut names, pieces),
                "cells": BASE64.encode(each_cell(heatmap, target, code)),
                "ages": BASE64.encode(each_cell(heatmap, target, |cell| cell.map_or(0, |c| age_code(c.age)))),
                "moments": held.map(|held| &held.index[..]).unwrap_or_default(),
                "regions": BASE64.encode(held.map(|held| &held.bytes[..]).unwrap_or_default()),
            })
        })
        .collect();
    let palette: Vec<u8> = (0..=HIGHEST_RATE).flat_map(|i| of_rate(f64::from(i) / f64::from(HIGHEST_RATE))).collect();
    json!({
        "start": heatmap.start.as_secs_f64(),
        "end": heatmap.end.as_secs_f64(),
        "columns": heatmap.columns,
        "targets": targets,
        "names": names.list,
        "palette": BASE64.encode(palette),
    })
}

/// A byte for each cell: row by row from the lowest addresses.
fn each_cell(heatmap: &Heatmap, target: &TargetMap, byte: impl Fn(Option<crate::heatmap::Cell>) -> u8) -> Vec<u8> {
    (0..target.axis.rows)
        .flat_map(|row| (0..heatmap.columns).map(move |column| (row, column)))
        .map(|(row, column)| byte(target.cell(row, column)))
        .collect()
}

/// The areas: how many mapped bytes lie below each row, and what is mapped as start, size and number of the name.
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
        // Small mappings with gaps between them are still many: beyond the bound they are not told.
        if pieces.len() > most {
            pieces.retain(|&(_, size, _)| size > least);
        }
        json!({ "first": area.first_row, "rows": area.rows, "bytes": area.bytes, "edges": edges, "pieces": pieces })
    };
    target.axis.areas.iter().map(area).collect()
}

/// Names, each once.
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

/// Made harmless, and no longer than it is worth.
fn shortened(name: &str) -> String {
    let name = crate::sanitise(name);
    let skip = name.chars().count().saturating_sub(NAME);
    if skip == 0 { name.into_owned() } else { std::iter::once('…').chain(name.chars().skip(skip + 1)).collect() }
}
