//! The order of the table of mappings.

use std::cmp::Ordering;

use super::figures::MappingFigures;

/// A column of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Column {
    #[default]
    Hot,
    WorkingSet,
    Size,
    Rate,
    Hz,
    Age,
    Name,
}

/// The column that the table is sorted by, and whether the order is reversed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sort {
    pub column: Column,
    pub reversed: bool,
}

impl Column {
    /// All columns from left to right.
    pub const ALL: [Self; 7] = [Self::Hot, Self::WorkingSet, Self::Size, Self::Rate, Self::Hz, Self::Age, Self::Name];

    /// The column `steps` to the right, with wrap-around.
    fn after(self, steps: usize) -> Self {
        let here = Self::ALL.iter().position(|&column| column == self).unwrap_or(0);
        Self::ALL[(here + steps) % Self::ALL.len()]
    }
}

impl Sort {
    /// Sorts by the next column to the right, or to the left.
    pub fn next(self, left: bool) -> Self {
        let steps = if left { Column::ALL.len() - 1 } else { 1 };
        Self { column: self.column.after(steps), reversed: false }
    }

    /// The mappings in this order: largest figures first, or names in alphabetical order.
    pub fn sorted<'a>(&self, mappings: &'a [MappingFigures]) -> Vec<&'a MappingFigures> {
        let mut sorted: Vec<&MappingFigures> = mappings.iter().collect();
        sorted.sort_by(|a, b| {
            let (x, y) = (&a.temperature, &b.temperature);
            let order = match self.column {
                Column::Hot => y.hot.total_cmp(&x.hot).then(y.working_set.total_cmp(&x.working_set)),
                Column::WorkingSet => y.working_set.total_cmp(&x.working_set),
                Column::Size => y.size.total_cmp(&x.size),
                Column::Rate => b.rate.total_cmp(&a.rate),
                Column::Hz => b.hz.total_cmp(&a.hz),
                Column::Age => b.age.cmp(&a.age),
                Column::Name => Ordering::Equal,
            };
            let order = order.then_with(|| a.name.cmp(&b.name));
            let order = if self.reversed { order.reverse() } else { order };
            order.then(a.range.cmp(&b.range))
        });
        sorted
    }
}
