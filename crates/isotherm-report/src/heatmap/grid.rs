//! The cells of a target, of which there may be a million, in little memory.

use std::collections::VecDeque;

use isotherm_core::AddrRange;

use crate::axis::Axis;

/// Sums of a cell over its time, and the figures that follow from them.
pub(super) trait Sum: Clone + Default {
    /// The figures. They take less memory than the sums.
    type Figures: Copy;

    fn figures(&self) -> Self::Figures;
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
}

impl<S: Sum> Grid<S> {
    pub(super) fn new(rows: usize, columns: usize) -> Self {
        Self { rows, done: 0, figures: Vec::with_capacity(rows.saturating_mul(columns)), open: VecDeque::new() }
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
    pub(super) fn column(&mut self, column: usize) -> &mut [S] {
        let nth = column.saturating_sub(self.done);
        let missing = (nth + 1).saturating_sub(self.open.len());
        self.open.extend(std::iter::repeat_with(|| vec![S::default(); self.rows]).take(missing));
        &mut self.open[nth]
    }

    /// Adds a range to the cells of these columns, each with the seconds in it. `add` gets the bytes × seconds of the
    /// range in a cell.
    pub(super) fn add(&mut self, axis: &Axis, columns: &[(usize, f64)], range: AddrRange, add: impl Fn(&mut S, f64)) {
        for &(column, seconds) in columns {
            let cells = self.column(column);
            axis.rows_of(range).for_each(|(row, bytes)| add(&mut cells[row], bytes as f64 * seconds));
        }
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
