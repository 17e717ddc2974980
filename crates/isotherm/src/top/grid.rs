//! The cells of the heatmap: the access rate of each row of addresses in each column of time.

use std::time::Duration;

use isotherm_core::AddrRange;
use isotherm_report::Measure;
use isotherm_report::axis::Axis;
use isotherm_report::heatmap::{Cell, Sampled, Sums};

use super::frame::{Frame, Strip};

/// A span of time in columns. Columns start at multiples of their length, so the picture moves by whole
/// columns and cells do not flicker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeWindow {
    /// The end of the last column, in columns since the start of the run.
    end: u64,
    /// The length of a column.
    pub column: Duration,
    pub columns: usize,
}

impl TimeWindow {
    /// The window of length `span` with `until` in its last column.
    pub fn new(span: Duration, until: Duration, columns: usize) -> Self {
        let columns = columns.max(1);
        let column = (span / u32::try_from(columns).unwrap_or(u32::MAX)).max(Duration::from_millis(1));
        let end = until.as_nanos().div_ceil(column.as_nanos());
        Self { end: u64::try_from(end).unwrap_or(u64::MAX), column, columns }
    }

    /// Its start; zero if that is before the start of the run.
    pub fn from(&self) -> Duration {
        self.at(0)
    }

    /// Its end.
    pub fn to(&self) -> Duration {
        self.at(self.columns)
    }

    fn at(&self, column: usize) -> Duration {
        let columns = (self.end + column as u64).saturating_sub(self.columns as u64);
        Duration::from_nanos((self.column.as_nanos() * u128::from(columns)).try_into().unwrap_or(u64::MAX))
    }

    /// The columns that a span overlaps, each with the seconds of the overlap.
    fn columns_of(&self, from: Duration, to: Duration) -> impl Iterator<Item = (usize, f64)> {
        let width = self.column.as_secs_f64();
        let start = (self.end as f64 - self.columns as f64) * width;
        let (from, to) = (from.as_secs_f64() - start, to.as_secs_f64() - start);
        let first = (from / width).max(0.0) as usize;
        (first..self.columns)
            .map(move |column| (column, column as f64 * width))
            .take_while(move |&(_, start)| start < to)
            .map(move |(column, start)| (column, (start + width).min(to) - start.max(from)))
            .filter(move |&(_, seconds)| seconds > width * 1e-6)
    }
}

/// The cells of one picture.
pub struct Grid {
    /// Whether there are samples.
    pub sampled: bool,
    columns: usize,
    cells: Vec<Sums>,
    working_set: Vec<(f64, f64)>,
}

impl Grid {
    /// Makes the cells of these frames.
    pub fn new<'a>(axis: &Axis, window: &TimeWindow, frames: impl Iterator<Item = &'a Frame>) -> Self {
        let frames: Vec<&Frame> = frames.collect();
        let sampled = frames.iter().any(|frame| frame.sampled);
        let columns = window.columns;
        let cells = vec![Sums::default(); axis.rows * columns];
        let mut grid = Self { sampled, columns, cells, working_set: vec![(0.0, 0.0); columns] };
        for frame in frames {
            grid.add(axis, window, frame);
        }
        grid
    }

    fn add(&mut self, axis: &Axis, window: &TimeWindow, frame: &Frame) {
        let columns: Vec<(usize, f64)> = window.columns_of(frame.since, frame.time).collect();
        for &(column, seconds) in &columns {
            let (seconds_so_far, sum) = &mut self.working_set[column];
            *seconds_so_far += seconds;
            *sum += seconds * frame.working_set as f64;
        }
        for area in &axis.areas {
            let Some(area) = AddrRange::new(area.start(), area.end()) else { continue };
            let first = frame.strips.partition_point(|strip| strip.end <= area.start());
            let inside = frame.strips[first..].iter().take_while(|strip| strip.start < area.end());
            for strip in inside {
                let &Strip { start, end, observed, unknown, value } = strip;
                let sampled = Sampled { observed: observed.into(), unknown: unknown.into(), hz: value.into() };
                let Some(range) = AddrRange::new(start.max(area.start()), end.min(area.end())) else { continue };
                for (row, bytes) in axis.rows_of(range) {
                    for &(column, seconds) in &columns {
                        self.cells[row * self.columns + column].add_sampled(bytes as f64 * seconds, sampled);
                    }
                }
            }
        }
    }

    /// The cell of a row (0 has the lowest addresses) and a column; `None` if nothing was in memory or recorded.
    pub fn cell(&self, row: usize, column: usize) -> Option<Cell> {
        let cell = self.cells.get(row * self.columns + column)?.cell()?;
        let rate = if self.sampled { Measure::heat_of(cell.hz.into()) } else { cell.hz };
        Some(Cell { rate, ..cell })
    }

    /// The newest cell of a row.
    pub fn newest(&self, row: usize) -> Option<Cell> {
        (0..self.columns).rev().find_map(|column| self.cell(row, column))
    }

    /// The mean working set in a column, in bytes; `None` if nothing was recorded.
    pub fn working_set(&self, column: usize) -> Option<f64> {
        self.working_set.get(column).filter(|(seconds, _)| *seconds > 0.0).map(|(seconds, sum)| sum / seconds)
    }
}

#[cfg(test)]
mod tests {
    use isotherm_report::axis::AxisResolution;
    use isotherm_report::extent::Named;

    use super::*;

    fn frame(since: u64, time: u64, strips: &[(u64, u64, f32)]) -> Frame {
        let strip = |&(start, end, value)| Strip { start, end, observed: 1.0, unknown: 0.0, value };
        let [since, time] = [since, time].map(Duration::from_millis);
        let working_set = time.as_millis() as u64;
        Frame { since, time, sampled: true, strips: strips.iter().map(strip).collect(), working_set }
    }

    #[test]
    fn the_window_moves_by_whole_columns() {
        let window = |millis| TimeWindow::new(Duration::from_secs(10), Duration::from_millis(millis), 10);
        assert_eq!(window(20_001), window(21_000));
        assert_eq!(window(21_000).to(), Duration::from_secs(21));
        assert_eq!(window(21_000).from(), Duration::from_secs(11));
        assert_eq!(window(1_500).from(), Duration::ZERO);
    }

    #[test]
    fn cells_are_means_over_time_and_bytes_and_blank_without_data() {
        let mapped = [Named { range: AddrRange::new(0, 4 * 4096).unwrap(), name: "".into() }];
        let axis = Axis::new(&mapped, AxisResolution { rows: 2, rows_of_area: 1, areas: 4, group: 1 });
        let window = TimeWindow::new(Duration::from_secs(4), Duration::from_millis(3_500), 4);
        let frames = [
            frame(0, 1000, &[(0, 8192, 1.0)]),
            frame(1000, 1500, &[(0, 4096, 1.0), (4096, 16384, 0.0)]),
            frame(1500, 3500, &[(0, 16384, 0.5)]),
        ];
        let grid = Grid::new(&axis, &window, frames.iter());
        let rate = |row, column| grid.cell(row, column).map(|cell| cell.hz);
        assert_eq!([0, 1, 2, 3].map(|column| rate(0, column)), [Some(1.0), Some(0.5), Some(0.5), Some(0.5)]);
        assert_eq!([0, 1, 2, 3].map(|column| rate(1, column)), [None, Some(0.25), Some(0.5), Some(0.5)]);
        assert_eq!(grid.cell(1, 3).map(|cell| cell.rate), Some(Measure::heat_of(0.5)));
        assert_eq!(grid.working_set(0), Some(1000.0));
        assert_eq!(grid.working_set(1), Some(2500.0));
    }

    #[test]
    fn memory_without_a_sample_is_neither_unobservable_nor_cold() {
        let mapped = [Named { range: AddrRange::new(0, 3 * 4096).unwrap(), name: "".into() }];
        let axis = Axis::new(&mapped, AxisResolution { rows: 3, rows_of_area: 1, areas: 1, group: 1 });
        let window = TimeWindow::new(Duration::from_secs(1), Duration::from_secs(1), 1);
        let mut cold = frame(0, 1000, &[(0, 4096, 0.0), (4096, 8192, 0.0), (8192, 12288, 0.0)]);
        for (strip, unknown) in cold.strips[1..].iter_mut().zip([1.0, 0.0]) {
            (strip.observed, strip.unknown) = (0.0, unknown);
        }
        let grid = Grid::new(&axis, &window, [cold].iter());
        let found = [0, 1, 2].map(|row| grid.cell(row, 0).unwrap());
        assert_eq!(found.map(|cell| cell.is_unknown()), [false, true, false]);
        assert_eq!(found.map(|cell| cell.is_unobservable()), [false, false, true]);
    }

    #[test]
    fn before_the_start_of_the_run_there_is_nothing() {
        let window = TimeWindow::new(Duration::from_secs(10), Duration::from_secs(1), 10);
        let axis = Axis::new(&[], AxisResolution { rows: 2, rows_of_area: 1, areas: 4, group: 1 });
        let grid = Grid::new(&axis, &window, [frame(0, 1000, &[])].iter());
        let seen: Vec<usize> = (0..10).filter(|&column| grid.working_set(column).is_some()).collect();
        assert_eq!(seen, [9]);
    }
}
