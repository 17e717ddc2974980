//! The history of actions: when schemes have acted on which memory, so that its age starts again there.
//!
//! The age in a snapshot is the monitor's: for how long the access frequency has stayed the same. The age that
//! schemes use is the shorter of that and of the time since a scheme acted on the memory. The time of the action is
//! kept here and not in the monitor for three reasons. It stays exact to the page when the monitor merges memory that
//! was acted on with memory that was not. The monitor needs no way back from its sinks. And it works for snapshots of
//! the kernel's DAMON and of recordings as well.

use std::time::Duration;

use crate::{AddrRange, TargetId};

/// The most marks of a target. Neighbours are joined and then the oldest marks are dropped until there are no more.
const MAX_MARKS: usize = 4096;

/// Two marks are joined if their times differ by no more than the time since the later one divided by this number.
/// The joined mark has the later time: memory can seem a little younger than it is, but never older.
const AGE_RESOLUTION: u32 = 8;

/// When each range of each target was acted on last.
#[derive(Debug, Default)]
pub(crate) struct ActionHistory {
    /// The marks of each target, sorted and disjoint.
    targets: Vec<(TargetId, Vec<Mark>)>,
}

/// A range that a scheme acted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    range: AddrRange,
    at: Duration,
}

impl ActionHistory {
    /// Drops targets that have ended and marks from before `horizon`, and joins neighbours of about the same time.
    pub(crate) fn tidy(&mut self, now: Duration, horizon: Duration, lives: impl Fn(TargetId) -> bool) {
        self.targets.retain(|(target, _)| lives(*target));
        for (_, marks) in &mut self.targets {
            marks.retain(|mark| mark.at >= horizon);
            let mut resolution = AGE_RESOLUTION;
            loop {
                marks.dedup_by(|next, kept| {
                    let (early, late) = (kept.at.min(next.at), kept.at.max(next.at));
                    let about_the_same = late - early <= now.saturating_sub(late) / resolution;
                    match AddrRange::new(kept.range.start(), next.range.end()) {
                        Some(both) if kept.range.touches(next.range) && about_the_same => {
                            *kept = Mark { range: both, at: late };
                            true
                        }
                        _ => false,
                    }
                });
                if marks.len() <= MAX_MARKS || resolution <= 1 {
                    break;
                }
                resolution /= 2;
            }
            // Marks that do not touch each other cannot be joined.
            while marks.len() > MAX_MARKS {
                let mut times: Vec<Duration> = marks.iter().map(|mark| mark.at).collect();
                times.sort_unstable();
                let median = times[times.len() / 2];
                let before = marks.len();
                marks.retain(|mark| mark.at > median);
                if marks.len() == before {
                    marks.truncate(MAX_MARKS);
                }
            }
        }
    }

    /// Marks `range` of `target` as acted on at this time.
    pub(crate) fn mark(&mut self, target: TargetId, range: AddrRange, at: Duration) {
        let marks = match self.targets.iter().position(|(known, _)| *known == target) {
            Some(i) => &mut self.targets[i].1,
            None => {
                self.targets.push((target, Vec::new()));
                let Some((_, marks)) = self.targets.last_mut() else {
                    return;
                };
                marks
            }
        };
        let first = marks.partition_point(|mark| mark.range.end() <= range.start());
        let after = marks.partition_point(|mark| mark.range.start() < range.end());
        let below = marks[first..after]
            .first()
            .and_then(|mark| Some(Mark { range: AddrRange::new(mark.range.start(), range.start())?, at: mark.at }));
        let above = marks[first..after]
            .last()
            .and_then(|mark| Some(Mark { range: AddrRange::new(range.end(), mark.range.end())?, at: mark.at }));
        let new = [below, Some(Mark { range, at }), above];
        marks.splice(first..after, new.into_iter().flatten());
    }

    /// Cuts `range` where the time of the last action changes, and calls `each` with the parts in the order of
    /// addresses and with that time.
    pub(crate) fn pieces(&self, target: TargetId, range: AddrRange, mut each: impl FnMut(AddrRange, Option<Duration>)) {
        let marks = self.targets.iter().find(|(known, _)| *known == target).map_or(&[][..], |(_, marks)| marks);
        let first = marks.partition_point(|mark| mark.range.end() <= range.start());
        let mut rest = Some(range);
        for mark in &marks[first..] {
            let Some((left, marked)) = rest.and_then(|left| Some((left, left.intersection(mark.range)?))) else {
                break;
            };
            if let Some(unmarked) = AddrRange::new(left.start(), marked.start()) {
                each(unmarked, None);
            }
            each(marked, Some(mark.at));
            rest = AddrRange::new(marked.end(), left.end());
        }
        if let Some(unmarked) = rest {
            each(unmarked, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TARGET: TargetId = TargetId::process(1, Duration::ZERO);

    fn pieces(history: &ActionHistory, start: u64, end: u64) -> Vec<(u64, u64, Option<u64>)> {
        let mut pieces = Vec::new();
        history.pieces(TARGET, AddrRange::new(start, end).unwrap(), |range, at| {
            pieces.push((range.start(), range.end(), at.map(|at| at.as_secs())));
        });
        pieces
    }

    proptest! {
        #[test]
        fn each_piece_has_the_time_of_the_last_action_on_it(
            marks in prop::collection::vec((0..50_u64, 1..20_u64), 0..30)
        ) {
            let mut history = ActionHistory::default();
            let mut truth = [None; 80];
            for (at, (start, size)) in (0..).zip(marks) {
                history.mark(TARGET, AddrRange::new(start, start + size).unwrap(), Duration::from_secs(at));
                truth[start as usize..(start + size) as usize].fill(Some(at));
            }
            let mut covered = 0;
            for (start, end, at) in pieces(&history, 0, 80) {
                prop_assert_eq!(start, covered);
                covered = end;
                prop_assert!(truth[start as usize..end as usize].iter().all(|known| *known == at));
            }
            prop_assert_eq!(covered, 80);
        }

        #[test]
        fn tidying_makes_no_memory_older_and_little_younger(
            marks in prop::collection::vec((0..50_u64, 1..20_u64), 0..30)
        ) {
            let mut history = ActionHistory::default();
            for (at, (start, size)) in (0..).zip(&marks) {
                history.mark(TARGET, AddrRange::new(*start, start + size).unwrap(), Duration::from_secs(at));
            }
            let each = |history: &ActionHistory| (0..80).map(|at| pieces(history, at, at + 1)[0].2).collect::<Vec<_>>();
            let before = each(&history);
            let now = 1000;
            history.tidy(Duration::from_secs(now), Duration::ZERO, |_| true);
            for (before, after) in before.into_iter().zip(each(&history)) {
                match (before, after) {
                    (None, None) => {}
                    (Some(before), Some(after)) => {
                        prop_assert!(after >= before, "memory never becomes older");
                        prop_assert!((now - before) <= (now - after) * 5 / 4);
                    }
                    other => prop_assert!(false, "{other:?}"),
                }
            }
        }
    }

    #[test]
    fn a_target_that_has_ended_is_dropped() {
        let mut history = ActionHistory::default();
        history.mark(TARGET, AddrRange::new(0, 4).unwrap(), Duration::from_secs(1));
        history.tidy(Duration::from_secs(2), Duration::ZERO, |target| target != TARGET);
        assert_eq!(pieces(&history, 0, 4), [(0, 4, None)]);
    }

    #[test]
    fn the_number_of_marks_is_bounded() {
        let mut history = ActionHistory::default();
        for i in 0..3 * MAX_MARKS as u64 {
            history.mark(TARGET, AddrRange::new(i * 2, i * 2 + 1).unwrap(), Duration::from_secs(i));
        }
        history.tidy(Duration::from_secs(3 * MAX_MARKS as u64), Duration::ZERO, |_| true);
        assert!(history.targets[0].1.len() <= MAX_MARKS);
        let last = 3 * MAX_MARKS as u64 - 1;
        assert_eq!(
            pieces(&history, last * 2, last * 2 + 1),
            [(last * 2, last * 2 + 1, Some(last))],
            "the newest marks stay"
        );
    }
}
