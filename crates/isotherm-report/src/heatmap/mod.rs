//! The heatmap: the access rate of all memory over time, as cells of a grid.

mod cell;
mod columns;
mod following;
mod grid;
mod json;
mod plan;

use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::survey::{SurveySnapshot, TargetSurvey};
use isotherm_core::{TargetId, is_memory, units};
use isotherm_record::{Needs, SurveyDetail, SurveyRecord, TargetInfo};

use crate::ReportError;
use crate::axis::Axis;
use crate::extent::Extent;
use crate::intervals::IntervalRange;
use crate::measure::Measure;
use crate::placement::{PlacedBytes, Placement, Places};
use crate::source::{Accumulator, KnownPiece, Seen, Selection, Source, Takes, Walks};
use crate::surveys::{Piece, pieces, runs, selected};

use grid::Grid;

pub use cell::{Cell, Sampled, Shown, Sums};
pub(crate) use cell::{HIGHEST_RATE, IN_SWAP, IS_ABSENT, IS_UNKNOWN, NOTHING};
pub use columns::Columns;
pub(crate) use plan::shares;
pub use plan::{Lane, LeftOut, Plan};

/// The last value of a function. What lies next to each other is mostly of one region.
pub(crate) struct Memo<K, V> {
    of: fn(K) -> V,
    last: Option<(K, V)>,
}

impl<K: Copy + PartialEq, V: Copy> Memo<K, V> {
    pub(crate) fn new(of: fn(K) -> V) -> Self {
        Self { of, last: None }
    }

    pub(crate) fn of(&mut self, key: K) -> V {
        match self.last {
            Some((last, value)) if last == key => value,
            _ => self.last.insert((key, (self.of)(key))).1,
        }
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
    /// The time from its first snapshot to its last.
    pub life: (Duration, Duration),
    /// The most bytes that it had at a time: in memory if surveys tell, or else mapped.
    pub most_bytes: u64,
    /// The columns of its cells.
    pub columns: Columns,
    cells: Grid<Sums>,
    /// Whether something was recorded in each column.
    recorded: Vec<bool>,
    /// Where the memory of each cell was. `None` without surveys.
    places: Option<Grid<Places>>,
    /// The bytes of the target at the last survey.
    at_end: Option<PlacedBytes>,
    measure: Measure,
    /// What a picture shows of the cells, once that is asked.
    codes: OnceCell<Vec<u8>>,
}

impl TargetMap {
    /// The cell of a row (0 has the lowest addresses) and a column. None if nothing was mapped or recorded there.
    pub fn cell(&self, row: usize, column: usize) -> Option<Cell> {
        self.cell_by(row, column, |hz| Measure::heat_of(hz.into()))
    }

    /// The cell, with the place of a frequency on the scale as `heat` says.
    fn cell_by(&self, row: usize, column: usize, heat: impl FnOnce(f32) -> f32) -> Option<Cell> {
        let cell = self.cells.get(row, column)?.cell()?;
        Some(match self.measure {
            Measure::Rate => Cell { rate: heat(cell.hz), ..cell },
            Measure::Touched => cell,
            Measure::IdleTime => Cell { rate: Measure::heat(cell.age), ..cell },
        })
    }

    /// How often a page of a cell is accessed, in hertz, and the age of that. `None` as for [`cell`](Self::cell).
    pub(crate) fn hz_and_age(&self, row: usize, column: usize) -> Option<(f32, Duration)> {
        self.cells.get(row, column)?.cell().map(|cell| (cell.hz, cell.age))
    }

    /// What a picture shows of each cell, as bytes ([`Shown::code`]), row by row from the lowest addresses. The walk
    /// must be over.
    pub(crate) fn codes(&self) -> &[u8] {
        self.codes.get_or_init(|| {
            let mut heat = Memo::new(|hz: f32| Measure::heat_of(hz.into()));
            let columns = self.columns.count;
            let mut codes = vec![0; self.axis.rows * columns];
            self.each_cell(|row, column| {
                let cell = self.cell_by(row, column, |hz| heat.of(hz));
                codes[row * columns + column] = Shown::code(self.shown_of(cell, row, column));
            });
            codes
        })
    }

    /// Calls a function with the row and the column of each cell. Those that are near to each other in memory come one
    /// after another, by rows as by columns.
    pub(crate) fn each_cell(&self, mut each: impl FnMut(usize, usize)) {
        /// How many columns come before the next row.
        const BLOCK: usize = 32;
        for first in (0..self.columns.count).step_by(BLOCK) {
            let block = first..(first + BLOCK).min(self.columns.count);
            (0..self.axis.rows).for_each(|row| block.clone().for_each(|column| each(row, column)));
        }
    }

    /// Where the memory of a cell was. `None` if no survey tells.
    pub fn placement(&self, row: usize, column: usize) -> Option<Placement> {
        self.places.as_ref()?.get(row, column)?.placement()
    }

    /// What a picture shows of a cell. `None` if nothing was mapped or recorded there.
    pub fn shown(&self, row: usize, column: usize) -> Option<Shown> {
        self.shown_of(self.cell(row, column), row, column)
    }

    fn shown_of(&self, cell: Option<Cell>, row: usize, column: usize) -> Option<Shown> {
        let placement = self.placement(row, column);
        // Where no region is, nothing is in memory.
        let swapped = |of: Placement| of.is_swapped() || cell.is_none() && of.swapped > Some(0.0);
        if placement.is_some_and(swapped) {
            return Some(Shown::Swapped);
        }
        let Some(cell) = cell else {
            let recorded = self.recorded.get(column) == Some(&true) && self.id != TargetId::PhysicalMemory;
            return placement.filter(|_| recorded).map(|_| Shown::Absent);
        };
        Some(match cell {
            cell if cell.is_unobservable() => Shown::Unobservable,
            cell if cell.is_unknown() => Shown::Unknown,
            cell => Shown::Rate(cell.rate),
        })
    }

    /// How large the target is: `64 MiB in memory, 12 MiB in swap at the end`; without surveys, what was mapped.
    pub(crate) fn size(&self) -> String {
        match self.at_end {
            Some(bytes) => format!("{} at the end", bytes.text()),
            None => format!("{} mapped", units::bytes(self.axis.bytes())),
        }
    }
}

/// The access rate over time and addresses, for each target.
pub struct Heatmap {
    /// The start of the time axis.
    pub start: Duration,
    /// The end of the time axis.
    pub end: Duration,
    /// The number of columns of the whole time.
    pub columns: usize,
    /// The targets.
    pub targets: Vec<TargetMap>,
    /// The targets that are not shown.
    pub left_out: Option<LeftOut>,
    /// What the cells measure.
    pub measure: Measure,
    /// The sampling intervals; with measures of surveys, the times from a survey to the next.
    pub intervals: IntervalRange,
    /// Whether there are samples.
    sampled: bool,
    /// Bytes × seconds that surveys found touched, and the part of them in which no sample found an access.
    touched: (f64, f64),
    /// The place of each target among `targets`.
    places: HashMap<TargetId, usize>,
    selection: Selection,
    /// Whether it leaves out where the memory is.
    unplaced: bool,
    /// The last survey, which says where the memory is until the next one.
    placed: Option<SurveySnapshot>,
}

impl Heatmap {
    /// The heatmap of a selection with this measure, whose extent is known, before its walk.
    pub(crate) fn begin(selection: &Selection, measure: Measure, extent: &Extent, plan: &Plan) -> Self {
        let mut heatmap = Self { measure, selection: selection.clone(), ..Self::blank(extent, plan) };
        heatmap.targets.iter_mut().for_each(|target| target.measure = measure);
        heatmap
    }

    /// The same without where the memory is, which another heatmap tells.
    pub(crate) fn unplaced(self) -> Self {
        Self { unplaced: true, ..self }
    }

    /// Adds where surveys found the memory. That of a merged survey, and with measures of surveys of any, holds for its
    /// interval; with others it holds until the next survey, as in regions.
    fn add_places(&mut self, next: Option<&SurveyRecord>) {
        let next_time = next.map_or(self.end, |next| next.survey.time);
        let of_interval = |survey: &SurveySnapshot| (survey.time.saturating_sub(survey.interval), survey.time);
        let merged = next.filter(|next| next.detail == SurveyDetail::Merged || self.measure != Measure::Rate);
        let last = merged.map(|record| (record.survey.clone(), of_interval(&record.survey))).or_else(|| {
            let last = match next {
                Some(next) => self.placed.replace(next.survey.clone()),
                None => self.placed.clone(),
            }?;
            let from = last.time;
            Some((last, (from, next_time)))
        });
        let Some((survey, (from, to))) = last else { return };
        let (from, to) = (from.max(self.start), to.min(self.end));
        if from >= to {
            return;
        }
        let selection = self.selection.clone();
        for found in survey.targets.iter().filter(|found| selection.holds_target(found.id)) {
            let Some(map) = self.places.get(&found.id).and_then(|&nth| self.targets.get_mut(nth)) else { continue };
            let (from, to) = (from.max(map.life.0), to.min(map.life.1));
            let columns = if from < to { map.columns.overlaps(from, to) } else { vec![] };
            map.add_places(found, &selection, &columns);
        }
    }

    /// Adds how much of the memory a survey found where, at the end if it is the last one.
    fn add_sizes(&mut self, survey: &SurveySnapshot) {
        let is_in_time = match self.measure {
            Measure::Rate => survey.time < self.end,
            Measure::Touched | Measure::IdleTime => {
                let since = survey.time.saturating_sub(survey.interval);
                since.max(self.start) < survey.time.min(self.end)
            }
        };
        if !is_in_time {
            return;
        }
        for found in &survey.targets {
            if let Some(map) = self.places.get(&found.id).and_then(|&nth| self.targets.get_mut(nth)) {
                let (sums, mapped) = selected(found, self.selection.address);
                map.at_end = Some(PlacedBytes::new(found.id, &sums, mapped));
            }
        }
    }

    /// The heatmap after its walk.
    pub(crate) fn finish(mut self) -> Self {
        if self.measure == Measure::Rate {
            self.add_places(None);
        }
        self
    }

    fn add_survey(&mut self, record: &SurveyRecord) {
        let (survey, selection) = (&record.survey, self.selection.clone());
        // The first survey does not tell when memory was accessed.
        if survey.interval.is_zero() || !selection.holds_time(survey.time) {
            return;
        }
        if record.detail != SurveyDetail::Merged {
            self.intervals.add(survey.interval);
        }
        if record.detail == SurveyDetail::Bare {
            return;
        }
        for found in survey.targets.iter().filter(|found| selection.holds_target(found.id)) {
            let Some(map) = self.places.get(&found.id).and_then(|&nth| self.targets.get_mut(nth)) else { continue };
            let columns = map.columns.overlaps(survey.time.saturating_sub(survey.interval), survey.time);
            columns.iter().for_each(|&(column, _)| map.recorded[column] = true);
            map.cells.end_before(columns.first().map_or(0, |&(first, _)| first));
            let axis = &map.axis;
            map.cells.add(&columns, |rows, time| {
                let used = |of: &Piece<'_>| (of.shares.present, of.shares.of_present(), of.idle);
                for piece in runs(pieces(found, selection.address), |run, next| used(run) == used(next)) {
                    let of = piece.shares;
                    let observed = (of.present - of.unobservable).max(0.0);
                    let known = (observed - of.unknown).max(0.0);
                    let idle = piece.idle.as_secs_f64();
                    for (row, bytes) in axis.rows_of(piece.range) {
                        let weight = bytes as f64 * time;
                        let sums = &mut rows[row];
                        sums.weight += weight * of.present;
                        sums.observed += weight * observed;
                        sums.rated += weight * observed;
                        sums.unknown += weight * of.unknown;
                        sums.accessed += weight * of.touched;
                        sums.age += weight * known * idle;
                        sums.aged += weight * known;
                    }
                }
            });
        }
    }

    /// Computes the heatmap of access rates of a selection, in two walks.
    ///
    /// # Errors
    /// If the source cannot be read or has nothing in the selection.
    pub fn new(
        source: &dyn Source,
        selection: &Selection,
        plan: impl FnOnce(&Extent) -> Plan,
    ) -> Result<Self, ReportError> {
        let (mut extent, mut walks) = (Extent::new(selection), Walks::new(source, selection, Needs::NOTHING));
        walks.walk(&mut [&mut extent])?;
        let extent = extent.found()?;
        let mut heatmap = Self::begin(selection, Measure::Rate, &extent, &plan(&extent));
        walks.walk(&mut [&mut heatmap])?;
        Ok(heatmap.finish())
    }

    /// A heatmap without data.
    pub fn blank(extent: &Extent, plan: &Plan) -> Self {
        let (start, end) = extent.time.unwrap_or_default();
        let lanes = plan.lanes.iter().filter_map(|lane| Some((lane, extent.targets.get(lane.target)?)));
        let targets = lanes
            .map(|(lane, target)| {
                let axis = Axis::new(&target.mapped, lane.axis);
                let columns = match lane.own_columns {
                    Some(count) => Columns { start: target.life.0, end: target.life.1, count: count.max(1) },
                    None => Columns { start, end, count: plan.columns.max(1) },
                };
                TargetMap {
                    id: target.id,
                    info: target.info.clone(),
                    life: target.life,
                    most_bytes: target.most_bytes,
                    cells: Grid::new(axis.rows, columns.count),
                    recorded: vec![false; columns.count],
                    axis,
                    columns,
                    places: None,
                    at_end: None,
                    measure: Measure::Rate,
                    codes: OnceCell::new(),
                }
            })
            .collect::<Vec<_>>();
        let places = targets.iter().enumerate().map(|(nth, map)| (map.id, nth)).collect();
        let intervals = IntervalRange::default();
        let (columns, left_out) = (plan.columns.max(1), plan.left_out);
        Self {
            start,
            end,
            columns,
            targets,
            left_out,
            measure: Measure::Rate,
            intervals,
            sampled: extent.sampling.bounds().is_some(),
            touched: (0.0, 0.0),
            places,
            selection: Selection::default(),
            unplaced: false,
            placed: None,
        }
    }

    /// The intervals in a few words: `sampling every 5 ms to 400 ms`.
    pub(crate) fn caption(&self) -> Option<String> {
        let text = self.intervals.text()?;
        Some(match self.measure {
            Measure::Rate => format!("sampling every {text}"),
            Measure::Touched | Measure::IdleTime => format!("survey every {text}"),
        })
    }

    /// How much of the memory in use looks cold, if it is more than a tenth: surveys found it touched, and no sample
    /// found an access.
    pub(crate) fn unseen(&self) -> Option<String> {
        let (touched, unseen) = self.touched;
        (unseen > touched * 0.1).then(|| {
            let share = units::percent(unseen / touched);
            format!("{share} of what surveys found touched has a frequency of 0, because no sample found an access")
        })
    }

    /// Whether the heatmap measures frequencies.
    pub(crate) fn has_samples(&self) -> bool {
        self.measure == Measure::Rate && self.sampled
    }

    /// Whether surveys tell where the memory was.
    pub(crate) fn has_places(&self) -> bool {
        self.targets.iter().any(|target| target.at_end.is_some())
    }

    /// Whether the legend has this: if a cell is shown so. Any recording with samples may have unobservable memory.
    pub(crate) fn may_show(&self, what: Shown) -> bool {
        what == Shown::Unobservable && self.measure == Measure::Rate || self.shows(what)
    }

    /// Whether a cell is shown as this, which is not a rate. The walk must be over.
    pub(crate) fn shows(&self, what: Shown) -> bool {
        let code = Shown::code(Some(what));
        self.targets.iter().any(|map| map.codes().contains(&code))
    }
}

impl Accumulator for Heatmap {
    fn needs(&self) -> Needs {
        match self.measure {
            Measure::Rate => Needs { snapshots: true, regions: true, ..Needs::SURVEYS },
            Measure::Touched | Measure::IdleTime => Needs::SURVEYS,
        }
    }

    fn takes(&self) -> Takes {
        Takes::Merged
    }

    fn event(&mut self, event: &Seen<'_>) -> Result<(), ReportError> {
        if let Seen::Survey(record) = event {
            if self.measure != Measure::Rate {
                self.add_survey(record);
            }
            if !self.unplaced && record.detail != SurveyDetail::Merged {
                self.add_sizes(&record.survey);
            }
            if !self.unplaced && record.detail != SurveyDetail::Bare {
                self.add_places(Some(record));
            }
        }
        let Seen::Row(visit) = event else { return Ok(()) };
        if !visit.chosen || self.measure != Measure::Rate {
            return Ok(());
        }
        let aggregation = visit.row.aggregation.as_secs_f64();
        self.intervals.add_row(&visit.row);
        let place = self.places.get(&visit.row.target.id);
        let Some(map) = place.and_then(|&nth| self.targets.get_mut(nth)) else { return Ok(()) };
        let columns = map.columns.overlaps(visit.since, visit.row.time);
        columns.iter().for_each(|&(column, _)| map.recorded[column] = true);
        map.cells.end_before(columns.first().map_or(0, |&(first, _)| first));
        let (axis, seconds) = (&map.axis, visit.span().as_secs_f64());
        map.cells.add(&columns, |rows, time| {
            for KnownPiece { piece, share, .. } in visit.known() {
                let sampled = Sampled { observed: share.observed, unknown: share.unknown, hz: share.hz };
                let age = f64::from(piece.region.age) * aggregation;
                if let Some(pages) = piece.region.pages {
                    let part = piece.range.size() as f64 / piece.whole.max(1) as f64;
                    let touched = part * pages.touched as f64 * seconds;
                    self.touched.0 += touched;
                    self.touched.1 +=
                        if share.hz == 0.0 && share.unknown == 0.0 { touched * share.observed } else { 0.0 };
                }
                for (row, bytes) in axis.rows_of(piece.range) {
                    let weight = bytes as f64 * time;
                    let sums = &mut rows[row];
                    sums.add_sampled(weight, sampled);
                    sums.age += weight * age;
                    sums.aged += weight;
                }
            }
        });
        Ok(())
    }
}

impl TargetMap {
    /// Adds where a survey found the memory in these columns, each with the seconds in it.
    fn add_places(&mut self, found: &TargetSurvey, selection: &Selection, columns: &[(usize, f64)]) {
        let (axis, count) = (&self.axis, self.columns.count);
        let places = self.places.get_or_insert_with(|| Grid::new(axis.rows, count));
        places.end_before(columns.first().map_or(0, |&(first, _)| first));
        let knows_swap = found.knows_swap();
        places.add(columns, |rows, time| {
            for mapping in found.mappings.iter().filter(|mapping| is_memory(&found.mappings, mapping)) {
                let range = selection.clip(mapping.range);
                for (row, bytes) in range.into_iter().flat_map(|range| axis.rows_of(range)) {
                    let (places, weight) = (&mut rows[row], bytes as f64 * time);
                    places.mapped += weight;
                    places.known += if knows_swap { weight } else { 0.0 };
                }
            }
            // Most memory is in memory as a whole.
            let placed = |of: &Piece<'_>| (of.shares.present, of.shares.swapped);
            for piece in runs(pieces(found, selection.address), |run, next| placed(run) == placed(next)) {
                let is_reserved = !is_memory(&found.mappings, piece.mapping);
                let (present, swapped) = (piece.shares.present, piece.shares.swapped);
                let (known, swapped) = (!swapped.is_unknown(), swapped.least());
                for (row, bytes) in axis.rows_of(piece.range) {
                    let (places, weight) = (&mut rows[row], bytes as f64 * time);
                    if is_reserved {
                        let kept = weight * (present + swapped);
                        places.mapped += kept;
                        places.known += if known { kept } else { 0.0 };
                    }
                    places.present += weight * present;
                    places.swapped += weight * swapped;
                }
            }
        });
    }
}
