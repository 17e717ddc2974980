//! Victims: the memory that a scheme has freed, or moved to another node, watched for a while to see how much of it
//! comes back.
//!
//! Memory that was moved comes back if a scheme of the other direction moves it, unless it was in use in between, for
//! most of the time. Memory that was freed comes back if it is in memory again. With a survey, the present pages of the
//! survey show this. Otherwise the pages are checked once, when the time is over.

use std::time::Duration;

use crate::{AddrRange, TargetId};

/// The most ranges that are watched at once. Further ones are not watched, and count neither as freed nor as returned.
const MAX_VICTIMS: usize = 4096;

/// The longest time for which a range is watched.
const LONGEST_WINDOW: Duration = Duration::from_secs(60);

/// The most bytes whose pages are checked for one snapshot, which bounds the time of the check.
const LOOK_BYTES: u64 = 32 << 20;

/// The time for which the victims of a scheme are watched that takes memory of at least this age: memory that comes
/// back sooner was in use more often than the scheme assumes.
pub(crate) fn window(age: Duration) -> Duration {
    age.min(LONGEST_WINDOW)
}

/// The memory that one scheme has freed recently.
#[derive(Debug, Default)]
pub(crate) struct Victims {
    /// In the order in which they were freed.
    watched: Vec<Victim>,
    /// The number of snapshots so far.
    snapshots: u64,
    /// The time of the last survey that was taken in.
    surveyed: Option<Duration>,
    /// Bytes of all ranges that were watched, and of these, bytes that were moved back.
    moves: [u64; 2],
}

/// Bytes that were freed and watched, and how many of them came back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub freed: u64,
    pub returned: u64,
}

/// What a look at freed memory has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FreedSince {
    /// The memory whose window is over.
    pub tally: Tally,
    /// Bytes that have come back since the look before, of all that is watched.
    pub newly: u64,
    /// The ranges of it that were freed.
    pub over: Vec<Freed>,
}

/// A range that was freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Freed {
    pub target: TargetId,
    pub range: AddrRange,
    /// When that was.
    pub at: Duration,
    pub tally: Tally,
}

#[derive(Debug)]
struct Victim {
    target: TargetId,
    range: AddrRange,
    freed: u64,
    /// Bytes of the range that were in memory after the action.
    left: u64,
    at: Duration,
    /// The number of the snapshot on which it was freed.
    snapshot: u64,
    /// A time after the action. The time of its snapshot is before the action, by as long as the scheme was busy.
    after: Option<Duration>,
    returned: u64,
    /// Of these, bytes that were [told](FreedSince::newly) already.
    told: u64,
}

impl Victims {
    /// Takes in what was freed of `range` by an action on the snapshot of the time `at`, and had come back when the
    /// action ended. `left` bytes of the range were not freed.
    pub(crate) fn freed(&mut self, target: TargetId, range: AddrRange, tally: Tally, left: u64, at: Duration) {
        let Tally { freed, returned } = tally;
        if freed == 0 || self.watched.len() >= MAX_VICTIMS {
            return;
        }
        self.moves[0] += freed;
        let (snapshot, after, told) = (self.snapshots, None, 0);
        self.watched.push(Victim { target, range, freed, left, at, snapshot, after, returned, told });
    }

    /// Takes in that `moved` bytes of `range`, which may have been moved by this scheme, were moved back. `counts`
    /// returns how many bytes of a range count that was moved at a time.
    pub(crate) fn moved_back(
        &mut self,
        target: TargetId,
        range: AddrRange,
        moved: u64,
        counts: impl Fn(AddrRange, Duration) -> u64,
    ) {
        let of_target = self.watched.iter_mut().filter(|victim| victim.target == target);
        for (both, victim) in of_target.filter_map(|victim| Some((victim.range.intersection(range)?, victim))) {
            // Where in the range the bytes are is not known.
            let share = u128::from(moved) * u128::from(counts(both, victim.at)) / u128::from(range.size().max(1));
            let share = u64::try_from(share).unwrap_or(u64::MAX);
            let returned = victim.returned.saturating_add(share).min(victim.freed);
            self.moves[1] += returned - victim.returned;
            victim.returned = returned;
        }
    }

    /// How many bytes were watched since the last call, and how many were moved back.
    pub(crate) fn take_moves(&mut self) -> [u64; 2] {
        std::mem::take(&mut self.moves)
    }

    /// Takes out the memory whose window is over at the time `now`, and returns how much of it was moved back.
    pub(crate) fn take_old(&mut self, now: Duration, window: Duration) -> FreedSince {
        let mut tally = Tally::default();
        self.watched.retain(|victim| {
            let is_over = now >= victim.at.saturating_add(window);
            if is_over {
                tally.freed += victim.freed;
                tally.returned += victim.returned;
            }
            !is_over
        });
        FreedSince { tally, newly: tally.returned, over: Vec::new() }
    }

    /// Begins the snapshot of the time `now`. `survey` is the time of the last survey, if there is one, and `present`
    /// returns how many bytes of a range were in memory then, or are now without a survey; `None` if that is not known.
    /// Returns what came back; `None` if nothing was checked, because there was no survey since the last call.
    pub(crate) fn look(
        &mut self,
        now: Duration,
        window: Duration,
        survey: Option<Duration>,
        mut present: impl FnMut(TargetId, AddrRange) -> Option<u64>,
    ) -> Option<FreedSince> {
        self.snapshots += 1;
        for victim in self.watched.iter_mut().filter(|victim| victim.after.is_none()) {
            // The next snapshot may have been taken while the scheme was acting. The one after that was sent later.
            victim.after = (self.snapshots >= victim.snapshot + 2).then_some(now);
        }
        // Each survey is taken in once.
        if survey.is_some() && self.surveyed >= survey {
            return None;
        }
        self.surveyed = survey;
        let seen = survey.unwrap_or(now);
        let mut looked = 0;
        let mut found = FreedSince::default();
        self.watched.retain_mut(|victim| {
            let is_over = seen >= victim.at.saturating_add(window);
            let is_due = match survey {
                Some(survey) => victim.after.is_some_and(|after| after < survey),
                None => is_over && victim.after.is_some() && looked < LOOK_BYTES,
            };
            if !is_due {
                return true;
            }
            looked += victim.range.size();
            let Some(present) = present(victim.target, victim.range) else {
                return false;
            };
            victim.returned = victim.returned.max(present.saturating_sub(victim.left)).min(victim.freed);
            found.newly += victim.returned - std::mem::replace(&mut victim.told, victim.returned);
            if is_over {
                found.tally.freed += victim.freed;
                found.tally.returned += victim.returned;
                let Victim { target, range, at, freed, returned, .. } = *victim;
                found.over.push(Freed { target, range, at, tally: Tally { freed, returned } });
            }
            !is_over
        });
        Some(found)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TARGET: TargetId = TargetId::process(1, Duration::ZERO);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn range(start: u64, end: u64) -> AddrRange {
        AddrRange::new(start, end).unwrap()
    }

    /// Frees 100 bytes on the snapshot of second 1, and looks each second. `present` tells by the time how many of them
    /// are in memory. Returns the judgements.
    fn judged(window: u64, survey: bool, present: impl Fn(u64) -> u64) -> Vec<(u64, Tally)> {
        let mut victims = Victims::default();
        let mut judged = Vec::new();
        for now in 1..30 {
            let seen = survey.then_some(seconds(now));
            let look = victims.look(seconds(now), seconds(window), seen, |_, _| Some(present(now)));
            judged.extend(look.filter(|found| found.tally.freed > 0).map(|found| (now, found.tally)));
            if now == 1 {
                victims.freed(TARGET, range(0, 100), Tally { freed: 80, returned: 0 }, 20, seconds(now));
            }
        }
        judged
    }

    #[test]
    fn what_is_in_memory_again_has_come_back() {
        let all = |returned| vec![(6, Tally { freed: 80, returned })];
        assert_eq!(judged(5, true, |_| 20), all(0), "what the action left does not count");
        assert_eq!(judged(5, true, |now| if now < 5 { 20 } else { 50 }), all(30));
        assert_eq!(judged(5, true, |_| 100), all(80));
        assert_eq!(
            judged(5, true, |now| if now == 5 { 100 } else { 20 }),
            all(80),
            "it came back, and was freed again"
        );
    }

    #[test]
    fn what_came_back_is_told_when_it_is_found_and_each_byte_once() {
        let mut victims = Victims::default();
        let mut told = Vec::new();
        for now in 1..8 {
            let present = [0, 0, 0, 30, 30, 60, 60, 60][now as usize];
            let found = victims.look(seconds(now), seconds(5), Some(seconds(now)), |_, _| Some(present)).unwrap();
            told.push((found.newly, found.over.len()));
            if now == 1 {
                victims.freed(TARGET, range(0, 100), Tally { freed: 100, returned: 10 }, 0, seconds(now));
            }
        }
        assert_eq!(told, [(0, 0), (0, 0), (0, 0), (30, 0), (30, 0), (0, 1), (0, 0)]);
    }

    #[test]
    fn a_survey_from_before_the_action_was_through_does_not_count() {
        assert_eq!(judged(5, true, |now| if now <= 3 { 100 } else { 20 })[0].1.returned, 0);
    }

    #[test]
    fn without_a_survey_the_pages_are_looked_at_when_the_time_is_over() {
        assert_eq!(judged(5, false, |now| if now < 6 { 20 } else { 60 })[0].1, Tally { freed: 80, returned: 40 });
    }

    #[test]
    fn what_is_not_known_counts_as_nothing() {
        let mut victims = Victims::default();
        victims.freed(TARGET, range(0, 100), Tally { freed: 100, returned: 0 }, 0, seconds(1));
        let looks = (2..30).filter_map(|now| victims.look(seconds(now), seconds(2), Some(seconds(now)), |_, _| None));
        assert_eq!(looks.map(|found| found.tally.freed).sum::<u64>(), 0);
        assert!(victims.watched.is_empty());
    }

    proptest! {
        #[test]
        fn every_watched_byte_is_counted_once_and_the_memory_is_bounded(
            freed in prop::collection::vec((1_u64..100, 0_u64..5), 1..200),
            survey in any::<bool>(),
            window in 0_u64..20,
        ) {
            let mut victims = Victims::default();
            let mut total = Tally::default();
            let (mut now, mut bytes, mut newly) = (0, 0, 0);
            let mut look = |victims: &mut Victims, now| {
                let seen = survey.then_some(seconds(now));
                let found = victims.look(seconds(now), seconds(window), seen, |_, _| Some(1000)).unwrap_or_default();
                let tally = found.tally;
                prop_assert!(tally.returned <= tally.freed);
                newly += found.newly;
                total = Tally { freed: total.freed + tally.freed, returned: total.returned + tally.returned };
                Ok(())
            };
            for &(size, pause) in &freed {
                now += 1 + pause;
                look(&mut victims, now)?;
                victims.freed(TARGET, range(0, 100), Tally { freed: size, returned: 0 }, 100 - size, seconds(now));
                bytes += size;
            }
            for now in now + 1..now + 60 {
                look(&mut victims, now)?;
            }
            prop_assert_eq!((total, newly), (Tally { freed: bytes, returned: bytes }, bytes));
        }
    }

    #[test]
    fn what_is_moved_back_within_the_window_has_come_back() {
        let mut victims = Victims::default();
        victims.freed(TARGET, range(0, 100), Tally { freed: 80, returned: 0 }, 0, seconds(1));
        victims.freed(TARGET, range(200, 300), Tally { freed: 100, returned: 0 }, 0, seconds(2));
        let all = |range: AddrRange, _| range.size();
        victims.moved_back(TARGET, range(50, 150), 100, all);
        victims.moved_back(TargetId::process(2, Duration::ZERO), range(200, 300), 100, all);
        assert_eq!(victims.take_old(seconds(60), seconds(60)).tally, Tally::default());
        assert_eq!(victims.take_old(seconds(61), seconds(60)).tally, Tally { freed: 80, returned: 50 });
        victims.moved_back(TARGET, range(200, 300), 1000, all);
        assert_eq!(victims.take_old(seconds(62), seconds(60)).tally, Tally { freed: 100, returned: 100 });
    }

    #[test]
    fn the_number_of_victims_is_bounded() {
        let mut victims = Victims::default();
        let one = Tally { freed: 1, returned: 0 };
        (0..2 * MAX_VICTIMS as u64).for_each(|i| victims.freed(TARGET, range(i, i + 1), one, 0, seconds(1)));
        assert_eq!(victims.watched.len(), MAX_VICTIMS);
    }
}
