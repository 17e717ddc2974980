//! Zooming and panning through addresses: which stretch of all mapped memory is shown.

use std::sync::Arc;

use isotherm_core::{AddrRange, PAGE_SIZE, PackedRanges};
use isotherm_report::space::Named;

/// No window is smaller, in mapped bytes.
const SMALLEST: u64 = 64 << 10;

/// All mapped memory in a row, one byte after the other, without the gaps.
pub struct Space {
    pieces: Vec<Named>,
    /// The ranges of the pieces.
    packed: PackedRanges,
}

impl Space {
    /// Of pieces that are sorted and disjoint.
    pub fn new(pieces: Vec<Named>) -> Self {
        Self { packed: pieces.iter().map(|piece| piece.range).collect(), pieces }
    }

    /// All pieces, or what of them lies in a window.
    pub fn inside(&self, window: Option<AddrRange>) -> Vec<Named> {
        let clip = |piece: &Named| {
            let range = window.map_or(Some(piece.range), |window| window.intersection(piece.range))?;
            Some(Named { range, name: Arc::clone(&piece.name) })
        };
        self.pieces.iter().filter_map(clip).collect()
    }

    /// The window that holds half as much, in which `at` stays where it is.
    pub fn zoomed_in(&self, window: Option<AddrRange>, at: u64) -> Option<AddrRange> {
        let (from, to) = self.place(window);
        if to - from <= SMALLEST {
            return window;
        }
        let at = self.packed.offset_of(at).clamp(from, to);
        let size = ((to - from) / 2).max(SMALLEST);
        let from = at.saturating_sub((at - from) / 2).min(to.saturating_sub(size));
        self.window(from, from + size)
    }

    /// The window that holds twice as much, in which `at` stays where it is; `None` if that is all.
    pub fn zoomed_out(&self, window: Option<AddrRange>, at: u64) -> Option<AddrRange> {
        let (from, to) = self.place(window);
        let at = self.packed.offset_of(at).clamp(from, to);
        let size = (to - from).saturating_mul(2);
        if size >= self.packed.bytes() {
            return None;
        }
        let from = at.saturating_sub((at - from) * 2).min(self.packed.bytes() - size);
        self.window(from, from + size)
    }

    /// The window moved by `bytes` of mapped memory, up or down, as far as there is any.
    pub fn panned(&self, window: Option<AddrRange>, bytes: u64, up: bool) -> Option<AddrRange> {
        window?;
        let (from, to) = self.place(window);
        let size = to - from;
        let moved = if up { from.saturating_add(bytes) } else { from.saturating_sub(bytes) };
        let from = moved.min(self.packed.bytes() - size);
        self.window(from, from + size)
    }

    /// The mapped bytes in a window.
    pub fn bytes_in(&self, window: Option<AddrRange>) -> u64 {
        let (from, to) = self.place(window);
        to - from
    }

    /// The window as offsets.
    fn place(&self, window: Option<AddrRange>) -> (u64, u64) {
        window.map_or((0, self.packed.bytes()), |window| {
            (self.packed.offset_of(window.start()), self.packed.offset_of(window.end()))
        })
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

    /// Four MiB, a gap, four MiB.
    fn space() -> Space {
        let named = |start: u64| Named { range: range(start, start + 4 * MIB).unwrap(), name: "".into() };
        Space::new(vec![named(MIB), named(100 * MIB)])
    }

    #[test]
    fn zooming_keeps_the_cursor_where_it_is() {
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
    fn panning_ends_at_the_ends() {
        let space = space();
        let window = range(2 * MIB, 3 * MIB);
        assert_eq!(space.panned(window, MIB, true), range(3 * MIB, 4 * MIB));
        assert_eq!(space.panned(window, 3 * MIB, true), range(100 * MIB, 101 * MIB));
        assert_eq!(space.panned(window, 99 * MIB, true), range(103 * MIB, 104 * MIB));
        assert_eq!(space.panned(window, 99 * MIB, false), range(MIB, 2 * MIB));
        assert_eq!(space.panned(None, MIB, true), None);
    }
}
