//! The order of the tables of mappings and of processes.

use std::cmp::Ordering;
use std::time::Duration;

use super::figures::{MappingFigures, TargetFigures, Temperature};

/// A column of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Column {
    #[default]
    Hot,
    WorkingSet,
    /// The size of mappings; what of processes is resident.
    Size,
    Rate,
    Hz,
    /// How long mappings have their rate; for how long processes are watched.
    Age,
    Name,
}

/// The column that a table is sorted by, and whether the order is reversed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sort {
    pub column: Column,
    pub reversed: bool,
}

/// The figures that a line of a table can be sorted by. Sizes are in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Keys<'a> {
    pub hot: f64,
    pub working_set: f64,
    pub size: f64,
    pub rate: f64,
    pub hz: f64,
    pub age: Duration,
    pub name: &'a str,
}

impl Column {
    /// The columns of the table of mappings from left to right.
    pub const MAPPINGS: [Self; 7] =
        [Self::Hot, Self::WorkingSet, Self::Size, Self::Rate, Self::Hz, Self::Age, Self::Name];

    /// The columns of the table of processes from left to right, without their IDs.
    pub const PROCESSES: [Self; 6] = [Self::Size, Self::WorkingSet, Self::Hot, Self::Rate, Self::Age, Self::Name];
}

impl Sort {
    /// Sorts by the next of these columns to the right, or to the left, with wrap-around.
    pub fn next(self, columns: &[Column], left: bool) -> Self {
        let here = columns.iter().position(|&column| column == self.column).unwrap_or(0);
        let steps = if left { columns.len() - 1 } else { 1 };
        Self { column: columns[(here + steps) % columns.len()], reversed: false }
    }

    /// The order of two lines: largest figures first, or names in alphabetical order.
    pub fn order(&self, a: &Keys<'_>, b: &Keys<'_>) -> Ordering {
        let order = match self.column {
            Column::Hot => b.hot.total_cmp(&a.hot).then(b.working_set.total_cmp(&a.working_set)),
            Column::WorkingSet => b.working_set.total_cmp(&a.working_set),
            Column::Size => b.size.total_cmp(&a.size),
            Column::Rate => b.rate.total_cmp(&a.rate),
            Column::Hz => b.hz.total_cmp(&a.hz),
            Column::Age => b.age.cmp(&a.age),
            Column::Name => Ordering::Equal,
        };
        let order = order.then_with(|| a.name.cmp(b.name));
        if self.reversed { order.reverse() } else { order }
    }

    /// The mappings in this order.
    pub fn sorted<'a>(&self, mappings: &'a [MappingFigures]) -> Vec<&'a MappingFigures> {
        let mut sorted: Vec<&MappingFigures> = mappings.iter().collect();
        sorted.sort_by(|a, b| self.order(&a.keys(), &b.keys()).then(a.range.cmp(&b.range)));
        sorted
    }
}

impl MappingFigures {
    fn keys(&self) -> Keys<'_> {
        let Temperature { hot, working_set, size, .. } = self.temperature;
        Keys { hot, working_set, size, rate: self.rate, hz: self.hz, age: self.age, name: &self.name }
    }
}

impl TargetFigures {
    /// The keys of a line that has these figures, this age and this name.
    pub fn keys<'a>(&self, age: Duration, name: &'a str) -> Keys<'a> {
        let Temperature { hot, working_set, size, .. } = self.total;
        Keys { hot, working_set, size: self.resident.unwrap_or(size), rate: self.rate, hz: 0.0, age, name }
    }
}
