//! The lines of the heatmap, from high addresses to low: headings of areas, and lines of cells.

use std::sync::Arc;

use isotherm_core::AddrRange;
use isotherm_report::axis::{Axis, AxisResolution};
use isotherm_report::extent::Named;
use isotherm_report::ticks;

/// One line of the heatmap.
#[derive(Clone, Debug)]
pub enum Line {
    /// The heading of the area below.
    Area {
        start: u64,
        end: u64,
        bytes: u64,
    },
    Cells(CellLine),
}

/// A line of one or two rows of cells.
#[derive(Clone, Debug)]
pub struct CellLine {
    /// The lower row.
    pub low: usize,
    /// The upper row, if there are two.
    pub high: Option<usize>,
    /// From the first address to the address after the last; it may contain gaps.
    pub range: AddrRange,
    /// The name that covers most of it.
    pub name: Arc<str>,
    /// A label on the scale of bytes: how much of the area lies below.
    pub tick: String,
}

/// The address axis and its lines.
pub struct AddressLines {
    pub axis: Axis,
    pub lines: Vec<Line>,
}

impl AddressLines {
    /// Fits the mapped memory into `height` lines, with `group` rows of cells per line.
    pub fn new(mapped: &[Named], height: usize, group: usize) -> Self {
        let areas = (height / 4).clamp(1, 8);
        let fineness = |rows| AxisResolution { rows, rows_of_area: group, areas, group };
        let headed = height >= 6;
        let headings = if headed { Axis::new(mapped, fineness(0)).areas.len() } else { 0 };
        let axis = Axis::new(mapped, fineness(height.saturating_sub(headings).max(1) * group));
        let mut lines = vec![];
        for area in axis.areas.iter().rev() {
            if headed {
                lines.push(Line::Area { start: area.start(), end: area.end(), bytes: area.bytes });
            }
            let count = area.rows.div_ceil(group);
            let ticks = ticks::bytes(area.bytes, (count / 3).max(1));
            let cells = (0..count).rev().filter_map(|line| {
                let low = area.first_row + line * group;
                let high = low + group - 1;
                let (from, to) = (area.row_offset(line * group), area.row_offset((line + 1) * group));
                let tick = ticks.iter().find(|(at, _)| (from..to).contains(at)).filter(|_| count > 1);
                Some(Line::Cells(CellLine {
                    low,
                    high: (high > low && high < area.first_row + area.rows).then_some(high),
                    range: AddrRange::new(area.address_at(from), area.address_at(to.saturating_sub(1)) + 1)?,
                    name: axis.row_name(low),
                    tick: tick.map_or_else(String::new, |(_, label)| label.clone()),
                }))
            });
            lines.extend(cells);
        }
        Self { axis, lines }
    }

    /// The lines of cells, from high addresses to low.
    pub fn cells(&self) -> impl Iterator<Item = &CellLine> {
        self.lines.iter().filter_map(|line| if let Line::Cells(cells) = line { Some(cells) } else { None })
    }

    /// The index among [`Self::cells`] of the line that contains the address, or of the nearest line below.
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
    fn lines_go_from_high_addresses_to_low_and_fill_the_height() {
        const MIB: u64 = 1 << 20;
        let mapped = [named(MIB, 33 * MIB, "[heap]"), named(1 << 40, (1 << 40) + MIB, "[stack]")];
        let address_lines = AddressLines::new(&mapped, 12, 2);
        let shown: Vec<String> = (address_lines.lines.iter())
            .map(|line| match line {
                Line::Area { bytes, .. } => format!("{} MiB", bytes / MIB),
                Line::Cells(cells) => cells.name.to_string(),
            })
            .collect();
        assert_eq!(shown.len(), 12);
        assert_eq!(shown[..4], ["1 MiB", "[stack]", "32 MiB", "[heap]"]);
        assert_eq!(address_lines.line_of(1 << 40), Some(0));
        assert_eq!(address_lines.line_of(1 << 39), Some(1), "between the areas: the one below");
        assert_eq!(address_lines.line_of(MIB), Some(9));
        assert_eq!(address_lines.line_of(0), Some(9));
        let ranges: Vec<AddrRange> = address_lines.cells().map(|cells| cells.range).collect();
        assert!(ranges[1..].windows(2).all(|pair| pair[1].touches(pair[0])));
    }
}
