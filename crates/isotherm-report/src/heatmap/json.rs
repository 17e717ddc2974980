//! The heatmap as JSON.

use std::time::Duration;

use isotherm_core::TargetId;
use isotherm_record::pid_column;
use serde::Serialize;
use serde_json::{Value, json};

use super::{Cell, Heatmap, TargetMap};
use crate::extent::shown_name;
use crate::measure::Measure;
use crate::placement::Placement;

/// The share with four decimals. The detour by f64 makes 0.1 appear as 0.1 in JSON.
fn rounded(share: f32) -> f64 {
    (f64::from(share) * 1e4).round() / 1e4
}

impl Serialize for Heatmap {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let edges: Vec<u64> = (0..=self.columns).map(|column| self.column_time(column).as_nanos() as u64).collect();
        let targets: Vec<Value> = self.targets.iter().map(TargetMap::json).collect();
        let ns = |time: Duration| time.as_nanos() as u64;
        let bounds = self.intervals.bounds();
        json!({
            "measure": self.measure.name(),
            "interval_min_ns": bounds.map(|(least, _)| ns(least)),
            "interval_max_ns": bounds.map(|(_, most)| ns(most)),
            "rates_interval_ns": self.most_hz().map(|_| ns(self.reference)),
            "time_edges_ns": edges,
            "targets": targets,
        })
        .serialize(serializer)
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
        let each = |value: &dyn Fn(usize, usize) -> Option<f64>| -> Value {
            (0..self.axis.rows)
                .map(|row| (0..self.columns).map(|column| value(row, column)).collect::<Value>())
                .collect()
        };
        let matrix = |value: &dyn Fn(Cell) -> Option<f64>| each(&|row, column| self.cell(row, column).and_then(value));
        let place = |share: &dyn Fn(Placement) -> Option<f64>| match self.at_end {
            Some(_) => {
                each(&|row, column| self.placement(row, column).and_then(share).map(|share| rounded(share as f32)))
            }
            None => Value::Null,
        };
        let physical = self.id == TargetId::PhysicalMemory;
        let mut out = json!({
            "pid": pid_column(self.id),
            "command": self.info.command,
            "areas": areas,
            "rows": rows,
            "resident_bytes": self.at_end.map(|bytes| bytes.present),
            "swapped_bytes": self.at_end.and_then(|bytes| bytes.swapped),
            "absent_bytes": self.at_end.and_then(|bytes| bytes.absent),
            "swapped": place(&|placement| placement.swapped),
            "absent": place(&|placement| (!physical).then(|| placement.absent())),
        });
        let rates = || matrix(&|cell| (cell.unobservable < 1.0).then(|| rounded(cell.rate)));
        match self.measure {
            Measure::Rate => {
                out["rates"] = rates();
                out["rates_hz"] = matrix(&|cell| (cell.unobservable < 1.0).then(|| rounded(cell.hz)));
                out["unobservable"] = matrix(&|cell| Some(rounded(cell.unobservable)));
            }
            Measure::Touched => out["touched"] = rates(),
            Measure::IdleTime => out["idle_s"] = matrix(&|cell| Some((cell.age.as_secs_f64() * 10.0).round() / 10.0)),
        }
        out
    }
}
