//! The memory that schemes have moved between nodes, so that it does not move back and forth.
//!
//! Four rules hold without any setting. They concern the time that a move needs to pay off: a move costs the time of a
//! copy, and memory on the wrong node costs a little time with each access.
//!
//! - Hot memory is moved only after two looks have found it hot ([`LOOKS`](crate::tiering::LOOKS)): two surveys within
//!   [`RECENT`](crate::tiering::RECENT), or two aggregations without surveys. One look also finds memory that is used
//!   once, such as a file that is read from its start to its end. Linux's NUMA balancing asks for two faults for the
//!   same reason (`should_numa_migrate_memory`).
//! - What was moved is not moved back for a while ([`COOL_DOWN`]).
//! - What was moved is moved back within a minute ([`REPAID`]) only on more evidence than otherwise: hot memory was
//!   found accessed often ([`OFTEN`](crate::tiering::OFTEN)), and cold memory was idle for long
//!   ([`PATIENCE`](crate::tiering::PATIENCE)).
//! - If more than a tenth of the moves of a scheme is undone within a minute, the scheme gets less of its quota (the
//!   module `slowdown`).

use std::time::Duration;

use crate::tiering::{COOL_DOWN, REPAID};
use crate::{AddrRange, TargetId};

use super::Moves;
use super::history::ActionHistory;

/// For how long a scheme does not check memory again that it has found on its node. A check of all of a large memory
/// takes about 0.1 s for 10 GiB of small pages.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// The most ranges of a target whose last move in one direction is remembered: as many as the default rate moves within
/// [`COOL_DOWN`] if they are single pages. They take 13 MiB. If there are more, the oldest are forgotten, and the
/// memory may be moved back like any other.
const MOST_MOVED: usize = 1 << 18;

/// The memory that was moved, by the direction of its last move.
#[derive(Debug)]
pub(crate) struct Moved {
    hot: ActionHistory,
    cold: ActionHistory,
}

impl Default for Moved {
    fn default() -> Self {
        let none = || ActionHistory::of_at_most(MOST_MOVED);
        Self { hot: none(), cold: none() }
    }
}

impl Moved {
    /// Marks `range` as moved in this direction.
    pub(crate) fn mark(&mut self, direction: Moves, target: TargetId, range: AddrRange, at: Duration) {
        self.of_mut(direction).mark(target, range, at);
    }

    /// Calls `each` with the parts of `range` that may be moved in this direction at the time `now`, and with whether
    /// that would undo a move that has not been repaid.
    pub(crate) fn free_to_move(
        &self,
        direction: Moves,
        target: TargetId,
        range: AddrRange,
        now: Duration,
        mut each: impl FnMut(AddrRange, bool),
    ) {
        self.of(direction.opposite()).pieces(target, range, |piece, at| {
            let since = at.map_or(Duration::MAX, |at| now.saturating_sub(at));
            if since >= COOL_DOWN {
                each(piece, since < REPAID);
            }
        });
    }

    /// Drops what has no effect any more.
    pub(crate) fn tidy(&mut self, now: Duration, lives: impl Fn(TargetId) -> bool) {
        let horizon = now.saturating_sub(REPAID);
        self.hot.tidy(now, horizon, &lives);
        self.cold.tidy(now, horizon, &lives);
    }

    fn of(&self, direction: Moves) -> &ActionHistory {
        match direction {
            Moves::Hot => &self.hot,
            Moves::Cold => &self.cold,
        }
    }

    fn of_mut(&mut self, direction: Moves) -> &mut ActionHistory {
        match direction {
            Moves::Hot => &mut self.hot,
            Moves::Cold => &mut self.cold,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    const TARGET: TargetId = TargetId::process(1, Duration::ZERO);

    fn free(moved: &Moved, direction: Moves, second: u64) -> Vec<(u64, u64)> {
        let mut parts = Vec::new();
        let all = AddrRange::new(0, 100).unwrap();
        moved.free_to_move(direction, TARGET, all, Duration::from_secs(second), |part, undoes| {
            assert_eq!(undoes, direction == Moves::Hot && part.start() == 20 && second < 65, "{part} at {second}");
            parts.push((part.start(), part.end()));
        });
        parts
    }

    #[test]
    fn memory_that_was_moved_is_not_moved_back_before_the_cool_down_is_over() {
        let mut moved = Moved::default();
        moved.mark(Moves::Cold, TARGET, AddrRange::new(20, 40).unwrap(), Duration::from_secs(5));
        assert_eq!(free(&moved, Moves::Hot, 14), [(0, 20), (40, 100)]);
        assert_eq!(free(&moved, Moves::Cold, 14), [(0, 100)], "the same direction is free");
        let all: u64 = free(&moved, Moves::Hot, 15).iter().map(|(start, end)| end - start).sum();
        assert_eq!(all, 100);
        moved.tidy(Duration::from_secs(66), |_| true);
        assert_eq!(free(&moved, Moves::Hot, 6), [(0, 100)], "what has no effect is dropped");
    }

    #[test]
    fn scattered_pages_are_remembered_as_long_as_they_must_not_move_back() {
        let mut moved = Moved::default();
        let page = |nth: u64| AddrRange::new(nth * 8192, nth * 8192 + 4096).unwrap();
        (0..20_000).for_each(|nth| moved.mark(Moves::Hot, TARGET, page(nth), Duration::from_secs(5)));
        moved.tidy(Duration::from_secs(6), |_| true);
        let mut free = 0;
        for nth in 0..20_000 {
            moved.free_to_move(Moves::Cold, TARGET, page(nth), Duration::from_secs(14), |_, _| free += 1);
        }
        assert_eq!(free, 0);
    }
}
