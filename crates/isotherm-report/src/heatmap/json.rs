//! The heatmap as JSON.

use crate::bytes::Bytes;
use isotherm_core::TargetId;
use isotherm_record::pid_column;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use super::{Cell, Columns, Heatmap, TargetMap};
use crate::axis::Area;
use crate::extent::{Named, shown_name};
use crate::measure::Measure;
use crate::placement::Placement;
use crate::schema::{ns, serialized_as};

/// The share with four decimals. The detour by f64 makes 0.1 appear as 0.1 in JSON.
fn rounded(share: f32) -> f64 {
    (f64::from(share) * 1e4).round() / 1e4
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Heatmap")]
struct HeatmapJson<'a> {
    /// What the cells measure: `rate`, `touched` or `idle-time`.
    measure: &'static str,
    /// The shortest sampling interval; with the other measures the shortest time from a survey to the next.
    interval_min_ns: Option<u64>,
    /// The longest of them.
    interval_max_ns: Option<u64>,
    /// Column i is from edge i to edge i + 1, since the start of the recording.
    time_edges_ns: Vec<u64>,
    /// The targets, in the order in which they appear.
    targets: &'a [TargetMap],
}

serialized_as!(Heatmap, HeatmapJson<'_>);

impl<'a> From<&'a Heatmap> for HeatmapJson<'a> {
    fn from(map: &'a Heatmap) -> Self {
        let columns = Columns { start: map.start, end: map.end, count: map.columns };
        let bounds = map.intervals.bounds();
        Self {
            measure: map.measure.name(),
            interval_min_ns: bounds.map(|(least, _)| ns(least)),
            interval_max_ns: bounds.map(|(_, most)| ns(most)),
            time_edges_ns: (0..=map.columns).map(|column| ns(columns.start_of(column))).collect(),
            targets: &map.targets,
        }
    }
}

/// A value for each cell of a target, in a list for each row. There may be a million cells, so that they are written as
/// they are computed.
struct Matrix<'a> {
    target: &'a TargetMap,
    value: Box<dyn Fn(usize, usize) -> Option<f64> + 'a>,
}

/// A row of it.
struct Row<'a> {
    matrix: &'a Matrix<'a>,
    row: usize,
}

/// What a matrix is in JSON: rows of columns. Cells without a value are `null`.
type Rows = Vec<Vec<Option<f64>>>;

impl Serialize for Matrix<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((0..self.target.axis.rows).map(|row| Row { matrix: self, row }))
    }
}

impl Serialize for Row<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Matrix { target, value } = self.matrix;
        serializer.collect_seq((0..target.columns.count).map(|column| value(self.row, column)))
    }
}

impl TargetMap {
    /// A value for each cell that has one.
    fn cells<'a>(&'a self, value: impl Fn(Cell) -> Option<f64> + 'a) -> Matrix<'a> {
        Matrix { target: self, value: Box::new(move |row, column| self.cell(row, column).and_then(&value)) }
    }

    /// A value for each cell with evidence, if this is what the cells measure.
    fn measured<'a>(&'a self, measure: Measure, value: impl Fn(Cell) -> f64 + 'a) -> Option<Matrix<'a>> {
        let value = move |cell: Cell| cell.has_evidence().then(|| value(cell));
        (self.measure == measure).then(|| self.cells(value))
    }

    /// A share for each cell with memory in a known place. `None` without surveys.
    fn shares<'a>(&'a self, share: impl Fn(Placement) -> Option<f64> + 'a) -> Option<Matrix<'a>> {
        let share = move |row, column| self.placement(row, column).and_then(&share).map(|share| rounded(share as f32));
        self.at_end.is_some().then(|| Matrix { target: self, value: Box::new(share) })
    }
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TargetMap")]
struct TargetJson<'a> {
    /// The process ID, or 0 for physical memory.
    pid: u32,
    /// The command line.
    command: &'a str,
    /// The address axis from low to high, divided at large gaps.
    areas: Vec<AreaJson>,
    /// One for each row of the matrices, lowest addresses first.
    rows: Vec<RowJson>,
    /// Bytes in memory at the last survey. `None` without surveys.
    resident_bytes: Option<u64>,
    /// Bytes in swap at the last survey. `None` if the surveys do not tell.
    swapped_bytes: Bytes,
    /// Mapped bytes that are neither in memory nor known to be in swap, at the last survey. `None` without surveys, and
    /// for physical memory.
    absent_bytes: Option<u64>,
    /// The share of the mapped bytes that were in swap, 0 to 1. `None` without surveys, and where they do not tell or
    /// nothing was mapped.
    #[schemars(with = "Option<Rows>")]
    swapped: Option<Matrix<'a>>,
    /// The share of the mapped bytes that were neither in memory nor known to be in swap, 0 to 1. `None` without
    /// surveys, for physical memory, and where nothing was mapped.
    #[schemars(with = "Option<Rows>")]
    absent: Option<Matrix<'a>>,
    /// The share that could not be observed, 0 to 1: of samples with the measure rate, of the present memory with the
    /// others, where it is 0 for recordings that do not tell. `None` where nothing was mapped or recorded.
    #[schemars(with = "Rows")]
    unobservable: Matrix<'a>,
    /// The share of the memory whose accesses are not known, 0 to 1: with the measure rate, memory of which no sample
    /// was taken, unless a survey found it idle; with the others, present memory that surveys do not know; 0 for
    /// recordings that do not tell. `None` where nothing was mapped or recorded.
    #[schemars(with = "Rows")]
    unknown: Matrix<'a>,
    /// With the measure rate: how often a page is accessed, in hertz, the mean by bytes and time. `None` where nothing
    /// was mapped, recorded, observable or sampled.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Rows")]
    rates_hz: Option<Matrix<'a>>,
    /// With the measure touched: the share of the observable present memory that was accessed within a survey interval,
    /// 0 to 1. `None` where nothing is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Rows")]
    touched: Option<Matrix<'a>>,
    /// With the measure idle-time: for how long blocks of 2 MiB have been idle, in seconds. `None` where nothing is
    /// known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Rows")]
    idle_s: Option<Matrix<'a>>,
}

/// A part of the address axis.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Area")]
struct AreaJson {
    /// The mapped bytes.
    bytes: u64,
    /// The address after the last.
    end: u64,
    /// The place of its first row among `rows`.
    first_row: usize,
    /// What was mapped at some time: sorted, disjoint.
    mappings: Vec<MappingJson>,
    /// The number of its rows.
    rows: usize,
    /// The first address.
    start: u64,
}

/// A mapping.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Mapping")]
struct MappingJson {
    /// The address after the last.
    end: u64,
    /// The name, `anonymous` for memory without one.
    name: String,
    /// The first address.
    start: u64,
}

/// A row of the matrices.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Row")]
struct RowJson {
    /// The mapped bytes: the row may hold gaps.
    bytes: u64,
    /// The address after the last.
    end: u64,
    /// The name of most of its bytes.
    name: String,
    /// The first address.
    start: u64,
}

serialized_as!(TargetMap, TargetJson<'_>);

impl<'a> From<&'a TargetMap> for TargetJson<'a> {
    fn from(map: &'a TargetMap) -> Self {
        let physical = map.id == TargetId::PhysicalMemory;
        let row = |row| {
            let (area, inside) = map.axis.row(row)?;
            let (from, to) = (area.row_offset(inside), area.row_offset(inside + 1));
            let end = area.address_at(to.saturating_sub(1)) + 1;
            let name = shown_name(&map.axis.row_name(row)).into();
            Some(RowJson { bytes: to - from, end, name, start: area.address_at(from) })
        };
        Self {
            pid: pid_column(map.id),
            command: &map.info.command,
            areas: map.axis.areas.iter().map(area).collect(),
            rows: (0..map.axis.rows).filter_map(row).collect(),
            resident_bytes: map.at_end.map(|bytes| bytes.present),
            swapped_bytes: map.at_end.map_or_else(Bytes::default, |bytes| bytes.swapped),
            absent_bytes: map.at_end.and_then(|bytes| bytes.absent),
            swapped: map.shares(|placement| placement.swapped),
            absent: map.shares(move |placement| (!physical).then(|| placement.absent())),
            unobservable: map.cells(|cell| Some(rounded(cell.unobservable))),
            unknown: map.cells(|cell| Some(rounded(cell.unknown))),
            rates_hz: map.measured(Measure::Rate, |cell| rounded(cell.hz)),
            touched: map.measured(Measure::Touched, |cell| rounded(cell.rate)),
            idle_s: map.measured(Measure::IdleTime, |cell| (cell.age.as_secs_f64() * 10.0).round() / 10.0),
        }
    }
}

fn area(area: &Area) -> AreaJson {
    let mapping = |named: &Named| MappingJson {
        end: named.range.end(),
        name: shown_name(&named.name).into(),
        start: named.range.start(),
    };
    AreaJson {
        bytes: area.bytes,
        end: area.end(),
        first_row: area.first_row,
        mappings: area.mapped.iter().map(mapping).collect(),
        rows: area.rows,
        start: area.start(),
    }
}
