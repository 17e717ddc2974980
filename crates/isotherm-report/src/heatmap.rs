//! The heatmap: the access rate of all memory over time, as cells of a grid.

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::TargetId;
use isotherm_core::survey::{BLOCK_PAGES, SurveySnapshot};
use isotherm_record::{TargetInfo, pid_column};
use serde::Serialize;
use serde_json::{Value, json};

use crate::ReportError;
use crate::axis::{Axis, AxisResolution};
use crate::extent::{Extent, TargetExtent, shown_name};
use crate::measure::Measure;
use crate::source::{Selection, Share, Source, View, Visit, walk};
use crate::surveys::mapped_blocks;

/// Into how many cells a heatmap is divided.
#[derive(Clone, Copy, Debug)]
pub struct Resolution {
    /// Columns, for all targets.
    pub columns: usize,
    /// Rows of each target.
    pub axis: AxisResolution,
}

/// The memory of a row in the time of a column.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cell {
    /// The access rate, 0 to 1: the share of observed samples that found an access, weighted by bytes and time. With
    /// other measures their place on the scale from 0 (cold) to 1 (hot).
    pub rate: f32,
    /// The share of unobservable samples, 0 to 1.
    pub unobservable: f32,
    /// The mean age: the time for which the access rate has been about the same. With surveys, the mean idle time.
    pub age: Duration,
}

impl Cell {
    /// Whether most samples are unobservable, so that the rate means little.
    pub fn is_unobservable(&self) -> bool {
        self.unobservable > 0.5
    }
}

/// The sums behind a cell.
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

/// The heatmap of one target.
pub struct TargetMap {
    /// The target.
    pub id: TargetId,
    /// Its command and start.
    pub info: Arc<TargetInfo>,
    /// The address axis. Each of its rows is a row of cells, low addresses first.
    pub axis: Axis,
    columns: usize,
    sums: Vec<Sums>,
    measure: Measure,
}

impl TargetMap {
    /// The cell of a row (0 has the lowest addresses) and a column. None if nothing was mapped or recorded there.
    pub fn cell(&self, row: usize, column: usize) -> Option<Cell> {
        let cell = self.sums.get(row * self.columns + column)?.cell()?;
        Some(if self.measure == Measure::IdleTime { Cell { rate: Measure::heat(cell.age), ..cell } } else { cell })
    }
}

/// The access rate over time and addresses, for each target.
pub struct Heatmap {
    /// The start of the time axis.
    pub start: Duration,
    /// The end of the time axis.
    pub end: Duration,
    /// The number of columns.
    pub columns: usize,
    /// The targets.
    pub targets: Vec<TargetMap>,
    /// What the cells measure.
    pub measure: Measure,
}

impl Heatmap {
    /// Computes the heatmap of a selection with this measure, in two walks.
    ///
    /// # Errors
    /// If the source cannot be read, has nothing in the selection, or has no surveys although the measure needs them.
    pub fn of(
        source: &dyn Source,
        selection: &Selection,
        measure: Measure,
        resolution: impl FnOnce(&Extent) -> Resolution,
    ) -> Result<Self, ReportError> {
        if measure == Measure::Rate {
            return Self::new(source, selection, resolution);
        }
        let extent = Extent::of_surveys(source, selection)?.ok_or(ReportError::NotSurveyed { measure })?;
        let resolution = resolution(&extent);
        let mut heatmap = Self { measure, ..Self::blank(&extent, extent.targets.iter(), resolution) };
        for record in source.surveys().map_err(ReportError::Source)? {
            heatmap.add_survey(&record.map_err(ReportError::Source)?.survey, selection);
        }
        heatmap.targets.iter_mut().for_each(|target| target.measure = measure);
        Ok(heatmap)
    }

    fn add_survey(&mut self, survey: &SurveySnapshot, selection: &Selection) {
        // The first survey does not tell when memory was accessed.
        if survey.interval.is_zero() || !selection.holds_time(survey.time) {
            return;
        }
        let columns = self.columns_of(survey.time.saturating_sub(survey.interval), survey.time);
        for found in survey.targets.iter().filter(|found| selection.holds_target(found.id)) {
            let Some(map) = self.targets.iter_mut().find(|map| map.id == found.id) else { continue };
            for (range, _, block) in mapped_blocks(found, selection.address) {
                let present = f64::from(block.present) / BLOCK_PAGES as f64;
                let touched = f64::from(block.touched) / f64::from(block.present.max(1));
                for (row, bytes) in map.axis.rows_of(range) {
                    for &(column, seconds) in &columns {
                        let weight = bytes as f64 * present * seconds;
                        let sums = &mut map.sums[row * map.columns + column];
                        sums.weight += weight;
                        sums.observed += weight;
                        sums.accessed += weight * touched;
                        sums.age += weight * block.idle.as_secs_f64();
                    }
                }
            }
        }
    }

    /// Computes the heatmap of a selection, in two walks.
    ///
    /// # Errors
    /// If the source cannot be read or has nothing in the selection.
    pub fn new(
        source: &dyn Source,
        selection: &Selection,
        resolution: impl FnOnce(&Extent) -> Resolution,
    ) -> Result<Self, ReportError> {
        let mut extent = Extent::default();
        walk(source, selection, &mut [&mut extent])?;
        let extent = extent.finish();
        let resolution = resolution(&extent);
        let mut heatmap = Self::blank(&extent, extent.targets.iter(), resolution);
        walk(source, selection, &mut [&mut heatmap])?;
        Ok(heatmap)
    }

    /// A heatmap without data.
    pub fn blank<'a>(extent: &Extent, targets: impl Iterator<Item = &'a TargetExtent>, resolution: Resolution) -> Self {
        let (start, end) = extent.time.unwrap_or_default();
        let columns = resolution.columns.max(1);
        let targets = targets
            .map(|target| {
                let axis = Axis::new(&target.mapped, resolution.axis);
                let sums = vec![Sums::default(); axis.rows * columns];
                TargetMap { id: target.id, info: target.info.clone(), axis, columns, sums, measure: Measure::Rate }
            })
            .collect();
        Self { start, end, columns, targets, measure: Measure::Rate }
    }

    /// The start of a column. That of the column after the last is the end.
    pub fn column_time(&self, column: usize) -> Duration {
        let span = (self.end - self.start).as_nanos();
        self.start + Duration::from_nanos((span * column as u128 / self.columns as u128) as u64)
    }

    /// The columns that overlap a span of time, each with the seconds of the overlap.
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
    fn add(&mut self, visit: &Visit<'_>) -> Result<(), ReportError> {
        if !visit.chosen {
            return Ok(());
        }
        let columns = self.columns_of(visit.since, visit.row.time);
        let Some(map) = self.targets.iter_mut().find(|map| map.id == visit.row.target.id) else { return Ok(()) };
        let aggregation = visit.row.aggregation.as_secs_f64();
        for piece in visit.pieces() {
            let share = Share::of(piece.region, visit.row.samples);
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

/// The share with four decimals. The detour by f64 makes 0.1 appear as 0.1 in JSON.
fn rounded(share: f32) -> f64 {
    (f64::from(share) * 1e4).round() / 1e4
}

impl Serialize for Heatmap {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let edges: Vec<u64> = (0..=self.columns).map(|column| self.column_time(column).as_nanos() as u64).collect();
        let targets: Vec<Value> = self.targets.iter().map(TargetMap::json).collect();
        json!({ "measure": self.measure.name(), "time_edges_ns": edges, "targets": targets }).serialize(serializer)
    }
}

impl TargetMap {
    fn json(&self) -> Value {
        let areas: Vec<Value> = self
            .axis
            .areas
            .iter()
            .map(|area| {
                let mappings: Vec<Value> = area
                .mapped
                .iter()
                .map(|named| {
                    json!({ "start": named.range.start(), "end": named.range.end(), "name": shown_name(&named.name) })
                })
                .collect();
                json!({
                    "start": area.start(),
                    "end": area.end(),
                    "bytes": area.bytes,
                    "first_row": area.first_row,
                    "rows": area.rows,
                    "mappings": mappings,
                })
            })
            .collect();
        let rows: Vec<Value> = (0..self.axis.rows)
            .filter_map(|row| {
                let (area, inside) = self.axis.row(row)?;
                let (from, to) = (area.row_offset(inside), area.row_offset(inside + 1));
                let end = area.address_at(to.saturating_sub(1)) + 1;
                Some(json!({
                    "start": area.address_at(from),
                    "end": end,
                    "bytes": to - from,
                    "name": shown_name(&self.axis.row_name(row)),
                }))
            })
            .collect();
        let matrix = |value: &dyn Fn(Cell) -> Option<f64>| -> Value {
            (0..self.axis.rows)
                .map(|row| (0..self.columns).map(|column| self.cell(row, column).and_then(value)).collect::<Value>())
                .collect()
        };
        let mut out = json!({
            "pid": pid_column(self.id),
            "command": self.info.command,
            "areas": areas,
            "rows": rows,
        });
        let rates = || matrix(&|cell| (cell.unobservable < 1.0).then(|| rounded(cell.rate)));
        match self.measure {
            Measure::Rate => {
                out["rates"] = rates();
                out["unobservable"] = matrix(&|cell| Some(rounded(cell.unobservable)));
            }
            Measure::Touched => out["touched"] = rates(),
            Measure::IdleTime => out["idle_s"] = matrix(&|cell| Some((cell.age.as_secs_f64() * 10.0).round() / 10.0)),
        }
        out
    }
}
