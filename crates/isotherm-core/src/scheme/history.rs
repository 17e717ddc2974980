//! The history of actions: when schemes have acted on which memory, so that its age starts again there.
//!
//! The age in a snapshot is the monitor's: for how long the access frequency has stayed the same. The age that
//! schemes use is the shorter of that and of the time since a scheme acted on the memory. The time of the action is
//! kept here and not in the monitor for three reasons. It stays exact to the page when the monitor merges memory that
//! was acted on with memory that was not. The monitor needs no way back from its sinks. And it works for snapshots of
//! the kernel's DAMON and of recordings as well.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{AddrRange, TargetId};

/// The most marks of a target, unless a history says otherwise. Neighbours are joined and then the oldest marks are
/// dropped until there are no more.
const MAX_MARKS: usize = 4096;

/// Two marks are joined if their times differ by no more than the time since the later one divided by this number.
/// The joined mark has the later time: memory can seem a little younger than it is, but never older.
const AGE_RESOLUTION: u32 = 8;

/// What has no effect any more is dropped after this time. With 262,144 marks, that takes 15 ms.
const TIDY_AFTER: Duration = Duration::from_secs(5);

/// When each range of each target was acted on last.
#[derive(Debug)]
pub(crate) struct ActionHistory {
    /// The most marks of a target.
    most: usize,
    /// The marks of each target.
    targets: BTreeMap<TargetId, Marks>,
    /// When it was tidied last.
    tidied: Option<Duration>,
}

/// Disjoint ranges that were acted on, by their first address: the end of each, and when.
type Marks = BTreeMap<u64, (u64, Duration)>;

/// A range that a scheme acted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    range: AddrRange,
    at: Duration,
}

impl Default for ActionHistory {
    fn default() -> Self {
        Self::of_at_most(MAX_MARKS)
    }
}

impl ActionHistory {
    /// A history with at most this many marks of each target.
    pub(crate) const fn of_at_most(most: usize) -> Self {
        Self { most, targets: BTreeMap::new(), tidied: None }
    }

    /// Drops targets that have ended and marks from before `horizon`, and joins neighbours of about the same time: at
    /// the first call, then every five seconds, and whenever a target has more marks than it may have.
    pub(crate) fn tidy(&mut self, now: Duration, horizon: Duration, lives: impl Fn(TargetId) -> bool) {
        let is_due = self.tidied.is_none_or(|tidied| now >= tidied.saturating_add(TIDY_AFTER));
        if !is_due && self.targets.values().all(|marks| marks.len() <= self.most) {
            return;
        }
        self.tidied = Some(now);
        self.targets.retain(|target, marks| lives(*target) && !marks.is_empty());
        for of_target in self.targets.values_mut() {
            let kept = std::mem::take(of_target).into_iter().filter(|(_, (_, at))| *at >= horizon);
            let mut marks: Vec<Mark> = kept
                .filter_map(|(start, (end, at))| AddrRange::new(start, end).map(|range| Mark { range, at }))
                .collect();
            join(&mut marks, now, self.most);
            drop_oldest(&mut marks, self.most);
            *of_target = marks.into_iter().map(|mark| (mark.range.start(), (mark.range.end(), mark.at))).collect();
        }
    }

    /// Marks `range` of `target` as acted on at this time.
    pub(crate) fn mark(&mut self, target: TargetId, range: AddrRange, at: Duration) {
        self.forget(target, range);
        self.targets.entry(target).or_default().insert(range.start(), (range.end(), at));
    }

    /// Forgets what was done to `range` of `target`.
    pub(crate) fn forget(&mut self, target: TargetId, range: AddrRange) {
        let Some(marks) = self.targets.get_mut(&target) else { return };
        // The mark that begins below the range keeps what lies outside.
        if let Some((_, (end, before))) = marks.range_mut(..range.start()).next_back() {
            let (last, before) = (*end, *before);
            *end = last.min(range.start());
            if last > range.end() {
                marks.insert(range.end(), (last, before));
            }
        }
        while let Some((start, (end, before))) = marks.range(range.start()..range.end()).next() {
            let (start, end, before) = (*start, *end, *before);
            marks.remove(&start);
            if end > range.end() {
                marks.insert(range.end(), (end, before));
            }
        }
    }

    /// Cuts `range` where the time of the last action changes, and calls `each` with the parts in the order of
    /// addresses and with that time.
    pub(crate) fn pieces(&self, target: TargetId, range: AddrRange, mut each: impl FnMut(AddrRange, Option<Duration>)) {
        let mut rest = Some(range);
        if let Some(marks) = self.targets.get(&target) {
            let first = marks.range(..range.start()).next_back();
            for (&start, &(end, at)) in first.into_iter().chain(marks.range(range.start()..range.end())) {
                let marked = AddrRange::new(start, end).and_then(|mark| rest?.intersection(mark));
                let (Some(left), Some(marked)) = (rest, marked) else { continue };
                if let Some(unmarked) = AddrRange::new(left.start(), marked.start()) {
                    each(unmarked, None);
                }
                each(marked, Some(at));
                rest = AddrRange::new(marked.end(), left.end());
            }
        }
        if let Some(unmarked) = rest {
            each(unmarked, None);
        }
    }
}

/// Joins neighbours of about the same time: the longer ago they are, and the more marks there are, the more times are
/// about the same.
fn join(marks: &mut Vec<Mark>, now: Duration, most: usize) {
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
        if marks.len() <= most || resolution <= 1 {
            break;
        }
        resolution /= 2;
    }
}

/// Drops the oldest marks until there are no more than `most`. Marks that do not touch each other cannot be joined.
fn drop_oldest(marks: &mut Vec<Mark>, most: usize) {
    while marks.len() > most {
        let mut times: Vec<Duration> = marks.iter().map(|mark| mark.at).collect();
        times.sort_unstable();
        let median = times[times.len() / 2];
        let before = marks.len();
        marks.retain(|mark| mark.at > median);
        if marks.len() == before {
            marks.truncate(most);
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
        assert!(history.targets[&TARGET].len() <= MAX_MARKS);
        let last = 3 * MAX_MARKS as u64 - 1;
        assert_eq!(
            pieces(&history, last * 2, last * 2 + 1),
            [(last * 2, last * 2 + 1, Some(last))],
            "the newest marks stay"
        );
    }
}
