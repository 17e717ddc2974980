//! How the thread of the monitor is scheduled.

use std::time::Duration;

use isotherm_kernel::scheduling::{GivingWay, Urgent, bind, lock_memory, set_nice};

use crate::RunError;

/// How the thread of the monitor is scheduled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scheduling {
    /// Its nice value, −20 to 19. With `None`, the thread [gives way](GivingWay) after its start, and the targets come
    /// first, unless it has woken up late too often. If it samples at a fixed interval, it is [urgent](Urgent): what it
    /// measures depends on when it wakes up.
    pub nice: Option<i32>,
    /// The processors that it runs on; all if empty.
    pub cpus: Vec<usize>,
    /// Whether the memory of this process stays in memory, where that is allowed.
    pub locks_memory: bool,
}

impl Scheduling {
    /// Applies it to the calling thread, which samples at a fixed interval or not. What is returned follows how
    /// punctual the thread is.
    pub(crate) fn apply(&self, is_fixed: bool) -> Result<Urgency, RunError> {
        if let Some(wanted) = self.nice {
            set_nice(wanted).map_err(|source| RunError::Nice { nice: wanted, source })?;
        }
        if !self.cpus.is_empty() {
            bind(&self.cpus).map_err(RunError::Affinity)?;
        }
        if self.locks_memory {
            // The limit on locked memory may be too low. Then pages are read in again when they are needed.
            let _ = lock_memory();
        }
        Ok(match (self.nice, is_fixed) {
            (Some(_), _) => Urgency { punctuality: None, standing: Standing::AsBefore },
            (None, true) => Urgency { punctuality: None, standing: Standing::new(Rank::Urgent) },
            // On a busy machine, a thread that gives way would need many seconds for what there is to do at the start.
            (None, false) => {
                Urgency { punctuality: Some(Punctuality::default()), standing: Standing::new(Rank::Equal) }
            }
        })
    }
}

/// How the thread competes for a processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    #[default]
    GivesWay,
    /// It has the same share as the threads of other programs, and [gives way](GivingWay::with_equal_share) to those
    /// that wake up.
    Equal,
    Urgent,
}

/// The rank that the thread has now.
#[derive(Debug)]
enum Standing {
    /// None: it is scheduled as its program was started.
    AsBefore,
    GivesWay(#[allow(dead_code, reason = "it is in force until it is dropped")] GivingWay),
    Equal(#[allow(dead_code, reason = "it is in force until it is dropped")] GivingWay),
    Urgent(#[allow(dead_code, reason = "it is in force until it is dropped")] Urgent),
}

impl Standing {
    fn new(rank: Rank) -> Self {
        match rank {
            Rank::GivesWay => Self::GivesWay(GivingWay::begin()),
            Rank::Equal => Self::Equal(GivingWay::with_equal_share()),
            Rank::Urgent => Self::Urgent(Urgent::begin()),
        }
    }

    fn rank(&self) -> Option<Rank> {
        match self {
            Self::AsBefore => None,
            Self::GivesWay(_) => Some(Rank::GivesWay),
            Self::Equal(_) => Some(Rank::Equal),
            Self::Urgent(_) => Some(Rank::Urgent),
        }
    }
}

/// Raises the rank of the thread while it would wake up late too often.
#[derive(Debug)]
pub(crate) struct Urgency {
    /// How punctual the thread is, if its rank follows from that.
    punctuality: Option<Punctuality>,
    standing: Standing,
}

impl Urgency {
    /// Takes in that the thread woke up at `now`, whether that was late, and for how long it waited for a processor in
    /// its work before.
    pub(crate) fn woke(&mut self, now: Duration, late: bool, waited: Duration) {
        let Some(punctuality) = &mut self.punctuality else { return };
        let rank = punctuality.rank(now, late, waited);
        if self.standing.rank() != Some(rank) {
            // The rank before ends first.
            self.standing = Standing::AsBefore;
            self.standing = Standing::new(rank);
        }
    }
}

/// How punctual a thread was recently.
#[derive(Debug, Default)]
struct Punctuality {
    /// For each of the last 32 times that it woke up, a bit that says whether that was late. A [`LONG_WAIT`] within its
    /// work counts as one such time.
    recent: u32,
    rank: Rank,
    /// Until when it has this rank.
    until: Duration,
}

/// How many of the last times may be late. Rates take in how late a round was, so that a few late ones do no harm. With
/// a quarter of them late, reports say that rates cannot be relied on.
const MOST_LATE: u32 = 6;

/// A part of a survey takes 20 ms of CPU time. If it takes several times as long, its pages are read at different
/// times, and samples wait for its end.
const LONG_WAIT: Duration = Duration::from_millis(50);

/// For how long a thread has a higher rank. Nothing else says whether the machine is still busy.
const LENGTH: Duration = Duration::from_secs(60);

impl Punctuality {
    /// Takes in that the thread woke up at `now`, whether that was late, and for how long it waited for a processor
    /// before. Returns its rank from now on: one higher if it was late too often with the rank that it has.
    fn rank(&mut self, now: Duration, late: bool, waited: Duration) -> Rank {
        let long_waits = (waited.as_nanos() / LONG_WAIT.as_nanos()).min(u32::BITS.into()) as u32;
        let times = u64::from(self.recent) << 1 | u64::from(late);
        self.recent = ((times << long_waits) | ((1 << long_waits) - 1)) as u32;
        let is_late = self.recent.count_ones() > MOST_LATE;
        if now >= self.until && !is_late {
            self.rank = Rank::GivesWay;
        }
        if is_late {
            self.recent = 0;
            self.until = now + LENGTH;
            self.rank = match self.rank {
                Rank::GivesWay => Rank::Equal,
                Rank::Equal | Rank::Urgent => Rank::Urgent,
            };
        }
        self.rank
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEAT: Duration = Duration::from_millis(5);

    /// The rank of the thread after each time that it wakes up, late in those that `is_late` says.
    fn ranks(count: u32, is_late: impl Fn(u32) -> bool) -> Vec<Rank> {
        let mut punctuality = Punctuality::default();
        (0..count).map(|nth| punctuality.rank(BEAT * nth, is_late(nth), Duration::ZERO)).collect()
    }

    #[test]
    fn a_thread_that_is_late_once_in_a_while_gives_way() {
        assert!(ranks(10_000, |nth| nth % 6 == 5).iter().all(|rank| *rank == Rank::GivesWay));
    }

    #[test]
    fn a_thread_that_is_late_often_gives_way_no_longer_for_a_while() {
        let ranks = ranks(14_000, |nth| nth < 28);
        assert_eq!((ranks[5], ranks[6]), (Rank::GivesWay, Rank::Equal));
        assert_eq!((ranks[12], ranks[13]), (Rank::Equal, Rank::Urgent), "that was not enough");
        assert!(ranks[13..12_000].iter().all(|rank| *rank == Rank::Urgent), "for a minute");
        assert_eq!(ranks[13_999], Rank::GivesWay);
    }

    #[test]
    fn a_thread_whose_work_waits_long_for_a_processor_gives_way_no_longer() {
        let rank = |waited: u64| {
            let mut punctuality = Punctuality::default();
            punctuality.rank(BEAT, false, Duration::from_millis(waited))
        };
        assert_eq!(
            [0, 49, 349, 350, 4_000, 100_000].map(rank),
            [Rank::GivesWay, Rank::GivesWay, Rank::GivesWay, Rank::Equal, Rank::Equal, Rank::Equal]
        );
    }

    #[test]
    fn a_thread_that_stays_late_stays_urgent() {
        let ranks = ranks(30_000, |nth| nth % 4 == 3);
        assert!(ranks[60..].iter().all(|rank| *rank == Rank::Urgent));
    }
}
