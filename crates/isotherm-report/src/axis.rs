//! The address axis: mapped memory in the order of its addresses, without the gaps, divided into rows.

use std::sync::Arc;

use isotherm_core::{AddrRange, PAGE_SIZE, PackedRanges};

use crate::extent::Named;

/// The smallest gap that starts a new area. Smaller gaps are cut out too, within an area.
const DIVIDING_GAP: u64 = 64 << 20;

/// A part of the axis between two large gaps.
#[derive(Clone, Debug)]
pub struct Area {
    /// The mapped pieces, with names. They are sorted and disjoint.
    pub mapped: Vec<Named>,
    /// The mapped bytes.
    pub bytes: u64,
    /// The first row of the area on the axis.
    pub first_row: usize,
    /// The number of rows, at least one.
    pub rows: usize,
    /// The ranges of `mapped`.
    packed: PackedRanges,
    /// The mapped bytes of the area below each of its rows, and all of them.
    edges: Vec<u64>,
}

impl Area {
    fn new(mapped: Vec<Named>) -> Self {
        let packed: PackedRanges = mapped.iter().map(|named| named.range).collect();
        Self { bytes: packed.bytes(), mapped, first_row: 0, rows: 1, packed, edges: Vec::new() }
    }

    /// The first mapped address.
    pub fn start(&self) -> u64 {
        self.mapped.first().map_or(0, |named| named.range.start())
    }

    /// The address after the last mapped one.
    pub fn end(&self) -> u64 {
        self.mapped.last().map_or(0, |named| named.range.end())
    }

    /// Divides it into rows, of which the axis has so many before it.
    fn divide(&mut self, first_row: usize) {
        self.first_row = first_row;
        // Rows end at page boundaries if there is at least a page per row.
        let unit = if self.bytes >= self.rows as u64 * PAGE_SIZE { PAGE_SIZE } else { 1 };
        let edge = |row: usize| (u128::from(self.bytes) * row as u128 / self.rows as u128) as u64 / unit * unit;
        self.edges = (0..self.rows).map(edge).chain([self.bytes]).collect();
    }

    /// The mapped bytes of the area below its row `row`. The first row of the area is 0.
    pub fn row_offset(&self, row: usize) -> u64 {
        self.edges.get(row).copied().unwrap_or(self.bytes)
    }

    /// The mapped bytes of the area below `addr`.
    pub fn offset_of(&self, addr: u64) -> u64 {
        self.packed.offset_of(addr)
    }

    /// The address with `offset` mapped bytes of the area below it.
    pub fn address_at(&self, offset: u64) -> u64 {
        self.packed.address_at(offset)
    }

    /// The mapped pieces between two offsets, each with its name.
    pub fn between(&self, from: u64, to: u64) -> impl Iterator<Item = Named> {
        let parts = self.packed.between(from, to);
        parts.map(|(index, range)| Named { range, name: Arc::clone(&self.mapped[index].name) })
    }
}

/// Into how many parts an axis is divided.
#[derive(Clone, Copy, Debug)]
pub struct AxisResolution {
    /// The number of rows, unless there are fewer pages or more areas.
    pub rows: usize,
    /// The minimum number of rows of an area, unless it has fewer pages.
    pub rows_of_area: usize,
    /// The maximum number of areas.
    pub areas: usize,
    /// Rows come in groups of this size. In a terminal, two half blocks make one character.
    pub group: usize,
}

/// The address axis of one target, from low addresses to high.
#[derive(Clone, Debug)]
pub struct Axis {
    /// The areas.
    pub areas: Vec<Area>,
    /// Rows of all areas.
    pub rows: usize,
}

impl Axis {
    /// Divides mapped memory at the largest gaps, and gives each area rows in proportion to its size.
    pub fn new(mapped: &[Named], fineness: AxisResolution) -> Self {
        let mut gaps: Vec<(u64, usize)> = mapped
            .windows(2)
            .enumerate()
            .map(|(i, pair)| (pair[1].range.start() - pair[0].range.end(), i + 1))
            .filter(|&(gap, _)| gap >= DIVIDING_GAP)
            .collect();
        gaps.sort_unstable_by(|a, b| b.cmp(a));
        gaps.truncate(fineness.areas.saturating_sub(1));
        let mut cuts: Vec<usize> = gaps.into_iter().map(|(_, at)| at).collect();
        cuts.sort_unstable();
        cuts.push(mapped.len());
        let mut from = 0;
        let mut areas = vec![];
        for to in cuts {
            areas.push(Area::new(mapped[from..to].to_vec()));
            from = to;
        }
        areas.retain(|area| area.bytes > 0);
        let rows = share_rows(&mut areas, fineness);
        Self { areas, rows }
    }

    /// The mapped bytes of all areas.
    pub fn bytes(&self) -> u64 {
        self.areas.iter().map(|area| area.bytes).sum()
    }

    /// The areas that a range has a part in, and the offsets of the ends of that part.
    fn places(&self, range: AddrRange) -> impl Iterator<Item = (&Area, u64, u64)> {
        let first = self.areas.partition_point(|area| area.end() <= range.start());
        let inside = self.areas[first..].iter().take_while(move |area| area.start() < range.end());
        inside.map(move |area| (area, area.offset_of(range.start()), area.offset_of(range.end())))
    }

    /// The rows that a range lies in, each with the bytes of the axis that the range has in it.
    pub fn rows_of(&self, range: AddrRange) -> impl Iterator<Item = (usize, u64)> {
        self.places(range)
            .flat_map(|(area, from, to)| {
                let first = area.edges.partition_point(|&edge| edge <= from).saturating_sub(1);
                let edges = (area.first_row + first..).zip(area.edges[first..].windows(2));
                let edges = edges.take_while(move |(_, edges)| edges[0] < to);
                edges.map(move |(row, edges)| (row, edges[1].min(to).saturating_sub(edges[0].max(from))))
            })
            .filter(|&(_, bytes)| bytes > 0)
    }

    /// The area of a row, and the index of the row in the area.
    pub fn row(&self, row: usize) -> Option<(&Area, usize)> {
        self.areas.iter().find(|area| row < area.first_row + area.rows).map(|area| (area, row - area.first_row))
    }

    /// The name of most bytes of a row.
    pub fn row_name(&self, row: usize) -> Arc<str> {
        let Some((area, row)) = self.row(row) else { return "".into() };
        let mut sizes: Vec<(Arc<str>, u64)> = vec![];
        for named in area.between(area.row_offset(row), area.row_offset(row + 1)) {
            match sizes.iter_mut().find(|(name, _)| *name == named.name) {
                Some((_, size)) => *size += named.range.size(),
                None => sizes.push((named.name, named.range.size())),
            }
        }
        sizes.into_iter().max_by_key(|&(_, size)| size).map_or_else(|| "".into(), |(name, _)| name)
    }
}

/// Gives each area its minimum of rows, and distributes the rest by size. Returns the number of rows.
fn share_rows(areas: &mut [Area], fineness: AxisResolution) -> usize {
    let group = fineness.group.max(1);
    // A row has at least a page, unless the area has fewer pages than a group has rows.
    let most = |area: &Area| {
        let pages = usize::try_from(area.bytes.div_ceil(PAGE_SIZE)).unwrap_or(usize::MAX);
        if pages < group { pages } else { pages / group * group }
    };
    for area in &mut *areas {
        area.rows = fineness.rows_of_area.next_multiple_of(group).clamp(1, most(area));
    }
    let total: f64 = areas.iter().map(|area| area.bytes as f64).sum();
    let mut used: usize = areas.iter().map(|area| area.rows).sum();
    // Each further group goes to the area that is furthest below its share (a highest-averages method).
    while used + group <= fineness.rows {
        let need = |area: &Area| area.bytes as f64 / total / (area.rows as f64 + 0.5 * group as f64);
        let open = areas.iter_mut().filter(|area| area.rows < most(area));
        let Some(area) = open.max_by(|a, b| need(a).total_cmp(&need(b))) else { break };
        area.rows += group;
        used += group;
    }
    let mut row = 0;
    for area in areas {
        area.divide(row);
        row += area.rows;
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(start: u64, end: u64, name: &str) -> Named {
        Named { range: AddrRange::new(start, end).unwrap(), name: name.into() }
    }

    const MIB: u64 = 1 << 20;
    const FINE: AxisResolution = AxisResolution { rows: 20, rows_of_area: 1, areas: 8, group: 1 };

    #[test]
    fn large_gaps_start_an_area_and_small_ones_are_cut_out() {
        let mapped = [
            named(MIB, 3 * MIB, "a"),
            named(4 * MIB, 6 * MIB, "b"),
            named(1 << 40, (1 << 40) + 16 * MIB, "c"),
            named(1 << 46, (1 << 46) + PAGE_SIZE, "[stack]"),
        ];
        let axis = Axis::new(&mapped, FINE);
        let areas: Vec<_> = axis.areas.iter().map(|a| (a.start(), a.bytes, a.rows)).collect();
        assert_eq!(areas, [(MIB, 4 * MIB, 4), (1 << 40, 16 * MIB, 15), (1 << 46, PAGE_SIZE, 1)]);
        assert_eq!(axis.areas[0].offset_of(4 * MIB), 2 * MIB);
        assert_eq!(axis.areas[0].address_at(2 * MIB), 4 * MIB);
        assert_eq!(axis.areas[0].address_at(2 * MIB - 1), 3 * MIB - 1);
        assert_eq!(&*axis.row_name(axis.rows - 1), "[stack]");
        // Of a range with parts beside the axis, only those on it count.
        let part = AddrRange::new(2 * MIB, (1 << 40) + MIB).unwrap();
        assert_eq!(axis.rows_of(part).map(|(_, bytes)| bytes).sum::<u64>(), 4 * MIB);
    }

    #[test]
    fn there_are_no_more_areas_than_allowed_and_each_has_a_row() {
        let mapped: Vec<_> = (1..50).map(|i| named(i << 40, (i << 40) + (i << 20), "x")).collect();
        let axis = Axis::new(&mapped, AxisResolution { rows: 3, rows_of_area: 1, areas: 8, group: 1 });
        assert_eq!(axis.areas.len(), 8);
        assert_eq!(axis.rows, 8);
        assert_eq!(axis.bytes(), (1..50).sum::<u64>() << 20);
    }
}
