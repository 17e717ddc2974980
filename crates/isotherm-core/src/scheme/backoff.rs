//! The back-off of actions that free memory: memory that an action did not free, or that came back soon, is tried
//! again after twice the time, each time. So memory that cannot be freed, for example because a device has pinned it,
//! is tried rarely, and so is memory that is used a little more rarely than the scheme looks for. Memory that can be
//! freed again waits no longer than it resisted.

use std::time::Duration;

use crate::{AddrRange, TargetId};

use super::history::ActionHistory;

/// The longest time for which it is remembered that memory was not freed.
const LONGEST: Duration = Duration::from_secs(3600);

/// The most ranges of a target that are remembered in each way. If there are more, the oldest are forgotten and tried
/// again.
const MOST: usize = 1 << 16;

/// How an action that frees memory failed on a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resisted {
    /// All of it stayed mapped in its target.
    Mapped,
    /// It was unmapped, and stayed in memory.
    Unmapped,
    /// It was freed, and came back soon.
    CameBack,
}

/// The memory that actions did not free.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    mapped: Failures,
    unmapped: Failures,
    came_back: Failures,
}

/// When actions failed on memory.
#[derive(Debug)]
struct Failures {
    first: ActionHistory,
    last: ActionHistory,
}

impl Default for Failures {
    fn default() -> Self {
        Self { first: ActionHistory::of_at_most(MOST), last: ActionHistory::of_at_most(MOST) }
    }
}

impl Backoff {
    /// Takes in that an action at the time `at` failed on `range`.
    pub(crate) fn failed(&mut self, how: Resisted, target: TargetId, range: AddrRange, at: Duration) {
        let failures = match how {
            Resisted::Mapped => &mut self.mapped,
            Resisted::Unmapped => &mut self.unmapped,
            Resisted::CameBack => &mut self.came_back,
        };
        // What was tried before its time had changed, so this is the first failure.
        let goes_on = |[first, last]: [Duration; 2]| is_time(first, last, at);
        let mut new = Vec::new();
        failures.pieces(target, range, |piece, failed| new.extend((!failed.is_some_and(goes_on)).then_some(piece)));
        new.into_iter().for_each(|piece| failures.first.mark(target, piece, at));
        failures.last.mark(target, range, at);
    }

    /// Forgets that `range` was not freed, because it was now.
    pub(crate) fn freed(&mut self, target: TargetId, range: AddrRange) {
        self.mapped.forget(target, range);
        self.unmapped.forget(target, range);
    }

    /// Takes in that of `range`, which was freed at the time `at`, these parts came back soon, and no others. `back` is
    /// sorted.
    pub(crate) fn came_back(&mut self, target: TargetId, range: AddrRange, back: &[AddrRange], at: Duration) {
        let mut rest = Some(range);
        for part in back {
            let stayed_away = AddrRange::new(rest.map_or(part.start(), AddrRange::start), part.start());
            stayed_away.into_iter().for_each(|away| self.came_back.forget(target, away));
            self.failed(Resisted::CameBack, target, *part, at);
            rest = AddrRange::new(part.end(), range.end());
        }
        rest.into_iter().for_each(|away| self.came_back.forget(target, away));
    }

    /// Calls `each` with the parts of `range` that may be tried at the time `now`, and with whether a part was only
    /// unmapped when it was tried before. `accessed` is when the memory was accessed last: an access after a failure is
    /// a change, and the memory is tried again. Memory that was unmapped or freed is in the target again only after an
    /// access, which says nothing about whether to try it again.
    pub(crate) fn pieces(
        &self,
        target: TargetId,
        range: AddrRange,
        now: Duration,
        accessed: Duration,
        mut each: impl FnMut(AddrRange, bool),
    ) {
        self.mapped.pieces(target, range, |piece, failed| {
            if failed.is_some_and(|[first, last]| accessed <= last && !is_time(first, last, now)) {
                return;
            }
            self.came_back.pieces(target, piece, |piece, failed| {
                if failed.is_some_and(|[first, last]| !is_time(first, last, now)) {
                    return;
                }
                self.unmapped.pieces(target, piece, |piece, failed| {
                    if failed.is_none_or(|[first, last]| is_time(first, last, now)) {
                        each(piece, failed.is_some());
                    }
                });
            });
        });
    }

    /// Drops what has no effect any more.
    pub(crate) fn tidy(&mut self, now: Duration, lives: impl Fn(TargetId) -> bool) {
        self.mapped.tidy(now, &lives);
        self.unmapped.tidy(now, &lives);
        self.came_back.tidy(now, &lives);
    }
}

/// What the filters of a scheme have rejected. Memory that stays as it is counts once, however often it is rejected,
/// and its pages are inspected again after twice the time, each time.
#[derive(Debug, Default)]
pub(crate) struct Rejections(Failures);

/// What is known of memory that a filter may reject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// It was not rejected before.
    Never,
    /// It was rejected, and was accessed since, so that it counts as other memory.
    Before,
    /// It was rejected, and stays as it is. `is_due` says whether to inspect its pages again.
    Unchanged { is_due: bool },
}

impl Rejections {
    /// Takes in that a filter has rejected `range` at the time `at`. Returns how many of its bytes were not known to be
    /// rejected.
    pub(crate) fn reject(&mut self, target: TargetId, range: AddrRange, at: Duration) -> u64 {
        let mut new = Vec::new();
        self.0.last.pieces(target, range, |piece, known| new.extend(known.is_none().then_some(piece)));
        new.iter().for_each(|piece| self.0.first.mark(target, *piece, at));
        self.0.last.mark(target, range, at);
        new.iter().map(|piece| piece.size()).sum()
    }

    /// Forgets what was rejected of `range`, because it has changed.
    pub(crate) fn forget(&mut self, target: TargetId, range: AddrRange) {
        self.0.forget(target, range);
    }

    /// Calls `each` with the parts of `range`, which was accessed last at the time `accessed`, and what is known of
    /// them.
    pub(crate) fn pieces(
        &self,
        target: TargetId,
        range: AddrRange,
        now: Duration,
        accessed: Duration,
        mut each: impl FnMut(AddrRange, Asked),
    ) {
        self.0.pieces(target, range, |piece, rejected| {
            let asked = match rejected {
                None => Asked::Never,
                Some([_, last]) if accessed > last => Asked::Before,
                Some([first, last]) => Asked::Unchanged { is_due: is_time(first, last, now) },
            };
            each(piece, asked);
        });
    }

    /// Drops what has no effect any more.
    pub(crate) fn tidy(&mut self, now: Duration, lives: impl Fn(TargetId) -> bool) {
        self.0.tidy(now, &lives);
    }
}

impl Failures {
    fn forget(&mut self, target: TargetId, range: AddrRange) {
        self.first.forget(target, range);
        self.last.forget(target, range);
    }

    fn tidy(&mut self, now: Duration, lives: &impl Fn(TargetId) -> bool) {
        self.first.tidy(now, Duration::ZERO, lives);
        self.last.tidy(now, now.saturating_sub(LONGEST), lives);
    }

    /// Cuts `range` where the times of failures change, and calls `each` with the parts and the times of the first and
    /// the last failure.
    fn pieces(&self, target: TargetId, range: AddrRange, mut each: impl FnMut(AddrRange, Option<[Duration; 2]>)) {
        self.last.pieces(target, range, |piece, last| match last {
            None => each(piece, None),
            Some(last) => {
                self.first.pieces(target, piece, |piece, first| each(piece, Some([first.unwrap_or(last), last])));
            }
        });
    }
}

/// Whether to try again memory that has failed from `first` to `last`: when twice that time has passed.
fn is_time(first: Duration, last: Duration, now: Duration) -> bool {
    now.saturating_sub(first) >= last.saturating_sub(first) * 2
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    const TARGET: TargetId = TargetId::process(1, Duration::ZERO);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn range(start: u64, end: u64) -> AddrRange {
        AddrRange::new(start, end).unwrap()
    }

    fn parts(backoff: &Backoff, now: u64, accessed: u64) -> Vec<(u64, u64, bool)> {
        let mut parts = Vec::new();
        backoff.pieces(TARGET, range(0, 100), seconds(now), seconds(accessed), |part, unmapped| {
            parts.push((part.start(), part.end(), unmapped));
        });
        parts
    }

    /// The seconds at which memory is tried that never yields, by a scheme for memory that is idle for 5 s.
    fn tries(how: Resisted, accessed: impl Fn(u64) -> u64) -> Vec<u64> {
        let mut backoff = Backoff::default();
        let mut tries: Vec<u64> = Vec::new();
        for now in 10..1000 {
            let is_aged = tries.last().is_none_or(|last| now >= last + 5);
            if is_aged && !parts(&backoff, now, accessed(now)).is_empty() {
                backoff.failed(how, TARGET, range(0, 100), seconds(now));
                tries.push(now);
            }
        }
        tries
    }

    #[test]
    fn the_time_between_two_tries_doubles() {
        let doubling = [10, 15, 20, 30, 50, 90, 170, 330, 650];
        assert_eq!(tries(Resisted::Mapped, |_| 0), doubling);
        assert_eq!(tries(Resisted::Unmapped, |now| now), doubling, "it comes back by an access each time");
        assert_eq!(tries(Resisted::CameBack, |now| now), doubling, "likewise");
    }

    #[test]
    fn memory_that_was_accessed_since_it_was_tried_is_tried_again() {
        // It is accessed at second 200, and twice each minute after second 700.
        let accessed = |now| if now >= 700 { now / 30 * 30 } else { now / 200 * 200 };
        let tries = tries(Resisted::Mapped, accessed);
        assert!(tries.contains(&200) && !tries.contains(&201), "{tries:?}");
        assert!(tries.iter().filter(|&&at| at >= 700).count() >= 9, "{tries:?}");
    }

    #[test]
    fn memory_that_is_rejected_counts_once_until_it_is_accessed_and_is_inspected_more_and_more_rarely() {
        let mut rejections = Rejections::default();
        let (mut inspected, mut counted) = (Vec::new(), Vec::new());
        for now in 1..=60 {
            let accessed = seconds(if now < 40 { 0 } else { 35 });
            let mut due = Vec::new();
            rejections.pieces(TARGET, range(0, 100), seconds(now), accessed, |part, asked| match asked {
                Asked::Never | Asked::Unchanged { is_due: true } => due.push((part, false)),
                Asked::Before => due.push((part, true)),
                Asked::Unchanged { is_due: false } => {}
            });
            for (part, is_other) in due {
                if is_other {
                    rejections.forget(TARGET, part);
                }
                inspected.push(now);
                counted.push(rejections.reject(TARGET, part, seconds(now)));
            }
        }
        assert_eq!(inspected, [1, 2, 3, 5, 9, 17, 33, 40, 41, 42, 44, 48, 56]);
        assert_eq!(counted.iter().filter(|bytes| **bytes > 0).collect::<Vec<_>>(), [&100, &100]);
    }

    #[test]
    fn what_resisted_is_told_from_its_neighbours_and_forgotten_if_it_changes() {
        let mut backoff = Backoff::default();
        backoff.failed(Resisted::Mapped, TARGET, range(20, 40), seconds(1));
        backoff.failed(Resisted::Mapped, TARGET, range(30, 60), seconds(11));
        assert_eq!(parts(&backoff, 12, 0), [(0, 20, false), (20, 30, false), (40, 60, false), (60, 100, false)]);
        backoff.failed(Resisted::Unmapped, TARGET, range(90, 100), seconds(11));
        backoff.freed(TARGET, range(35, 50));
        let tried =
            [(0, 20, false), (20, 30, false), (35, 50, false), (50, 60, false), (60, 90, false), (90, 100, true)];
        assert_eq!(parts(&backoff, 12, 0), tried);
        backoff.tidy(seconds(4000), |_| true);
        assert_eq!(parts(&backoff, 12, 0), [(0, 100, false)]);
    }

    #[test]
    fn memory_that_has_stayed_away_once_is_tried_as_other_memory() {
        let mut backoff = Backoff::default();
        for at in [1, 6] {
            backoff.came_back(TARGET, range(0, 100), &[range(0, 100)], seconds(at));
        }
        backoff.freed(TARGET, range(0, 100));
        assert_eq!(parts(&backoff, 10, 0), []);
        assert_eq!(parts(&backoff, 11, 0), [(0, 100, false)]);
        backoff.came_back(TARGET, range(0, 100), &[range(30, 40), range(90, 100)], seconds(11));
        assert_eq!(parts(&backoff, 12, 0), [(0, 30, false), (40, 90, false)]);
        assert_eq!(parts(&backoff, 21, 0).len(), 4);
    }
}
