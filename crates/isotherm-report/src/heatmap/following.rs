//! A heatmap of the time that follows another one.

use std::cell::OnceCell;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::TargetId;

use super::grid::Grid;
use super::{Columns, Heatmap, TargetMap};
use crate::intervals::IntervalRange;
use crate::source::Selection;

impl Heatmap {
    /// A heatmap of the time after this one, whose walk is over. It has the same targets and addresses, and of each
    /// target so many columns of this length.
    pub(crate) fn after(&self, column: Duration, columns: impl Fn(&TargetMap) -> u32) -> Self {
        let after = |map: &TargetMap| {
            let (start, count) = (map.columns.end, columns(map).max(1));
            let (columns, rows) =
                (Columns { start, end: start + column * count, count: count as usize }, map.axis.rows);
            TargetMap {
                id: map.id,
                info: Arc::clone(&map.info),
                axis: map.axis.clone(),
                life: (columns.start, columns.end),
                most_bytes: map.most_bytes,
                columns,
                cells: Grid::new(rows, columns.count),
                recorded: vec![false; columns.count],
                places: None,
                at_end: map.at_end,
                measure: map.measure,
                codes: OnceCell::new(),
            }
        };
        let targets: Vec<TargetMap> = self.targets.iter().map(after).collect();
        Self {
            start: targets.iter().map(|map| map.columns.start).min().unwrap_or(self.end),
            end: targets.iter().map(|map| map.columns.end).max().unwrap_or(self.end),
            columns: self.columns,
            places: targets.iter().enumerate().map(|(nth, map)| (map.id, nth)).collect(),
            targets,
            left_out: self.left_out,
            measure: self.measure,
            intervals: IntervalRange::default(),
            sampled: self.sampled,
            touched: (0.0, 0.0),
            selection: Selection { time: None, ..self.selection.clone() },
            unplaced: self.unplaced,
            placed: self.placed.clone(),
        }
    }

    /// The time of the last survey that says where the memory is.
    pub(crate) fn placed_at(&self) -> Option<Duration> {
        self.placed.as_ref().map(|survey| survey.time)
    }

    /// The heatmap of a target.
    pub(crate) fn of_target(&self, id: TargetId) -> Option<&TargetMap> {
        self.places.get(&id).and_then(|&nth| self.targets.get(nth))
    }
}
