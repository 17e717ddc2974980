//! For how long page cache that no process maps has not been accessed, as far as the kernel's lists tell.
//!
//! Such pages have no accessed bit. A page that is read for the first time becomes inactive, and one that is read again
//! becomes active. The kernel takes inactive pages in the order in which they became that. So of what was inactive some
//! time ago, all is idle since then that has neither become active nor was reclaimed, and it is what the kernel takes
//! first.

use std::collections::VecDeque;
use std::time::Duration;

use isotherm_kernel::cgroup::CgroupCounters;

/// An age is known to this part of it.
const STEPS: u32 = 16;

/// Of page cache of unknown age, a hundredth is asked for in this time: the largest step of senpai, which reclaims
/// without knowing what is idle (Weiner et al., "TMO", ASPLOS 2022, 3.3).
const HUNDREDTH_EACH: Duration = Duration::from_secs(6);

/// What is known of the page cache of a cgroup.
#[derive(Debug, Default)]
pub(super) struct CacheAges {
    /// The looks of the last time, the oldest first. Only the first may be older than the age that is asked for.
    looks: VecDeque<CacheSeen>,
    /// When page cache of unknown age was asked for last.
    asked: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct CacheSeen {
    at: Duration,
    /// Bytes that are inactive and that no process maps, at least.
    inactive: u64,
    /// Bytes that have left what is inactive so far, at most, but for those that were freed with their file.
    left: u64,
}

impl CacheAges {
    /// How exactly an age is known.
    pub(super) fn step(age: Duration) -> Duration {
        age / STEPS
    }

    /// Takes in what the kernel counts at the time `now`. Returns how many bytes have been idle for `age`: nothing as
    /// long as that is not known.
    pub(super) fn idle(&mut self, now: Duration, counters: &CgroupCounters, age: Duration) -> u64 {
        let inactive = counters.inactive.saturating_sub(counters.mapped);
        let look = CacheSeen { at: now, inactive, left: counters.activated.saturating_add(counters.reclaimed) };
        let is_new = self.looks.back().is_none_or(|last| now >= last.at + Self::step(age));
        if is_new {
            self.looks.push_back(look);
        }
        while self.looks.get(1).is_some_and(|next| next.at + age <= now) {
            self.looks.pop_front();
        }
        let Some(first) = self.looks.front().filter(|first| first.at + age <= now) else { return 0 };
        // What was freed shows where there was less at any time.
        let least = self.looks.iter().map(|look| look.inactive).fold(inactive, u64::min);
        first.inactive.saturating_sub(look.left.saturating_sub(first.left)).min(least)
    }

    /// How many bytes of unknown age to ask for at the time `now`, beside the `idle` ones: nothing until the cgroup was
    /// looked at for `age`, and then as much as the time since the last call allows.
    pub(super) fn unknown(&mut self, now: Duration, counters: &CgroupCounters, age: Duration, idle: u64) -> u64 {
        if self.looks.front().is_none_or(|first| first.at + age > now) {
            return 0;
        }
        let since = now.saturating_sub(self.asked.replace(now).unwrap_or(now)).min(HUNDREDTH_EACH);
        let unmapped = (counters.inactive + counters.active).saturating_sub(counters.mapped);
        let hundredth = unmapped.saturating_sub(idle) / 100;
        hundredth.saturating_mul(since.as_millis() as u64) / HUNDREDTH_EACH.as_millis() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE: Duration = Duration::from_secs(120);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn counters(inactive: u64, activated: u64, reclaimed: u64) -> CgroupCounters {
        CgroupCounters { inactive, activated, reclaimed, ..CgroupCounters::default() }
    }

    #[test]
    fn what_has_been_inactive_for_the_age_is_idle() {
        let mut ages = CacheAges::default();
        let idle: Vec<u64> = (0..=150).map(|at| ages.idle(seconds(at), &counters(100, 7, 3), AGE)).collect();
        assert_eq!(idle.iter().position(|bytes| *bytes > 0), Some(120), "nothing before that");
        assert!(idle[120..].iter().all(|bytes| *bytes == 100), "{idle:?}");
        assert!(ages.looks.len() <= STEPS as usize + 2, "{}", ages.looks.len());
    }

    #[test]
    fn what_was_read_again_or_reclaimed_or_freed_meanwhile_is_not() {
        for (later, left) in [
            (counters(100, 30, 0), 70),
            (counters(100, 0, 40), 60),
            (counters(500, 30, 40), 30),
            (counters(20, 0, 0), 20),
            (counters(500, 200, 0), 0),
        ] {
            let mut ages = CacheAges::default();
            assert_eq!(ages.idle(seconds(0), &counters(100, 0, 0), AGE), 0);
            assert_eq!(ages.idle(seconds(120), &later, AGE), left, "{later:?}");
        }
        let mut ages = CacheAges::default();
        let freed = [(0, 100), (60, 10), (120, 500)]
            .map(|(at, inactive)| ages.idle(seconds(at), &counters(inactive, 0, 0), AGE));
        assert_eq!(freed, [0, 0, 10], "what came later is younger");
    }

    #[test]
    fn of_what_has_no_known_age_a_hundredth_is_asked_for_each_6_s_after_the_age() {
        let mut ages = CacheAges::default();
        let counters = CgroupCounters { active: 7_000, mapped: 100, ..counters(500, 0, 0) };
        let mut asked = |at| {
            let idle = ages.idle(seconds(at), &counters, AGE);
            ages.unknown(seconds(at), &counters, AGE, idle)
        };
        assert_eq!([0, 60, 119, 120].map(&mut asked), [0; 4], "the cgroup was not looked at for so long");
        // 400 of the 7,400 are idle.
        assert_eq!([126, 129, 300].map(asked), [70, 35, 70], "no more after a pause");
    }

    #[test]
    fn mapped_files_do_not_count_and_what_was_taken_lowers_what_is_left() {
        let mut ages = CacheAges::default();
        let mapped = CgroupCounters { mapped: 30, ..counters(100, 0, 0) };
        ages.idle(seconds(0), &mapped, AGE);
        assert_eq!(ages.idle(seconds(120), &mapped, AGE), 70);
        let taken = CgroupCounters { mapped: 30, ..counters(60, 0, 40) };
        assert_eq!(ages.idle(seconds(121), &taken, AGE), 30);
    }
}
