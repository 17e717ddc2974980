//! The heatmap: the access rate of all memory over time, as cells of a grid.

mod json;

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::rate::{sampling_interval, share_of_counts};
use isotherm_core::survey::{SurveySnapshot, TargetSurvey};
use isotherm_core::{AddrRange, TargetId, is_memory, units};
use isotherm_record::TargetInfo;

use crate::ReportError;
use crate::axis::{Axis, AxisResolution};
use crate::extent::{Extent, TargetExtent};
use crate::intervals::IntervalRange;
use crate::measure::Measure;
use crate::placement::{PlacedBytes, Placement, Places};
use crate::source::{Selection, Share, Source, View, Visit, walk};
use crate::surveys::{pieces, selected};

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
    /// other measures their place on the scale from 0 (cold) to 1 (hot). Rates of samples over a shorter interval than
    /// the longest of the heatmap are converted to what samples over that one would find.
    pub rate: f32,
    /// Accesses that samples found in a second. At most one is found in a sample, so that this is the least there was
    /// where `rate` is 1.
    pub hz: f32,
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
    /// Accesses found in a second.
    found: f64,
    age: f64,
}

impl Sums {
    fn cell(self) -> Option<Cell> {
        (self.weight > 0.0).then(|| Cell {
            rate: if self.observed > 0.0 { (self.accessed / self.observed).clamp(0.0, 1.0) as f32 } else { 0.0 },
            hz: if self.observed > 0.0 { (self.found / self.observed) as f32 } else { 0.0 },
            unobservable: (1.0 - self.observed / self.weight).clamp(0.0, 1.0) as f32,
            age: Duration::try_from_secs_f64(self.age / self.weight).unwrap_or(Duration::MAX),
        })
    }
}

/// What a picture shows of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shown {
    /// The place of its memory on the scale, from 0 (cold) to 1 (hot).
    Rate(f32),
    /// Most of it could not be observed.
    Unobservable,
    /// More of it was in swap than in memory.
    Swapped,
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
    /// Where the memory of each cell was. Empty without surveys.
    places: Vec<Places>,
    /// The bytes of the target at the last survey.
    at_end: Option<PlacedBytes>,
    measure: Measure,
}

impl TargetMap {
    /// The cell of a row (0 has the lowest addresses) and a column. None if nothing was mapped or recorded there.
    pub fn cell(&self, row: usize, column: usize) -> Option<Cell> {
        let cell = self.sums.get(row * self.columns + column)?.cell()?;
        Some(if self.measure == Measure::IdleTime { Cell { rate: Measure::heat(cell.age), ..cell } } else { cell })
    }

    /// Where the memory of a cell was. `None` if no survey tells.
    pub fn placement(&self, row: usize, column: usize) -> Option<Placement> {
        self.places.get(row * self.columns + column)?.placement()
    }

    /// What a picture shows of a cell. `None` if nothing was mapped or recorded there.
    pub fn shown(&self, row: usize, column: usize) -> Option<Shown> {
        let (cell, placement) = (self.cell(row, column), self.placement(row, column));
        // Where no region is, nothing is in memory.
        let swapped = |of: Placement| of.is_swapped() || cell.is_none() && of.swapped > Some(0.0);
        if placement.is_some_and(swapped) {
            return Some(Shown::Swapped);
        }
        let cell = cell?;
        Some(if cell.is_unobservable() { Shown::Unobservable } else { Shown::Rate(cell.rate) })
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
    /// The number of columns.
    pub columns: usize,
    /// The targets.
    pub targets: Vec<TargetMap>,
    /// What the cells measure.
    pub measure: Measure,
    /// The sampling intervals; with measures of surveys, the times from a survey to the next.
    pub intervals: IntervalRange,
    /// The sampling interval that rates are converted to: the longest one. Of memory that each sample over it finds
    /// accessed, samples over a shorter one would find an unknown share accessed; the other way round, the share is
    /// known. So the same memory has the same colour, however the interval changes. Zero if there are no samples.
    pub reference: Duration,
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
        heatmap.add_places(source, selection)?;
        Ok(heatmap)
    }

    /// Adds where surveys found the memory. What a survey found holds until the next one, as in regions; with measures
    /// of surveys, it holds since the survey before, as these do.
    ///
    /// # Errors
    /// If the source cannot be read.
    pub(crate) fn add_places(&mut self, source: &dyn Source, selection: &Selection) -> Result<(), ReportError> {
        let mut surveys = source.surveys().map_err(ReportError::Source)?.peekable();
        while let Some(record) = surveys.next() {
            let survey = record.map_err(ReportError::Source)?.survey;
            let (from, to) = if self.measure == Measure::Rate {
                let next = surveys.peek().and_then(|record| record.as_ref().ok());
                (survey.time, next.map_or(self.end, |next| next.survey.time))
            } else {
                (survey.time.saturating_sub(survey.interval), survey.time)
            };
            let (from, to) = (from.max(self.start), to.min(self.end));
            if from >= to {
                continue;
            }
            let columns = self.columns_of(from, to);
            for found in survey.targets.iter().filter(|found| selection.holds_target(found.id)) {
                let Some(map) = self.targets.iter_mut().find(|map| map.id == found.id) else { continue };
                map.add_places(found, selection, &columns);
            }
        }
        Ok(())
    }

    fn add_survey(&mut self, survey: &SurveySnapshot, selection: &Selection) {
        // The first survey does not tell when memory was accessed.
        if survey.interval.is_zero() || !selection.holds_time(survey.time) {
            return;
        }
        self.intervals.add(survey.interval);
        let columns = self.columns_of(survey.time.saturating_sub(survey.interval), survey.time);
        for found in survey.targets.iter().filter(|found| selection.holds_target(found.id)) {
            let Some(map) = self.targets.iter_mut().find(|map| map.id == found.id) else { continue };
            for piece in pieces(found, selection.address) {
                for (row, bytes) in map.axis.rows_of(piece.range) {
                    for &(column, seconds) in &columns {
                        let weight = bytes as f64 * piece.present * seconds;
                        let sums = &mut map.sums[row * map.columns + column];
                        sums.weight += weight;
                        sums.observed += weight;
                        sums.accessed += weight * piece.touched;
                        sums.age += weight * piece.idle.as_secs_f64();
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
        let extent = Extent::of(source, selection)?;
        let resolution = resolution(&extent);
        let mut heatmap = Self::blank(&extent, extent.targets.iter(), resolution);
        walk(source, selection, &mut [&mut heatmap])?;
        heatmap.add_places(source, selection)?;
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
                TargetMap {
                    id: target.id,
                    info: target.info.clone(),
                    axis,
                    columns,
                    sums,
                    places: vec![],
                    at_end: None,
                    measure: Measure::Rate,
                }
            })
            .collect();
        let reference = extent.sampling.bounds().map_or(Duration::ZERO, |(_, longest)| longest);
        let intervals = IntervalRange::default();
        Self { start, end, columns, targets, measure: Measure::Rate, intervals, reference }
    }

    /// The rate in Hz that stands at the hot end of the scale, and that is the least there was. `None` if the heatmap
    /// does not measure rates.
    pub(crate) fn most_hz(&self) -> Option<f64> {
        let is_rate = self.measure == Measure::Rate && !self.reference.is_zero();
        is_rate.then(|| 1.0 / self.reference.as_secs_f64())
    }

    /// The intervals in a few words: `sampling 5 ms to 100 ms, rates as over 100 ms; a rate of 1 is 10 Hz or more`.
    pub(crate) fn caption(&self) -> Option<String> {
        let text = self.intervals.text()?;
        let Some(most) = self.most_hz() else {
            return Some(match self.measure {
                Measure::Rate => format!("sampling {text}"),
                Measure::Touched | Measure::IdleTime => format!("survey every {text}"),
            });
        };
        let common = if self.intervals.varies() {
            format!(", rates as over {}", units::duration(self.reference))
        } else {
            String::new()
        };
        Some(format!("sampling {text}{common}; a rate of 1 is {} or more", units::hertz(most)))
    }

    /// Whether the heatmap measures rates of samples.
    pub(crate) fn has_samples(&self) -> bool {
        self.most_hz().is_some()
    }

    /// Whether surveys tell where the memory was.
    pub(crate) fn has_places(&self) -> bool {
        self.targets.iter().any(|target| target.at_end.is_some())
    }

    /// Whether a cell is shown as memory in swap.
    pub(crate) fn shows_swap(&self) -> bool {
        let swapped =
            |map: &TargetMap, row| (0..self.columns).any(|column| map.shown(row, column) == Some(Shown::Swapped));
        self.targets.iter().any(|map| (0..map.axis.rows).any(|row| swapped(map, row)))
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
        let aggregation = visit.row.aggregation.as_secs_f64();
        let sampling = sampling_interval(visit.row.aggregation, visit.row.samples);
        self.intervals.add_row(visit.row);
        let Some(map) = self.targets.iter_mut().find(|map| map.id == visit.row.target.id) else { return Ok(()) };
        for piece in visit.pieces() {
            let share = Share::of(piece.region, visit.row.samples);
            let rate = share.rate().unwrap_or(0.0);
            let samples = visit.row.samples;
            let found = (rate * f64::from(samples)).round() as u32;
            let accessed = share.observed * share_of_counts(found, samples, sampling, self.reference);
            let found = share.observed * rate / sampling.as_secs_f64().max(1e-9);
            let age = f64::from(piece.region.age) * aggregation;
            for (row, bytes) in map.axis.rows_of(piece.range) {
                for &(column, seconds) in &columns {
                    let weight = bytes as f64 * seconds;
                    let sums = &mut map.sums[row * map.columns + column];
                    sums.weight += weight;
                    sums.observed += weight * share.observed;
                    sums.accessed += weight * accessed;
                    sums.found += weight * found;
                    sums.age += weight * age;
                }
            }
        }
        Ok(())
    }
}

impl TargetMap {
    /// Adds where a survey found the memory in these columns, each with the seconds in it.
    fn add_places(&mut self, found: &TargetSurvey, selection: &Selection, columns: &[(usize, f64)]) {
        let (sums, mapped) = selected(found, selection.address);
        self.at_end = Some(PlacedBytes::new(found.id, &sums, mapped));
        self.places.resize(self.sums.len(), Places::default());
        let Self { axis, places, columns: width, .. } = self;
        let mut add = |range: AddrRange, add: &dyn Fn(&mut Places, f64)| {
            for (row, bytes) in axis.rows_of(range) {
                for &(column, seconds) in columns {
                    add(&mut places[row * *width + column], bytes as f64 * seconds);
                }
            }
        };
        for mapping in found.mappings.iter().filter(|mapping| is_memory(&found.mappings, mapping)) {
            if let Some(range) = selection.clip(mapping.range) {
                let knows_swap = sums.swapped.is_some();
                add(range, &|places, weight| {
                    places.mapped += weight;
                    places.known += if knows_swap { weight } else { 0.0 };
                });
            }
        }
        for piece in pieces(found, selection.address) {
            add(piece.range, &|places, weight| {
                places.present += weight * piece.present;
                places.swapped += weight * piece.swapped.unwrap_or(0.0);
            });
        }
    }
}
