//! What schemes have acted on, and when: so that there the age starts again.
//!
//! The age that a snapshot tells stays the monitor's: for how long the access frequency has stayed as it is. The age that schemes
//! go by is the shorter of that and the time since a scheme acted. Kept here, page for page, it is not blurred when the
//! monitor merges what was acted on with what was not; nothing has to find its way back into the monitor; and it
//! holds as well where the snapshots come from a kernel's DAMON or from a recording.

use std::time::Duration;

use crate::{AddrRange, TargetId};

/// No target has more marks than this; the oldest neighbours become one before that.
const MAX_MARKS: usize = 4096;

/// When each piece of each target was acted on last.
#[derive(Debug, Default)]
pub(crate) struct ActionHistory {
    targets: Vec<(TargetId, Vec<Mark>)>,
}

/// Sorted and disjoint within a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    range: AddrRange,
    at: Duration,
}

impl ActionHistory {
    /// Forgets targets that are gone and what was done before `horizon`, and joins neighbours that were acted on at about the
    /// same time.
    pub(crate) fn tidy(&mut self, now: Duration, horizon: Duration, lives: impl Fn(TargetId) -> bool) {
        self.targets.retain(|(target, _)| lives(*target));
        for (_, marks) in &mut self.targets {
            marks.retain(|mark| mark.at >= horizon);
            // An eighth of the time since makes no difference: the later time is taken, which errs towards too young.
            let mut share = 8;
            loop {
                marks.dedup_by(|next, kept| {
                    let (early, late) = (kept.at.min(next.at), kept.at.max(next.at));
                    let about_the_same = late - early <= now.saturating_sub(late) / share;
                    match AddrRange::new(kept.range.start(), next.range.end()) {
                        Some(both) if kept.range.touches(next.range) && about_the_same => {
                            *kept = Mark { range: both, at: late };
                            true
                        }
                        _ => false,
                    }
                });
                if marks.len() <= MAX_MARKS || share <= 1 {
                    break;
                }
                share /= 2;
            }
            // What is left over can only be many pieces far apart: the oldest are forgotten.
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

    /// A scheme acted on `range` of `target`.
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

    /// The pieces of `range`, in the order of addresses, with the time at which each was acted on.
    pub(crate) fn pieces(&self, target: TargetId, range: AddrRange, mut tell: impl FnMut(AddrRange, Option<Duration>)) {
        let marks = self.targets.iter().find(|(known, _)| *known == target).map_or(&[][..], |(_, marks)| marks);
        let first = marks.partition_point(|mark| mark.range.end() <= range.start());
        let mut rest = Some(range);
        for mark in &marks[first..] {
            let Some((left, marked)) = rest.and_then(|left| Some((left, left.intersection(mark.range)?))) else {
                break;
            };
            if let Some(unmarked) = AddrRange::new(left.start(), marked.start()) {
                tell(unmarked, None);
            }
            tell(marked, Some(mark.at));
            rest = AddrRange::new(marked.end(), left.end());
        }
        if let Some(unmarked) = rest {
            tell(unmarked, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TARGET: TargetId = TargetId::process(1, Duration::ZERO);

    fn pieces(history: &ActionHistory, start: u64, end: u64) -> Vec<(u64, u64, Option<u64>)> {
        let mut told = Vec::new();
        history.pieces(TARGET, AddrRange::new(start, end).unwrap(), |range, at| {
            told.push((range.start(), range.end(), at.map(|at| at.as_secs())));
        });
        told
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
        fn tidying_makes_nothing_much_older_or_younger(
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
                        prop_assert!(after >= before, "it never makes memory older than it is");
                        prop_assert!((now - before) <= (now - after) * 5 / 4);
                    }
                    other => prop_assert!(false, "{other:?}"),
                }
            }
        }
    }

    #[test]
    fn a_target_that_is_gone_is_forgotten() {
        let mut history = ActionHistory::default();
        history.mark(TARGET, AddrRange::new(0, 4).unwrap(), Duration::from_secs(1));
        history.tidy(Duration::from_secs(2), Duration::ZERO, |target| target != TARGET);
        assert_eq!(pieces(&history, 0, 4), [(0, 4, None)]);
    }

    #[test]
    fn marks_have_a_bound() {
        let mut history = ActionHistory::default();
        for i in 0..3 * MAX_MARKS as u64 {
            history.mark(TARGET, AddrRange::new(i * 2, i * 2 + 1).unwrap(), Duration::from_secs(i));
        }
        history.tidy(Duration::from_secs(3 * MAX_MARKS as u64), Duration::ZERO, |_| true);
        assert!(history.targets[0].1.len() <= MAX_MARKS);
        let last = 3 * MAX_MARKS as u64 - 1;
        assert_eq!(pieces(&history, last * 2, last * 2 + 1), [(last * 2, last * 2 + 1, Some(last))], "the newest stay");
    }
}
