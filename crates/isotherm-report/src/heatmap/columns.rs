//! The time axis of a heatmap, divided into columns.

use std::time::Duration;

/// A span of time in even parts, one for each column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    /// The start of the first column.
    pub start: Duration,
    /// The end of the last column.
    pub end: Duration,
    /// The number of columns, at least one.
    pub count: usize,
}

impl Columns {
    /// The start of a column. That of the column after the last is the end.
    pub fn start_of(&self, column: usize) -> Duration {
        let span = (self.end - self.start).as_nanos();
        self.start + Duration::from_nanos((span * column as u128 / self.count as u128) as u64)
    }

    /// The columns that overlap a span of time, each with the seconds of the overlap.
    pub(crate) fn overlaps(&self, from: Duration, to: Duration) -> Vec<(usize, f64)> {
        let width = (self.end - self.start).as_secs_f64() / self.count as f64;
        if width <= 0.0 {
            return vec![(0, 1.0)];
        }
        let (a, b) = ((from.saturating_sub(self.start)).as_secs_f64(), (to.saturating_sub(self.start)).as_secs_f64());
        let first = ((a / width) as usize).min(self.count - 1);
        (first..self.count)
            .map(|column| (column, column as f64 * width))
            .take_while(|&(_, start)| start < b)
            .map(|(column, start)| (column, (start + width).min(b) - start.max(a)))
            .filter(|&(_, seconds)| seconds > width * 1e-6)
            .collect()
    }
}
