//! The policy that keeps hot memory in the fast tier: what the schemes of `isotherm tier run` and the model of
//! `isotherm tier try` have in common. `docs/tiers.md` describes it.

use std::time::Duration;

mod exchange;

pub use exchange::{EXCHANGE_IDLE, Patience, Waiting, rank};

/// The default limit of how many bytes are moved in a second, in both directions together. Each direction gets half.
pub const DEFAULT_RATE: u64 = 200_000_000;

/// Memory is demoted after it was idle for this long.
pub const IDLE: Duration = Duration::from_secs(10);

/// Memory in which no access was ever found is demoted after it was idle for this long. So a full fast node has room
/// soon after isotherm begins to watch it. It is about two survey intervals.
///
/// It is shorter than [`IDLE`], since it holds for each page only once: after an access, the page must be idle for
/// [`IDLE`] like all others.
pub const NEVER_ACCESSED: Duration = Duration::from_secs(3);

/// Memory that one look has found accessed is promoted as well while there is room beyond what [`LOOKS`] needs. To make
/// that room, memory is demoted after it was idle for this long. It is longer than the minute in which moves are
/// evaluated, so that what is used once a minute stays.
pub const LONG_IDLE: Duration = Duration::from_secs(120);

/// The number of looks that must have found memory hot before it is promoted.
pub const LOOKS: u32 = 2;

/// Memory is in use if two surveys within this time, or the last two surveys, have found it accessed. Memory that is
/// used less often would be demoted again.
pub const RECENT: Duration = IDLE;

/// For how long memory is not moved against the direction of its last move. It is longer than the default interval of
/// surveys, so that a survey can observe the effect of the move. It is short compared with the minute in which moves
/// are evaluated, so that memory on the wrong node does not stay there.
pub const COOL_DOWN: Duration = Duration::from_secs(10);

/// A move that is undone within this time was wrong: its cost was not repaid.
pub const REPAID: Duration = Duration::from_secs(60);

/// Within [`REPAID`] after memory was demoted, it is promoted only if this share of the last nine surveys has found it
/// accessed. Memory that is used about every [`RECENT`] is found accessed twice by chance.
pub const OFTEN: f64 = 0.5;

/// Within [`REPAID`] after memory was promoted, it is demoted only after it was idle for this many times as long as
/// otherwise. Memory that is used about every [`IDLE`] is found idle by chance.
pub const PATIENCE: u32 = 3;

/// The share of a node that is to be free, at least: memory is demoted below it. The kernel's documentation of DAMON
/// and the patches for two tiers use the same (`node_mem_free_bp` of 50).
const FREE: f64 = 0.005;

/// Memory is promoted while more than [`FREE`] less this share is free.
const OVERLAP: f64 = 0.002;

/// The largest share of a node that is kept free for what goes up in a second. Where more waits, memory makes room.
const SPARE: f64 = 0.01;

/// The largest share of a node that is to be free, however small it is.
const MOST_FREE: f64 = 0.2;

/// The largest part of the free share that the overlap takes.
const MOST_OVERLAP: f64 = 0.75;

/// How full a fast node is kept. Both figures are shares of the node, 0 to 1. The goals of the two directions overlap,
/// so that both settle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fill {
    /// Memory is demoted while less than this is free.
    pub free: f64,
    /// Memory is promoted while less than this is used. It is more than 1 - `free`. Once the node is full, the
    /// difference is what can be promoted in a second.
    pub used: f64,
}

impl Fill {
    /// For a node of `size` bytes of which `kept` bytes cannot be filled. No more than `in_a_second` bytes are promoted
    /// to it in a second.
    ///
    /// The overlap is at least `in_a_second`, or else a small node would fill slowly. As many bytes are to be free
    /// beyond `kept`, or nothing would be demoted to make room.
    pub fn of(size: u64, kept: u64, in_a_second: u64) -> Self {
        let share = |bytes: u64| bytes as f64 / size.max(1) as f64;
        let in_a_second = in_a_second.min((size as f64 * SPARE) as u64);
        let free = share(kept.saturating_add(in_a_second)).clamp(FREE, MOST_FREE);
        let overlap = share(in_a_second).max(OVERLAP).min(free * MOST_OVERLAP);
        Self { free, used: 1.0 - free + overlap }
    }

    /// How full the node is kept with memory that is not in use, but not idle for long either.
    ///
    /// It is less full than [`Fill::of`] keeps it, by the overlap: what is promoted for this is never the reason that
    /// memory which was idle for [`IDLE`] is demoted.
    #[must_use]
    pub fn before_it(self) -> Self {
        let overlap = self.used - (1.0 - self.free);
        let used = (1.0 - self.free - overlap).max(0.0);
        Self { free: (1.0 - used + overlap).min(1.0), used }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn a_large_node_is_filled_but_for_half_a_percent() {
        let fill = Fill::of(1 << 40, 1 << 28, 100_000_000);
        assert!(near(fill.free, 0.005) && near(fill.used, 0.997), "{fill:?}");
    }

    #[test]
    fn on_a_small_node_there_is_room_for_what_goes_up_in_a_second_but_no_more_than_a_hundredth() {
        let fill = Fill::of(10_000_000_000, 200_000_000, 50_000_000);
        assert!(near(fill.free, 0.025) && near(fill.used, 0.98), "{fill:?}");
        let small = Fill::of(1_000_000_000, 50_000_000, 100_000_000);
        assert!(near(small.free, 0.06) && near(small.used, 0.95), "{small:?}");
        let tiny = Fill::of(100_000_000, 0, 100_000_000);
        assert!(near(tiny.free, 0.01) && near(tiny.used, 0.9975), "a part of what is to be free: {tiny:?}");
        assert!(Fill::of(0, 0, 0).used <= 1.0);
    }

    #[test]
    fn what_is_not_in_use_leaves_the_room_free_that_memory_in_use_needs() {
        let fill = Fill { free: 0.005, used: 0.997 };
        let before = fill.before_it();
        assert!(near(before.used, 0.993) && near(before.free, 0.009), "{before:?}");
        assert!(before.used < 1.0 - fill.free, "no memory is demoted for it");
        assert!(before.used > 1.0 - before.free, "both directions settle");
    }
}
