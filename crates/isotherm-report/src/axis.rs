//! The address axis: all that was mapped, one piece after the other, without the gaps, in rows.

use std::sync::Arc;

use isotherm_core::{AddrRange, PAGE_SIZE, PackedRanges};

use crate::space::Named;

/// A gap smaller than this does not divide the picture; it is cut out all the same.
const DIVIDING_GAP: u64 = 64 << 20;

/// A part of the axis between two large gaps.
#[derive(Clone, Debug)]
pub struct Area {
    /// What is mapped in it: sorted, disjoint, with names.
    pub mapped: Vec<Named>,
    /// The mapped bytes.
    pub bytes: u64,
    /// Its first row on the axis.
    pub first_row: usize,
    /// How many rows it has, at least one.
    pub rows: usize,
    /// The ranges of `mapped`.
    packed: PackedRanges,
}

impl Area {
    fn new(mapped: Vec<Named>) -> Self {
        let packed: PackedRanges = mapped.iter().map(|named| named.range).collect();
        Self { bytes: packed.bytes(), mapped, first_row: 0, rows: 1, packed }
    }

    /// From the first to the last mapped address.
    pub fn start(&self) -> u64 {
        self.mapped.first().map_or(0, |named| named.range.start())
    }

    /// The address after the last mapped one.
    pub fn end(&self) -> u64 {
        self.mapped.last().map_or(0, |named| named.range.end())
    }

    /// How many of the area's mapped bytes lie below its row `row`, counted from its first.
    pub fn row_offset(&self, row: usize) -> u64 {
        if row >= self.rows {
            return self.bytes;
        }
        let offset = (u128::from(self.bytes) * row as u128 / self.rows as u128) as u64;
        // Rows end with pages where there are pages enough.
        if self.bytes >= self.rows as u64 * PAGE_SIZE { offset / PAGE_SIZE * PAGE_SIZE } else { offset }
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

/// How finely an axis may be divided.
#[derive(Clone, Copy, Debug)]
pub struct Fineness {
    /// Rows in all, unless there are fewer pages, or more areas.
    pub rows: usize,
    /// Rows that each area has at least, unless it has fewer pages.
    pub rows_of_area: usize,
    /// Areas at most.
    pub areas: usize,
    /// Rows come in groups of so many, as two half blocks of a terminal make one character.
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
    /// Lays out what is mapped: divides it at the largest gaps and gives each area rows by its size.
    pub fn new(mapped: &[Named], fineness: Fineness) -> Self {
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

    /// The area and its offsets of a piece that is mapped as one, or `None` if it is not on the axis.
    fn place(&self, range: AddrRange) -> Option<(&Area, u64, u64)> {
        let i = self.areas.partition_point(|area| area.end() <= range.start());
        let area = self.areas.get(i)?;
        (area.start() <= range.start()).then(|| (area, area.offset_of(range.start()), area.offset_of(range.end())))
    }

    /// The rows that a mapped piece lies in, with how many of its bytes lie in each.
    pub fn rows_of(&self, range: AddrRange) -> impl Iterator<Item = (usize, u64)> {
        self.place(range)
            .into_iter()
            .flat_map(|(area, from, to)| {
                // Rounded to pages, a row begins at most one row off.
                let guess = (u128::from(from) * area.rows as u128 / u128::from(area.bytes.max(1))) as usize;
                (guess.saturating_sub(1)..area.rows).map_while(move |row| {
                    let (start, end) = (area.row_offset(row), area.row_offset(row + 1));
                    (start < to).then(|| (area.first_row + row, end.min(to).saturating_sub(start.max(from))))
                })
            })
            .filter(|&(_, bytes)| bytes > 0)
    }

    /// The area of a row, and the row counted from the area's first.
    pub fn row(&self, row: usize) -> Option<(&Area, usize)> {
        self.areas.iter().find(|area| row < area.first_row + area.rows).map(|area| (area, row - area.first_row))
    }

    /// The name that most of a row's bytes have.
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

/// Gives each area the rows it has at least, and the rest by size; says how many that is.
fn share_rows(areas: &mut [Area], fineness: Fineness) -> usize {
    let group = fineness.group.max(1);
    // A row has at least a page, as long as there is one group of them.
    let most = |area: &Area| {
        let pages = usize::try_from(area.bytes.div_ceil(PAGE_SIZE)).unwrap_or(usize::MAX);
        if pages < group { pages } else { pages / group * group }
    };
    for area in &mut *areas {
        area.rows = fineness.rows_of_area.next_multiple_of(group).clamp(1, most(area));
    }
    let total: f64 = areas.iter().map(|area| area.bytes as f64).sum();
    let mut used: usize = areas.iter().map(|area| area.rows).sum();
    // Group after group goes to the area that is furthest below its share: a highest-averages method.
    while used + group <= fineness.rows {
        let need = |area: &Area| area.bytes as f64 / total / (area.rows as f64 + 0.5 * group as f64);
        let open = areas.iter_mut().filter(|area| area.rows < most(area));
        let Some(area) = open.max_by(|a, b| need(a).total_cmp(&need(b))) else { break };
        area.rows += group;
        used += group;
    }
    let mut row = 0;
    for area in areas {
        area.first_row = row;
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
    const FINE: Fineness = Fineness { rows: 20, rows_of_area: 1, areas: 8, group: 1 };

    #[test]
    fn large_gaps_divide_and_small_ones_are_only_cut_out() {
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
    }

    #[test]
    fn no_more_areas_than_asked_for_and_every_area_has_a_row() {
        let mapped: Vec<_> = (1..50).map(|i| named(i << 40, (i << 40) + (i << 20), "x")).collect();
        let axis = Axis::new(&mapped, Fineness { rows: 3, rows_of_area: 1, areas: 8, group: 1 });
        assert_eq!(axis.areas.len(), 8);
        assert_eq!(axis.rows, 8);
        assert_eq!(axis.bytes(), (1..50).sum::<u64>() << 20);
    }
}
