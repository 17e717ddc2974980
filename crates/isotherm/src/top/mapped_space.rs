//! Zooming and panning through the mapped memory.

use std::sync::Arc;

use isotherm_core::{AddrRange, PAGE_SIZE, PackedRanges};
use isotherm_report::extent::Named;

/// The smallest window, in mapped bytes.
const SMALLEST: u64 = 64 << 10;

/// All mapped memory without gaps. An offset counts mapped bytes from the lowest address.
pub struct MappedSpace {
    pieces: Vec<Named>,
    /// The ranges of the pieces.
    packed: PackedRanges,
}

impl MappedSpace {
    /// Makes it of sorted and disjoint pieces.
    pub fn new(pieces: Vec<Named>) -> Self {
        Self { packed: pieces.iter().map(|piece| piece.range).collect(), pieces }
    }

    /// The pieces inside a window; all if there is none.
    pub fn inside(&self, window: Option<AddrRange>) -> Vec<Named> {
        let clip = |piece: &Named| {
            let range = window.map_or(Some(piece.range), |window| window.intersection(piece.range))?;
            Some(Named { range, name: Arc::clone(&piece.name) })
        };
        self.pieces.iter().filter_map(clip).collect()
    }

    /// A window of half the size, in which `at` keeps its relative position.
    pub fn zoomed_in(&self, window: Option<AddrRange>, at: u64) -> Option<AddrRange> {
        let (from, to) = self.offsets(window);
        if to - from <= SMALLEST {
            return window;
        }
        let at = self.packed.offset_of(at).clamp(from, to);
        let size = ((to - from) / 2).max(SMALLEST);
        let from = at.saturating_sub((at - from) / 2).min(to.saturating_sub(size));
        self.window(from, from + size)
    }

    /// A window of twice the size, in which `at` keeps its relative position; `None` if that is everything.
    pub fn zoomed_out(&self, window: Option<AddrRange>, at: u64) -> Option<AddrRange> {
        let (from, to) = self.offsets(window);
        let at = self.packed.offset_of(at).clamp(from, to);
        let size = (to - from).saturating_mul(2);
        if size >= self.packed.bytes() {
            return None;
        }
        let from = at.saturating_sub((at - from) * 2).min(self.packed.bytes() - size);
        self.window(from, from + size)
    }

    /// The window moved up or down by `bytes` of mapped memory, at most to the end.
    pub fn panned(&self, window: Option<AddrRange>, bytes: u64, up: bool) -> Option<AddrRange> {
        window?;
        let (from, to) = self.offsets(window);
        let size = to - from;
        let moved = if up { from.saturating_add(bytes) } else { from.saturating_sub(bytes) };
        let from = moved.min(self.packed.bytes() - size);
        self.window(from, from + size)
    }

    /// The mapped bytes in a window.
    pub fn bytes_in(&self, window: Option<AddrRange>) -> u64 {
        let (from, to) = self.offsets(window);
        to - from
    }

    /// The window in offsets.
    fn offsets(&self, window: Option<AddrRange>) -> (u64, u64) {
        let packed = &self.packed;
        window.map_or((0, packed.bytes()), |window| (packed.offset_of(window.start()), packed.offset_of(window.end())))
    }

    /// The window between two offsets, in whole pages.
    fn window(&self, from: u64, to: u64) -> Option<AddrRange> {
        let (from, to) = (from / PAGE_SIZE * PAGE_SIZE, to.next_multiple_of(PAGE_SIZE).min(self.packed.bytes()));
        AddrRange::new(self.packed.address_at(from), self.packed.address_at(to.saturating_sub(1)).saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn range(start: u64, end: u64) -> Option<AddrRange> {
        AddrRange::new(start, end)
    }

    /// 4 MiB, a gap, 4 MiB.
    fn space() -> MappedSpace {
        let named = |start: u64| Named { range: range(start, start + 4 * MIB).unwrap(), name: "".into() };
        MappedSpace::new(vec![named(MIB), named(100 * MIB)])
    }

    #[test]
    fn zooming_keeps_the_relative_position_of_the_cursor() {
        let space = space();
        // A quarter from the bottom, before and after.
        let window = space.zoomed_in(None, 3 * MIB);
        assert_eq!(window, range(2 * MIB, 101 * MIB));
        assert_eq!(space.bytes_in(window), 4 * MIB);
        assert_eq!(space.zoomed_out(window, 3 * MIB), None, "twice as much is all");
        let window = space.zoomed_in(window, 4 * MIB);
        assert_eq!(window, range(3 * MIB, 5 * MIB));
        assert_eq!(space.zoomed_out(window, 4 * MIB), range(2 * MIB, 101 * MIB));
    }

    #[test]
    fn the_smallest_window_is_not_made_smaller() {
        let space = space();
        let window = (0..100).fold(None, |window, _| space.zoomed_in(window, 101 * MIB));
        assert_eq!(space.bytes_in(window), SMALLEST);
    }

    #[test]
    fn panning_stops_at_the_ends() {
        let space = space();
        let window = range(2 * MIB, 3 * MIB);
        assert_eq!(space.panned(window, MIB, true), range(3 * MIB, 4 * MIB));
        assert_eq!(space.panned(window, 3 * MIB, true), range(100 * MIB, 101 * MIB));
        assert_eq!(space.panned(window, 99 * MIB, true), range(103 * MIB, 104 * MIB));
        assert_eq!(space.panned(window, 99 * MIB, false), range(MIB, 2 * MIB));
        assert_eq!(space.panned(None, MIB, true), None);
    }
}
