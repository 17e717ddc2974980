//! The lines of the picture, from high addresses to low: headings of areas, and rows of cells.

use std::sync::Arc;

use isotherm_core::AddrRange;
use isotherm_report::axis::{Axis, Fineness};
use isotherm_report::space::Named;
use isotherm_report::ticks;

/// One line of the picture.
#[derive(Clone, Debug)]
pub enum Rung {
    /// The area that lies below.
    Area {
        start: u64,
        end: u64,
        bytes: u64,
    },
    Cells(Cells),
}

/// A line of one row of cells, or of two.
#[derive(Clone, Debug)]
pub struct Cells {
    /// Its lower row.
    pub low: usize,
    /// Its upper row, if it has two.
    pub high: Option<usize>,
    /// From its first address to the one after its last; there may be gaps in it.
    pub range: AddrRange,
    /// The name that most of it has.
    pub name: Arc<str>,
    /// A mark on the scale of bytes: how much of the area lies below.
    pub tick: String,
}

/// The address axis and its lines.
pub struct Ladder {
    pub axis: Axis,
    pub rungs: Vec<Rung>,
}

impl Ladder {
    /// Fits what is mapped into so many lines, with `group` rows a line.
    pub fn new(mapped: &[Named], lines: usize, group: usize) -> Self {
        let areas = (lines / 4).clamp(1, 8);
        let fineness = |rows| Fineness { rows, rows_of_area: group, areas, group };
        let headed = lines >= 6;
        let headings = if headed { Axis::new(mapped, fineness(0)).areas.len() } else { 0 };
        let axis = Axis::new(mapped, fineness(lines.saturating_sub(headings).max(1) * group));
        let mut rungs = vec![];
        for area in axis.areas.iter().rev() {
            if headed {
                rungs.push(Rung::Area { start: area.start(), end: area.end(), bytes: area.bytes });
            }
            let count = area.rows.div_ceil(group);
            let ticks = ticks::bytes(area.bytes, (count / 3).max(1));
            let cells = (0..count).rev().filter_map(|line| {
                let low = area.first_row + line * group;
                let high = low + group - 1;
                let (from, to) = (area.row_offset(line * group), area.row_offset((line + 1) * group));
                let tick = ticks.iter().find(|(at, _)| (from..to).contains(at)).filter(|_| count > 1);
                Some(Rung::Cells(Cells {
                    low,
                    high: (high > low && high < area.first_row + area.rows).then_some(high),
                    range: AddrRange::new(area.address_at(from), area.address_at(to.saturating_sub(1)) + 1)?,
                    name: axis.row_name(low),
                    tick: tick.map_or_else(String::new, |(_, label)| label.clone()),
                }))
            });
            rungs.extend(cells);
        }
        Self { axis, rungs }
    }

    /// The lines of cells, from high addresses to low.
    pub fn cells(&self) -> impl Iterator<Item = &Cells> {
        self.rungs.iter().filter_map(|rung| if let Rung::Cells(cells) = rung { Some(cells) } else { None })
    }

    /// The line of cells that holds the address, or the one nearest below; counted among [`Ladder::cells`].
    pub fn line_of(&self, addr: u64) -> Option<usize> {
        let last = self.cells().count().checked_sub(1)?;
        Some(self.cells().position(|cells| cells.range.start() <= addr).unwrap_or(last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(start: u64, end: u64, name: &str) -> Named {
        Named { range: AddrRange::new(start, end).unwrap(), name: name.into() }
    }

    #[test]
    fn lines_run_from_high_addresses_to_low_and_fill_the_height() {
        const MIB: u64 = 1 << 20;
        let mapped = [named(MIB, 33 * MIB, "[heap]"), named(1 << 40, (1 << 40) + MIB, "[stack]")];
        let ladder = Ladder::new(&mapped, 12, 2);
        let shown: Vec<String> = (ladder.rungs.iter())
            .map(|rung| match rung {
                Rung::Area { bytes, .. } => format!("{} MiB", bytes / MIB),
                Rung::Cells(cells) => cells.name.to_string(),
            })
            .collect();
        assert_eq!(shown.len(), 12);
        assert_eq!(shown[..4], ["1 MiB", "[stack]", "32 MiB", "[heap]"]);
        assert_eq!(ladder.line_of(1 << 40), Some(0));
        assert_eq!(ladder.line_of(1 << 39), Some(1), "between the areas: the one below");
        assert_eq!(ladder.line_of(MIB), Some(9));
        assert_eq!(ladder.line_of(0), Some(9));
        let ranges: Vec<AddrRange> = ladder.cells().map(|cells| cells.range).collect();
        assert!(ranges[1..].windows(2).all(|pair| pair[1].touches(pair[0])));
    }
}
