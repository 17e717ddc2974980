//! The cells of a target, of which there may be a million, in little memory.

use std::collections::VecDeque;

/// Sums of a cell over its time, and the figures that follow from them.
pub(super) trait Sum: Clone + Default {
    /// The figures. They take less memory than the sums.
    type Figures: Copy;

    fn figures(&self) -> Self::Figures;

    /// Adds other sums so many times.
    fn add(&mut self, more: &Self, times: f64);
}

/// The cells, column by column. Events come in the order of time, so that few columns have sums at a time: those before
/// have figures, and those after have nothing yet.
pub(super) struct Grid<S: Sum> {
    rows: usize,
    /// The number of columns that have figures, and these.
    done: usize,
    figures: Vec<S::Figures>,
    /// The sums of the columns after them.
    open: VecDeque<Vec<S>>,
    /// The rows of a column, to be filled.
    blank: Vec<S>,
}

impl<S: Sum> Grid<S> {
    pub(super) fn new(rows: usize, columns: usize) -> Self {
        let figures = Vec::with_capacity(rows.saturating_mul(columns));
        Self { rows, done: 0, figures, open: VecDeque::new(), blank: Vec::new() }
    }

    /// Ends the columns before this one: nothing will be added to them any more.
    pub(super) fn end_before(&mut self, column: usize) {
        for _ in self.done..column {
            let sums = self.open.pop_front().unwrap_or_else(|| vec![S::default(); self.rows]);
            self.figures.extend(sums.iter().map(S::figures));
            self.done += 1;
        }
    }

    /// The sums of a column, row by row. What comes late for a column that has ended is added to the next one.
    fn column(&mut self, column: usize) -> &mut [S] {
        let nth = column.saturating_sub(self.done);
        let missing = (nth + 1).saturating_sub(self.open.len());
        self.open.extend(std::iter::repeat_with(|| vec![S::default(); self.rows]).take(missing));
        &mut self.open[nth]
    }

    /// Adds the same memory to these columns, each with the seconds in it. `fill` gets the rows of a column and a time,
    /// and adds the memory, with bytes × that time as weights.
    pub(super) fn add(&mut self, columns: &[(usize, f64)], fill: impl FnOnce(&mut [S], f64)) {
        // Most of what is added lies in one column.
        if let &[(column, seconds)] = columns {
            return fill(self.column(column), seconds);
        }
        let mut rows = std::mem::take(&mut self.blank);
        rows.clear();
        rows.resize(self.rows, S::default());
        fill(&mut rows, 1.0);
        for &(column, seconds) in columns {
            self.column(column).iter_mut().zip(&rows).for_each(|(cell, more)| cell.add(more, seconds));
        }
        self.blank = rows;
    }

    /// The figures of a cell. `None` if nothing was added to its column.
    pub(super) fn get(&self, row: usize, column: usize) -> Option<S::Figures> {
        if row >= self.rows {
            return None;
        }
        match column.checked_sub(self.done) {
            None => self.figures.get(column * self.rows + row).copied(),
            Some(nth) => Some(self.open.get(nth)?.get(row)?.figures()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Sum for u32 {
        type Figures = u32;

        fn figures(&self) -> u32 {
            *self
        }

        fn add(&mut self, more: &u32, times: f64) {
            *self += (f64::from(*more) * times) as u32;
        }
    }

    #[test]
    fn what_is_in_several_columns_counts_in_each_for_its_time() {
        let mut grid: Grid<u32> = Grid::new(2, 3);
        for _ in 0..2 {
            grid.add(&[(0, 1.0), (2, 3.0)], |rows, _| rows[1] += 10);
        }
        let all = [0, 1, 2].map(|column| [0, 1].map(|row| grid.get(row, column)));
        assert_eq!(all, [[Some(0), Some(20)], [Some(0), Some(0)], [Some(0), Some(60)]]);
    }

    #[test]
    fn a_cell_tells_the_same_before_and_after_its_column_has_ended() {
        let mut grid: Grid<u32> = Grid::new(2, 4);
        for (column, row) in [(0, 0), (2, 1), (0, 1), (2, 1)] {
            grid.column(column)[row] += 1;
        }
        let all = |grid: &Grid<u32>| (0..4).map(|column| [0, 1].map(|row| grid.get(row, column))).collect::<Vec<_>>();
        let expected = [[Some(1), Some(1)], [Some(0), Some(0)], [Some(0), Some(2)], [None, None]];
        assert_eq!(all(&grid), expected);
        grid.end_before(2);
        assert_eq!((all(&grid), grid.open.len()), (expected.to_vec(), 1));
        // What comes late is not lost.
        grid.column(0)[0] += 1;
        assert_eq!(grid.get(0, 2), Some(1));
    }
}
