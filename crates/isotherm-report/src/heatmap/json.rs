//! The heatmap as JSON.

use std::time::Duration;

use isotherm_core::TargetId;
use isotherm_record::pid_column;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value, json};

use super::{Cell, Columns, Heatmap, TargetMap};
use crate::extent::shown_name;
use crate::measure::Measure;
use crate::placement::Placement;

/// The share with four decimals. The detour by f64 makes 0.1 appear as 0.1 in JSON.
fn rounded(share: f32) -> f64 {
    (f64::from(share) * 1e4).round() / 1e4
}

impl Serialize for Heatmap {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let columns = Columns { start: self.start, end: self.end, count: self.columns };
        let edges: Vec<u64> = (0..=self.columns).map(|column| columns.start_of(column).as_nanos() as u64).collect();
        let ns = |time: Duration| time.as_nanos() as u64;
        let bounds = self.intervals.bounds();
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("measure", self.measure.name())?;
        map.serialize_entry("interval_min_ns", &bounds.map(|(least, _)| ns(least)))?;
        map.serialize_entry("interval_max_ns", &bounds.map(|(_, most)| ns(most)))?;
        map.serialize_entry("rates_interval_ns", &self.most_hz().map(|_| ns(self.reference)))?;
        map.serialize_entry("time_edges_ns", &edges)?;
        map.serialize_entry("targets", &self.targets)?;
        map.end()
    }
}

/// A value for each cell of a target, in a list for each row. There may be a million cells, so that they are written as
/// they are computed.
struct Matrix<'a, F> {
    target: &'a TargetMap,
    value: F,
}

/// A row of it.
struct Row<'a, F> {
    matrix: &'a Matrix<'a, F>,
    row: usize,
}

impl<F: Fn(usize, usize) -> Option<f64>> Serialize for Matrix<'_, F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((0..self.target.axis.rows).map(|row| Row { matrix: self, row }))
    }
}

impl<F: Fn(usize, usize) -> Option<f64>> Serialize for Row<'_, F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Matrix { target, value } = self.matrix;
        serializer.collect_seq((0..target.columns.count).map(|column| value(self.row, column)))
    }
}

impl TargetMap {
    /// A value for each cell that has one.
    fn cells(&self, value: impl Fn(Cell) -> Option<f64>) -> impl Serialize {
        Matrix { target: self, value: move |row, column| self.cell(row, column).and_then(&value) }
    }

    /// A share for each cell with memory in a known place. `None` without surveys.
    fn shares(&self, share: impl Fn(Placement) -> Option<f64>) -> Option<impl Serialize> {
        let share = move |row, column| self.placement(row, column).and_then(&share).map(|share| rounded(share as f32));
        self.at_end.is_some().then_some(Matrix { target: self, value: share })
    }
}

impl Serialize for TargetMap {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
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
        let physical = self.id == TargetId::PhysicalMemory;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("pid", &pid_column(self.id))?;
        map.serialize_entry("command", &self.info.command)?;
        map.serialize_entry("areas", &areas)?;
        map.serialize_entry("rows", &rows)?;
        map.serialize_entry("resident_bytes", &self.at_end.map(|bytes| bytes.present))?;
        map.serialize_entry("swapped_bytes", &self.at_end.and_then(|bytes| bytes.swapped))?;
        map.serialize_entry("absent_bytes", &self.at_end.and_then(|bytes| bytes.absent))?;
        map.serialize_entry("swapped", &self.shares(|placement| placement.swapped))?;
        map.serialize_entry("absent", &self.shares(|placement| (!physical).then(|| placement.absent())))?;
        let rates = self.cells(|cell| cell.has_evidence().then(|| rounded(cell.rate)));
        map.serialize_entry("unobservable", &self.cells(|cell| Some(rounded(cell.unobservable))))?;
        map.serialize_entry("unknown", &self.cells(|cell| Some(rounded(cell.unknown))))?;
        match self.measure {
            Measure::Rate => {
                let hz = self.cells(|cell| cell.has_evidence().then(|| rounded(cell.hz)));
                map.serialize_entry("rates", &rates)?;
                map.serialize_entry("rates_hz", &hz)?;
            }
            Measure::Touched => map.serialize_entry("touched", &rates)?,
            Measure::IdleTime => {
                let idle =
                    self.cells(|cell| cell.has_evidence().then(|| (cell.age.as_secs_f64() * 10.0).round() / 10.0));
                map.serialize_entry("idle_s", &idle)?;
            }
        }
        map.end()
    }
}
