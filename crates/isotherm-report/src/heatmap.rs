//! The heatmap: the access rate of all memory over time, as cells of a grid.

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::TargetId;
use isotherm_record::{TargetInfo, pid_column};
use serde::Serialize;
use serde_json::{Value, json};

use crate::ReportError;
use crate::axis::{Axis, Fineness};
use crate::source::{Seen, Selection, Share, Source, View, walk};
use crate::space::{Place, Survey, shown_name};

/// How finely a heatmap is divided.
#[derive(Clone, Copy, Debug)]
pub struct Resolution {
    /// Columns of all targets.
    pub columns: usize,
    /// The address axis of each target.
    pub axis: Fineness,
}

/// What is known about a row's memory in a column's time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cell {
    /// The access rate of what could be observed, 0 to 1: accessed samples of observed samples, weighted by
    /// bytes and time.
    pub rate: f32,
    /// The share that could not be observed, 0 to 1.
    pub unobservable: f32,
    /// For how long the access frequency had stayed as it was, on the mean.
    pub age: Duration,
}

impl Cell {
    /// Whether more of it is in the dark than not, so that its rate says little.
    pub fn is_unobservable(&self) -> bool {
        self.unobservable > 0.5
    }
}

/// The sums that make a cell.
#[derive(Clone, Copy, Default)]
struct Sums {
    weight: f64,
    observed: f64,
    accessed: f64,
    age: f64,
}

impl Sums {
    fn cell(self) -> Option<Cell> {
        (self.weight > 0.0).then(|| Cell {
            rate: if self.observed > 0.0 { (self.accessed / self.observed).clamp(0.0, 1.0) as f32 } else { 0.0 },
            unobservable: (1.0 - self.observed / self.weight).clamp(0.0, 1.0) as f32,
            age: Duration::try_from_secs_f64(self.age / self.weight).unwrap_or(Duration::MAX),
        })
    }
}

/// One target's part of a heatmap.
pub struct TargetMap {
    /// Which target.
    pub id: TargetId,
    /// What it is.
    pub info: Arc<TargetInfo>,
    /// The address axis: a row of cells for each of its rows, low addresses first.
    pub axis: Axis,
    columns: usize,
    sums: Vec<Sums>,
}

impl TargetMap {
    /// The cell of a row (0 is the lowest addresses) and a column; `None` where nothing was mapped or recorded.
    pub fn cell(&self, row: usize, column: usize) -> Option<Cell> {
        self.sums.get(row * self.columns + column)?.cell()
    }
}

/// The access rate over time and addresses, for each target.
pub struct Heatmap {
    /// Where the time axis begins.
    pub start: Duration,
    /// Where it ends.
    pub end: Duration,
    /// Into how many columns it is divided.
    pub columns: usize,
    /// A picture for each target.
    pub targets: Vec<TargetMap>,
}

impl Heatmap {
    /// Computes the heatmap of what is selected, in two walks.
    ///
    /// # Errors
    /// When the source cannot be read or holds nothing that was asked for.
    pub fn new(
        source: &dyn Source,
        selection: &Selection,
        resolution: impl FnOnce(&Survey) -> Resolution,
    ) -> Result<Self, ReportError> {
        let mut survey = Survey::default();
        walk(source, selection, &mut [&mut survey])?;
        let survey = survey.finish();
        let resolution = resolution(&survey);
        let mut heatmap = Self::blank(&survey, survey.places.iter(), resolution);
        walk(source, selection, &mut [&mut heatmap])?;
        Ok(heatmap)
    }

    /// A heatmap without any row in it yet.
    pub fn blank<'a>(survey: &Survey, places: impl Iterator<Item = &'a Place>, resolution: Resolution) -> Self {
        let (start, end) = survey.time.unwrap_or_default();
        let columns = resolution.columns.max(1);
        let targets = places
            .map(|place| {
                let axis = Axis::new(&place.mapped, resolution.axis);
                let sums = vec![Sums::default(); axis.rows * columns];
                TargetMap { id: place.id, info: place.info.clone(), axis, columns, sums }
            })
            .collect();
        Self { start, end, columns, targets }
    }

    /// When a column begins; that of the column after the last is the end.
    pub fn column_time(&self, column: usize) -> Duration {
        let span = (self.end - self.start).as_nanos();
        self.start + Duration::from_nanos((span * column as u128 / self.columns as u128) as u64)
    }

    /// The columns that a span of time touches, each with the seconds it has of it.
    fn columns_of(&self, from: Duration, to: Duration) -> Vec<(usize, f64)> {
        let width = (self.end - self.start).as_secs_f64() / self.columns as f64;
        if width <= 0.0 {
            return vec![(0, 1.0)];
        }
        let (a, b) = ((from.saturating_sub(self.start)).as_secs_f64(), (to.saturating_sub(self.start)).as_secs_f64());
        let first = ((a / width) as usize).min(self.columns - 1);
        (first..self.columns)
            .map(|column| (column, column as f64 * width))
            .take_while(|&(_, start)| start < b)
            .map(|(column, start)| (column, (start + width).min(b) - start.max(a)))
            .filter(|&(_, seconds)| seconds > width * 1e-6)
            .collect()
    }
}

impl View for Heatmap {
    fn add(&mut self, seen: &Seen<'_>) -> Result<(), ReportError> {
        if !seen.chosen {
            return Ok(());
        }
        let columns = self.columns_of(seen.since, seen.row.time);
        let Some(map) = self.targets.iter_mut().find(|map| map.id == seen.row.target.id) else { return Ok(()) };
        let aggregation = seen.row.aggregation.as_secs_f64();
        for piece in seen.pieces() {
            let share = Share::of(piece.region, seen.row.samples);
            let age = f64::from(piece.region.age) * aggregation;
            for (row, bytes) in map.axis.rows_of(piece.range) {
                for &(column, seconds) in &columns {
                    let weight = bytes as f64 * seconds;
                    let sums = &mut map.sums[row * map.columns + column];
                    sums.weight += weight;
                    sums.observed += weight * share.observed;
                    sums.accessed += weight * share.accessed;
                    sums.age += weight * age;
                }
            }
        }
        Ok(())
    }
}

/// To four decimals, and exactly what a reader of JSON expects of, say, 0.1.
fn rounded(share: f32) -> f64 {
    (f64::from(share) * 1e4).round() / 1e4
}

impl Serialize for Heatmap {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let edges: Vec<u64> = (0..=self.columns).map(|column| self.column_time(column).as_nanos() as u64).collect();
        let targets: Vec<Value> = self.targets.iter().map(TargetMap::json).collect();
        json!({ "time_edges_ns": edges, "targets": targets }).serialize(serializer)
    }
}

impl TargetMap {
    fn json(&self) -> Value {
        let areas: Vec<Value> = self.axis.areas.iter().map(|area| {
            let mappings: Vec<Value> = area
                .mapped
                .iter()
                .map(|named| {
                    json!({ "start": named.range.start(), "end": named.range.end(), "name": shown_name(&named.name) })
                })
                .collect();
            json!({ "start": area.start(), "end": area.end(), "bytes": area.bytes, "first_row": area.first_row, "rows": area.rows, "mappings": mappings })
        }).collect();
        let rows: Vec<Value> = (0..self.axis.rows)
            .filter_map(|row| {
                let (area, inside) = self.axis.row(row)?;
                let (from, to) = (area.row_offset(inside), area.row_offset(inside + 1));
                let end = area.address_at(to.saturating_sub(1)) + 1;
                Some(json!({ "start": area.address_at(from), "end": end, "bytes": to - from, "name": shown_name(&self.axis.row_name(row)) }))
            })
            .collect();
        let matrix = |value: &dyn Fn(Cell) -> Option<f64>| -> Value {
            (0..self.axis.rows)
                .map(|row| (0..self.columns).map(|column| self.cell(row, column).and_then(value)).collect::<Value>())
                .collect()
        };
        json!({
            "pid": pid_column(self.id),
            "command": self.info.command,
            "areas": areas,
            "rows": rows,
            "rates": matrix(&|cell| (cell.unobservable < 1.0).then(|| rounded(cell.rate))),
            "unobservable": matrix(&|cell| Some(rounded(cell.unobservable))),
        })
    }
}
