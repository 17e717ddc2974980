//! The mappings of a target over time. The address axis shows everything that was mapped in the time shown.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{AddrRange, Mapping};
use isotherm_report::extent::Named;

/// The maximum number of states. Beyond it the two oldest are merged.
const STATES: usize = 32;

/// The maximum number of pieces of all states (2 MB). Beyond it the oldest are forgotten.
const PIECES: usize = 50_000;

/// The mappings of one target over time.
#[derive(Clone, Default)]
pub struct MappedHistory {
    /// The oldest first.
    states: VecDeque<State>,
    /// The mappings of the newest state.
    now: Option<Arc<[Mapping]>>,
}

#[derive(Clone)]
struct State {
    since: Duration,
    until: Duration,
    pieces: Arc<[Named]>,
}

impl MappedHistory {
    /// Records the mappings at a time.
    pub fn note(&mut self, time: Duration, mappings: &Arc<[Mapping]>) {
        let same = self.now.as_ref().is_some_and(|now| Arc::ptr_eq(now, mappings) || now == mappings);
        self.now = Some(Arc::clone(mappings));
        if let (true, Some(last)) = (same, self.states.back_mut()) {
            last.until = time;
            return;
        }
        let pieces = joined(mappings.iter().map(|m| Named { range: m.range, name: m.label() }));
        self.states.push_back(State { since: time, until: time, pieces: pieces.into() });

        let mut all: usize = self.states.iter().map(|state| state.pieces.len()).sum();
        while self.states.len() > STATES || all > PIECES {
            let (Some(old), Some(next)) = (self.states.pop_front(), self.states.front_mut()) else { return };
            all -= old.pieces.len();
            if old.pieces.len() + next.pieces.len() <= PIECES / 4 {
                all -= next.pieces.len();
                next.since = old.since;
                next.pieces = overlaid(&old.pieces, &next.pieces).into();
                all += next.pieces.len();
            }
        }
    }

    /// Everything that was mapped at some time from `from` to `to`. The latest name of an address counts.
    pub fn between(&self, from: Duration, to: Duration) -> Vec<Named> {
        let mut all = vec![];
        let mut states = self.states.iter().filter(|state| state.until >= from && state.since <= to).peekable();
        if states.peek().is_none() {
            // A short span may lie between two updates of the mappings. The earlier one holds.
            return self.states.iter().rev().find(|state| state.since <= to).map_or(vec![], |s| s.pieces.to_vec());
        }
        for state in states {
            all = if all.is_empty() { state.pieces.to_vec() } else { overlaid(&all, &state.pieces) };
        }
        all
    }
}

/// Joins neighbours of the same name.
fn joined(pieces: impl Iterator<Item = Named>) -> Vec<Named> {
    let mut all: Vec<Named> = vec![];
    for piece in pieces {
        match all.last_mut() {
            Some(last) if last.range.touches(piece.range) && last.name == piece.name => {
                last.range = AddrRange::new(last.range.start(), piece.range.end()).unwrap_or(last.range);
            }
            _ => all.push(piece),
        }
    }
    all
}

/// The new pieces, and the parts of the old pieces that they do not cover.
fn overlaid(old: &[Named], new: &[Named]) -> Vec<Named> {
    let mut all = new.to_vec();
    for piece in old {
        let mut start = piece.range.start();
        let first = new.partition_point(|over| over.range.end() <= start);
        let over = new[first..].iter().map(|over| over.range).take_while(|over| over.start() < piece.range.end());
        let end = AddrRange::new(piece.range.end(), u64::MAX);
        for over in over.chain(end) {
            let beside = AddrRange::new(start, over.start().min(piece.range.end()));
            all.extend(beside.map(|range| Named { range, name: Arc::clone(&piece.name) }));
            start = start.max(over.end());
        }
    }
    all.sort_unstable_by_key(|piece| piece.range);
    joined(all.into_iter())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(start: u64, end: u64, name: &str) -> Named {
        Named { range: AddrRange::new(start, end).unwrap(), name: name.into() }
    }

    fn mappings(pieces: &[(u64, u64, &str)]) -> Arc<[Mapping]> {
        let mapping = |&(start, end, name): &(u64, u64, &str)| Mapping {
            name: name.into(),
            ..Mapping::anonymous(AddrRange::new(start, end).unwrap())
        };
        pieces.iter().map(mapping).collect()
    }

    #[test]
    fn later_mappings_replace_earlier_ones() {
        let old = [named(0, 10, "a"), named(10, 12, "b"), named(20, 30, "b"), named(40, 50, "c")];
        let new = [named(5, 10, "c"), named(22, 24, "d"), named(26, 28, "b"), named(35, 60, "c")];
        let all = overlaid(&old, &new);
        let expected = [
            named(0, 5, "a"),
            named(5, 10, "c"),
            named(10, 12, "b"),
            named(20, 22, "b"),
            named(22, 24, "d"),
            named(24, 30, "b"),
            named(35, 60, "c"),
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn the_axis_has_only_mappings_of_its_time() {
        let seconds = Duration::from_secs;
        let mut mapped = MappedHistory::default();
        mapped.note(seconds(1), &mappings(&[(0, 4096, "a")]));
        mapped.note(seconds(2), &mappings(&[(0, 4096, "a")]));
        mapped.note(seconds(3), &mappings(&[(4096, 8192, "b")]));
        assert_eq!(mapped.states.len(), 2);
        assert_eq!(mapped.between(seconds(0), seconds(2)), [named(0, 4096, "a")]);
        assert_eq!(mapped.between(seconds(2), seconds(3)), [named(0, 4096, "a"), named(4096, 8192, "b")]);
        assert_eq!(mapped.between(seconds(4), seconds(5)), [named(4096, 8192, "b")]);
    }

    #[test]
    fn a_target_that_maps_all_the_time_needs_bounded_memory() {
        let mut mapped = MappedHistory::default();
        for i in 0..1000 {
            mapped.note(Duration::from_secs(i), &mappings(&[(i * 8192, i * 8192 + 4096, "x")]));
        }
        assert_eq!(mapped.states.len(), STATES);
        assert_eq!(mapped.between(Duration::ZERO, Duration::MAX).len(), 1000);

        let many: Vec<(u64, u64, &str)> = (0..30_000).map(|i| (i * 8192, i * 8192 + 4096, "y")).collect();
        for i in 0..10 {
            mapped.note(Duration::from_secs(1000 + i), &mappings(&many[i as usize..]));
        }
        assert_eq!(mapped.states.len(), 1);
    }
}
